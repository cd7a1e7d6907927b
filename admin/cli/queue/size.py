"""`mailmend queue size`: how many mails a queue holds, and how sure that is."""

import click

from admin.cli.queue.shared import answer_json, json_option, remark, say
from admin.cli.queue_options import QueueSettings, queue_options
from admin.queue_output import size_json
from admin.wiring_queue import Sides, on_sides
from model.queue.size import Size, SizeKind


@click.command(
    epilog="""\b
Examples:
  mailmend queue size
  mailmend queue size --queue outgoing --json | jq .mails
  mailmend queue size --recount                   where it has been an estimate for long

\b
Exit codes: 0 it was counted, 2 wrong use (the keyspace has no queue), 4 the cluster cannot be reached."""
)
@click.option(
    "--recount", is_flag=True, help="Look at every row first, and set right what processes have told; writes tallies."
)
@json_option
@queue_options()
def size(settings: QueueSettings, *, recount: bool, as_json: bool) -> None:
    """Say how many mails wait in a queue, and how many are delayed.

    The time that it takes depends on the number of slices, not of mails. `exact` is a count; `estimate` may be off by
    what is under way, or by what a process that was killed had not told. Writes nothing, unless asked to --recount.
    """
    found = on_sides(settings, lambda sides: _counted(sides, recount=recount))
    if as_json:
        answer_json(settings, size_json(found))
    else:
        say(size_line(settings.name, found))


async def _counted(sides: Sides, *, recount: bool) -> Size:
    view, name = sides.view, sides.settings.name
    if recount and (left := (await view.recount(name)).left):
        remark(f"{left:,} slices were being changed, or by a process that may still tell: count again in ten minutes.")
    return await view.size(name)


def size_line(queue: str, found: Size) -> str:
    """A size in a sentence."""
    about = "" if found.kind is SizeKind.EXACT else "About "
    delayed = f", {found.delayed:,} are delayed" if found.delayed else ""
    counted = "counted row by row" if found.counted_by.value == "metadata" else "by the tallies"
    return f"{about}{found.mails:,} mails wait in {queue}{delayed} ({counted}, {found.slices_read:,} slices)."
