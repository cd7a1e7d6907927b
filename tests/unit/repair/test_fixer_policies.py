"""What a repair does only when it is asked to: restore, quarantine, collect; each with its guards, in memory."""

import itertools
from collections.abc import Callable
from typing import Any

from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import FIRST_UNSEEN, IMAP_UID, MESSAGE_ID, MESSAGE_V3
from mailmend.model.instants import MICROS
from mailmend.model.operations import RemoveIf
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from tests.support.clock import START
from tests.support.repairing import LONG_AGO, World, content_row, message, mirror_suspect, place, truth_row


class TestLastTraces:
    """Projections without truth: withdrawn, restored or reported."""

    def test_a_last_trace_is_distinguished(self, world: World) -> None:
        lost, moved = truth_row(1), truth_row(2)
        for row in (lost, moved):
            world.message(row)
        world.remove(IMAP_UID, IMAP_UID.key_of(lost), at=LONG_AGO + 1)
        world.remove(IMAP_UID, IMAP_UID.key_of(moved), at=LONG_AGO + 1)
        world.put(IMAP_UID, {**moved, "uid": 77})

        outcomes = world.revisit(
            [mirror_suspect(row, Verdict.WITHDRAW, known=False) for row in (lost, moved)], dangling="report"
        )

        assert {one.suspect.key[1]: one.last_trace for one in outcomes} == {1: True, 2: False}
        assert {one.result for one in outcomes} == {None}

    def test_a_last_trace_is_restored_whole(self, world: World) -> None:
        """--dangling restore gives the truth back with every column, if none is there."""
        truth = world.message(truth_row(flagseen=True, userflags=frozenset({"x"})))
        world.remove(IMAP_UID, IMAP_UID.key_of(truth), at=LONG_AGO + 1)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.WITHDRAW, known=False)], dangling="restore")

        assert (outcome.verdict, outcome.result, outcome.last_trace) == (Verdict.WITHDRAW, Verdict.FIXED, True)
        seen = world.seen(IMAP_UID, IMAP_UID.key_of(truth))
        assert {name: cell for name, cell in seen.row.items() if cell is not None} == {
            name: cell for name, cell in truth.items() if cell is not None
        }


class TestQuarantine:
    """Truth rows whose content is lost."""

    def test_an_orphan_goes_with_its_projections(self, world: World) -> None:
        truth = world.message(truth_row(flagdeleted=True), content=False)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.LOST_CONTENT)], orphans="quarantine")

        assert (outcome.verdict, outcome.result) == (Verdict.LOST_CONTENT, Verdict.FIXED)
        assert world.get(IMAP_UID, IMAP_UID.key_of(truth)) is None
        assert world.get(MESSAGE_ID, place(truth)) is None
        assert world.get(FIRST_UNSEEN, place(truth)) is None
        recorded = {one.suspect.projection for one in world.ledger.findings(world.run)}
        assert recorded == {"messageIdTable", "firstUnseen", "messageDeleted"}

    def test_an_orphan_that_changed_meanwhile_stays(self, world: World) -> None:
        truth = world.message(truth_row(), content=False)

        def user_is_faster(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if isinstance(operation, RemoveIf):
                world.memory.surround = lambda _, plain: plain()
                world.put(IMAP_UID, {**truth, "modseq": 2}, at=START)
            return carry_out()

        world.memory.surround = user_is_faster

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.LOST_CONTENT)], orphans="quarantine")

        assert outcome.result is Verdict.MOVED
        assert world.get(MESSAGE_ID, place(truth)) is not None


class TestLeaks:
    """Content that no truth names."""

    def test_a_leak_is_reported_and_collected_on_demand(self, world: World) -> None:
        """--leaks collect removes the row, with a before-image."""
        world.put(MESSAGE_V3, content_row(message(1)))
        suspect = Suspect("messageV3", (message(1),), Verdict.LEAK)

        (reported,) = world.revisit([suspect])
        (collected,) = world.revisit([suspect], leaks="collect")

        assert (reported.verdict, reported.result) == (Verdict.LEAK, None)
        assert (collected.verdict, collected.result) == (Verdict.LEAK, Verdict.FIXED)
        assert world.get(MESSAGE_V3, (message(1),)) is None

    def test_only_a_leak_that_a_mail_on_its_way_may_explain_is_looked_at_again(self, world: World) -> None:
        """Content is written before its truth; what is a day old is not on its way."""
        for born in (LONG_AGO, START):
            world.message(truth_row(born=born))
        suspects = [Suspect("messageV3", (message(1, born),), Verdict.LEAK) for born in (LONG_AGO, START)]

        found = {one.suspect.key: one.verdict for one in world.revisit(suspects)}

        assert list(found.values()) == [Verdict.LEAK, Verdict.AGREE]

    def test_a_leak_that_grows_a_day_old_meanwhile_is_not_lost(self, world: World) -> None:
        """It is looked at or only reported, by one reading of the clock."""
        born = START - round(23.5 * 3600 * MICROS)
        world.put(MESSAGE_V3, content_row(message(1, born)))
        readings = itertools.count(START, 3600 * MICROS)
        world.clock.micros = lambda: next(readings)  # type: ignore[method-assign]

        (found,) = world.revisit([Suspect("messageV3", (message(1, born),), Verdict.LEAK)])

        assert found.verdict is Verdict.LEAK

    def test_content_that_a_truth_names_by_now_is_kept(self, world: World) -> None:
        world.message(truth_row())

        (outcome,) = world.revisit([Suspect("messageV3", (message(1),), Verdict.LEAK)], leaks="collect")

        assert (outcome.verdict, outcome.result) == (Verdict.AGREE, None)
