"""Mails that come into a queue: new ones, removed ones that come back, and the mails of another queue.

*Enqueueing*: blobs, row, then a confirmed publish; after a failure each step is undone. The caller
hears of success only when the broker has confirmed the mail, or its row among the delayed ones is
written; of an error only when the mail is not delivered: nothing of it was published, or a mark
hides what may have been. What cannot even be undone is named in the error. Cancelled, it undoes as
after an error. A mail whose id was chosen is not undone: it may have been put before under that id,
and a mark would hide that one too. The caller puts it again. Source: James's ADR-31;
docs/design.md, "Queue".

*Restoring and moving in*: each mail comes once. The id of the new passage follows from the id of
the old one, so a restore that was killed at any step is seen by the next one. A new passage with a
mark means that the mail came back and has left since. One that is delayed is back. One that waits
is back too, but it is unknown whether its publish was confirmed: it is published again, and the
mark of the first copy drops the second. A mail that is listed under its old id never left: the
process that removed it was killed before that. What fails here is not undone: a mark would hide the
mail from the next try.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mailmend.mailqueue.blobs.stores import forget, put_content
from mailmend.mailqueue.codec import publish_mail
from mailmend.mailqueue.codec.admission import admissible, admitted
from mailmend.mailqueue.comparison import LiveMail
from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import RemovedMail, RestoreResult
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMails
from mailmend.mailqueue.rules.filters import MailFilter
from mailmend.mailqueue.rules.mails import LOOKS, Listed, Mail, MailBlobs, QueuedMail, Whereabouts
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId, restored_id

_LOG: Final = logging.getLogger("mailmend.queue")


async def enqueue(
    parts: Parts,
    mail: Mail,
    content: bytes,
    due_at: datetime | None,
    priority: int | None,
    *,
    known_as: EnqueueId | None = None,
    was_queued: bool = False,
) -> EnqueueId:
    due = None
    if due_at is not None:
        due = parts.due_mails
    mail = admitted(mail, priority, was_queued=was_queued)
    enqueue_id = known_as or EnqueueId(parts.clock.random_uuid())
    again = known_as is not None
    try:
        queued = QueuedMail(enqueue_id, mail, await put_content(parts.blobs, content))
        if due is None or due_at is None:
            await _deliver(parts, queued, again=again)
        else:
            await _delay(parts, due, queued, due_at, again=again)
    except BaseException:
        parts.counts.add(QueueCount.ENQUEUE_FAILED, parts.queue)
        raise
    parts.counts.add(QueueCount.ENQUEUED, parts.queue)
    return enqueue_id


async def _deliver(parts: Parts, queued: QueuedMail, *, again: bool) -> None:
    placement = parts.view.rows.placement(parts.queue, queued)

    async def publish(slice_start: datetime) -> None:
        await publish_mail(parts.broker, parts.queue, queued, slice_start)

    try:
        await placement.settle(beside=publish)
    except BaseException as error:
        if not again:
            await finished(_undo(parts, queued, error, placement.slice_start))
        raise


async def _delay(parts: Parts, due: DueMails, queued: QueuedMail, due_at: datetime, *, again: bool) -> None:
    """A queue of delayed mails alone needs a browse start too: only that lists it among all queues."""
    listed = Listed(queued, parts.now, Whereabouts.DELAYED, due_at=due_at)
    try:
        if parts.queue not in parts.view.starts_seen:
            await parts.view.begun(parts.queue, parts.slicing.window)
        await due.put(parts.queue, listed, again=again)
    except BaseException as error:
        if not again:
            await finished(_undo(parts, queued, error, None))
        raise


async def _undo(parts: Parts, queued: QueuedMail, error: BaseException, slice_start: datetime | None) -> None:
    """Mark the mail, then delete its blobs; they stay while it may still be delivered."""
    try:
        await parts.view.mark(parts.queue, queued.enqueue_id, slice_start)
    except MailmendError as failure:
        _left(parts, error, queued, f"its row may still be listed, and its blobs are left ({failure.what})")
        return
    try:
        await forget(parts.blobs, queued.blobs)
    except MailmendError as failure:
        _left(parts, error, queued, f"its blobs are left without a reference ({failure.what})")


def _left(parts: Parts, error: BaseException, queued: QueuedMail, left: str) -> None:
    warning = f"The mail {queued.enqueue_id} was not undone in full: {left}."
    _LOG.warning(
        "a mail was not undone in full", extra={"queue": parts.queue, "mail": queued.enqueue_id, "error": left}
    )
    if isinstance(error, MailmendError):
        error.mend = f"{warning} See: mailmend queue reconcile --queue {parts.queue}"


def return_of(*, marked: bool, back: LiveMail | None, stays: bool) -> RestoreResult:
    """What brings a mail back; its new passage outweighs the old one.

    Args:
        marked: whether its new passage is over.
        back: its new passage, as it is listed.
        stays: whether its old passage is listed.
    """
    if marked:
        return RestoreResult.NOTHING
    if back is not None and back.slice_start is None:
        return RestoreResult.NOTHING
    if back is not None:
        return RestoreResult.PUBLISH
    if stays:
        return RestoreResult.STAYS
    return RestoreResult.PUT


@dataclass(frozen=True, slots=True)
class QueueRestoring:
    """Brings mails back into one queue. Implements `mailqueue.queue.Restoring`.

    Attributes:
        listed: what the queue shows of them, under old and new ids.
    """

    parts: Parts
    listed: Mapping[EnqueueId, LiveMail]

    async def restore(self, removed: RemovedMail) -> RestoreResult:
        new = restored_id(removed.was, self.parts.queue)
        marked = await self.parts.view.marks.there(self.parts.queue, new)
        back = self.listed.get(new)
        result = return_of(marked=marked, back=back, stays=removed.was in self.listed)
        if result is RestoreResult.PUT:
            await self._put(new, removed)
        elif result is RestoreResult.PUBLISH and back is not None:
            await self._published(QueuedMail(new, removed.mail, back.blobs), back.slice_start)
        return result

    async def _put(self, new: EnqueueId, removed: RemovedMail) -> None:
        parts = self.parts
        whereabouts = Whereabouts.WAITING
        if removed.due_at is not None:
            whereabouts = Whereabouts.DELAYED
            _ = parts.due_mails  # where none can be delayed, that is refused before any bytes are stored
        mail = admissible(removed.mail)
        queued = QueuedMail(new, mail, await put_content(parts.blobs, removed.content))
        await put(parts, Listed(queued, parts.now, whereabouts, due_at=removed.due_at))

    async def _published(self, queued: QueuedMail, slice_start: datetime | None) -> None:
        await publish_mail(self.parts.broker, self.parts.queue, queued, slice_start)


async def put(parts: Parts, listed: Listed) -> None:
    """Put a mail, whose bytes are kept, where nothing of it is; what fails may be there in part, and is not undone.

    Raises:
        Delayed: it is delayed, and delays are not possible here.
    """
    name = parts.queue
    queued = listed.queued

    async def published(slice_start: datetime) -> None:
        await publish_mail(parts.broker, name, queued, slice_start, listed.attempts)

    if listed.whereabouts is Whereabouts.WAITING:
        await parts.view.rows.placement(name, queued, listed.enqueued_at).settle(beside=published)
    else:
        due = parts.due_mails
        await parts.view.begun(name, parts.slicing.window)
        await due.put(name, listed, again=True)
    parts.counts.add(QueueCount.ENQUEUED, name)


async def listed_among(parts: Parts, ids: frozenset[EnqueueId]) -> Mapping[EnqueueId, LiveMail]:
    """The ids of the mails that the queue shows: one listing for all, so that no mail is missed."""
    found = dict[EnqueueId, LiveMail]()
    if not ids:
        return found
    for whereabouts in LOOKS:
        async for listed in parts.view.browse(parts.queue, MailFilter(enqueue_ids=ids, whereabouts=whereabouts)):
            found[listed.queued.enqueue_id] = LiveMail.of(listed)
    return found


async def restoring(parts: Parts, removed: Collection[EnqueueId]) -> QueueRestoring:
    """Look for the mails in the queue before they are put back: one listing for all."""
    wanted = frozenset(removed).union(restored_id(enqueue_id, parts.queue) for enqueue_id in removed)
    return QueueRestoring(parts, await listed_among(parts, wanted))


@dataclass(frozen=True, slots=True)
class QueueArrivals:
    """Implements `mailqueue.queue.Arrivals`.

    A doubtful mail with a mark came, and has left since. One that is delayed is there. One that
    waits is published again: it is unknown whether its publish was confirmed. One that is neither
    marked nor listed never came.

    Attributes:
        there: the doubtful mails that the queue shows.
    """

    parts: Parts
    there: Mapping[EnqueueId, LiveMail]

    async def had(self, ids: Collection[EnqueueId]) -> frozenset[EnqueueId]:
        return frozenset(await self.parts.view.marks.among(self.parts.queue, list(ids)))

    async def keep(self, content: bytes) -> MailBlobs:
        return await put_content(self.parts.blobs, content)

    async def put(self, listed: Listed, *, again: bool = False) -> None:
        parts = self.parts
        queued = listed.queued
        back = None
        result = RestoreResult.PUT
        if again:
            back = self.there.get(queued.enqueue_id)
            marked = await parts.view.marks.there(parts.queue, queued.enqueue_id)
            result = return_of(marked=marked, back=back, stays=False)
        if result is RestoreResult.PUT:
            await put(parts, listed)
        elif result is RestoreResult.PUBLISH and back is not None:
            await publish_mail(parts.broker, parts.queue, queued, back.slice_start, listed.attempts)

    async def end(self) -> None:
        """Nothing is kept in addition to the mails."""


async def arrivals(parts: Parts, doubtful: Collection[EnqueueId]) -> QueueArrivals:
    return QueueArrivals(parts, await listed_among(parts, frozenset(doubtful)))
