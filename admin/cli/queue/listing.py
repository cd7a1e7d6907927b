"""`mailmend queue list`: every queue of a keyspace, as the tables know it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import click

from admin.cli.queue.shared import json_option, say
from admin.cli.queue_options import QueueSettings, queue_options
from admin.present.presenter import rows_grid, stdout_console, write_json
from admin.queue_output import instant_text, shown, size_json
from admin.wiring_queue import Sides, on_sides
from model.ids import QueueName
from model.queue.size import Size, SizeKind

_COLUMNS: Final = ("queue", "waiting", "delayed", "counted", "browse start", "content start", "last sweep")


@dataclass(frozen=True, slots=True)
class Told:
    """What the tables tell of one queue."""

    name: QueueName
    size: Size
    browse_start: datetime | None
    content_start: datetime | None
    swept_at: datetime | None


@click.command(
    epilog="""\b
Examples:
  mailmend queue list
  mailmend queue list --json | jq '.queues[] | select(.mails > 1000).queue'

\b
Exit codes: 0 it was shown, 2 wrong use (the keyspace has no queue), 4 the cluster cannot be reached."""
)
@json_option
@queue_options(named=False)
def list_queues(settings: QueueSettings, *, as_json: bool) -> None:
    """List the queues of a keyspace: how many mails wait and are delayed, and where each queue begins.

    Reads the tables only; writes nothing.
    """
    found = on_sides(settings, _told)
    if as_json:
        write_json({"keyspace": settings.connection.keyspace, "queues": [_json(one) for one in found], "exit": 0})
        return
    if not found:
        say(f"{settings.connection.keyspace} has no queue yet: nothing was ever enqueued.")
        return
    stdout_console().print(rows_grid(f"Queues of {settings.connection.keyspace}", _COLUMNS, [*map(_cells, found)]))


async def _told(sides: Sides) -> list[Told]:
    view = sides.view
    return [
        Told(
            name,
            await view.size(name),
            await view.browse_start(name),
            await view.starts.content_start(name),
            (await view.state(name)).swept_at,
        )
        for name in await view.queues()
    ]


def _json(one: Told) -> dict[str, Any]:
    return {
        "queue": one.name,
        **size_json(one.size),
        "browse_start": instant_text(one.browse_start),
        "content_start": instant_text(one.content_start),
        "swept_at": instant_text(one.swept_at),
    }


def _cells(one: Told) -> Sequence[str]:
    about = "" if one.size.kind is SizeKind.EXACT else "about "
    starts = [shown(at) if at else "" for at in (one.browse_start, one.content_start, one.swept_at)]
    return (one.name, f"{about}{one.size.mails:,}", f"{one.size.delayed:,}", one.size.counted_by.value, *starts)
