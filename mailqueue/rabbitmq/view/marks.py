"""Marks: rows of deletedMailsV2, each saying that a mail left its queue. Written repeatedly, never removed.

A mark is looked up before anything is done with a mail, one by one on delivery, many at once in listings and sweeps.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Final

from mailmend.model.catalog.mail_queue import DELETED_MAILS
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.operations import Put, Read, Seen
from mailmend.model.ports import AsyncTables
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
    return Put(DELETED_MAILS, {"queuename": queue, "enqueueid": enqueue_id})


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
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            for answer in some.values():
                _tell(answer, error)
            return
        for enqueue_id, answer in some.items():
            _tell(answer, enqueue_id in marked)

    async def _answer_alone(self, some: dict[EnqueueId, "asyncio.Future[bool]"], error: MailmendError) -> None:
        """After an error of the batch look each up alone, so that one failure delays no other."""
        if len(some) == 1:
            (answer,) = some.values()
            _tell(answer, error)
            return
        await asyncio.gather(*(self._answer({enqueue_id: answer}) for enqueue_id, answer in some.items()))


def _tell(answer: "asyncio.Future[bool]", outcome: bool | Exception) -> None:  # noqa: FBT001 - an answer
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
