"""Marks: rows of deletedMailsV2, each saying that a mail is no longer in its queue. Put again at will, never removed.

A mark is looked up before anything is done with a mail, one by one on delivery, many at once in listings and sweeps.
"""

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from model.catalog.mail_queue import DELETED_MAILS
from model.errors import MailmendError
from model.ids import EnqueueId, QueueName
from model.operations import Put, Read, Seen
from model.ports import AsyncTables
from repair.retries import AsyncRetries

LOOKED_UP_AT_ONCE: Final = 1_000
"""How many marks are looked up before more are: so many may be under way in the tables."""

LOOKED_UP_TOGETHER: Final = 20
"""How many marks one request asks for: as many as the strictest limits of servers allow (Astra: 20; Scylla: 100), and a
tenth of the time of so many requests."""

REMEMBERED_MAX: Final = 100_000
"""How many pages of marks a pass remembers: 10 MB, of a hundred million mails."""


class Marks:
    """The marks of every queue of a keyspace."""

    def __init__(self, tables: AsyncTables, retries: AsyncRetries) -> None:
        self._tables, self._retries = tables, retries

    async def put(self, queue: QueueName, enqueue_id: EnqueueId) -> None:
        """Mark a mail; one that is marked stays so."""
        await self._retries.write(self._tables, _mark(queue, enqueue_id))

    async def put_all(self, queue: QueueName, enqueue_ids: Sequence[EnqueueId]) -> list[MailmendError | None]:
        """Mark many; for each the error that is left after all tries, or None."""
        return await self._retries.write_all(self._tables, [_mark(queue, one) for one in enqueue_ids])

    async def there(self, queue: QueueName, enqueue_id: EnqueueId) -> bool:
        """Whether a mail is marked."""
        return bool(await self._retries.call(lambda: self._tables.read(_look(queue, enqueue_id))))

    async def among(self, queue: QueueName, enqueue_ids: Collection[EnqueueId]) -> set[EnqueueId]:
        """Those of the mails that are marked."""
        asked, found = list(enqueue_ids), set[EnqueueId]()
        for first in range(0, len(asked), LOOKED_UP_AT_ONCE):
            some = asked[first : first + LOOKED_UP_AT_ONCE]
            answers = await answered(self._tables, self._retries, list(_looks(queue, some)))
            found.update(EnqueueId(seen.row["enqueueid"]) for answer in answers for seen in answer)
        return found


class RememberedMarks(Marks):
    """Marks for one pass that reads the same pages of rows twice: what is marked stays so, and is not asked for again.

    A page is remembered, by a digest of its ids, once all of them were found marked: nothing else is passed by, and so
    a million mails take some kilobytes. In a page into which a row has come since, all are asked for again.
    """

    def __init__(self, tables: AsyncTables, retries: AsyncRetries) -> None:
        super().__init__(tables, retries)
        self._known: dict[QueueName, set[bytes]] = {}

    async def among(self, queue: QueueName, enqueue_ids: Collection[EnqueueId]) -> set[EnqueueId]:
        """Those of the mails that are marked; the same page in the same order is told at once."""
        known, page = self._known.setdefault(queue, set()), _digest(enqueue_ids)
        if page in known:
            return set(enqueue_ids)
        found = await super().among(queue, enqueue_ids)
        if len(found) == len(enqueue_ids) and len(known) < REMEMBERED_MAX:
            known.add(page)
        return found

    def forget(self, queue: QueueName) -> None:
        """The pass is over."""
        self._known.pop(queue, None)


async def answered(tables: AsyncTables, retries: AsyncRetries, reads: Sequence[Read]) -> list[Sequence[Seen]]:
    """The answers to many reads, all of them; what fails is asked again.

    Raises:
        MailmendError: of one that kept failing.
    """
    answers: list[Sequence[Seen] | None] = [None] * len(reads)

    async def ask() -> None:
        open_ = [place for place, answer in enumerate(answers) if answer is None]
        failed: list[MailmendError] = []
        for place, answer in zip(open_, await tables.read_all([reads[place] for place in open_]), strict=True):
            if isinstance(answer, MailmendError):
                failed.append(answer)
            else:
                answers[place] = answer
        if failed:
            raise failed[0]

    await retries.call(ask)
    return [answer for answer in answers if answer is not None]


def _digest(enqueue_ids: Collection[EnqueueId]) -> bytes:
    return blake2b(b"".join(one.bytes for one in enqueue_ids), digest_size=32).digest()


def _mark(queue: QueueName, enqueue_id: EnqueueId) -> Put:
    return Put(DELETED_MAILS, {"queuename": queue, "enqueueid": enqueue_id})


def _looks(queue: QueueName, enqueue_ids: Sequence[EnqueueId]) -> Iterator[Read]:
    for first in range(0, len(enqueue_ids), LOOKED_UP_TOGETHER):
        yield Read(DELETED_MAILS, (queue,), among=tuple(enqueue_ids[first : first + LOOKED_UP_TOGETHER]))


def _look(queue: QueueName, enqueue_id: EnqueueId) -> Read:
    return Read(DELETED_MAILS, (queue, enqueue_id))
