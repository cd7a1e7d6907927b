"""Slices and marks: rows page by page, their marks in bulk, and only what is still in the queue is kept.

What this costs is bounded by the names below. Only metadata is read, never a blob. A row that no
mail can be made of is reported and left out: one of them never breaks a listing, and still counts
as a mail of the queue.

A mark is a row of deletedMailsV2 and says that a mail left its queue. It is written repeatedly,
never removed. A mark is looked up before anything is done with a mail, one by one on delivery, many
at once in listings and sweeps.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import islice
from typing import Final
from uuid import UUID

from mailmend.mailqueue.codec import BrokenRow, read_row
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rules.mails import Listed
from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.operations import Level, Put, Read, Scan, Seen
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Key, Row
from mailmend.repair.retries import AsyncRetries

LOOKED_UP_AT_ONCE: Final = 1_000
"""How many marks are looked up at the same time."""

LOOKED_UP_TOGETHER: Final = 20
"""How many marks one request asks for: the strictest limit of servers (Astra: 20; Scylla: 100)."""

REMEMBERED_MAX: Final = 100_000
"""How many pages of marks a pass remembers: 10 MB, of a hundred million mails."""


class Marks:
    """The marks of every queue of a keyspace."""

    def __init__(self, tables: AsyncTables, retries: AsyncRetries) -> None:
        self._tables = tables
        self._retries = retries

    async def put(self, queue: QueueName, enqueue_id: EnqueueId) -> None:
        """Write the mark of a mail; a second write of it changes nothing."""
        await self._retries.write(self._tables, _mark(queue, enqueue_id))

    async def put_all(self, queue: QueueName, enqueue_ids: Sequence[EnqueueId]) -> list[MailmendError | None]:
        """For each mail the error that is left after all tries, or None."""
        return await self._retries.write_all(self._tables, [_mark(queue, enqueue_id) for enqueue_id in enqueue_ids])

    async def there(self, queue: QueueName, enqueue_id: EnqueueId) -> bool:
        return bool(await self._retries.call(lambda: self._tables.read(_look(queue, enqueue_id))))

    async def among(self, queue: QueueName, enqueue_ids: Collection[EnqueueId]) -> set[EnqueueId]:
        asked = list(enqueue_ids)
        found = set[EnqueueId]()
        for first in range(0, len(asked), LOOKED_UP_AT_ONCE):
            some = asked[first : first + LOOKED_UP_AT_ONCE]
            answers = await answered(self._tables, self._retries, list(_looks(queue, some)))
            for answer in answers:
                for seen in answer:
                    found.add(EnqueueId(seen.row["enqueueid"]))
        return found


class RememberedMarks(Marks):
    """Marks for a pass that reads the same pages twice: marked mails are not looked up again.

    A page is remembered by a digest of its ids, and only once all of them were found marked, so that a million mails
    take some kilobytes. When a row has come into a page since, the marks of the whole page are looked up again.
    """

    def __init__(self, tables: AsyncTables, retries: AsyncRetries) -> None:
        super().__init__(tables, retries)
        self._known: dict[QueueName, set[bytes]] = {}

    async def among(self, queue: QueueName, enqueue_ids: Collection[EnqueueId]) -> set[EnqueueId]:
        """The marked ones; from memory for the same page in the same order."""
        known = self._known.setdefault(queue, set())
        page = _digest(enqueue_ids)
        if page in known:
            return set(enqueue_ids)
        found = await super().among(queue, enqueue_ids)
        if len(found) == len(enqueue_ids) and len(known) < REMEMBERED_MAX:
            known.add(page)
        return found

    def forget(self, queue: QueueName) -> None:
        self._known.pop(queue, None)


async def answered(tables: AsyncTables, retries: AsyncRetries, reads: Sequence[Read]) -> list[Sequence[Seen]]:
    """The answers to all reads; those that fail are tried again."""
    answers: list[Sequence[Seen] | None] = [None] * len(reads)

    async def ask() -> None:
        open_ = [place for place, answer in enumerate(answers) if answer is None]
        failed: list[MailmendError] = []
        found = await tables.read_all([reads[place] for place in open_])
        for place, answer in zip(open_, found, strict=True):
            if isinstance(answer, MailmendError):
                failed.append(answer)
            else:
                answers[place] = answer
        if failed:
            raise failed[0]

    await retries.call(ask)
    return [answer for answer in answers if answer is not None]


def _digest(enqueue_ids: Collection[EnqueueId]) -> bytes:
    return blake2b(b"".join(enqueue_id.bytes for enqueue_id in enqueue_ids), digest_size=32).digest()


def _mark(queue: QueueName, enqueue_id: EnqueueId) -> Put:
    return Put(DELETED_MAILS, {"queuename": queue, "enqueueid": enqueue_id}, joinable=True)


def _looks(queue: QueueName, enqueue_ids: Sequence[EnqueueId]) -> Iterator[Read]:
    for first in range(0, len(enqueue_ids), LOOKED_UP_TOGETHER):
        yield Read(DELETED_MAILS, (queue,), among=tuple(enqueue_ids[first : first + LOOKED_UP_TOGETHER]))


def _look(queue: QueueName, enqueue_id: EnqueueId) -> Read:
    return Read(DELETED_MAILS, (queue, enqueue_id))


TOGETHER_MAX: Final = 100
"""How many marks one batch looks up."""

One = Callable[[EnqueueId], Awaitable[bool]]
Many = Callable[[Collection[EnqueueId]], Awaitable[Collection[EnqueueId]]]


class MarkLookups:
    """One consumer's look-ups: the first at once, those that come meanwhile in one batch.

    Under load many share one request, at a fraction of the cost. An answer is never older than its look-up.
    """

    def __init__(self, one: One, many: Many) -> None:
        self._one = one
        self._many = many
        self._asked: dict[EnqueueId, asyncio.Future[bool]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def marked(self, enqueue_id: EnqueueId) -> bool:
        answer = self._asked.get(enqueue_id)
        if answer is None:
            answer = self._asked[enqueue_id] = asyncio.get_running_loop().create_future()
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(answer)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        for answer in self._asked.values():
            answer.cancel()

    async def _ask(self) -> None:
        """Run while there are look-ups; those that come during a request go with the next."""
        try:
            while self._asked:
                ids = list(islice(self._asked, TOGETHER_MAX))
                some = {enqueue_id: self._asked.pop(enqueue_id) for enqueue_id in ids}
                await self._answer(some)
        finally:
            self._asking = None

    async def _answer(self, some: dict[EnqueueId, "asyncio.Future[bool]"]) -> None:
        try:
            if len(some) > 1:
                marked = await self._many(some)
            else:
                marked = [enqueue_id for enqueue_id in some if await self._one(enqueue_id)]
        except MailmendError as error:
            await self._answer_alone(some, error)
            return
        except asyncio.CancelledError:
            for answer in some.values():
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - the caller that waits gets it
            for answer in some.values():
                _settle(answer, error)
            return
        for enqueue_id, answer in some.items():
            _settle(answer, enqueue_id in marked)

    async def _answer_alone(self, some: dict[EnqueueId, "asyncio.Future[bool]"], error: MailmendError) -> None:
        """After an error of the batch look each up alone, so that one failure delays no other."""
        if len(some) == 1:
            (answer,) = some.values()
            _settle(answer, error)
            return
        await asyncio.gather(*(self._answer({enqueue_id: answer}) for enqueue_id, answer in some.items()))


def _settle(answer: "asyncio.Future[bool]", outcome: bool | Exception) -> None:  # noqa: FBT001 - an answer
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


PAGE_ROWS: Final = 1_000
"""How many rows one request reads."""

BUCKETS_AT_ONCE: Final = 4
"""How many buckets of one slice are read at once."""

SLICES_AT_ONCE: Final = 16
"""How many slices are read at once, where they hold little."""

HELD_MAILS_MAX: Final = 20_000
"""How many mails of one slice are held; of more, only their keys. Above it no slice is read ahead."""

READ_AGAIN_ROWS: Final = 2_000
READ_TOGETHER: Final = 100
"""Rows of such a slice that are read again before they are shown, and how many of them one request asks for."""

_ID_BITS: Final = 128
_BUCKET_BITS: Final = 32
_MILLISECOND: Final = timedelta(milliseconds=1)

_LOG: Final = logging.getLogger("mailmend.queue")

Select = Callable[[Listed], bool]


@dataclass(slots=True)
class SliceContents:
    """The unmarked mails of one slice in no order, or, of a large slice, only their keys."""

    mails: list[tuple[Listed, int]] = field(default_factory=list)  # each with its bucket
    keys: list[int] = field(default_factory=list)
    broken: list[BrokenRow] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many unmarked mails the slice has, readable or not."""
        return len(self.mails) + len(self.keys) + len(self.broken)

    @property
    def room(self) -> int:
        return HELD_MAILS_MAX // max(1, self.count)

    def add(self, one: Listed | BrokenRow, bucket: int) -> None:
        if isinstance(one, BrokenRow):
            self.broken.append(one)
        elif self.keys or len(self.mails) >= HELD_MAILS_MAX:
            self.keys.append(_packed(one, bucket))
            self.keys.extend(_packed(*held) for held in self.mails)
            self.mails.clear()
        else:
            self.mails.append((one, bucket))


class Slices:
    """The slices of every queue of a keyspace, as they are read."""

    def __init__(self, tables: AsyncTables, marks: Marks, retries: AsyncRetries) -> None:
        self._tables = tables
        self._marks = marks
        self._retries = retries

    async def pages(
        self, partition: tuple[QueueName, datetime, int], columns: Sequence[str] = ENQUEUED_MAILS.names
    ) -> AsyncGenerator[list[Row]]:
        """The rows of a partition in the order of their ids; a page that fails is read again."""
        after: tuple[UUID, ...] = ()
        while True:
            page = await self._page(
                Scan(ENQUEUED_MAILS, tuple(columns), Level.QUORUM, None, partition, after, PAGE_ROWS)
            )
            yield page
            if len(page) < PAGE_ROWS:
                return
            after = (page[-1]["enqueueid"],)

    async def held(self, queue: QueueName, slice_start: datetime, buckets: int, select: Select) -> SliceContents:
        """The matching mails of the slice; broken rows always match."""
        held = SliceContents()

        async def read(bucket: int) -> None:
            async with aclosing(self.pages((queue, slice_start, bucket))) as pages:
                async for page in pages:
                    chosen = [row for row in map(read_row, page) if isinstance(row, BrokenRow) or select(row)]
                    marked = await self._marks.among(queue, list(map(id_of, chosen)))
                    for row in chosen:
                        if id_of(row) not in marked:
                            held.add(row, bucket)
                            _tell(queue, row)

        await all_of(range(buckets), read, BUCKETS_AT_ONCE)
        return held

    async def mails(
        self, queue: QueueName, slice_start: datetime, held: SliceContents, select: Select
    ) -> AsyncIterator[Listed]:
        """The held mails, by enqueue time, then by id."""
        for listed in sorted((mail for mail, _ in held.mails), key=_order):
            yield listed
        keys = sorted(held.keys)
        for first in range(0, len(keys), READ_AGAIN_ROWS):
            for listed in await self._again(queue, slice_start, keys[first : first + READ_AGAIN_ROWS]):
                if select(listed):
                    yield listed

    async def first_unmarked(self, queue: QueueName, slice_start: datetime, buckets: int) -> Key | None:
        """The key of any unmarked row of the slice, readable or not."""
        for bucket in range(buckets):
            async with aclosing(self.pages((queue, slice_start, bucket), ("enqueueid",))) as pages:
                async for page in pages:
                    ids = [EnqueueId(row["enqueueid"]) for row in page]
                    marked = await self._marks.among(queue, ids)
                    unmarked = [enqueue_id for enqueue_id in ids if enqueue_id not in marked]
                    if unmarked:
                        return (queue, slice_start, bucket, unmarked[0])
        return None

    async def count_unmarked(self, queue: QueueName, slice_start: datetime, buckets: int) -> int:
        """How many unmarked rows the slice has, readable or not."""

        async def count(bucket: int) -> int:
            unmarked = 0
            async with aclosing(self.pages((queue, slice_start, bucket), ("enqueueid",))) as pages:
                async for page in pages:
                    ids = [row["enqueueid"] for row in page]
                    unmarked += len(page) - len(await self._marks.among(queue, ids))
            return unmarked

        return sum(await all_of(range(buckets), count, BUCKETS_AT_ONCE))

    async def is_empty(self, queue: QueueName, slice_start: datetime, buckets: int) -> bool:
        """Whether the slice has no row, marked or not."""

        async def empty(bucket: int) -> bool:
            under = (queue, slice_start, bucket)
            return not await self._page(Scan(ENQUEUED_MAILS, ("enqueueid",), Level.QUORUM, under=under, limit=1))

        return all(await all_of(range(buckets), empty, BUCKETS_AT_ONCE))

    async def _page(self, scan: Scan) -> list[Row]:
        async def page() -> list[Row]:
            return [row async for row in self._tables.scan(scan)]

        return await self._retries.call(page)

    async def _again(self, queue: QueueName, slice_start: datetime, keys: Sequence[int]) -> list[Listed]:
        ids = defaultdict[int, list[EnqueueId]](list)
        for bucket, enqueue_id in map(_unpacked, keys):
            ids[bucket].append(enqueue_id)
        reads = []
        for bucket, some in ids.items():
            for first in range(0, len(some), READ_TOGETHER):
                together = tuple(some[first : first + READ_TOGETHER])
                reads.append(Read(ENQUEUED_MAILS, (queue, slice_start, bucket), among=together))
        mails: list[Listed] = []
        for answer in await answered(self._tables, self._retries, reads):
            for seen in answer:
                row = read_row(seen.row)
                if isinstance(row, Listed):
                    mails.append(row)
        return sorted(mails, key=_order)


def id_of(one: Listed | BrokenRow) -> EnqueueId:
    if isinstance(one, BrokenRow):
        return one.enqueue_id
    return one.queued.enqueue_id


def _tell(queue: QueueName, one: Listed | BrokenRow) -> None:
    if isinstance(one, BrokenRow):
        _LOG.warning("a row cannot be read", extra={"queue": queue, "mail": one.enqueue_id, "error": one.why})


def _order(listed: Listed) -> tuple[datetime, UUID]:
    return listed.enqueued_at, listed.queued.enqueue_id


def _packed(listed: Listed, bucket: int) -> int:
    """The sort key and the row's key in one number: a million of them fit into 60 MB."""
    millis = (listed.enqueued_at - EPOCH) // _MILLISECOND
    return (millis << _ID_BITS | listed.queued.enqueue_id.int) << _BUCKET_BITS | bucket


def _unpacked(key: int) -> tuple[int, EnqueueId]:
    return key & (1 << _BUCKET_BITS) - 1, EnqueueId(UUID(int=key >> _BUCKET_BITS & (1 << _ID_BITS) - 1))
