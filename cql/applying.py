"""What is missing on a live cluster, planned as statements; and our own keyspace, the ledger, created.

A keyspace that James made is respected: nothing is created there unless it is asked for, and nothing is ever altered
(DESIGN section 4 "Schema"). What would be created is told all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from cql.introspect import SchemaServer, keyspace_exists, live_schema
from cql.render import ServerVersion, keyspace_cql, parse_version, table_cql, type_cql
from cql.replication import Replication, in_every_data_centre, replication_from
from model.catalog.generations import Recognition, holds_mail, recognise, was_made_here
from model.catalog.ledger import LEDGER_TABLES
from model.catalog.mail import MAIL_TABLES, SCHEMA, CompactionChoice, compacted
from model.errors import SchemaMismatch
from model.schema.difference import Aspect, Difference, differences
from model.schema.keyspace import Schema
from model.schema.table import Table, identifier

ONE_COPY = in_every_data_centre(1)


@dataclass(frozen=True, slots=True)
class Step:
    """One statement, and what it creates."""

    creates: str
    cql: str


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """What applying would carry out, and what it withholds because the keyspace is James's own."""

    steps: tuple[Step, ...]
    withheld: tuple[Step, ...] = ()


def plan_apply(
    server: SchemaServer,
    keyspace: str,
    replication: Replication = ONE_COPY,
    compaction: CompactionChoice = CompactionChoice.TWCS,
    *,
    complete: bool = False,
) -> ApplyPlan:
    """What creates the mail tables that are missing; reads only.

    Args:
        server: the cluster.
        keyspace: the mail keyspace.
        replication: for a keyspace that does not exist yet; an existing one keeps its own.
        compaction: for the big message tables, where they do not exist yet.
        complete: also create what mailmend needs and a keyspace of James lacks.

    Raises:
        WrongUse: the server is too old for the compaction.
    """
    live, version = live_schema(server, keyspace), parse_version(server.release_version)
    if holds_mail(live) and not was_made_here(live):
        steps = tuple(creations(keyspace, _needed(recognise(live), compaction), live, version))
        return ApplyPlan(steps) if complete else ApplyPlan((), withheld=steps)
    wanted = Schema(SCHEMA.types, compacted(SCHEMA.tables, compaction))
    create = () if keyspace_exists(server, keyspace) else (keyspace_step(keyspace, replication),)
    return ApplyPlan((*create, *creations(keyspace, wanted, live, version)))


def ensure_ledger(
    server: SchemaServer, ledger_keyspace: str, like_keyspace: str, replication: Replication | None = None
) -> tuple[str, ...]:
    """Create our own keyspace, replicated like the mail keyspace, and its tables where they are missing.

    Where all of it is there nothing is asked that would take a permission. Two that create it at once make the same
    tables: each has an id of its name's own.

    Args:
        server: the cluster.
        ledger_keyspace: our own.
        like_keyspace: whose replication is copied.
        replication: for a mail keyspace that is yet to be created.

    Raises:
        UnknownKeyspace: the mail keyspace does not exist.
        SchemaMismatch: a table of that name is there with other columns.
    """
    return _carry_out(server, ledger_steps(server, ledger_keyspace, like_keyspace, replication))


def ledger_steps(
    server: SchemaServer, ledger_keyspace: str, like_keyspace: str, replication: Replication | None = None
) -> tuple[Step, ...]:
    """What `ensure_ledger` would create; reads only, and raises as it does."""
    live, version = live_schema(server, ledger_keyspace), parse_version(server.release_version)
    wrong = tuple(str(one) for one in differences(LEDGER, live) if _unfits(one))
    if wrong:
        raise SchemaMismatch(ledger_keyspace, wrong)
    named = replace(LEDGER, tables=tuple(_with_id(ledger_keyspace, table) for table in LEDGER.tables))
    missing = tuple(creations(ledger_keyspace, named, live, version))
    if not missing:
        return ()
    new = replication if not keyspace_exists(server, like_keyspace) else None
    copied = new or replication_from(server.replication_of(like_keyspace))
    create = () if keyspace_exists(server, ledger_keyspace) else (keyspace_step(ledger_keyspace, copied),)
    return (*create, *missing)


def _with_id(keyspace: str, table: Table) -> Table:
    """The table under an id that follows from its name.

    No lease can be taken before there is a table of leases; two creators would otherwise make two tables of one name,
    of which each node keeps another, and rows are lost (CASSANDRA-10699).
    """
    table_id = uuid5(_LEDGER_IDS, f"{identifier(keyspace)}.{table.name}")
    return replace(table, options={"id": str(table_id), **table.options})


_LEDGER_IDS = UUID("6ba2c4e6-30a5-4d0f-9f58-6d61696c6d64")
"""Under which the ids of our own tables are derived; never to be changed."""


LEDGER = Schema((), LEDGER_TABLES)


def _carry_out(server: SchemaServer, steps: tuple[Step, ...]) -> tuple[str, ...]:
    for step in steps:
        server.execute_ddl(step.cql)
    return tuple(step.creates for step in steps)


def keyspace_step(keyspace: str, replication: Replication) -> Step:
    """What creates a keyspace."""
    return Step(f"keyspace {identifier(keyspace, 'keyspace name')}", keyspace_cql(keyspace, replication))


def creations(keyspace: str, wanted: Schema, live: Schema, version: ServerVersion) -> Iterator[Step]:
    """What creates everything that is wanted and not there."""
    for user_type in wanted.types:
        if live.user_type(user_type.name) is None:
            yield Step(f"type {user_type.spelling}", type_cql(keyspace, user_type))
    for table in wanted.tables:
        if live.table(table.name) is None:
            yield Step(f"table {table.spelling}", table_cql(keyspace, table, version))


def _needed(recognition: Recognition, compaction: CompactionChoice) -> Schema:
    """What mailmend reads or writes, in the form of the recognised generation."""
    schema = recognition.generation.schema
    names = {table.name for table in MAIL_TABLES}
    return Schema(schema.types, compacted((table for table in schema.tables if table.name in names), compaction))


def _unfits(difference: Difference) -> bool:
    """Whether our own statements would fail on it."""
    return difference.aspect in {
        Aspect.DIFFERENT_KEY,
        Aspect.DIFFERENT_ORDER,
        Aspect.MISSING_COLUMN,
        Aspect.DIFFERENT_COLUMN,
    }
