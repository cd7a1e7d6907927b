"""An upgrade note of James carried out: with the care of a migration, though no folder holds it."""

from cql.introspect import live_schema
from cql.language.text import ddl_cql
from cql.migrate.rollout import Means, lease_name
from cql.migrate.scripts import Script
from cql.render import parse_version
from model.migrations.upgrade_notes import OptionalMigration


def run_optional(means: Means, keyspace: str, migration: OptionalMigration) -> tuple[str, ...]:
    """Run what of it is still to do; the statements that were sent.

    Each is looked up in the live schema first, so whoever was interrupted types the same command again.

    Raises:
        LeaseHeld: somebody else changes the schema.
        SchemaDisagreement: the nodes do not agree; named.
        WrongUse: the server refused a statement.
    """
    server = parse_version(means.server.release_version)
    means.agreement.wait("before anything was changed")
    history = means.open_history()
    with means.leasing().held(lease_name(keyspace), f"schema apply --optional {migration.name}") as held:
        applier = means.applier(history, held, Script(keyspace, server))
        for statement in migration.due(live_schema(means.server, keyspace)):
            applier.send(ddl_cql(statement, keyspace, server), migration.name)
        return tuple(applier.done.statements)
