"""A run looks at the cluster while it keeps its pace: a scan slows down and recovers, and limits are heard.

The clock is turned by hand, and by tables that take their time.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import IMAP_UID, MESSAGES
from mailmend.model.errors import AccessDenied, CannotReach, MailmendError, SchemaMismatch, TimedOut
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import Put, Read, Scan
from mailmend.model.projections.findings import RepairPolicy
from mailmend.repair.decisions.pressure import FLOOR, LOOK_SECONDS, Strain
from mailmend.repair.ledger.runs import TO_END, RunLimit, RunLimits
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.limits import Pace, PacedAsyncTables
from mailmend.repair.mending.throttle import HEAR_SECONDS, SmallRead, Throttle
from mailmend.repair.scanners.local import LocalEngine
from tests.support.clock import START, VirtualClock
from tests.support.in_turn import InTurn
from tests.support.logs import logged
from tests.support.progress import SilentProgress
from tests.support.repairing import World, truth_row
from tests.support.tables import MARKS


@dataclass(slots=True)
class Slow:
    """Surrounds tables in memory: each request takes time, the small ones are counted."""

    clock: VirtualClock
    seconds: float = 0.002
    small: list[float] = field(default_factory=list)
    error: MailmendError | None = None

    def __call__(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        self.clock.advance(self.seconds)
        if isinstance(operation, Scan) and operation.limit == 1:
            self.small.append(self.clock.monotonic())
            if self.error:
                raise self.error
        return carry_out()


@dataclass(slots=True)
class PacedTable:
    """A table that takes its time, and the pace of a run that reads it."""

    limit: int | None = 1_000
    compactions: int | None = None
    clock: VirtualClock = field(default_factory=VirtualClock)
    memory: MemoryTables = field(init=False)
    slow: Slow = field(init=False)
    ledger: RunLimits = field(init=False)
    throttle: Throttle = field(init=False)
    pace: Pace = field(init=False)
    run: RunId = field(default_factory=lambda: RunId(VirtualClock().new_uuid()))

    def __post_init__(self) -> None:
        self.memory = MemoryTables(self.clock.micros)
        self.memory.surround = self.slow = Slow(self.clock)
        self.ledger = RunLimits(MemoryTables(self.clock.micros), self.clock)
        read = SmallRead(self.memory, MARKS, self.clock)
        self.throttle = Throttle(self.clock, self.limit, read, lambda: self.compactions, self.ledger, self.run)
        self.pace = Pace(self.limit, self.clock, self.throttle)

    def rows_in(self, seconds: float) -> float:
        """How many a second are granted meanwhile, taken by tens, in no time."""
        began, taken = self.clock.monotonic(), 0
        while self.clock.monotonic() < began + seconds:
            self.pace.take(10)
            self.clock.advance(0.0005)
            taken += 10
        return taken / (self.clock.monotonic() - began)


def test_a_run_slows_down_within_two_seconds_while_answers_are_slow_and_recovers() -> None:
    paced = PacedTable()
    assert paced.rows_in(10) == pytest.approx(1_000, rel=0.05)

    paced.slow.seconds = 0.008
    paced.rows_in(2)
    assert paced.rows_in(1) <= 500
    assert paced.rows_in(10) == pytest.approx(FLOOR, rel=0.2)
    paced.slow.seconds = 0.002
    paced.rows_in(30)

    assert paced.rows_in(10) == pytest.approx(1_000, rel=0.05)
    reported = paced.throttle.as_json()
    assert (reported["limit"], reported["lowest"], reported["last"]) == (1_000, FLOOR, 1_000)
    assert set(reported["slowed"]) == {"slow answers"}
    assert json.dumps(reported)


def test_a_run_without_a_limit_slows_down_from_what_it_came_to() -> None:
    paced = PacedTable(limit=None)
    free = paced.rows_in(5)
    paced.slow.seconds = 0.008
    paced.rows_in(2)
    assert paced.rows_in(1) <= free / 2
    assert paced.throttle.as_json()["limit"] is None


def test_a_scan_of_the_local_engine_slows_down_and_recovers() -> None:
    """Its answers take four times as long in the midst of a table, for a while."""
    world, clock = World(), VirtualClock()
    for number in range(1, 1_201):
        world.message(truth_row(number))
    slow = Slow(clock)
    world.memory.surround = slow
    throttle = Throttle(clock, 1_000, SmallRead(world.memory, IMAP_UID, clock))
    pace = Pace(1_000, clock, throttle)
    engine = LocalEngine(pace.over(world.memory), world.ledger, clock)
    rates: list[float] = []

    class Watching(SilentProgress):
        def advance(self, steps: int, suspects: int = 0) -> None:
            super().advance(steps, suspects)
            slow.seconds = 0.008 if len(rates) == 1 else 0.002
            rates.append(throttle.pressure.rate)

    settings = RepairSettings("mail", (MESSAGES,), policy=RepairPolicy(rows_per_second=1_000))
    detection = engine.detect(settings, Watching())
    detection.close()

    assert detection.scanned["imapUidTable"] == 1_200
    assert set(detection.counts) == {"mailboxCounters"}, "these messages were counted nowhere"
    assert throttle.lowest < 500 < throttle.pressure.rate


@pytest.mark.parametrize("error", [TimedOut("no answer"), CannotReach("overloaded")])
def test_errors_among_answers_slow_a_run_down(error: MailmendError) -> None:
    paced = PacedTable()
    paced.rows_in(5)
    paced.pace.note([(), error])
    paced.rows_in(1)
    assert paced.throttle.slowed == {Strain.TIMEOUT if isinstance(error, TimedOut) else Strain.OVERLOAD: 1}
    assert paced.rows_in(1) <= 550


def test_reads_and_writes_that_fail_are_noted() -> None:
    paced = PacedTable()
    tables = paced.pace.over(paced.memory)
    paced.rows_in(1)
    failing = TimedOut("no answer")

    def fail(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, Read | Put):
            raise failing
        return carry_out()

    paced.memory.surround = fail
    assert tables.read_all([Read(MARKS, ("k",))]) == [failing]
    assert tables.write_all([Put(MARKS, {"k": "k", "c": 1})]) == [failing]
    paced.rows_in(1)
    assert paced.throttle.slowed[Strain.TIMEOUT] == 1, "at one look, both"


def test_pending_compactions_slow_a_run_down(caplog: pytest.LogCaptureFixture) -> None:
    """The log tells of the first time, not of each."""
    caplog.set_level(logging.INFO, "mailmend.runs")
    paced = PacedTable(compactions=0)
    paced.rows_in(10)
    paced.compactions = 500
    assert paced.rows_in(30) < 400
    paced.compactions = 0
    paced.rows_in(30)
    assert paced.rows_in(5) == pytest.approx(1_000, rel=0.05)
    assert set(paced.throttle.slowed) == {Strain.COMPACTIONS}
    assert caplog.messages == ["slowed down"]


def test_where_the_small_read_is_not_allowed_the_run_goes_on_at_its_limit() -> None:
    for error in (AccessDenied("not yours"), SchemaMismatch("mail", ("no table",))):
        paced = PacedTable()
        paced.slow.error = error
        assert paced.rows_in(20) == pytest.approx(1_000, rel=0.05)
        assert len(paced.slow.small) == 1


def test_a_small_read_without_an_answer_counts_as_one() -> None:
    paced = PacedTable()
    paced.rows_in(5)
    paced.slow.error = TimedOut("no answer")
    paced.rows_in(2)
    assert paced.throttle.slowed[Strain.TIMEOUT] >= 1


def test_a_run_looks_four_times_a_second_also_while_it_waits() -> None:
    paced = PacedTable(limit=1)
    paced.pace.take(20)
    assert 70 <= len(paced.slow.small) <= 90, "twenty seconds, and eight before anything was read"
    gaps = [later - one for one, later in zip(paced.slow.small[8:], paced.slow.small[9:], strict=False)]
    assert max(gaps) <= LOOK_SECONDS + 0.01


@pytest.mark.parametrize("work", [0.00005, 0.005])
@pytest.mark.parametrize(("pressed", "share"), [(True, 0.25), (False, 1.0)])
def test_a_run_that_makes_way_is_at_work_a_quarter_of_its_time(work: float, pressed: bool, share: float) -> None:
    paced, worked = PacedTable(limit=None), 0.0
    if not pressed:
        paced.throttle.read = None
    while paced.clock.monotonic() < START / MICROS + 5:
        paced.pace.take(1)
        paced.clock.advance(work)
        worked += work

    assert worked / 5 == pytest.approx(share, rel=0.06)


def test_a_limit_that_was_set_is_heard_within_seconds_also_in_the_midst_of_a_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mailmend.runs")
    paced = PacedTable(limit=1)
    paced.throttle.read = None
    paced.pace.take(1)
    began = paced.clock.monotonic()
    paced.ledger.put(paced.run, RunLimit(rows_per_second=1_000, owner="bob"))

    paced.pace.take(1_000)

    assert paced.clock.monotonic() - began <= HEAR_SECONDS + 2
    assert paced.throttle.as_json()["limit"] == 1_000
    assert caplog.messages == ["limits were set"]
    assert logged(caplog).endswith("rows_per_second=1000 by=bob")


def test_a_limit_of_another_run_is_not_heard() -> None:
    paced = PacedTable()
    paced.ledger.put(uuid_of_another(), RunLimit(rows_per_second=1))
    assert paced.rows_in(10) == pytest.approx(1_000, rel=0.05)


def test_the_word_that_a_run_is_to_end_is_no_rate() -> None:
    paced = PacedTable()
    paced.ledger.put(paced.run, RunLimit(TO_END))
    assert paced.rows_in(10) == pytest.approx(1_000, rel=0.05)


def uuid_of_another() -> RunId:
    return RunId(VirtualClock(seed=1).random_uuid())


def test_a_ledger_that_cannot_be_read_leaves_the_limit_as_it_is() -> None:
    paced = PacedTable()
    tables = paced.ledger.tables
    assert isinstance(tables, MemoryTables)

    def fail(*_: Any) -> Any:
        raise TimedOut("no answer")

    tables.surround = fail
    assert paced.rows_in(10) == pytest.approx(1_000, rel=0.05)


def test_workers_share_the_rate_and_look_less_often() -> None:
    clock = VirtualClock()
    throttles = [Throttle(clock, 1_000, lambda: 0.001, workers=4) for _ in range(4)]
    assert sum(one.rows_per_second or 0 for one in throttles) == 1_000
    assert {one.seconds for one in throttles} == {4 * LOOK_SECONDS}
    assert Throttle(clock, None, lambda: 0.001, workers=400).seconds == HEAR_SECONDS


def test_the_newest_limit_counts_and_who_set_each_is_reported() -> None:
    paced = PacedTable()
    for rows in (500, 2_000):
        paced.clock.advance(1)
        paced.ledger.put(paced.run, RunLimit(rows_per_second=rows, owner=f"who said {rows}"))
        paced.rows_in(3)
    set_at = f"{paced.clock.now:%Y-%m-%dT%H:%M}"
    reported = paced.throttle.as_json()
    assert [(one["by"], one["rows_per_second"], one["at"][:16] == set_at) for one in reported["set"]] == [
        ("who said 500", 500, True),
        ("who said 2000", 2_000, True),
    ]
    assert reported["limit"] == 2_000


def test_more_fixes_may_be_allowed_while_a_run_scans() -> None:
    paced = PacedTable()
    assert paced.throttle.max_fixes(10) == 10
    paced.ledger.put(paced.run, RunLimit(max_fixes=50))
    assert paced.throttle.max_fixes(10) == 50


async def test_in_an_event_loop_limits_are_heard_too_and_the_loop_goes_on_meanwhile() -> None:
    paced = PacedTable(limit=10)
    tables = PacedAsyncTables(InTurn(paced.memory), paced.pace)
    await tables.write_all([Put(MARKS, {"k": "k", "c": 1})] * 50)
    assert paced.clock.monotonic() - START / MICROS == pytest.approx(5, rel=0.1)

    paced.ledger.put(paced.run, RunLimit(rows_per_second=1_000))
    paced.clock.advance(HEAR_SECONDS)
    began = paced.clock.monotonic()
    await tables.write_all([Put(MARKS, {"k": "k", "c": 1})] * 1_000)

    assert paced.clock.monotonic() - began <= 5, "two of them are the server's"
