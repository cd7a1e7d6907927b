"""`mailmend schema advise`: what queue and message tables should be set to, from traffic, statistics and a trial."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from admin.advice.advising import OpenNode, TrialWanted
from admin.advice.advising import advise as advised_on
from admin.advice.output import advised_json, show_advised
from admin.advice.traffic_figures import GivenTraffic
from admin.advice.trial import READS, WAVES
from admin.advice.trial_node import given_node, started_node
from admin.cli.kinds import Named
from admin.cli.options import connection_options
from admin.cli.traffic_options import traffic_options
from admin.present.presenter import stderr_console, stdout_console, write_json
from admin.progress import progress_on
from admin.settings import LOOPBACK, PORT_DEFAULT, ConnectionSettings, parse_port
from admin.wiring import open_place
from model.errors import ExitCode, UnsafeRequest, WrongUse

ROWS_DEFAULT: Final = 20_000
ROWS_MAX: Final = 500_000

_EPILOG = """\b
Examples:
  mailmend schema advise --no-trial                       reckoned only; seconds
  mailmend schema advise                                  and tried: a few minutes
  mailmend schema advise --mails-per-second 40 --longest-stay 7d
  mailmend schema advise --rows 100000 --json

\b
The trial starts a Cassandra on this machine (Java 17; see `mailmend local`), copies whole mailboxes into it, writes
their history again under each compaction, and reads them. The copy holds keys, flags, sizes and times; texts become as
many x. It lies in a folder that only you may read (--dir), and is removed afterwards, after Ctrl-C too.

\b
Exit codes: 0 the advice was given, 2 wrong use, 4 the cluster cannot be reached."""


def _address(value: Any) -> tuple[str, int]:
    if isinstance(value, tuple):
        return value
    host, _, port = str(value).rpartition(":")
    if host and not port.isdigit():
        raise WrongUse(f"{value!r} is not HOST:PORT")
    return (host, parse_port(int(port))) if host else (str(value), PORT_DEFAULT)


def _refuse_the_advised(address: tuple[str, int] | None, connection: ConnectionSettings) -> None:
    """A trial writes: one Cassandra may serve for both on this machine only.

    Raises:
        UnsafeRequest: the trial was to run on the cluster that is advised on.
    """
    if address is None or address[0] in _HERE:
        return
    if address[0] in connection.hosts and address[1] == connection.port:
        raise UnsafeRequest(
            f"--trial-at {address[0]}:{address[1]} is the cluster that is advised on; a trial writes to it",
            mend="Leave --trial-at out, and a Cassandra is started on this machine; or name another one.",
        )


_HERE: Final = (LOOPBACK, "localhost")


@click.command(epilog=_EPILOG)
@traffic_options
@click.option("--trial/--no-trial", default=True, show_default=True, help="Try the compactions on a copy of your rows.")
@click.option(
    "--rows",
    type=click.IntRange(1, ROWS_MAX),
    default=ROWS_DEFAULT,
    show_default=True,
    help="Messages to copy at most.",
)
@click.option("--waves", type=click.IntRange(1, 1000), default=WAVES, show_default=True, help="Flushes of the copy.")
@click.option("--reads", type=click.IntRange(1, 10_000), default=READS, show_default=True, help="Reads of each kind.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    metavar="DIR",
    help="Where the copy lies meanwhile. [default: the system's folder for temporary files]",
)
@click.option(
    "--trial-at",
    type=Named("address", _address),
    metavar="HOST:PORT",
    help="A Cassandra for the trial that runs already and may be written to; never one in production.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def advise(
    connection: ConnectionSettings,
    *,
    mails_per_second: float | None,
    peak_mails_per_second: float | None,
    longest_stay: timedelta | None,
    trial: bool,
    rows: int,
    waves: int,
    reads: int,
    folder: Path | None,
    trial_at: tuple[str, int] | None,
    as_json: bool,
) -> int:
    """Say what queue and message tables should be set to, and why. Writes nothing to your cluster.

    Time windows, time to live, buckets and slices of the queue follow from the traffic, measured where it can be. For
    the message tables the compactions twcs, unified and leveled are tried on a copy of your own rows: fewest SSTables
    per read wins, then the 99th percentile of reading, then bytes on disk; what is alike leaves the tables as they are.
    """
    _refuse_the_advised(trial_at, connection)
    given = GivenTraffic(
        mails_per_second, peak_mails_per_second, longest_stay.total_seconds() if longest_stay else None
    )
    wanted = TrialWanted(rows, _node(trial_at, folder), waves, reads) if trial else None
    with open_place(connection) as place, progress_on(stderr_console(), place.clock) as progress:
        advised = advised_on(place, given, wanted, progress)
    if as_json:
        write_json(advised_json(advised))
    else:
        show_advised(advised, stdout_console())
    return int(ExitCode.FINE)


def _node(address: tuple[str, int] | None, folder: Path | None) -> OpenNode:
    return partial(given_node, *address) if address else partial(started_node, folder)
