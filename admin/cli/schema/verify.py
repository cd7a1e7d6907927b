"""`mailmend schema verify`: a live keyspace against its model and its history; what is wrong, and what mends it."""

from pathlib import Path

import click

from admin.cli.options import connection_options
from admin.cli.schema.migration_options import folder_option
from admin.cli.schema.verified import Verified, show_verified, verified_json
from admin.migrating import history_of, migrations_in
from admin.present.presenter import write_json
from admin.settings import ConnectionSettings
from admin.wiring import Place, open_place
from cql.introspect import live_schema
from model.migrations.migration import Migration
from model.migrations.verification import Verification, verify_migrations, verify_ours

_EPILOG = """\b
Examples:
  mailmend schema verify --keyspace apache_james          a mail keyspace: which generation is it, what is wrong
  mailmend schema verify --migrations db --keyspace shop  your own tables against the migrations that were applied

\b
Exit codes: 0 nothing is wrong, 1 drift was found, 2 wrong use (there is no such keyspace), 4 the cluster cannot be
reached."""


@click.command(epilog=_EPILOG)
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def verify(connection: ConnectionSettings, *, migrations: Path | None, as_json: bool) -> int:
    """Say what is wrong with a live keyspace: its tables, types, indexes and views, and its history. Writes nothing.

    A mail keyspace is compared with the generation of James that it is nearest to. Options, tables of other modules and
    columns of older generations are noted; they are not drift. With --migrations any keyspace is compared with what was
    applied to it from there. A migration that was edited, went missing, was put in between or has not ended is drift.
    Exit code 1: drift was found; each line says what mends it.
    """
    folder = migrations_in(migrations)
    with open_place(connection) as place:
        verified = Verified(connection.keyspace, migrations, _verification(place, folder, ours=migrations is None))
    if as_json:
        write_json(verified_json(verified))
    else:
        show_verified(verified)
    return verified.exit


def _verification(place: Place, migrations: tuple[Migration, ...], *, ours: bool) -> Verification:
    keyspace = place.connection.keyspace
    place.cluster.replication_of(keyspace)
    history = history_of(place)
    record = history.record() if history else None
    live = live_schema(place.cluster, keyspace)
    return (verify_ours if ours else verify_migrations)(live, migrations, record)
