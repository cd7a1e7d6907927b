"""`mailmend queue advise`: the slice window, number of buckets and pace that fit the traffic."""

from datetime import timedelta

import click

from admin.advice.queue_advising import advise_on_queue, queue_advised_json, show_queue_advised
from admin.advice.traffic_figures import GivenTraffic
from admin.cli.options import connection_options
from admin.cli.traffic_options import traffic_options
from admin.present.presenter import stderr_console, stdout_console, write_json
from admin.progress import progress_on
from admin.settings import ConnectionSettings
from admin.wiring import open_place
from model.errors import ExitCode

_EPILOG = """\b
Examples:
  mailmend queue advise                               from what is measured; seconds
  mailmend queue advise --mails-per-second 40 --peak-mails-per-second 300
  mailmend queue advise --json | jq -r .command       what to type, for a script

\b
Exit codes: 0 the advice was given, 2 wrong use, 4 the cluster cannot be reached."""


@click.command(epilog=_EPILOG)
@traffic_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def advise(
    connection: ConnectionSettings,
    *,
    mails_per_second: float | None,
    peak_mails_per_second: float | None,
    longest_stay: timedelta | None,
    as_json: bool,
) -> int:
    """Say which slice window, number of buckets and pace fit the traffic. Writes nothing.

    One configuration serves every queue of a keyspace; the busiest is measured. About 10,000 mails a slice are aimed
    at. A slice window may only become one that divides the present, and buckets only grow: what is advised may be set.
    """
    stay = longest_stay.total_seconds() if longest_stay else None
    given = GivenTraffic(mails_per_second, peak_mails_per_second, stay)
    with open_place(connection) as place, progress_on(stderr_console(), place.clock) as progress:
        advised = advise_on_queue(place, given, progress)
    if as_json:
        write_json(queue_advised_json(advised))
    else:
        show_queue_advised(advised, stdout_console())
    return int(ExitCode.FINE)
