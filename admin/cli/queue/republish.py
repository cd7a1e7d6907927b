"""`mailmend queue republish`: what the broker may have lost is published again."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

import click

from admin.cli.queue.filters import Filters, filter_options
from admin.cli.queue.shared import answer_json, dry_run_option, json_option, say
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.wiring_queue import Sides, on_sides
from model.queue.mails import Listed

OLDER_THAN_DEFAULT: Final = timedelta(hours=1)


@click.command(
    epilog="""\b
Examples:
  mailmend queue republish --dry-run
  mailmend queue republish --older-than 1h           as James's republishing of what was not processed
  mailmend queue reconcile --drain --republish       exactly those whose message is lost

\b
Exit codes: 0 done (or nothing matched), 2 wrong use, 3 the broker refused one: what was published stays so,
4 cannot reach."""
)
@filter_options
@dry_run_option
@json_option
@queue_options(broker=unless("dry_run"), blobs=unless("dry_run"))
def republish(settings: QueueSettings, *, filters: Filters, dry_run: bool, as_json: bool) -> None:
    """Publish again every mail that waits for longer than --older-than (an hour, unless another age is given).

    For a broker that was lost or restored from an old state. Each mail keeps its id: where the broker has its message
    still, whichever copy comes second finds the mark of the first and is dropped. Two consumers may have both copies in
    hand at once, so name an age that no mail reaches while all is well.
    """
    older_than = filters.older_than or OLDER_THAN_DEFAULT

    async def story(sides: Sides) -> int:
        where = filters.meant(sides.now)
        if dry_run:
            old = replace(where, older_than_at=sides.now - older_than)
            return await _counted(sides.view.browse(settings.name, old, include_delayed=False))
        async with sides.queue() as queue:
            return await queue.republish(older_than, where)

    count = on_sides(settings, story)
    if as_json:
        found = {
            "dry_run": dry_run,
            "republished": 0 if dry_run else count,
            "would_republish": count if dry_run else None,
        }
        answer_json(settings, found)
    elif dry_run:
        say(f"Nothing was published. {count:,} mails of {settings.name} would be.")
    else:
        say(f"Published {count:,} mails of {settings.name} again.")


async def _counted(mails: AsyncIterator[Listed]) -> int:
    """How many they are; none is kept."""
    count = 0
    async for _ in mails:
        count += 1
    return count
