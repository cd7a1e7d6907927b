"""Options of the commands that advise: what a person knows of the traffic better than the tables tell."""

from datetime import timedelta
from typing import Final

import click

from admin.cli.kinds import Duration
from admin.cli.options import option

STAY_MAX: Final = timedelta(days=365)
_RATE: Final = click.FloatRange(min=0, min_open=True, max=1_000_000)

TRAFFIC: Final = (
    option("--mails-per-second", "Enqueued, on average. [default: measured]", type=_RATE, metavar="N"),
    option("--peak-mails-per-second", "In the busiest hour. [default: measured]", type=_RATE, metavar="N"),
    option(
        "--longest-stay",
        "From enqueueing to the last try. [default: 5d, or more where the queue shows it]",
        type=Duration(STAY_MAX, zero=False),
    ),
)
