"""The mail tables created without lease and history, for tests and benches that are about something else."""

from collections.abc import Sequence

from mailmend.cql.applying import Step, creations, keyspace_step
from mailmend.cql.introspect import SchemaServer, keyspace_exists, live_schema
from mailmend.cql.render import Replication, in_every_data_centre, parse_version
from mailmend.cql.schema.generations import Recognition, recognise
from mailmend.model.catalog.mail import SCHEMA, CompactionChoice, compacted
from mailmend.model.keyspace import Schema

ONE_COPY = in_every_data_centre(1)


def missing_steps(
    server: SchemaServer,
    keyspace: str,
    replication: Replication = ONE_COPY,
    compaction: CompactionChoice = CompactionChoice.TWCS,
) -> Sequence[Step]:
    wanted = Schema(SCHEMA.types, compacted(SCHEMA.tables, compaction))
    live, version = live_schema(server, keyspace), parse_version(server.release_version)
    create = [] if keyspace_exists(server, keyspace) else [keyspace_step(keyspace, replication)]
    return [*create, *creations(keyspace, wanted, live, version)]


def apply_schema(
    server: SchemaServer,
    keyspace: str,
    replication: Replication = ONE_COPY,
    compaction: CompactionChoice = CompactionChoice.TWCS,
) -> tuple[str, ...]:
    """Create whatever is missing; the names of it.

    Raises:
        WrongUse: the server is too old for the compaction.
    """
    steps = missing_steps(server, keyspace, replication, compaction)
    for step in steps:
        server.execute_ddl(step.cql)
    return tuple(step.creates for step in steps)


def verify_schema(server: SchemaServer, keyspace: str) -> Recognition:
    """Which generation the keyspace is, and what is wrong with it; reads only.

    Raises:
        UnknownKeyspace: there is none of that name.
    """
    server.replication_of(keyspace)
    return recognise(live_schema(server, keyspace))
