"""A mail in a consumer's hand, until it is acked, retried or rejected: exactly one of them, once.

The order of writes is what makes each safe. Acked: the mark before the broker's ack, so that a crash between the two
leaves a delivery that is filtered. Retried: the row of the delayed mail before its row in the view goes and the broker
is acked, so that it is always in one of them. Rejected: the dead letter before the row goes.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from mailqueue.background import finished
from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.codec import attempts_of, slice_of_message
from mailqueue.rabbitmq.enqueue import due_time, needs_due_mails
from mailqueue.rabbitmq.parts import Parts
from mailqueue.rabbitmq.view.due_mails import DueMails
from model.backoff import RETRY
from model.errors import BrokerUnreachable, MailmendError, WrongUse
from model.ids import EnqueueId, QueueName
from model.instants import instant_of
from model.ports import Delivery
from model.queue.mails import Listed, Mail, QueuedMail, Whereabouts

REQUEUE_PAUSE: Final = timedelta(seconds=10)
"""How long a mail to be retried is held where it cannot be delayed."""

_LOG: Final = logging.getLogger("mailmend.queue")


class Settlement(Enum):
    """What became of a mail in hand."""

    ACKED = "acked"  # marked
    RETRIED = "retried"  # it is delayed
    REJECTED = "rejected"  # it is a dead letter
    RETURNED = "returned"  # the broker has it again


@dataclass(frozen=True, slots=True)
class Passage:
    """A mail's passage through this process: what settling it needs.

    Attributes:
        settled: told once, how it ended.
    """

    queue: QueueName
    parts: Parts
    delivery: Delivery
    queued: QueuedMail
    settled: Callable[[Settlement], None]


class Dequeued:
    """A mail to be worked on, with its bytes.

    Attributes:
        queued: the mail's passage.
        content: header and body together, as they were enqueued.
        attempts: how often it was tried before, as far as is known.
        redelivered: whether somebody may have had it before.
        slice_start: of its row; None where James has published it.
    """

    def __init__(self, passage: Passage, content: bytes) -> None:
        self._passage = passage
        self._used = False
        self.queued: QueuedMail = passage.queued
        self.content = content
        self.attempts = attempts_of(passage.delivery.message)
        self.redelivered = passage.delivery.redelivered
        self.slice_start = slice_of_message(passage.delivery.message)

    @property
    def mail(self) -> Mail:
        """The mail."""
        return self.queued.mail

    @property
    def enqueue_id(self) -> EnqueueId:
        """This passage's name."""
        return self.queued.enqueue_id

    async def ack(self) -> None:
        """It is done with: it is never delivered again, once this returns.

        Raises:
            WrongUse: it was settled before.
            CannotReach: the mark could not be written; the mail goes back, and will be delivered again.
        """
        await self._once(self._acked)

    async def retry(self, delay: timedelta | None = None, error_message: str | None = None) -> None:
        """Deliver it again later: after the delay, or a wait that doubles with each try, from a minute to 4 hours.

        Where mails cannot be delayed it goes back to the broker after a pause of some seconds.

        Args:
            delay: None for the wait.
            error_message: kept with the mail.

        Raises:
            WrongUse: it was settled before, or the delay is too long; then the mail is still in hand.
            Delayed: a delay was given, and mails cannot be delayed here; the mail is still in hand.
            CannotReach: the delayed mail could not be written; the mail goes back to the broker.
        """
        due = self._passage.parts.due
        if delay is not None:
            needs_due_mails(due)
            due_time(self._now(), delay, None)
        await self._once(lambda: self._requeued() if due is None else self._retried(due, delay, error_message))

    async def reject(self) -> None:
        """It goes to the dead letter queue, and out of the queue's listings; its bytes stay.

        Raises:
            WrongUse: it was settled before.
            BrokerUnreachable: the connection that brought it is gone; it will be delivered again.
        """
        await self._once(self._rejected)

    async def _once(self, settle: Callable[[], Coroutine[Any, Any, Settlement]]) -> None:
        if self._used:
            raise WrongUse(
                f"the mail {self.enqueue_id} was settled before", mend="Ack, retry or reject a mail once, never twice."
            )
        self._used = True
        await finished(self._settled(settle))

    async def _settled(self, settle: Callable[[], Coroutine[Any, Any, Settlement]]) -> None:
        settlement = Settlement.RETURNED
        try:
            settlement = await settle()
        except MailmendError:
            await self._told(self._passage.delivery.requeue)
            raise
        finally:
            self._passage.settled(settlement)

    async def _acked(self) -> Settlement:
        passage = self._passage
        await passage.parts.view.mark(passage.queue, self.enqueue_id, self.slice_start, redelivered=self.redelivered)
        await self._told(passage.delivery.ack)
        passage.parts.counts.add(QueueCount.ACKED, passage.queue)
        await passage.parts.tidying.add(self.queued.blobs, dequeued=True)
        return Settlement.ACKED

    async def _retried(self, due: DueMails, delay: timedelta | None, error_message: str | None) -> Settlement:
        passage = self._passage
        wait = RETRY.wait(self.attempts + 1) if delay is None else delay
        mail = replace(self.mail, last_updated=self._now(), error_message=error_message or self.mail.error_message)
        enqueued_at = await self._enqueued_at()
        listed = Listed(
            replace(self.queued, mail=mail),
            enqueued_at,
            Whereabouts.DELAYED,
            due_at=self._now() + wait,
            attempts=self.attempts + 1,
        )
        async with due.kept(passage.queue, listed) as kept:
            await row_taken_back(passage.queue, passage.parts, self.queued, self.slice_start)
            told = await self._told(passage.delivery.ack)
            kept.changes.sure = told and not self.redelivered
        passage.parts.counts.add(QueueCount.RETRIED, passage.queue)
        return Settlement.RETRIED

    async def _requeued(self) -> Settlement:
        passage = self._passage

        async def after_a_pause() -> None:
            await passage.parts.clock.pause(REQUEUE_PAUSE.total_seconds())
            await self._told(passage.delivery.requeue)

        passage.parts.counts.add(QueueCount.RETRIED, passage.queue)
        await passage.parts.afterwards.add(after_a_pause)
        return Settlement.RETURNED

    async def _rejected(self) -> Settlement:
        passage = self._passage
        await passage.delivery.dead_letter()
        passage.parts.counts.add(QueueCount.REJECTED, passage.queue)
        await row_taken_back(passage.queue, passage.parts, self.queued, self.slice_start)
        return Settlement.REJECTED

    async def _enqueued_at(self) -> datetime:
        """As its row has it; the message does not say."""
        passage = self._passage
        row = self.slice_start and await passage.parts.view.row(passage.queue, self.slice_start, self.queued)
        return row.enqueued_at if row else self._now()

    def _now(self) -> datetime:
        return instant_of(self._passage.parts.clock.micros())

    async def _told(self, tell: Callable[[], Awaitable[None]]) -> bool:
        """Tell a broker that may be gone: it delivers again then (False), and that is dealt with on delivery."""
        try:
            await tell()
        except BrokerUnreachable:
            _LOG.info("queue %s: mail %s will be delivered again", self._passage.queue, self.enqueue_id)
            return False
        return True


async def row_taken_back(queue: QueueName, parts: Parts, queued: QueuedMail, slice_start: datetime | None) -> None:
    """The mail leaves the listings; where its message names no slice its row is looked for.

    A row that stays merely lists the mail once more, until it is marked.
    """
    try:
        slice_start = slice_start or await parts.view.slice_with(queue, queued)
        if slice_start is not None:
            await parts.view.take_back(queue, slice_start, queued)
    except MailmendError as error:
        _LOG.warning("queue %s: the row of mail %s stays: %s", queue, queued.enqueue_id, error.what)
