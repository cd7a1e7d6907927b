"""What a queue's size, listing and sweep cost, against how much mail has gone through it.

The history is made as rows, marks and tallies: what as many mails would have left behind. For each number of mails:
the size while all of them wait, beside browsing and counting them (ADR-31's own way); then all are marked, a hundred
more wait, the past is swept, and the hundred are listed. Beside the sweep the same past is deleted row by row, as a
cleaner that follows the marks would. Broker and blobs are the twins: nothing of it is about them.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from cql.awaited import AwaitedKeyspace
from cql.session import Keyspace
from mailqueue.codec import row_of
from mailqueue.mail_queue import MailQueue, open_queue
from mailqueue.memory import MemoryBroker
from mailqueue.memory_blobs import MemoryBlobs
from model.catalog_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, ENQUEUED_MAILS, SLICE_TALLIES
from model.ids import BlobId, EnqueueId, QueueName
from model.instants import instant_of
from model.mails import Mail, MailBlobs, QueuedMail
from model.operations import Put, Remove, Write
from model.slices import slice_of
from repair.clock import LoopClock

T = TypeVar("T")

SIZES = (10, 100, 1000)
"""So many thousandths of the mails asked for."""

WINDOW = timedelta(hours=1)
PER_SLICE = 10_000
"""What a slice should hold, as ADR-31 says."""

PENDING = 100
CHUNK = 5_000
LOOKS = 5
"""A listing or size is taken so often; the median counts."""

MAIL = Mail("bench", ("to@example.test",), "from@example.test")
BLOBS = MailBlobs(BlobId("1_692_header"), BlobId("1_692_body"))


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds for one number of mails.

    Attributes:
        size: while all wait, from tallies; `counted`: browsing and counting them instead.
        sweep: all of them marked; `partitions`: so many deletions did it.
        row_by_row: the same past, each row and each mark deleted by itself; `rows`: so many deletions did it.
        browse: the hundred that wait, after the sweep.
    """

    mails: int
    size: float
    counted: float
    sweep: float
    partitions: int
    row_by_row: float
    rows: int
    browse: float

    def __str__(self) -> str:
        return (
            f"{self.mails:>9,} mails: size {self.size * 1000:6.1f} ms (counted {self.counted:6.1f} s)   "
            f"browse {PENDING} of it {self.browse * 1000:6.1f} ms   sweep {self.sweep:6.1f} s, {self.partitions:,} "
            f"deletions (row by row {self.row_by_row:6.1f} s, {self.rows:,})"
        )


def measure(keyspace: Keyspace, mails: int) -> Iterator[Measured]:
    """Each number of mails in turn, the largest last."""
    for part in SIZES:
        yield asyncio.run(_measured(keyspace, mails * part // SIZES[-1]))


def as_json(measured: Iterable[Measured]) -> list[dict[str, Any]]:
    """For the results' file."""
    return [asdict(one) for one in measured]


async def _measured(keyspace: Keyspace, mails: int) -> Measured:
    clock, tables = LoopClock(), AwaitedKeyspace(keyspace)
    broker, blobs = MemoryBroker(clock), MemoryBlobs(clock)
    past = _Past(QueueName(f"past-{mails}"), mails, slice_of(instant_of(clock.micros()), WINDOW))
    _write(keyspace, past.starts())
    _write(keyspace, past.rows())
    _write(keyspace, past.tallies(marked=False))
    async with await open_queue(past.queue, tables, broker, blobs, clock) as queue:
        size, counted = await _median(queue.size, mails), await _seconds(_count(queue, mails))
        _write(keyspace, past.marks())
        _write(keyspace, past.tallies(marked=True))
        for _ in range(PENDING):
            await queue.enqueue(MAIL, b"Subject: bench\r\n\r\n")
        begun = time.perf_counter()
        swept = await queue.parts.sweeper.sweep(past.queue)
        sweep = time.perf_counter() - begun
        browse = await _seconds(_count(queue, PENDING))
        browse = min([browse, *[await _seconds(_count(queue, PENDING)) for _ in range(LOOKS)]])
    again = _Past(QueueName(f"again-{mails}"), mails, past.until)
    _write(keyspace, again.rows())
    _write(keyspace, again.marks())
    row_by_row = _write(keyspace, again.deletions())
    return Measured(mails, size, counted, sweep, swept.slices, row_by_row, 2 * mails, browse)


@dataclass(frozen=True, slots=True)
class _Past:
    """What so many mails have left in full slices; `until` is where the last one ends, well before now."""

    queue: QueueName
    mails: int
    until: datetime

    @property
    def slices(self) -> list[datetime]:
        """The last one ends a few windows before now, so that the grace period does not matter."""
        count = -(-self.mails // PER_SLICE)
        return [self.until - WINDOW * (count + 2 - number) for number in range(count)]

    def starts(self) -> Iterator[Write]:
        first = self.slices[0]
        yield Put(BROWSE_START, {"queuename": self.queue, "browsestart": first})
        yield Put(CONTENT_START, {"queuename": self.queue, "contentstart": first})

    def ids(self) -> Iterator[tuple[datetime, EnqueueId]]:
        """The same ones each time."""
        drawn = Random(self.queue)
        for number in range(self.mails):
            yield (
                self.slices[0] + WINDOW * (number // PER_SLICE),
                EnqueueId(UUID(int=drawn.getrandbits(128), version=4)),
            )

    def rows(self) -> Iterator[Write]:
        for start, enqueue_id in self.ids():
            yield Put(ENQUEUED_MAILS, row_of(self.queue, start, 0, start, QueuedMail(enqueue_id, MAIL, BLOBS)))

    def marks(self) -> Iterator[Write]:
        for _, enqueue_id in self.ids():
            yield Put(DELETED_MAILS, {"queuename": self.queue, "enqueueid": enqueue_id})

    def tallies(self, *, marked: bool) -> Iterator[Write]:
        left = self.mails
        for start in self.slices:
            held, left = min(left, PER_SLICE), left - PER_SLICE
            row = {"queuename": self.queue, "timerangestart": start, "writer": UUID(int=1), "enqueued": held}
            yield Put(SLICE_TALLIES, {**row, "marked": held * marked, "settled": True, "isforeign": False})

    def deletions(self) -> Iterator[Write]:
        for start, enqueue_id in self.ids():
            yield Remove(ENQUEUED_MAILS, (self.queue, start, 0, enqueue_id))
            yield Remove(DELETED_MAILS, (self.queue, enqueue_id))


async def _count(queue: MailQueue, expected: int) -> None:
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


def _write(keyspace: Keyspace, writes: Iterator[Write]) -> float:
    """Seconds that it took; a write that fails would make the rest meaningless."""
    begun = time.perf_counter()
    while chunk := list(islice(writes, CHUNK)):
        for error in keyspace.write_all(chunk):
            if error is not None:
                raise error
    return time.perf_counter() - begun
