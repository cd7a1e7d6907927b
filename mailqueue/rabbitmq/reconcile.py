"""Reads a queue's three sides without stopping traffic, for `comparison` to compare. Writes nothing.

Delayed mails are read before those that wait, so that none slips past on its way into the queue.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from mailmend.mailqueue.broker import Broker, Delivery, Depth
from mailmend.mailqueue.codec import BrokenRow, queued_of, read_row
from mailmend.mailqueue.comparison import DRAIN_MAX, Drained, LiveMail, TablesSide
from mailmend.mailqueue.concurrency import in_order
from mailmend.mailqueue.queue import DELAYED, IDS_MAX, refuse_too_many
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules.mails import QueuedMail
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import BadPayload
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.instants import instant_of
from mailmend.model.operations import Level, Scan
from mailmend.model.ports import Clock
from mailmend.model.table import Row

BLOBS_AT_ONCE: Final = 32
PATIENCE_SECONDS: Final = 5.0
"""How long a drain waits for one more message that the broker has counted."""

LAST_LOOK_SECONDS: Final = 0.3
"""How many seconds a drain waits for a message that may have come since the broker counted."""


async def tables_side(view: QueueView, queue: QueueName, ids_max: int = IDS_MAX) -> TablesSide:
    """Waiting rows with and without marks, rows that cannot be read, and delayed mails.

    Too many rows are refused; delayed mails beyond the limit are only counted.
    """
    mails = dict[EnqueueId, LiveMail]()
    broken = dict[EnqueueId, BrokenRow]()
    delayed = set[EnqueueId]()
    beyond = 0
    async for listed in view.browse(queue, DELAYED):
        if len(delayed) < ids_max:
            delayed.add(listed.queued.enqueue_id)
        else:
            beyond += 1
    async with aclosing(_rows(view, queue)) as rows:
        async for row in rows:
            refuse_too_many(len(mails) + len(broken) + 1, f"rows in the live slices of {queue}", ids_max)
            read = read_row(row)
            if isinstance(read, BrokenRow):
                broken[read.enqueue_id] = read
            else:
                mails[read.queued.enqueue_id] = LiveMail.of(read)
    marked = frozenset(await view.marks.among(queue, [*mails, *broken]))
    return TablesSide(
        live={enqueue_id: mail for enqueue_id, mail in mails.items() if enqueue_id not in marked},
        marked=marked,
        delayed=frozenset(delayed - mails.keys()),
        delayed_beyond=beyond,
        broken=tuple(row for enqueue_id, row in broken.items() if enqueue_id not in marked),
    )


async def with_lookups(view: QueueView, queue: QueueName, drained: Drained, tables: TablesSide) -> Drained:
    """The same, with what the tables say of messages that belong to no row."""
    unknown = drained.ids - tables.live.keys() - tables.marked
    marked = await view.marks.among(queue, unknown)
    unknown -= marked | tables.delayed
    where = replace(DELAYED, enqueue_ids=unknown)
    delayed: set[EnqueueId] = set()
    if unknown:
        async for listed in view.browse(queue, where):
            delayed.add(listed.queued.enqueue_id)
    return replace(drained, marked=frozenset(marked), delayed=frozenset(delayed))


async def _rows(view: QueueView, queue: QueueName) -> AsyncGenerator[Row]:
    slicing, starts = await view.live(queue)
    for slice_start in starts:
        for bucket in range(slicing.buckets):
            scan = Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names, Level.QUORUM, under=(queue, slice_start, bucket))
            async for row in view.tables.scan(scan):
                yield row


async def is_missing(blobs: Blobs, one: str) -> bool:
    """Whether the store lacks it; what is in no known form of an id it lacks too."""
    try:
        return not await blobs.exists(BlobId(one))
    except BadPayload:
        return True


async def missing_among(blobs: Blobs, mails: Mapping[EnqueueId, LiveMail]) -> frozenset[EnqueueId]:
    """The mails whose header or body the store lacks."""

    async def lacking(one: EnqueueId) -> bool:
        kept = mails[one].blobs
        return await is_missing(blobs, kept.header) or await is_missing(blobs, kept.body)

    async with aclosing(in_order(mails, lacking, BLOBS_AT_ONCE)) as found:
        return frozenset([enqueue_id async for enqueue_id, lacks in found if lacks])


async def missing_in(
    view: QueueView, queue: QueueName, blobs: Blobs, mails: Mapping[EnqueueId, LiveMail]
) -> frozenset[EnqueueId]:
    """The same, of mails that still wait: one that is done loses its bytes after it was marked."""
    lacking = await missing_among(blobs, mails)
    return lacking - await view.marks.among(queue, lacking)


async def drained(  # noqa: PLR0917 - whom, when, which, how many
    broker: Broker,
    clock: Clock,
    queue: QueueName,
    depth: Depth,
    most: int,
    wanted: Collection[EnqueueId] = (),
) -> Drained:
    """Take every message without an ack, name its mail, and return it; the same for dead letters."""
    began_at = instant_of(clock.micros())
    async with broker.deliveries(queue, most) as deliveries:
        waiting = await _named(deliveries, clock, depth.ready, wanted)
    async with broker.dead_letters(queue, most) as deliveries:
        dead = await _named(deliveries, clock, depth.dead, wanted)
    return Drained(
        began_at,
        frozenset(waiting.ids),
        waiting.bad + dead.bad,
        dead=frozenset(dead.ids),
        mails=dead.mails | waiting.mails,
    )


@dataclass(slots=True)
class NamedMessages:
    """The messages of a queue by what they name: mails and their blobs.

    Attributes:
        mails: those whose ids the caller asked for.
        bad: how many messages no mail could be read from.
        taken: how many messages were read.
    """

    ids: set[EnqueueId] = field(default_factory=set)
    blobs: set[BlobId] = field(default_factory=set)
    mails: dict[EnqueueId, QueuedMail] = field(default_factory=dict)
    bad: int = 0
    taken: int = 0


async def dead_letters_named(broker: Broker, clock: Clock, queue: QueueName, dead: int) -> NamedMessages:
    """Take every dead letter without an ack, name its mail, and return it; `dead` of them are counted."""
    async with broker.dead_letters(queue, DRAIN_MAX) as deliveries:
        return await _named(deliveries, clock, dead, ())


async def _named(
    deliveries: AsyncIterator[Delivery], clock: Clock, expected: int, wanted: Collection[EnqueueId]
) -> NamedMessages:
    """Read all messages. They stay unacked, so none comes twice."""
    named = NamedMessages()
    while (delivery := await next_within(deliveries, clock, patience(named.taken, expected))) is not None:
        named.taken += 1
        try:
            queued = queued_of(delivery.message.body)
        except BadPayload:
            named.bad += 1
        else:
            named.ids.add(queued.enqueue_id)
            named.blobs |= {queued.blobs.header, queued.blobs.body}
            if queued.enqueue_id in wanted:
                named.mails[queued.enqueue_id] = queued
    return named


def patience(taken: int, expected: int) -> float:
    """How many seconds to wait for the next message, after `taken` of `expected`."""
    if taken < expected:
        return PATIENCE_SECONDS
    return LAST_LOOK_SECONDS


async def next_within(deliveries: AsyncIterator[Delivery], clock: Clock, seconds: float) -> Delivery | None:
    """The next message; None where none comes within that many seconds."""
    coming = asyncio.ensure_future(_one(deliveries))
    waiting = asyncio.ensure_future(clock.pause(seconds))
    try:
        await asyncio.wait((coming, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            return None
        return coming.result()
    finally:
        for task in (coming, waiting):
            task.cancel()
        await asyncio.gather(coming, waiting, return_exceptions=True)


async def _one(deliveries: AsyncIterator[Delivery]) -> Delivery | None:
    async for delivery in deliveries:
        return delivery
    return None
