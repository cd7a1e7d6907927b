"""What delayed mails cost: a size against how many there are, and how many a flush moves in a second.

The mails whose number is asked for are made as rows, entries of the list and tallies, as so many retries leave them;
those that are flushed are put by the queue itself. Broker and blobs are the twins: these are the costs of the tables.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import Keyspace
from mailmend.mailqueue.codec import due_row_of
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rabbitmq.view.due_mails import DUE_WINDOW
from mailmend.mailqueue.rules.mails import MailBlobs, QueuedMail
from mailmend.mailqueue.rules.size import due_tallies_at
from mailmend.mailqueue.rules.slices import EPOCH, slice_of
from mailmend.model.catalog.mail_queue import DUE_MAILS, SLICE_TALLIES, OwnTables
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.instants import instant_of
from mailmend.model.operations import Put
from mailmend.repair.clock import SystemClock
from tests.bench.queue_past import MAIL, write
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker

SLICES = 24
"""Four hours: for so long a retry waits at most."""

SIZES = (1_000, 10_000, 100_000)
FLUSHED = 500
AT_ONCE = 32
LOOKS = 5
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds for one number of delayed mails in `SLICES` slices.

    Attributes:
        size: from tallies; `counted`: from their rows.
    """

    mails: int
    size: float
    counted: float

    def __str__(self) -> str:
        return f"{self.mails:>9,} delayed: size {self.size * 1000:5.1f} ms (counted {self.counted * 1000:7.1f} ms)"


@dataclass(frozen=True, slots=True)
class Flushed:
    """How many mails a flush moves in a second: each alone in its slice, and all in one."""

    alone: float
    together: float

    def __str__(self) -> str:
        return f"flush: {self.alone:.0f} mails/s alone in their slices, {self.together:.0f}/s in one slice"


def measure(keyspace: Keyspace) -> Iterator[Measured | Flushed]:
    """Each number of mails in turn, then the flushes."""
    for mails in SIZES:
        yield asyncio.run(_size_of(keyspace, mails))
    yield asyncio.run(_flushed(keyspace))


def as_json(measured: list[Measured | Flushed]) -> list[dict[str, Any]]:
    """For the results' file."""
    return [asdict(one) for one in measured]


async def _opened(keyspace: Keyspace, queue: QueueName, own: OwnTables | None = None) -> RabbitMailQueue:
    clock = SystemClock()
    return await open_queue(
        queue, AsyncKeyspace(keyspace), MemoryBroker(clock), MemoryBlobs(clock), clock, own=own or OwnTables()
    )


async def _size_of(keyspace: Keyspace, mails: int) -> Measured:
    queue = QueueName(f"delayed-{mails}")
    first = slice_of(instant_of(SystemClock().micros()), DUE_WINDOW) + timedelta(days=1)
    write(keyspace, delayed_rows(queue, first, mails))
    seconds = list[float]()
    for own in (OwnTables(), OwnTables(tallies=False)):
        async with await _opened(keyspace, queue, own) as opened:
            seconds.append(sorted([await _asked(opened, mails) for _ in range(LOOKS)])[LOOKS // 2])
    return Measured(mails, *seconds)


async def _asked(queue: RabbitMailQueue, mails: int) -> float:
    begun = time.perf_counter()
    found = await queue.size()
    if found.delayed != mails:
        raise AssertionError(f"{found} is not {mails}")
    return time.perf_counter() - begun


def delayed_rows(queue: QueueName, first: datetime, mails: int) -> Iterator[Put]:
    """So many mails, due in `SLICES` slices from the first one on."""
    for number in range(SLICES):
        due_slice, here = first + number * DUE_WINDOW, mails // SLICES + (number < mails % SLICES)
        yield Put(DUE_MAILS, _entry(queue, due_slice))
        yield Put(SLICE_TALLIES, _tally(queue, due_slice, here), ttl_seconds=10**7)
        for place in range(here):
            queued = QueuedMail(EnqueueId(_id(number, place)), MAIL, MailBlobs(BlobId("header"), BlobId("body")))
            due_at = due_slice + place * DUE_WINDOW / here // _MILLISECOND * _MILLISECOND
            yield Put(DUE_MAILS, due_row_of(queue, due_slice, 0, due_at, 1, first, queued))


def _id(number: int, place: int) -> UUID:
    return UUID(int=number * 10**9 + place, version=4)


def _entry(queue: QueueName, due_slice: datetime) -> dict[str, Any]:
    key = (queue, EPOCH, 0, due_slice, UUID(int=0))
    return {column.name: value for column, value in zip(DUE_MAILS.key, key, strict=True)}


def _tally(queue: QueueName, due_slice: datetime, mails: int) -> dict[str, Any]:
    where = {"queuename": queue, "timerangestart": due_tallies_at(due_slice), "writer": UUID(int=1, version=4)}
    return {**where, "enqueued": mails, "marked": 0, "settled": True, "isforeign": False}


async def _flushed(keyspace: Keyspace) -> Flushed:
    alone = await _flush_rate(keyspace, QueueName("flushed-alone"), DUE_WINDOW)
    return Flushed(alone, await _flush_rate(keyspace, QueueName("flushed-together"), _MILLISECOND))


async def _flush_rate(keyspace: Keyspace, name: QueueName, apart: timedelta) -> float:
    async with await _opened(keyspace, name) as queue:
        first = slice_of(instant_of(SystemClock().micros()), DUE_WINDOW) + timedelta(days=1)
        for begin in range(0, FLUSHED, AT_ONCE):
            numbers = range(begin, min(begin + AT_ONCE, FLUSHED))
            put = (queue.enqueue(MAIL, b"Subject: bench\r\n\r\n", at=first + number * apart) for number in numbers)
            await asyncio.gather(*put)
        begun = time.perf_counter()
        if (await queue.flush()).count != FLUSHED:
            raise AssertionError("some mails were left")
        return FLUSHED / (time.perf_counter() - begun)
