"""A live keyspace as one file of CQL that creates it again: types, tables, indexes and views, options and all."""

from collections.abc import Iterator

from cql.ddl_text import ddl_cql
from cql.render import ServerVersion, keyspace_cql, parse_version, schema_cql
from cql.replication import Replication
from model.ddl import CreateIndex, CreateView, Name
from model.schema import Schema


def live_file_text(keyspace: str, live: Schema, replication: Replication, release: str) -> str:
    """The keyspace as CQL for a server of the same version."""
    head = f"-- Keyspace {keyspace} as Cassandra {release} has it."
    return (
        "\n\n".join((head, keyspace_cql(keyspace, replication), *_statements(keyspace, live, parse_version(release))))
        + "\n"
    )


def _statements(keyspace: str, live: Schema, server: ServerVersion) -> Iterator[str]:
    yield from schema_cql(keyspace, live, server)
    for index in live.indexes:
        yield ddl_cql(CreateIndex(Name(index.table), index, if_not_exists=True), keyspace, server)
    for view in live.views:
        yield ddl_cql(CreateView(Name(view.table.spelling), view, if_not_exists=True), keyspace, server)
