"""`mailmend queue size`: how many mails a queue holds, and how sure that is."""

import click

from admin.cli.queue.shared import answer_json, json_option, say
from admin.cli.queue_options import QueueSettings, queue_options
from admin.queue_output import size_json
from admin.wiring_queue import Sides, on_sides
from model.queue_size import Size, SizeKind


@click.command(
    epilog="""\b
Examples:
  mailmend queue size
  mailmend queue size --queue outgoing --json | jq .mails

\b
Exit codes: 0 it was counted, 2 wrong use (the keyspace has no queue), 4 the cluster cannot be reached."""
)
@json_option
@queue_options()
def size(settings: QueueSettings, *, as_json: bool) -> None:
    """Say how many mails wait in a queue, and how many are delayed.

    The time that it takes depends on the number of slices, not of mails. `exact` is a count; `estimate` may be off by
    what is under way, or by what a process that was killed had not told. Reads the tables only; writes nothing.
    """
    found = on_sides(settings, _counted)
    if as_json:
        answer_json(settings, size_json(found))
    else:
        say(size_line(settings.name, found))


async def _counted(sides: Sides) -> Size:
    return await sides.view.size(sides.settings.name)


def size_line(queue: str, found: Size) -> str:
    """A size in a sentence."""
    about = "" if found.kind is SizeKind.EXACT else "About "
    delayed = f", {found.delayed:,} are delayed" if found.delayed else ""
    counted = "counted row by row" if found.counted_by.value == "metadata" else "by the tallies"
    return f"{about}{found.mails:,} mails wait in {queue}{delayed} ({counted}, {found.slices_read:,} slices)."
