"""A check and a repair from the first clock reading to the exit code, over tables in memory."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.catalog.mail import FIRST_UNSEEN, IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.errors import ClocksDiffer, ExitCode, FixLimit, LeaseHeld, UnsafeRequest
from mailmend.model.instants import MICROS
from mailmend.model.operations import Count, Put
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row
from mailmend.repair.clock import Timing
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import RunState
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.runner import RepairTools, check, repair
from mailmend.repair.scanners.local import LocalEngine
from tests.support.clock import START
from tests.support.progress import SilentProgress
from tests.support.repairing import LONG_AGO, MAILBOX, World, content_row, message, mirror_row, place, truth_row

ORDER = RepairSettings("mail", (MESSAGES,), options={"delay": "60s"})


def tools(world: World, **changes: Any) -> RepairTools:
    """What works on the world, with the engine that needs no Spark."""
    leases = Leases(world.kept, world.clock, "us")
    made = RepairTools(
        engine=LocalEngine(world.mail, world.ledger, world.clock),
        clock=world.clock,
        nodes=world.memory,
        progress=SilentProgress(),
        counters=CounterMender(world.mail, "mail", (MESSAGES,), world.clock, Timing(), world.ledger, leases),
        ledger=world.ledger,
        leases=leases,
    )
    return replace(made, **changes)


def counted(world: World, truths: Iterable[Row]) -> None:
    rows = list(truths)
    world.mail.write(Count(MAILBOX_COUNTERS, (MAILBOX,), {"count": len(rows), "unseen": len(rows)}))


def damaged(world: World) -> list[Row]:
    """Four messages: one sound, one not projected, one projected wrongly, one projected without a truth."""
    sound, missing, wrong, stale = (truth_row(number) for number in (1, 2, 3, 4))
    for row in (sound, missing, wrong):
        world.message(row)
    world.remove(MESSAGE_ID, place(missing), at=LONG_AGO + 1)
    world.put(MESSAGE_ID, {**mirror_row(wrong), "modseq": 9, "flagseen": True}, at=LONG_AGO + 2)
    world.put(MESSAGE_ID, mirror_row(stale))
    counted(world, (sound, missing, wrong))
    return [sound, missing, wrong, stale]


def no_sink(_: Finding) -> None:
    """Takes an outcome and forgets it."""


class TestCheck:
    """Find drift without writing anything."""

    def test_drift_is_counted_by_projection_and_verdict(self, world: World) -> None:
        damaged(world)

        summary = check(ORDER, tools(world), no_sink)

        assert summary.findings == {
            "messageIdTable": {Verdict.PROJECT: 1, Verdict.AMEND: 1, Verdict.WITHDRAW: 1},
        }
        assert (summary.run, summary.suspects, summary.exit) == (None, 3, ExitCode.DRIFT)
        assert summary.scanned["imapUidTable"] == 3
        assert set(summary.seconds) == {"scan", "delay", "recheck", "counters"}

    def test_nothing_at_all_is_written(self, world: World) -> None:
        damaged(world)
        written = world.watch_writes()

        check(ORDER, tools(world, ledger=None, leases=None), no_sink)

        assert written == []

    def test_a_sound_keyspace_needs_no_wait(self, world: World) -> None:
        """Exit 0 at once."""
        counted(world, [world.message(truth_row())])

        summary = check(ORDER, tools(world), no_sink)

        assert (summary.findings, summary.suspects, summary.exit) == ({}, 0, ExitCode.FINE)
        assert world.clock.slept == []

    def test_what_settles_during_the_delay_is_no_drift(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        counted(world, [truth])
        world.during_sleep(lambda: world.project(truth, at=LONG_AGO))

        summary = check(ORDER, tools(world), no_sink)

        assert (summary.suspects, summary.findings, summary.exit) == (2, {}, ExitCode.FINE)
        assert sum(world.clock.slept) == pytest.approx(60)

    def test_raw_suspects_are_reported_at_once_on_demand(self, world: World) -> None:
        """--no-recheck."""
        damaged(world)
        outcomes: list[Finding] = []

        summary = check(replace(ORDER, recheck=False), tools(world), outcomes.append)

        assert world.clock.slept == []
        assert (len(outcomes), summary.exit) == (3, ExitCode.DRIFT)
        assert summary.findings["messageIdTable"].total() == 3

    def test_leaks_alone_are_reported_without_a_wait_and_do_not_fail(self, world: World) -> None:
        world.put(MESSAGE_V3, content_row(message(1)))

        summary = check(ORDER, tools(world), no_sink)

        assert summary.findings == {"messageV3": {Verdict.LEAK: 1}}
        assert (summary.left, summary.exit, world.clock.slept) == ({}, ExitCode.FINE, [])

    def test_a_change_after_the_scan_is_the_next_runs(self, world: World) -> None:
        """MOVED is no confirmed drift."""
        truth = world.message(truth_row(), projected=False)
        counted(world, [truth])
        newer = {**truth, "modseq": 2, "flagseen": True}
        world.during_sleep(lambda: world.put(IMAP_UID, newer, at=world.clock.micros()))

        summary = check(ORDER, tools(world), no_sink)

        assert (summary.findings.get("messageIdTable"), summary.moved > 0) == (None, True)


class TestRepair:
    """Find drift and mend it."""

    def test_a_second_repair_finds_nothing(self, world: World) -> None:
        sound, missing, wrong, stale = damaged(world)

        first = repair(ORDER, tools(world), no_sink)
        second = repair(ORDER, tools(world), no_sink)

        assert first.fixed == {Verdict.PROJECT: 1, Verdict.AMEND: 1, Verdict.WITHDRAW: 1}
        assert (first.left, first.exit) == ({}, ExitCode.FINE)
        assert (second.suspects, second.exit) == (0, ExitCode.FINE)
        rows = [world.get(MESSAGE_ID, place(row)) for row in (sound, missing, wrong)]
        assert [seen.row if seen else None for seen in rows] == [mirror_row(row) for row in (sound, missing, wrong)]
        assert world.get(MESSAGE_ID, place(stale)) is None

    def test_the_run_is_in_the_ledger_with_its_sums(self, world: World) -> None:
        damaged(world)

        summary = repair(ORDER, tools(world), no_sink)

        assert summary.run is not None
        run = world.ledger.get(summary.run)
        assert (run.state, run.summary["fixed"], run.options) == (
            RunState.DONE,
            {"PROJECT": 1, "AMEND": 1, "WITHDRAW": 1},
            {"delay": "60s"},
        )
        assert run.as_of == START - 30 * MICROS

    def test_a_run_that_was_killed_is_closed_by_the_next_one(self, world: World) -> None:
        killed = world.ledger.start("mail", "repair", START, {})
        other = world.ledger.start("mail", "repair queues", START, {})

        repair(ORDER, tools(world, mail=world.mail), no_sink)

        states = [world.ledger.get(run.id).state for run in (killed, other)]
        assert states == [RunState.INTERRUPTED, RunState.RUNNING]

    def test_counters_are_mended_with_the_rest(self, world: World) -> None:
        world.message(truth_row())
        alone = tools(world, leases=None)  # a heartbeat beats in real time, which stands still here

        first = repair(ORDER, alone, no_sink)
        second = repair(ORDER, alone, no_sink)

        assert (first.fixed, second.suspects) == ({Verdict.PROJECT: 1}, 0)
        seen = world.seen(MAILBOX_COUNTERS, (MAILBOX,))
        assert (seen.row["count"], seen.row["unseen"]) == (1, 1)

    def test_too_many_fixes_stop_before_the_first(self, world: World) -> None:
        """--max-fixes: stop, ask."""
        damaged(world)
        written = world.watch_writes()

        with pytest.raises(FixLimit, match="3 suspects"):
            repair(replace(ORDER, max_fixes=2), tools(world), no_sink)

        assert not [one for one in written if one.table.name in {MESSAGE_ID.name, FIRST_UNSEEN.name}]
        (run, *_) = world.ledger.runs("mail")
        assert run.state is RunState.FAILED

    def test_a_dry_run_says_what_would_be_mended(self, world: World) -> None:
        damaged(world)
        written = world.watch_writes()

        summary = repair(replace(ORDER, dry_run=True), tools(world), no_sink)

        assert (written, summary.run, summary.fixed) == ([], None, {})
        assert summary.due == {Verdict.PROJECT: 1, Verdict.AMEND: 1, Verdict.WITHDRAW: 1}
        assert summary.exit is ExitCode.DRIFT

    def test_what_was_not_asked_for_is_left(self, world: World) -> None:
        """--only PROJECT."""
        damaged(world)

        summary = repair(replace(ORDER, policy=RepairPolicy(only=frozenset({Verdict.PROJECT}))), tools(world), no_sink)

        assert summary.fixed == {Verdict.PROJECT: 1}
        assert (summary.left, summary.exit) == ({Verdict.AMEND: 1, Verdict.WITHDRAW: 1}, ExitCode.DRIFT)

    def test_a_hidden_fix_is_left_and_reported(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.project(truth)
        world.remove(MESSAGE_ID, place(truth), at=START)
        counted(world, [truth])

        summary = repair(ORDER, tools(world), no_sink)

        assert (summary.left, summary.fixed, summary.exit) == ({Verdict.HIDDEN: 1}, {}, ExitCode.DRIFT)

    def test_a_failed_fix_makes_the_run_partly_failed(self, world: World) -> None:
        """Exit 3; the others are mended."""
        _, missing, *_ = damaged(world)
        world.fail_in_mail(
            lambda operation: isinstance(operation, Put) and operation.row.get("messageid") == missing["messageid"]
        )

        summary = repair(ORDER, tools(world), no_sink)

        assert (summary.failed, summary.fixed.total(), summary.exit) == (1, 2, ExitCode.PARTLY_FAILED)

    def test_ctrl_c_leaves_a_ledger_that_says_so(self, world: World) -> None:
        damaged(world)

        def interrupt(_: Finding) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            repair(ORDER, tools(world), interrupt)

        (run, *_) = world.ledger.runs("mail")
        assert run.state is RunState.INTERRUPTED
        assert list(world.ledger.findings(run.id))

    def test_ctrl_c_stays_ctrl_c_when_letting_go_fails_too(self, world: World) -> None:
        """It reaches Spark's own processes as well, so closing what they hold goes wrong: the run is INTERRUPTED."""
        damaged(world)
        engine = _Closing(LocalEngine(world.mail, world.ledger, world.clock), [], broken=True)

        def interrupt(_: Finding) -> None:
            raise KeyboardInterrupt

        with pytest.raises(ConnectionError):
            repair(ORDER, tools(world, engine=engine), interrupt)

        (run, *_) = world.ledger.runs("mail")
        assert run.state is RunState.INTERRUPTED

    def test_a_run_that_did_not_end_has_no_exit_code(self, world: World) -> None:
        damaged(world)

        with pytest.raises(FixLimit):
            repair(replace(ORDER, max_fixes=0), tools(world), no_sink)
        ended = repair(ORDER, tools(world), no_sink)

        runs = {run.id: run.summary for run in world.ledger.runs("mail")}
        assert ended.run is not None
        assert runs.pop(ended.run)["exit"] == 0
        assert all("exit" not in summary for summary in runs.values())

    def test_the_lease_keeps_two_repairs_apart(self, world: World) -> None:
        leases = Leases(world.kept, world.clock, "somebody")
        held = leases.acquire(KeyspaceLease.REPAIR.of("mail"), "repair")

        with pytest.raises(LeaseHeld, match="somebody"):
            repair(ORDER, tools(world), no_sink)
        leases.release(held)

        assert repair(ORDER, tools(world), no_sink).exit is ExitCode.FINE
        assert leases.holder(KeyspaceLease.REPAIR.of("mail")) is None

    def test_clocks_that_differ_too_much_are_refused(self, world: World) -> None:
        fast = MemoryTables(lambda: world.clock.micros() + 20 * MICROS)

        with pytest.raises(ClocksDiffer):
            repair(ORDER, tools(world, nodes=fast), no_sink)

    def test_a_check_needs_no_equal_clocks(self, world: World) -> None:
        fast = MemoryTables(lambda: world.clock.micros() + 20 * MICROS)

        assert check(ORDER, tools(world, nodes=fast), no_sink).exit is ExitCode.FINE

    def test_the_wait_follows_the_order(self, world: World) -> None:
        """--delay; none where the keyspace is declared quiet and zero is asked for."""
        damaged(world)
        quiet = replace(ORDER, delay_seconds=0, timing=Timing(no_writers=True))

        repair(quiet, tools(world), no_sink)

        assert world.clock.slept == []

    def test_what_an_engine_holds_is_let_go_whatever_happens(self, world: World) -> None:
        damaged(world)
        closed: list[bool] = []
        engine = _Closing(LocalEngine(world.mail, world.ledger, world.clock), closed)

        with pytest.raises(FixLimit):
            repair(replace(ORDER, max_fixes=0), tools(world, engine=engine), no_sink)

        assert closed == [True]


class TestOrders:
    """What cannot be asked for together."""

    @pytest.mark.parametrize("dangling", ["restore", "report"])
    def test_last_traces_are_not_kept_while_their_content_is_collected(self, dangling: str) -> None:
        with pytest.raises(UnsafeRequest, match="last trace"):
            replace(ORDER, policy=RepairPolicy(leaks="collect", dangling=dangling))

    def test_collecting_and_quarantining_count_as_fixes(self, world: World) -> None:
        """--max-fixes guards them too."""
        world.put(MESSAGE_V3, content_row(message(1)))

        with pytest.raises(FixLimit):
            repair(replace(ORDER, policy=RepairPolicy(leaks="collect"), max_fixes=0), tools(world), no_sink)


class _Closing:
    """An engine that tells when its detection was closed."""

    def __init__(self, engine: LocalEngine, closed: list[bool], *, broken: bool = False) -> None:
        self._engine, self._closed, self._broken = engine, closed, broken

    def detect(self, survey: Any, progress: Any) -> Any:
        detection = self._engine.detect(survey, progress)
        close = detection.close

        def closing() -> None:
            self._closed.append(True)
            close()
            if self._broken:
                raise ConnectionError("the other process is gone")

        detection.close = closing  # type: ignore[method-assign]
        return detection
