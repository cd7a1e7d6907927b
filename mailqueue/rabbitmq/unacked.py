"""A mail from its delivery until it is settled, once; its message is the broker's, or a backlog's.

The order of writes makes each settling safe: see `mailqueue.rabbitmq.dequeue`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from mailmend.mailqueue.broker import Delivery
from mailmend.mailqueue.codec import attempts_of, slice_of_message
from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.every_queue import DequeuedMail
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import due_time, no_due_mails
from mailmend.mailqueue.rabbitmq.backlogs import BacklogDelivery, ConsumerBacklogs
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMails
from mailmend.mailqueue.rules.backlogs import SubQueueName
from mailmend.mailqueue.rules.mails import Listed, QueuedMail
from mailmend.model.errors import BrokerUnreachable, MailmendError
from mailmend.model.ids import EnqueueId

REQUEUE_PAUSE: Final = timedelta(seconds=10)
"""How long a mail to be retried is held where it cannot be delayed."""

_LOG: Final = logging.getLogger("mailmend.queue")


class UnackedMail(DequeuedMail):
    """A mail from its delivery until it is settled. Implements `mailqueue.queue.Dequeued`.

    Attributes:
        looked_at: when it was looked up last, in seconds of the monotonic clock.
        settled: set as soon as the mail is acked, retried, rejected, or given back to the broker.
        is_delayed: whether it is in the queue again, delayed.
        slice_start: of its row; None where James has published it.
        sub_queue: by which it counts in hand; None where that is not counted.
        came_at: since when it is in hand, in seconds of the monotonic clock.
        is_ready: whether it was looked up, and may be handed over.
    """

    def __init__(
        self,
        parts: Parts,
        delivery: Delivery,
        queued: QueuedMail,
        on_settled: Callable[[], None],
        sub_queue: SubQueueName | None = None,
    ) -> None:
        super().__init__(queued, attempts_of(delivery.message), redelivered=delivery.redelivered)
        self._parts = parts
        self._on_settled = on_settled
        self.delivery = delivery
        self.looked_at = 0.0
        self.settled = asyncio.Event()
        self.is_delayed = False
        self.slice_start = slice_of_message(delivery.message)
        self.sub_queue = sub_queue
        self.came_at = parts.clock.monotonic()
        self.is_ready = False
        self._anchoring: asyncio.Task[None] | None = None

    @property
    def takes_prefetch(self) -> bool:
        """Whether the broker counts it among the messages that this consumer has not acked."""
        if not self.is_ready or self._used or self._anchoring is not None:
            return False
        return not isinstance(self.delivery, BacklogDelivery)

    def anchor(self, backlogs: ConsumerBacklogs, name: SubQueueName) -> None:
        """Replace the broker's message by a row of its backlog; the mail stays in hand."""
        self._anchoring = asyncio.ensure_future(self._anchored(backlogs, name))

    async def _anchored(self, backlogs: ConsumerBacklogs, name: SubQueueName) -> None:
        try:
            self.delivery = await backlogs.keep(name, self.delivery, in_hand=True)
        except MailmendError as error:
            fields = {"queue": self._parts.queue, "mail": self.enqueue_id, "error": error.what}
            _LOG.warning("a mail stays with the broker", extra=fields)
        finally:
            self._anchoring = None

    async def released(self) -> Delivery:
        """Its delivery, to be settled by the caller: it is not handed over any more."""
        self.begin_settling()
        if self._anchoring is not None:
            await asyncio.wait((self._anchoring,))
        return self.delivery

    async def listed(self) -> Listed:
        enqueued_at = await self._enqueued_at()
        return Listed(self.queued, enqueued_at, slice_start=self.slice_start, attempts=self.attempts)

    async def leave(self) -> None:
        await self.ack()  # its mark stays, whatever the broker forgets

    async def ack(self) -> None:
        await self._once(self._acked)

    async def retry(self, delay: timedelta | None = None, error_message: str | None = None) -> None:
        due = self._parts.view.due
        if delay is not None:
            if due is None:
                raise no_due_mails()
            due_time(self._parts.now, delay, None)
        if due is None:
            await self._once(self._requeued)
        else:
            await self._once(partial(self._retried, due, delay, error_message))

    async def reject(self) -> None:
        await self._once(self._rejected)

    async def _once(self, settle: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.begin_settling()
        await finished(self._settled(settle))

    async def _settled(self, settle: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._anchoring is not None:
            await asyncio.wait((self._anchoring,))
        try:
            await settle()
        except Exception:  # whatever it is: a mail that stays unacked would come again only with another consumer
            await self._tell_broker(self.delivery.requeue)
            raise
        finally:
            self._on_settled()

    async def _acked(self) -> None:
        parts = self._parts
        await parts.view.mark(parts.queue, self.enqueue_id, self.slice_start, redelivered=self.redelivered)
        await self._tell_broker(self.delivery.ack)
        parts.counts.add(QueueCount.ACKED, parts.queue)
        await parts.blob_cleanup.add(self.queued.blobs, dequeued=True)

    async def _retried(self, due: DueMails, delay: timedelta | None, error_message: str | None) -> None:
        parts = self._parts
        listed = Listed(self.queued, await self._enqueued_at(), attempts=self.attempts)
        again = listed.retried(parts.now, delay, error_message)
        async with due.kept(parts.queue, again) as (_, changes):
            await row_taken_back(parts, self.queued, self.slice_start)
            sent = await self._tell_broker(self.delivery.ack)
            changes.sure = sent and not self.redelivered
        parts.counts.add(QueueCount.RETRIED, parts.queue)
        self.is_delayed = True

    async def _requeued(self) -> None:
        parts = self._parts

        async def after_a_pause() -> None:
            await parts.clock.pause(REQUEUE_PAUSE.total_seconds())
            await self._tell_broker(self.delivery.requeue)

        parts.counts.add(QueueCount.RETRIED, parts.queue)
        await parts.background.add(after_a_pause)

    async def _rejected(self) -> None:
        await self.delivery.dead_letter()
        self._parts.counts.add(QueueCount.REJECTED, self._parts.queue)
        await row_taken_back(self._parts, self.queued, self.slice_start)

    async def _enqueued_at(self) -> datetime:
        """From its row; the message does not hold it."""
        rows = self._parts.view.rows
        row = self.slice_start and await rows.row(self._parts.queue, self.slice_start, self.queued)
        if not row:
            return self._parts.now
        return row.enqueued_at

    async def _tell_broker(self, tell: Callable[[], Awaitable[None]]) -> bool:
        """Tell the broker; False if it is gone: it then delivers again."""
        try:
            await tell()
        except BrokerUnreachable:
            _LOG.info("a mail will be delivered again", extra={"queue": self._parts.queue, "mail": self.enqueue_id})
            return False
        return True


async def row_taken_back(parts: Parts, queued: QueuedMail, slice_start: datetime | None) -> None:
    """Remove the row from the listings; where the message names no slice, look for the row.

    A row that stays merely lists the mail once more, until it is marked.
    """
    rows = parts.view.rows
    try:
        slice_start = slice_start or await rows.slice_with(parts.queue, queued)
        if slice_start is not None:
            await rows.take_back(parts.queue, slice_start, queued)
    except MailmendError as error:
        fields = {"queue": parts.queue, "mail": queued.enqueue_id, "error": error.what}
        _LOG.warning("the row of a mail stays", extra=fields)


Unacked = dict[EnqueueId, UnackedMail]
"""The unacked mails of this process by id; a mail leaves it when it is settled."""
