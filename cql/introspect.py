"""The live schema of a keyspace as the model's own values, read from the server's `system_schema` tables.

Types and options are brought into the model's spelling, so that what was rendered reads back as the same value.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from model.cql_types import normal_type
from model.difference import map_literal, option_text
from model.schema import Schema
from model.table import Column, Compaction, Kind, Row, Table, UserType, identifier


class SchemaServer(Protocol):
    """What reading and changing a schema needs of a cluster. Adapter: `cql.session.CassandraCluster`."""

    release_version: str

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows that a statement answers."""
        ...

    def execute_ddl(self, text: str) -> None:
        """Change the schema, and wait until the nodes agree on it."""
        ...

    def replication_of(self, keyspace: str) -> Mapping[str, str]:
        """The keyspace's replication options; raises `UnknownKeyspace`."""
        ...


_KINDS = {
    "partition_key": Kind.PARTITION,
    "clustering": Kind.CLUSTERING,
    "static": Kind.STATIC,
    "regular": Kind.REGULAR,
}
_ORDER = (Kind.PARTITION, Kind.CLUSTERING, Kind.STATIC, Kind.REGULAR)
_NOT_OPTIONS = frozenset({"keyspace_name", "table_name", "id", "flags", "comment", "compaction", "extensions"})


def keyspace_exists(server: SchemaServer, keyspace: str) -> bool:
    """Whether there is a keyspace of that name."""
    name = identifier(keyspace, "keyspace name")
    return bool(server.query("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", (name,)))


def live_schema(server: SchemaServer, keyspace: str) -> Schema:
    """The keyspace's types and tables; an unknown keyspace has none."""
    name = (identifier(keyspace, "keyspace name"),)
    types = server.query("SELECT * FROM system_schema.types WHERE keyspace_name = ?", name)
    columns = server.query("SELECT * FROM system_schema.columns WHERE keyspace_name = ?", name)
    tables = server.query("SELECT * FROM system_schema.tables WHERE keyspace_name = ?", name)
    return Schema(
        tuple(_user_type(row) for row in types),
        tuple(_table(row, [one for one in columns if one["table_name"] == row["table_name"]]) for row in tables),
    )


def _user_type(row: Row) -> UserType:
    fields = zip(row["field_names"], row["field_types"], strict=True)
    return UserType(row["type_name"], tuple((name, normal_type(kind)) for name, kind in fields))


def _table(row: Row, columns: Sequence[Row]) -> Table:
    return Table(
        row["table_name"],
        tuple(_column(one) for one in sorted(columns, key=_place)),
        comment=row["comment"] or "",
        compaction=_compaction(row["compaction"]),
        options={name: _literal(row[name]) for name in row if name not in _NOT_OPTIONS and row[name] is not None},
    )


def _place(row: Row) -> tuple[int, int, str]:
    """Key columns in key order, the others by name, as the server lists them."""
    return _ORDER.index(_KINDS[row["kind"]]), row["position"], row["column_name"]


def _column(row: Row) -> Column:
    return Column(
        row["column_name"],
        normal_type(row["type"]),
        _KINDS[row["kind"]],
        descending=row["clustering_order"] == "desc",
    )


def _compaction(options: Mapping[str, str]) -> Compaction:
    rest = {name: value for name, value in options.items() if name != "class"}
    return Compaction(options["class"].rsplit(".", 1)[-1], rest)


def _literal(value: Any) -> str:
    """An option's value as CQL has it."""
    if isinstance(value, Mapping):
        return option_text(map_literal({str(name): str(part) for name, part in value.items()}))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else f"'{value}'"
