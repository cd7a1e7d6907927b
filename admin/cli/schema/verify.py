"""`mailmend schema verify`: which generation of the tables a keyspace holds, and what is wrong with it."""

import click

from admin.cli.options import connection_options
from admin.cli.schema.recognised import exit_code, recognition_json, show_recognition
from admin.output import write_json
from admin.settings import ConnectionSettings
from admin.wiring import open_place
from cql.applying import verify_schema


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def verify(connection: ConnectionSettings, *, as_json: bool) -> int:
    """Say which generation of the tables a keyspace holds, and what is wrong with it. Writes nothing.

    Options, tables of other modules and columns of older generations are noted; they are not drift.
    Exit code 1: drift was found; each line says what mends it.
    """
    with open_place(connection) as place:
        recognition = verify_schema(place.cluster, connection.keyspace)
    if as_json:
        write_json(recognition_json(connection.keyspace, recognition))
    else:
        show_recognition(connection.keyspace, recognition)
    return exit_code(recognition)
