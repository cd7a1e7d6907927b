"""Taking a run back, and taking that back: over tables in memory."""

from collections.abc import Iterable

import pytest

from mailmend.cql.schema.generations import AUGUST_2026, NEWEST, Generation
from mailmend.model.catalog.mail import APPLICABLE_FLAG, FIRST_UNSEEN, IMAP_UID, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.errors import ExitCode, UnknownRun, WrongUse
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table
from mailmend.repair.binding import bind
from mailmend.repair.mending.engine import RepairResult
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from tests.support.clock import START
from tests.support.progress import SilentProgress
from tests.support.repairing import (
    LONG_AGO,
    MAILBOX,
    T,
    World,
    content_row,
    message,
    mirror_row,
    mirror_suspect,
    place,
    truth_row,
)
from tests.support.schemas import served


def taken_back(
    world: World, run: RunId, *, dry_run: bool = False, families: tuple[Family, ...] = (MESSAGES,)
) -> tuple[RepairResult, list[Finding]]:
    """Undo a run, and what became of each row."""
    outcomes: list[Finding] = []
    order = UndoSettings(run, "mail", families, dry_run=dry_run)
    tools = UndoTools(world.mail, world.ledger, world.clock, SilentProgress())
    return undo(order, tools, outcomes.append), outcomes


def run_of(summary: RepairResult) -> RunId:
    assert summary.run is not None
    return summary.run


def cells(world: World, table: Table, key: Key) -> Row | None:
    seen = world.get(table, key)
    return seen.row if seen else None


def broken_mirror(world: World) -> tuple[list[Suspect], list[Row]]:
    """Three messages: one not projected, one projected wrongly, one projected without a truth."""
    missing = world.message(truth_row(1), projected=False)
    wrong = world.message(truth_row(2, userflags=frozenset({"a"})), projected=False)
    world.put(MESSAGE_ID, mirror_row(wrong, modseq=0, flagseen=True, userflags=frozenset({"b"})))
    stale = truth_row(3)
    world.put(MESSAGE_ID, mirror_row(stale))
    suspects = [
        mirror_suspect(missing, Verdict.PROJECT),
        mirror_suspect(wrong, Verdict.AMEND),
        mirror_suspect(stale, Verdict.WITHDRAW, known=False),
    ]
    return suspects, [missing, wrong, stale]


def states(world: World, rows: Iterable[Row]) -> list[Row | None]:
    """The mirror's rows at the places of those truth rows."""
    return [cells(world, MESSAGE_ID, place(row)) for row in rows]


class TestRows:
    """Rows that every repair writes."""

    def test_every_row_returns_to_its_before_image_and_to_its_fix_again(self, world: World) -> None:
        """Undo at T + 1, redo at T + 2, and undo of that at T + 3."""
        suspects, rows = broken_mirror(world)
        broken = states(world, rows)
        world.revisit(suspects)
        fixed = states(world, rows)

        undone, _ = taken_back(world, world.run)
        assert states(world, rows) == broken
        redone, _ = taken_back(world, run_of(undone))
        assert states(world, rows) == fixed
        again, _ = taken_back(world, run_of(redone))

        assert states(world, rows) == broken
        assert [one.fixed.total() for one in (undone, redone, again)] == [3, 3, 3]
        assert [one.exit for one in (undone, redone, again)] == [ExitCode.FINE] * 3
        assert world.ledger.get(run_of(redone)).as_of == T + 2

    def test_undoing_twice_changes_nothing_more(self, world: World) -> None:
        suspects, rows = broken_mirror(world)
        broken = states(world, rows)
        world.revisit(suspects)
        taken_back(world, world.run)

        summary, outcomes = taken_back(world, world.run)

        assert states(world, rows) == broken
        assert {one.verdict for one in outcomes} == {Verdict.AGREE}
        assert (summary.fixed.total(), summary.exit) == (0, ExitCode.FINE)

    def test_a_dry_run_says_what_would_return_and_writes_nothing(self, world: World) -> None:
        suspects, rows = broken_mirror(world)
        world.revisit(suspects)
        fixed, runs = states(world, rows), len(world.ledger.runs())
        written = world.watch_writes()

        summary, outcomes = taken_back(world, world.run, dry_run=True)

        assert (written, states(world, rows), len(world.ledger.runs())) == ([], fixed, runs)
        assert {one.due for one in outcomes} == {True}
        assert summary.due.total() == 3

    @pytest.mark.parametrize("generations", [(AUGUST_2026, NEWEST), (NEWEST, AUGUST_2026)], ids=["dropped", "added"])
    def test_a_column_that_was_dropped_or_added_since_is_no_use_of_the_row(
        self, generations: tuple[Generation, Generation]
    ) -> None:
        """James's upgrade drops flagUser: all that the tables still have returns, and a redo brings it back."""
        then, now = (bind("mail", served(one.schema), (MESSAGES,)) for one in generations)
        world = World(families=then)
        suspects, rows = broken_mirror(world)
        broken = states(world, rows)
        world.revisit(suspects)
        fixed = states(world, rows)

        undone, _ = taken_back(world, world.run, families=now)
        assert (undone.exit, undone.fixed.total(), states(world, rows)) == (ExitCode.FINE, 3, broken)
        redone, _ = taken_back(world, run_of(undone), families=then)
        assert (redone.exit, redone.fixed.total(), states(world, rows)) == (ExitCode.FINE, 3, fixed)

    def test_a_row_that_was_used_since_stays(self, world: World) -> None:
        """A cell that is not the run's own: MOVED, and the exit code says that something was not put back."""
        truth = world.message(truth_row(), projected=False)
        world.revisit([mirror_suspect(truth, Verdict.PROJECT)])
        world.put(MESSAGE_ID, {"mailboxid": MAILBOX, "uid": 1, "flagseen": True}, at=START)

        summary, (outcome,) = taken_back(world, world.run)

        assert outcome.result is Verdict.MOVED
        assert cells(world, MESSAGE_ID, place(truth)) is not None
        assert (summary.moved, summary.exit) == (1, ExitCode.DRIFT)

    def test_a_row_whose_truth_changed_since_stays(self, world: World) -> None:
        truth = world.message(truth_row(), projected=False)
        world.put(MESSAGE_ID, mirror_row(truth, modseq=0))
        world.revisit([mirror_suspect(truth, Verdict.AMEND)])
        world.put(IMAP_UID, {**truth, "modseq": 5}, at=START)

        _, (outcome,) = taken_back(world, world.run)

        assert outcome.result is Verdict.MOVED
        row = cells(world, MESSAGE_ID, place(truth))
        assert row is not None
        assert row["modseq"] == 1

    def test_a_removed_row_is_not_put_under_a_truth_that_came_since(self, world: World) -> None:
        stale = truth_row(3)
        world.put(MESSAGE_ID, mirror_row(stale))
        world.revisit([mirror_suspect(stale, Verdict.WITHDRAW, known=False)])
        world.put(IMAP_UID, stale, at=START)

        _, (outcome,) = taken_back(world, world.run)

        assert outcome.result is Verdict.MOVED

    def test_what_does_not_show_is_hidden(self, world: World) -> None:
        stale = truth_row(3)
        world.put(MESSAGE_ID, mirror_row(stale))
        world.revisit([mirror_suspect(stale, Verdict.WITHDRAW, known=False)])
        world.remove(MESSAGE_ID, place(stale), at=START)

        summary, (outcome,) = taken_back(world, world.run)

        assert outcome.result is Verdict.HIDDEN
        assert summary.left == {Verdict.HIDDEN: 1}

    def test_a_fix_that_beat_the_future_is_beaten_in_turn(self, world: World) -> None:
        ahead = START + 60 * MICROS
        truth = world.message(truth_row(), projected=False)
        world.put(MESSAGE_ID, mirror_row(truth, modseq=9), at=ahead)
        world.revisit([mirror_suspect(truth, Verdict.AMEND)], beat_ahead=True)

        undone, (outcome,) = taken_back(world, world.run)
        row = cells(world, MESSAGE_ID, place(truth))
        assert row is not None
        assert (outcome.result, row["modseq"]) == (Verdict.FIXED, 9)
        taken_back(world, run_of(undone))

        row = cells(world, MESSAGE_ID, place(truth))
        assert row is not None
        assert row["modseq"] == 1

    def test_filters_return_too(self, world: World) -> None:
        """Rows of key columns show no times: the truth, and T + 1, are what protects them."""
        seen, unseen = truth_row(1, flagseen=True), truth_row(2)
        for row in (seen, unseen):
            world.message(row)
        world.put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(place(seen)))
        world.remove(FIRST_UNSEEN, place(unseen), at=LONG_AGO + 1)
        world.revisit(
            [
                Suspect("firstUnseen", place(seen), Verdict.WITHDRAW),
                Suspect("firstUnseen", place(unseen), Verdict.PROJECT),
            ]
        )

        undone, _ = taken_back(world, world.run)
        assert cells(world, FIRST_UNSEEN, place(seen)) is not None
        assert cells(world, FIRST_UNSEEN, place(unseen)) is None
        taken_back(world, run_of(undone))

        assert cells(world, FIRST_UNSEEN, place(seen)) is None
        assert cells(world, FIRST_UNSEEN, place(unseen)) is not None

    def test_only_the_elements_that_a_run_added_go(self, world: World) -> None:
        world.put(APPLICABLE_FLAG, {"mailboxid": MAILBOX, "userflags": frozenset({"old"})})
        wanted = {"userflags": frozenset({"old", "lost"})}
        world.revisit([Suspect("applicableFlag", (MAILBOX,), Verdict.AMEND, wanted=wanted)])
        world.put(APPLICABLE_FLAG, {"mailboxid": MAILBOX}, at=START)
        world.add_flag("newer", at=START)

        undone, _ = taken_back(world, world.run)
        row = cells(world, APPLICABLE_FLAG, (MAILBOX,))
        assert row is not None
        assert row["userflags"] == {"old", "newer"}
        taken_back(world, run_of(undone))

        row = cells(world, APPLICABLE_FLAG, (MAILBOX,))
        assert row is not None
        assert row["userflags"] == {"old", "newer", "lost"}


class TestTruth:
    """What was taken from the truth, or given back to it."""

    def test_a_quarantined_message_returns_whole_and_can_go_again(self, world: World) -> None:
        """Truth by IF NOT EXISTS, mirror and filters just above the run."""
        truth = world.message(truth_row(userflags=frozenset({"x"})), content=False)
        world.revisit([mirror_suspect(truth, Verdict.LOST_CONTENT)], orphans="quarantine")

        undone, outcomes = taken_back(world, world.run)
        assert {one.result for one in outcomes} == {Verdict.FIXED}
        returned = cells(world, IMAP_UID, IMAP_UID.key_of(truth))
        assert returned is not None
        assert MESSAGES.mirror.agree(returned, mirror_row(truth))
        assert cells(world, MESSAGE_ID, place(truth)) == mirror_row(truth)
        assert cells(world, FIRST_UNSEEN, place(truth)) is not None
        taken_back(world, run_of(undone))

        assert cells(world, IMAP_UID, IMAP_UID.key_of(truth)) is None
        assert cells(world, MESSAGE_ID, place(truth)) is None
        assert cells(world, FIRST_UNSEEN, place(truth)) is None

    def test_a_restored_truth_goes_again_unless_it_was_used(self, world: World) -> None:
        """Undo of --dangling restore."""
        unused, used = truth_row(1), truth_row(2)
        for row in (unused, used):
            world.message(row)
            world.remove(IMAP_UID, IMAP_UID.key_of(row), at=LONG_AGO + 1)
        suspects = [mirror_suspect(row, Verdict.WITHDRAW, known=False) for row in (unused, used)]
        world.revisit(suspects, dangling="restore")
        world.put(IMAP_UID, {**used, "modseq": 7}, at=START + 5)

        _, outcomes = taken_back(world, world.run)

        assert {one.suspect.key[1]: one.result for one in outcomes} == {1: Verdict.FIXED, 2: Verdict.MOVED}
        assert cells(world, IMAP_UID, IMAP_UID.key_of(unused)) is None
        assert cells(world, IMAP_UID, IMAP_UID.key_of(used)) is not None

    def test_collected_content_returns(self, world: World) -> None:
        """A leak's before-image is its whole row."""
        world.put(MESSAGE_V3, content_row(message(1)))
        before = cells(world, MESSAGE_V3, (message(1),))
        world.revisit([Suspect("messageV3", (message(1),), Verdict.LEAK)], leaks="collect")

        taken_back(world, world.run)

        assert cells(world, MESSAGE_V3, (message(1),)) == before


class TestRefusals:
    """What an undo does not begin."""

    def test_an_unknown_run_is_said_to_be_unknown(self, world: World) -> None:
        with pytest.raises(UnknownRun):
            taken_back(world, RunId(world.clock.new_uuid()))

    def test_a_run_of_another_keyspace_is_refused(self, world: World) -> None:
        other = world.ledger.start("elsewhere", "repair", T, {}).id

        with pytest.raises(WrongUse, match="elsewhere"):
            taken_back(world, other)

    def test_a_row_that_cannot_be_read_is_an_error_of_its_own(self, world: World) -> None:
        suspects, rows = broken_mirror(world)
        world.revisit(suspects)
        world.fail_in_mail(lambda operation: getattr(operation, "key", None) == (rows[0]["messageid"],))

        summary, _ = taken_back(world, world.run)

        assert (summary.failed, summary.fixed.total(), summary.exit) == (1, 2, ExitCode.PARTLY_FAILED)
