"""The one write path for fixes, over tables in memory: each verdict, each guard, each thing that can go wrong."""


import pytest

from model.catalog import MESSAGE_ID, MESSAGES
from repair.decide import Verdict
from tests.support.repairing import (
    T,
    World,
    mirror_row,
    mirror_suspect,
    place,
    truth_row,
)


@pytest.fixture
def world() -> World:
    """An empty mail keyspace with a run under way."""
    return World()


class TestMirror:
    """messageIdTable follows imapUidTable."""

    def test_a_missing_projection_is_inserted_as_of_t(self, world: World) -> None:
        """PROJECT writes the whole row, stamped T."""
        truth = world.message(truth_row(userflags=frozenset({"a"})), projected=False)

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result, outcome.error) == (Verdict.PROJECT, Verdict.FIXED, None)
        seen = world.get(MESSAGE_ID, place(truth))
        assert seen is not None
        assert seen.row == mirror_row(truth)
        assert set(seen.written_at.values()) == {T}

    def test_a_wrongly_set_flag_and_a_stale_column_are_overwritten(self, world: World) -> None:
        """AMEND converges every column: flags that only the projection has are cleared."""
        truth = world.message(truth_row(), projected=False)
        wrong = {"flagseen": True, "userflags": frozenset({"gone"}), "save_date": truth["internaldate"], "modseq": 9}
        world.put(MESSAGE_ID, mirror_row(truth, **wrong))

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.AMEND)])

        assert outcome.result is Verdict.FIXED
        seen = world.get(MESSAGE_ID, place(truth))
        assert seen is not None
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
        """Only the second verdict counts: what was absent is there by now, but different."""
        truth = world.message(truth_row(modseq=4), projected=False)
        world.put(MESSAGE_ID, mirror_row(truth, modseq=3))

        (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

        assert (outcome.verdict, outcome.result) == (Verdict.AMEND, Verdict.FIXED)
