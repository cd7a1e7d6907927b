"""Writes that are under way at the same time share requests, and each has its own answer."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.driver.gathering import BYTES_OVER_PARTITIONS_MAX, GatheredWrites
from mailmend.cql.driver.joined import PARTITIONS_MAX, WRITES_MAX, partition_of, size_of
from mailmend.model.errors import MailmendError, TimedOut, WrongUse
from mailmend.model.operations import Put
from tests.support.clock import uuid_at
from tests.support.tables import CELLS

BAD = "refused"


def put(k: str, c: int = 1, v: str = "x") -> Put:
    return Put(CELLS, {"k": k, "c": c, "d": uuid_at(1_000), "v": v}, joinable=True)


class Wire:
    """Notes requests, and answers each once it is let go."""

    def __init__(self, error: MailmendError | None = None) -> None:
        self.error = error
        self.requests: list[Sequence[Put]] = []
        self.open = asyncio.Event()

    async def send(self, writes: Sequence[Put]) -> MailmendError | None:
        self.requests.append(writes)
        await self.open.wait()
        if len(writes) > 1 and self.error is not None:
            return self.error
        if any(write.row["v"] == BAD for write in writes):
            return WrongUse("a value does not fit its column")
        return None


def gathered(wire: Wire) -> GatheredWrites:
    return GatheredWrites(wire.send, lambda _: True)


async def answers(wire: Wire, writes: Sequence[Put]) -> list[MailmendError | None]:
    together = gathered(wire)
    tasks = [asyncio.ensure_future(together.add(write)) for write in writes]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    wire.open.set()
    return await asyncio.gather(*tasks)


@given(
    st.lists(st.builds(put, st.sampled_from("abcdefghijklmnop"), st.integers(1, 3), st.sampled_from(["x", "y" * 900])))
)
def test_each_write_is_sent_once_and_no_request_is_too_large(writes: list[Put]) -> None:
    async def run() -> None:
        wire = Wire()
        assert await answers(wire, writes) == [None] * len(writes)
        sent = [id(write) for request in wire.requests for write in request]
        assert sorted(sent) == sorted(map(id, writes))
        for request in wire.requests:
            partitions = {partition_of(write) for write in request}
            assert len(request) <= WRITES_MAX
            assert len(partitions) <= PARTITIONS_MAX
            assert len({CELLS.key_of(write.row) for write in request}) == len(request)
            if len(partitions) > 1:
                total = sum(size_of(list(write.row.values())) for write in request)
                assert total <= BYTES_OVER_PARTITIONS_MAX

    asyncio.run(run())


async def test_what_comes_during_a_request_shares_the_next_one() -> None:
    wire = Wire()
    assert await answers(wire, [put(k) for k in "abcd"]) == [None] * 4
    assert [len(request) for request in wire.requests] == [1, 3]


async def test_a_request_that_hangs_holds_up_no_later_one() -> None:
    wire = Wire()
    together = gathered(wire)
    first = asyncio.ensure_future(together.add(put("a")))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(together.add(put("b")))
    while len(wire.requests) < 2:  # noqa: ASYNC110 - both are on their way
        await asyncio.sleep(0.001)
    assert not first.done()
    wire.open.set()
    assert [await first, await second] == [None, None]


async def test_a_refused_write_does_not_fail_the_others_of_its_request() -> None:
    wire = Wire()
    first, second, refused, last = await answers(wire, [put("a"), put("b"), put("c", v=BAD), put("d")])
    assert [first, second, last] == [None, None, None]
    assert isinstance(refused, WrongUse)


async def test_a_request_without_an_answer_fails_each_of_its_writes() -> None:
    error = TimedOut("no answer")
    wire = Wire(error)
    assert await answers(wire, [put(k) for k in "abc"]) == [None, error, error]
    assert len(wire.requests) == 2


async def test_a_write_whose_caller_is_cancelled_is_not_sent() -> None:
    wire = Wire()
    together = gathered(wire)
    first = asyncio.ensure_future(together.add(put("a")))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(together.add(put("b")))
    await asyncio.sleep(0)
    second.cancel()
    wire.open.set()
    assert await first is None
    with pytest.raises(asyncio.CancelledError):
        await second
    assert [len(request) for request in wire.requests] == [1]
