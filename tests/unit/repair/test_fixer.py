"""The one write path for fixes, over tables in memory: each verdict, each guard, each thing that can go wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import (
    APPLICABLE_FLAG,
    FIRST_UNSEEN,
    IMAP_UID,
    MAILBOX,
    MAILBOX_PATH,
    MESSAGE_ID,
    MESSAGE_V3,
    MESSAGES,
    PATHS,
)
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Put, Read
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.mending.fixer import BATCH_SUSPECTS, Fixer
from mailmend.repair.mending.limits import BURST_SECONDS, Pace
from tests.support.clock import START
from tests.support.repairing import LONG_AGO, T, World, mirror_row, mirror_suspect, place, truth_row
from tests.support.repairing import MAILBOX as MAILBOX_ID


class TestMirror:
    """messageIdTable follows imapUidTable."""

    def test_a_missing_projection_is_inserted_as_of_t(self, world: World) -> None:
        """PROJECT writes the whole row, stamped T."""
        truth = world.message(truth_row(userflags=frozenset({"a"})), projected=False)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result, outcome.error) == (Verdict.PROJECT, Verdict.FIXED, None)
        seen = world.seen(MESSAGE_ID, place(truth))
        assert seen.row == mirror_row(truth)
        assert set(seen.written_at.values()) == {T}

    def test_a_wrongly_set_flag_and_a_stale_column_are_overwritten(self, world: World) -> None:
        """AMEND converges every column: flags that only the projection has are cleared."""
        truth = world.message(truth_row(), projected=False)
        wrong = {"flagseen": True, "userflags": frozenset({"gone"}), "save_date": truth["internaldate"], "modseq": 9}
        world.put(MESSAGE_ID, mirror_row(truth, **wrong))

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.AMEND)])

        assert outcome.result is Verdict.FIXED
        seen = world.seen(MESSAGE_ID, place(truth))
        assert MESSAGES.mirror.agree(truth, seen.row)

    def test_a_projection_without_truth_is_removed(self, world: World) -> None:
        """WITHDRAW deletes the row, stamped T."""
        truth = truth_row()
        world.project(truth)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.WITHDRAW, known=False)])

        assert (outcome.verdict, outcome.result) == (Verdict.WITHDRAW, Verdict.FIXED)
        assert world.get(MESSAGE_ID, place(truth)) is None

    def test_what_settled_meanwhile_is_left_alone(self, world: World) -> None:
        """A lag that arrived during the delay gives AGREE and no write."""
        truth = world.message(truth_row())

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result) == (Verdict.AGREE, None)
        assert list(world.ledger.findings(world.run)) == []

    def test_the_scan_verdict_is_never_applied_as_it_is(self, world: World) -> None:
        truth = world.message(truth_row(modseq=4), projected=False)
        world.put(MESSAGE_ID, mirror_row(truth, modseq=3))

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result) == (Verdict.AMEND, Verdict.FIXED)


class TestLaterChanges:
    """Whatever a user changed after T wins, and what hides a fix is told."""

    def test_a_pair_with_a_cell_after_t_has_moved(self, world: World) -> None:
        """MOVED leaves the pair to the next run."""
        truth = world.message(truth_row(), projected=False, at=T + 1)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result) == (Verdict.PROJECT, Verdict.MOVED)
        assert world.get(MESSAGE_ID, place(truth)) is None

    def test_a_cell_from_the_future_is_left(self, world: World) -> None:
        """AHEAD waits until T passes the cell."""
        truth = world.message(truth_row(), projected=False, at=START + 60 * MICROS)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result) == (Verdict.PROJECT, Verdict.AHEAD)

    def test_a_cell_from_the_future_is_beaten_on_demand(self, world: World) -> None:
        """--beat-ahead writes just above it."""
        ahead = START + 60 * MICROS
        truth = world.message(truth_row(), projected=False)
        world.put(MESSAGE_ID, mirror_row(truth, modseq=99), at=ahead)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.AMEND)], beat_ahead=True)

        assert (outcome.verdict, outcome.result) == (Verdict.AMEND, Verdict.FIXED)
        seen = world.seen(MESSAGE_ID, place(truth))
        assert MESSAGES.mirror.agree(truth, seen.row)
        assert set(seen.written_at.values()) == {ahead + 1}

    def test_a_fix_under_a_later_tombstone_is_hidden_not_fixed(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.remove(MESSAGE_ID, place(truth), at=T + 1)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result) == (Verdict.PROJECT, Verdict.HIDDEN)
        assert [one.result for one in world.ledger.findings(world.run)] == [Verdict.HIDDEN]

    def test_a_filter_row_from_a_fast_clock_is_hidden_not_fixed(self, world: World) -> None:
        key = (MAILBOX_ID, 7)
        world.put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(key), at=START + 600 * MICROS)

        (outcome,) = world.revisit([Suspect("firstUnseen", key, Verdict.WITHDRAW)])

        assert (outcome.verdict, outcome.result) == (Verdict.WITHDRAW, Verdict.HIDDEN)

    def test_a_change_between_the_fix_and_its_reading_back_is_moved(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        mail = world.memory

        def user_writes_after_fix(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            answer = carry_out()
            if isinstance(operation, Put) and operation.at == T and operation.table.name == MESSAGE_ID.name:
                mail.surround = lambda _, plain: plain()
                newer = {**truth, "modseq": 2, "flagseen": True}
                world.put(IMAP_UID, newer, at=START + 1)
                world.put(MESSAGE_ID, mirror_row(newer), at=START + 1)
            return answer

        mail.surround = user_writes_after_fix

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert outcome.result is Verdict.MOVED
        seen = world.seen(MESSAGE_ID, place(truth))
        assert seen.row["modseq"] == 2


class TestRestraint:
    """What is only looked at, and what is never written."""

    @pytest.mark.parametrize("run", [None])
    def test_without_a_run_nothing_is_written_at_all(self, world: World, run: None) -> None:
        truth = world.message(truth_row(), projected=False)
        written = world.watch_writes()

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)], run=run)

        assert (outcome.verdict, outcome.result, outcome.due) == (Verdict.PROJECT, None, True)
        assert written == []

    def test_verdicts_that_were_not_asked_for_are_left(self, world: World) -> None:
        """--only WITHDRAW leaves a PROJECT as it is."""
        truth = world.message(truth_row(), projected=False)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)], only=frozenset({Verdict.WITHDRAW}))

        assert (outcome.verdict, outcome.result, outcome.due) == (Verdict.PROJECT, None, False)

    def test_two_truths_of_one_place_are_reported(self, world: World) -> None:
        """CLASH is never guessed."""
        one = world.message(truth_row(1, uid=5), projected=False)
        two = world.message(truth_row(2, uid=5), projected=False)
        suspect = replace(mirror_suspect(one, Verdict.CLASH), truth_keys=((one["messageid"],), (two["messageid"],)))

        (outcome,) = world.revisit([suspect])

        assert (outcome.verdict, outcome.result) == (Verdict.CLASH, None)
        assert len(outcome.truths) == 2

    def test_a_torn_truth_is_reported_unless_accepted(self, world: World) -> None:
        """TORN: a truth that lacks what every insert writes; --torn accept projects it where the content stands."""
        truth = world.message(truth_row(internaldate=None), projected=False)

        (reported,) = world.revisit([mirror_suspect(truth, Verdict.TORN)])
        (accepted,) = world.revisit([mirror_suspect(truth, Verdict.TORN)], accept_torn=True)

        assert (reported.verdict, reported.result) == (Verdict.TORN, None)
        assert (accepted.verdict, accepted.result) == (Verdict.PROJECT, Verdict.FIXED)

    def test_lost_content_never_spreads(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False, content=False)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result) == (Verdict.LOST_CONTENT, None)
        assert world.get(MESSAGE_ID, place(truth)) is None

    def test_a_path_that_no_known_key_leads_to_changes_no_mailbox(self, world: World) -> None:
        world.put(MAILBOX_PATH, {"namespace": "#private", "user": "u", "mailboxname": "INBOX", "mailboxid": MAILBOX_ID})
        suspect = Suspect("mailbox", (MAILBOX_ID,), Verdict.PROJECT)
        fixer = Fixer(world.mail, world.ledger, world.clock, (PATHS,), world.policy())

        (outcome,) = fixer.revisit([suspect])

        assert (outcome.verdict, outcome.result, outcome.due) == (Verdict.PROJECT, None, False)
        assert world.get(MAILBOX, (MAILBOX_ID,)) is None

    def test_counters_are_left_to_their_own_mender(self, world: World) -> None:
        assert world.revisit([Suspect("mailboxCounters", (MAILBOX_ID,), Verdict.AMEND)]) == []


class TestSmallProjections:
    """Filters and unions."""

    def test_a_missing_filter_row_is_put(self, world: World) -> None:
        """PROJECT of a filter: the truth is found through the mirror's row at the same place."""
        truth = world.message(truth_row())
        world.remove(FIRST_UNSEEN, place(truth), at=LONG_AGO + 1)

        (outcome,) = world.revisit([Suspect("firstUnseen", place(truth), Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result) == (Verdict.PROJECT, Verdict.FIXED)
        assert world.get(FIRST_UNSEEN, place(truth)) is not None

    def test_a_superfluous_filter_row_is_removed(self, world: World) -> None:
        """WITHDRAW of a filter: the message is seen."""
        truth = world.message(truth_row(flagseen=True))
        world.put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(place(truth)))

        (outcome,) = world.revisit([Suspect("firstUnseen", place(truth), Verdict.WITHDRAW)])

        assert (outcome.verdict, outcome.result) == (Verdict.WITHDRAW, Verdict.FIXED)
        assert world.get(FIRST_UNSEEN, place(truth)) is None

    def test_a_filter_row_is_kept_when_the_scan_came_too_early_for_its_truth(self, world: World) -> None:
        """The mirror's row leads to a truth that the scan did not see (model check C1)."""
        truth = world.message(truth_row())

        (outcome,) = world.revisit([Suspect("firstUnseen", place(truth), Verdict.WITHDRAW)])

        assert (outcome.verdict, outcome.result) == (Verdict.AGREE, None)

    def test_missing_elements_are_added_as_of_t_and_others_stay(self, world: World) -> None:
        world.mail.write(Change(APPLICABLE_FLAG, (MAILBOX_ID,), add={"userflags": frozenset({"new"})}, at=T + 5))
        suspect = Suspect("applicableFlag", (MAILBOX_ID,), Verdict.AMEND, wanted={"userflags": frozenset({"a", "new"})})

        (outcome,) = world.revisit([suspect])

        assert (outcome.verdict, outcome.result) == (Verdict.AMEND, Verdict.FIXED)
        seen = world.seen(APPLICABLE_FLAG, (MAILBOX_ID,))
        assert seen.row["userflags"] == {"a", "new"}

    def test_a_lagging_union_is_reported_by_its_truth(self, world: World) -> None:
        truth = world.message(truth_row(userflags=frozenset({"x"})))
        suspect = Suspect("applicableFlag", (MAILBOX_ID,), Verdict.AMEND, ((truth["messageid"],),))

        (outcome,) = world.revisit([suspect])

        assert (outcome.verdict, outcome.result) == (Verdict.PROJECT, Verdict.FIXED)
        seen = world.seen(APPLICABLE_FLAG, (MAILBOX_ID,))
        assert seen.row["userflags"] == {"x"}


class TestBeforeImages:
    """Nothing is destroyed without one."""

    def test_a_before_image_holds_both_sides_with_their_times(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.put(MESSAGE_ID, mirror_row(truth, modseq=0), at=LONG_AGO + 3)

        world.revisit([mirror_suspect(truth, Verdict.AMEND)])

        (image,) = world.ledger.findings(world.run)
        assert image.projected is not None
        assert image.projected.row["modseq"] == 0
        assert image.projected.written_at["modseq"] == LONG_AGO + 3
        assert [one.row["modseq"] for one in image.truths] == [1]
        assert (image.verdict, image.result) == (Verdict.AMEND, Verdict.FIXED)

    def test_what_cannot_be_recorded_is_not_written(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.fail_in_ledger(lambda operation: isinstance(operation, Put))

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert "nothing was written" in (outcome.error or "")
        assert world.get(MESSAGE_ID, place(truth)) is None

    def test_a_retried_task_counts_its_fix_and_keeps_the_first_image(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.put(MESSAGE_ID, mirror_row(truth, modseq=0))
        suspects = [mirror_suspect(truth, Verdict.AMEND)]

        first = world.revisit(suspects)
        world.clock.advance(5)
        second = world.revisit(suspects)

        assert [(one.verdict, one.result) for one in first + second] == [(Verdict.AMEND, Verdict.FIXED)] * 2
        (image,) = world.ledger.findings(world.run)
        assert image.projected is not None
        assert image.projected.row["modseq"] == 0

    def test_a_retried_removal_is_counted_too(self, world: World) -> None:
        truth = truth_row()
        world.project(truth)
        suspects = [mirror_suspect(truth, Verdict.WITHDRAW, known=False)]

        outcomes = world.revisit(suspects) + world.revisit(suspects)

        assert [(one.verdict, one.result) for one in outcomes] == [(Verdict.WITHDRAW, Verdict.FIXED)] * 2

    def test_a_result_that_could_not_be_noted_is_reported(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.fail_in_ledger(lambda operation: isinstance(operation, Put) and "result" in operation.row)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert outcome.result is Verdict.FIXED
        assert outcome.error is not None


class TestFailures:
    """One suspect's trouble is its own."""

    @pytest.mark.parametrize("failing", [IMAP_UID.name, MESSAGE_ID.name, MESSAGE_V3.name])
    def test_a_read_that_fails_becomes_the_outcome_s_error(self, world: World, failing: str) -> None:
        sick, sound = world.message(truth_row(1), projected=False), world.message(truth_row(2), projected=False)
        world.fail_in_mail(
            lambda operation: (
                isinstance(operation, Read)
                and operation.table.name == failing
                and operation.key[:1] in {(sick["messageid"],), (MAILBOX_ID,)}
                and operation.key[-1] in {sick["messageid"], sick["uid"]}
            )
        )

        outcomes = world.revisit([mirror_suspect(row, Verdict.PROJECT) for row in (sick, sound)])

        reported = {one.suspect.key[1]: (one.result, one.error is not None) for one in outcomes}
        assert reported == {1: (None, True), 2: (Verdict.FIXED, False)}

    def test_a_write_that_fails_becomes_the_outcome_s_error(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.fail_in_mail(lambda operation: isinstance(operation, Put))

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result) == (Verdict.PROJECT, None)
        assert outcome.error is not None

    def test_an_unknown_projection_is_an_error_of_its_own(self, world: World) -> None:
        (outcome,) = world.revisit([Suspect("elsewhere", (1,), Verdict.PROJECT)])

        assert "elsewhere" in (outcome.error or "")

    def test_more_suspects_than_a_batch_give_one_outcome_each(self, world: World) -> None:
        truths = [world.message(truth_row(number), projected=False) for number in range(1, BATCH_SUSPECTS + 52)]

        outcomes = world.revisit(mirror_suspect(truth, Verdict.PROJECT) for truth in truths)

        assert sorted(one.suspect.key[1] for one in outcomes) == [truth["uid"] for truth in truths]
        assert {one.result for one in outcomes} == {Verdict.FIXED}

    def test_what_an_earlier_attempt_mended_is_asked_of_the_ledger_by_joinable_reads(self, world: World) -> None:
        truths = [truth_row(number) for number in range(1, 6)]
        suspects = [mirror_suspect(truth, Verdict.WITHDRAW, known=False) for truth in truths]
        for truth in truths:
            world.project(truth)
        world.revisit(suspects)
        asked: list[object] = []

        def noted(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            asked.append(operation)
            return carry_out()

        world.kept.surround = noted
        again = world.revisit(suspects)

        assert [(one.verdict, one.result) for one in again] == [(Verdict.WITHDRAW, Verdict.FIXED)] * 5
        assert [isinstance(one, Read) and one.joinable for one in asked] == [True] * 5

    def test_under_a_pace_no_more_than_a_seconds_suspects_wait_for_each_other(self, world: World) -> None:
        truths = [world.message(truth_row(number), projected=False) for number in range(1, 31)]
        policy = world.policy(rows_per_second=10)
        fixer = Fixer(world.mail, world.ledger, world.clock, (MESSAGES,), policy)

        next(fixer.revisit(mirror_suspect(truth, Verdict.PROJECT) for truth in truths))

        assert sum(world.get(MESSAGE_ID, place(truth)) is not None for truth in truths) == 10

    def test_the_pace_is_one_of_rows(self, world: World) -> None:
        """Projection, content and truth twice, before-image, fix, read-back, result: each of them takes its turn."""
        truths = [world.message(truth_row(number), projected=False) for number in range(1, BATCH_SUSPECTS + 52)]
        pace, meter = Pace(100, world.clock), world.metered()
        ledger = replace(world.ledger, tables=pace.over(world.ledger.tables))
        fixer = Fixer(pace.over(world.mail), ledger, world.clock, (MESSAGES,), world.policy(rows_per_second=100))

        outcomes = list(fixer.revisit(mirror_suspect(truth, Verdict.PROJECT) for truth in truths))

        assert {one.result for one in outcomes} == {Verdict.FIXED}
        assert meter.rows >= 8 * len(truths)
        assert sum(world.clock.slept) == pytest.approx(meter.rows / 100, abs=BURST_SECONDS)
