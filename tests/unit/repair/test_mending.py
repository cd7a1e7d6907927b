"""From fix to outcome when something does not answer: what stands afterwards, what is said, what the next run does."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mailmend.cql.driver.joined import JoinedWrite, write_joined
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import FIRST_UNSEEN, IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID, MESSAGES
from mailmend.model.errors import DoubtfulWrite, MailmendError, NotEnoughReplicas, TimedOut
from mailmend.model.operations import Count, Put, PutIfAbsent, Read, Remove, RemoveIf, Write
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import Timing
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from tests.support.progress import SilentProgress
from tests.support.repairing import MAILBOX, World, mirror_row, mirror_suspect, place, truth_row


def answer_lost(world: World, kind: type, *, done: bool) -> None:
    """Conditional writes of that kind get no answer: done or not, nobody says."""

    def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, kind):
            if done:
                carry_out()
            raise DoubtfulWrite("no answer in time")
        return carry_out()

    world.memory.surround = surround


def all_answer(world: World) -> None:
    world.memory.surround = world.kept.surround = lambda _, carry_out: carry_out()


class TestSharedRequests:
    """Writes of one partition that the driver sends as one request are answered by one word."""

    @pytest.mark.parametrize("done", [True, False])
    @pytest.mark.parametrize("failing", ["ledger", "mail"])
    def test_those_of_a_request_fail_together_and_nobody_else(self, world: World, failing: str, done: bool) -> None:
        """Where a before-image is not known to be safe, its row is not written; the next run mends it."""
        truths = [world.message(truth_row(number), projected=False) for number in range(1, 601)]
        suspects = [mirror_suspect(truth, Verdict.PROJECT) for truth in truths]
        tables, lost = world.kept if failing == "ledger" else world.memory, list[Write]()
        alone = tables.write_all

        def send(requests: Sequence[Write | JoinedWrite]) -> list[MailmendError | None]:
            return [answer(one.writes) if isinstance(one, JoinedWrite) else alone([one])[0] for one in requests]

        def answer(writes: Sequence[Write]) -> MailmendError | None:
            if lost and writes[0] not in lost:
                return next((error for error in alone(writes) if error), None)
            lost.extend(writes)
            if done:
                alone(writes)
            return TimedOut("no answer in time")

        tables.write_all = lambda writes: write_joined(writes, send, lambda _: True)  # type: ignore[method-assign]
        outcomes = world.revisit(suspects)
        failed = [one for one in outcomes if one.error]

        assert 2 <= len(failed) == len(lost) < 60
        assert {one.result for one in outcomes if not one.error} == {Verdict.FIXED}
        written = {one.suspect.key for one in outcomes if world.get(MESSAGE_ID, one.suspect.key)}
        spared = set() if failing == "mail" and done else {one.suspect.key for one in failed}
        assert written == {one.key for one in suspects} - spared
        assert {one.suspect.key for one in world.ledger.findings(world.run)} >= written

        tables.write_all = alone  # type: ignore[method-assign]
        assert {one.result for one in world.revisit(suspects)} <= {Verdict.FIXED, None}
        assert all(world.get(MESSAGE_ID, one.key) for one in suspects)


class TestConditions:
    """A change of the truth that everything else waits for."""

    @pytest.mark.parametrize("done", [True, False])
    def test_a_quarantine_without_an_answer_stops_there_and_converges(self, world: World, done: bool) -> None:
        truth = world.message(truth_row(), content=False)
        suspect = mirror_suspect(truth, Verdict.LOST_CONTENT)
        answer_lost(world, RemoveIf, done=done)

        (outcome,) = world.revisit([suspect], orphans="quarantine")
        all_answer(world)

        assert (outcome.result, "no answer in time" in (outcome.error or "")) == (None, True)
        assert (world.get(IMAP_UID, IMAP_UID.key_of(truth)) is None) is done
        assert world.get(MESSAGE_ID, place(truth)) is not None
        assert world.get(FIRST_UNSEEN, place(truth)) is not None
        world.revisit([suspect, Suspect("firstUnseen", place(truth), Verdict.WITHDRAW)], orphans="quarantine")
        assert world.get(IMAP_UID, IMAP_UID.key_of(truth)) is None
        assert world.get(MESSAGE_ID, place(truth)) is None

    def test_a_quarantine_that_was_half_carried_out_can_be_undone(self, world: World) -> None:
        truth = world.message(truth_row(), content=False)
        answer_lost(world, RemoveIf, done=True)
        world.revisit([mirror_suspect(truth, Verdict.LOST_CONTENT)], orphans="quarantine")
        all_answer(world)
        tools = UndoTools(world.mail, world.ledger, world.clock, SilentProgress())

        summary = undo(UndoSettings(world.run, "mail", (MESSAGES,)), tools, lambda _: None)

        assert summary.failed == 0
        assert world.get(IMAP_UID, IMAP_UID.key_of(truth)) is not None

    def test_a_truth_that_came_back_by_itself_is_not_restored_over(self, world: World) -> None:
        """Between the look and the write somebody stored the message anew: MOVED, and theirs stands."""
        lost = truth_row()
        world.message(lost)
        world.remove(IMAP_UID, IMAP_UID.key_of(lost), at=world.as_of)

        def faster(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if isinstance(operation, PutIfAbsent):
                all_answer(world)
                world.put(IMAP_UID, {**lost, "modseq": 99}, at=world.clock.micros())
            return carry_out()

        world.memory.surround = faster

        (outcome,) = world.revisit([mirror_suspect(lost, Verdict.WITHDRAW)], dangling="restore")

        assert outcome.result is Verdict.MOVED
        stands = world.get(IMAP_UID, IMAP_UID.key_of(lost))
        assert stands is not None
        assert stands.row["modseq"] == 99


class TestReadBack:
    """What was changed must show, and what cannot be read must not be called fixed."""

    def written_then_silent(self, world: World, kind: type) -> None:
        """After the first write of that kind, no read is answered."""
        written: list[Operation] = []

        def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if written and isinstance(operation, Read):
                raise NotEnoughReplicas("two of three replicas are down")
            if isinstance(operation, kind):
                written.append(operation)
            return carry_out()

        world.memory.surround = surround

    @pytest.mark.parametrize(
        ("verdict", "kind"), [(Verdict.PROJECT, Put), (Verdict.AMEND, Put), (Verdict.WITHDRAW, Remove)]
    )
    def test_a_row_that_cannot_be_read_back_is_an_error_and_settles_next_time(
        self, world: World, verdict: Verdict, kind: type
    ) -> None:
        """It was written all the same; a retry of the very task sees it and says FIXED."""
        truth = truth_row()
        if verdict is not Verdict.WITHDRAW:
            world.message(truth, projected=False)
        if verdict is not Verdict.PROJECT:
            world.put(MESSAGE_ID, mirror_row(truth, modseq=0))
        suspect = mirror_suspect(truth, verdict)
        self.written_then_silent(world, kind)

        (outcome,) = world.revisit([suspect])
        all_answer(world)
        (again,) = world.revisit([suspect])

        assert (outcome.result, "written, but not read back" in (outcome.error or "")) == (None, True)
        assert (again.result, again.error) == (Verdict.FIXED, None)

    def test_a_counter_that_cannot_be_read_back_is_not_counted_twice(self, world: World) -> None:
        world.message(truth_row())
        suspect = Suspect(MESSAGES.counts[0].name, (MAILBOX,), Verdict.PROJECT)
        mender = CounterMender(world.mail, "mail", (MESSAGES,), world.clock, Timing(no_writers=True), world.ledger)
        self.written_then_silent(world, Count)

        (outcome,) = mender.revisit(lambda: [suspect], world.policy())
        all_answer(world)
        (again,) = mender.revisit(lambda: [suspect], world.policy())

        assert "written, but not read back" in (outcome.error or "")
        assert (again.verdict, again.error) == (Verdict.AGREE, None)
        counted = world.get(MAILBOX_COUNTERS, (MAILBOX,))
        assert counted is not None
        assert counted.row["count"] == 1


class TestLedger:
    """Before-images and results."""

    def test_without_a_safe_before_image_nothing_at_all_is_written(self, world: World) -> None:
        truths = [world.message(truth_row(number), projected=False) for number in (1, 2)]
        refused: list[Operation] = []

        def first_refused(operation: Operation) -> bool:
            if isinstance(operation, Put) and "before" in operation.row and not refused:
                refused.append(operation)
                return True
            return False

        world.fail_in_ledger(first_refused)

        outcomes = world.revisit([mirror_suspect(truth, Verdict.PROJECT) for truth in truths])

        failed = [one for one in outcomes if one.error]
        assert ["before-image" in (one.error or "") for one in failed] == [True]
        assert [one.result for one in outcomes if not one.error] == [Verdict.FIXED]
        assert sum(world.get(MESSAGE_ID, place(truth)) is not None for truth in truths) == 1

    def test_a_row_that_has_no_before_image_is_left_and_named(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.put(MESSAGE_ID, mirror_row(truth, modseq=0, save_date=3 + 4j))

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.AMEND)])

        assert "a complex has no form in a before-image" in (outcome.error or "")
        stands = world.get(MESSAGE_ID, place(truth))
        assert stands is not None
        assert stands.row["modseq"] == 0

    def test_a_result_that_could_not_be_noted_is_a_fix_that_says_so(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.fail_in_ledger(lambda one: isinstance(one, Put) and "result" in one.row)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])
        all_answer(world)

        assert (outcome.result, "could not note" in (outcome.error or "")) == (Verdict.FIXED, True)
        found: list[Finding] = list(world.ledger.findings(world.run))
        assert [(one.suspect.key, one.result) for one in found] == [(place(truth), None)]
