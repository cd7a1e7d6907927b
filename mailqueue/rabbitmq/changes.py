"""Mails that come into a queue, mails that are taken out of it, and delayed mails that change where they are.

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

*Deleting and purging*: each matching mail leaves the queue by its mark, and its blobs are deleted.
What listing shows is taken in batches, so a purge needs no more memory than one of them. A mark
hides its mail from every delivery that is still to come, so the broker is not asked at all. Of a
delayed mail the row goes first and the mark follows: a mark may expire before a far due time, a row
that is gone cannot come back.

*Changing*: envelopes of delayed mails change, and when they are due; their bytes and ids stay. The
changed row is put before the old one goes, in a turn at the old one's partition, in which nothing
moves from there. Whatever is interrupted between the two leaves two rows of one mail: it comes when
the first of them is due, and its mark, as long as it lives, drops the second. So a change that was
killed may not hold, but no mail is lost, and none is delivered twice while marks live; the same
command again completes it.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from mailmend.mailqueue.admission import admissible, admitted
from mailmend.mailqueue.blobs.stores import forget, put_content
from mailmend.mailqueue.codec import publish_mail
from mailmend.mailqueue.comparison import LiveMail
from mailmend.mailqueue.concurrency import all_of, finished, in_batches
from mailmend.mailqueue.every_queue import counted_enqueue, with_restored
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import (
    AffectedMails,
    ChangedMail,
    FailedMail,
    MailChange,
    OnRemoved,
    RemovedMail,
    RestoreResult,
)
from mailmend.mailqueue.rabbitmq.move_due import AT_ONCE, FAILURES_MAX, MoverTurns, turn_waited_for
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMail, DueMails, DuePartition
from mailmend.mailqueue.rules.mails import LOOKS, Listed, Mail, MailBlobs, MailFilter, QueuedMail, Whereabouts
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
    with counted_enqueue(parts):
        queued = QueuedMail(enqueue_id, mail, await put_content(parts.blobs, content))
        if due is None or due_at is None:
            await _deliver(parts, queued, again=again)
        else:
            await _delay(parts, due, queued, due_at, again=again)
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
    listed = Listed.entering(queued, parts.now, due_at)
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
        if removed.due_at is not None:
            _ = parts.due_mails  # where none can be delayed, that is refused before any bytes are stored
        mail = admissible(removed.mail)
        queued = QueuedMail(new, mail, await put_content(parts.blobs, removed.content))
        await put(parts, Listed.entering(queued, parts.now, removed.due_at))

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
    return QueueRestoring(parts, await listed_among(parts, with_restored(removed, parts.queue)))


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


MARKED_AT_ONCE: Final = 500
"""How many mails are marked together."""

REMOVE_FAILURES_MAX: Final = 1_000
"""The number of failures at which a removal ends: an operator has to look first, and all their names are kept."""

CALLED_AT_ONCE: Final = 32
"""For how many mails `on_removed` runs at once: the keeper of removed mails reads their bytes."""


@dataclass(frozen=True, slots=True)
class _Meant:
    """A mail to be removed; `due` where it is delayed."""

    listed: Listed
    due: DueMail | None = None

    @property
    def enqueue_id(self) -> EnqueueId:
        return self.listed.queued.enqueue_id


async def remove(parts: Parts, where: MailFilter, on_removed: OnRemoved | None, *, dry_run: bool) -> AffectedMails:
    """Remove matching mails; stops after too many failures, or where `on_removed` raises: none of that batch goes.

    A dry run calls `on_removed` too, and removes nothing.
    """
    count = 0
    failed = dict[EnqueueId, FailedMail]()
    looks: Sequence[Whereabouts] = LOOKS
    if dry_run:
        looks = LOOKS[:2]
    async with aclosing(_batches(parts, where, looks)) as batches:
        async for batch in batches:
            some = [meant for meant in batch if meant.enqueue_id not in failed]
            if on_removed is not None:
                await all_of(some, lambda one: _call(on_removed, one.listed), CALLED_AT_ONCE)
            failures: list[FailedMail] = []
            if not dry_run:
                failures = await _removed(parts, some)
            count += len(some) - len(failures)
            for failure in failures:
                failed[failure.enqueue_id] = failure
            if len(failed) >= REMOVE_FAILURES_MAX:
                break
    if count and not dry_run:
        parts.counts.add(QueueCount.REMOVED, parts.queue, count)
        await parts.maybe_sweep()
    return AffectedMails(count, tuple(failed.values()))


async def _batches(parts: Parts, where: MailFilter, looks: Sequence[Whereabouts]) -> AsyncGenerator[list[_Meant]]:
    """The matching mails; one both delayed and waiting is already marked when it comes again."""
    for look in looks:
        if where.whereabouts not in {None, look}:
            continue
        if look is Whereabouts.DELAYED:
            meant = _delayed(parts, where)
        else:
            meant = _waiting(parts, where)
        async with aclosing(meant), aclosing(in_batches(meant, MARKED_AT_ONCE)) as batches:
            async for batch in batches:
                yield batch


async def _waiting(parts: Parts, where: MailFilter) -> AsyncGenerator[_Meant]:
    async for listed in parts.view.browse(parts.queue, where, include_delayed=False):
        yield _Meant(listed)


async def _delayed(parts: Parts, where: MailFilter) -> AsyncGenerator[_Meant]:
    if parts.view.due is None:
        return
    async with aclosing(parts.view.due.mails(parts.queue)) as mails:
        async for due in mails:
            if where.matches(due.listed):
                yield _Meant(due.listed, due)


async def _removed(parts: Parts, some: Sequence[_Meant]) -> list[FailedMail]:
    """Remove them; those that failed."""
    failures = await _rows_gone(parts, [meant for meant in some if meant.due])
    left = [meant for meant in some if meant.enqueue_id not in failures]
    marks = [(meant.enqueue_id, meant.listed.slice_start) for meant in left]
    errors = await parts.view.mark_all(parts.queue, marks)
    for meant, error in zip(left, errors, strict=True):
        if error is not None:
            failures[meant.enqueue_id] = error.what
    marked = [meant for meant in left if meant.enqueue_id not in failures]
    await _forgotten(parts, [meant.listed.queued.blobs for meant in marked])
    return [FailedMail(enqueue_id, why) for enqueue_id, why in failures.items()]


async def _call(callback: OnRemoved, listed: Listed) -> None:
    await callback(listed)


async def _rows_gone(parts: Parts, delayed: Sequence[_Meant]) -> dict[EnqueueId, str]:
    if parts.view.due is None or not delayed:
        return {}
    errors = await parts.view.due.remove_all(parts.queue, [meant.due for meant in delayed if meant.due])
    failures: dict[EnqueueId, str] = {}
    for meant, error in zip(delayed, errors, strict=True):
        if error is not None:
            failures[meant.enqueue_id] = error.what
    return failures


async def _forgotten(parts: Parts, contents: Sequence[MailBlobs]) -> None:
    """Delete their blobs; what fails is left to the sweep of their slices."""
    try:
        blob_ids = []
        for kept in contents:
            blob_ids += [kept.header, kept.body]
        await parts.blobs.delete_all(blob_ids)
    except MailmendError as error:
        fields = {"queue": parts.queue, "mails": len(contents), "error": error.what}
        _LOG.warning("blobs of some of the removed mails are left", extra=fields)


_MILLISECOND: Final = timedelta(milliseconds=1)
_AGAIN: Final = "Type the same again in a minute: what was changed stays changed."


@dataclass(slots=True)
class DueChange:
    """One change of the delayed mails of a queue; `on_change` and `on_changed` as in `mailqueue.queue.MailQueue`."""

    parts: Parts
    due: DueMails
    turns: MoverTurns
    change: MailChange
    on_change: OnRemoved | None
    on_changed: Callable[[Listed], None] | None
    dry_run: bool
    count: int = 0
    failed: list[FailedMail] = field(default_factory=list)

    async def carried_out(self) -> AffectedMails:
        """Change what is to be changed, partition by partition; ends after too many failures."""
        async with aclosing(self.due.partitions(self.parts.queue)) as partitions:
            async for partition in partitions:
                if len(self.failed) >= FAILURES_MAX:
                    break
                await self._changed_in(partition)
        return AffectedMails(self.count, tuple(self.failed))

    async def _changed_in(self, partition: DuePartition) -> None:
        """Nothing is waited for, and no turn taken, where nothing is to be changed."""
        mails = self.due.unmarked_under(self.parts.queue, partition)
        async with aclosing(mails), aclosing(in_batches(mails, AT_ONCE)) as batches:
            async for some in batches:
                meant = self._meant(some)
                if not meant:
                    continue
                if self.dry_run:
                    self._note([was for was, _ in meant])
                    continue
                async with turn_waited_for(self.parts, partial(self.turns.at_partition, partition), _AGAIN):
                    there = await self._still_there(partition, some)
                    await finished(self._batch_changed(self._meant(there)))
                if len(self.failed) >= FAILURES_MAX:
                    return

    def _meant(self, some: Sequence[DueMail]) -> list[tuple[DueMail, ChangedMail]]:
        meant = []
        for due in some:
            to_be = self.change(due.listed)
            if to_be:
                meant.append((due, to_be))
        return meant

    async def _still_there(self, partition: DuePartition, some: Sequence[DueMail]) -> list[DueMail]:
        """The mails that were not moved before the turn was ours."""
        first = some[0].due_at
        last = some[-1].order
        found = list[DueMail]()
        async with aclosing(self.due.under(self.parts.queue, partition, (first - _MILLISECOND,))) as mails:
            async for mail in mails:
                found.append(mail)
                if mail.order >= last:
                    break
        known = {mail.order for mail in some}
        return [mail for mail in found if mail.order in known]

    async def _batch_changed(self, meant: Sequence[tuple[DueMail, ChangedMail]]) -> None:
        if self.on_change is not None:
            on_change = self.on_change
            await all_of(meant, lambda one: _call(on_change, one[0].listed), CALLED_AT_ONCE)
        placed = await all_of(meant, lambda one: self._put(*one), AT_ONCE)
        moved = []
        for (was, _), now in zip(meant, placed, strict=True):
            if now:
                moved.append(was)
        errors = await self.due.remove_all(self.parts.queue, moved)
        for was, error in zip(moved, errors, strict=True):
            if error:
                self.failed.append(_failed(was, error))
        self._note(moved)

    async def _put(self, was: DueMail, to_be: ChangedMail) -> DueMail | None:
        """Where it lies now; None where it could not be put there, and is as it was.

        Never where it lay: by a clock behind ours a row cannot be written over, only removed.
        """
        listed = replace(was.listed, queued=replace(was.listed.queued, mail=to_be.mail), due_at=to_be.due_at)
        try:
            placed = await self.due.put(self.parts.queue, listed, again=True)
            if placed.order == was.order:
                listed = replace(listed, due_at=was.due_at + _MILLISECOND)
                placed = await self.due.put(self.parts.queue, listed, again=True)
        except MailmendError as error:
            self.failed.append(_failed(was, error))
            return None
        return placed

    def _note(self, changed: Sequence[DueMail]) -> None:
        self.count += len(changed)
        if self.on_changed is not None:
            for was in changed:
                self.on_changed(was.listed)


def _failed(was: DueMail, error: MailmendError) -> FailedMail:
    return FailedMail(was.enqueue_id, error.what)
