"""Creation of the ledger keyspace, and of missing types and tables in a keyspace."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from mailmend.cql.introspect import SchemaServer, keyspace_exists, live_schema
from mailmend.cql.render import (
    Replication,
    ServerVersion,
    keyspace_cql,
    parse_version,
    replication_from,
    table_cql,
    type_cql,
)
from mailmend.cql.schema.difference import Aspect, Difference, differences
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.errors import SchemaMismatch, TablesOfOthers
from mailmend.model.keyspace import Schema
from mailmend.model.names import keyspace_spelling
from mailmend.model.table import Table


@dataclass(frozen=True, slots=True)
class Step:
    """One statement, and the name of what it creates."""

    creates: str
    cql: str


def ensure_ledger(
    server: SchemaServer, ledger_keyspace: str, like_keyspace: str, replication: Replication | None = None
) -> tuple[str, ...]:
    """Create the ledger keyspace, replicated like the mail keyspace, and its missing tables.

    Where everything exists, no permission to create is needed. Two processes that create it at once make the same
    tables, as each table's id follows from its name.

    Args:
        server: the cluster.
        ledger_keyspace: the name of the ledger keyspace.
        like_keyspace: the keyspace whose replication is copied.
        replication: for a mail keyspace that is yet to be created.

    Raises:
        UnknownKeyspace: the mail keyspace does not exist.
        SchemaMismatch: a table of that name exists with other columns.
        TablesOfOthers: the keyspace is another application's: it has tables, and none of the ledger's.
    """
    return _carry_out(server, ledger_steps(server, ledger_keyspace, like_keyspace, replication))


def ledger_steps(
    server: SchemaServer, ledger_keyspace: str, like_keyspace: str, replication: Replication | None = None
) -> tuple[Step, ...]:
    """What `ensure_ledger` would create; reads only and raises the same errors."""
    live = live_schema(server, ledger_keyspace)
    version = parse_version(server.release_version)
    wrong = tuple(map(str, filter(_unfits, differences(LEDGER, live))))
    if wrong:
        raise SchemaMismatch(ledger_keyspace, wrong)
    if live.tables and not any(live.table(table.name) for table in LEDGER_TABLES):
        names = [table.spelling for table in live.tables]
        raise TablesOfOthers(ledger_keyspace, names, mend="Name a keyspace of mailmend's own with --ledger-keyspace.")
    named = replace(LEDGER, tables=tuple(_with_id(ledger_keyspace, table) for table in LEDGER.tables))
    missing = tuple(creations(ledger_keyspace, named, live, version))
    if not missing:
        return ()
    new = None
    if not keyspace_exists(server, like_keyspace):
        new = replication
    copied = new or replication_from(server.replication_of(like_keyspace))
    if keyspace_exists(server, ledger_keyspace):
        return missing
    return (keyspace_step(ledger_keyspace, copied), *missing)


def _with_id(keyspace: str, table: Table) -> Table:
    """The table with an id that follows from its name.

    No lease can be taken before the table of leases exists. Without the id, two creators make two tables of one
    name, each node keeps one of them, and rows are lost (CASSANDRA-10699).
    """
    table_id = uuid5(_LEDGER_IDS, f"{keyspace_spelling(keyspace)}.{table.name}")
    return replace(table, options={"id": str(table_id), **table.options})


_LEDGER_IDS = UUID("6ba2c4e6-30a5-4d0f-9f58-6d61696c6d64")
"""The namespace of our tables' ids (UUID version 5); never to be changed."""


LEDGER = Schema((), LEDGER_TABLES)


def _carry_out(server: SchemaServer, steps: tuple[Step, ...]) -> tuple[str, ...]:
    created = []
    for step in steps:
        server.execute_ddl(step.cql)
        created.append(step.creates)
    return tuple(created)


def keyspace_step(keyspace: str, replication: Replication) -> Step:
    return Step(f"keyspace {keyspace_spelling(keyspace)}", keyspace_cql(keyspace, replication))


def creations(keyspace: str, wanted: Schema, live: Schema, version: ServerVersion) -> Iterator[Step]:
    for user_type in wanted.types:
        if live.user_type(user_type.name) is None:
            yield Step(f"type {user_type.spelling}", type_cql(keyspace, user_type))
    for table in wanted.tables:
        if live.table(table.name) is None:
            yield Step(f"table {table.spelling}", table_cql(keyspace, table, version))


def _unfits(difference: Difference) -> bool:
    """Whether mailmend's statements would fail because of it."""
    return difference.aspect in {
        Aspect.DIFFERENT_KEY,
        Aspect.DIFFERENT_ORDER,
        Aspect.MISSING_COLUMN,
        Aspect.DIFFERENT_COLUMN,
    }
