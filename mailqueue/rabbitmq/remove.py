"""Deleting and purging: every mail that is meant leaves the queue by its mark, and its bytes go.

What listing shows is taken in batches, so a purge needs no more memory than one of them. A mark hides its mail from
every delivery that is still to come, so the broker is not asked at all. Of a delayed mail the row goes first and the
mark follows: a mark may expire before a far due time, a row that is gone cannot come back.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from mailqueue.concurrency import all_of, in_batches
from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.parts import Parts, Removed, Unremoved
from mailqueue.rabbitmq.view.due_mails import DueMail
from model.errors import MailmendError
from model.ids import EnqueueId, QueueName
from model.queue.filters import MailFilter
from model.queue.mails import LOOKS, Listed, MailBlobs, Whereabouts

AT_ONCE: Final = 500
"""How many mails are marked together."""

FAILURES_MAX: Final = 1_000
"""After so many failures a removal ends: somebody has to look first, and the names of them all are kept."""

TOLD_AT_ONCE: Final = 32
"""Of how many mails whoever keeps them reads the bytes at once."""

OnRemoved = Callable[[Listed], Awaitable[None]]
"""Told of each mail before it is marked: whoever keeps what is deleted keeps it then."""

_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class _Meant:
    """A mail to be removed; `due` where it is delayed."""

    listed: Listed
    due: DueMail | None = None

    @property
    def enqueue_id(self) -> EnqueueId:
        return self.listed.queued.enqueue_id


@dataclass(frozen=True, slots=True)
class Removing:
    """Removes mails of one queue."""

    queue: QueueName
    parts: Parts

    async def remove(self, where: MailFilter, on_removed: OnRemoved | None, *, dry_run: bool) -> Removed:
        """Remove what is meant; stops after too many failures.

        Raises:
            CannotReach: the listing broke off; what was removed stays removed.
        """
        count, failed = 0, dict[EnqueueId, Unremoved]()
        async with aclosing(self._batches(where, LOOKS[:2] if dry_run else LOOKS)) as batches:
            async for batch in batches:
                some = [one for one in batch if one.enqueue_id not in failed]
                failures = [] if dry_run else await self._removed(some, on_removed)
                count += len(some) - len(failures)
                failed |= {one.enqueue_id: one for one in failures}
                if len(failed) >= FAILURES_MAX:
                    break
        if count and not dry_run:
            self.parts.counts.add(QueueCount.REMOVED, self.queue, count)
            await self.parts.sweeper.maybe(self.queue)
        return Removed(count, tuple(failed.values()))

    async def _batches(self, where: MailFilter, looks: Sequence[Whereabouts]) -> AsyncGenerator[list[_Meant]]:
        """What is meant; one that is both delayed and waiting is marked by the time that it comes again."""
        for look in looks:
            if where.whereabouts not in {None, look}:
                continue
            meant = self._delayed(where) if look is Whereabouts.DELAYED else self._waiting(where)
            async with aclosing(meant), aclosing(in_batches(meant, AT_ONCE)) as batches:
                async for batch in batches:
                    yield batch

    async def _waiting(self, where: MailFilter) -> AsyncGenerator[_Meant]:
        async for listed in self.parts.view.browse(self.queue, where, include_delayed=False):
            yield _Meant(listed)

    async def _delayed(self, where: MailFilter) -> AsyncGenerator[_Meant]:
        if self.parts.due is None:
            return
        async with aclosing(self.parts.due.mails(self.queue)) as mails:
            async for due in mails:
                if where.matches(due.listed):
                    yield _Meant(due.listed, due)

    async def _removed(self, some: Sequence[_Meant], on_removed: OnRemoved | None) -> list[Unremoved]:
        """Remove them; those that could not be."""
        if on_removed is not None:
            await _told(some, on_removed)
        failures = await self._rows_gone([one for one in some if one.due])
        left = [one for one in some if one.enqueue_id not in failures]
        marks = [(one.enqueue_id, one.listed.slice_start) for one in left]
        for one, error in zip(left, await self.parts.view.mark_all(self.queue, marks), strict=True):
            if error is not None:
                failures[one.enqueue_id] = error.what
        await self._forgotten([one.listed.queued.blobs for one in left if one.enqueue_id not in failures])
        return [Unremoved(enqueue_id, why) for enqueue_id, why in failures.items()]

    async def _rows_gone(self, delayed: Sequence[_Meant]) -> dict[EnqueueId, str]:
        """Remove the rows of delayed mails; why some are left."""
        due = self.parts.due
        if due is None or not delayed:
            return {}
        errors = await due.remove_all(self.queue, [one.due for one in delayed if one.due])
        return {one.enqueue_id: error.what for one, error in zip(delayed, errors, strict=True) if error is not None}

    async def _forgotten(self, contents: Sequence[MailBlobs]) -> None:
        """Their bytes go; what cannot be deleted now is left to the sweep of their slices."""
        try:
            await self.parts.blobs.delete_all([one for kept in contents for one in (kept.header, kept.body)])
        except MailmendError as error:
            _LOG.warning(
                "queue %s: blobs of some of %d removed mails are left: %s", self.queue, len(contents), error.what
            )


async def _told(some: Sequence[_Meant], on_removed: OnRemoved) -> None:
    """Tell of all of them, some at once; the first failure is everybody's: then none of them is removed."""

    async def tell(one: _Meant) -> None:
        await on_removed(one.listed)

    await all_of(some, tell, TOLD_AT_ONCE)
