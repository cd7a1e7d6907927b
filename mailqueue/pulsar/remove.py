"""Removing mails of a queue: each is acknowledged in its topic, where it is, whoever would have got it."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from mailqueue.concurrency import in_batches
from mailqueue.metrics import QueueCount
from mailqueue.pulsar.listing import FoundMail, found, place_of
from mailqueue.pulsar.parts import PulsarParts
from mailqueue.queue import OnRemoved, Removed
from model.ids import EnqueueId
from model.queue.filters import MailFilter
from model.queue.mails import LOOKS

AT_ONCE: Final = 500
"""So many mails are removed together."""


async def remove(parts: PulsarParts, where: MailFilter, on_removed: OnRemoved | None, *, dry_run: bool) -> Removed:
    gone = set[EnqueueId]()
    for look in LOOKS:
        async with aclosing(found(parts, look, where)) as mails, aclosing(in_batches(mails, AT_ONCE)) as batches:
            async for batch in batches:
                some = [one for one in batch if one.listed.queued.enqueue_id not in gone]
                if on_removed is not None:
                    for one in some:
                        await on_removed(one.listed)
                if not dry_run:
                    await _removed(parts, batch)
                gone.update(one.listed.queued.enqueue_id for one in batch)
    if gone and not dry_run:
        parts.counts.add(QueueCount.REMOVED, parts.queue, len(gone))
    return Removed(len(gone))


async def _removed(parts: PulsarParts, some: Sequence[FoundMail]) -> None:
    for whereabouts in {one.listed.whereabouts for one in some}:
        topic, subscription = place_of(whereabouts, parts)
        places = [one.message.place for one in some if one.listed.whereabouts is whereabouts]
        await parts.topics.acknowledge(topic, subscription, places)
    for one in some:
        await parts.blob_cleanup.add(one.listed.queued.blobs, dequeued=False)
