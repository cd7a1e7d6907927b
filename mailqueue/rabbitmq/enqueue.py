"""Putting a mail into a queue: blobs, row, then a publish that is confirmed; whatever fails is undone on the way back.

The caller hears of success only when the broker has confirmed the mail, or its row among the delayed ones is written;
of an error only when the mail is not delivered: nothing of it was published, or a mark hides what may have been. What
cannot even be undone is named in the error. Cancelled, it undoes as after an error. Source: ADR-31, DESIGN section 4.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mailqueue.background import finished
from mailqueue.blobs.contents import forget, put_content
from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.broker.mails import publish_mail
from mailqueue.rabbitmq.codec import with_priority
from mailqueue.rabbitmq.codec.admission import admissible
from mailqueue.rabbitmq.parts import Parts
from mailqueue.rabbitmq.view.due_mails import DueMails
from model.errors import Delayed, MailmendError, WrongUse
from model.ids import EnqueueId, QueueName
from model.instants import instant_of
from model.queue.mails import DELAY_MAX, Listed, Mail, QueuedMail, Whereabouts

_LOG: Final = logging.getLogger("mailmend.queue")


def due_time(now: datetime, delay: timedelta | None, at: datetime | None) -> datetime | None:
    """When a mail is due that was asked for then; None for at once.

    Raises:
        WrongUse: it cannot be said, or is too far ahead.
    """
    if delay is not None and at is not None:
        raise WrongUse("a mail has either a delay or a time, not both", mend="Give one of them.")
    if at is not None and at.tzinfo is None:
        raise WrongUse(f"{at} names no time zone", mend="Give an instant in UTC.")
    wait = at.astimezone(UTC) - now if at is not None else delay or timedelta(0)
    if wait > DELAY_MAX:
        raise WrongUse(
            f"a delay of {wait.days} days is more than {DELAY_MAX.days}", mend="Enqueue the mail nearer to its time."
        )
    return now + wait if wait > timedelta(0) else None


def admitted(mail: Mail, priority: int | None) -> Mail:
    """The mail as it is queued: with that priority; None: with what its attribute says.

    Raises:
        WrongUse: there is no such priority, or James could not read such a mail.
    """
    return admissible(mail if priority is None else with_priority(mail, priority))


def needs_due_mails(due: DueMails | None) -> DueMails:
    """The delayed mails.

    Raises:
        Delayed: the keyspace has no table for them.
    """
    if due is None:
        raise no_due_mails()
    return due


def no_due_mails() -> Delayed:
    """What a delay comes to in a keyspace without a table for it."""
    return Delayed(
        "this keyspace has no table for delayed mails, dueMails",
        mend="Create it with: mailmend schema apply (James neither lists nor touches it); or give no delay.",
    )


@dataclass(frozen=True, slots=True)
class Enqueueing:
    """Puts mails into one queue; any number at once."""

    queue: QueueName
    parts: Parts

    async def enqueue(self, mail: Mail, content: bytes, due_at: datetime | None, priority: int | None) -> EnqueueId:
        """Put the mail into the queue, or among the delayed ones.

        Raises:
            WrongUse: James could not read such a mail; nothing was put anywhere.
            Delayed: delays are not possible here.
            CannotReach, PublishFailed: it is not in the queue, unless the message says what is left.
        """
        due = None if due_at is None else needs_due_mails(self.parts.due)
        mail = admitted(mail, priority)
        enqueue_id = EnqueueId(self.parts.clock.random_uuid())
        try:
            queued = QueuedMail(enqueue_id, mail, await put_content(self.parts.blobs, content))
            if due is None or due_at is None:
                await self._deliver(queued)
            else:
                await self._delay(due, queued, due_at)
        except BaseException:
            self.parts.counts.add(QueueCount.ENQUEUE_FAILED, self.queue)
            raise
        self.parts.counts.add(QueueCount.ENQUEUED, self.queue)
        return enqueue_id

    async def _deliver(self, queued: QueuedMail) -> None:
        placement = self.parts.view.placement(self.queue, queued)

        async def publish(slice_start: datetime) -> None:
            await publish_mail(self.parts.broker, self.queue, queued, slice_start)

        try:
            await placement.settle(beside=publish)
        except BaseException as error:
            await finished(self._undo(queued, error, lambda: self._mark(queued, placement.slice_start)))
            raise

    async def _delay(self, due: DueMails, queued: QueuedMail, due_at: datetime) -> None:
        now = instant_of(self.parts.clock.micros())
        listed = Listed(queued, now, Whereabouts.DELAYED, due_at=due_at)
        try:
            await self._known()
            await due.put(self.queue, listed)
        except BaseException as error:
            await finished(self._undo(queued, error, lambda: self._mark(queued, None)))
            raise

    async def _known(self) -> None:
        """A queue of delayed mails alone has a beginning too: else nobody who asks for all queues would tend it."""
        if self.queue not in self.parts.view.ground.known:
            await self.parts.view.ground.begun(self.queue, self.parts.slicing.window)

    async def _mark(self, queued: QueuedMail, slice_start: datetime | None) -> None:
        await self.parts.view.mark(self.queue, queued.enqueue_id, slice_start)

    async def _undo(self, queued: QueuedMail, error: BaseException, hide: Callable[[], Awaitable[None]]) -> None:
        """Hide the mail, then forget its bytes; they stay while it may still be delivered."""
        try:
            await hide()
        except MailmendError as failure:
            self._left(error, queued, f"its row may still be listed, and its blobs are left ({failure.what})")
            return
        try:
            await forget(self.parts.blobs, queued.blobs)
        except MailmendError as failure:
            self._left(error, queued, f"its blobs are left, which nobody refers to ({failure.what})")

    def _left(self, error: BaseException, queued: QueuedMail, left: str) -> None:
        told = f"The mail {queued.enqueue_id} was not undone in full: {left}."
        _LOG.warning("queue %s: %s", self.queue, told)
        if isinstance(error, MailmendError):
            error.mend = f"{told} See: mailmend queue reconcile --queue {self.queue}"
