"""The base classes of CQL statements, and the conditions and changes of cells that they hold as values.

Each kind of statement is one class in this package. A statement is a value. The parser makes it, the renderer
(`cql.render`) writes it as text. It tells the schema after it, its risks, whether it took effect, and whether a
migration may contain it. `apply` is as strict as a server, so that a migration is known to work before it runs: each
error says what the server would say, and how to mend it. Where versions differ in details, the newest one counts. What
only a server knows (its guardrails, the options of its classes) is not judged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from mailmend.cql.schema.difference import Aspect, differences
from mailmend.cql.schema.risk import Assessment, Before, Danger, DroppedColumns, Risk
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import EMPTY, Schema, SchemaPart, find, without
from mailmend.model.names import Name, name_of
from mailmend.model.table import Column, Table

if TYPE_CHECKING:
    from mailmend.cql.statements.data import WriteRows


class LeftSide(Enum):
    """What a condition compares."""

    COLUMN = "a column"
    PART = "an element or a field of a column"
    TUPLE = "several columns"
    TOKEN = "the token of several columns"  # noqa: S105 - no password


@dataclass(frozen=True, slots=True)
class Compared:
    """One condition.

    Attributes:
        columns: the columns that it compares, as the server knows them.
        operator: in capitals, as `=`, `NOT IN`, `CONTAINS KEY`.
        value: the text of the other side; "" for IS NOT NULL.
        element: the index or key between brackets after the column; "" without.
        field_name: the field after the column and a dot, as the server knows it; "" without.
    """

    columns: tuple[str, ...]
    operator: str
    value: str
    left: LeftSide = LeftSide.COLUMN
    element: str = ""
    field_name: str = ""

    @property
    def compares_column(self) -> bool:
        """Whether it says that one whole column equals a value."""
        return self.left is LeftSide.COLUMN and self.operator == "="


class CellOperator(Enum):
    """What a statement does to a column, an element or a field; the value is CQL's form of it."""

    SET = "c = value"
    ADD = "c = c + value"
    SUBTRACT = "c = c - value"
    PREPEND = "c = value + c"
    DELETE = "DELETE c"


@dataclass(frozen=True, slots=True)
class CellChange:
    """One assignment of an UPDATE, or one column or part of a column that a DELETE names.

    Attributes:
        column: the column, as the server knows it.
        value: the text of the value; "" for DELETE.
        element: the index or key between brackets after the column; "" without.
        field_name: the field after the column and a dot, as the server knows it; "" without.
    """

    column: str
    operator: CellOperator
    value: str = ""
    element: str = ""
    field_name: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is about the whole column."""
        return not self.element and not self.field_name

    @property
    def sets_column(self) -> bool:
        """Whether it sets the whole column."""
        return self.whole and self.operator is CellOperator.SET

    def conflicts_with(self, other: "CellChange") -> bool:
        """Whether one UPDATE cannot have both: one of them sets the whole column, or both set the same field."""
        if self.column != other.column:
            return False
        same_field = self.field_name != "" and self.field_name == other.field_name
        return same_field or self.sets_column or other.sets_column


class Effect(Enum):
    """Whether a statement whose answer was lost took effect, judged by the live schema."""

    APPLIED = "applied"  # sending it again would fail, or do nothing
    NOT_APPLIED = "not applied"  # or sending it again is harmless
    DIFFERENT = "different"  # what it names exists, but not as the statement would have left it

    @staticmethod
    def done(holds: bool) -> "Effect":  # noqa: FBT001 - the one thing it is about
        """APPLIED where it holds, else NOT_APPLIED."""
        if holds:
            return Effect.APPLIED
        return Effect.NOT_APPLIED

    @staticmethod
    def alike(holds: bool) -> "Effect":  # noqa: FBT001 - the one thing it is about
        """APPLIED where it holds, else DIFFERENT."""
        if holds:
            return Effect.APPLIED
        return Effect.DIFFERENT

    @staticmethod
    def of_all(parts: "Sequence[Effect]", *, repeats: bool = False) -> "Effect":
        """The effect of a statement of several parts; mixed effects are DIFFERENT, unless it may be sent again."""
        kinds = set(parts)
        if len(kinds) == 1:
            return parts[0]
        if not kinds or not repeats:
            return Effect.DIFFERENT
        return Effect.done(Effect.NOT_APPLIED not in kinds)

    @staticmethod
    def of_renames(renames: Iterable[tuple[str, str]], names: Iterable[str]) -> "Effect":
        """NOT_APPLIED where each old name exists and no new one does, APPLIED the other way round.

        A name that is renamed twice gets the last new name, as on servers.
        """
        there = set(names)
        last = {name_of(old): name_of(new) for old, new in renames}
        steps = {(True, False): Effect.NOT_APPLIED, (False, True): Effect.APPLIED}
        effects = []
        for old, new in last.items():
            effects.append(steps.get((old in there, new in there), Effect.DIFFERENT))
        return Effect.of_all(effects)


class Statement:
    """A statement of CQL. Unless its kind says more, it changes no schema and risks nothing."""

    __slots__ = ()
    dangers: ClassVar[tuple[Danger, ...]] = ()
    harmless: ClassVar[str] = ""
    """Why the statement risks nothing when no danger applies."""
    unfit: ClassVar[str] = ""
    """Why no migration may contain it; "" where one may."""
    creates: ClassVar[str] = ""
    """The kind of object that it creates: table, type, view, index; "" where it creates none."""
    defines_table: ClassVar[bool] = False
    """Whether it sets columns or options of a table or view."""
    undo: ClassVar[str] = ""
    """How to undo it on a live keyspace, as a sentence; "" where nothing general can be said."""

    @property
    def keyspace_named(self) -> str | None:
        """The keyspace that it names, as spelled."""
        return None

    @property
    def subject(self) -> str:
        """The object that it is about, for messages."""
        return ""

    @property
    def about(self) -> str:
        """The spelling of the table, type, index or view that it is about; "" where it is about none."""
        return ""

    @property
    def created(self) -> str:
        """The kind and name of the object that it creates, for reports; "" where it creates none."""
        return ""

    @property
    def parts(self) -> "tuple[Statement, ...]":
        """The statement itself, or those inside a batch."""
        return (self,)

    @property
    def row_writes(self) -> "tuple[WriteRows, ...]":
        """The rows that it writes, itself or in a batch."""
        return ()

    @property
    def table_created(self) -> Table | None:
        return None

    def creating(self, table: Table) -> "Statement":
        """The same statement creating another table; itself where it creates none."""
        return self

    @property
    def columns_added(self) -> tuple[Column, ...]:
        return ()

    @property
    def keyspace_chosen(self) -> str | None:
        """The keyspace that it selects for later statements (USE); None where it selects none."""
        return None

    @property
    def options_set(self) -> Mapping[str, str] | None:
        """The table options that it names, as literals; None where it cannot name any."""
        return None

    def needs(self) -> frozenset[str]:
        """The names of tables, types, indexes and views that must exist before it."""
        return frozenset()

    def makes(self) -> frozenset[str]:
        """The names that it creates."""
        return frozenset()

    def drops(self) -> DroppedColumns:
        """The columns that it drops."""
        return frozenset()

    def apply(self, schema: Schema) -> Schema:
        """The schema after the statement.

        Raises:
            SchemaRefused: the server would refuse the statement.
        """
        return schema

    def replication(self, before: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """The keyspace's replication after the statement; None where it is not known.

        Args:
            before: the replication before it; None where it is not known.
        """
        return before

    def assess(self, live: Schema, dropped: DroppedColumns = frozenset()) -> Assessment:
        """The risks of the statement for the live keyspace.

        Args:
            live: the keyspace before the plan begins; a table that is not in it is taken for one that the plan creates.
            dropped: columns that the plan itself drops before; what was dropped long ago is known to the live tables.
        """
        before = Before(live, dropped)
        reasons: dict[Risk, str] = {}
        for part in self.parts:
            for danger in part.dangers:
                if danger.holds(part, before):
                    reasons[danger.risk] = danger.why.format(name=part.subject)
        if not reasons:
            return Assessment((Risk.NONE,), self.harmless)
        return Assessment(tuple(risk for risk in Risk if risk in reasons), " ".join(reasons.values()))

    def took_effect(self, live: Schema) -> Effect:
        """Whether the statement took effect, judged by the live schema alone.

        For statements whose answer was lost (the process was killed, the node went away). Each kind of change leaves a
        visible effect, or can be sent again without harm.
        """
        return Effect.NOT_APPLIED

    def may_not_have_run(self, live: Schema) -> bool:
        """Whether the live columns and keys cannot show that it ran: rows, options, drops."""
        return False

    def remaining(self, live: Schema) -> "Statement | None":
        """The part of the statement that still has an effect on the live schema; None where nothing is left."""
        if self.took_effect(live) is not Effect.NOT_APPLIED:
            return None
        return self

    def refusal_in_migration(self, keyspace: str = "") -> str:
        """Why a migration may not contain it (`keyspace`: the one that migration is for); "" where it may.

        A migration may run on any keyspace, by several people, and again after a crash. So it names no keyspace, and
        for each statement the live schema shows whether it ran, or it can be sent twice without harm.
        """
        return self.unfit


@dataclass(frozen=True, slots=True)
class NamedStatement(Statement):
    """A statement about a table, type, index or view."""

    name: Name
    verb: ClassVar[str] = ""
    """The name of the statement in errors, such as `ALTER TABLE ADD`."""

    @property
    def keyspace_named(self) -> str | None:
        return self.name.keyspace

    @property
    def subject(self) -> str:
        return str(self.name)

    @property
    def about(self) -> str:
        return self.name.spelling

    @property
    def created(self) -> str:
        if not self.creates:
            return ""
        return f"{self.creates} {self.name.spelling}"

    def needs(self) -> frozenset[str]:
        return frozenset({name_of(self.name.spelling)})

    def makes(self) -> frozenset[str]:
        if not self.creates:
            return frozenset()
        return frozenset({name_of(self.name.spelling)})

    def refusal_in_migration(self, keyspace: str = "") -> str:
        named = self.name.keyspace
        if not self.unfit and named is not None and keyspace and name_of(named) != name_of(keyspace):
            return f"it names the keyspace {named}, the migrations are applied to {keyspace}"
        if "extensions" in (self.options_set or {}):
            return "extensions belong to Java classes of the server, and the schema here has no place for them"
        return self.unfit

    def refused(self, reason: str, *, mend: str = "") -> SchemaRefused:
        return SchemaRefused(self.verb, str(self.name), reason, mend=mend)

    def must(self, problem: str) -> None:
        """Raises `SchemaRefused` if there is a problem; "" means no problem."""
        if problem:
            raise self.refused(problem)

    def table_in(self, schema: Schema) -> Table:
        """The table that the statement names; raises `SchemaRefused` where there is no such table."""
        return table_of(schema, self.name, self.verb)

    def lacks_table(self, schema: Schema) -> bool:
        """Whether neither a table nor a view has the name."""
        return find(schema.tables, self.name.spelling) is None and find(schema.views, self.name.spelling) is None


@dataclass(frozen=True, slots=True)
class Drop(NamedStatement):
    """DROP of a table, type, index or view."""

    if_exists: bool = False
    word: ClassVar[str] = ""
    """CQL's word for the kind of object that is dropped."""

    held_in: ClassVar[str] = ""
    """The field of `Schema` with objects of that kind."""
    harmless = "The table does not exist yet."

    def among(self, schema: Schema) -> Sequence[SchemaPart]:
        """The objects of that kind in a schema."""
        parts: Sequence[SchemaPart] = getattr(schema, self.held_in)
        return parts

    def without(self, schema: Schema) -> Schema:
        """The schema without the dropped object, which must exist."""
        kept: dict[str, Any] = {self.held_in: without(tuple(self.among(schema)), self.name.spelling)}
        return replace(schema, **kept)

    def apply(self, schema: Schema) -> Schema:
        if find(self.among(schema), self.name.spelling) is not None:
            return self.without(schema)
        if not self.if_exists:
            raise self.refused(f"there is no such {self.word.lower()}")
        return schema

    def took_effect(self, live: Schema) -> Effect:
        return Effect.done(find(self.among(live), self.name.spelling) is None)

    def may_not_have_run(self, live: Schema) -> bool:
        return self.took_effect(live) is not Effect.APPLIED


def table_of(schema: Schema, name: Name, verb: str) -> Table:
    """The table of that name."""
    table = find(schema.tables, name.spelling)
    if table is not None:
        return table
    if find(schema.views, name.spelling) is not None:
        mend = "Change its base table, or use the statements for materialized views."
        raise SchemaRefused(verb, str(name), "it is a materialized view, not a table", mend=mend)
    mend = ""
    same = [other.spelling for other in schema.tables if other.name.lower() == name_of(name.spelling).lower()]
    if same:
        mend = f"There is {same[0]}: a name in double quotes keeps its case."
    raise SchemaRefused(verb, str(name), "there is no such table", mend=mend)


def makes_alike(statement: Statement, before: Schema, live: Schema) -> bool:
    """Whether the statement turns `before` into the live schema, except for options, which may have changed since."""
    try:
        found = differences(statement.apply(before), live)
    except SchemaRefused:
        return False
    return all(difference.aspect is Aspect.DIFFERENT_OPTION for difference in found)


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text: from `start` up to, not including, `end`, in characters."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement with its place in a file.

    Attributes:
        span: from its first character to its last, without the semicolon.
        name_at: the place of the name that decides the keyspace; None without such a name.
        places: where parts of it stand, as ("column", name), ("option", name), ("field", name), ("key", ""), a view's
            ("base", ""), the names in a batch as ("name", "0") and so on; names as the server knows them.
        notes: the comments right before the statement, line by line, without their dashes.
        file: its name; "" where the text is of no file.
    """

    statement: Statement
    span: Span
    name_at: Span | None = None
    places: Mapping[tuple[str, str], Span] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    file: str = field(default="", compare=False)


def apply_all(parsed: Iterable[Parsed], schema: Schema = EMPTY) -> Schema:
    """The schema after all the statements, one after the other."""
    for step in parsed:
        schema = step.statement.apply(schema)
    return schema
