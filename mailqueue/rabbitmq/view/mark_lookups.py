"""Looking up the marks of deliveries: the first at once, those that are asked for meanwhile together.

One at a time a look-up waits for nothing; under load many share one request, which takes the servers and this process
a fraction of the work. A look-up never answers from before it was asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from itertools import islice
from typing import Final

from model.errors import MailmendError
from model.ids import EnqueueId

TOGETHER_MAX: Final = 100
"""How many are looked up together."""

One = Callable[[EnqueueId], Awaitable[bool]]
Many = Callable[[Collection[EnqueueId]], Awaitable[Collection[EnqueueId]]]


class MarkLookups:
    """The look-ups of one consumer.

    Args:
        one: whether a mail is marked.
        many: those of the mails that are.
    """

    def __init__(self, one: One, many: Many) -> None:
        self._one, self._many = one, many
        self._asked: dict[EnqueueId, asyncio.Future[bool]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def marked(self, enqueue_id: EnqueueId) -> bool:
        """Whether the mail is marked by now.

        Raises:
            MailmendError: nobody can tell.
        """
        answer = self._asked.get(enqueue_id)
        if answer is None:
            answer = self._asked[enqueue_id] = asyncio.get_running_loop().create_future()
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(answer)

    async def close(self) -> None:
        """Stop asking; whoever still waits is cancelled."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        for answer in self._asked.values():
            answer.cancel()

    async def _ask(self) -> None:
        """Until nobody asks any more; what is asked while a request is under way goes with the next."""
        try:
            while self._asked:
                some = {one: self._asked.pop(one) for one in list(islice(self._asked, TOGETHER_MAX))}
                await self._answer(some)
        finally:
            self._asking = None

    async def _answer(self, some: dict[EnqueueId, "asyncio.Future[bool]"]) -> None:
        try:
            marked = await self._many(some) if len(some) > 1 else [one for one in some if await self._one(one)]
        except MailmendError as error:
            await self._answer_alone(some, error)
            return
        except asyncio.CancelledError:
            for answer in some.values():
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - whoever waits is told what it was
            for answer in some.values():
                _tell(answer, error)
            return
        for one, answer in some.items():
            _tell(answer, one in marked)

    async def _answer_alone(self, some: dict[EnqueueId, "asyncio.Future[bool]"], error: MailmendError) -> None:
        """Where one of many is without an answer the others are asked alone: it holds up nobody."""
        if len(some) == 1:
            (answer,) = some.values()
            _tell(answer, error)
            return
        await asyncio.gather(*(self._answer({one: answer}) for one, answer in some.items()))


def _tell(answer: "asyncio.Future[bool]", outcome: bool | Exception) -> None:  # noqa: FBT001 - an answer
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
