"""Taking mails out of a queue, and each mail from its delivery until it is settled, once.

Each delivery is looked up, judged, and handed to the consumer or settled here.

Deliveries are handled independently: slow bytes or a look-up without an answer delay no other mail.
Ready mails are handed out by weight of their level. The prefetch and the room for contents are the
back-pressure. No error of a single mail ends the stream.

The mark comes first because the bytes of a marked mail may be gone: a mail that an operator deleted
is dropped, and no alarm is raised over what it lacks.

A mail that waits has a row: it is put before the mail is delivered, and goes when the mail has left
the queue. So a delivery with neither row nor mark is of a mail that left, once its mark may have
expired: it must not come back. Rows are asked for where that can be, of slices that were swept, and
of mails older than marks live; all others deliver on their missing mark alone. Rows expire too, and
only sweeps renew them. After a long time without a sweep, rows of waiting mails may have expired
(`queueState.lapsedBefore`), and a missing row is no evidence: such a mail is neither delivered nor
dropped.

The order of writes makes each settling safe. Acked: the mark comes before the broker's ack, so a
crash between the two leaves a delivery that is filtered. Retried: the row of the delayed mail comes
before its row in the view goes and before the broker's ack, so the mail is always in one of them.
Rejected: the dead letter comes before the row goes.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Final

from mailmend.mailqueue.broker import Delivery
from mailmend.mailqueue.codec import attempts_of, queued_of, slice_of_message
from mailmend.mailqueue.concurrency import BackgroundJob, cancelled, finished, run_jobs
from mailmend.mailqueue.every_queue import HOLD, ContentRoom, Drain, Takings
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import SubQueueOf
from mailmend.mailqueue.rabbitmq.backlogs import (
    SHOWN_EVERY,
    TENDED_EVERY,
    BacklogDelivery,
    ConsumerBacklogs,
)
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.unacked import Unacked, UnackedMail, row_taken_back
from mailmend.mailqueue.rabbitmq.verdicts import DeliveryVerdict, LookedUp, RowState, Settling, verdict_of
from mailmend.mailqueue.rabbitmq.view.slices import MarkLookups
from mailmend.mailqueue.rules.backlogs import SubQueueName
from mailmend.mailqueue.rules.mails import MailBlobs, QueuedMail
from mailmend.mailqueue.rules.slices import EPOCH, gone_before, mark_may_have_expired, slice_of
from mailmend.model.durations import LOOK_AGAIN
from mailmend.model.errors import BadPayload, BlobMissing, BrokerUnreachable, MailmendError
from mailmend.model.ids import EnqueueId
from mailmend.repair.clock import SKEW_SECONDS

FRESH: Final = timedelta(seconds=1)
"""How old a look may be when its mail is handed over; what waited longer for its consumer is looked up again."""

SECOND_LOOK_SECONDS: Final = 10.0
"""After how long the row of a mail from James is looked for again: James writes it while it publishes."""

_SKEW: Final = timedelta(seconds=SKEW_SECONDS)
_MICRO: Final = timedelta(microseconds=1)

ANCHORED_AFTER: Final = timedelta(seconds=1)
"""How long a mail is in hand before a row of its backlog takes the place of the broker's message,
where many are."""

ANCHORED_AT_LAST: Final = timedelta(minutes=5)
"""How long a mail is in hand before that is done anyhow: RabbitMQ takes back what is unacked for 30 minutes."""

_LOG: Final = logging.getLogger("mailmend.queue")


class DeliveryLookup:
    """Looks up the deliveries of one consumer.

    Args:
        room: for contents; what is found takes room until it is let go.
    """

    def __init__(self, parts: Parts, room: ContentRoom | None = None) -> None:
        self._parts = parts
        self._queue = parts.queue
        self._view = parts.view
        self._room = room or ContentRoom()
        marks = parts.view.marks
        self._marks = MarkLookups(partial(marks.there, parts.queue), partial(marks.among, parts.queue))

    async def close(self) -> None:
        await self._marks.close()

    async def look(self, queued: QueuedMail, delivery: Delivery) -> LookedUp:
        """What is found of the mail. Raises only when cancelled: a missing answer is part of the result."""
        try:
            return await self._look(queued, delivery)
        except MailmendError as error:
            return LookedUp(queued, silence=error.what)
        except Exception as error:  # noqa: BLE001 - no single mail ends the stream
            _LOG.exception("a mail could not be looked up", extra={"queue": self._queue, "mail": queued.enqueue_id})
            return LookedUp(queued, silence=type(error).__name__)

    async def marked(self, queued: QueuedMail) -> bool:
        return await self._marks.marked(queued.enqueue_id)

    async def _look(self, queued: QueuedMail, delivery: Delivery) -> LookedUp:
        if await self.marked(queued):
            return LookedUp(queued, marked=True)
        loading = asyncio.ensure_future(self._content(queued.blobs))
        try:
            row = await self._row(queued, delivery)
            content = await loading
        except BaseException:
            loading.cancel()
            (loaded,) = await asyncio.gather(loading, return_exceptions=True)
            held = 0
            if isinstance(loaded, bytes):
                held = len(loaded)
            self._room.let_go(held)
            raise
        marked = False
        if content is None:
            marked = await self.marked(queued)
        return LookedUp(queued, marked, row, content)

    async def _content(self, blobs: MailBlobs) -> bytes | None:
        try:
            return await self._room.loaded(self._parts.blobs, blobs)
        except (BlobMissing, BadPayload):  # what is no id of a blob names none
            return None

    async def _row(self, queued: QueuedMail, delivery: Delivery) -> RowState:
        """A dead letter's row was removed, so a missing one means nothing."""
        if delivery.dead_lettered:
            return RowState.EXPECTED
        slice_start = slice_of_message(delivery.message)
        since = slice_start
        if since is None:
            since = queued.mail.last_updated or EPOCH
        if not await self._is_missing(queued, slice_start, since):
            return RowState.EXPECTED
        lapsed = (await self._view.starts.state(self._queue)).lapsed_before
        if lapsed is not None and since < lapsed:
            return RowState.LAPSED
        return RowState.GONE

    async def _is_missing(self, queued: QueuedMail, slice_start: datetime | None, since: datetime) -> bool:
        """Whether the row is missing, and that means the mail has left.

        Args:
            queued: the mail, which is not marked.
            slice_start: that its delivery names; None: James has published it.
            since: when it was last changed, or its slice began.
        """
        old = mark_may_have_expired(since, self._parts.now, timedelta(seconds=self._view.own.mark_ttl_seconds))
        if slice_start is None:
            return old and await self._is_nowhere(queued)
        if await self._is_over(slice_start, old=old):
            return not await self._view.rows.has_row(self._queue, slice_start, queued)
        return False

    async def _is_over(self, slice_start: datetime, *, old: bool) -> bool:
        """Whether a missing row has a meaning. A slice that has not ended is not before the browse start."""
        if slice_start + self._parts.slicing.window > self._parts.now + _SKEW:
            return False
        return old or gone_before(slice_start, await self._view.browse_start(self._queue))

    async def _is_nowhere(self, queued: QueuedMail) -> bool:
        """Whether no live slice holds the row of a mail whose message names none: reads twice."""
        if await self._view.rows.slice_with(self._queue, queued) is not None:
            return False
        await self._parts.clock.pause(SECOND_LOOK_SECONDS)
        return await self._view.rows.slice_with(self._queue, queued) is None


@asynccontextmanager
async def dequeue(  # noqa: PLR0917 - a consumer's settings, as the port has them
    parts: Parts,
    unacked: Unacked,
    prefetch: int,
    priorities: Collection[int] | None,
    bytes_max: int | None = None,
    sub_queue_of: SubQueueOf | None = None,
    consumers: set[ConsumerBacklogs] | None = None,
) -> AsyncGenerator[AsyncIterator[UnackedMail]]:
    """The mails, as they are ready. Unsettled mails are delivered again after the context.

    Its backlogs are among `consumers` meanwhile.
    """
    lost = partial(parts.counts.add, QueueCount.CONSUMER_LOST, parts.queue)
    async with parts.broker.deliveries(parts.queue, prefetch, priorities, lost) as deliveries:
        stream = _Stream(parts, unacked, ContentRoom(bytes_max), prefetch, sub_queue_of)
        works = (stream.feed(deliveries), stream.tend())
        working = [asyncio.ensure_future(work) for work in works]
        if consumers is not None and stream.backlogs is not None:
            consumers.add(stream.backlogs)
        try:
            yield stream
        finally:
            if consumers is not None and stream.backlogs is not None:
                consumers.discard(stream.backlogs)
            await cancelled(working)
            await stream.end()


class _Stream:
    """One consumer's mails."""

    def __init__(
        self,
        parts: Parts,
        unacked: Unacked,
        room: ContentRoom,
        prefetch: int,
        sub_queue_of: SubQueueOf | None,
    ) -> None:
        self._parts = parts
        self._unacked = unacked
        self._room = room
        self._prefetch = prefetch
        self.backlogs: ConsumerBacklogs | None = None
        if sub_queue_of is not None and parts.backlogs is not None:
            tables = parts.backlogs
            take = self._fetched
            self.backlogs = ConsumerBacklogs(parts, tables, sub_queue_of, prefetch, take)
        self._lookup = DeliveryLookup(parts, room)
        self._ready: Drain[UnackedMail] = Drain()
        self._takings = Takings(parts.queue)
        self._own: set[EnqueueId] = set()
        self._foreign_since: datetime | None = None

    def __aiter__(self) -> AsyncIterator[UnackedMail]:
        return self

    async def __anext__(self) -> UnackedMail:
        while True:
            mail = await anext(self._ready)
            if await self._still_waits(mail):
                self._parts.counts.add(QueueCount.DELIVERED, self._parts.queue)
                return mail

    async def feed(self, deliveries: AsyncIterator[Delivery]) -> None:
        """Look every delivery up, each in its own task; the broker's prefetch bounds their number."""
        try:
            async for delivery in deliveries:
                self._takings.begin(self._came(delivery))
            await self._takings.wait()
            self._ready.fail(StopAsyncIteration())
        except Exception as error:  # noqa: BLE001 - whoever asks for the next mail gets it
            self._ready.fail(error)

    async def end(self) -> None:
        """Release unsettled mails; the broker delivers them again."""
        if self.backlogs is not None:
            await self.backlogs.close()
        await self._takings.cancel()
        await self._lookup.close()
        for enqueue_id in tuple(self._own):
            self._settled(enqueue_id)

    async def tend(self) -> None:
        """Show that this process is there, tend its backlogs, and anchor mails, until cancelled."""
        backlogs = self.backlogs
        if backlogs is None:
            return
        jobs = (
            BackgroundJob("showing that backlogs have an owner", backlogs.show, SHOWN_EVERY),
            BackgroundJob("tending backlogs", backlogs.tend, TENDED_EVERY),
            BackgroundJob("anchoring mails", partial(self._anchor_old, backlogs), ANCHORED_AFTER),
        )
        await run_jobs(self._parts.queue, self._parts.clock, asyncio.Event(), jobs)

    async def _anchor_old(self, backlogs: ConsumerBacklogs) -> None:
        """Anchor mails that wait for long: soon where they take half of the prefetch."""
        of_level: dict[int, list[UnackedMail]] = {}
        for enqueue_id in self._own:
            mail = self._unacked[enqueue_id]
            if mail.takes_prefetch:
                of_level.setdefault(mail.delivery.priority, []).append(mail)
        now = self._parts.clock.monotonic()
        for mails in of_level.values():
            wait = ANCHORED_AT_LAST
            if 2 * len(mails) > self._prefetch:
                wait = ANCHORED_AFTER
            for mail in mails:
                if mail.came_at + wait.total_seconds() <= now and mail.sub_queue is not None:
                    mail.anchor(backlogs, mail.sub_queue)

    async def _came(self, delivery: Delivery) -> None:
        """A delivery of the broker."""
        queued = await self._read(delivery)
        if queued is None:
            return
        backlogs = self.backlogs
        if backlogs is None:
            await self._take(queued, delivery, None)
            return
        name = backlogs.sub_queue_of(queued)
        begun = self._parts.clock.monotonic()
        for tries in count(1):
            try:
                admitted = await backlogs.admits(name, delivery)
                break
            except MailmendError as error:
                if self._parts.clock.monotonic() - begun >= HOLD.total_seconds():
                    silent = LookedUp(queued, silence=error.what)
                    await self._treat(DeliveryVerdict.LATER, silent, delivery)
                    return
            await self._parts.clock.pause(LOOK_AGAIN.wait(tries).total_seconds())
        if admitted:
            await self._take(queued, delivery, name)

    def _fetched(self, delivery: Delivery, name: SubQueueName) -> None:
        """A delivery of a backlog."""
        self._takings.begin(self._take_fetched(delivery, name))

    async def _take_fetched(self, delivery: Delivery, name: SubQueueName) -> None:
        queued = None
        try:
            queued = await self._read(delivery)
        finally:
            if queued is None:
                self._left(name)
        if queued is not None:
            await self._take(queued, delivery, name)

    async def _read(self, delivery: Delivery) -> QueuedMail | None:
        """The mail of a delivery; None where the message was no mail, and was treated."""
        try:
            return queued_of(delivery.message.body)
        except BadPayload as error:
            await self._treat(DeliveryVerdict.BAD, LookedUp(None, silence=error.what), delivery)
            return None

    async def _take(
        self,
        queued: QueuedMail,
        delivery: Delivery,
        name: SubQueueName | None,
    ) -> None:
        while first := self._unacked.get(queued.enqueue_id):
            delivery = await self._anchored_copy(delivery, name)
            if await _comes_again(first, delivery):
                await self._treat(DeliveryVerdict.DELAYED, LookedUp(queued), delivery)
                self._left(name)
                return
        on_settled = partial(self._settled, queued.enqueue_id)
        mail = UnackedMail(self._parts, delivery, queued, on_settled, name)
        self._unacked[queued.enqueue_id] = mail
        self._own.add(queued.enqueue_id)
        verdict = DeliveryVerdict.LATER
        try:
            verdict = await self._judged(mail)
        finally:
            if verdict is not DeliveryVerdict.DELIVER:
                self._settled(queued.enqueue_id)

    async def _judged(self, mail: UnackedMail) -> DeliveryVerdict:
        """Look up until everything has answered, or the delivery is to be requeued; the verdict carried out."""
        begun = self._parts.clock.monotonic()
        for tries in count(1):
            mail.looked_at = self._parts.clock.monotonic()
            found = await self._lookup.look(mail.queued, mail.delivery)
            verdict = verdict_of(found)
            if verdict is not DeliveryVerdict.DELIVER:
                self._room.let_go(len(found.content or b""))
            if verdict is not DeliveryVerdict.LATER or mail.looked_at - begun >= HOLD.total_seconds():
                break
            await self._parts.clock.pause(LOOK_AGAIN.wait(tries).total_seconds())
        if verdict is DeliveryVerdict.DELIVER:
            mail.content = found.content or b""
            mail.is_ready = True
            self._ready.put(mail.delivery.priority, mail)
            await self._note_foreign(mail)
        else:
            await self._treat(verdict, found, mail.delivery)
        return verdict

    async def _treat(self, verdict: DeliveryVerdict, found: LookedUp, delivery: Delivery) -> None:
        queue = self._parts.queue
        if verdict.log:
            fields = {"queue": queue, "mail": found.enqueue_id, "error": found.silence or None}
            _LOG.warning("a mail %s", verdict.log, extra=fields)
        self._parts.counts.add(verdict.count, queue)
        sent = await self._tell(delivery, verdict.settling)
        if verdict.takes_row and found.queued and sent:
            await row_taken_back(self._parts, found.queued, slice_of_message(delivery.message))
        if verdict.forgets_blobs and found.queued:
            await self._parts.blob_cleanup.add(found.queued.blobs, dequeued=False)

    async def _tell(self, delivery: Delivery, settling: Settling) -> bool:
        """Whether the broker got it; if it is gone it delivers again, and all is looked up anew."""
        try:
            await _TELLING[settling](delivery)
        except BrokerUnreachable as error:
            _LOG.info("the broker does not know of it", extra={"queue": self._parts.queue, "error": error.what})
            return False
        return True

    async def _note_foreign(self, mail: UnackedMail) -> None:
        """Log once per slice that another program enqueues here: its mails are in no tally."""
        now = slice_of(self._parts.now, self._parts.slicing.window)
        if mail.slice_start is None and self._foreign_since != now:
            self._foreign_since = now
            await self._parts.background.add(lambda: self._parts.view.foreign(self._parts.queue))

    async def _anchored_copy(self, delivery: Delivery, name: SubQueueName | None) -> Delivery:
        """A copy that waits for the first one takes no part of the prefetch, for however long."""
        if self.backlogs is None or name is None or isinstance(delivery, BacklogDelivery):
            return delivery
        try:
            return await self.backlogs.keep(name, delivery, in_hand=True)
        except MailmendError:
            return delivery

    def _settled(self, enqueue_id: EnqueueId) -> None:
        if enqueue_id in self._own:
            self._own.discard(enqueue_id)
            mail = self._unacked.pop(enqueue_id)
            self._room.let_go(len(mail.content))
            mail.settled.set()
            self._left(mail.sub_queue)

    def _left(self, name: SubQueueName | None) -> None:
        """A mail that was counted by this sub-queue is in hand no more."""
        if self.backlogs is not None and name is not None:
            self.backlogs.leave(name)

    async def _still_waits(self, mail: UnackedMail) -> bool:
        """Whether the mail may be handed over; it may have been deleted while it waited."""
        if self._parts.clock.monotonic() - mail.looked_at <= FRESH.total_seconds():
            return True
        try:
            marked = await self._lookup.marked(mail.queued)
        except MailmendError:
            return True  # it waited when it was looked up; whether it can be marked, its ack will show
        except asyncio.CancelledError:
            self._ready.put(mail.delivery.priority, mail)
            raise
        if marked:
            await finished(self._filtered(mail))
        return not marked

    async def _filtered(self, mail: UnackedMail) -> None:
        delivery = await mail.released()
        self._settled(mail.enqueue_id)
        await self._treat(DeliveryVerdict.FILTERED, LookedUp(mail.queued), delivery)


async def _comes_again(first: UnackedMail, delivery: Delivery) -> bool:
    """Whether the mail of a second copy was delayed, known once its first copy is settled.

    A publish that was repeated, or a connection that was lost, brings a mail twice; its consumer need not work twice
    for that. A copy of the same try as one that is delayed by now is not needed; a later try is.

    However long that takes: until then the copy takes one of its own consumer's `prefetch` where no
    backlogs are kept, for the worse is a mail that is sent twice. It holds up no consumer for ever,
    as the first is settled or goes back with its consumer.
    """
    await first.settled.wait()
    return first.is_delayed and attempts_of(delivery.message) == first.attempts


_TELLING: Final[Mapping[Settling, Callable[[Delivery], Awaitable[None]]]] = {
    Settling.ACK: lambda delivery: delivery.ack(),
    Settling.REQUEUE: lambda delivery: delivery.requeue(),
    Settling.DEAD_LETTER: lambda delivery: delivery.dead_letter(),
}
