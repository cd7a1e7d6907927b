"""Mails that come into a queue: new ones, removed ones that come back, and the mails of another queue.

*Enqueueing*: the mail's blobs, then its message, confirmed; after a failure its blobs go again.
Where a confirmation does not come, the mail may be there all the same: then its blobs stay, and the
error says so.

*Restoring and moving in*: each mail comes once. The id of the new passage follows from the id of
the old one. A topic of ours keeps the ids of restored mails, because nothing else tells whether one
has left again. A subscription of the move's own, without consumers, keeps the broker from deleting
what is published after the move began. So a move that goes on reads there which of its mails came,
though consumers, James's too, may have acknowledged them since.
"""

from collections.abc import Collection
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from mailmend.mailqueue.blobs.stores import forget, put_content
from mailmend.mailqueue.codec.admission import admissible, admitted
from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.broker.settings import (
    OWN_SUBSCRIPTION,
    arrivals_subscription,
    out_subscription,
    out_topic,
    restored_topic,
    scheduled_subscription,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.broker.topics import TopicMessage, delayed_message, story_of, waiting_message
from mailmend.mailqueue.pulsar.parts import PulsarParts, found, place_of, read_mails
from mailmend.mailqueue.queue import RemovedMail, RestoreResult
from mailmend.mailqueue.rules.filters import MailFilter
from mailmend.mailqueue.rules.mails import LOOKS, Listed, Mail, MailBlobs, QueuedMail, Whereabouts
from mailmend.model.errors import MailmendError, PublishFailed
from mailmend.model.ids import EnqueueId, restored_id


async def enqueue(
    parts: PulsarParts,
    mail: Mail,
    content: bytes,
    due_at: datetime | None,
    priority: int | None,
    *,
    known_as: EnqueueId | None = None,
    was_queued: bool = False,
) -> EnqueueId:
    mail = admitted(mail, priority, was_queued=was_queued)
    enqueue_id = known_as or EnqueueId(parts.clock.random_uuid())
    try:
        await put(parts, enqueue_id, mail, content, due_at)
    except BaseException:
        parts.counts.add(QueueCount.ENQUEUE_FAILED, parts.queue)
        raise
    parts.counts.add(QueueCount.ENQUEUED, parts.queue)
    return enqueue_id


async def put(parts: PulsarParts, enqueue_id: EnqueueId, mail: Mail, content: bytes, due_at: datetime | None) -> None:
    """Put a mail under an id that was chosen."""
    queued = QueuedMail(enqueue_id, mail, await put_content(parts.blobs, content))
    whereabouts = Whereabouts.DELAYED if due_at else Whereabouts.WAITING
    listed = Listed(queued, parts.now, whereabouts, due_at=due_at)
    try:
        await finished(_published(parts, listed))
    except PublishFailed as error:
        if error.doubtful:
            error.mend = f"The mail {enqueue_id} may be in the queue all the same: mailmend queue browse {parts.queue}"
            raise
        await finished(_forgotten(parts, queued, error))
        raise
    except MailmendError as error:
        await finished(_forgotten(parts, queued, error))
        raise


async def _published(parts: PulsarParts, listed: Listed) -> None:
    queue = parts.queue
    delayed = listed.whereabouts is Whereabouts.DELAYED
    if delayed:
        await parts.topics.create(scheduled_topic(queue), scheduled_subscription(queue))
    await parts.topics.create(out_topic(queue), out_subscription(queue))  # only that makes it a queue among all
    if delayed:
        await parts.topics.publish(scheduled_topic(queue), delayed_message(listed, await parts.form()))
    else:
        await parts.topics.publish(out_topic(queue), waiting_message(listed, await parts.form()))


async def _forgotten(parts: PulsarParts, queued: QueuedMail, error: MailmendError) -> None:
    try:
        await forget(parts.blobs, queued.blobs)
    except MailmendError as failure:
        error.mend = f"Blobs of the mail {queued.enqueue_id} are left without a reference ({failure.what})."


_HEX: Final = 32


@dataclass(slots=True)
class PulsarRestoring:
    """Implements `mailqueue.queue.Restoring`.

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
    if wanted:
        for whereabouts in LOOKS:
            async with aclosing(found(parts, whereabouts, MailFilter(enqueue_ids=wanted), known=known)) as mails:
                async for mail in mails:
                    listed.add(mail.listed.queued.enqueue_id)
    async with aclosing(parts.topics.unacked(restored_topic(parts.queue), OWN_SUBSCRIPTION)) as notes:
        async for note in notes:
            if len(note.payload) == _HEX:
                back.add(EnqueueId(UUID(hex=note.payload.decode(errors="replace"))))
    return PulsarRestoring(parts, frozenset(listed), back)


@dataclass(frozen=True, slots=True)
class PulsarArrivals:
    """Implements `mailqueue.queue.Arrivals`.

    Attributes:
        subscription: of this move, on both topics.
        came: which of the doubtful mails were published.
    """

    parts: PulsarParts
    subscription: str
    came: frozenset[EnqueueId]

    async def had(self, ids: Collection[EnqueueId]) -> frozenset[EnqueueId]:
        known = await self.parts.deletions.known()
        return frozenset(enqueue_id for enqueue_id in ids if enqueue_id in known.mails)

    async def keep(self, content: bytes) -> MailBlobs:
        return await put_content(self.parts.blobs, content)

    async def put(self, listed: Listed, *, again: bool = False) -> None:
        if again and listed.queued.enqueue_id in self.came:
            return
        await finished(self._published(listed))
        self.parts.counts.add(QueueCount.ENQUEUED, self.parts.queue)

    async def end(self) -> None:
        for whereabouts in Whereabouts:
            await self.parts.topics.unsubscribe(place_of(whereabouts, self.parts.queue)[0], self.subscription)

    async def _published(self, listed: Listed) -> None:
        form = await self.parts.form()
        if listed.whereabouts is Whereabouts.WAITING:
            message = waiting_message(listed, form, story_of(listed))
        else:
            message = delayed_message(listed, form, story_of(listed))
        await self.parts.topics.publish(place_of(listed.whereabouts, self.parts.queue)[0], message)


async def arrivals(parts: PulsarParts, move: str, doubtful: Collection[EnqueueId]) -> PulsarArrivals:
    """Keep what is published from now on; then see which doubtful mails had come before."""
    subscription = arrivals_subscription(move)
    came = set[EnqueueId]()
    for whereabouts in Whereabouts:
        topic, of_james = place_of(whereabouts, parts.queue)
        await parts.topics.create(topic, of_james)
        await parts.topics.create(topic, subscription)
        if doubtful:
            async with aclosing(read_mails(parts.topics, (topic, subscription), whereabouts)) as mails:
                async for mail in mails:
                    came.add(mail.listed.queued.enqueue_id)
    return PulsarArrivals(parts, subscription, frozenset(came.intersection(doubtful)))
