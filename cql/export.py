"""A live keyspace as one file of CQL that creates it again: types, tables, indexes and views, options and all."""

from collections.abc import Iterator
from dataclasses import replace

from cql.language.text import ddl_cql
from cql.render import ServerVersion, keyspace_cql, parse_version, schema_cql
from cql.replication import Replication
from model.schema.keyspace import Schema
from model.schema.statements import CreateIndex, CreateView, Name
from model.schema.table import Table

_ONLY_READ = frozenset({"dclocal_read_repair_chance", "read_repair_chance"})
"""Options that servers from 4.0 on list but refuse to set."""


def live_file_text(keyspace: str, live: Schema, replication: Replication, release: str) -> str:
    """The keyspace as CQL for a server of the same version."""
    head = f"-- Keyspace {keyspace} as Cassandra {release} has it."
    blocks = (head, keyspace_cql(keyspace, replication), *_statements(keyspace, live, parse_version(release)))
    return "\n\n".join(blocks) + "\n"


def _statements(keyspace: str, live: Schema, server: ServerVersion) -> Iterator[str]:
    given = replace(live, tables=tuple(_as_given(table) for table in live.tables))
    yield from schema_cql(keyspace, given, server)
    for index in live.indexes:
        yield ddl_cql(CreateIndex(Name(index.table), index, if_not_exists=True), keyspace, server)
    for view in live.views:
        given_view = replace(view, table=_as_given(view.table))
        yield ddl_cql(CreateView(Name(view.table.spelling), given_view, if_not_exists=True), keyspace, server)


def _as_given(table: Table) -> Table:
    return replace(table, options={name: value for name, value in table.options.items() if name not in _ONLY_READ})
