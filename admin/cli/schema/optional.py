"""Optional migrations: shown with why, what they risk and the CQL that runs here; and run, one by name."""

from collections.abc import Iterable
from typing import Any

from admin.migrating import Patience, migrator_of
from admin.present.presenter import stdout_console, write_json
from admin.wiring import Place
from cql.introspect import live_schema
from cql.language.text import ddl_cql
from cql.render import ServerVersion, parse_version
from model.errors import ExitCode
from model.migrations.upgrade_notes import OptionalMigration, optional_migration
from model.schema.keyspace import Schema


def apply_optional(place: Place, name: str, patience: Patience, *, dry_run: bool, as_json: bool) -> int:
    """`mailmend schema apply --optional NAME`.

    Raises:
        WrongUse: there is no optional migration of that name.
        UnknownKeyspace: there is no such keyspace.
    """
    migration, keyspace = optional_migration(name), place.connection.keyspace
    place.cluster.replication_of(keyspace)
    live, server = live_schema(place.cluster, keyspace), parse_version(place.cluster.release_version)
    shown = optional_json(migration, live, keyspace, server)
    sent: tuple[str, ...] = ()
    if shown["statements"] and not dry_run:
        with migrator_of(place, patience) as migrator:
            sent = migrator.run_optional(keyspace, migration)
    if as_json:
        write_json(shown | {"keyspace": keyspace, "optional": name, "sent": list(sent), "exit": int(ExitCode.FINE)})
        return int(ExitCode.FINE)
    console = stdout_console()
    if dry_run and shown["statements"]:
        show_optional((migration,), live, keyspace, server)
    elif not sent:
        console.print(f"{keyspace}: nothing of {name} is left to do.", soft_wrap=True)
    for cql in sent:
        console.print(f"done: {cql}", soft_wrap=True, markup=False)
    return int(ExitCode.FINE)


def optional_json(one: OptionalMigration, live: Schema, keyspace: str, server: ServerVersion) -> dict[str, Any]:
    """One optional migration, with what of it is still to do."""
    due = [(ddl_cql(statement, keyspace, server), statement.assess(live)) for statement in one.due(live)]
    return {
        "name": one.name,
        "since": one.since.isoformat(),
        "source": one.source or None,
        "why": one.why,
        "undo": one.undo,
        "caution": one.caution or None,
        "plan": [
            {
                "cql": cql,
                "risk": assessment.worst.value,
                "risks": [risk.value for risk in assessment.risks],
                "why": assessment.why,
            }
            for cql, assessment in due
        ],
        "statements": [cql for cql, _ in due],
    }


def show_optional(due: Iterable[OptionalMigration], live: Schema, keyspace: str, server: ServerVersion) -> None:
    """Print them as CQL that cqlsh takes, reasons as comments."""
    console = stdout_console()
    for one in due:
        shown = optional_json(one, live, keyspace, server)
        source = f", {one.source}" if one.source else ""
        console.print(f"\n-- optional: {one.name} ({one.since}{source})", soft_wrap=True, markup=False)
        for text in (one.why, one.caution, f"Undo: {one.undo}"):
            if text:
                console.print(f"--   {text}", soft_wrap=True, markup=False)
        for statement in shown["plan"]:
            console.print(f"--   risk: {statement['risk']}. {statement['why']}", soft_wrap=True, markup=False)
            console.print(statement["cql"], soft_wrap=True, markup=False)
        run = f"mailmend schema apply --optional {one.name} --keyspace {keyspace}"
        console.print(f"--   run it with: {run}", soft_wrap=True, markup=False)
