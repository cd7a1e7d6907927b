"""A server's schema in memory: answers `system_schema` as Cassandra does, and carries out our own CREATE statements.

It knows the declared tables by name, so it need not understand CQL; what the text really makes is tested on a real
server (`tests/integration/admin/schema/test_schema.py`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from mailmend.cql.introspect import SchemaServer
from mailmend.cql.schema.generations import GENERATIONS
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.errors import MailmendError, UnknownKeyspace
from mailmend.model.keyspace import Schema
from mailmend.model.names import text_of
from mailmend.model.table import Column, Kind, Row, Table, UserType
from tests.support.schemas import served, served_table

_CREATE = re.compile(r"CREATE (KEYSPACE|TYPE|TABLE) (?:IF NOT EXISTS )?(?:(\w+)\.)?(\w+)")
_COLUMN = re.compile(r"^    (\w+) ", re.MULTILINE)
_FROM = re.compile(r"FROM system_schema\.(\w+)")
_KINDS = {
    Kind.PARTITION: "partition_key",
    Kind.CLUSTERING: "clustering",
    Kind.STATIC: "static",
    Kind.REGULAR: "regular",
}
ONE_COPY = {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "1"}


class SchemaTwin(SchemaServer):
    """A server that holds nothing but schemas; `data_centres` has one for each node. Implements `SchemaServer`."""

    def __init__(self, release_version: str = "5.0.9", **keyspaces: Schema) -> None:
        self.release_version = release_version
        self.keyspaces = dict(keyspaces)
        self.replications: dict[str, Mapping[str, str]] = dict.fromkeys(keyspaces, ONE_COPY)
        self.carried_out: list[str] = []
        self.fails_after: int | None = None
        self.data_centres: tuple[str, ...] = ("dc1",)

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows of one of the server's own tables, for one keyspace."""
        if text.startswith("SELECT data_center FROM system."):
            first, *others = ({"data_center": one} for one in self.data_centres)
            return [first] if text.endswith("local") else others
        asked = _FROM.search(text)
        assert asked, text
        if not values:
            return [{"keyspace_name": name} for name in self.keyspaces]
        (keyspace,) = values
        return list(self._rows(asked[1], keyspace))

    def execute_ddl(self, text: str, seconds: float = 30.0, agreed: float = 30.0) -> None:  # noqa: ARG002 - the port's
        """Carry out a CREATE of ours; refuse when the statements that may succeed are used up."""
        if self.fails_after is not None and len(self.carried_out) >= self.fails_after:
            raise MailmendError("the server went away")
        created = _CREATE.match(text)
        assert created, text
        self.carried_out.append(text)
        kind, keyspace, name = created.groups()
        if kind == "KEYSPACE":
            self.keyspaces.setdefault(name, Schema((), ()))
            self.replications.setdefault(name, dict(re.findall(r"'([^']+)': '([^']+)'", text)))
        elif kind == "TYPE":
            self._add(keyspace, types=(_declared_type(name),))
        else:
            self._add(keyspace, tables=(_declared_table(name, text),))

    def settle(self) -> None:
        """No time passes here."""

    def schema_versions(self) -> Mapping[str, UUID | None]:
        return {"10.0.0.1": UUID(int=1)}

    def releases(self) -> Mapping[str, str | None]:
        return {"10.0.0.1": self.release_version}

    def nodes_down(self) -> Sequence[str]:
        return ()

    def replication_of(self, keyspace: str) -> Mapping[str, str]:
        if keyspace not in self.keyspaces:
            raise UnknownKeyspace(keyspace)
        return self.replications[keyspace]

    def _add(self, keyspace: str, types: tuple[UserType, ...] = (), tables: tuple[Table, ...] = ()) -> None:
        held = self.keyspaces[keyspace]
        self.keyspaces[keyspace] = Schema((*held.types, *types), (*held.tables, *tables))

    def _rows(self, table: str, keyspace: str) -> Iterator[Row]:
        held = self.keyspaces.get(keyspace)
        if held is None:
            return
        match table:
            case "keyspaces":
                yield {"keyspace_name": keyspace}
            case "types":
                yield from map(_type_row, held.types)
            case "tables":
                yield from map(_table_row, held.tables)
            case "columns":
                for one in held.tables:
                    yield from _column_rows(one)
            case "dropped_columns" | "indexes" | "views" | "column_masks" | "functions" | "aggregates" | "triggers":
                return  # no generation declares any
            case _:
                raise AssertionError(f"system_schema.{table} is not asked for")


def _declared_type(name: str) -> UserType:
    types = (one for generation in GENERATIONS for one in served(generation.schema).types)
    return next(one for one in types if one.name == name.lower())


def _declared_table(name: str, text: str) -> Table:
    """The declared table of that name that has exactly the text's columns: which generation's is told by them."""
    named = [word for word in _COLUMN.findall(text) if word not in {"PRIMARY", "AND"}]
    known = (
        *LEDGER_TABLES,
        *SCHEMA.tables,
        *(table for generation in GENERATIONS for table in generation.schema.tables),
    )
    declared = next(
        one for one in known if [column.spelling for column in one.columns] == named and one.name == name.lower()
    )
    return served_table(declared, declared.comment)


def _type_row(user_type: UserType) -> Row:
    return {
        "type_name": user_type.name,
        "field_names": tuple(name for name, _ in user_type.fields),
        "field_types": tuple(kind for _, kind in user_type.fields),
    }


def _table_row(table: Table) -> Row:
    compaction = table.compaction
    return {
        "keyspace_name": "any",
        "table_name": table.name,
        "id": None,
        "flags": frozenset({"compound"}),
        "comment": table.comment,
        "compaction": {
            "class": f"org.apache.cassandra.db.compaction.{compaction.strategy if compaction else 'AnyStrategy'}",
            **(compaction.options if compaction else {}),
        },
        **{name: _value(literal) for name, literal in table.options.items()},
        "crc_check_chance": 1.0,
        "memtable": None,
        "cdc": False,
    }


def _column_rows(table: Table) -> Iterable[Row]:
    for column in sorted(table.columns, key=lambda one: one.name):
        yield {
            "table_name": table.name,
            "column_name": column.name,
            "type": column.type.replace(",", ", "),
            "kind": _KINDS[column.kind],
            "position": _position(table, column),
            "clustering_order": _order(column),
        }


def _position(table: Table, column: Column) -> int:
    for part in (table.partition, table.clustering):
        if column in part:
            return part.index(column)
    return -1


def _order(column: Column) -> str:
    if column.kind is not Kind.CLUSTERING:
        return "none"
    return "desc" if column.descending else "asc"


def _value(literal: str) -> Any:
    if literal.startswith("{"):
        return dict(re.findall(r"'([^']+)': '([^']+)'", literal))
    if literal.startswith("'"):
        return text_of(literal)
    return float(literal) if "." in literal else int(literal)
