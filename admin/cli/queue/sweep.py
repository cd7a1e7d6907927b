"""`mailmend queue sweep`: the browse start moves, what lies before it is cleaned, what grows old is renewed."""

from typing import Any

import click

from admin.cli.queue.shared import answer_json, json_option, remark, say
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.queue_output import instant_text, shown
from admin.wiring_queue import Sides, on_sides
from mailqueue.sweeping.sweeper import Moved, Swept
from model.errors import ExitCode


@click.command(
    epilog="""\b
Examples:
  mailmend queue sweep
  mailmend queue sweep --move-only            the browse start alone: needs no broker
  mailmend queue sweep --json | jq .rescued

\b
Exit codes: 0 done (or nothing was to do), 1 somebody had moved the browse start back (James does so without looking; it
is where it belongs again, or a mail holds it), 2 wrong use, 4 cannot reach: the next sweep completes what was begun."""
)
@click.option("--move-only", is_flag=True, help="Only move the browse start.")
@json_option
@queue_options(broker=unless("move_only"), blobs=unless("move_only"))
def sweep(settings: QueueSettings, *, move_only: bool, as_json: bool) -> int:
    """Move the browse start of a queue to its first mail, and clean up behind it.

    Only slices without any unmarked mail are cleaned; a mail that is found there all the same is put back in sight, and
    published again. Marks stay, so nothing that was deleted comes back. Mails that would expire soon are renewed. The
    first 15 minutes, and at least a slice, are never touched. Consumers sweep now and then by themselves: this is for
    queues in which little happens, and for who does not want to wait.
    """

    async def story(sides: Sides) -> Swept | Moved:
        async with sides.queue() as queue:
            sweeper = queue.parts.sweeper
            return await (sweeper.move(settings.name) if move_only else sweeper.sweep(settings.name))

    found = on_sides(settings, story)
    back = found.back if isinstance(found, Moved) else found.moved_back
    code = ExitCode.DRIFT if back else ExitCode.FINE
    if as_json:
        answer_json(settings, moved_json(found) if isinstance(found, Moved) else swept_json(found), code)
    else:
        say(moved_line(settings.name, found) if isinstance(found, Moved) else swept_line(settings.name, found))
    if back:
        remark("Somebody had moved the browse start back. James does so when it moves it without looking.")
    return int(code)


def swept_json(found: Swept) -> dict[str, Any]:
    """A sweep under the names that scripts rely on."""
    return {
        "slices": found.slices,
        "rows": found.rows,
        "blobs": found.blobs,
        "rescued": found.rescued,
        "renewed": found.renewed,
        "orphan_marks": found.orphan_marks,
        "moved_back": found.moved_back,
        "browse_start": instant_text(found.browse_start),
        "content_start": instant_text(found.content_start),
    }


def moved_json(found: Moved) -> dict[str, Any]:
    """A move under the names that scripts rely on."""
    return {"before": instant_text(found.before), "browse_start": instant_text(found.after), "moved_back": found.back}


def swept_line(queue: str, found: Swept) -> str:
    """A sweep in a sentence."""
    if found.browse_start is None:
        return f"{queue} is new: nothing was ever enqueued."
    told = f"{queue} begins at {shown(found.browse_start)}. Cleaned {found.slices:,} slices, {found.rows:,} rows"
    more = {"left-over blobs": found.blobs, "mails put back in sight": found.rescued, "mails renewed": found.renewed}
    return told + "".join(f", {count:,} {what}" for what, count in more.items() if count) + "."


def moved_line(queue: str, found: Moved) -> str:
    """A move in a sentence."""
    if found.before is None or found.after is None:
        return f"{queue} is new: nothing was ever enqueued."
    if found.before == found.after:
        return f"{queue} begins at {shown(found.after)}, as before."
    return f"{queue} begins at {shown(found.after)}; it began at {shown(found.before)}."
