"""A pace is kept over any stretch of time, whatever the portions in which rows are taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.model.instants import MICROS
from mailmend.model.operations import Put, PutIfAbsent, Read, Scan
from mailmend.repair.mending.limits import BURST_SECONDS, Pace, PacedTables, granted_until, share
from tests.support.clock import START, VirtualClock
from tests.support.repairing import Meter
from tests.support.tables import MARKS


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 2)), min_size=1, max_size=60), st.integers(10, 10_000))
def test_no_more_rows_are_granted_than_the_rate_and_one_burst(takes: list[tuple[int, float]], rate: int) -> None:
    clock = VirtualClock()
    pace = Pace(rate, clock)
    granted = 0
    for rows, idle in takes:
        clock.advance(idle)
        pace.take(rows)
        granted += rows
        elapsed = (clock.micros() - START) / MICROS
        assert granted <= rate * (elapsed + BURST_SECONDS) + 1


def test_a_steady_reader_is_slowed_to_the_rate() -> None:
    """1,000 rows at 100 a second take ten seconds, less the first burst."""
    clock = VirtualClock()
    pace = Pace(100, clock)
    for _ in range(100):
        pace.take(10)
    assert round((clock.micros() - START) / MICROS, 2) == 10 - BURST_SECONDS


def test_without_a_rate_nobody_waits() -> None:
    clock = VirtualClock()
    Pace(None, clock).take(10**9)
    assert clock.slept == []


def test_taking_nothing_takes_no_time() -> None:
    clock = VirtualClock()
    Pace(1, clock).take(0)
    assert clock.slept == []


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 1000), st.integers(1, 1000))
def test_grants_only_ever_move_forward(until: int, now: int, rows: int, rate: int) -> None:
    assert granted_until(until, now, rows, rate) >= until


def test_workers_share_a_pace() -> None:
    assert share(100, 4) == 25
    assert share(None, 4) is None
    assert share(100, 0) == 100


_WORK = st.sampled_from(["read", "read all", "scan", "write", "write all", "attempt"])


@given(st.lists(_WORK, min_size=1, max_size=20), st.sampled_from([1, 7, 40, 5_000]))
def test_tables_are_read_and_written_at_the_pace_row_by_row(work: list[str], rate: int) -> None:
    """Partitions of eleven rows, and none: nobody knows how many before they are read."""
    clock = VirtualClock()
    memory = MemoryTables(clock.micros)
    rows = [Put(MARKS, {"k": "full", "c": number}) for number in range(11)]
    memory.write_all(rows)
    memory.surround = meter = Meter()
    tables = Pace(rate, clock).over(memory)
    full, empty = Read(MARKS, ("full",)), Read(MARKS, ("empty",))
    for one in work:
        match one:
            case "read":
                assert len(tables.read(full)) == 11
                assert tables.read(empty) == []
            case "read all":
                assert [len(answer) for answer in tables.read_all([full, empty] * 3)] == [11, 0] * 3  # type: ignore[arg-type]
            case "scan":
                assert len(list(tables.scan(Scan(MARKS, ("c",))))) == 11
            case "write":
                tables.write(rows[0])
            case "write all":
                assert tables.write_all(rows) == [None] * 11
            case _:
                assert not tables.attempt(PutIfAbsent(MARKS, rows[0].row)).applied
        elapsed = (clock.micros() - START) / MICROS
        assert elapsed == pytest.approx(max(0.0, meter.rows / rate - BURST_SECONDS), abs=0.001)


def test_no_more_is_asked_for_together_than_the_rows_of_a_second() -> None:
    clock = VirtualClock()
    over = {rate: Pace(rate, clock).over(MemoryTables(clock.micros)) for rate in (0.5, 20, 1_000_000)}
    assert [one.at_once for one in over.values() if isinstance(one, PacedTables)] == [1, 20, 1_000]


def test_without_a_rate_nothing_stands_between() -> None:
    memory = MemoryTables(VirtualClock().micros)
    assert Pace(None, VirtualClock()).over(memory) is memory
