"""What a file of projections declares: truths by name, and for each the tables that follow from it.

Values only: nothing in a declaration is evaluated. `repair.declared` binds them to a live schema.
Names are kept as CQL spells them: plain in lower case, or in double quotes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from mailmend.model.errors import WrongUse
from mailmend.model.projections.declared_conditions import (
    EVERY_ROW,
    DeclaredCondition,
    no_name_twice,
)
from mailmend.model.projections.declared_mirrors import (
    FILLED,
    ONLY_REPORTED,
    REQUIRED,
    FieldSources,
    check_filled,
    check_reported,
    checked_fields,
    mirror_lines,
)
from mailmend.model.projections.declared_nulls import NULL_IS, DeclaredNull, null_of, null_text
from mailmend.model.projections.declared_transforms import DeclaredTransform
from mailmend.model.projections.toml_values import (
    cql_name,
    toml_key,
    toml_pairs,
    toml_text,
    toml_texts,
)

TRUTH: Final = "truth"
MIRROR: Final = "mirror"
EXPLODE: Final = "explode"
FILTER: Final = "filter"
UNION: Final = "union"
COUNT: Final = "count"
MAX: Final = "max"
MIN: Final = "min"
CONTENT: Final = "content"
VIEW: Final = "view"
RENAMED: Final = "renamed"
COMPUTED: Final = "computed"
LEFT_OUT: Final = "left_out"
WHEN: Final = "when"
COLUMN: Final = "column"
ELEMENT: Final = "element"
VALUE: Final = "value"
COUNTERS: Final = "counters"
GENERATORS: Final = "generators"
NUMBERED_BY: Final = "numbered_by"
USED_WITH: Final = "used_with"
COLUMNS: Final = "columns"
NEEDS: Final = "needs"
EXAMPLE: Final = f"Write a table like [{TRUTH}.users.{MIRROR}.users_by_email]."


def _column_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple([cql_name(name, "column name") for name in names])


@dataclass(frozen=True, slots=True)
class DeclaredProjection:
    """A table that follows from a truth.

    Attributes:
        table: its name.
        renamed: (projection column, truth column) where the two names differ; key columns too.
        computed: (projection column, what it is computed by); key columns too.
    """

    table: str
    renamed: tuple[tuple[str, str], ...] = ()
    computed: tuple[tuple[str, DeclaredTransform], ...] = field(default=(), kw_only=True)

    kind: ClassVar[str]
    """The word in its header."""

    def __post_init__(self) -> None:
        renamed = []
        for own, source in self.renamed:
            renamed.append((cql_name(own, "column name"), cql_name(source, "column name")))
        object.__setattr__(self, "table", cql_name(self.table, "table name"))
        object.__setattr__(self, "renamed", tuple(renamed))
        computed = [(cql_name(own, "column name"), rule) for own, rule in self.computed]
        object.__setattr__(self, "computed", tuple(computed))
        no_name_twice(self.named, f"the columns of {self.table}")

    @property
    def named(self) -> tuple[str, ...]:
        """Its own columns that have another source than a column of the same name."""
        return tuple(own for own, _ in (*self.renamed, *self.computed))

    def text_of(self, truth: str) -> str:
        """Its part of the file."""
        lines = [f"[{TRUTH}.{toml_key(truth)}.{self.kind}.{toml_key(self.table)}]"]
        if self.renamed:
            pairs = toml_pairs((own, toml_text(source)) for own, source in self.renamed)
            lines.append(f"{RENAMED} = {pairs}")
        lines.extend(self.rule_lines())
        return "\n".join(lines) + "\n"

    def rule_lines(self) -> Iterator[str]:
        """The lines that say more than which column is behind another one."""
        if self.computed:
            pairs = toml_pairs((own, rule.text) for own, rule in self.computed)
            yield f"{COMPUTED} = {pairs}"
        yield from self.own_lines()

    def own_lines(self) -> Iterator[str]:
        """The lines that only this kind has."""
        yield from ()


@dataclass(frozen=True, slots=True)
class DeclaredMirror(DeclaredProjection):
    """One row for each truth row: the same columns, under another key.

    Attributes:
        left_out: columns of the projection that are neither compared nor written.
        when: which rows of the truth have a row.
        needs: columns of the truth; a row that lacks one cannot say what its row is.
        required: columns that every insert into the truth writes; a row that lacks one is TORN.
        filled: required columns that the truth's content has too.
        fields: (column of a user type, (field, column of the truth) for each of its fields).
        only_reported: (verdict, reason): what a repair leaves.
    """

    left_out: tuple[str, ...] = ()
    when: DeclaredCondition = field(default=EVERY_ROW, kw_only=True)
    needs: tuple[str, ...] = field(default=(), kw_only=True)
    required: tuple[str, ...] = field(default=(), kw_only=True)
    filled: tuple[str, ...] = field(default=(), kw_only=True)
    fields: tuple[tuple[str, FieldSources], ...] = field(default=(), kw_only=True)
    only_reported: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    kind: ClassVar[str] = MIRROR

    def __post_init__(self) -> None:
        DeclaredProjection.__post_init__(self)
        left_out = _column_names(self.left_out)
        object.__setattr__(self, "left_out", left_out)
        object.__setattr__(self, "fields", checked_fields(self.fields))
        whole = [column for column, _ in self.fields]
        no_name_twice((*self.named, *left_out, *whole), f"the columns of {self.table}")
        for column, fields in self.fields:
            no_name_twice([name for name, _ in fields], f"the fields of {column}")
        needs = _column_names(self.needs)
        no_name_twice(needs, f"the columns that {self.table} needs")
        object.__setattr__(self, "needs", needs)
        required = _column_names(self.required)
        no_name_twice(required, f"the required columns of {self.table}")
        object.__setattr__(self, "required", required)
        object.__setattr__(self, "filled", _column_names(self.filled))
        no_name_twice(self.filled, f"the columns of {FILLED}")
        check_filled(self.required, self.filled)
        if self.filled and self.when != EVERY_ROW:
            mend = f"Leave {FILLED} or {WHEN} out."
            raise WrongUse(f"{self.table} has not every row, so it fills none", mend=mend)
        check_reported(self.only_reported)
        no_name_twice([verdict for verdict, _ in self.only_reported], ONLY_REPORTED)

    def own_lines(self) -> Iterator[str]:
        if self.when != EVERY_ROW:
            yield f"{WHEN} = {self.when.text}"
        lists = {NEEDS: self.needs, LEFT_OUT: self.left_out, REQUIRED: self.required}
        for part, names in lists.items():
            if names:
                yield f"{part} = {toml_texts(names)}"
        yield from mirror_lines(self.filled, self.fields, self.only_reported)


@dataclass(frozen=True, slots=True)
class DeclaredExplode(DeclaredMirror):
    """One row for each element of a collection of each truth row.

    Attributes:
        column: the truth's set, list or map.
        element: the projection's column that holds each element, or each key of a map; "": none.
        value: the projection's column that holds each value of a map; "": none.
    """

    column: str = field(kw_only=True)
    element: str = field(default="", kw_only=True)
    value: str = field(default="", kw_only=True)

    kind: ClassVar[str] = EXPLODE

    def __post_init__(self) -> None:
        DeclaredMirror.__post_init__(self)
        object.__setattr__(self, "column", cql_name(self.column, "column name"))
        for part, spelling in self.parts:
            object.__setattr__(self, part, cql_name(spelling, "column name"))
        parts = [spelling for _, spelling in self.parts]
        no_name_twice((*self.named, *self.left_out, *parts), f"the columns of {self.table}")

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """(part of the file, column of the projection) for each column that holds an element."""
        return tuple(filter(_names_a_column, ((ELEMENT, self.element), (VALUE, self.value))))

    def own_lines(self) -> Iterator[str]:
        yield f"{COLUMN} = {toml_text(self.column)}"
        for part, spelling in self.parts:
            yield f"{part} = {toml_text(spelling)}"
        yield from DeclaredMirror.own_lines(self)


def _names_a_column(part: tuple[str, str]) -> bool:
    _, spelling = part
    return bool(spelling)


@dataclass(frozen=True, slots=True)
class DeclaredFilter(DeclaredProjection):
    """A row that is a key alone, for each truth row where a condition holds."""

    when: DeclaredCondition = field(kw_only=True)

    kind: ClassVar[str] = FILTER

    def own_lines(self) -> Iterator[str]:
        yield f"{WHEN} = {self.when.text}"


@dataclass(frozen=True, slots=True)
class DeclaredUnion(DeclaredProjection):
    """A set of all elements that the truth rows of a group have in a column of the same name."""

    column: str = field(kw_only=True)

    kind: ClassVar[str] = UNION

    def __post_init__(self) -> None:
        DeclaredProjection.__post_init__(self)
        object.__setattr__(self, "column", cql_name(self.column, "column name"))

    def own_lines(self) -> Iterator[str]:
        yield f"{COLUMN} = {toml_text(self.column)}"


@dataclass(frozen=True, slots=True)
class DeclaredCount(DeclaredProjection):
    """Numbers of the truth rows of a group, in counters or in columns of whole numbers.

    Attributes:
        counters: (column, which rows it counts).
        generators: tables whose row of the group changes before a row of the truth does.
        numbered_by: (the truth's column, the generator that gave its numbers).
        used_with: tables that have rows where generators are used.
    """

    counters: tuple[tuple[str, DeclaredCondition], ...] = field(kw_only=True)
    generators: tuple[str, ...] = field(default=(), kw_only=True)
    numbered_by: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    used_with: tuple[str, ...] = field(default=(), kw_only=True)

    kind: ClassVar[str] = COUNT

    def __post_init__(self) -> None:
        DeclaredProjection.__post_init__(self)
        counters = [(cql_name(name, "column name"), when) for name, when in self.counters]
        if not counters:
            raise WrongUse(f"{self.table} has no counters", mend="Write { total = {} }.")
        no_name_twice([name for name, _ in counters], f"the counters of {self.table}")
        object.__setattr__(self, "counters", tuple(counters))
        generators = [cql_name(name, "table name") for name in self.generators]
        no_name_twice((self.table, *generators), f"{self.table} and its generators")
        object.__setattr__(self, "generators", tuple(generators))
        self._check_numbers(generators)

    def _check_numbers(self, generators: Sequence[str]) -> None:
        """Set the columns with numbers; each generator gives numbers of one column.

        Raises:
            WrongUse: a generator is not listed, or gives numbers of two columns.
        """
        numbered_by = []
        for column, generator in self.numbered_by:
            numbered_by.append((cql_name(column, "column name"), cql_name(generator, "table name")))
        no_name_twice([column for column, _ in numbered_by], f"the columns of {NUMBERED_BY}")
        giving = [generator for _, generator in numbered_by]
        no_name_twice(giving, f"the generators of {NUMBERED_BY}")
        known = set(generators)
        for generator in giving:
            if generator not in known:
                mend = f"Name it in {GENERATORS} too."
                problem = f"{generator} gives numbers, and is no generator of {self.table}"
                raise WrongUse(problem, mend=mend)
        used_with = [cql_name(name, "table name") for name in self.used_with]
        no_name_twice(used_with, f"the tables of {USED_WITH}")
        if used_with and not numbered_by:
            mend = f'Write {NUMBERED_BY} = {{ column_of_truth = "generator" }} too.'
            problem = f"{USED_WITH} of {self.table} is about numbers, of which it has none"
            raise WrongUse(problem, mend=mend)
        object.__setattr__(self, "numbered_by", tuple(numbered_by))
        object.__setattr__(self, "used_with", tuple(used_with))

    def own_lines(self) -> Iterator[str]:
        yield f"{COUNTERS} = {toml_pairs((name, when.text) for name, when in self.counters)}"
        if self.generators:
            yield f"{GENERATORS} = {toml_texts(self.generators)}"
        if self.numbered_by:
            numbered = [(column, toml_text(generator)) for column, generator in self.numbered_by]
            yield f"{NUMBERED_BY} = {toml_pairs(numbered)}"
        if self.used_with:
            yield f"{USED_WITH} = {toml_texts(self.used_with)}"


@dataclass(frozen=True, slots=True)
class DeclaredBounds(DeclaredProjection):
    """Columns that are at least as far as each truth row of a group; farther is fine.

    Attributes:
        columns: (column, the truth's column).
    """

    columns: tuple[tuple[str, str], ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        DeclaredProjection.__post_init__(self)
        columns = []
        for own, source in self.columns:
            columns.append((cql_name(own, "column name"), cql_name(source, "column name")))
        if not columns:
            mend = 'Write { last_seen = "seen_at" }.'
            raise WrongUse(f"{self.table} has no columns of a {self.kind}", mend=mend)
        no_name_twice([own for own, _ in columns], f"the columns of {self.table}")
        object.__setattr__(self, "columns", tuple(columns))

    def own_lines(self) -> Iterator[str]:
        yield f"{COLUMNS} = {toml_pairs((own, toml_text(source)) for own, source in self.columns)}"


@dataclass(frozen=True, slots=True)
class DeclaredMax(DeclaredBounds):
    """The greatest value of each group."""

    kind: ClassVar[str] = MAX


@dataclass(frozen=True, slots=True)
class DeclaredMin(DeclaredBounds):
    """The smallest value of each group."""

    kind: ClassVar[str] = MIN


@dataclass(frozen=True, slots=True)
class DeclaredContent(DeclaredProjection):
    """A row that each partition of the truth needs; rows that no truth names are leaks."""

    kind: ClassVar[str] = CONTENT


@dataclass(frozen=True, slots=True)
class DeclaredView(DeclaredProjection):
    """A materialised view of the truth. The live schema has all that there is to say of it."""

    kind: ClassVar[str] = VIEW


@dataclass(frozen=True, slots=True)
class DeclaredTruth:
    """A table that is right by definition, and what follows from it.

    Attributes:
        null_is: (column, what its null is read as): in the truth, and in the tables that follow.
    """

    table: str
    mirrors: tuple[DeclaredMirror, ...] = ()
    filters: tuple[DeclaredFilter, ...] = ()
    unions: tuple[DeclaredUnion, ...] = ()
    counts: tuple[DeclaredCount, ...] = ()
    contents: tuple[DeclaredContent, ...] = ()
    maxima: tuple[DeclaredMax, ...] = ()
    minima: tuple[DeclaredMin, ...] = ()
    explodes: tuple[DeclaredExplode, ...] = ()
    views: tuple[DeclaredView, ...] = ()
    null_is: tuple[tuple[str, DeclaredNull], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", cql_name(self.table, "table name"))
        null_is = [(cql_name(name, "column name"), null_of(given)) for name, given in self.null_is]
        no_name_twice([name for name, _ in null_is], f"the columns of {NULL_IS}")
        object.__setattr__(self, "null_is", tuple(null_is))
        if not self.every:
            header = f"[{TRUTH}.{toml_key(self.table)}.{MIRROR}.TABLE]"
            raise WrongUse(
                f"nothing follows from the truth {self.table}",
                mend=f"Name a table that follows from it: {header}",
            )
        no_name_twice((self.table, *self.projections), f"the tables of the truth {self.table}")

    @property
    def every(self) -> tuple[DeclaredProjection, ...]:
        """All that follows from it, kind by kind."""
        groups = (*self.unions, *self.counts, *self.maxima, *self.minima)
        return (*self.copies, *self.filters, *groups, *self.contents)

    @property
    def copies(self) -> tuple[DeclaredProjection, ...]:
        """The tables whose rows lead back to the truth without another table."""
        return (*self.mirrors, *self.explodes, *self.views)

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of the tables that follow from it."""
        return tuple(projection.table for projection in self.every)

    @property
    def whole_mirrors(self) -> tuple[DeclaredMirror, ...]:
        """The mirrors of every row, which lead from other projections to the truth."""
        return tuple(mirror for mirror in self.mirrors if mirror.when == EVERY_ROW)

    def only(self, table: str) -> "DeclaredTruth":
        """The truth with one copy alone, or with one other projection and the whole mirrors."""
        mirrors = _of_table(table, self.mirrors)
        explodes = _of_table(table, self.explodes)
        views = _of_table(table, self.views)
        if mirrors or explodes or views:
            copies: Any = {"explodes": explodes, "views": views, "null_is": self.null_is}
            contents = self._contents_for(table, mirrors)
            return DeclaredTruth(self.table, mirrors, contents=contents, **copies)
        return DeclaredTruth(
            self.table,
            self.whole_mirrors,
            _of_table(table, self.filters),
            _of_table(table, self.unions),
            _of_table(table, self.counts),
            self._contents_for(table, self.whole_mirrors),
            _of_table(table, self.maxima),
            _of_table(table, self.minima),
            null_is=self.null_is,
        )

    def _contents_for(
        self,
        table: str,
        mirrors: Iterable[DeclaredMirror],
    ) -> tuple[DeclaredContent, ...]:
        """A content that fills one of these mirrors belongs to it."""
        if any(mirror.filled for mirror in mirrors):
            return self.contents
        return _of_table(table, self.contents)

    @property
    def text(self) -> str:
        """Its part of the file."""
        parts = [projection.text_of(self.table) for projection in self.every]
        if self.null_is:
            parts.insert(0, f"[{TRUTH}.{toml_key(self.table)}]\n{self.null_line}\n")
        return "\n".join(parts)

    @property
    def null_line(self) -> str:
        """What nulls are read as, as a line of TOML; "" where all are read as null."""
        if not self.null_is:
            return ""
        return f"{NULL_IS} = {toml_pairs((name, null_text(given)) for name, given in self.null_is)}"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Everything that a file of projections declares."""

    truths: tuple[DeclaredTruth, ...]

    def __post_init__(self) -> None:
        if not self.truths:
            raise WrongUse("no truth is declared", mend=EXAMPLE)
        truths = [truth.table for truth in self.truths]
        no_name_twice(truths, "the truths")
        no_name_twice(self.projections, "the projections")

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of all tables that follow from a truth."""
        names: list[str] = []
        for truth in self.truths:
            names.extend(truth.projections)
        return tuple(names)

    @property
    def text(self) -> str:
        """The declaration as a file; equal declarations have equal texts."""
        return "\n".join(truth.text for truth in self.truths)


AnyKind = TypeVar("AnyKind", bound=DeclaredProjection)


def _of_table(table: str, projections: Iterable[AnyKind]) -> tuple[AnyKind, ...]:
    return tuple(projection for projection in projections if projection.table == table)
