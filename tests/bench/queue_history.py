"""What a queue's size, listing and sweep cost, against how much mail has gone through it.

The history is made as rows, marks and tallies: what as many mails would have left behind. For each number of mails:
the size while all of them wait, beside browsing and counting them (ADR-31's own way); then all are marked, a hundred
more wait, the past is swept, and the hundred are listed.

Beside the sweep the same past is deleted row by row, by a cleaner that has everything the sweep has but its order: the
same readers (the columns that are needed, page by page), the same look-ups of marks (twenty to a request), the same
slices at once, the same way to forget blobs; it need not move a start. Of each mail that is marked it then deletes the
row and the mark, two deletions for a mail, where the sweep deletes a partition and leaves the marks to expire. Broker
and blobs are the twins: nothing of it is about them. Tables are not compacted meanwhile, so the bytes that a lane has
added are those of its deletions.
"""

import asyncio
import resource
import time
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeVar

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import Keyspace
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rabbitmq.clean_slices import PARTITIONS_AT_ONCE
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import BlobId, QueueName
from mailmend.model.instants import instant_of
from mailmend.model.operations import Remove
from mailmend.model.table import Row
from mailmend.repair.clock import SystemClock
from tests.bench.queue_past import MAIL, WINDOW, Past, flushed_mebibytes, write
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker
from tests.support.queues import parts_of

T = TypeVar("T")

SIZES = (1, 10, 100, 1000)
"""So many thousandths of the mails asked for."""

CONTROL_MAX = 1_000_000
"""Of so many mails at most the past is deleted row by row too; that, and making it, takes a quarter of an hour."""

PENDING = 100
LOOKS = 5
"""A listing or size is taken so often; the median counts."""

NEEDED = ("enqueueid", "headerblobid", "bodyblobid")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What it cost to clean a past away.

    Attributes:
        deletions: tombstones that were written for it.
        mebibytes: that it added on disk, once flushed.
    """

    seconds: float
    deletions: int
    mebibytes: int

    def __str__(self) -> str:
        return f"{self.seconds:6.1f} s, {self.deletions:,} deletions, {self.mebibytes:+} MiB"


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds for one number of mails.

    Attributes:
        size: while all wait, from tallies; `counted`: browsing and counting them instead.
        browse: the hundred that wait, after the sweep.
        sweep: all of them marked; `row_by_row`: the same past, each row and each mark by itself; None: not measured.
        peak_mebibytes: what this process has needed at most, up to here.
    """

    mails: int
    size: float
    counted: float
    browse: float
    sweep: Cleaned
    row_by_row: Cleaned | None
    peak_mebibytes: int

    def __str__(self) -> str:
        each = f"{1e6 * self.sweep.seconds / self.mails:.0f} us a mail"
        times = f", {self.row_by_row.seconds / self.sweep.seconds:.1f} x the time" if self.row_by_row else ""
        return (
            f"{self.mails:>9,} mails: size {self.size * 1000:5.1f} ms (counted {self.counted:6.1f} s)   "
            f"browse {PENDING} {self.browse * 1000:5.1f} ms   memory {self.peak_mebibytes} MiB\n"
            f"{'':>17}sweep      {self.sweep} ({each})\n"
            f"{'':>17}row by row {self.row_by_row or 'not measured'}{times}"
        )


def measure(keyspace: Keyspace, mails: int) -> Iterator[Measured]:
    """Each number of mails in turn, the largest last; the keyspace has `queue_past.SCHEMA`."""
    for part in SIZES:
        yield asyncio.run(_measured(keyspace, mails * part // SIZES[-1]))


def as_json(measured: Iterable[Measured]) -> list[dict[str, Any]]:
    """For the results' file."""
    return [asdict(one) for one in measured]


async def _measured(keyspace: Keyspace, mails: int) -> Measured:
    clock, tables = SystemClock(), AsyncKeyspace(keyspace)
    broker, blobs = MemoryBroker(clock), MemoryBlobs(clock)
    past = Past(QueueName(f"past-{mails}"), mails, slice_of(instant_of(clock.micros()), WINDOW))
    write(keyspace, past.starts())
    write(keyspace, past.rows())
    write(keyspace, past.tallies(marked=False))
    async with await open_queue(past.queue, tables, broker, blobs, clock) as queue:
        size, counted = await _median(queue.size, mails), await _seconds(_count(queue, mails))
        write(keyspace, past.marks())
        write(keyspace, past.tallies(marked=True))
        for _ in range(PENDING):
            await queue.enqueue(MAIL, b"Subject: bench\r\n\r\n")
        sweep = await sweep_past(keyspace, queue, past)
        browse = sorted([await _seconds(_count(queue, PENDING)) for _ in range(LOOKS)])[LOOKS // 2]
        row_by_row = await clean_row_by_row(keyspace, queue, past) if mails <= CONTROL_MAX else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Measured(mails, size, counted, browse, sweep, row_by_row, peak)


async def sweep_past(keyspace: Keyspace, queue: RabbitMailQueue, past: Past) -> Cleaned:
    before = flushed_mebibytes(keyspace)
    begun = time.perf_counter()
    swept = await queue.sweep()
    seconds = time.perf_counter() - begun
    if swept.rows != past.mails or swept.rescued:
        raise AssertionError(f"{swept} of {past.mails} mails")
    return Cleaned(seconds, len(past.slices), flushed_mebibytes(keyspace) - before)


async def clean_row_by_row(keyspace: Keyspace, queue: RabbitMailQueue, past: Past) -> Cleaned:
    """Another past of the same size, cleaned the other way."""
    again = Past(QueueName(f"again-{past.mails}"), past.mails, past.until)
    write(keyspace, again.rows())
    write(keyspace, again.marks())
    before = flushed_mebibytes(keyspace)

    async def clean(slice_start: datetime) -> int:
        return await _slice_row_by_row(queue, (again.queue, slice_start, 0))

    begun = time.perf_counter()
    deletions = sum(await all_of(again.slices, clean, PARTITIONS_AT_ONCE))
    seconds = time.perf_counter() - begun
    if deletions != 2 * again.mails:
        raise AssertionError(f"{deletions} deletions for {again.mails} mails")
    return Cleaned(seconds, deletions, flushed_mebibytes(keyspace) - before)


async def _slice_row_by_row(queue: RabbitMailQueue, partition: tuple[QueueName, datetime, int]) -> int:
    """How many rows and marks were deleted."""
    parts, deletions = parts_of(queue), 0
    async with aclosing(parts.view.slices.pages(partition, NEEDED)) as pages:
        async for page in pages:
            marked = await parts.view.marks.among(partition[0], [row["enqueueid"] for row in page])
            done = [row for row in page if row["enqueueid"] in marked]
            await parts.blobs.delete_all([BlobId(row[name]) for row in done for name in NEEDED[1:]])
            writes = [one for row in done for one in _deletions(partition, row)]
            for error in await parts.tables.write_all(writes):
                if error is not None:
                    raise error
            deletions += len(writes)
    return deletions


def _deletions(partition: tuple[QueueName, datetime, int], row: Row) -> tuple[Remove, Remove]:
    enqueue_id = row["enqueueid"]
    return Remove(ENQUEUED_MAILS, (*partition, enqueue_id)), Remove(DELETED_MAILS, (partition[0], enqueue_id))


async def _count(queue: RabbitMailQueue, expected: int) -> None:
    found = 0
    async for _ in queue.browse():
        found += 1
    if found != expected:
        raise AssertionError(f"{found} mails were listed, {expected} wait")


async def _median(ask: Any, expected: int) -> float:
    looks = []
    for _ in range(LOOKS):
        begun = time.perf_counter()
        found = await ask()
        looks.append(time.perf_counter() - begun)
        if found.mails != expected:
            raise AssertionError(f"{found} is not {expected}")
    return sorted(looks)[LOOKS // 2]


async def _seconds(work: Awaitable[T]) -> float:
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun
