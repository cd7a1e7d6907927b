"""Repairs what a comparison of a queue's sides found, and only what the request asks for.

Each mail or row goes to `keeping` before it is removed; if that fails, nothing is changed. Killed at any step,
the same request can run again: something may be kept twice, and is never removed unkept.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from mailmend.mailqueue.codec import BrokenRow
from mailmend.mailqueue.comparison import Mended, Reconciled, republishable
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.redrive import republish
from mailmend.mailqueue.rabbitmq.remove import remove
from mailmend.mailqueue.rules.filters import EVERYTHING, MailFilter
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.operations import Read
from mailmend.model.table import Key, Row

LISTINGS: Final = 2
"""How often mails that are to be marked are looked for: one that becomes due meanwhile may slip past the first time."""

KeepMail = Callable[[Listed], Awaitable[None]]
KeepRow = Callable[[Row], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Callbacks for each mail and each unreadable row before it is removed."""

    mail: KeepMail
    row: KeepRow


@dataclass(frozen=True, slots=True)
class MendRequest:
    """What to repair.

    Attributes:
        republish: whether mails that lack their message are published again; only those older than `older_than`.
    """

    republish: bool = False
    older_than: timedelta = timedelta(hours=1)
    mark: frozenset[EnqueueId] = frozenset()

    @property
    def nothing(self) -> bool:
        return not (self.republish or self.mark)


async def mended(
    parts: Parts, found: Reconciled, request: MendRequest, keeping: Keeping, *, dry_run: bool = False
) -> Mended:
    """Mend what is asked for; a dry run looks for the same mails, and neither keeps nor writes any."""
    done = Mended()
    if request.republish:
        done = replace(done, republished=await _republished(parts, found, request, dry_run=dry_run))
    if request.mark:
        keeping = Keeping(_left, _left) if dry_run else keeping
        done = await _marked(parts, found, request.mark, keeping, done, dry_run=dry_run)
    return done


async def _left(_: object) -> None:
    """Keep nothing of what stays."""


async def _republished(parts: Parts, found: Reconciled, request: MendRequest, *, dry_run: bool) -> int:
    wanted = republishable(found, request.older_than)
    if wanted is None:
        return await republish(parts, request.older_than, EVERYTHING, dry_run=dry_run)
    if not wanted:
        return 0
    return await republish(parts, timedelta(0), MailFilter(enqueue_ids=wanted), dry_run=dry_run)


async def _marked(
    parts: Parts, found: Reconciled, mark: frozenset[EnqueueId], keeping: Keeping, done: Mended, *, dry_run: bool
) -> Mended:
    """Remove listed mails as `delete` does; keep what is known of the others, then mark them.

    A mail that is marked already was removed and kept before.
    """
    listed = set[EnqueueId]()

    async def keep(one: Listed) -> None:
        listed.add(one.queued.enqueue_id)
        await keeping.mail(one)

    failed = dict[EnqueueId, str]()
    for _ in range(LISTINGS):
        if unlisted := mark - listed:
            removed = await remove(parts, MailFilter(enqueue_ids=unlisted), keep, dry_run=dry_run)
            failed |= {unremoved.enqueue_id: unremoved.why for unremoved in removed.failed}
    unlisted = mark - listed
    here = unlisted - await parts.view.marks.among(parts.queue, unlisted)
    unkept = here - await _kept_unlisted(parts, found, here, keeping)
    if not dry_run:
        failed |= await _marked_unlisted(parts, found, unlisted)
    refused = tuple(f"{enqueue_id} could not be marked: {why}" for enqueue_id, why in failed.items())
    return replace(done, marked=mark - failed.keys(), unkept=unkept - failed.keys(), failed=(*done.failed, *refused))


async def _kept_unlisted(
    parts: Parts, found: Reconciled, unlisted: Collection[EnqueueId], keeping: Keeping
) -> set[EnqueueId]:
    """Keep unreadable rows, and mails that only a message tells of; the ids that were kept."""
    kept = set[EnqueueId]()
    for row in found.tables.broken:
        if row.enqueue_id in unlisted:
            for seen in await parts.tables.read(Read(ENQUEUED_MAILS, _key(parts.queue, row))):
                await keeping.row(seen.row)
                kept.add(row.enqueue_id)
    mails = found.drained.mails if found.drained else {}
    for enqueue_id in mails.keys() & unlisted:
        await keeping.mail(Listed(mails[enqueue_id], mails[enqueue_id].mail.last_updated or found.at))
        kept.add(enqueue_id)
    return kept


async def _marked_unlisted(parts: Parts, found: Reconciled, unlisted: Collection[EnqueueId]) -> Mapping[EnqueueId, str]:
    broken = {row.enqueue_id: row.slice_start for row in found.tables.broken}
    mails = [(enqueue_id, broken.get(enqueue_id)) for enqueue_id in unlisted]
    errors = await parts.view.mark_all(parts.queue, mails)
    return {enqueue_id: error.what for (enqueue_id, _), error in zip(mails, errors, strict=True) if error}


def _key(queue: QueueName, row: BrokenRow) -> Key:
    return (queue, row.slice_start, row.bucket, row.enqueue_id)
