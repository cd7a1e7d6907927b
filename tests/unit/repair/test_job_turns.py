"""A planned run is taken by its time: once, whoever asks, whatever the cluster answers."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid1

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.model.errors import DoubtfulWrite, Outweighed
from mailmend.model.operations import PutIfAbsent
from mailmend.repair.ledger.jobs import AdminTasks, JobRuns, TaskStatus
from mailmend.repair.ledger.runs import RunLimit, RunLimits
from tests.support.clock import VirtualClock
from tests.support.skewed import SkewedClock

DUE = datetime(2026, 9, 1, 1, 30, tzinfo=UTC)


class Doubts:
    """What the cluster answers to the next conditional insert: nothing, before or after it was carried out."""

    def __init__(self) -> None:
        self.next = ""

    def __call__(self, operation: object, carry_out: Callable[[], Any]) -> Any:
        doubt, self.next = (self.next, "") if isinstance(operation, PutIfAbsent) else ("", self.next)
        if doubt == "lost":
            raise DoubtfulWrite("no answer")
        answer = carry_out()
        if doubt == "done":
            raise DoubtfulWrite("no answer")
        return answer


Runs = Callable[[str], JobRuns]


@pytest.fixture
def doubts() -> Doubts:
    return Doubts()


@pytest.fixture
def runs(doubts: Doubts) -> Runs:
    clock = VirtualClock()
    tables = MemoryTables(clock.micros, doubts)
    return lambda owner: JobRuns(tables, "mail", clock, owner)


def test_a_planned_run_is_taken_once(runs: Runs) -> None:
    assert runs("one").begin_turn("nightly", DUE) is None

    begun = runs("two").begin_turn("nightly", DUE)

    assert begun
    assert (begun.owner, begun.due_at) == ("one", DUE)
    assert runs("two").begin_turn("other", DUE) is None
    assert runs("two").begin_turn("nightly", DUE.replace(day=2)) is None
    assert runs("two").last_begun("nightly") == DUE.replace(day=2)


def test_a_doubtful_answer_is_settled_by_what_stands(runs: Runs, doubts: Doubts) -> None:
    doubts.next = "done"
    assert runs("one").begin_turn("nightly", DUE) is None, "it was ours"

    doubts.next = "done"
    begun = runs("two").begin_turn("nightly", DUE)
    assert begun
    assert begun.owner == "one"


def test_a_write_that_nobody_knows_of_begins_nothing(runs: Runs, doubts: Doubts) -> None:
    doubts.next = "lost"

    with pytest.raises(DoubtfulWrite):
        runs("one").begin_turn("nightly", DUE)
    assert runs("one").begin_turn("nightly", DUE) is None, "it may be tried again"


def test_where_no_planned_run_is_known_the_newest_run_counts(runs: Runs) -> None:
    one = runs("one")
    assert one.last_begun("nightly") is None

    run = one.start("nightly", "check", DUE)

    assert one.last_begun("nightly") == run.started_at


def test_a_pause_by_a_clock_ahead_is_ended_and_a_new_one_holds() -> None:
    """Two hosts, ten minutes apart: the later stamp outweighs what came later."""
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    ahead = JobRuns(tables, "mail", SkewedClock(clock, timedelta(minutes=10)), "ahead")
    behind = JobRuns(tables, "mail", clock, "behind")
    ahead.pause("nightly", "a migration")

    resumed = behind.resume("nightly")
    assert (resumed and resumed.owner, behind.pause_of("nightly")) == ("ahead", None)

    pause = behind.pause("nightly", "another migration")
    assert behind.pause_of("nightly") == pause

    again = behind.pause("nightly", "still the migration")
    assert ahead.pause_of("nightly") == again


def test_a_pause_that_a_clock_far_ahead_hides_is_said_not_to_hold() -> None:
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    far_ahead = JobRuns(tables, "mail", SkewedClock(clock, timedelta(days=2)), "ahead")
    far_ahead.pause("nightly", "a migration")
    far_ahead.resume("nightly")

    with pytest.raises(Outweighed, match="'nightly' is not paused"):
        JobRuns(tables, "mail", clock, "behind").pause("nightly", "another migration")


def test_the_last_limit_of_a_run_counts_whatever_clock_set_the_one_before() -> None:
    clock, run = VirtualClock(), uuid1()
    tables = MemoryTables(clock.micros)
    RunLimits(tables, SkewedClock(clock, timedelta(minutes=10))).put(run, RunLimit(rows_per_second=1))

    RunLimits(tables, clock).put(run, RunLimit(rows_per_second=500))

    newest = RunLimits(tables, clock).newest(run)
    assert newest is not None
    assert newest.rows_per_second == 500


def test_a_task_ends_though_the_host_that_took_it_is_ahead() -> None:
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    task = AdminTasks(tables, "mail", SkewedClock(clock, timedelta(minutes=10)), "ahead").submit("check", {}, "ann")
    leader = AdminTasks(tables, "mail", clock, "leader")

    leader.start(task.id)
    assert leader.get(task.id).status is TaskStatus.IN_PROGRESS

    leader.end(task.id, TaskStatus.COMPLETED, {})
    assert (leader.get(task.id).status, leader.open()) == (TaskStatus.COMPLETED, [])


def test_words_of_people_are_kept_as_far_as_a_store_takes_them() -> None:
    """Given a user whose name is not UTF-8, who pauses a job, and then limits its run."""
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    runs = JobRuns(tables, "mail", clock, "J\udcf6rg@here")

    paused = runs.pause("nightly", "bis sp\ud800ter")
    run = runs.start("nightly", "check", DUE)
    limit = RunLimits(tables, clock).put(run.id, RunLimit(rows_per_second=1, owner="J\udcf6rg@here"))

    assert (paused.owner, paused.reason) == ("J\ufffdrg@here", "bis sp\ufffdter")
    assert runs.pause_of("nightly") == paused
    assert [one.owner for one in runs.of("nightly")] == ["J\ufffdrg@here"]
    assert limit.owner == "J\ufffdrg@here"
