"""Reads a queue's three sides, publishes again what the broker has lost, puts dead letters back, and mends.

*Reading* stops no traffic and writes nothing; `comparison` compares.
Delayed mails are read before those that wait, so that none slips past on its way into the queue.

*Publishing again*: what is published again keeps its id. If the broker still has the first message,
the second to arrive finds the mark of the first.

*Dead letters* go back into their queue: by their rows if they have any, else with new rows; marked
ones are dropped, and recipients that have the mail are left out. A dead letter is acked only when
its mail has a message again, or is delayed, so a crash leaves it twice, never nowhere; the second
copy is dropped by the mark of the first. Consumers go on meanwhile, and may reject the mail once
more: so what the listing showed at first is looked at again when its turn comes. The blobs of a
marked mail are deleted before its dead letter is acked: nothing else refers to them, so a crash in
between leaves the dead letter that does.

*Mending* repairs what a comparison of a queue's sides found, and only what the request asks for.
Each mail or row goes to `keeping` before it is removed; if that fails, nothing is changed. Killed
at any step, the same request can run again: something may be kept twice, and is never removed
unkept.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from mailmend.mailqueue.broker import Broker, Delivery, Depth
from mailmend.mailqueue.codec import BrokenRow, publish_mail, queued_of, read_row
from mailmend.mailqueue.comparison import (
    DRAIN_MAX,
    Drained,
    LiveMail,
    Mended,
    Reconciled,
    Redriven,
    TablesSide,
    refuse_burying,
    republishable,
)
from mailmend.mailqueue.concurrency import in_batches
from mailmend.mailqueue.every_queue import missing_among
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import DELAYED, IDS_MAX, LackingMail, all_lack_it, refuse_too_many
from mailmend.mailqueue.rabbitmq.changes import remove
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.backlog_tables import BacklogTables
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules.blob_ids import is_deduplicated
from mailmend.mailqueue.rules.mails import EVERYTHING, Listed, MailBlobs, MailFilter, QueuedMail, Whereabouts
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import BadPayload
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.instants import instant_of
from mailmend.model.operations import Level, Read, Scan
from mailmend.model.ports import Clock
from mailmend.model.table import Key, Row

PATIENCE_SECONDS: Final = 5.0
"""How long a drain waits for one more message that the broker has counted."""

LAST_LOOK_SECONDS: Final = 0.3
"""How many seconds a drain waits for a message that may have come since the broker counted."""


async def tables_side(view: QueueView, queue: QueueName, ids_max: int = IDS_MAX) -> TablesSide:
    """Waiting rows with and without marks, rows that cannot be read, and delayed mails.

    Too many rows are refused; delayed mails beyond the limit are only counted. Backlogs are read first:
    a mail that leaves its backlog later is known, and one that comes later was still at the broker.
    """
    in_backlogs: frozenset[EnqueueId] = frozenset()
    if view.own.backlogs:
        in_backlogs = await BacklogTables(view.tables, view.clock, queue).ids(ids_max)
    mails = dict[EnqueueId, LiveMail]()
    broken = dict[EnqueueId, BrokenRow]()
    delayed = set[EnqueueId]()
    beyond = 0
    async for listed in view.browse(queue, DELAYED):
        if len(delayed) < ids_max:
            delayed.add(listed.queued.enqueue_id)
        else:
            beyond += 1
    async with aclosing(_rows(view, queue)) as rows:
        async for row in rows:
            refuse_too_many(len(mails) + len(broken) + 1, f"rows in the live slices of {queue}", ids_max)
            read = read_row(row)
            if isinstance(read, BrokenRow):
                broken[read.enqueue_id] = read
            else:
                mails[read.queued.enqueue_id] = LiveMail.of(read)
    marked = frozenset(await view.marks.among(queue, [*mails, *broken]))
    return TablesSide(
        live={enqueue_id: mail for enqueue_id, mail in mails.items() if enqueue_id not in marked},
        marked=marked,
        delayed=frozenset(delayed - mails.keys()),
        delayed_beyond=beyond,
        in_backlogs=in_backlogs,
        broken=tuple(row for enqueue_id, row in broken.items() if enqueue_id not in marked),
    )


async def with_lookups(view: QueueView, queue: QueueName, drained: Drained, tables: TablesSide) -> Drained:
    """The same, with what the tables say of messages that belong to no row."""
    unknown = drained.ids - tables.live.keys() - tables.marked
    marked = await view.marks.among(queue, unknown)
    unknown -= marked | tables.delayed
    where = replace(DELAYED, enqueue_ids=unknown)
    delayed: set[EnqueueId] = set()
    if unknown:
        async for listed in view.browse(queue, where):
            delayed.add(listed.queued.enqueue_id)
    return replace(drained, marked=frozenset(marked), delayed=frozenset(delayed))


async def _rows(view: QueueView, queue: QueueName) -> AsyncGenerator[Row]:
    slicing, starts = await view.live(queue)
    for slice_start in starts:
        for bucket in range(slicing.buckets):
            scan = Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names, Level.QUORUM, under=(queue, slice_start, bucket))
            async for row in view.tables.scan(scan):
                yield row


async def missing_in(
    view: QueueView, queue: QueueName, blobs: Blobs, mails: Mapping[EnqueueId, LiveMail]
) -> frozenset[EnqueueId]:
    """The same, of mails that still wait: one that is done loses its bytes after it was marked."""
    lacking = await missing_among(blobs, mails)
    return lacking - await view.marks.among(queue, lacking)


async def drained(  # noqa: PLR0917 - whom, when, which, how many
    broker: Broker,
    clock: Clock,
    queue: QueueName,
    depth: Depth,
    most: int,
    wanted: Collection[EnqueueId] = (),
) -> Drained:
    """Take every message without an ack, name its mail, and return it; the same for dead letters."""
    began_at = instant_of(clock.micros())
    async with broker.deliveries(queue, most) as deliveries:
        waiting = await _named(deliveries, clock, depth.ready, wanted)
    async with broker.dead_letters(queue, most) as deliveries:
        dead = await _named(deliveries, clock, depth.dead, wanted)
    return Drained(
        began_at,
        frozenset(waiting.ids),
        waiting.bad + dead.bad,
        dead=frozenset(dead.ids),
        mails=dead.mails | waiting.mails,
    )


@dataclass(slots=True)
class NamedMessages:
    """The messages of a queue by what they name: mails and their blobs.

    Attributes:
        mails: those whose ids the caller asked for.
        bad: how many messages no mail could be read from.
        taken: how many messages were read.
    """

    ids: set[EnqueueId] = field(default_factory=set)
    blobs: set[BlobId] = field(default_factory=set)
    mails: dict[EnqueueId, QueuedMail] = field(default_factory=dict)
    bad: int = 0
    taken: int = 0


async def dead_letters_named(broker: Broker, clock: Clock, queue: QueueName, dead: int) -> NamedMessages:
    """Take every dead letter without an ack, name its mail, and return it; `dead` of them are counted."""
    async with broker.dead_letters(queue, DRAIN_MAX) as deliveries:
        return await _named(deliveries, clock, dead, ())


async def _named(
    deliveries: AsyncIterator[Delivery], clock: Clock, expected: int, wanted: Collection[EnqueueId]
) -> NamedMessages:
    """Read all messages. They stay unacked, so none comes twice."""
    named = NamedMessages()
    while (delivery := await next_within(deliveries, clock, patience(named.taken, expected))) is not None:
        named.taken += 1
        try:
            queued = queued_of(delivery.message.body)
        except BadPayload:
            named.bad += 1
        else:
            named.ids.add(queued.enqueue_id)
            named.blobs |= {queued.blobs.header, queued.blobs.body}
            if queued.enqueue_id in wanted:
                named.mails[queued.enqueue_id] = queued
    return named


def patience(taken: int, expected: int) -> float:
    """How many seconds to wait for the next message, after `taken` of `expected`."""
    if taken < expected:
        return PATIENCE_SECONDS
    return LAST_LOOK_SECONDS


async def next_within(deliveries: AsyncIterator[Delivery], clock: Clock, seconds: float) -> Delivery | None:
    """The next message; None where none comes within that many seconds."""
    coming = asyncio.ensure_future(_one(deliveries))
    waiting = asyncio.ensure_future(clock.pause(seconds))
    try:
        await asyncio.wait((coming, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            return None
        return coming.result()
    finally:
        for task in (coming, waiting):
            task.cancel()
        await asyncio.gather(coming, waiting, return_exceptions=True)


async def _one(deliveries: AsyncIterator[Delivery]) -> Delivery | None:
    async for delivery in deliveries:
        return delivery
    return None


PUBLISHED_AT_ONCE: Final = 64
"""How many publishes wait for their confirms."""

AT_ONCE: Final = 500
"""How many dead letters are unacked at once. A redrive ends at this number of unreadable ones."""


async def republish(parts: Parts, older_than: timedelta, where: MailFilter, *, dry_run: bool) -> int:
    """Publish again mails that wait for longer than `older_than`; how many that are.

    A mail in a backlog has its message there, and is not published.
    """
    in_backlogs: Collection[EnqueueId] = ()
    if parts.backlogs:
        in_backlogs = await parts.backlogs.ids()

    async def publish(listed: Listed) -> None:
        await publish_mail(parts.broker, parts.queue, listed.queued, listed.slice_start, listed.attempts)
        parts.counts.add(QueueCount.REPUBLISHED, parts.queue)

    before = parts.now - older_than
    count = 0
    waiting = parts.view.browse(parts.queue, where, include_delayed=False)
    async with aclosing(in_batches(waiting, PUBLISHED_AT_ONCE)) as batches:
        async for some in batches:
            old = [listed for listed in some if listed.enqueued_at < before]
            old = [listed for listed in old if listed.queued.enqueue_id not in in_backlogs]
            outcomes: list[BaseException | None] = []
            if not dry_run:
                outcomes = await asyncio.gather(*map(publish, old), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            count += len(old)
    return count


@dataclass(slots=True)
class _Known:
    """What the queue held of its mails when the redrive began.

    Attributes:
        rows: the slices of the waiting ones; James leaves the rows of mails that it rejects.
        delayed: those that are not due: a redrive was killed before its ack, and a consumer wanted the mail later.
        blobs: that rows refer to, but for those that are never deleted with a mail.
    """

    rows: dict[EnqueueId, datetime] = field(default_factory=dict)
    delayed: set[EnqueueId] = field(default_factory=set)
    blobs: set[BlobId] = field(default_factory=set)

    def add(self, listed: Listed) -> None:
        queued = listed.queued
        if listed.slice_start is None:
            self.delayed.add(queued.enqueue_id)
        else:
            self.rows[queued.enqueue_id] = listed.slice_start
        self.blobs |= _own_blobs(queued.blobs)

    def unneeded(self, blobs: MailBlobs) -> set[BlobId]:
        return _own_blobs(blobs) - self.blobs


async def redrive(
    parts: Parts,
    limit: int | None = None,
    where: MailFilter = EVERYTHING,
    *,
    dry_run: bool = False,
    ids_max: int = IDS_MAX,
    lacking: LackingMail = all_lack_it,
) -> Redriven:
    """Put dead letters back into their queue.

    A dry run keeps all of them unacked to its end, and one with conditions those that do not match; otherwise each
    would come again.

    Args:
        parts: of the queue.
        limit: the largest number of dead letters to take.
        where: which, by their envelopes and ids.
        dry_run: only look.
        ids_max: how many mails of the queue are held in memory; more is refused.
        lacking: says which recipients of a dead letter lack the mail; the others are left out.
    """
    done = Redriven()
    known = await _known(parts, ids_max)
    depth = await parts.broker.depth(parts.queue)
    passed = 0
    keeps = dry_run or where != EVERYTHING
    if keeps:
        refuse_burying(parts.queue, depth, "Leave --dry-run and conditions out, and try some with --limit.")
    prefetch = AT_ONCE
    if keeps:
        prefetch = DRAIN_MAX
    async with parts.broker.dead_letters(parts.queue, prefetch) as letters:
        while limit is None or done.seen < limit:
            letter = await next_within(letters, parts.clock, patience(done.seen + passed, depth.dead))
            if letter is None:
                break
            queued = _mail_of(letter)
            if queued is None:
                done.unreadable += 1  # it stays unacked, and goes back when all is done
            elif where.matches(Listed(queued, parts.now)):
                await _redriven(parts, letter, queued, known, done, lacking, dry_run=dry_run)
            else:
                passed += 1  # likewise
    return done


def _mail_of(letter: Delivery) -> QueuedMail | None:
    try:
        return queued_of(letter.message.body)
    except BadPayload:
        return None


async def _redriven(  # noqa: PLR0917 - what a redrive has, and one letter
    parts: Parts,
    letter: Delivery,
    queued: QueuedMail,
    known: _Known,
    done: Redriven,
    lacking: LackingMail,
    *,
    dry_run: bool,
) -> None:
    if await parts.view.marks.there(parts.queue, queued.enqueue_id):
        done.dropped += 1
        back = None
    else:
        back = done.add(queued, await lacking(queued))
    if dry_run:
        return
    if back:
        await _in_queue(parts, back, known)
    else:
        await _forgotten(parts, queued, known)
    await letter.ack()


async def _forgotten(parts: Parts, queued: QueuedMail, known: _Known) -> None:
    if unneeded := known.unneeded(queued.blobs):
        await parts.blobs.delete_all(unneeded)


async def _in_queue(parts: Parts, queued: QueuedMail, known: _Known) -> None:
    if queued.enqueue_id in known.delayed and await _is_delayed(parts, queued.enqueue_id):
        return
    slice_start = known.rows.get(queued.enqueue_id)
    if slice_start is None or not await parts.view.rows.has_row(parts.queue, slice_start, queued):
        now = parts.now
        slice_start = known.rows[queued.enqueue_id] = await parts.view.rows.place(parts.queue, queued, now)
    await publish_mail(parts.broker, parts.queue, queued, slice_start)


async def _is_delayed(parts: Parts, enqueue_id: EnqueueId) -> bool:
    where = MailFilter(enqueue_ids=frozenset((enqueue_id,)), whereabouts=Whereabouts.DELAYED)
    return bool([listed async for listed in parts.view.browse(parts.queue, where)])


async def _known(parts: Parts, ids_max: int) -> _Known:
    known = _Known()
    async for listed in parts.view.browse(parts.queue):
        refuse_too_many(len(known.rows) + len(known.delayed) + 1, f"mails in {parts.queue}", ids_max)
        known.add(listed)
    return known


def _own_blobs(blobs: MailBlobs) -> set[BlobId]:
    return {blob_id for blob_id in (blobs.header, blobs.body) if not is_deduplicated(blob_id)}


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
        if dry_run:
            keeping = Keeping(_left, _left)
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
            for unremoved in removed.failed:
                failed[unremoved.enqueue_id] = unremoved.why
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
    mails: Mapping[EnqueueId, QueuedMail] = {}
    if found.drained:
        mails = found.drained.mails
    for enqueue_id in mails.keys() & unlisted:
        await keeping.mail(Listed(mails[enqueue_id], mails[enqueue_id].mail.last_updated or found.at))
        kept.add(enqueue_id)
    return kept


async def _marked_unlisted(parts: Parts, found: Reconciled, unlisted: Collection[EnqueueId]) -> Mapping[EnqueueId, str]:
    broken = {row.enqueue_id: row.slice_start for row in found.tables.broken}
    mails = [(enqueue_id, broken.get(enqueue_id)) for enqueue_id in unlisted]
    errors = await parts.view.mark_all(parts.queue, mails)
    failures: dict[EnqueueId, str] = {}
    for (enqueue_id, _), error in zip(mails, errors, strict=True):
        if error:
            failures[enqueue_id] = error.what
    return failures


def _key(queue: QueueName, row: BrokenRow) -> Key:
    return (queue, row.slice_start, row.bucket, row.enqueue_id)
