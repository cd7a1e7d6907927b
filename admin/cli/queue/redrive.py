"""`mailmend queue redrive`: dead letters go back into their queue."""

import click

from admin.cli.queue.shared import answer_json, dry_run_option, json_option, say
from admin.cli.queue_options import QueueSettings, always, queue_options
from admin.wiring_queue import Sides, on_sides
from mailqueue.maintenance.comparison import IDS_MAX
from mailqueue.maintenance.redrive import Redriven
from mailqueue.maintenance.redrive import redrive as redriven
from model.errors import ExitCode


@click.command(
    epilog="""\b
Examples:
  mailmend queue redrive --dry-run              how many there are, and how many of them were deleted meanwhile
  mailmend queue redrive --limit 10             the first ten, to see whether they fare better now

\b
Exit codes: 0 done (or there are none), 1 some cannot be read, and stay where they are; 2 wrong use, 4 cannot reach:
what is back stays back, the same command goes on. After a kill too: a mail may come twice then, none is lost."""
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@click.option(
    "--ids-max",
    type=click.IntRange(min=1),
    default=IDS_MAX,
    show_default=True,
    help="How many mails of the queue are held in memory, about half a KiB each; more is refused.",
)
@dry_run_option
@json_option
@queue_options(broker=always, blobs=always)
def redrive(settings: QueueSettings, *, limit: int | None, ids_max: int, dry_run: bool, as_json: bool) -> int:
    """Put dead letters back into their queue, under their ids; those that were deleted meanwhile are dropped.

    A dead letter is a mail that its consumer rejected, or that came back too often, or had lost its bytes. Mend the
    cause first, or it comes back here. The bytes of one that is dropped go with it. A dry run takes them in hand for a
    moment, and gives all of them back.
    """

    async def story(sides: Sides) -> Redriven:
        async with sides.queue(looks_only=dry_run) as queue:
            return await redriven(queue, limit, dry_run=dry_run, ids_max=ids_max)

    found = on_sides(settings, story)
    code = ExitCode.DRIFT if found.unreadable else ExitCode.FINE
    if as_json:
        counts = {"redriven": found.redriven, "dropped": found.dropped, "unreadable": found.unreadable}
        answer_json(settings, {"dry_run": dry_run, **counts}, code)
    else:
        say(*_lines(settings, found, dry_run=dry_run))
    return int(code)


def _lines(settings: QueueSettings, found: Redriven, *, dry_run: bool) -> list[str]:
    verb = "would go back" if dry_run else "are back"
    lines = [f"{found.redriven:,} dead letters {verb} into {settings.name}."]
    if found.dropped:
        lines.append(f"{found.dropped:,} were deleted meanwhile, and {'would be' if dry_run else 'are'} dropped.")
    if found.unreadable:
        lines.append(f"{found.unreadable:,} tell of no mail; they stay in the dead letter queue.")
    return lines
