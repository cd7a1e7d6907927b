"""Mails that are not due yet, as `dueMails` keeps them: put, listed, counted, removed; never lost between two movers.

A mail lies in the slice of its due time. The slices that hold any are listed in one partition of
the same table, under the slice EPOCH, which no mail can have: so listing costs what is there,
however far ahead the furthest mail is due, and a reader of mails never meets that partition. Its
rows carry the turns of movers too.

A slice is closed by raising `queueState.dueStart` past it, and emptied only then. A process that
puts a mail writes its row first and reads the due start afterwards: either it was not raised yet,
and the process that raises it reads the row; or the mail is put again, where it is found
(docs/adr/0021).
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from mailmend.mailqueue.codec import due_listed_of, due_row_of
from mailmend.mailqueue.concurrency import all_of, finished, in_batches
from mailmend.mailqueue.rabbitmq.view.marks import LOOKED_UP_AT_ONCE, Marks
from mailmend.mailqueue.rabbitmq.view.tallies import Changes, SliceTallies
from mailmend.mailqueue.rules.mails import Listed, Whereabouts
from mailmend.mailqueue.rules.size import due_tallies_at
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
        await self._retries.write(self._tables, Put(DUE_MAILS, dict(zip(_KEY, entry, strict=True))))
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


_KEY: Final = tuple(column.name for column in DUE_MAILS.key)
_ENTRY: Final = ("dueat", "enqueueid")
