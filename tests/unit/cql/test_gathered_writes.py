"""Writes that are under way at the same time share requests, and each has its own answer."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.gathering import (
    BYTES_OVER_PARTITIONS_MAX,
    CELL_BYTES,
    GatheredWrites,
    request_bytes,
)
from mailmend.cql.driver.joined import PARTITIONS_MAX, WRITES_MAX, partition_of
from mailmend.model.errors import AccessDenied, MailmendError, NotEnoughReplicas, TimedOut, WrongUse
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
                total = sum(map(request_bytes, request))
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


async def test_what_a_full_request_left_waits_no_longer_for_a_later_one_that_hangs() -> None:
    wire = Wire()
    together = gathered(wire)
    tasks = [asyncio.ensure_future(together.add(put(k))) for k in "abb"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[0].cancel()
    wire.open.set()
    await asyncio.sleep(0)
    wire.open.clear()
    async with asyncio.timeout(2):
        while len(wire.requests) < 3:  # noqa: ASYNC110 - the second hangs
            await asyncio.sleep(0.001)
    wire.open.set()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("error", [AccessDenied("no right"), NotEnoughReplicas("too few")])
async def test_what_nodes_refuse_to_one_table_or_partition_fails_no_other_write(
    error: MailmendError,
) -> None:
    wire = Wire(error)
    assert await answers(wire, [put(k) for k in "abc"]) == [None] * 3


async def test_a_refused_write_whose_caller_is_cancelled_is_not_sent_again() -> None:
    requests = list[list[object]]()
    tasks = list[asyncio.Task[MailmendError | None]]()

    async def refused_together(writes: Sequence[Put]) -> MailmendError | None:
        requests.append([write.row["k"] for write in writes])
        await asyncio.sleep(0)
        if len(writes) == 1:
            return None
        tasks[2].cancel()
        return WrongUse("refused")

    together = GatheredWrites(refused_together, lambda _: True)
    tasks += [asyncio.ensure_future(together.add(put(k))) for k in "abc"]
    await asyncio.gather(*tasks, return_exceptions=True)
    assert requests == [["a"], ["b", "c"], ["b"]]


async def test_a_write_whose_caller_is_cancelled_before_its_turn_is_not_sent() -> None:
    wire = Wire()
    turns = asyncio.Semaphore(1)
    together = GatheredWrites(wire.send, lambda _: True, turns)
    await turns.acquire()
    task = asyncio.ensure_future(together.add(put("a")))
    await asyncio.sleep(0.001)
    task.cancel()
    turns.release()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0.001)
    assert not wire.requests


def test_the_size_of_a_write_has_its_cells_and_its_letters_as_bytes() -> None:
    values = len("k") + 16 + 16
    assert request_bytes(put("k", v="\N{SNOWMAN}" * 10)) == values + 30 + 4 * CELL_BYTES


async def test_the_loop_does_not_wait_for_the_shape_that_finds_a_replica() -> None:
    class Asked(Exception):
        """Ends the write once its replica was asked for."""

    class NewKeyspace:
        def knows(self, _: object) -> bool:
            return False

        def replica_of(self, _: object) -> bool:
            assert threading.current_thread() is not threading.main_thread()
            raise Asked

    with pytest.raises(Asked):
        await AsyncKeyspace(cast("Any", NewKeyspace())).write(put("a"))
