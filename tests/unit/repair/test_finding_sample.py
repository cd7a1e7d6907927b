"""The sample of findings that a recorded check keeps: bounded, and fair over tables and verdicts."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as some

from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.decisions.finding_sample import FindingSample

KINDS = (Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW, Verdict.CLASH)


def found(verdict: Verdict, number: int) -> Finding:
    return Finding(Suspect("messageIdTable", (number,), verdict), verdict)


def kept_of(sample: FindingSample) -> Counter[Verdict]:
    return Counter(finding.verdict for finding in sample.findings)


@given(some.lists(some.sampled_from(KINDS), max_size=60), some.integers(0, 20))
def test_the_sample_is_as_large_as_it_may_be_and_each_kind_has_a_fair_part(kinds: list[Verdict], limit: int) -> None:
    """No kind gives up a finding to a kind that keeps more, in whatever order they come."""
    sample = FindingSample(limit)

    for number, verdict in enumerate(kinds):
        sample.add(found(verdict, number))

    there = Counter(kinds)
    kept = kept_of(sample)
    assert (kept.total(), sample.added) == (min(limit, len(kinds)), len(kinds))
    assert len({finding.suspect.key for finding in sample.findings}) == kept.total(), "each once"
    for verdict in there:
        if kept[verdict] < there[verdict]:
            assert kept[verdict] >= max(kept.values(), default=0) - 1


def test_a_rare_verdict_is_kept_whole_next_to_a_flood() -> None:
    sample = FindingSample(100)
    for number in range(5_000):
        sample.add(found(Verdict.PROJECT, number))
    for number in range(3):
        sample.add(found(Verdict.CLASH, number))

    assert kept_of(sample) == {Verdict.PROJECT: 97, Verdict.CLASH: 3}


def test_checks_of_the_same_rows_keep_the_same_rows() -> None:
    """In whatever order an engine finds them, so that the same row is met again from check to check."""
    forth = FindingSample(10)
    back = FindingSample(10)
    for number in range(1_000):
        forth.add(found(Verdict.AMEND, number))
        back.add(found(Verdict.AMEND, 999 - number))

    assert forth.findings == back.findings
