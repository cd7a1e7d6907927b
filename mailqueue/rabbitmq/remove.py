"""Deleting and purging: each matching mail leaves the queue by its mark, and its blobs are deleted.

What listing shows is taken in batches, so a purge needs no more memory than one of them. A mark hides its mail from
every delivery that is still to come, so the broker is not asked at all. Of a delayed mail the row goes first and the
mark follows: a mark may expire before a far due time, a row that is gone cannot come back.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from mailmend.mailqueue.concurrency import all_of, in_batches
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import OnRemoved, Removed, Unremoved
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMail
from mailmend.mailqueue.rules.filters import MailFilter
from mailmend.mailqueue.rules.mails import LOOKS, Listed, MailBlobs, Whereabouts
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId

AT_ONCE: Final = 500
"""How many mails are marked together."""

FAILURES_MAX: Final = 1_000
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
    async with aclosing(_batches(parts, where, LOOKS[:2] if dry_run else LOOKS)) as batches:
        async for batch in batches:
            some = [meant for meant in batch if meant.enqueue_id not in failed]
            if on_removed is not None:
                await all_of(some, lambda one: _call(on_removed, one.listed), CALLED_AT_ONCE)
            failures = [] if dry_run else await _removed(parts, some)
            count += len(some) - len(failures)
            failed |= {failure.enqueue_id: failure for failure in failures}
            if len(failed) >= FAILURES_MAX:
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
        meant = _delayed(parts, where) if look is Whereabouts.DELAYED else _waiting(parts, where)
        async with aclosing(meant), aclosing(in_batches(meant, AT_ONCE)) as batches:
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
    for meant, error in zip(left, await parts.view.mark_all(parts.queue, marks), strict=True):
        if error is not None:
            failures[meant.enqueue_id] = error.what
    await _forgotten(parts, [meant.listed.queued.blobs for meant in left if meant.enqueue_id not in failures])
    return [Unremoved(enqueue_id, why) for enqueue_id, why in failures.items()]


async def _call(on_removed: OnRemoved, listed: Listed) -> None:
    await on_removed(listed)


async def _rows_gone(parts: Parts, delayed: Sequence[_Meant]) -> dict[EnqueueId, str]:
    if parts.view.due is None or not delayed:
        return {}
    errors = await parts.view.due.remove_all(parts.queue, [meant.due for meant in delayed if meant.due])
    return {meant.enqueue_id: error.what for meant, error in zip(delayed, errors, strict=True) if error is not None}


async def _forgotten(parts: Parts, contents: Sequence[MailBlobs]) -> None:
    """Delete their blobs; what fails is left to the sweep of their slices."""
    try:
        await parts.blobs.delete_all([blob_id for kept in contents for blob_id in (kept.header, kept.body)])
    except MailmendError as error:
        fields = {"queue": parts.queue, "mails": len(contents), "error": error.what}
        _LOG.warning("blobs of some of the removed mails are left", extra=fields)
