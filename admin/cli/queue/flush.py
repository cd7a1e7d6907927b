"""`mailmend queue flush`: every delayed mail is due now."""

import click

from admin.cli.queue.shared import answer_json, dry_run_option, json_option, say
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.wiring_queue import Sides, on_sides


@click.command(
    epilog="""\b
Examples:
  mailmend queue flush --queue outgoing        the other side is back: try everything now

\b
Exit codes: 0 done (or nothing was delayed), 2 wrong use, 3 another process kept moving delayed mails,
4 cannot reach: what was moved stays moved, the same command goes on."""
)
@dry_run_option
@json_option
@queue_options(broker=unless("dry_run"), blobs=unless("dry_run"))
def flush(settings: QueueSettings, *, dry_run: bool, as_json: bool) -> None:
    """Let every delayed mail of a queue be delivered now: those that wait for their next try, and those for their time.

    Each keeps its id. There is no way back: to wait again a mail has to be retried.
    """

    async def story(sides: Sides) -> int:
        if dry_run:
            return (await sides.view.size(settings.name)).delayed
        async with sides.queue() as queue:
            return await queue.flush()

    count = on_sides(settings, story)
    if as_json:
        answer_json(
            settings, {"dry_run": dry_run, "flushed": 0 if dry_run else count, "delayed": count if dry_run else None}
        )
    elif dry_run:
        say(f"Nothing was written. {count:,} delayed mails of {settings.name} would be due now.")
    else:
        say(f"{count:,} delayed mails of {settings.name} are due now.")
