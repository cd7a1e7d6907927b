"""Options that check and repair share: how to scan, how long to wait, what to believe of the clocks."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from admin.cli.kinds import DELAY, SPARK_SETTING
from admin.cli.options import with_options
from model.operations import Level
from repair.clock import MARGIN_SECONDS, SKEW_SECONDS

C = TypeVar("C", bound=Callable[..., Any])

ENGINES: Final = ("spark", "local")
SCAN_LEVELS: Final = tuple(level.value for level in (Level.ONE, Level.LOCAL_QUORUM, Level.QUORUM))
DELAY_DEFAULT: Final = timedelta(seconds=60)

_SCANNING: Final = (
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default=ENGINES[0],
        show_default=True,
        help="spark: any size; local: this process alone, without Spark.",
    ),
    click.option("--master", metavar="URL", help="Spark's master. [default: local[*], or spark-submit's]"),
    click.option(
        "--spark-conf",
        type=SPARK_SETTING,
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of Spark's own, like spark.executor.memory=2g; may be given again. No secrets.",
    ),
    click.option(
        "--rows-per-second",
        type=click.IntRange(min=1),
        metavar="N",
        help="Read and write no faster, over all workers together.",
    ),
    click.option(
        "--level",
        type=click.Choice(SCAN_LEVELS, case_sensitive=False),
        default=Level.LOCAL_QUORUM.value,
        show_default=True,
        help="Consistency of the scans.",
    ),
    click.option(
        "--torn",
        type=click.Choice(["report", "accept"]),
        default="report",
        show_default=True,
        help="accept: rows from before James 3.7 lack columns lawfully.",
    ),
)
_TIMING: Final = (
    click.option(
        "--delay", type=DELAY, default="60s", show_default=True, help="How long lags may settle before the second look."
    ),
    click.option(
        "--clock-skew",
        type=DELAY,
        default=f"{SKEW_SECONDS:g}s",
        show_default=True,
        help="The greatest difference between any two clocks.",
    ),
)
_WRITING: Final = (
    click.option(
        "--margin",
        type=DELAY,
        default=f"{MARGIN_SECONDS:g}s",
        show_default=True,
        help="How long before its scan a repair is dated; must exceed the clocks' skew and 20 s.",
    ),
    click.option("--no-writers", is_flag=True, help="Declare that nobody writes: no margin, and any delay will do."),
)


def scanning_options(command: C) -> C:
    """`--engine`, `--master`, `--spark-conf`, `--rows-per-second`, `--level` and `--torn`."""
    return with_options(command, _SCANNING)


def timing_options(command: C) -> C:
    """`--delay` and `--clock-skew`."""
    return with_options(command, _TIMING)


def writing_options(command: C) -> C:
    """`--margin` and `--no-writers`."""
    return with_options(command, _WRITING)
