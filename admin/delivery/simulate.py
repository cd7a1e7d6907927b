"""Declaration of `mailmend policy simulate`."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.delivery.simulate_service import TOP
from mailmend.admin.frame.command import Command, Values
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.messages.mending import SCANNING
from mailmend.admin.queue.options import QUEUE_ARGUMENT, queue_settings
from mailmend.model.durations import parse_duration
from mailmend.model.errors import WrongUse

_BACK_MAX: Final = timedelta(days=3650)
_TOP_MAX: Final = 1_000


def _time(value: Any) -> datetime | timedelta:
    """An instant, or how long ago."""
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        try:
            return parse_duration(str(value), maximum=_BACK_MAX)
        except WrongUse as error:
            mend = "Write it like 2026-05-01T08:00:00Z, or like 2h, which is so long ago."
            raise WrongUse(f"{value!r} is neither a time nor a duration", mend=mend) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


_TIME: Final = ParsedValue("time", _time)


def _refuse_unnamed(others: Values, context: click.Context) -> None:
    if not others["queue_named"] and context.get_parameter_source("queue") is ParameterSource.DEFAULT:
        mend = "Name it: mailmend policy simulate policies.yaml outgoing"
        raise WrongUse("it is not said whose attempts are replayed", mend=mend)


SIMULATE: Final = Command(
    name="simulate",
    summary="Say what a policy file would have done to the recorded attempts of a queue.",
    about="""The attempts that `delivery serve` has recorded in the ledger are replayed under the file, by the engine
    that picks mails there: when the last one would begin and end, how many would have waited longer than they did,
    which limits would have held them back, and whose mails. With --against the same is done with another file, mostly
    the present one. Nothing is written.

    What is assumed: each attempt is ready when it was, and lasts as long as it did; of which no end is known lasts as
    long as the median. What is refused elsewhere is not tried again besides: retries are those on record. All servers
    of the queue are one, and nothing is under way at the beginning. What no policy limits, like `delivery serve
    --concurrency`, is left out unless it is said with --concurrency: of all servers together. What was suspended
    or set by command is left out too.

    Where every policy counts by tenantid, Spark replays each tenant apart, on as many cores as there are; else one core
    replays all of them. This needs mailmend[delivery].""",
    service="mailmend.admin.delivery.simulate_service:simulate",
    present="mailmend.admin.delivery.simulate_document:simulation_document",
    options=(
        click.Argument(["file"], type=FILE, metavar="FILE"),
        QUEUE_ARGUMENT,
        option(
            "--since",
            "How far to look back: only attempts that were ready then or later; 2h ago, or an instant like "
            "2026-05-01T08:00:00Z. [default: all that are kept]",
            type=_TIME,
            metavar="TIME",
        ),
        option(
            "--until",
            "Only attempts that were ready before: as with --since. [default: now]",
            type=_TIME,
            metavar="TIME",
        ),
        option(
            "--against",
            "Replay the same attempts under this file too, and show both.",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--concurrency",
            "Attempts to deliver at once: of all servers of the queue together. [default: what the policies allow]",
            type=click.IntRange(min=1),
            metavar="N",
        ),
        option(
            "--top",
            "How many limits, and values of each field, are named.",
            type=click.IntRange(1, _TOP_MAX),
            default=TOP,
            metavar="N",
        ),
        *(declared for declared in SCANNING if declared.name not in {"pace", "torn", "without"}),
    ),
    shared=(queue_settings(check=_refuse_unnamed),),
    examples="""
        mailmend policy simulate policies.yaml outgoing --against now.yaml --since 24h
        mailmend policy simulate policies.yaml outgoing --since 2026-05-01T08:00:00Z --until 2026-05-01T12:00:00Z
        mailmend policy simulate policies.yaml outgoing --concurrency 200 --engine local --json""",
    exits="0 it was simulated, or nothing is recorded; 2 wrong use, or the server would refuse a file; 4 the cluster "
    "cannot be reached.",
)
