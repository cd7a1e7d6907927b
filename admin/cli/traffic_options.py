"""Options of the commands that advise: what a person knows of the traffic better than the tables tell."""

from datetime import timedelta
from typing import Final

import click

from admin.cli.kinds import Duration

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
