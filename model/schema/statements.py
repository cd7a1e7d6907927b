"""CQL statements as values: what the parser reads, the renderer writes, the fold applies, the linter looks at.

One class per kind of statement. A name is spelled as CQL has it (in quotes where it needs them); a `keyspace` of None
is whichever keyspace the file is run against. Data statements are read as far as a rule asks about them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from model.schema.table import Column, Table, UserType


@dataclass(frozen=True, slots=True)
class Name:
    """What a statement names, and where: `keyspace.name`, or `name` in the keyspace that the file is run against."""

    spelling: str
    keyspace: str | None = None

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.spelling}" if self.keyspace else self.spelling


@dataclass(frozen=True, slots=True)
class CreateKeyspace:
    """CREATE KEYSPACE; `options` are literals, `replication` and `durable_writes` among them."""

    keyspace: str
    options: Mapping[str, str]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterKeyspace:
    """ALTER KEYSPACE."""

    keyspace: str
    options: Mapping[str, str]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropKeyspace:
    """DROP KEYSPACE."""

    keyspace: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateType:
    """CREATE TYPE."""

    name: Name
    type: UserType
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddField:
    """ALTER TYPE ... ADD."""

    name: Name
    field: str
    type: str
    if_exists: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameFields:
    """ALTER TYPE ... RENAME old TO new."""

    name: Name
    renames: tuple[tuple[str, str], ...]
    if_exists: bool = False
    fields_if_exist: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE; the table carries its comment, compaction and the other options as literals."""

    name: Name
    table: Table
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddColumns:
    """ALTER TABLE ... ADD."""

    name: Name
    columns: tuple[Column, ...]
    if_exists: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumns:
    """ALTER TABLE ... DROP; what the columns held is gone (up to `timestamp`, where USING names one)."""

    name: Name
    columns: tuple[str, ...]
    if_exists: bool = False
    columns_if_exist: bool = False
    timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class RenameColumns:
    """ALTER TABLE ... RENAME old TO new; only key columns can be renamed."""

    name: Name
    renames: tuple[tuple[str, str], ...]
    if_exists: bool = False
    columns_if_exist: bool = False


@dataclass(frozen=True, slots=True)
class SetOptions:
    """ALTER TABLE (or MATERIALIZED VIEW) ... WITH; values are literals, `comment` and `compaction` among them."""

    name: Name
    options: Mapping[str, str]
    if_exists: bool = False
    of_view: bool = False


class Dropped(Enum):
    """What a DROP drops; the value is CQL's word for it."""

    TABLE = "TABLE"
    TYPE = "TYPE"
    INDEX = "INDEX"
    VIEW = "MATERIALIZED VIEW"


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP TABLE, TYPE, INDEX or MATERIALIZED VIEW."""

    what: Dropped
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """TRUNCATE: every row is gone."""

    name: Name


@dataclass(frozen=True, slots=True)
class Index:
    """An index: what it is on (`flags`, `values(flags)`), and the class behind it ("" is the built-in one)."""

    spelling: str
    table: str
    target: str
    using: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """CREATE [CUSTOM] INDEX; `name` is where the table lies."""

    name: Name
    index: Index
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A materialised view: its own columns, key and options as a table, what it is of, and its condition as CQL.

    Attributes:
        all_columns: it selects `*`, and grows with its base. As it is parsed, its table then holds the key only; the
            types of a view's columns are known only once it is folded into a schema.
    """

    table: Table
    base: str
    where: str
    all_columns: bool = False


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE MATERIALIZED VIEW."""

    name: Name
    view: View
    if_not_exists: bool = False


class Change(Enum):
    """What a data statement does to rows; the value is CQL's word for it."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Write:
    """INSERT, UPDATE or DELETE, as far as rules ask about it.

    Attributes:
        columns: those that are written, or deleted (none: whole rows); lower case unless quoted.
        timestamp, ttl: the literals of USING, or None.
        conditional: it has an IF.
        values: what a column is given or must be equal to, as it stands (a literal or a bind mark), by its name.
    """

    change: Change
    name: Name
    columns: tuple[str, ...] = ()
    timestamp: str | None = None
    ttl: str | None = None
    conditional: bool = False
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """BEGIN BATCH ... APPLY BATCH."""

    writes: tuple[Write, ...]
    logged: bool = True


@dataclass(frozen=True, slots=True)
class Use:
    """USE: names the keyspace of what follows."""

    keyspace: str


@dataclass(frozen=True, slots=True)
class Other:
    """A statement that changes no table: a role, a permission, a function, a SELECT; `words` are its first ones."""

    words: str


Statement = (
    CreateKeyspace
    | AlterKeyspace
    | DropKeyspace
    | CreateType
    | AddField
    | RenameFields
    | CreateTable
    | AddColumns
    | DropColumns
    | RenameColumns
    | SetOptions
    | Drop
    | Truncate
    | CreateIndex
    | CreateView
    | Write
    | Batch
    | Use
    | Other
)


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text: from `start` up to, not including, `end`, in characters."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement as it stands in a file.

    Attributes:
        span: from its first character to its last, the semicolon left out.
        name_at: where the name stands that decides the keyspace; None where there is none.
        places: where parts of it stand, as ("column", name), ("option", name), ("field", name), ("key", ""), a view's
            ("base", ""), the names in a batch as ("name", "0") and so on; names as the server knows them.
        notes: the comments right before the statement, line by line, without their dashes.
    """

    statement: Statement
    span: Span
    name_at: Span | None = None
    places: Mapping[tuple[str, str], Span] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
