"""Taking mails out of a queue, and each mail from its delivery until it is settled, once.

The order of publishing and acknowledging makes each safe: the mail is always in one topic at least.
Before a mail that was delayed is acknowledged, the delayed message is whose place it took: else
that would be moved again. So is the dead letter that was put back.

Deliveries are handled independently: slow bytes delay no other mail. The only back-pressure is the
prefetch. No error of a single mail ends the stream: what is no mail, or has lost its bytes, is a
dead letter.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Final

from mailmend.mailqueue.codec import priority_of
from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.every_queue import HOLD, ContentRoom, DequeuedMail, Drain, Takings
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.parts import PulsarParts, is_deleted
from mailmend.mailqueue.pulsar.settings import (
    DEAD_SUBSCRIPTION,
    dead_topic,
    out_subscription,
    out_topic,
    scheduled_subscription,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.topics import (
    TopicDelivery,
    dead_letter,
    delayed_message,
    listed_of,
    origin_of,
    redriven_from,
    story_of,
)
from mailmend.mailqueue.queue import due_time
from mailmend.mailqueue.rules.deletions import DeletedMail
from mailmend.mailqueue.rules.mails import Listed, Whereabouts
from mailmend.mailqueue.rules.places import TopicPlace
from mailmend.model.durations import LOOK_AGAIN
from mailmend.model.errors import BadPayload, BlobMissing, MailmendError


def _nothing() -> None:
    """Do nothing."""


class PulsarUnacked(DequeuedMail):
    """Implements `mailqueue.queue.Dequeued`.

    Attributes:
        on_settled: called once it is settled, or was given back.
    """

    def __init__(self, parts: PulsarParts, delivery: TopicDelivery, listed: Listed) -> None:
        super().__init__(listed.queued, listed.attempts, redelivered=delivery.redelivered)
        self._parts = parts
        self._delivery = delivery
        self._listed = listed
        self.on_settled = _nothing
        parts.deletions.in_hand.add(self.enqueue_id)

    @property
    def is_deleted(self) -> bool:
        """Whether it is, by what was known last."""
        parts = self._parts
        return is_deleted(parts.queue, self._delivery.message, self._listed, parts.deletions.last_known)

    async def listed(self) -> Listed:
        return self._listed

    async def leave(self) -> None:
        await self._once(self._left)

    async def ack(self) -> None:
        await self._once(self._acked)

    async def retry(self, delay: timedelta | None = None, error_message: str | None = None) -> None:
        if delay is not None:
            due_time(self._parts.now, delay, None)
        await self._once(lambda: self._retried(delay, error_message))

    async def reject(self) -> None:
        await self._once(self._rejected)

    async def drop(self) -> None:
        """Have it leave the queue, as it was deleted."""
        await self._once(self._dropped)

    async def _once(self, settle: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.begin_settling()
        await finished(self._settled(settle))

    async def _settled(self, settle: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await settle()
        except Exception:  # whatever it is: a mail that stays unacked would come again only with another consumer
            await self._delivery.give_back()
            raise
        finally:
            self._parts.deletions.in_hand.discard(self.enqueue_id)
            self.on_settled()

    async def _acked(self) -> None:
        await leave(self._parts, self._delivery)
        self._parts.counts.add(QueueCount.ACKED, self._parts.queue)
        await self._parts.blob_cleanup.add(self.queued.blobs, dequeued=True)

    async def _left(self) -> None:
        """Publish its deletion first: a broker that is killed forgets what was acknowledged a moment ago."""
        parts = self._parts
        where = TopicPlace(out_topic(parts.queue), self._delivery.message.place)
        await parts.deletions.publish(await parts.form(), [DeletedMail(self.enqueue_id, where)])
        await self._acked()

    async def _dropped(self) -> None:
        await leave(self._parts, self._delivery)
        self._parts.counts.add(QueueCount.FILTERED, self._parts.queue)
        await self._parts.blob_cleanup.add(self.queued.blobs, dequeued=False)

    async def _retried(self, delay: timedelta | None, error_message: str | None) -> None:
        parts = self._parts
        if self.is_deleted:
            await self._dropped()
            return
        again = self._listed.retried(parts.now, delay, error_message)
        await parts.topics.create(scheduled_topic(parts.queue), scheduled_subscription(parts.queue))
        message = delayed_message(again, await parts.form(), story_of(again))
        await parts.topics.publish(scheduled_topic(parts.queue), message)
        await leave(parts, self._delivery)
        parts.counts.add(QueueCount.RETRIED, parts.queue)

    async def _rejected(self) -> None:
        if self.is_deleted:
            await self._dropped()
            return
        await bury(self._parts, self._delivery)
        self._parts.counts.add(QueueCount.REJECTED, self._parts.queue)


async def leave(parts: PulsarParts, delivery: TopicDelivery) -> None:
    """Have the delivery's mail leave the queue, and the delayed message or dead letter too whose place it took."""
    if origin := origin_of(delivery.message):
        await parts.topics.acknowledge(scheduled_topic(parts.queue), scheduled_subscription(parts.queue), (origin,))
    if letter := redriven_from(delivery.message):
        await parts.topics.acknowledge(dead_topic(parts.queue), DEAD_SUBSCRIPTION, (letter,))
    await delivery.ack()


async def bury(parts: PulsarParts, delivery: TopicDelivery) -> None:
    """Make a dead letter of a delivery."""
    topic = dead_topic(parts.queue)
    await parts.topics.create(topic, DEAD_SUBSCRIPTION)
    await parts.topics.publish(topic, dead_letter(parts.queue, parts.topics.namespace, delivery.message))
    await leave(parts, delivery)


HEAR_EVERY: Final = timedelta(seconds=30)
"""How often a consumer hears of deletions, whether or not it hands mails out: well before any can expire."""

_MICRO: Final = timedelta(microseconds=1)
_LOG: Final = logging.getLogger("mailmend.queue")


@asynccontextmanager
async def dequeue(
    parts: PulsarParts, prefetch: int, bytes_max: int | None = None
) -> AsyncGenerator[AsyncIterator[PulsarUnacked]]:
    """The mails, as they are ready. Unsettled mails are delivered again after the context."""
    await parts.deletions.known()
    async with parts.topics.consume(out_topic(parts.queue), out_subscription(parts.queue), prefetch) as deliveries:
        stream = _Stream(parts, ContentRoom(bytes_max))
        working = [asyncio.ensure_future(stream.feed(deliveries)), asyncio.ensure_future(stream.hear())]
        try:
            yield stream
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            await stream.end()


class _Stream:
    """One consumer's mails."""

    def __init__(self, parts: PulsarParts, room: ContentRoom) -> None:
        self._parts = parts
        self._room = room
        self._ready: Drain[PulsarUnacked] = Drain()
        self._takings = Takings(parts.queue)
        self._taken_out: deque[PulsarUnacked] = deque()

    def __aiter__(self) -> AsyncIterator[PulsarUnacked]:
        return self

    async def __anext__(self) -> PulsarUnacked:
        """The next mail that is not deleted by what is known now; if cancelled, it may be asked again."""
        while True:
            if not self._taken_out:
                self._taken_out.append(await anext(self._ready))
            if not self._parts.deletions.is_fresh:
                await self._refreshed()
                continue
            mail = self._taken_out.popleft()
            if mail.is_deleted:
                await mail.drop()
                continue
            self._parts.counts.add(QueueCount.DELIVERED, self._parts.queue)
            return mail

    async def hear(self) -> None:
        """Read deletions also while no mail is handed out: they may delete mails that are out."""
        while True:
            await self._parts.clock.pause(HEAR_EVERY.total_seconds())
            await self._refreshed()

    async def _refreshed(self) -> None:
        """Ask until there is an answer: before that nothing is handed out."""
        for tries in count(1):
            try:
                await self._parts.deletions.known()
            except MailmendError as error:
                _LOG.warning("deletions cannot be read", extra={"queue": self._parts.queue, "error": error.what})
            else:
                return
            await self._parts.clock.pause(LOOK_AGAIN.wait(tries).total_seconds())

    async def feed(self, deliveries: AsyncIterator[TopicDelivery]) -> None:
        try:
            async for delivery in deliveries:
                self._takings.begin(self._take(delivery))
        except Exception as error:  # noqa: BLE001 - whoever asks for the next mail gets it
            self._ready.fail(error)

    async def end(self) -> None:
        await self._takings.cancel()

    async def _take(self, delivery: TopicDelivery) -> None:
        try:
            mail = PulsarUnacked(self._parts, delivery, listed_of(delivery.message, Whereabouts.WAITING))
        except BadPayload as error:
            await self._buried(delivery, QueueCount.BAD, "cannot be read", error)
            return
        if mail.is_deleted:
            await mail.drop()
            return
        try:
            content = await self._content(mail)
        except (BlobMissing, BadPayload) as error:  # what is no id of a blob names none
            await self._parts.deletions.known_now()
            if mail.is_deleted:
                await mail.drop()
                return
            await self._buried(delivery, QueueCount.BLOB_MISSING, "has lost its bytes", error)
            return
        if content is None:
            self._parts.counts.add(QueueCount.RETURNED, self._parts.queue)
            await delivery.give_back()
            return
        mail.content = content
        mail.on_settled = partial(self._room.let_go, len(content))
        self._ready.put(priority_of(mail.mail), mail)

    async def _content(self, mail: PulsarUnacked) -> bytes | None:
        """The mail's bytes; None where the store has not answered for long."""
        begun = self._parts.clock.monotonic()
        for tries in count(1):
            try:
                return await self._room.loaded(self._parts.blobs, mail.queued.blobs)
            except (BlobMissing, BadPayload):
                raise
            except MailmendError:
                if self._parts.clock.monotonic() - begun >= HOLD.total_seconds():
                    return None
            await self._parts.clock.pause(LOOK_AGAIN.wait(tries).total_seconds())
        return None

    async def _buried(self, delivery: TopicDelivery, name: QueueCount, what: str, error: MailmendError) -> None:
        fields = {"queue": self._parts.queue, "place": str(delivery.message.place), "error": error.what}
        _LOG.warning("a mail %s; it is a dead letter now", what, extra=fields)
        self._parts.counts.add(name, self._parts.queue)
        try:
            await bury(self._parts, delivery)
        except MailmendError:
            await delivery.give_back()
            raise
