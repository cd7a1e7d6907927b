"""INSERT, UPDATE, DELETE and batches (only what rules need), TRUNCATE, and statements that change no table."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mailmend.cql.schema.risk import Before, Danger, Risk
from mailmend.cql.statements.base import CellChange, Compared, NamedStatement, Statement, table_of
from mailmend.cql.statements.indexes import is_attached
from mailmend.cql.statements.literals import LiteralForm, parse_literal
from mailmend.cql.statements.tables import ROWS_GONE
from mailmend.cql.statements.write_rules import WriteKind, write_problem
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import Schema, find
from mailmend.model.names import columns_of, name_of
from mailmend.model.table import Table

_WRITES_ROWS = "It writes rows: older values of the same cells are overwritten."


@dataclass(frozen=True, slots=True)
class WriteRows(NamedStatement):
    """INSERT, UPDATE or DELETE: it changes no schema, but it needs its table and columns.

    Attributes:
        columns: the columns that are written or deleted (empty: whole rows); lower case unless quoted.
        values: by column, the text of the value that it is set to or compared with (a literal or a bind mark).
        where: the conditions of its WHERE.
        only_if: the conditions of its IF.
        timeout: whether USING TIMEOUT is part of it, or of its batch (only ScyllaDB has it).
        json: by column, the values of the object after INSERT ... JSON; None without, or where it is bound later.
        cells: the assignments of an UPDATE; the columns and parts of columns that a DELETE names.
    """

    change: WriteKind
    columns: tuple[str, ...] = ()
    timestamp: str | None = None
    ttl: str | None = None
    conditional: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    where: tuple[Compared, ...] = ()
    only_if: tuple[Compared, ...] = ()
    cells: tuple[CellChange, ...] = ()
    timeout: bool = False
    json: Mapping[str, object] | None = None
    harmless = _WRITES_ROWS

    def _deletes(self, before: Before) -> bool:
        return self.change is WriteKind.DELETE and before.holds(self.name)

    dangers = (Danger(Risk.DATA_LOSS, "It deletes rows or cells of {name}; nothing keeps a copy of them.", _deletes),)

    @property
    def row_writes(self) -> "tuple[WriteRows, ...]":
        return (self,)

    def apply(self, schema: Schema) -> Schema:
        table = table_of(schema, self.name, self.change.value)
        self.must(write_problem(self, schema, table))
        return schema

    def counts(self, schema: Schema) -> bool:
        """Whether it changes counters."""
        return table_of(schema, self.name, self.change.value).has_counters

    def partition(self, schema: Schema) -> tuple[str, ...] | None:
        """The table, and the texts of the values of its partition key; None where they are not known."""
        table = table_of(schema, self.name, self.change.value)
        texts = []
        for column in table.partition:
            text = self.values.get(column.name, "")
            if parse_literal(text).form is LiteralForm.OTHER:
                return None
            texts.append(text)
        return (table.name, *texts)

    def refused(self, reason: str, *, mend: str = "") -> SchemaRefused:
        return SchemaRefused(self.change.value, str(self.name), reason, mend=mend)

    def may_not_have_run(self, live: Schema) -> bool:
        return True

    def refusal_in_migration(self, keyspace: str = "") -> str:
        refusal = NamedStatement.refusal_in_migration(self, keyspace)
        if not refusal and self.conditional and self.change is not WriteKind.INSERT:
            return "the result of its condition would be lost; only INSERT ... IF NOT EXISTS may have one"
        return refusal


@dataclass(frozen=True, slots=True)
class Batch(Statement):
    """BEGIN BATCH ... APPLY BATCH."""

    writes: tuple[WriteRows, ...]
    logged: bool = True
    counter: bool = False
    harmless = _WRITES_ROWS
    unfit = "its statements cannot be resumed one by one: write them one by one"

    @property
    def parts(self) -> tuple[WriteRows, ...]:
        return self.writes

    @property
    def row_writes(self) -> tuple[WriteRows, ...]:
        return self.writes

    @property
    def keyspace_named(self) -> str | None:
        for write in self.writes:
            if write.name.keyspace is not None:
                return write.name.keyspace
        return None

    @property
    def subject(self) -> str:
        return ", ".join(dict.fromkeys(str(write.name) for write in self.writes))

    def needs(self) -> frozenset[str]:
        return frozenset(name_of(write.name.spelling) for write in self.writes)

    def apply(self, schema: Schema) -> Schema:
        for write in self.writes:
            write.apply(schema)
        if problem := self._problem(schema):
            raise SchemaRefused("BATCH", self.subject, problem)
        return schema

    def _problem(self, schema: Schema) -> str:
        """Why the server refuses these statements together."""
        counts = [write.counts(schema) for write in self.writes]
        if any(counts) and not all(counts):
            return "no batch changes both counters and other columns"
        if self.counter and not all(counts):
            return "a COUNTER batch changes only counters"
        if any(counts) and self.logged and not self.counter:
            return "counters are changed in a COUNTER batch or an UNLOGGED one"
        conditional = any(write.conditional for write in self.writes)
        partitions = {write.partition(schema) for write in self.writes}
        if conditional and len(partitions) > 1 and None not in partitions:
            return "a batch with IF changes only one partition"
        return ""


@dataclass(frozen=True, slots=True)
class Truncate(NamedStatement):
    """TRUNCATE: removes every row of a table."""

    verb = "TRUNCATE"
    harmless = "The table does not exist yet."
    unfit = "sent again after a crash, it would remove rows written in between: drop the table and create it again"
    dangers = (ROWS_GONE,)

    def apply(self, schema: Schema) -> Schema:
        self.table_in(schema)
        return schema


@dataclass(frozen=True, slots=True)
class Other(Statement):
    """A statement that changes no table: a role, a permission, a SELECT.

    Attributes:
        words: its first words, in capitals.
        calls: the functions that it calls, in lower case.
        table: of a query, the spelling of its table in this keyspace; "" where it names another keyspace.
        like: of a query, the columns that it compares by LIKE.
        parts_of_versions: what it has that not every release knows, as `ACCESS FROM CIDRS`.
    """

    words: str
    calls: tuple[str, ...] = ()
    parts_of_versions: tuple[str, ...] = ()
    table: str = ""
    like: tuple[str, ...] = ()
    harmless = "It changes no table."
    unfit = "the schema does not show whether it took effect (roles: see `mailmend schema grants`)"

    @property
    def subject(self) -> str:
        return self.words

    def apply(self, schema: Schema) -> Schema:
        """The schema unchanged.

        Raises:
            SchemaRefused: LIKE compares a column of a known table that has no index of a class of its own.
        """
        if not self.like:
            return schema
        table = find(schema.tables, self.table)
        if table is None:
            return schema
        for name in self.like:
            if name in table and not _serves_like(schema, table, name):
                reason = f"LIKE needs an index of class SASIIndex on {table.column(name).spelling}"
                raise SchemaRefused(self.words, self.table, reason)
        return schema


def _serves_like(schema: Schema, table: Table, name: str) -> bool:
    """Whether an index may serve LIKE: one of another class than those that servers have for equality."""
    for index in schema.indexes_of(table):
        columns = columns_of(index.target)
        if index.using and not is_attached(index) and (name in columns or not columns):
            return True
    return False
