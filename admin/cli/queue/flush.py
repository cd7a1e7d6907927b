"""`mailmend queue flush`: every delayed mail is due now."""

from typing import Any

import click

from admin.cli.queue.shared import answer_json, dry_run_option, json_option, say
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.queue_output import instant_text, shown
from admin.wiring_queue import Sides, on_sides
from mailqueue.rabbitmq.view.delays import Delays, delays


@click.command(
    epilog="""\b
Examples:
  mailmend queue flush --queue outgoing --dry-run        how many wait for their time, and until when
  mailmend queue flush --queue outgoing                  the other side is back: try everything now

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

    async def story(sides: Sides) -> Delays:
        if dry_run:
            return await delays(sides.view, settings.name)
        async with sides.queue() as queue:
            return Delays(await queue.flush())

    found = on_sides(settings, story)
    if as_json:
        answer_json(settings, _json(found, dry_run=dry_run))
    else:
        say(_sentence(settings.name, found, dry_run=dry_run))


def _json(found: Delays, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "flushed": 0 if dry_run else found.count,
        "delayed": found.count if dry_run else None,
        "earliest_due_at": instant_text(found.earliest_at),
        "latest_due_at": instant_text(found.latest_at),
    }


def _sentence(queue: str, found: Delays, *, dry_run: bool) -> str:
    if not dry_run:
        return f"{found.count:,} delayed mails of {queue} are due now."
    told = f"Nothing was written. {found.count:,} delayed mails of {queue} would be due now."
    if found.earliest_at is None or found.latest_at is None:
        return told
    return f"{told} The first of them is due at {shown(found.earliest_at)}, the last at {shown(found.latest_at)}."
