"""Declaration of apply: what was planned and approved is done."""

from datetime import timedelta
from typing import Final

import click

from mailmend.admin.frame.command import Command
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.kinds import Duration, duration_text
from mailmend.admin.frame.options import FILE, PACE, ROWS_PER_SECOND, flag, option
from mailmend.admin.messages.mending import COUNTERS_AT_ONCE, KEEP_OPTION, REPAIR_EXITS, RESULTS
from mailmend.admin.messages.plans_service import PLAN_AGE_MAX
from mailmend.admin.queue.options import STORES_TYPED, Needs, queue_settings

_LONGEST: Final = timedelta(days=30)


def _planned(part: str) -> Needs:
    """Broker and store are needed where the plan was made with them."""
    return lambda given: bool(imported("mailmend.admin.frame.plan_files:needs_of")(given["plan"], part))


APPLY: Final = Command(
    name="apply",
    summary="Do exactly what a plan says.",
    about="""PLAN is a file that `mailmend repair messages`, `repair queues` or `repair blobs` has written with --plan,
    and somebody has approved. Each finding is looked at again; one that is not as the plan saw it has MOVED, and is
    left. Nothing else is mended or removed. Everything is written as of the plan's own T, under a lease. Interrupted,
    the same command goes on.

    Of messages nothing is scanned; before-images are kept, and `mailmend undo` takes back what was done. The tables of
    queues are read twice, as by `repair queues`: what the plan says is proved anew, marks included. Of blobs all
    references are read once more. Name the broker and the store of blobs that the plan was made with.

    A plan is refused that is older than --max-age, was edited or undone, is of another keyspace, cluster, broker or
    store, was made before these tables were altered, or has another format. What it may mend, it says itself.""",
    service="mailmend.admin.messages.plans_service:apply",
    present="mailmend.admin.messages.blobs_document:check_document",
    options=(
        click.Argument(["plan"], type=FILE, metavar="PLAN"),
        flag("--dry-run", "Write nothing: look again, and say what would be mended."),
        option(
            "--max-age",
            "Refuse a plan that was made longer ago than this.",
            type=Duration(_LONGEST, zero=False),
            default=duration_text(PLAN_AGE_MAX),
        ),
        flag("--yes", "Do not ask: do as a plan made with --dangling restore says."),
        COUNTERS_AT_ONCE,
        KEEP_OPTION,
        ROWS_PER_SECOND,
        PACE,
    ),
    shared=(queue_settings(broker=_planned("broker"), blobs=_planned("blobs"), named=False), STORES_TYPED),
    output=RESULTS,
    examples="""
        mailmend repair messages --plan plan.jsonl     write it; then have it approved
        mailmend apply plan.jsonl --dry-run            what of it would still be done
        mailmend apply plan.jsonl                      do it
        mailmend repair blobs --plan old.jsonl --blobs s3://mail --oldest-message 7d
        mailmend apply old.jsonl --blobs s3://mail     remove the blobs that it names
        mailmend undo RUN                              put it back""",
    exits=REPAIR_EXITS,
)
