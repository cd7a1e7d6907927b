"""Tables as values: columns, keys, compaction, and the canonical form in which two cells are compared.

CREATE statements, prepared statements, Spark columns and the drift report are all made from these values.
Source: docs/design.md, "Verdicts" (canonical form) and "Schema".
"""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from mailmend.model.cql_types import COUNTER, normal_type
from mailmend.model.errors import BadIdentifier
from mailmend.model.names import (
    RESERVED,
    map_literal,
    name_of,
    pairs_of,
    spelled,
    text_literal,
    text_of,
)
from mailmend.model.transforms import Transform
from mailmend.model.values import CellConstant, FrozenMap, same_value

Row = Mapping[str, Any]
"""One row: lower-case column name to value (UUID, int, bool, str, datetime in UTC, frozenset, tuple, bytes, None)."""

Key = tuple[Any, ...]
"""Values of a table's primary key columns, in their declared order; a prefix names a partition or a range."""

COMPACT_STORAGE = "compact storage"
"""COMPACT STORAGE, kept among a table's options as `true`."""

ComputedColumns = tuple[tuple[str, Transform], ...]
"""Computed columns: the name of each, and what it is computed by."""

_MAY_BE_EMPTY = frozenset({"ascii", "blob", "text", "varchar"})

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")


def identifier(name: str, what: str = "name") -> str:
    """The name as CQL reads it unquoted: validated and in lower case.

    Raises:
        BadIdentifier: the name is not one that CQL takes unquoted.
    """
    if not _IDENTIFIER.fullmatch(name) or name.lower() in RESERVED:
        raise BadIdentifier(name, what)
    return name.lower()


def is_plain_name(spelling: str) -> bool:
    """Whether a name is read and written without double quotes."""
    try:
        return identifier(spelling) == spelling
    except BadIdentifier:
        return False


class Kind(Enum):
    """The kinds of columns: partition key, clustering, static, regular."""

    PARTITION = "partition"
    CLUSTERING = "clustering"
    REGULAR = "regular"
    STATIC = "static"


@dataclass(frozen=True, slots=True)
class OtherColumn:
    """Another column of the row, whose cell is read instead of a null; its own null is null.

    Attributes:
        name: of the column, as the server knows it.
    """

    name: str


NullReading = CellConstant | OtherColumn
"""What a null cell is read as."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its spelling in CQL, its type, its part in the key, its null.

    Attributes:
        null_is: what a null cell is read as; None: null. The null of a set that is not frozen is
            the empty set.
        mask: the masking function with its arguments, as CQL; "" without a mask.
        computed: what the column is computed by where it is no column of the server; its cell is
            added to rows that are read.
    """

    spelling: str
    type: str
    kind: Kind = Kind.REGULAR
    null_is: NullReading | None = None
    descending: bool = False
    mask: str = ""
    computed: Transform | None = None
    name: str = field(init=False, repr=False, compare=False)
    """The name as the server knows it: lower case, unless the spelling is in quotes."""
    in_key: bool = field(init=False, repr=False, compare=False)
    """Whether the column is part of the primary key."""
    is_collection: bool = field(init=False, repr=False, compare=False)
    """Whether the column is a non-frozen collection, whose cells are written one by one."""
    is_set: bool = field(init=False, repr=False, compare=False)
    """Whether the column is a non-frozen set: of it, null and the empty set are one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", name_of(self.spelling))
        object.__setattr__(self, "in_key", self.kind in (Kind.PARTITION, Kind.CLUSTERING))
        object.__setattr__(self, "is_collection", self.type.startswith(("set<", "list<", "map<")))
        object.__setattr__(self, "is_set", self.type.startswith("set<"))

    @property
    def order(self) -> str:
        """The order of a clustering column, as CQL spells it."""
        if self.descending:
            return "DESC"
        return "ASC"

    @property
    def shape(self) -> str:
        """The normal type, and whether the column is static; columns of one name are equal where these are."""
        shape = normal_type(self.type)
        if self.kind is Kind.STATIC:
            return f"{shape} static"
        return shape

    @property
    def is_counter(self) -> bool:
        """Whether it counts; a type may name the class of counters."""
        return self.type == "counter" or self.counts_by_class

    @property
    def counts_by_class(self) -> bool:
        return self.type.startswith("'") and self.type.endswith(f"{COUNTER}'")


def computed_column(transform: Transform) -> Column:
    """The column that a transform adds to rows."""
    return Column(spelled(transform.name), transform.type, computed=transform)


def columns(partition: str, clustering: str = "", regular: str = "", static: str = "") -> tuple[Column, ...]:
    """Columns as CQL lists them, by what they are to their table: `columns("day text", "run timeuuid DESC")`."""
    kinds = ((Kind.PARTITION, partition), (Kind.CLUSTERING, clustering), (Kind.STATIC, static), (Kind.REGULAR, regular))
    listed = []
    for kind, text in kinds:
        for listing in filter(None, text.split(", ")):
            name, type_, *order = listing.split()
            listed.append(Column(name, type_, kind, descending=bool(order)))
    return tuple(listed)


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction strategy by the short name of its class, with its options as CQL has them."""

    strategy: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def literal(self) -> str:
        """The value of the table option `compaction`."""
        return map_literal({"class": self.strategy, **self.options})

    @classmethod
    def from_literal(cls, literal: str) -> "Compaction | None":
        """Parse the value of the table option `compaction`; None where it names no class."""
        pairs = pairs_of(literal)
        strategy = pairs.pop("class", "")
        if not strategy:
            return None
        return cls(strategy, pairs)


@dataclass(frozen=True, slots=True)
class UserType:
    """A user-defined type: field spellings and CQL types, in order."""

    spelling: str
    fields: tuple[tuple[str, str], ...]

    @property
    def normal_fields(self) -> tuple[tuple[str, str], ...]:
        """(name as the server knows it, normal type) of each field."""
        return tuple((name_of(name), normal_type(kind)) for name, kind in self.fields)

    @property
    def field_types(self) -> tuple[str, ...]:
        """The CQL type of each field."""
        return tuple(kind for _, kind in self.fields)

    @property
    def name(self) -> str:
        """The name as the server knows it: lower case, unless the spelling is in quotes."""
        return name_of(self.spelling)


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns (key columns first, in key order), compaction and other options as CQL literals.

    Attributes:
        dropped: dropped columns; one may be added again only with a type that fits its old one.
    """

    spelling: str
    columns: tuple[Column, ...]
    comment: str = ""
    compaction: Compaction | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[Column, ...] = field(default=(), repr=False, compare=False)
    name: str = field(init=False, repr=False, compare=False)
    """The name as the server knows it: lower case, unless the spelling is in quotes."""
    partition: tuple[Column, ...] = field(init=False, repr=False, compare=False)
    """The partition key columns, in order."""
    clustering: tuple[Column, ...] = field(init=False, repr=False, compare=False)
    """The clustering columns, in order."""
    key: tuple[Column, ...] = field(init=False, repr=False, compare=False)
    """The primary key columns: partition first, then clustering."""
    key_names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The names of the primary key columns, in the key's order."""
    partition_names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The names of the partition key columns, in the key's order."""
    regular: tuple[Column, ...] = field(init=False, repr=False, compare=False)
    """Every column of the server outside the primary key."""
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Every column's name, in declared order."""
    plain: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The names of the columns that are one cell each."""
    collections: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The names of the columns that are many cells each."""
    computed: ComputedColumns = field(init=False, repr=False, compare=False)
    """The computed columns, by name, which are neither regular nor plain."""
    by_field: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The names of the columns that are read field by field: `base.user` is a field of `base`."""

    def __post_init__(self) -> None:
        computed: list[tuple[str, Transform]] = []
        partition: list[Column] = []
        clustering: list[Column] = []
        regular: list[Column] = []
        plain: list[str] = []
        collections: list[str] = []
        for column in self.columns:
            if column.computed is not None:
                computed.append((column.name, column.computed))
                continue
            match column.kind:
                case Kind.PARTITION:
                    partition.append(column)
                case Kind.CLUSTERING:
                    clustering.append(column)
                case Kind.REGULAR | Kind.STATIC:
                    regular.append(column)
            if column.is_collection:
                collections.append(column.name)
            else:
                plain.append(column.name)
        key = (*partition, *clustering)
        key_names = names_of(key)
        object.__setattr__(self, "name", name_of(self.spelling))
        object.__setattr__(self, "partition", tuple(partition))
        object.__setattr__(self, "clustering", tuple(clustering))
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "key_names", key_names)
        object.__setattr__(self, "partition_names", key_names[: len(partition)])
        object.__setattr__(self, "regular", tuple(regular))
        object.__setattr__(self, "names", names_of(self.columns))
        object.__setattr__(self, "plain", tuple(plain))
        object.__setattr__(self, "collections", tuple(collections))
        object.__setattr__(self, "computed", tuple(computed))
        fields = [column.name.partition(".") for column in regular]
        by_field = dict.fromkeys(whole for whole, _, name in fields if name)
        object.__setattr__(self, "by_field", tuple(by_field))

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @property
    def has_counters(self) -> bool:
        """Whether its columns outside the key count; no table has counters and other columns."""
        return any(column.is_counter for column in self.regular)

    def column(self, name: str) -> Column:
        """The column of a name or spelling (in any case, unless it is in quotes).

        Raises:
            KeyError: the table has no such column.
        """
        for wanted in (name, name_of(name)):
            for column in self.columns:
                if column.name == wanted:
                    return column
        raise KeyError(f"{self.spelling} has no column {name}")

    def whole_column(self, name: str) -> Column:
        """The column of a cell of `whole_cells`; its type tells nothing where it has fields."""
        if name in self.by_field:
            return Column(name, "frozen")
        return self.column(name)

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key_names)

    def partition_of(self, row: Row) -> Key:
        """The partition key of a row, which may lack its other columns."""
        return tuple(row[name] for name in self.partition_names)

    @property
    def lone_partition(self) -> str | None:
        """The name of a partition key of one text or blob, which is never empty; else None."""
        if len(self.partition) == 1 and self.partition[0].type in _MAY_BE_EMPTY:
            return self.partition_names[0]
        return None

    def takes_key(self, key: Key) -> bool:
        """Whether a row can have this key: no part is null, and a partition key is not empty."""
        if None in key:
            return False
        return self.lone_partition is None or len(key[0]) > 0

    def partition_named_by(self, row: Row) -> Key | None:
        """The partition key that a row names; None where it lacks a part, or no row can have it."""
        key = tuple(map(row.get, self.partition_names))
        if None in key or not all(map(_is_of_type, self.partition, key)):
            return None
        return key

    def key_row(self, key: Key) -> dict[str, Any]:
        """The key (or a prefix of one) as a row of its columns."""
        return dict(zip(self.key_names, key, strict=False))

    def ordered(self, wanted: Container[str]) -> tuple[str, ...]:
        """The names of its columns that are wanted, in declared order."""
        return tuple(name for name in self.names if name in wanted)

    def stored(self, names: Iterable[str]) -> tuple[str, ...]:
        """The server's columns behind these names, each once."""
        rules = dict(self.computed)
        found: dict[str, None] = {}
        for name in names:
            sources: tuple[str, ...] = (name,)
            if name in rules:
                sources = rules[name].sources
            found |= dict.fromkeys(sources)
        return tuple(found)

    def completed(self, row: Row) -> Row:
        """A row of the server's columns with its computed cells."""
        if not self.computed:
            return row
        return {**row, **computed_cells(self.computed, row)}

    def whole_cells(self, row: Row) -> Row:
        """The cells as they are written: the fields of a user type in one cell.

        The cell is null where each of its fields is null.

        Raises:
            ValueError: a field is lacking, which would be lost.
        """
        if not self.by_field:
            return row
        cells: dict[str, Any] = {}
        for name, value in row.items():
            whole, _, part = name.partition(".")
            if part:
                cells.setdefault(whole, {})[part] = value
            else:
                cells[name] = value
        for whole in self.by_field:
            if whole in cells:
                cells[whole] = self._whole_cell(whole, cells[whole])
        return cells

    def _whole_cell(self, whole: str, fields: Mapping[str, Any]) -> FrozenMap | None:
        names = [name for name in self.names if name.startswith(f"{whole}.")]
        if len(fields) < len(names):
            raise ValueError(f"{self.spelling}.{whole} is written with all of its fields")
        if all(value is None for value in fields.values()):
            return None
        return FrozenMap(fields)

    def with_columns(self, columns: Iterable[Column]) -> "Table":
        return replace(self, columns=tuple(columns))

    def literals(self, *, comment: bool = True) -> dict[str, str]:
        """Every option as a literal, with compaction and (unless left out) comment."""
        found = {}
        if comment and self.comment:
            found["comment"] = text_literal(self.comment)
        if self.compaction:
            found["compaction"] = self.compaction.literal
        return {**found, **self.options}

    def with_options(self, literals: Mapping[str, str]) -> "Table":
        """The table with these options; an option of the same name is replaced."""
        rest = dict(literals)
        comment = self.comment
        if "comment" in rest:
            comment = text_of(rest.pop("comment"))
        compaction = Compaction.from_literal(rest.get("compaction", ""))
        if compaction is not None:
            del rest["compaction"]
        return replace(
            self, comment=comment, compaction=compaction or self.compaction, options={**self.options, **rest}
        )


def computed_cells(computed: ComputedColumns, row: Row) -> dict[str, Any]:
    """The computed cells of a row that has their sources."""
    return {name: rule.cell(row) for name, rule in computed}


def _is_of_type(column: Column, cell: Any) -> bool:
    """Whether the server takes a UUID for a column.

    A column of time-based ones has no other; the server looks at the version alone.
    """
    return column.type != "timeuuid" or cell.bytes[6] >> 4 == 1


class Named(Protocol):
    """A part of a schema: a column, table, type, index or view."""

    @property
    def name(self) -> str:
        """The name as the server knows it."""

    @property
    def spelling(self) -> str:
        """The name as CQL spells it."""


def names_of(parts: Iterable[Named]) -> tuple[str, ...]:
    """The names of parts of a schema as the server knows them, in the order given."""
    return tuple(part.name for part in parts)


def spellings(parts: Iterable[Named]) -> str:
    """The spellings of parts of a schema, with commas between them."""
    return ", ".join(part.spelling for part in parts)


def types_of(columns: Iterable[Column]) -> tuple[str, ...]:
    """The CQL type of each column, in the order given."""
    return tuple(column.type for column in columns)


def canonical_value(column: Column, row: Row) -> Any:
    """The cell in its form for comparison; Spark renders the same forms in `spark_repair.suspects`."""
    value = row.get(column.name)
    if column.is_set:
        return frozenset(value or ())
    if value is not None:
        return value
    if isinstance(column.null_is, OtherColumn):
        return row.get(column.null_is.name)
    return column.null_is


def rows_agree(columns: Iterable[Column], one: Row, other: Row) -> bool:
    """Whether two rows are equal in every compared column, each in its canonical form."""
    return all(cells_agree(column, one, other) for column in columns)


def cells_agree(column: Column, one: Row, other: Row) -> bool:
    """Whether the cells of one column are the same in two rows, in canonical form."""
    return same_value(canonical_value(column, one), canonical_value(column, other))
