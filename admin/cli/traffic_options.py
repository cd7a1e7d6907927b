"""Options of the commands that advise: what a person knows of the traffic better than the tables tell."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from admin.cli.kinds import Duration

C = TypeVar("C", bound=Callable[..., Any])

STAY_MAX: Final = timedelta(days=365)
_RATE: Final = click.FloatRange(min=0, min_open=True, max=1_000_000)

TRAFFIC: Final = (
    click.Option(["--mails-per-second"], type=_RATE, metavar="N", help="Enqueued, on average. [default: measured]"),
    click.Option(["--peak-mails-per-second"], type=_RATE, metavar="N", help="In the busiest hour. [default: measured]"),
    click.Option(
        ["--longest-stay"],
        type=Duration(STAY_MAX, zero=False),
        help="From enqueueing to the last try. [default: 5d, or more where the queue shows it]",
    ),
)


def traffic_options(command: C) -> C:
    """Give a command that is made by decorators these options."""
    own = [*getattr(command, "__click_params__", []), *reversed(TRAFFIC)]
    setattr(command, "__click_params__", own)  # noqa: B010 - click reads it, no type knows it
    return command
