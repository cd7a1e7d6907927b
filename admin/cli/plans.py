"""Declaration of apply: what was planned and approved is done."""

from datetime import timedelta
from typing import Final

import click

from admin.cli.command import Command
from admin.cli.kinds import Duration, duration_text
from admin.cli.mending import COUNTERS_AT_ONCE, KEEP_OPTION, PACE, REPAIR_EXITS, RESULTS, ROWS_PER_SECOND
from admin.cli.options import CONNECTION, FILE, flag, option
from admin.services.plans import PLAN_AGE_MAX

_LONGEST: Final = timedelta(days=30)

APPLY: Final = Command(
    name="apply",
    summary="Do exactly what a plan says.",
    about="""PLAN is a file that `mailmend repair messages --plan` has written and somebody has approved. Each finding
    is looked at again; one that is not as the plan saw it, row by row and time by time, has MOVED, and is left. Nothing
    is scanned, and nothing else is mended. Everything is written as of the plan's own T, under a lease, with
    before-images: `mailmend undo` takes it back. Interrupted, the same command goes on.

    A plan is refused that is older than --max-age, was edited, is of another keyspace or cluster, was made before these
    tables were altered, or has another format. What it may mend, it says itself.""",
    service="admin.services.plans:apply",
    present="admin.present.mending:document_of",
    options=(
        click.Argument(["plan"], type=FILE, metavar="PLAN"),
        flag("--dry-run", "Look again, say what would be mended, write nothing."),
        option(
            "--max-age",
            "How old what the plan has seen may be.",
            type=Duration(_LONGEST, zero=False),
            default=duration_text(PLAN_AGE_MAX),
        ),
        flag("--yes", "Do what a plan made with --dangling restore would ask about."),
        COUNTERS_AT_ONCE,
        KEEP_OPTION,
        ROWS_PER_SECOND,
        PACE,
    ),
    shared=(CONNECTION,),
    output=RESULTS,
    examples="""
        mailmend repair messages --plan plan.jsonl     write it; then have it approved
        mailmend apply plan.jsonl --dry-run            what of it would still be done
        mailmend apply plan.jsonl                      do it
        mailmend undo RUN                              put it back""",
    exits=REPAIR_EXITS,
)
