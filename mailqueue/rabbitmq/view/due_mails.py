"""Mails that are not due yet, as `dueMails` keeps them: put, listed, counted, removed; never lost between two movers.

A mail lies in the slice of its due time. The slices that hold any are listed in one partition of
the same table, under the slice EPOCH, which no mail can have: so listing costs what is there,
however far ahead the furthest mail is due, and a reader of mails never meets that partition. Its
rows carry the turns of movers too.

A slice is closed by raising `queueState.dueStart` past it, and emptied only then. A process that
puts a mail writes its row first and reads the due start afterwards: either it was not raised yet,
and the process that raises it reads the row; or the mail is put again, where it is found
(docs/adr/0021).

Listings and sizes see the delayed mails without a mark, slice by slice, by the time when they are
due. Most slices hold few mails, so several are read ahead at once, and their marks are looked up
together. A slice of many, as a flood of retries leaves it, is never held: the rows of a bucket come
in order, so its buckets are merged as they are read. A size asks what every process has counted, as
for waiting mails; only where that cannot tell are rows read.
"""

import heapq
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final
from uuid import UUID

from mailmend.mailqueue.codec import due_listed_of, due_row_of
from mailmend.mailqueue.concurrency import all_of, finished, in_batches, in_order
from mailmend.mailqueue.rabbitmq.view.known_queues import KnownQueues
from mailmend.mailqueue.rabbitmq.view.slices import LOOKED_UP_AT_ONCE, Marks
from mailmend.mailqueue.rabbitmq.view.tallies import Changes, Recounted, SliceTallies
from mailmend.mailqueue.rules.mails import Listed, ListingPosition, Whereabouts
from mailmend.mailqueue.rules.size import CountedBy, SliceCount, due_tallied, due_tallies_at
from mailmend.mailqueue.rules.slices import EPOCH, GRACE_MIN, bucket_of, slice_of
from mailmend.model.catalog.mail_queue import DUE_MAILS, QUEUE_STATE
from mailmend.model.errors import BadPayload, Contended, DoubtfulWrite, MailmendError
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import instant_of
from mailmend.model.operations import ChangeIf, Level, Put, Read, Remove, Scan
from mailmend.model.ports import AsyncTables, Clock
from mailmend.model.table import Key, Row
from mailmend.repair.retries import AsyncRetries

DUE_WINDOW: Final = timedelta(minutes=10)
"""The length of a slice of due mails. No mail is lost where it changes, since the slices that hold mails are listed; as
long as some are left of another length, a page of delayed mails may miss mails of a slice that overlaps its last."""

_ROUNDS_MAX: Final = 20
"""How often others may be faster in a row."""

_ENTERED_MAX: Final = 10_000
"""Entries that are remembered as written: one for each partition; then they are written again."""

_SLICES_AT_ONCE: Final = 16

_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)

_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True, order=True)
class DuePartition:
    """A slice and bucket that may hold delayed mails."""

    due_slice: datetime
    bucket: int

    def key(self, queue: QueueName) -> Key:
        return (queue, self.due_slice, self.bucket)

    def entry(self, queue: QueueName) -> Key:
        """The key of its row in the list of partitions, which carries the turn of its mover."""
        return (*_index(queue), self.due_slice, UUID(int=self.bucket))


@dataclass(frozen=True, slots=True)
class DueMail:
    """A delayed mail, and the partition where it lies."""

    partition: DuePartition
    listed: Listed

    @property
    def due_at(self) -> datetime:
        assert self.listed.due_at is not None, "a delayed mail is due at some time"
        return self.listed.due_at

    @property
    def enqueue_id(self) -> EnqueueId:
        return self.listed.queued.enqueue_id

    @property
    def order(self) -> tuple[datetime, EnqueueId]:
        return self.due_at, self.enqueue_id

    def key(self, queue: QueueName) -> Key:
        return (*self.partition.key(queue), *self.order)


class DueMails:
    """The delayed mails of every queue in a keyspace.

    Args:
        buckets: over how many partitions each slice is spread.
        tallies: what this process counts.
    """

    def __init__(self, tables: AsyncTables, clock: Clock, buckets: int, tallies: SliceTallies) -> None:
        self._tables = tables
        self._clock = clock
        self._buckets = buckets
        self._tallies = tallies
        self._retries = AsyncRetries(clock)
        self._marks = Marks(tables, self._retries)
        self._entered: set[Key] = set()

    async def put(self, queue: QueueName, listed: Listed, *, again: bool = False) -> DueMail:
        """Keep a mail until its `due_at`; if that is past, or its slice is closed, it is due at once; where it lies.

        After an error or a cancellation the mail is in no slice, as far as the tables answer.

        Args:
            queue: the mail's.
            listed: the mail; the removal of an earlier row may hide one that was tried before, which is then due a
                millisecond later.
            again: whether this may also happen to a mail that was not tried before.
        """
        async with self.kept(queue, listed, again=again) as (due, changes):
            changes.sure = not again
        return due

    @asynccontextmanager
    async def kept(
        self, queue: QueueName, listed: Listed, *, again: bool = False
    ) -> AsyncGenerator[tuple[DueMail, Changes]]:
        """As `put`, for callers with more to do before the mail is only delayed.

        Yields where it lies, and the changes to be counted; set `sure` to False where another process may delay or
        finish the same mail. Until the body succeeds, the tally counts the mail as uncertain.
        """
        wanted: datetime | None = in_millis_after(max(listed.due_at or EPOCH, self._now()))
        while wanted is not None:
            due = self._placed(replace(listed, due_at=wanted, whereabouts=Whereabouts.DELAYED, slice_start=None))
            async with self.counting(queue, due.partition) as changes:
                wanted = await self._tried(queue, due, changes, again=again or listed.attempts > 0)
                if wanted is None:
                    changes.enqueued = 1
                    yield due, changes

    def counting(self, queue: QueueName, partition: DuePartition) -> AbstractAsyncContextManager[Changes]:
        return self._tallies.counting(queue, due_tallies_at(partition.due_slice))

    async def remove(self, queue: QueueName, due: DueMail) -> None:
        await self._retries.write(self._tables, removal(queue, due, self._now()))

    async def remove_all(self, queue: QueueName, mails: Sequence[DueMail]) -> list[MailmendError | None]:
        """Remove many rows for an operator; for each its error, or None, in order.

        A mover may move one of them at that moment: the tallies of their slices become uncertain.
        """
        by_slice: dict[datetime, list[int]] = {}
        for place, due in enumerate(mails):
            by_slice.setdefault(due.partition.due_slice, []).append(place)

        async def remove(places: list[int]) -> list[MailmendError | None]:
            return await self._removed(queue, [mails[place] for place in places])

        errors: list[MailmendError | None] = [None] * len(mails)
        removed = await all_of(by_slice.values(), remove, _SLICES_AT_ONCE)
        for places, answers in zip(by_slice.values(), removed, strict=True):
            for place, answer in zip(places, answers, strict=True):
                errors[place] = answer
        return errors

    async def mails(self, queue: QueueName) -> AsyncGenerator[DueMail]:
        """Every unmarked delayed mail, by partition; within each in order of due time."""
        async with aclosing(self.partitions(queue)) as partitions:
            async for partition in partitions:
                async with aclosing(self.unmarked_under(queue, partition)) as mails:
                    async for due in mails:
                        yield due

    async def partitions(self, queue: QueueName, most: int | None = None) -> AsyncGenerator[DuePartition]:
        """The partitions that may hold delayed mails, the earliest slice first; at most `most`."""
        async for row in self._tables.scan(Scan(DUE_MAILS, _ENTRY, Level.QUORUM, under=_index(queue), limit=most)):
            yield DuePartition(row["dueat"], row["enqueueid"].int)

    async def under(self, queue: QueueName, partition: DuePartition, after: Key = ()) -> AsyncGenerator[DueMail]:
        """The mails of one partition in order of due time, after that time and id.

        A row that cannot be read is skipped and logged.
        """
        key = partition.key(queue)
        async for row in self._tables.scan(Scan(DUE_MAILS, DUE_MAILS.names, Level.QUORUM, under=key, after=after)):
            try:
                yield DueMail(partition, due_listed_of(row))
            except BadPayload as error:
                fields = {"queue": queue, "mail": row["enqueueid"], "error": error.what}
                _LOG.warning("a delayed mail cannot be read", extra=fields)

    async def ids(self, queue: QueueName, partition: DuePartition) -> AsyncGenerator[EnqueueId]:
        async for row in self._tables.scan(Scan(DUE_MAILS, _ENTRY, Level.QUORUM, under=partition.key(queue))):
            yield EnqueueId(row["enqueueid"])

    async def next_at(self, queue: QueueName, partition: DuePartition, after: Key = ()) -> datetime | None:
        """When the first mail after that time and id is due; None where there is no such mail."""
        first = Scan(DUE_MAILS, _ENTRY, Level.QUORUM, under=partition.key(queue), after=after, limit=1)
        rows = [row async for row in self._tables.scan(first)]
        if not rows:
            return None
        due_at: datetime = rows[0]["dueat"]
        return due_at

    async def due_start(self, queue: QueueName) -> datetime | None:
        """The first open slice; None while none was ever closed."""
        return await self._due_start(queue, Level.QUORUM)

    async def close_before(self, queue: QueueName, at: datetime) -> datetime:
        """Close the slices that end by then; closed slices stay closed.

        Returns:
            The first slice that is open.
        """
        wanted = slice_of(at, DUE_WINDOW)
        seen = await self.due_start(queue)
        for _ in range(_ROUNDS_MAX):
            if seen is not None and seen >= wanted:
                return seen
            if await self._raised(queue, seen, wanted):
                return wanted
            seen = await self._due_start(queue, Level.SERIAL)
        raise Contended(f"others kept closing slices of the queue {queue!r}", mend="Run the same again.")

    async def retire(self, queue: QueueName, partition: DuePartition) -> None:
        """Delete from the list a partition that is closed and was found empty since."""
        await self._tables.write(Remove(DUE_MAILS, partition.key(queue)))
        await self._tables.write(Remove(DUE_MAILS, partition.entry(queue)))
        others = Scan(DUE_MAILS, _ENTRY, Level.QUORUM, under=(*_index(queue), partition.due_slice), limit=1)
        if not [row async for row in self._tables.scan(others)]:
            await self._tallies.forget(queue, due_tallies_at(partition.due_slice))

    async def _removed(self, queue: QueueName, mails: Sequence[DueMail]) -> list[MailmendError | None]:
        """As `remove_all`, within one slice."""
        try:
            async with self.counting(queue, mails[0].partition) as changes:
                changes.sure = False
                removals = [removal(queue, due, self._now()) for due in mails]
                errors = await self._retries.write_all(self._tables, removals)
                changes.marked = errors.count(None)
        except MailmendError as error:
            return [error] * len(mails)
        return errors

    async def unmarked_under(self, queue: QueueName, partition: DuePartition) -> AsyncGenerator[DueMail]:
        """The unmarked mails of one partition, in order of due time."""
        mails = self.under(queue, partition)
        async with aclosing(mails), aclosing(in_batches(mails, LOOKED_UP_AT_ONCE)) as batches:
            async for some in batches:
                for mail in await self._unmarked(queue, some):
                    yield mail

    async def _unmarked(self, queue: QueueName, some: Sequence[DueMail]) -> list[DueMail]:
        marked = await self._marks.among(queue, [due.enqueue_id for due in some])
        return [due for due in some if due.enqueue_id not in marked]

    async def _tried(self, queue: QueueName, due: DueMail, changes: Changes, *, again: bool) -> datetime | None:
        """Put it there; if it cannot stay, the due time to try next."""
        try:
            start = await self._written(queue, due)
        except BaseException:
            await finished(self._withdrawn(queue, due))
            raise
        if start is not None and due.partition.due_slice < start:
            await self._withdrawn(queue, due)
            changes.sure = False
            return start
        if again and await self._is_covered(queue, due):
            return due.due_at + _MILLISECOND
        return None

    async def _written(self, queue: QueueName, due: DueMail) -> datetime | None:
        """The due start read after the mail's row is written."""
        await self._enter(queue, due.partition)
        row = Put(DUE_MAILS, _row_of(queue, due), at=self._clock.micros())
        await self._retries.write(self._tables, row)
        return await self._retries.call(lambda: self.due_start(queue))

    async def _is_covered(self, queue: QueueName, due: DueMail) -> bool:
        """Whether the row lies under the tombstone of an earlier one with the same due time."""
        return not await self._retries.call(lambda: self._tables.read(Read(DUE_MAILS, due.key(queue))))

    async def _withdrawn(self, queue: QueueName, due: DueMail) -> None:
        """Errors are ignored: a row left in a closed slice, or of a mail reported as failed, does no harm."""
        try:
            await self.remove(queue, due)
        except MailmendError as error:
            fields = {"queue": queue, "mail": due.listed.queued.enqueue_id, "error": error.what}
            _LOG.warning("a row of a delayed mail is left", extra=fields)

    async def _enter(self, queue: QueueName, partition: DuePartition) -> None:
        """List the partition before anything is put there; only closed ones are deleted, so once is enough."""
        entry = partition.entry(queue)
        if entry in self._entered:
            return
        row = dict(zip(DUE_MAILS.key_names, entry, strict=True))
        await self._retries.write(self._tables, Put(DUE_MAILS, row))
        if len(self._entered) >= _ENTERED_MAX:
            self._entered.clear()
        self._entered.add(entry)

    async def _raised(self, queue: QueueName, seen: datetime | None, wanted: datetime) -> bool:
        change = ChangeIf(QUEUE_STATE, (queue,), {"duestart": seen}, assign={"duestart": wanted})
        try:
            return (await self._tables.attempt(change)).applied
        except DoubtfulWrite:
            return False

    async def _due_start(self, queue: QueueName, level: Level) -> datetime | None:
        seen = await self._tables.read(Read(QUEUE_STATE, (queue,), level))
        if not seen:
            return None
        start: datetime | None = seen[0].row["duestart"]
        return start

    def _placed(self, listed: Listed) -> DueMail:
        due_slice = slice_of(listed.due_at or EPOCH, DUE_WINDOW)
        return DueMail(DuePartition(due_slice, bucket_of(listed.queued.mail.name, self._buckets)), listed)

    def _now(self) -> datetime:
        return instant_of(self._clock.micros())


def removal(queue: QueueName, due: DueMail, now: datetime) -> Remove:
    """Removes the row even if a clock ahead of ours stamped it: no row is put after it is due by its writer's clock."""
    at = max(now, due.due_at + GRACE_MIN)
    return Remove(DUE_MAILS, due.key(queue), at=(at - EPOCH) // _MICROSECOND)


def in_millis_after(at: datetime) -> datetime:
    """Rounded up to whole milliseconds, as rows keep it."""
    return at + timedelta(microseconds=-at.microsecond % 1000)


def flush_entry(queue: QueueName) -> Key:
    """The key of the row with a flush's turn: outside the list, in a bucket of its own that is never listed."""
    return (queue, EPOCH, 1, EPOCH, UUID(int=0))


def _row_of(queue: QueueName, due: DueMail) -> Row:
    listed = due.listed
    place = due.partition
    return due_row_of(
        queue, place.due_slice, place.bucket, due.due_at, listed.attempts, listed.enqueued_at, listed.queued
    )


def _index(queue: QueueName) -> Key:
    return (queue, EPOCH, 0)


_ENTRY: Final = ("dueat", "enqueueid")


PAGE_MAILS: Final = 1_000
"""For how many mails at once marks are looked up, and how many mails of a slice are read ahead at most.

A listing holds at most `SLICES_AT_ONCE` times this number: it reads `SLICES_AT_ONCE` slices ahead,
each of them whole and within this bound. It also holds one page of a slice that is larger, and
for each bucket of that slice one mail and the rows of one answer of the server."""

SLICES_AT_ONCE: Final = 16


_Slice = list[DuePartition]
"""The buckets of a slice that may hold mails."""


class DelayedListing:
    """The mails of every queue that are not due yet."""

    def __init__(self, due: DueMails, marks: Marks, queues: KnownQueues) -> None:
        self._due = due
        self._marks = marks
        self._queues = queues

    async def browse(self, queue: QueueName, start: datetime | None = None) -> AsyncGenerator[Listed]:
        """Mails due at the start or later, in order of due time."""
        after: Key = ()
        if start is not None:
            after = (start - _MILLISECOND,)

        async def read(buckets: _Slice) -> list[Listed] | None:
            return await self._held(queue, buckets, after)

        slices = await self._slices(queue, start)
        async with aclosing(in_order(slices, read, SLICES_AT_ONCE, _room)) as found:
            async for buckets, held in found:
                if held is None:
                    async with aclosing(self._merged(queue, buckets, after)) as mails:
                        async for listed in mails:
                            yield listed
                for listed in held or ():
                    yield listed

    async def count(self, queue: QueueName) -> list[SliceCount]:
        slices = await self._slices(queue)
        counted = await self._queues.tallies.of(queue, list(map(_tallies_at, slices)))

        async def count(place: int) -> SliceCount:
            summed = due_tallied(slices[place][0].due_slice, counted[place], self._queues.now)
            if summed is not None:
                return summed
            rows = await self._rows(queue, slices[place])
            counted_by = CountedBy.TALLIES
            if rows or counted[place]:
                counted_by = CountedBy.METADATA
            return SliceCount(rows, exact=True, counted_by=counted_by)

        return await all_of(range(len(slices)), count, SLICES_AT_ONCE)

    async def recount(self, queue: QueueName) -> Recounted:
        slices = {_tallies_at(buckets): buckets for buckets in await self._slices(queue)}

        async def rows(tallies_at: datetime) -> int:
            return await self._rows(queue, slices[tallies_at])

        return await self._queues.tallies.recount(queue, list(slices), rows)

    async def _slices(self, queue: QueueName, start: datetime | None = None) -> list[_Slice]:
        later = [partition async for partition in self._due.partitions(queue)]
        if start is not None:
            later = [partition for partition in later if partition.due_slice + DUE_WINDOW > start]
        later.sort()
        return [list(same) for _, same in groupby(later, key=lambda partition: partition.due_slice)]

    async def _held(self, queue: QueueName, buckets: _Slice, after: Key) -> list[Listed] | None:
        """The mails of a slice, in order; None where they are too many for memory."""
        mails = list[DueMail]()
        for bucket in buckets:
            async with aclosing(self._due.under(queue, bucket, after)) as found:
                async for mail in found:
                    mails.append(mail)
                    if len(mails) > PAGE_MAILS:
                        return None
        return sorted(await self._unmarked(queue, mails), key=_order)

    async def _merged(self, queue: QueueName, buckets: _Slice, after: Key) -> AsyncGenerator[Listed]:
        """The mails of a slice, in order, a page at a time."""
        async with AsyncExitStack() as stack:
            sources = []
            for bucket in buckets:
                mails = self._due.under(queue, bucket, after)
                sources.append(await stack.enter_async_context(aclosing(mails)))
            merged = await stack.enter_async_context(aclosing(in_turn(sources, lambda mail: _order(mail.listed))))
            async for page in await stack.enter_async_context(aclosing(in_batches(merged, PAGE_MAILS))):
                for listed in await self._unmarked(queue, page):
                    yield listed

    async def _rows(self, queue: QueueName, buckets: _Slice) -> int:
        counted = 0
        for bucket in buckets:
            async with aclosing(self._due.ids(queue, bucket)) as ids, aclosing(in_batches(ids, PAGE_MAILS)) as pages:
                async for page in pages:
                    marked: set[EnqueueId] = await self._marks.among(queue, page)
                    counted += sum(enqueue_id not in marked for enqueue_id in page)
        return counted

    async def _unmarked(self, queue: QueueName, mails: Sequence[DueMail]) -> list[Listed]:
        marked = await self._marks.among(queue, [mail.enqueue_id for mail in mails])
        return [mail.listed for mail in mails if mail.enqueue_id not in marked]


async def in_turn(
    sources: Sequence[AsyncGenerator[DueMail]], order: Callable[[DueMail], Key]
) -> AsyncGenerator[DueMail]:
    """Merges sorted sources into one sorted stream; holds one mail of each.

    The caller closes the sources.
    """
    heads = list[tuple[Key, int, DueMail]]()

    async def advance(place: int) -> None:
        mail = await anext(sources[place], None)
        if mail is not None:
            heapq.heappush(heads, (order(mail), place, mail))

    for place in range(len(sources)):
        await advance(place)
    while heads:
        _, place, mail = heapq.heappop(heads)
        yield mail
        await advance(place)


def _order(listed: Listed) -> Key:
    return ListingPosition.of(listed).order


def _tallies_at(buckets: _Slice) -> datetime:
    return due_tallies_at(buckets[0].due_slice)


def _room(held: Sequence[Listed] | None) -> int:
    """How many slices like this one may be held ahead."""
    if held is None:
        return 1
    return PAGE_MAILS // max(1, len(held))
