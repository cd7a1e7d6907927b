"""What every adapter of `AsyncTables` must do: the twin in turns, and a real Cassandra by its callbacks.

What each operation means is told in test_table_reads and test_table_writes; here it is that all of them come through,
in order, page after page, with their errors, and that a cancelled task leaves the others alone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import PAGE_ROWS, Keyspace
from mailmend.cql.memory import MemoryTables
from mailmend.model.errors import MailmendError, SchemaMismatch, TimedOut, WrongUse
from mailmend.model.operations import (
    Applied,
    Change,
    ChangeIf,
    Count,
    Level,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    RemoveIf,
    Scan,
    Seen,
)
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Column, Kind, Row, Table
from tests.support.in_turn import InTurn
from tests.support.tables import CELLS, COUNTERS, MARKS, micros

D, E, F = (UUID(int=number << 96 | 0x11F1 << 64 | 0x8000 << 48) for number in (1, 2, 3))
NAMES = ("k", "c")
MANY = 2 * PAGE_ROWS + 500


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def run(request: pytest.FixtureRequest) -> AsyncTables:
    if request.param == "memory":
        return InTurn(MemoryTables(micros))
    return AsyncKeyspace(request.getfixturevalue("keyspace"))


def cell(k: str, c: int = 1, d: UUID = D, **columns: Any) -> Row:
    return {"k": k, "c": c, "d": d, **columns}


async def scanned(tables: AsyncTables, scan: Scan) -> list[Row]:
    return [row async for row in tables.scan(scan)]


async def cancelled_after(turns: int, asked: Awaitable[Any]) -> None:
    asking = asyncio.ensure_future(asked)
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


class TestOperations:
    """Each of them comes through."""

    async def test_what_is_written_is_read(self, run: AsyncTables, k: str) -> None:
        await run.write(Put(CELLS, cell(k, v="x", n=1), at=10))
        await run.write(Change(CELLS, (k, 1, D), {"n": 2}, at=20))
        seen = await run.read(Read(CELLS, (k,), times=True))
        assert [(one.row["v"], one.row["n"], dict(one.written_at)) for one in seen] == [("x", 2, {"v": 10, "n": 20})]
        await run.write(Remove(CELLS, (k, 1, D), at=30))
        assert list(await run.read(Read(CELLS, (k,)))) == []
        await run.write(Count(COUNTERS, (k,), {"count": 2}))
        assert [one.row["count"] for one in await run.read(Read(COUNTERS, (k,)))] == [2]

    async def test_conditions_are_judged(self, run: AsyncTables, k: str) -> None:
        row = cell(k, v="me", n=None, b=None, day=None, tags=None)
        assert await run.attempt(PutIfAbsent(CELLS, row)) == Applied(applied=True)
        refused = await run.attempt(ChangeIf(CELLS, (k, 1, D), {"v": "you"}, {"v": "other"}))
        assert refused == Applied(applied=False, current={"v": "me"})
        assert (await run.attempt(RemoveIf(CELLS, (k, 1, D), {"v": "me"}))).applied
        assert list(await run.read(Read(CELLS, (k,), Level.SERIAL))) == []

    async def test_many_at_once_answer_in_order(self, run: AsyncTables, k: str) -> None:
        writes = [Put(MARKS, {"k": f"{k}{n}", "c": n}) for n in range(300)]
        assert await run.write_all(writes) == [None] * 300
        answers = await run.read_all([Read(MARKS, (f"{k}{n}",)) for n in range(301)])
        found = [[seen.row["c"] for seen in one] for one in answers if not isinstance(one, MailmendError)]
        assert found == [*([n] for n in range(300)), []]
        assert await run.read_all([]) == []
        assert await run.write_all([]) == []

    async def test_single_requests_side_by_side_each_have_their_own_answer(self, run: AsyncTables, k: str) -> None:
        await asyncio.gather(*(run.write(Put(MARKS, {"k": k, "c": n})) for n in range(600)))
        answers = await asyncio.gather(*(run.read(Read(MARKS, (k, n))) for n in range(600)))
        assert [[seen.row["c"] for seen in one] for one in answers] == [[n] for n in range(600)]


class TestPages:
    """An answer of many pages is one answer."""

    @pytest.fixture
    async def full(self, run: AsyncTables, k: str) -> str:
        assert not any(await run.write_all([Put(MARKS, {"k": k, "c": n}) for n in range(MANY)]))
        return k

    async def test_a_read_of_many_pages_is_whole(self, run: AsyncTables, full: str) -> None:
        seen = await run.read(Read(MARKS, (full,)))
        assert [one.row["c"] for one in seen] == list(range(MANY))[::-1]
        several = await asyncio.gather(*(run.read(Read(MARKS, (full,))) for _ in range(3)))
        assert [len(one) for one in several] == [MANY] * 3

    async def test_scans_of_many_pages_are_whole_and_do_not_mix(self, run: AsyncTables, full: str) -> None:
        limits = [*(PAGE_ROWS + n for n in range(3)), MANY]
        rows = await asyncio.gather(*(scanned(run, Scan(MARKS, NAMES, under=(full,), limit=n)) for n in limits))
        assert [[row["c"] for row in one] for one in rows] == [list(range(MANY))[::-1][:n] for n in limits]

    async def test_a_scan_may_be_left_early(self, run: AsyncTables, full: str) -> None:
        for wanted in (1, PAGE_ROWS - 1, PAGE_ROWS + 1):
            seen = 0
            async with aclosing(run.scan(Scan(MARKS, NAMES, under=(full,)))) as rows:  # type: ignore[type-var]
                async for _ in rows:
                    seen += 1
                    if seen == wanted:
                        break
        assert len(await run.read(Read(MARKS, (full, 7)))) == 1


class TestScan:
    """A scan of one partition may begin behind a row, and end after so many."""

    @pytest.fixture
    async def rows(self, run: AsyncTables, k: str) -> list[tuple[int, UUID]]:
        keys = [(c, d) for c in range(4) for d in (D, E, F)]
        await run.write_all([Put(CELLS, cell(k, c, d, v="x")) for c, d in reversed(keys)])
        return keys

    async def test_rows_come_behind_the_given_one(self, run: AsyncTables, k: str, rows: list[tuple[int, UUID]]) -> None:
        after: tuple[Any, ...]
        for after, limit in product([(), (0,), (1, D), (2, F), (3, F), (-1,), (9, D)], [None, 1, 5, 12, 99]):
            found = await scanned(run, Scan(CELLS, ("k", "c", "d"), under=(k,), after=after, limit=limit))
            expected = [one for one in rows if not after or one[: len(after)] > after]
            assert [(row["c"], row["d"]) for row in found] == expected[:limit], (after, limit)

    async def test_pages_of_ones_own_cover_a_partition(
        self, run: AsyncTables, k: str, rows: list[tuple[int, UUID]]
    ) -> None:
        found = list[tuple[int, UUID]]()
        after: tuple[Any, ...] = ()
        while page := await scanned(run, Scan(CELLS, ("c", "d"), under=(k,), after=after, limit=5)):
            found += [(row["c"], row["d"]) for row in page]
            after = found[-1]
        assert found == rows

    @pytest.mark.usefixtures("rows")
    async def test_a_whole_table_may_be_limited_too(self, run: AsyncTables) -> None:
        assert len(await scanned(run, Scan(CELLS, ("k",), limit=3))) == 3


NOWHERE = Table("no_such_table", (Column("k", "text", Kind.PARTITION), Column("v", "text")))


class TestErrors:
    """What goes wrong comes to whoever asked, as an error of ours."""

    @pytest.fixture
    def broken(self, run: AsyncTables) -> AsyncTables:
        """AsyncTables among which one is missing; the twin, which makes any, is told to miss it."""
        if isinstance(run, InTurn):
            memory = MemoryTables(micros)

            def surround(operation: Any, carry_out: Callable[[], Any]) -> Any:
                if operation.table is NOWHERE:
                    raise SchemaMismatch("memory", ("table no_such_table",))
                return carry_out()

            memory.surround = surround
            return InTurn(memory)
        return run

    async def test_a_missing_table_is_reported_by_every_operation(self, broken: AsyncTables, k: str) -> None:
        operations: list[Callable[[], Awaitable[Any]]] = [
            lambda: broken.read(Read(NOWHERE, (k,))),
            lambda: broken.write(Put(NOWHERE, {"k": k, "v": "x"})),
            lambda: broken.attempt(PutIfAbsent(NOWHERE, {"k": k, "v": "x"})),
            lambda: scanned(broken, Scan(NOWHERE, ("k",))),
        ]
        for operation in operations:
            with pytest.raises(SchemaMismatch, match="no_such_table"):
                await operation()
        errors = await broken.write_all([Put(MARKS, {"k": k, "c": 1}), Put(NOWHERE, {"k": k, "v": "x"})])
        assert [type(error) for error in errors] == [type(None), SchemaMismatch]
        answers = await broken.read_all([Read(NOWHERE, (k,)), Read(MARKS, (k,))])
        assert isinstance(answers[0], SchemaMismatch)
        assert answers[1] == [Seen({"k": k, "c": 1})]

    @pytest.mark.cassandra
    async def test_a_value_that_does_not_fit_never_leaves(self, keyspace: Keyspace, k: str) -> None:
        tables = AsyncKeyspace(keyspace, in_flight=1)

        for _ in range(3):
            with pytest.raises(WrongUse, match="does not fit"):
                await tables.write(Put(MARKS, {"k": k, "c": "one"}))
        await tables.write(Put(MARKS, {"k": k, "c": 1}))


class TestCancellation:
    """Whoever is cancelled leaves the others alone."""

    async def test_a_request_may_be_cancelled_at_any_moment(
        self, run: AsyncTables, k: str, request: pytest.FixtureRequest
    ) -> None:
        tables = run
        if isinstance(run, AsyncKeyspace):
            tables = AsyncKeyspace(request.getfixturevalue("keyspace"), in_flight=1)
        await tables.write(Put(MARKS, {"k": k, "c": 1}))
        for turns in range(12):
            await cancelled_after(turns, tables.read(Read(MARKS, (k,))))
            await cancelled_after(turns, tables.write(Put(MARKS, {"k": k, "c": 2})))
            assert len(await tables.read(Read(MARKS, (k, 1)))) == 1

    async def test_a_scan_may_be_cancelled(self, run: AsyncTables, k: str) -> None:
        await run.write_all([Put(MARKS, {"k": k, "c": n}) for n in range(10)])
        for turns in range(8):
            await cancelled_after(turns, scanned(run, Scan(MARKS, NAMES, under=(k,))))
        assert len(await scanned(run, Scan(MARKS, NAMES, under=(k,)))) == 10

    @pytest.mark.cassandra
    def test_an_answer_to_a_loop_that_is_gone_hurts_nobody(self, keyspace: Keyspace, k: str) -> None:
        tables = AsyncKeyspace(keyspace)

        async def leave() -> None:
            tasks = [asyncio.ensure_future(tables.write(Put(MARKS, {"k": k, "c": n}))) for n in range(50)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()

        asyncio.run(leave())

        async def story() -> None:
            await tables.write(Put(MARKS, {"k": k, "c": 1}))
            assert len(await tables.read(Read(MARKS, (k, 1)))) == 1

        asyncio.run(story())

    async def test_others_go_on_while_one_waits(self, run: AsyncTables, k: str) -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await run.write(Put(MARKS, {"k": k, "c": 1}))
        await run.read_all([Read(MARKS, (k,))])
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        assert turns > 1


async def test_the_twin_fails_as_asked(k: str) -> None:
    memory = MemoryTables(micros)

    def surround(_: Any, __: Callable[[], Any]) -> Any:
        raise TimedOut("no answer")

    memory.surround = surround
    tables = InTurn(memory)
    with pytest.raises(TimedOut):
        await scanned(tables, Scan(MARKS, NAMES))
    assert [type(error) for error in await tables.write_all([Put(MARKS, {"k": k, "c": 1})])] == [TimedOut]


async def test_inserts_under_way_at_the_same_time_are_all_there(run: AsyncTables) -> None:
    rows = [cell(k, c, v="x") for k in "abcdefghijkl" for c in (1, 2)]
    await asyncio.gather(*(run.write(Put(CELLS, row, joinable=True)) for row in rows))
    for row in rows:
        assert [seen.row["v"] for seen in await run.read(Read(CELLS, (row["k"], row["c"], D)))] == ["x"]
