"""Options of the commands that advise: what a person knows of the traffic better than the tables tell."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from admin.cli.kinds import Duration
from admin.cli.options import with_options

C = TypeVar("C", bound=Callable[..., Any])

STAY_MAX: Final = timedelta(days=365)
_RATE: Final = click.FloatRange(min=0, min_open=True, max=1_000_000)

_OPTIONS: Final = (
    click.option("--mails-per-second", type=_RATE, metavar="N", help="Enqueued, on average. [default: measured]"),
    click.option("--peak-mails-per-second", type=_RATE, metavar="N", help="In the busiest hour. [default: measured]"),
    click.option(
        "--longest-stay",
        type=Duration(STAY_MAX, zero=False),
        help="From enqueueing to the last try. [default: 5d, or more where the queue shows it]",
    ),
)


def traffic_options(command: C) -> C:
    """Give a command `--mails-per-second`, `--peak-mails-per-second` and `--longest-stay`."""
    return with_options(command, _OPTIONS)
