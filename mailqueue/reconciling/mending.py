"""Mending what a comparison of a queue's sides found: only what was asked for, each step as its own value says.

What a caller wants to keep of a mail or a blob it is told of first; where keeping fails, nothing is touched.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from mailqueue.mail_queue import MailQueue
from mailqueue.ports import Blobs, StoredBlob
from mailqueue.reconciling.comparing import Mended, Reconciled, removable, republishable
from mailqueue.view.ahead import all_of
from model.errors import MailmendError
from model.ids import EnqueueId
from model.mail_filters import EVERYTHING, Where
from model.mails import Listed

AT_ONCE: Final = 16

KeepMail = Callable[[Listed], Awaitable[None]]
KeepBlob = Callable[[StoredBlob], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Who is told of each mail and each blob before it goes."""

    mail: KeepMail
    blob: KeepBlob


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to be mended.

    Attributes:
        republish: whether mails that lack their message are published again; only those older than `older_than`.
        mark: mails to be taken out of the queue.
        remove_orphans: whether blobs that nothing refers to are removed.
    """

    republish: bool = False
    older_than: timedelta = timedelta(hours=1)
    mark: frozenset[EnqueueId] = frozenset()
    remove_orphans: bool = False

    @property
    def nothing(self) -> bool:
        """Whether one only looks."""
        return not (self.republish or self.mark or self.remove_orphans)


def would_mend(found: Reconciled, wishes: Wishes) -> Mended:
    """What carrying the wishes out would come to, as far as can be known before."""
    return Mended(
        republished=_republished_count(found, wishes) if wishes.republish else 0,
        marked=wishes.mark,
        removed_blobs=len(removable(found.blobs)) if wishes.remove_orphans and found.blobs else 0,
    )


async def mended(queue: MailQueue, blobs: Blobs, found: Reconciled, wishes: Wishes, keeping: Keeping) -> Mended:
    """Carry the wishes out.

    Raises:
        CannotReach: a side does not answer; what was done stays done.
    """
    done = Mended()
    if wishes.republish:
        done = replace(done, republished=await _republished(queue, found, wishes))
    if wishes.mark:
        done = await _marked(queue, found, wishes.mark, keeping.mail, done)
    if wishes.remove_orphans and found.blobs:
        done = await _removed(blobs, removable(found.blobs), keeping.blob, done)
    return done


def _republished_count(found: Reconciled, wishes: Wishes) -> int:
    wanted = republishable(found, wishes.older_than)
    if wanted is not None:
        return len(wanted)
    edge = found.at - wishes.older_than
    return sum(one.enqueued_at < edge for one in found.tables.live.values())


async def _republished(queue: MailQueue, found: Reconciled, wishes: Wishes) -> int:
    wanted = republishable(found, wishes.older_than)
    if wanted is None:
        return await queue.republish(wishes.older_than)
    if not wanted:
        return 0
    return await queue.republish(timedelta(0), replace(EVERYTHING, enqueue_ids=wanted))


async def _marked(
    queue: MailQueue, found: Reconciled, mark: Collection[EnqueueId], keep: KeepMail, done: Mended
) -> Mended:
    live = found.tables.live
    async for listed in queue.browse(Where(enqueue_ids=frozenset(mark))):
        await keep(listed)
    broken = {row.enqueue_id: row.slice_start for row in found.tables.broken}
    mails = [(one, live[one].slice_start if one in live else broken.get(one)) for one in mark]
    errors = await queue.parts.view.mark_all(queue.name, mails)
    failed = {one: error.what for (one, _), error in zip(mails, errors, strict=True) if error}
    told = tuple(f"{one} could not be marked: {why}" for one, why in failed.items())
    return replace(done, marked=frozenset(mark) - failed.keys(), failed=(*done.failed, *told))


async def _removed(blobs: Blobs, orphans: Collection[StoredBlob], keep: KeepBlob, done: Mended) -> Mended:
    async def remove(orphan: StoredBlob) -> str | None:
        try:
            await keep(orphan)
            await blobs.delete(orphan.blob_id)
        except MailmendError as error:
            return f"the blob {orphan.blob_id} could not be removed: {error.what}"
        return None

    failed = tuple(why for why in await all_of(orphans, remove, AT_ONCE) if why)
    return replace(done, removed_blobs=len(orphans) - len(failed), failed=(*done.failed, *failed))
