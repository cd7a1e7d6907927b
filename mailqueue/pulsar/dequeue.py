"""Taking mails out of a queue: each delivery is read, its bytes are loaded, and it is handed to the consumer.

Deliveries are handled independently: slow bytes delay no other mail. The only back-pressure is the prefetch. No error
of a single mail ends the stream: what is no mail, or has lost its bytes, is a dead letter.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Final

from mailmend.mailqueue.blobs.stores import content_of
from mailmend.mailqueue.codec import priority_of
from mailmend.mailqueue.content_room import ContentRoom
from mailmend.mailqueue.draining import Drain
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.broker.messages import listed_of
from mailmend.mailqueue.pulsar.broker.names import out_subscription, out_topic
from mailmend.mailqueue.pulsar.broker.topics import TopicDelivery
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.pulsar.unacked import PulsarUnacked, bury
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.model.backoff import LOOK_AGAIN
from mailmend.model.errors import BadPayload, BlobMissing, MailmendError

HOLD: Final = timedelta(minutes=5)
"""How long a delivery is held while the blob store does not answer, before the broker has it back."""

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
        working = [asyncio.ensure_future(work) for work in (stream.feed(deliveries), stream.hear())]
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
        self._tasks: set[asyncio.Task[None]] = set()
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
                task = asyncio.ensure_future(self._take(delivery))
                self._tasks.add(task)
                task.add_done_callback(self._taken)
        except Exception as error:  # noqa: BLE001 - whoever asks for the next mail gets it
            self._ready.fail(error)

    async def end(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a delivery is left unacked", extra={"queue": self._parts.queue}, exc_info=task.exception())

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
        mail.content, mail.on_settled = content, partial(self._room.let_go, len(content))
        self._ready.put(priority_of(mail.mail), mail)

    async def _content(self, mail: PulsarUnacked) -> bytes | None:
        """The mail's bytes; None where the store has not answered for long."""
        begun = self._parts.clock.monotonic()
        for tries in count(1):
            try:
                async with self._room.load():
                    content = await content_of(self._parts.blobs, mail.queued.blobs)
                    self._room.hold(len(content))
            except (BlobMissing, BadPayload):
                raise
            except MailmendError:
                if self._parts.clock.monotonic() - begun >= HOLD.total_seconds():
                    return None
            else:
                return content
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
