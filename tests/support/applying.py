"""The mail tables created without lease and history, for tests and benches that are about something else."""

from dataclasses import dataclass

from cql.applying import ONE_COPY, plan_apply
from cql.introspect import SchemaServer, live_schema
from cql.replication import Replication
from model.catalog.generations import Recognition, recognise
from model.catalog.mail import CompactionChoice


@dataclass(frozen=True, slots=True)
class Applied:
    """What was created, what was withheld, and what the keyspace was taken for when it was read back."""

    created: tuple[str, ...]
    withheld: tuple[str, ...]
    recognition: Recognition


def apply_schema(
    server: SchemaServer,
    keyspace: str,
    replication: Replication = ONE_COPY,
    compaction: CompactionChoice = CompactionChoice.TWCS,
    *,
    complete: bool = False,
) -> Applied:
    """Create whatever is missing, and read the result back. Applying again creates nothing.

    Raises:
        WrongUse: the server is too old for the compaction.
    """
    plan = plan_apply(server, keyspace, replication, compaction, complete=complete)
    for step in plan.steps:
        server.execute_ddl(step.cql)
    created = tuple(step.creates for step in plan.steps)
    withheld = tuple(step.creates for step in plan.withheld)
    return Applied(created, withheld, recognise(live_schema(server, keyspace)))


def verify_schema(server: SchemaServer, keyspace: str) -> Recognition:
    """Which generation the keyspace is, and what is wrong with it; reads only.

    Raises:
        UnknownKeyspace: there is none of that name.
    """
    server.replication_of(keyspace)
    return recognise(live_schema(server, keyspace))
