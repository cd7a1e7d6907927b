"""Mails that are taken out of a queue, and delayed mails that change where they are.

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
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from mailmend.mailqueue.concurrency import all_of, finished, in_batches
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import Changed, ChangedMail, MailChange, OnRemoved, Removed, Unremoved
from mailmend.mailqueue.rabbitmq.move_due import AT_ONCE, FAILURES_MAX, MoverTurns
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMail, DueMails, DuePartition
from mailmend.mailqueue.rules.filters import MailFilter
from mailmend.mailqueue.rules.mails import LOOKS, Listed, MailBlobs, Whereabouts
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId

MARKED_AT_ONCE: Final = 500
"""How many mails are marked together."""

REMOVE_FAILURES_MAX: Final = 1_000
"""The number of failures at which a removal ends: an operator has to look first, and all their names are kept."""

CALLED_AT_ONCE: Final = 32
"""For how many mails `on_removed` runs at once: the keeper of removed mails reads their bytes."""

_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class _Meant:
    """A mail to be removed; `due` where it is delayed."""

    listed: Listed
    due: DueMail | None = None

    @property
    def enqueue_id(self) -> EnqueueId:
        return self.listed.queued.enqueue_id


async def remove(parts: Parts, where: MailFilter, on_removed: OnRemoved | None, *, dry_run: bool) -> Removed:
    """Remove matching mails; stops after too many failures, or where `on_removed` raises: none of that batch goes.

    A dry run calls `on_removed` too, and removes nothing.
    """
    count = 0
    failed = dict[EnqueueId, Unremoved]()
    looks: Sequence[Whereabouts] = LOOKS
    if dry_run:
        looks = LOOKS[:2]
    async with aclosing(_batches(parts, where, looks)) as batches:
        async for batch in batches:
            some = [meant for meant in batch if meant.enqueue_id not in failed]
            if on_removed is not None:
                await all_of(some, lambda one: _call(on_removed, one.listed), CALLED_AT_ONCE)
            failures: list[Unremoved] = []
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
    return Removed(count, tuple(failed.values()))


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


async def _removed(parts: Parts, some: Sequence[_Meant]) -> list[Unremoved]:
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
    return [Unremoved(enqueue_id, why) for enqueue_id, why in failures.items()]


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
    failed: list[Unremoved] = field(default_factory=list)

    async def carried_out(self) -> Changed:
        """Change what is to be changed, partition by partition; ends after too many failures."""
        async with aclosing(self.due.partitions(self.parts.queue)) as partitions:
            async for partition in partitions:
                if len(self.failed) >= FAILURES_MAX:
                    break
                await self._changed_in(partition)
        return Changed(self.count, tuple(self.failed))

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
                async with self.turns.patiently(lambda: self.turns.at_partition(partition), _AGAIN):
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


def _failed(was: DueMail, error: MailmendError) -> Unremoved:
    return Unremoved(was.enqueue_id, error.what)
