"""`mailmend check`: find drift without writing anything anywhere."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from admin.cli.mending_options import scanning_options, timing_options
from admin.cli.options import connection_options
from admin.cli.results import Wanted, gathering, present, result_options
from admin.output import stderr_console
from admin.progress import progress_on
from admin.settings import ConnectionSettings
from admin.wiring import EngineWanted, families_named, means_to_look, open_place
from model.operations import Level
from repair.clock import STAMP_AGE_SECONDS, Timing
from repair.mending.request import Order
from repair.mending.runner import check as check_keyspace

_EPILOG = """\b
Examples:
  mailmend check                                     every projection of the keyspace
  mailmend check messages --engine local             without Spark
  mailmend check --report drift.html --findings drift.jsonl
  mailmend check --no-recheck --json | jq .findings  raw suspects, at once

\b
Exit codes: 0 no drift (leaks are told and do not count), 1 confirmed drift, 2 wrong use,
3 some suspects could not be looked at again, 4 the cluster cannot be reached."""


@click.command(epilog=_EPILOG)
@click.argument("what", type=click.Choice(["messages", "all"]), default="all")
@timing_options
@click.option("--no-writers", is_flag=True, help="Declare that nobody writes: counters are looked at twice at once.")
@click.option("--no-recheck", is_flag=True, help="Report raw suspects, without waiting and looking again.")
@scanning_options
@result_options
@connection_options
def check(  # noqa: PLR0917 - click passes by name
    connection: ConnectionSettings,
    what: str,
    delay: timedelta,
    clock_skew: timedelta,
    engine: str,
    master: str | None,
    spark_conf: tuple[tuple[str, str], ...],
    rows_per_second: int | None,
    level: str,
    torn: str,
    report: Path | None,
    findings: Path | None,
    **switches: Any,
) -> int:
    """Find drift, without writing anything.

    WHAT is `messages` (what follows from imapUidTable) or `all` (the paths of mailboxes too; the default). Every table
    is read once. What looks wrong is looked at again by key after the delay; only what is still wrong is drift.
    """
    wanted = Wanted(switches["as_json"], report, findings)
    with gathering(wanted) as gatherer, open_place(connection) as place:
        order = Order(
            keyspace=place.mail.name,
            families=place.families(families_named(what)),
            level=Level(level),
            delay_seconds=delay.total_seconds(),
            timing=Timing(0, clock_skew.total_seconds(), no_writers=True),
            recheck=not switches["no_recheck"],
            accept_torn=torn == "accept",
            rows_per_second=rows_per_second,
        )
        timing = timing_of_counters(clock_skew.total_seconds(), no_writers=switches["no_writers"])
        named = EngineWanted(engine, master, dict(spark_conf))
        with (
            progress_on(stderr_console(), place.clock) as progress,
            means_to_look(place, named, order, progress, timing) as means,
        ):
            summary = check_keyspace(order, means, gatherer)
    return present(summary, gatherer.samples, wanted, place.clock)


def timing_of_counters(skew_seconds: float, *, no_writers: bool) -> Timing:
    """How far apart two looks at counters lie. Nothing is written, so any margin that covers the skew will do."""
    return Timing(skew_seconds + STAMP_AGE_SECONDS + 1, skew_seconds, no_writers=no_writers)
