"""The live schema of a keyspace as the model's own values, read from the server's `system_schema` tables.

Types and options are brought into the model's spelling, so that what was rendered reads back as the same value.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mailmend.cql.schema.difference import option_text
from mailmend.cql.schema.migrations import digests, fingerprint_of
from mailmend.model.cql_types import normal_type
from mailmend.model.errors import UnknownKeyspace
from mailmend.model.keyspace import Index, Schema, View, in_order_of_use
from mailmend.model.names import keyspace_spelling, map_literal, name_of, short_class, spelled, text_literal
from mailmend.model.table import COMPACT_STORAGE, Column, Compaction, Kind, Row, Table, UserType


class SchemaServer(Protocol):
    """Reading and changing the schema of a cluster. Adapter: `cql.driver.session.CassandraCluster`."""

    release_version: str

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows that a statement returns."""
        ...

    def execute_ddl(self, text: str, seconds: float = ..., agreed: float = ...) -> None:
        """Change the schema within `seconds`; wait up to `agreed` seconds (0: not at all) until the nodes agree."""
        ...

    def replication_of(self, keyspace: str) -> Mapping[str, str]:
        """The keyspace's replication options; raises `UnknownKeyspace`."""
        ...

    def settle(self) -> None:
        """Wait a moment while a node applies a change of its schema."""
        ...


_KINDS = {
    "partition_key": Kind.PARTITION,
    "clustering": Kind.CLUSTERING,
    "static": Kind.STATIC,
    "regular": Kind.REGULAR,
}
_ORDER = (Kind.PARTITION, Kind.CLUSTERING, Kind.STATIC, Kind.REGULAR)
_NOT_OPTIONS = frozenset(
    {"keyspace_name", "table_name", "view_name", "id", "flags", "comment", "compaction", "extensions", "base_table_id"}
    | {"base_table_name", "include_all_columns", "where_clause"}
    | {"dclocal_read_repair_chance", "read_repair_chance"}  # kept from 3.x; since 4.0 nobody can set them
)


def keyspace_exists(server: SchemaServer, keyspace: str) -> bool:
    name = (_own_name(keyspace),)
    return bool(server.query("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", name))


def unknown_keyspace(server: SchemaServer, keyspace: str) -> UnknownKeyspace:
    """The error for a keyspace that does not exist; it names a keyspace whose name differs only in case."""
    name = name_of(keyspace)
    alike = (other for other in keyspaces_of(server) if other.lower() == name.lower() and other != name)
    return UnknownKeyspace(keyspace, *map(spelled, alike))


def tables_of(server: SchemaServer, keyspace: str) -> frozenset[str]:
    """The names of the keyspace's tables; none where there is no such keyspace."""
    text = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?"
    return frozenset(_values(server.query(text, (_own_name(keyspace),)), "table_name"))


def keyspaces_of(server: SchemaServer) -> tuple[str, ...]:
    """The names of all keyspaces, as the server knows them."""
    rows = server.query("SELECT keyspace_name FROM system_schema.keyspaces")
    return tuple(_values(rows, "keyspace_name"))


def _values(rows: Iterable[Row], column: str) -> list[str]:
    """The values of one column in all rows."""
    return [row[column] for row in rows]


def live_schema(server: SchemaServer, keyspace: str) -> Schema:
    """The keyspace's types, tables, indexes and views; empty for an unknown keyspace."""
    own = (_own_name(keyspace),)
    rows = _rows_of_parts(server, own)
    columns = _by_table(rows["columns"])
    dropped = _by_table(rows["dropped_columns"])
    masks = _masks(server, own)
    types = in_order_of_use(map(_user_type, rows["types"]))
    tables = []
    for row in rows["tables"]:
        name = row["table_name"]
        table = _table(row, name, columns[name], dropped[name])
        tables.append(_compact(_masked(table, masks), row))
    indexes = tuple(map(_index, rows["indexes"]))
    views = tuple(_view(row, columns[row["view_name"]], masks) for row in rows["views"])
    return Schema(types, tuple(tables), indexes, views)


_LOOKS_MAX = 50
"""A busy node may take seconds from the row of a new table to the rows of its columns."""


def _rows_of_parts(server: SchemaServer, own: tuple[str]) -> Mapping[str, Sequence[Row]]:
    """The rows of each of the server's tables of schemas.

    One request reads one of these tables. Where a table is created or dropped meanwhile, its row was read and its
    columns were not, or the other way round: all are read again.
    """
    for _ in range(_LOOKS_MAX):
        rows = {part: server.query(text, own) for part, text in _PARTS.items()}
        named = {*_values(rows["tables"], "table_name"), *_values(rows["views"], "view_name")}
        with_columns = set(_values(rows["columns"], "table_name"))
        if named == with_columns:
            break
        server.settle()
    return rows


Masks = Mapping[tuple[str, str], str]
"""By the names of a table and a column, the column's mask as CQL."""


_MASKS_SINCE = 5


def _masks(server: SchemaServer, name: tuple[str]) -> Masks:
    """The masks of all columns of a keyspace; none where the server is older than 5.0, which has no masks."""
    major = server.release_version.partition(".")[0]
    if not major.isdigit() or int(major) < _MASKS_SINCE:
        return {}
    rows = server.query("SELECT * FROM system_schema.column_masks WHERE keyspace_name = ?", name)
    return {(row["table_name"], row["column_name"]): _mask(row) for row in rows}


def _mask(row: Row) -> str:
    of_arguments = zip(
        row["function_argument_types"] or (),
        row["function_argument_values"] or (),
        row["function_argument_nulls"] or (),
        strict=True,
    )
    arguments = []
    for kind, text, null in of_arguments:
        if null:
            arguments.append("null")
        else:
            arguments.append(_mask_argument(kind, text))
    call = f"{spelled(row['function_name'])}({', '.join(arguments)})"
    keyspace = row["function_keyspace"]
    if keyspace == "system":
        return call
    return f"{spelled(keyspace)}.{call}"


_QUOTED_TYPES = frozenset({"text", "varchar", "ascii", "inet", "date", "time", "timestamp"})


def _mask_argument(kind: str, text: str) -> str:
    if kind in _QUOTED_TYPES:
        return text_literal(text)
    return text


def _masked(table: Table, masks: Masks) -> Table:
    columns = []
    for column in table.columns:
        mask = masks.get((table.name, column.name), "")
        columns.append(replace(column, mask=mask))
    return table.with_columns(columns)


def _compact(table: Table, row: Row) -> Table:
    """A table made with COMPACT STORAGE in its CQL form: servers also list columns of its storage."""
    if "flags" not in row:
        return table
    flags = frozenset(row["flags"] or ())
    if "compound" in flags and "dense" not in flags:
        return table
    if "dense" in flags:
        own = [column for column in table.columns if column.type != "empty"]
    else:
        own = list(table.partition)
        for column in table.columns:
            if column.kind is Kind.STATIC:
                own.append(replace(column, kind=Kind.REGULAR))
    return replace(table, columns=tuple(own), options={**table.options, COMPACT_STORAGE: "true"})


def beside_model(server: SchemaServer, keyspace: str) -> tuple[str, ...]:
    """What the keyspace has and `Schema` has no place for, by name.

    These are functions, aggregates, triggers, extensions of tables, and writes that skip the commit log.
    """
    own = (_own_name(keyspace),)
    found = []
    for row in server.query("SELECT * FROM system_schema.keyspaces WHERE keyspace_name = ?", own):
        if row.get("durable_writes") is False:
            found.append("durable_writes = false")
    for part, column in (("functions", "function_name"), ("aggregates", "aggregate_name")):
        for row in server.query(f"SELECT * FROM system_schema.{part} WHERE keyspace_name = ?", own):  # noqa: S608 - these two
            arguments = ", ".join(row["argument_types"] or ())
            found.append(f"{part[:-1]} {spelled(row[column])}({arguments})")
    for row in server.query("SELECT * FROM system_schema.triggers WHERE keyspace_name = ?", own):
        found.append(f"trigger {spelled(row['trigger_name'])} on {spelled(row['table_name'])}")
    for row in server.query(_PARTS["tables"], own):
        if row.get("extensions"):
            found.append(f"extensions of {spelled(row['table_name'])}")
    return tuple(sorted(found))


def identity_of(server: SchemaServer, keyspace: str, tables: Iterable[str]) -> str:
    """A digest of these tables that differs for other clusters, for tables created again, and for other columns."""
    text = "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = ?"
    ids = {row["table_name"]: row["id"] for row in server.query(text, (_own_name(keyspace),))}
    columns = digests(live_schema(server, keyspace))
    contents = {}
    for name in tables:
        contents[name] = f"{ids.get(name)} {columns.get(f'table {name}')}"
    return fingerprint_of(contents)


_PARTS = {
    part: f"SELECT * FROM system_schema.{part} WHERE keyspace_name = ?"  # noqa: S608 - these few names
    for part in ("types", "columns", "dropped_columns", "tables", "indexes", "views")
}


def _own_name(keyspace: str) -> str:
    """The keyspace's name as the server knows it, without quotes."""
    return name_of(keyspace_spelling(keyspace))


def _by_table(rows: Iterable[Row]) -> Mapping[str, Sequence[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["table_name"]].append(row)
    return found


def _user_type(row: Row) -> UserType:
    names = map(spelled, row["field_names"])
    types = map(normal_type, row["field_types"])
    return UserType(spelled(row["type_name"]), tuple(zip(names, types, strict=True)))


def _table(row: Row, name: str, columns: Sequence[Row], dropped: Sequence[Row] = ()) -> Table:
    options = {}
    for option, value in row.items():
        if option not in _NOT_OPTIONS and value is not None:
            options[option] = _literal(value)
    return Table(
        spelled(name),
        tuple(map(_column, sorted(columns, key=_place))),
        comment=row["comment"] or "",
        compaction=_compaction(row["compaction"]),
        options=options,
        dropped=tuple(map(_dropped, dropped)),
    )


def _dropped(row: Row) -> Column:
    return Column(spelled(row["column_name"]), normal_type(row["type"]), _KINDS[row.get("kind") or "regular"])


def _index(row: Row) -> Index:
    """An index; the server keeps its target and class among its options."""
    options = dict(row["options"])
    target = options.pop("target", "")
    using = options.pop("class_name", "")
    return Index(spelled(row["index_name"]), spelled(row["table_name"]), target, using, options)


def _view(row: Row, columns: Sequence[Row], masks: Masks) -> View:
    table = _masked(_table(row, row["view_name"], columns), masks)
    base = spelled(row["base_table_name"])
    return View(table, base, row["where_clause"], row["include_all_columns"])


def _place(row: Row) -> tuple[int, int, str]:
    """Sort key: key columns in key order, then the others by name, as the server lists them."""
    return _ORDER.index(_KINDS[row["kind"]]), row["position"], row["column_name"]


def _column(row: Row) -> Column:
    return Column(
        spelled(row["column_name"]),
        normal_type(row["type"]),
        _KINDS[row["kind"]],
        descending=row["clustering_order"] == "desc",
    )


def _compaction(options: Mapping[str, str]) -> Compaction:
    rest = dict(options)
    strategy = short_class(rest.pop("class"))
    return Compaction(strategy, rest)


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = {str(name): str(part) for name, part in value.items()}
        return option_text(map_literal(parts))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return text_literal(str(value))
