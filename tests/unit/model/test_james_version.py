"""James's own schema version: only what a James of that generation can read, and never below what stands there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.catalog.generations import AUGUST_2026, GENERATIONS, JAMES_3_8, JAMES_3_9, NEWEST, Generation
from model.errors import ExitCode, UnsafeRequest, WrongUse
from model.migrations.adoption import SUPPORTED, VersionStep, decide_version


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_what_its_james_knows_is_taken_and_nothing_else(generation: Generation) -> None:
    """Both ends included."""
    oldest, newest = SUPPORTED[generation.name]
    for wanted in range(oldest, newest + 1):
        assert decide_version((), generation, wanted) == VersionStep(None, oldest, wanted)
    for nonsense in (-1, 0, oldest - 1, newest + 1, 2**31):
        with pytest.raises(WrongUse, match=f"{oldest} to {newest}") as refused:
            decide_version((), generation, nonsense)
        assert refused.value.exit_code is ExitCode.WRONG_USE


def test_each_generation_has_its_range() -> None:
    """As the sources have them."""
    assert set(SUPPORTED) == {one.name for one in GENERATIONS}
    assert SUPPORTED[JAMES_3_8.name] == (8, 12)
    assert SUPPORTED[JAMES_3_9.name] == (12, 15)


@given(st.sets(st.integers(1, 16)), st.integers(12, 16))
def test_james_reads_the_greatest_so_a_lower_one_is_refused(standing: set[int], wanted: int) -> None:
    """Whatever stands there: what is written is what James then reads, or it is refused."""
    if standing and wanted < max(standing):
        with pytest.raises(UnsafeRequest, match="would change nothing"):
            decide_version(standing, NEWEST, wanted)
        return
    step = decide_version(standing, NEWEST, wanted)
    assert max((*standing, step.after)) == wanted
    assert step.changes is (wanted not in standing)


def test_a_version_that_skips_james_own_work_says_so() -> None:
    """Where there is no row James assumes its oldest, so even the first row may claim something."""
    caution = decide_version((12,), JAMES_3_9, 15).caution
    for step in ("12 to 13", "13 to 14", "14 to 15"):
        assert step in caution
    assert decide_version((), JAMES_3_9, 12).caution == ""
    assert "8 to 9" in decide_version((), JAMES_3_8, 9).caution
    assert decide_version((15,), JAMES_3_9, 15).caution == ""


@pytest.mark.parametrize(
    ("generation", "known"),
    [(JAMES_3_8, (8, 12)), (JAMES_3_9, (12, 15)), (AUGUST_2026, (12, 15)), (NEWEST, (12, 16))],
    ids=lambda one: one.name if isinstance(one, Generation) else "",
)
def test_each_james_refuses_to_start_above_its_own(generation: Generation, known: tuple[int, int]) -> None:
    """So no version above it is ever written; nor one below what it can read."""
    assert SUPPORTED[generation.name] == known
    with pytest.raises(WrongUse) as refused:
        decide_version((), generation, known[1] + 1)
    assert refused.value.mend == "Ask James itself: GET /cassandra/version/latest of its webadmin."


def test_a_version_that_nobody_would_read_is_refused_with_the_way_out() -> None:
    """The greatest counts, whatever else stands there."""
    with pytest.raises(UnsafeRequest, match="schema version 14 stands there") as refused:
        decide_version((12, 14, 13), JAMES_3_9, 13)
    assert refused.value.mend == (
        "Leave it. A version that was written by mistake goes with its row: DELETE FROM schemaversion."
    )
    assert decide_version((12, 14, 13), JAMES_3_9, 14) == VersionStep(14, 14, 14)


@pytest.mark.parametrize(
    ("step", "caution", "changes"),
    [
        (VersionStep(None, 8, 8), False, True),
        (VersionStep(None, 8, 9), True, True),
        (VersionStep(8, 8, 8), False, False),
        (VersionStep(8, 8, 10), True, True),
    ],
)
def test_a_step_claims_what_lies_between(step: VersionStep, *, caution: bool, changes: bool) -> None:
    """The row itself may be new though it claims nothing."""
    assert (bool(step.caution), step.changes) == (caution, changes)
    for number in range(step.assumed, step.after):
        assert f"{number} to {number + 1}" in step.caution
