"""The model's tables as CREATE text. `cql/schema.cql` is rendered from the catalog, for people and for review.

`python -m cql.render` writes that file; `python -m cql.render --check` exits 1 when it is not up to date.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cql.generated import write_or_check
from cql.language.stream import checked
from cql.language.tables import column_mask
from cql.language.values import literal
from cql.replication import Replication, in_every_data_centre
from model.catalog.mail import SCHEMA
from model.errors import WrongUse
from model.schema.cql_types import parse_type
from model.schema.keyspace import Schema
from model.schema.literals import text_literal
from model.schema.names import checked_spelling
from model.schema.table import COMPACT_STORAGE, Column, Compaction, Kind, Table, UserType, identifier

SCHEMA_FILE = Path(__file__).with_name("schema.cql")
KEYSPACE = "apache_james"
"""James's own name for its keyspace."""


@dataclass(frozen=True, order=True, slots=True)
class ServerVersion:
    """A server's version, which decides what CQL it understands."""

    major: int
    minor: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


CASSANDRA_5 = ServerVersion(5)
_SINCE = {"UnifiedCompactionStrategy": CASSANDRA_5}
"""Compaction strategies that older servers refuse."""

_OPTIONS_SINCE = {"read_repair": ServerVersion(4)}
"""Options that older servers lack, ScyllaDB among them (it calls itself 3.0.8): there they are left out."""

_UNLESS = "IF NOT EXISTS "
_NO_COMPACT_STORAGE = ServerVersion(4)


def parse_version(release: str) -> ServerVersion:
    """The version in a release's name, such as 5.0.9 or 4.1-rc1."""
    numbers = release.replace("-", ".").split(".")
    return ServerVersion(int(numbers[0]), int(numbers[1]) if len(numbers) > 1 and numbers[1].isdigit() else 0)


def keyspace_cql(keyspace: str, replication: Replication) -> str:
    return f"CREATE KEYSPACE IF NOT EXISTS {keyspace_name(keyspace)} WITH replication = {replication};"


def type_cql(keyspace: str | None, user_type: UserType, *, if_not_exists: bool = True) -> str:
    """CREATE TYPE; without a keyspace the name is unqualified."""
    fields = ",\n".join(f"    {checked_spelling(name)} {parse_type(kind)}" for name, kind in user_type.fields)
    return f"CREATE TYPE {_UNLESS * if_not_exists}{qualified(keyspace, user_type.spelling)} (\n{fields}\n);"


def table_cql(
    keyspace: str | None, table: Table, server: ServerVersion = CASSANDRA_5, *, if_not_exists: bool = True
) -> str:
    """CREATE TABLE; without a keyspace the name is unqualified.

    Raises:
        WrongUse: the server is too old for the table's compaction.
    """
    lines = [*map(column_cql, table.columns), key_cql(table)]
    body = ",\n".join(f"    {line}" for line in lines)
    options = "\n    AND ".join(options_cql(table, server))
    tail = f" WITH {options}" if options else ""
    return f"CREATE TABLE {_UNLESS * if_not_exists}{qualified(keyspace, table.spelling)} (\n{body}\n){tail};"


def schema_cql(keyspace: str, schema: Schema, server: ServerVersion = CASSANDRA_5) -> Iterator[str]:
    """The statements that create the schema's types and tables, in an order in which they can run."""
    yield from (type_cql(keyspace, user_type) for user_type in schema.types)
    yield from (table_cql(keyspace, table, server) for table in schema.tables)


def schema_file_text(keyspace: str = KEYSPACE) -> str:
    head = (
        "-- The tables of the mail keyspace, rendered from model/catalog/mail.py: change the catalog, not this file.\n"
        "-- `mailmend schema apply` creates them, with your own keyspace, replication and compaction."
    )
    statements = (keyspace_cql(keyspace, in_every_data_centre(1)), *schema_cql(keyspace, SCHEMA))
    return "\n\n".join((head, *statements)) + "\n"


def qualified(keyspace: str | None, name: str) -> str:
    own = checked_spelling(name)
    return own if keyspace is None else f"{keyspace_name(keyspace)}.{own}"


def keyspace_name(keyspace: str) -> str:
    """The keyspace's name as the server has it; in double quotes only where the spelling needs them."""
    return checked_spelling(keyspace) if keyspace.startswith('"') else identifier(keyspace, "keyspace name")


def column_cql(column: Column) -> str:
    static = " STATIC" if column.kind is Kind.STATIC else ""
    mask = f" MASKED WITH {checked(column.mask, column_mask)}" if column.mask else ""
    return f"{checked_spelling(column.spelling)} {parse_type(column.type)}{static}{mask}"


def key_cql(table: Table) -> str:
    partition = ", ".join(checked_spelling(column.spelling) for column in table.partition)
    clustering = "".join(f", {checked_spelling(column.spelling)}" for column in table.clustering)
    return f"PRIMARY KEY (({partition}){clustering})"


def options_cql(table: Table, server: ServerVersion) -> Iterator[str]:
    """The options after WITH, one by one.

    Raises:
        WrongUse: the server is too old for the table's compaction, or too new for its storage.
    """
    if table.clustering:
        order = ", ".join(f"{one.spelling} {'DESC' if one.descending else 'ASC'}" for one in table.clustering)
        yield f"CLUSTERING ORDER BY ({order})"
    if table.comment:
        yield f"comment = {text_literal(table.comment)}"
    if table.compaction:
        _refuse_too_new(table, table.compaction, server)
    options = table.literals(comment=False)
    lacking = lacking_options(table, server)
    yield from (option_cql(name, options[name], table.spelling, server) for name in options if name not in lacking)


def lacking_options(table: Table, server: ServerVersion) -> frozenset[str]:
    """The table's options that this server does not have yet."""
    return frozenset(name for name in table.options if server < _OPTIONS_SINCE.get(name, server))


def option_cql(name: str, value: str, owner: str, server: ServerVersion) -> str:
    """`name = value` for WITH.

    Raises:
        WrongUse: the server refuses this option.
    """
    if name != COMPACT_STORAGE:
        return f"{checked_spelling(name)} = {checked(value, literal)}"
    if server >= _NO_COMPACT_STORAGE:
        raise WrongUse(
            f"{owner} cannot have COMPACT STORAGE: the server is Cassandra {server}, which has it no more",
            mend="Leave COMPACT STORAGE out: the table then shows its columns as they are.",
        )
    return "COMPACT STORAGE"


def _refuse_too_new(table: Table, compaction: Compaction, server: ServerVersion) -> None:
    since = _SINCE.get(compaction.strategy, server)
    if server < since:
        raise WrongUse(
            f"{table.spelling} cannot have {compaction.strategy}: the server is Cassandra {server}, it needs {since}",
            mend="Choose another with: --compaction leveled, or --compaction twcs.",
        )


def main(arguments: list[str]) -> int:
    otherwise = "is not what the catalog says: python -m cql.render writes it anew"
    return write_or_check(arguments, SCHEMA_FILE, schema_file_text(), otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
