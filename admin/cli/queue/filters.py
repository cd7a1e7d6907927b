"""The options that say which mails of a queue are meant."""

from datetime import timedelta
from typing import Final

import click

from admin.cli.command import Shared
from admin.cli.kinds import Duration
from admin.services.queue.request import MailSelection
from model.queue.mails import Whereabouts

AGE_MAX: Final = timedelta(days=3650)
_AGE: Final = Duration(AGE_MAX, zero=False)

FILTERS: Final = Shared(
    "selection",
    {
        "": (
            click.Option(
                ["--sender"], metavar="ADDRESS", help="In any case; * stands for anything, <> is the null sender."
            ),
            click.Option(["--recipient"], metavar="ADDRESS", help="One of the recipients, likewise."),
            click.Option(["--name"], metavar="NAME", help="The mail's name; * stands for anything."),
            click.Option(["--state"], metavar="STATE", help="The processor that it waits for, like root; likewise."),
            click.Option(["--older-than"], type=_AGE, help="Enqueued longer ago than this."),
            click.Option(["--newer-than"], type=_AGE, help="Enqueued no longer ago than this."),
            click.Option(
                ["--id", "ids"], type=click.UUID, multiple=True, metavar="ID", help="Exactly this; may be repeated."
            ),
            click.Option(
                ["--where"],
                type=click.Choice([one.value for one in Whereabouts]),
                help="Only mails that wait, or only delayed ones.",
            ),
        )
    },
    lambda own, _others, _context: MailSelection(**own),
)
"""Which mails, as `selection: MailSelection` of the request."""
