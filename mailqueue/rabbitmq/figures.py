"""The figures by which a queue's health is judged, and how many mails came and went."""

from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from mailmend.mailqueue.broker import SETTLING, Broker, Depth
from mailmend.mailqueue.health import FigureScope, QueueFigures
from mailmend.mailqueue.metrics import TrafficSums
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules import starts
from mailmend.mailqueue.rules.size import Size, SizeKind
from mailmend.model.catalog.queue_tables import OwnTables
from mailmend.model.errors import CannotReach
from mailmend.model.ids import QueueName

RECOUNTED_SECONDS: Final = 6.0
"""How far two looks at what lacks its message are apart: the broker's HTTP API counts every 5 s."""


async def figures_of(
    view: QueueView, queue: QueueName, broker: Broker, scope: FigureScope = FigureScope.ALL
) -> QueueFigures:
    """The queue's figures; a broker that does not answer is one of them.

    The broker is asked before the tables: a mail that is acked meanwhile is not taken for one that lacks its message.
    """
    if scope is FigureScope.STARTS:
        return await _starts_of(view, queue)
    depth, away = await _depth(broker, queue) if scope is FigureScope.ALL else (None, None)
    size = await view.size(queue)
    without = await _without_message(view, queue, broker, depth, size)
    return replace(
        await _starts_of(view, queue),
        mails=size.mails,
        delayed=size.delayed,
        exact=size.kind is SizeKind.EXACT,
        oldest_at=await _oldest_at(view, queue),
        depth=depth,
        lacking=None if without is None or depth is None else max(0, without - depth.dead),
        lacking_at_most=without,
        broker_away=away,
    )


async def _starts_of(view: QueueView, queue: QueueName) -> QueueFigures:
    """The figures that need no look at any mail or at the broker: starts, and how long rows and marks live."""
    state = await view.starts.state(queue)
    return QueueFigures(
        queue,
        view.now,
        browse_start=await view.browse_start(queue),
        content_start=await view.starts.content_start(queue),
        furthest_start=state.furthest_start,
        swept_at=state.swept_at,
        remembers=view.own.state,
        row_ttl=timedelta(seconds=view.own.row_ttl_seconds) if view.own.row_ttl_seconds else None,
        slack=slack_of(view.own),
        marks_outlive_rows=view.own.marks_outlive_rows,
        marks_expire=view.own.marks_expire,
    )


def slack_of(own: OwnTables) -> timedelta | None:
    """How much longer rows live than a mail is meant to stay; None where they never expire."""
    if not own.row_ttl_seconds:
        return None
    return starts.slack_of(timedelta(seconds=own.row_ttl_seconds), timedelta(seconds=own.mark_ttl_seconds))


async def sums_of(view: QueueView, queue: QueueName, before: TrafficSums | None = None) -> TrafficSums | None:
    """The tallies' sums, of the slices of an earlier look and those since; None where there are no tallies."""
    start = before.slices[0] if before and before.slices else await view.browse_start(queue)
    if not view.own.tallies or start is None:
        return None
    at = view.now
    slices = list(starts.live_slices(start, at, (await view.slicing()).window))
    counted = [tally for tallies in await view.tallies.of(queue, slices) for tally in tallies]
    return TrafficSums(at, slices, sum(tally.enqueued for tally in counted), sum(tally.marked for tally in counted))


async def _depth(broker: Broker, queue: QueueName) -> tuple[Depth | None, str | None]:
    try:
        return await broker.depth(queue), None
    except CannotReach as error:
        return None, error.what


async def _without_message(
    view: QueueView, queue: QueueName, broker: Broker, depth: Depth | None, size: Size
) -> int | None:
    """The lesser of two looks where the first finds any: a delayed mail that is due has its row before its message.

    Rows are only counted where the size does not show that there are messages enough.
    """
    by_size = depth.without_message(size.mails) if depth else None
    if depth is None or by_size is None or (by_size == 0 and size.kind is SizeKind.EXACT):
        return by_size
    first = depth.without_message(await view.count_settled(queue, view.now - SETTLING))
    if not first:
        return first
    await view.clock.pause(RECOUNTED_SECONDS)
    again, _ = await _depth(broker, queue)
    second = again.without_message(await view.count_settled(queue, view.now - SETTLING)) if again else None
    return None if second is None else min(first, second)


async def _oldest_at(view: QueueView, queue: QueueName) -> datetime | None:
    """Slices are listed in order, each by time: the first mail is the oldest, as far as clocks agree."""
    async with aclosing(view.browse(queue, include_delayed=False)) as mails:
        async for listed in mails:
            return listed.enqueued_at
    return None
