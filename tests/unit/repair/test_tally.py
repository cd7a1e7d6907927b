"""The sums of a run: what each outcome adds, and which exit code they make."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.errors import ExitCode
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import DETECTED, MENDABLE, Verdict
from mailmend.repair.ledger.runs import RunKind
from mailmend.repair.mending.engine import RepairResult

RESULTS = (None, Verdict.FIXED, Verdict.HIDDEN, Verdict.MOVED, Verdict.AHEAD)


def outcome(verdict: Verdict, result: Verdict | None = None, **facts: Any) -> Finding:
    return Finding(Suspect("messageIdTable", (1,), Verdict.AMEND), verdict, result, **facts)


def counted(*outcomes: Finding) -> RepairResult:
    summary = RepairResult("mail", RunKind.MESSAGES)
    for one in outcomes:
        summary.count(one)
    summary.exit = summary.exit_code
    return summary


outcomes = st.lists(
    st.builds(
        outcome,
        st.sampled_from([*DETECTED, Verdict.AGREE]),
        st.sampled_from(RESULTS),
        error=st.none() | st.just("no answer"),
        due=st.booleans(),
    ),
    max_size=20,
)


@pytest.mark.parametrize(
    ("one", "fixed", "left", "code"),
    [
        (outcome(Verdict.AGREE), {}, {}, ExitCode.FINE),
        (outcome(Verdict.PROJECT, Verdict.FIXED), {Verdict.PROJECT: 1}, {}, ExitCode.FINE),
        (outcome(Verdict.PROJECT), {}, {Verdict.PROJECT: 1}, ExitCode.DRIFT),
        (outcome(Verdict.PROJECT, Verdict.HIDDEN), {}, {Verdict.HIDDEN: 1}, ExitCode.DRIFT),
        (outcome(Verdict.AMEND, Verdict.AHEAD), {}, {Verdict.AHEAD: 1}, ExitCode.DRIFT),
        (outcome(Verdict.AMEND, Verdict.MOVED), {}, {}, ExitCode.FINE),
        (outcome(Verdict.LEAK), {}, {}, ExitCode.FINE),
        (outcome(Verdict.LEAK, Verdict.FIXED), {Verdict.LEAK: 1}, {}, ExitCode.FINE),
        (outcome(Verdict.LEAK, Verdict.HIDDEN), {}, {Verdict.HIDDEN: 1}, ExitCode.DRIFT),
        (outcome(Verdict.CLASH), {}, {Verdict.CLASH: 1}, ExitCode.DRIFT),
        (outcome(Verdict.TORN), {}, {Verdict.TORN: 1}, ExitCode.DRIFT),
        (outcome(Verdict.AMEND, error="no answer"), {}, {}, ExitCode.PARTLY_FAILED),
    ],
)
def test_each_ending_goes_into_one_sum(
    one: Finding, fixed: dict[Verdict, int], left: dict[Verdict, int], code: ExitCode
) -> None:
    summary = counted(one)

    assert (summary.fixed, summary.left, summary.exit) == (fixed, left, code)


@given(outcomes)
def test_every_outcome_is_counted_exactly_once(some: list[Finding]) -> None:
    summary = counted(*some)

    ended = [one for one in some if one.result is not None]
    only_reported = [one for one in some if one.result is None and not one.error and one.verdict is Verdict.LEAK]
    failed = [one for one in some if one.result is None and one.error]
    settled = [one for one in some if one.result is None and not one.error and one.verdict is Verdict.AGREE]
    open_ = len(some) - len(ended) - len(only_reported) - len(failed) - len(settled)
    assert summary.fixed.total() + summary.left.total() + summary.moved == len(ended) + open_
    assert summary.failed == sum(one.error is not None for one in some)
    assert sum(counts.total() for counts in summary.findings.values()) == (
        summary.fixed.total() + summary.left.total() + len(only_reported)
    )


@given(outcomes, st.randoms(use_true_random=False))
def test_the_order_of_outcomes_does_not_matter(some: list[Finding], chance: Any) -> None:
    shuffled = list(some)
    chance.shuffle(shuffled)

    assert counted(*some) == counted(*shuffled)


@given(outcomes)
def test_the_exit_code_says_the_worst(some: list[Finding]) -> None:
    summary = counted(*some)

    if any(one.error for one in some):
        assert summary.exit is ExitCode.PARTLY_FAILED
    else:
        assert summary.exit is (ExitCode.DRIFT if summary.left.total() else ExitCode.FINE)


def test_a_dry_run_sums_what_would_have_been_mended() -> None:
    summary = counted(outcome(Verdict.PROJECT, due=True), outcome(Verdict.CLASH), outcome(Verdict.AMEND, due=True))

    assert summary.due == Counter({Verdict.PROJECT: 1, Verdict.AMEND: 1, Verdict.CLASH: 0})
    assert sum(summary.left[verdict] for verdict in MENDABLE) == 2


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ((), ExitCode.CANNOT_REACH),
        ((outcome(Verdict.AGREE),), ExitCode.CANNOT_REACH),
        ((outcome(Verdict.AMEND, error="no answer"),), ExitCode.CANNOT_REACH),
        ((outcome(Verdict.PROJECT, Verdict.FIXED),), ExitCode.PARTLY_FAILED),
    ],
)
def test_what_was_not_tried_is_neither_found_nor_failed(others: tuple[Finding, ...], code: ExitCode) -> None:
    """The cluster was lost: nobody knows what they are; 4 when nothing was mended, else 3."""
    untried = outcome(Verdict.PROJECT, error="not looked at again", unreached=True, untried=True)
    alone, summary = counted(*others), counted(*others, untried, untried)

    assert (summary.untried, summary.exit) == (2, code)
    assert (summary.findings, summary.left, summary.failed) == (alone.findings, alone.left, alone.failed)


def test_last_traces_are_counted_apart() -> None:
    """Among the WITHDRAW that were mended as among those that were left; not those that moved."""
    summary = counted(
        outcome(Verdict.WITHDRAW, Verdict.FIXED, last_trace=True),
        outcome(Verdict.WITHDRAW, last_trace=True),
        outcome(Verdict.WITHDRAW, Verdict.MOVED, last_trace=True),
        outcome(Verdict.WITHDRAW),
    )

    assert summary.last_traces == 2


def test_the_ledger_keeps_names_and_no_zeros() -> None:
    """Text and numbers alone, by the names that `--json` promises."""
    summary = counted(outcome(Verdict.PROJECT, Verdict.FIXED), outcome(Verdict.CLASH))

    fields = summary.kept

    assert (fields["fixed"], fields["left"]) == ({"PROJECT": 1}, {"CLASH": 1})
    assert fields["findings"] == {"messageIdTable": {"PROJECT": 1, "CLASH": 1}}
    assert fields["exit"] == 1
