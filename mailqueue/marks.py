"""Marks: rows of deletedMailsV2, each saying that a mail is no longer in its queue. Put again at will, never removed.

A mark is looked up before anything is done with a mail, one by one on delivery, many at once in listings and sweeps.
"""

from collections.abc import Collection, Sequence
from typing import Final

from mailqueue.ports import Tables
from model.catalog_queue import DELETED_MAILS
from model.errors import MailmendError
from model.ids import EnqueueId, QueueName
from model.operations import Put, Read, Seen
from repair.retries import AwaitedRetries

LOOKED_UP_AT_ONCE: Final = 1_000
"""How many marks one request of many asks for; the tables bound how many of them are in flight."""


class Marks:
    """The marks of every queue of a keyspace."""

    def __init__(self, tables: Tables, retries: AwaitedRetries) -> None:
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
            answers = await answered(self._tables, self._retries, [_look(queue, one) for one in some])
            found.update(one for one, seen in zip(some, answers, strict=True) if seen)
        return found


async def answered(tables: Tables, retries: AwaitedRetries, reads: Sequence[Read]) -> list[Sequence[Seen]]:
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


def _mark(queue: QueueName, enqueue_id: EnqueueId) -> Put:
    return Put(DELETED_MAILS, {"queuename": queue, "enqueueid": enqueue_id})


def _look(queue: QueueName, enqueue_id: EnqueueId) -> Read:
    return Read(DELETED_MAILS, (queue, enqueue_id))
