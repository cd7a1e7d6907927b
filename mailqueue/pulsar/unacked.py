"""A mail from its delivery until it is acked, retried or rejected: exactly one of them, once.

The order of publishing and acknowledging makes each safe: the mail is always in one topic at least. Before a mail that
was delayed is acknowledged, the delayed message is whose place it took: else that would be moved again. So is the dead
letter that was put back.
"""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.broker.messages import dead_letter, delayed_message, origin_of, redriven_from, story_of
from mailmend.mailqueue.pulsar.broker.names import (
    DEAD_SUBSCRIPTION,
    dead_topic,
    out_topic,
    scheduled_subscription,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.broker.topics import TopicDelivery
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.pulsar.view.listing import is_deleted
from mailmend.mailqueue.queue import due_time
from mailmend.mailqueue.rules.deletions import DeletedMail
from mailmend.mailqueue.rules.mails import Listed, Mail, QueuedMail, Whereabouts
from mailmend.mailqueue.rules.places import TopicPlace
from mailmend.model.backoff import RETRY
from mailmend.model.errors import WrongUse
from mailmend.model.ids import EnqueueId


def _nothing() -> None:
    """Do nothing."""


class PulsarUnacked:
    """Implements `mailqueue.queue.Dequeued`.

    Attributes:
        on_settled: called once it is settled, or was given back.
    """

    def __init__(self, parts: PulsarParts, delivery: TopicDelivery, listed: Listed) -> None:
        self._parts = parts
        self._delivery = delivery
        self._listed = listed
        self._used = False
        self.queued: QueuedMail = listed.queued
        self.content = b""
        self.on_settled = _nothing
        self.attempts = listed.attempts
        self.redelivered = delivery.redelivered

        parts.deletions.in_hand.add(self.enqueue_id)

    @property
    def is_deleted(self) -> bool:
        """Whether it is, by what was known last."""
        parts = self._parts
        return is_deleted(parts.queue, self._delivery.message, self._listed, parts.deletions.last_known)

    @property
    def mail(self) -> Mail:
        return self.queued.mail

    @property
    def enqueue_id(self) -> EnqueueId:
        return self.queued.enqueue_id

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
        if self._used:
            raise WrongUse(
                f"the mail {self.enqueue_id} was settled before", mend="Ack, retry or reject a mail once, never twice."
            )
        self._used = True
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
        wait = RETRY.wait(self.attempts + 1) if delay is None else delay
        mail = self.mail.tried(parts.now, error_message)
        again = replace(
            self._listed,
            queued=replace(self.queued, mail=mail),
            whereabouts=Whereabouts.DELAYED,
            due_at=parts.now + wait,
            attempts=self.attempts + 1,
        )
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
