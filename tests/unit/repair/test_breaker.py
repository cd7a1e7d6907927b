"""A cluster that goes away in the middle: the rest is left soon, told apart from failures, and mended later."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import MAILBOX_COUNTERS, MESSAGE_COUNTER, MESSAGE_ID, MESSAGES, MODSEQ
from mailmend.model.errors import CannotReach, ExitCode, MailmendError, TimedOut
from mailmend.model.operations import Count, Put, Read
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import Timing
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import RunState
from mailmend.repair.mending import limits
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.limits import COUNTERS_UNREACHED_MAX, UNREACHED_MAX, Breaker
from mailmend.repair.mending.runner import RepairTools, check, repair
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from mailmend.repair.scanners.local import LocalEngine
from tests.support.clock import START, uuid_at
from tests.support.progress import SilentProgress
from tests.support.repairing import World, mirror_suspect, place, truth_row

SUSPECT = Suspect("messageIdTable", (uuid_at(0, 1), 1), Verdict.PROJECT)
QUIET = Timing(no_writers=True)
ORDER = RepairSettings("mail", (MESSAGES,), timing=QUIET, delay_seconds=0)


def tried(*, reached: bool) -> Finding:
    return Finding(SUSPECT, Verdict.PROJECT, error=None if reached else "no answer", unreached=not reached)


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 5))
def test_it_opens_at_the_first_row_of_failures_that_is_long_enough(reached: list[bool], most: int) -> None:
    breaker = Breaker(most)
    for one in reached:
        breaker.note([tried(reached=one)])
    whole = Breaker(most)
    whole.note([tried(reached=one) for one in reached])

    text = "".join("x" if one else "." for one in reached)
    assert breaker.open == whole.open == ("." * most in text)


def test_an_error_that_is_no_lack_of_contact_opens_nothing() -> None:
    breaker = Breaker(1)
    breaker.note([Finding(SUSPECT, Verdict.PROJECT, error="a value does not fit")])
    assert not breaker.open


def test_the_rest_is_left_as_it_is_and_says_why() -> None:
    left = Breaker(7).left(SUSPECT)

    assert (left.suspect, left.untried, left.result) == (SUSPECT, True, None)
    assert "7 times in a row" in (left.error or "")


class Gone:
    """A cluster that answers so many operations that fit, and none after that; counts what it is asked then."""

    def __init__(self, error: MailmendError, answers: int, fits: Callable[[Operation], bool] = lambda _: True) -> None:
        self.error, self.answers, self.fits, self.asked_in_vain = error, answers, fits, 0

    def __call__(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if self.fits(operation):
            self.answers -= 1
        if self.answers < 0:
            self.asked_in_vain += 1
            raise self.error
        return carry_out()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """An empty mail keyspace; a breaker that opens after one batch of four, of which one is under way at a time."""
    monkeypatch.setattr(limits, "BATCHES_AT_ONCE", 1)
    monkeypatch.setattr("mailmend.repair.mending.fixer.BATCH_SUSPECTS", 4)
    monkeypatch.setattr("mailmend.repair.mending.undo.BATCH_SUSPECTS", 4)
    monkeypatch.setattr(limits.Breaker.__init__, "__defaults__", (4,))
    return World()


def unprojected(world: World, number: int) -> list[Suspect]:
    truths = [world.message(truth_row(one + 1, flagseen=True), projected=False) for one in range(number)]
    world.mail.write(Count(MAILBOX_COUNTERS, (truths[0]["mailboxid"],), {"count": number}))
    return [mirror_suspect(truth, Verdict.PROJECT) for truth in truths]


@pytest.mark.parametrize("error", [CannotReach("no node"), TimedOut("no answer")])
def test_a_cluster_that_is_gone_is_not_asked_for_every_suspect(world: World, error: CannotReach) -> None:
    suspects = unprojected(world, 40)
    world.memory.surround = gone = Gone(error, 0)

    outcomes = world.revisit(suspects)

    assert [one.untried for one in outcomes] == [False] * 4 + [True] * 36
    assert gone.asked_in_vain <= 4 * 3
    assert {one.suspect.key for one in outcomes} == {one.key for one in suspects}


def test_writes_that_reach_nobody_count_too(world: World) -> None:
    suspects = unprojected(world, 12)
    world.memory.surround = Gone(TimedOut("no answer"), 0, lambda one: isinstance(one, Put))

    outcomes = world.revisit(suspects)

    assert [one.untried for one in outcomes] == [False] * 4 + [True] * 8


def test_a_ledger_that_is_gone_counts_too(world: World) -> None:
    suspects = unprojected(world, 12)
    world.kept.surround = Gone(CannotReach("no node"), 0)

    outcomes = world.revisit(suspects)

    assert [one.untried for one in outcomes] == [False] * 4 + [True] * 8
    assert world.get(MESSAGE_ID, suspects[0].key) is None


def test_single_failures_stop_nothing(world: World) -> None:
    suspects = unprojected(world, 30)
    bad = {one.key[1] for one in suspects[::3]}
    world.fail_in_mail(lambda one: isinstance(one, Put) and one.row.get("uid") in bad)

    outcomes = world.revisit(suspects)

    assert sum(one.result is Verdict.FIXED for one in outcomes) == 20
    assert not any(one.untried for one in outcomes)


def tools(world: World) -> RepairTools:
    """What a repair works with, without a heartbeat, which would beat in real time."""
    counters = CounterMender(world.mail, "mail", (MESSAGES,), world.clock, QUIET, world.ledger)
    engine = LocalEngine(world.mail, world.ledger, world.clock)
    return RepairTools(engine, world.clock, world.memory, SilentProgress(), counters, world.ledger)


def lost_after(world: World, answers: int, error: CannotReach) -> Gone:
    """Let mail and ledger go away after so many fixes were written."""
    gone = Gone(error, answers, lambda one: isinstance(one, Put) and one.table.name == MESSAGE_ID.name)

    def ledger(_: Operation, carry_out: Callable[[], Any]) -> Any:
        if gone.answers < 0:
            raise error
        return carry_out()

    world.memory.surround, world.kept.surround = gone, ledger
    return gone


def back_again(world: World) -> None:
    world.memory.surround = world.kept.surround = lambda _, carry_out: carry_out()


@pytest.mark.parametrize(("answers", "fixed", "code"), [(0, 0, ExitCode.CANNOT_REACH), (8, 8, ExitCode.PARTLY_FAILED)])
def test_a_repair_ends_soon_and_the_next_one_goes_on(world: World, answers: int, fixed: int, code: ExitCode) -> None:
    """The sums are told even though the ledger is gone too; 4 when nothing was mended, else 3; later all is mended."""
    suspects = unprojected(world, 40)
    lost_after(world, answers, CannotReach("no node"))

    summary = repair(ORDER, tools(world), lambda _: None)

    assert (summary.fixed.total(), summary.exit) == (fixed, code)
    assert summary.failed + summary.untried == 40 - fixed
    assert summary.untried >= 28
    assert summary.left == {}
    back_again(world)
    again = repair(ORDER, tools(world), lambda _: None)
    assert (again.fixed.total(), again.untried, again.exit) == (40 - fixed, 0, ExitCode.FINE)
    assert world.get(MESSAGE_ID, suspects[-1].key) is not None


def test_the_ledger_knows_that_a_run_was_cut_short(world: World) -> None:
    """Where it can still be told: FAILED, with how many were left."""
    unprojected(world, 20)
    world.fail_in_mail(lambda one: isinstance(one, Put))

    summary = repair(ORDER, tools(world), lambda _: None)

    assert summary.run is not None
    run = world.ledger.get(summary.run)
    assert (run.state, run.summary["untried"], run.summary["exit"]) == (RunState.FAILED, 16, ExitCode.CANNOT_REACH)


def test_a_check_that_loses_its_cluster_finds_no_drift_and_says_so(world: World) -> None:
    """Exit 4: nothing was confirmed. The generators are read with the scan, so the second look is the first to fail."""
    unprojected(world, 20)

    def after_the_scan(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, Read) and operation.table not in (MESSAGE_COUNTER, MODSEQ):
            raise CannotReach("no node")
        return carry_out()

    world.memory.surround = after_the_scan
    summary = check(ORDER, replace(tools(world), ledger=None), lambda _: None)

    assert (summary.findings, summary.exit, summary.untried) == ({}, ExitCode.CANNOT_REACH, 16)


def test_an_undo_stops_as_well(world: World) -> None:
    """And goes on later: what was put back is AGREE or MOVED then, the rest follows."""
    suspects = unprojected(world, 20)
    outcomes = world.revisit(suspects)
    assert all(one.result is Verdict.FIXED for one in outcomes)
    taking = UndoTools(world.mail, world.ledger, world.clock, SilentProgress())
    order = UndoSettings(world.run, "mail", (MESSAGES,))
    world.memory.surround = Gone(CannotReach("no node"), 0)

    stopped = undo(order, taking, lambda _: None)
    back_again(world)
    done = undo(order, taking, lambda _: None)

    assert (stopped.untried, stopped.exit) == (16, ExitCode.CANNOT_REACH)
    assert done.fixed.total() == 20
    assert world.get(MESSAGE_ID, suspects[0].key) is None


class TestCounters:
    """They are looked at one after the other, so the limit is small."""

    def suspects(self, world: World, number: int) -> Sequence[Suspect]:
        """Mailboxes of one message each whose counters are missing."""
        found = []
        for one in range(number):
            truth = world.message(truth_row(one + 1, mailboxid=uuid_at(START, 1000 + one)))
            found.append(Suspect(MESSAGES.counts[0].name, place(truth)[:1], Verdict.PROJECT))
        return found

    @pytest.mark.parametrize("answers", [0, 30, 200])
    def test_the_rest_is_left(self, world: World, answers: int) -> None:
        suspects = self.suspects(world, 30)
        leases = Leases(world.kept, world.clock, "us")
        mender = CounterMender(world.mail, "mail", (MESSAGES,), world.clock, QUIET, world.ledger, leases)
        gone = Gone(CannotReach("no node"), answers)
        world.memory.surround = world.kept.surround = gone

        outcomes = list(mender.revisit(lambda: iter(suspects), world.policy()))

        assert len(outcomes) == 30
        assert sum(one.unreached and not one.untried for one in outcomes) <= COUNTERS_UNREACHED_MAX
        assert gone.asked_in_vain <= COUNTERS_UNREACHED_MAX * 2
        assert sum(one.untried for one in outcomes) >= 25 - sum(one.result is Verdict.FIXED for one in outcomes)


def test_the_limits_have_names() -> None:
    assert (UNREACHED_MAX, COUNTERS_UNREACHED_MAX) == (500, 5)
