"""Taking in mails of another queue, each once.

A subscription of the move's own, without consumers, keeps the broker from deleting what is published after the move
began. So a move that goes on reads there which of its mails came, though consumers, James's too, may have acknowledged
them since.
"""

from collections.abc import Collection
from contextlib import aclosing
from dataclasses import dataclass

from mailmend.mailqueue.blobs.stores import put_content
from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.broker.messages import delayed_message, story_of, waiting_message
from mailmend.mailqueue.pulsar.broker.names import arrivals_subscription
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.pulsar.view.listing import place_of, read_mails
from mailmend.mailqueue.rules.mails import Listed, MailBlobs, Whereabouts
from mailmend.model.ids import EnqueueId


@dataclass(frozen=True, slots=True)
class PulsarArrivals:
    """Implements `mailqueue.arrivals.Arrivals`.

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
        message_of = waiting_message if listed.whereabouts is Whereabouts.WAITING else delayed_message
        message = message_of(listed, await self.parts.form(), story_of(listed))
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
                came.update([mail.listed.queued.enqueue_id async for mail in mails])
    return PulsarArrivals(parts, subscription, frozenset(came.intersection(doubtful)))
