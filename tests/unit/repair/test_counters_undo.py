"""Counters taken back: by the inverse delta, once, and only if nobody used them since."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.projections.verdicts import Verdict
from tests.support.counting import Counting, three_messages
from tests.support.repairing import truth_row
from tests.support.striking import passing
from tests.support.writing import LagList


@pytest.fixture
def world() -> Counting:
    return three_messages(5, 1)


def test_a_doubtful_undo_is_not_journalled(world: Counting) -> None:
    lags = LagList()
    world.mend()
    images = list(world.ledger.findings(world.run))
    undoing = world.ledger.start("mail", "undo", world.as_of, {})

    world.lose_counts()
    (outcome,) = replace(world.mender(), lags=lags).undo(images, world.policy(run=undoing.id))

    assert "next check" in (outcome.error or "")
    assert lags.suspects == []


def test_undo_adds_the_inverse_and_redo_the_delta_again(world: Counting) -> None:
    world.mend()
    back = world.undo()
    assert back.result is Verdict.FIXED
    assert world.counters() == (5, 1)
    world.undo(world.undone_by)
    assert world.counters() == (3, 2)


def test_undo_of_a_projected_row_leaves_zeros() -> None:
    world = Counting()
    world.message(truth_row(1))
    world.mend()
    world.undo()
    assert world.counters() == (0, 0)


def test_undo_leaves_counters_that_were_used_since(world: Counting) -> None:
    world.mend()
    world.message(truth_row(4))
    world.count(1, 1)
    back = world.undo()
    assert back.result is Verdict.MOVED
    assert world.counters() == (4, 3)


def test_undo_of_a_delta_that_never_arrived_changes_nothing(world: Counting) -> None:

    world.lose_counts()
    world.mend()
    world.surround(passing)
    back = world.undo()
    assert (back.verdict, back.result) == (Verdict.AGREE, None)
    assert world.counters() == (5, 1)


def test_undoing_twice_takes_nothing_back_twice(world: Counting) -> None:
    world.mend()
    for _ in range(2):
        back = world.undo()
    assert (back.verdict, back.result) == (Verdict.AGREE, None)
    assert world.counters() == (5, 1)


def test_a_dry_run_of_an_undo_tells_the_delta_and_sends_none(world: Counting) -> None:
    world.mend()
    images = list(world.ledger.findings(world.run))
    written = world.watch_writes()
    (back,) = world.mender().undo(images, world.policy(run=None))
    assert (back.verdict, back.due, written) == (Verdict.AMEND, True, [])
    assert world.counters() == (3, 2)


@given(
    found=st.tuples(st.integers(-5, 20), st.integers(-5, 20)).filter(lambda found: found != (3, 2)),
    used=st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
)
def test_undo_brings_back_what_was_found_or_leaves_what_was_used(found: tuple[int, int], used: tuple[int, int]) -> None:
    world = three_messages(*found)
    world.mend()
    mended = world.counters()
    assert mended == (3, 2)
    world.count(*used)
    world.undo()
    expected = {found} if used == (0, 0) else {(3 + used[0], 2 + used[1])}
    assert world.counters() in expected
