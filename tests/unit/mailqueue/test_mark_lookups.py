"""Look-ups that go together: each answered truly, none from before it was asked, none for another's failure."""

import asyncio
from collections.abc import Collection
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rabbitmq.view.slices import TOGETHER_MAX, MarkLookups
from mailmend.model.errors import CannotReach, TimedOut
from mailmend.model.ids import EnqueueId
from tests.support.queues import until


def ids(*numbers: int) -> list[EnqueueId]:
    return [EnqueueId(UUID(int=number)) for number in numbers]


class Asked:
    """Marks that remember how they were asked.

    Attributes:
        silent: look-ups in which any of these is get no answer.
    """

    def __init__(self, *marked: int, silent: Collection[int] = ()) -> None:
        self.marked, self.silent = set(ids(*marked)), set(ids(*silent))
        self.requests: list[int] = []

    def lookups(self) -> MarkLookups:
        return MarkLookups(self.one, self.many)

    async def one(self, enqueue_id: EnqueueId) -> bool:
        return bool(await self.many([enqueue_id]))

    async def many(self, enqueue_ids: Collection[EnqueueId]) -> set[EnqueueId]:
        self.requests.append(len(enqueue_ids))
        for _ in range(3):
            await asyncio.sleep(0)
        if self.silent & set(enqueue_ids):
            raise TimedOut("no answer")
        return self.marked & set(enqueue_ids)


async def test_one_at_a_time_each_is_a_request() -> None:
    marks = Asked(2)
    lookups = marks.lookups()
    assert [await lookups.marked(one) for one in ids(1, 2, 3)] == [False, True, False]
    assert marks.requests == [1, 1, 1]


@given(st.sets(st.integers(0, 300)), st.integers(1, 300))
async def test_many_at_once_share_requests(marked: set[int], most: int) -> None:
    """Each has its own answer; the first goes alone, the others together, no more than so many in one."""
    marks = Asked(*marked)
    lookups = marks.lookups()
    answers = await asyncio.gather(*map(lookups.marked, ids(*range(most))))
    assert answers == [number in marked for number in range(most)]
    assert sum(marks.requests) == most
    assert len(marks.requests) <= 2 + most // TOGETHER_MAX
    assert max(marks.requests) <= TOGETHER_MAX


async def test_an_answer_is_never_from_before_the_question() -> None:
    """Who asks while a request for the same mail is under way is answered by the next."""
    marks = Asked()
    lookups = marks.lookups()
    early = asyncio.ensure_future(lookups.marked(ids(1)[0]))
    await until(lambda: bool(marks.requests))
    marks_seen = asyncio.ensure_future(lookups.marked(ids(1)[0]))
    await early
    marks.marked.update(ids(1))
    assert await marks_seen
    assert len(marks.requests) == 2


async def test_one_without_an_answer_fails_alone() -> None:
    marks = Asked(3, silent=[5])
    lookups = marks.lookups()
    answers = await asyncio.gather(*map(lookups.marked, ids(*range(8))), return_exceptions=True)
    assert [isinstance(answer, CannotReach) for answer in answers] == [number == 5 for number in range(8)]
    assert answers[3] is True


async def test_whoever_goes_away_takes_nobody_along() -> None:
    """A look-up that is cancelled leaves the others' answers alone; closing ends what is under way."""
    marks = Asked(1, 2)
    lookups = marks.lookups()
    going, staying = (asyncio.ensure_future(lookups.marked(one)) for one in ids(1, 2))
    await asyncio.sleep(0)
    going.cancel()
    assert await staying
    with pytest.raises(asyncio.CancelledError):
        await going
    left = asyncio.ensure_future(lookups.marked(ids(3)[0]))
    await asyncio.sleep(0)
    await lookups.close()
    await asyncio.wait((left,))
    assert left.cancelled()


async def test_an_unexpected_error_is_raised_as_it_was() -> None:
    """Not as a cancellation, which would look like the consumer's own."""

    async def flawed(_: object) -> bool:
        raise ZeroDivisionError("a flaw")

    lookups = MarkLookups(flawed, flawed)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError, match="a flaw"):
        await lookups.marked(ids(1)[0])
