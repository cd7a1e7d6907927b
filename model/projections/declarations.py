"""How one table follows from another: the declarations that drive every check and every repair.

A projection can always be rebuilt from its truth (DESIGN idea 1). Five kinds cover the mail tables, and most others:
mirror (the whole row under another key), filter (keys of the rows that satisfy a condition), union (a set column
gathered per group), count (counters per group) and content (something that every truth row must have beside it).
"""

from dataclasses import dataclass, field

from model.schema.table import Column, Key, Row, Table, rows_agree


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean column of the truth having a value; null reads as false."""

    column: str
    value: bool

    def holds(self, row: Row) -> bool:
        """Whether the row satisfies the condition."""
        return bool(row.get(self.column)) is self.value


@dataclass(frozen=True, slots=True)
class Derived:
    """What every projection has: the table that it follows from, its own, and how the keys of the two correspond.

    Attributes:
        key: (projection column, truth column) for each primary key column of the projection.
    """

    truth: Table
    table: Table
    key: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The name in findings: the projection table, in James's spelling."""
        return self.table.spelling

    def key_of(self, truth: Row) -> Key:
        """The projection's key for a truth row."""
        return tuple(truth[column] for _, column in self.key)


@dataclass(frozen=True, slots=True)
class Mirror(Derived):
    """One projection row for each truth row: the same columns, under another key.

    Attributes:
        compared: columns of the projection that must agree with the truth's, in canonical form.
        renamed: (projection column, truth column) where the two names differ outside the key.
        required: truth columns that every insert writes; a truth row lacking one is TORN.
    """

    compared: tuple[Column, ...]
    renamed: tuple[tuple[str, str], ...] = ()
    required: tuple[str, ...] = ()
    report_only: bool = False
    sources: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)
    """Each projection column that the truth has too, with the truth column behind it."""

    def __post_init__(self) -> None:
        """Work out once what is asked for with every row."""
        theirs = dict(self.renamed + self.key)
        pairs = ((name, theirs.get(name, name)) for name in self.table.names)
        object.__setattr__(self, "sources", tuple(pair for pair in pairs if pair[1] in self.truth.names))

    def row_of(self, truth: Row) -> dict[str, object]:
        """The projection row that a truth row demands: its key, and every other column that both tables have."""
        return {name: truth.get(source) for name, source in self.sources}

    def agree(self, truth: Row, projection: Row) -> bool:
        """Whether the projection row says what the truth row demands, in every compared column."""
        return rows_agree(self.compared, self.row_of(truth), projection)

    def whole(self, truth: Row) -> bool:
        """Whether the truth row has every column that an insert writes."""
        return all(truth.get(column) is not None for column in self.required)


@dataclass(frozen=True, slots=True)
class Filter(Derived):
    """A row made of a key alone for each truth row that satisfies a condition."""

    when: Condition


@dataclass(frozen=True, slots=True)
class Union(Derived):
    """A set column gathered over all truth rows of a group; a superset is fine, so it only ever grows."""

    column: str


@dataclass(frozen=True, slots=True)
class Counts(Derived):
    """Counters over all truth rows of a group.

    Attributes:
        counters: (counter column, condition, or None to count every row).
        generators: tables keyed as the counters are, whose row moves on before a row of the group is added or changed:
            while they stand still, nothing has begun that a look at the mirror might not see yet.
    """

    counters: tuple[tuple[str, Condition | None], ...]
    generators: tuple[Table, ...] = ()

    def deltas_of(self, truth: Row) -> dict[str, int]:
        """What one truth row adds to each counter."""
        return {name: int(when is None or when.holds(truth)) for name, when in self.counters}


@dataclass(frozen=True, slots=True)
class Content(Derived):
    """What every truth row must have beside it; rows may share it; one that no truth names is a LEAK."""


Projection = Mirror | Filter | Union | Counts | Content


@dataclass(frozen=True, slots=True)
class Family:
    """One truth and all that follows from it: what one scan of the truth checks (DESIGN idea 1).

    Attributes:
        mirror: decides about each row; the filters' suspects find their truth through it.
        content: None where nothing must stand beside the truth.
    """

    mirror: Mirror
    filters: tuple[Filter, ...] = ()
    unions: tuple[Union, ...] = ()
    counts: tuple[Counts, ...] = ()
    content: Content | None = None

    @property
    def truth(self) -> Table:
        """The table that everything else follows from."""
        return self.mirror.truth

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Every projection, the mirror first."""
        content = (self.content,) if self.content else ()
        return (self.mirror, *self.filters, *self.unions, *self.counts, *content)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table that a check reads, the truth first."""
        return (self.truth, *(projection.table for projection in self.projections))
