"""A planned run is taken by its time: once, whoever asks, whatever the cluster answers."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cql.memory import MemoryTables
from model.errors import DoubtfulWrite
from model.operations import PutIfAbsent
from repair.ledger.jobs import JobRuns
from tests.support.clock import VirtualClock

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
