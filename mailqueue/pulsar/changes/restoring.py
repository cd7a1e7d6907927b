"""Putting removed mails back, each once, however often that is repeated.

The id of the new passage follows from the id of the old one. A topic of ours keeps the ids of
restored mails, because nothing else tells whether one has left again.
"""

from collections.abc import Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from mailmend.mailqueue.arrivals import RemovedMail, RestoreResult
from mailmend.mailqueue.codec.admission import admissible
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.broker.names import OWN_SUBSCRIPTION, restored_topic
from mailmend.mailqueue.pulsar.broker.topics import TopicMessage
from mailmend.mailqueue.pulsar.enqueue import put
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.pulsar.view.listing import found
from mailmend.mailqueue.rules.filters import MailFilter
from mailmend.mailqueue.rules.mails import LOOKS
from mailmend.model.ids import EnqueueId, restored_id

_HEX: Final = 32


@dataclass(slots=True)
class PulsarRestoring:
    """Implements `mailqueue.arrivals.Restoring`.

    Attributes:
        listed: which of the mails the queue holds, under old and new ids.
        back: which came back before, under new ids.
    """

    parts: PulsarParts
    listed: frozenset[EnqueueId]
    back: set[EnqueueId]

    async def restore(self, removed: RemovedMail) -> RestoreResult:
        new = restored_id(removed.was, self.parts.queue)
        if new in self.back or new in self.listed:
            return RestoreResult.NOTHING
        if removed.was in self.listed:
            return RestoreResult.STAYS
        await put(self.parts, new, admissible(removed.mail), removed.content, removed.due_at)
        await self._noted(new)
        self.parts.counts.add(QueueCount.ENQUEUED, self.parts.queue)
        return RestoreResult.PUT

    async def _noted(self, new: EnqueueId) -> None:
        topic = restored_topic(self.parts.queue)
        await self.parts.topics.create(topic, OWN_SUBSCRIPTION)
        await self.parts.topics.publish(topic, TopicMessage(new.hex))
        self.back.add(new)


async def restoring(parts: PulsarParts, removed: Collection[EnqueueId]) -> PulsarRestoring:
    """Look for the mails before they are put back: one listing for all."""
    wanted = frozenset(removed).union(restored_id(enqueue_id, parts.queue) for enqueue_id in removed)
    listed = set[EnqueueId]()
    back = set[EnqueueId]()
    known = await parts.deletions.look()
    for whereabouts in LOOKS if wanted else ():
        async with aclosing(found(parts, whereabouts, MailFilter(enqueue_ids=wanted), known=known)) as mails:
            listed.update([mail.listed.queued.enqueue_id async for mail in mails])
    async with aclosing(parts.topics.unacked(restored_topic(parts.queue), OWN_SUBSCRIPTION)) as notes:
        async for note in notes:
            if len(note.payload) == _HEX:
                back.add(EnqueueId(UUID(hex=note.payload.decode(errors="replace"))))
    return PulsarRestoring(parts, frozenset(listed), back)
