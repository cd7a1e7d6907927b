"""Contents of a truth: which rows nobody names, which of them are old enough to go, and why others stay."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from mailmend.model.operations import Seen
from mailmend.model.projections.content import Content
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import DAY_MICROS, Reason, Verdict, Why
from mailmend.model.table import Table, columns
from tests.support.clock import START, uuid_at

VISITS = Table("visits", columns("visitor uuid", "day int", "note text"))
BY_DAY = Table("visits_by_day", columns("day int", "visitor uuid", "note text"))
PROFILES = Table("profiles", columns("user_id uuid", regular="body text"))
MIRROR = Mirror(VISITS, BY_DAY, (("day", "day"), ("visitor", "visitor")), (BY_DAY.column("note"),))
CONTENT = Content(VISITS, PROFILES, (("user_id", "visitor"),))
REPORTED = RepairPolicy(as_of=START)
COLLECTED = replace(REPORTED, leaks="collect")
OLD = uuid_at(START - 3 * DAY_MICROS, 1)
NEW = uuid_at(START, 1)


def look_at(user: UUID, *, named: bool = False, there: bool = True, written: Mapping[str, int] | None = None) -> Look:
    profile = None
    if there:
        profile = Seen({"user_id": user, "body": "x"}, written or {})
    truths: tuple[Seen, ...] = ()
    if named:
        truths = (Seen({"visitor": user, "day": 7, "note": None}),)
    return Look(
        Suspect(CONTENT.name, (user,), Verdict.LEAK), MIRROR, CONTENT, CONTENT, projected=profile, truths=truths
    )


def finding_of(user: UUID, verdict: Verdict = Verdict.LEAK, *, there: bool = True) -> Finding:
    profile = None
    if there:
        profile = Seen({"user_id": user, "body": "x"})
    return Finding(Suspect(CONTENT.name, (user,), verdict), verdict, projected=profile)


@pytest.mark.parametrize(("named", "there"), [(False, False), (False, True), (True, False), (True, True)])
def test_only_a_row_that_no_truth_names_is_a_leak(named: bool, there: bool) -> None:
    is_leak = CONTENT.verdict(look_at(OLD, named=named, there=there)) is Verdict.LEAK
    assert is_leak is (there and not named)


def test_its_key_leads_to_the_truth() -> None:
    """By the columns of the truth; content needs no content itself."""
    assert CONTENT.lead_row(look_at(OLD)) == {"visitor": OLD}
    assert not CONTENT.needs_content


@pytest.mark.parametrize(
    ("look", "old"),
    [
        (look_at(OLD), True),
        (look_at(NEW), False),
        (look_at(OLD, written={"body": START}), False),
        (look_at(OLD, there=False), True),
        (look_at(NEW, there=False), False),
        (look_at(UUID(int=1, version=4), there=False), False),
    ],
)
def test_a_leak_is_old_by_its_birth_and_by_its_last_write(look: Look, old: bool) -> None:
    """A day; where neither is known it is never old enough."""
    assert CONTENT.old_enough(look, Verdict.LEAK, START) is old
    assert CONTENT.old_enough(look, Verdict.AGREE, START)


def test_a_leak_stays_where_leaks_are_reported_or_it_is_young() -> None:
    """Any other finding stays for the reasons of all projections."""
    other = finding_of(OLD, Verdict.AGREE)

    assert CONTENT.why_left(finding_of(OLD), REPORTED, START) == Reason(Why.NEEDS_LEAKS)
    assert CONTENT.why_left(finding_of(NEW), COLLECTED, START).why is Why.YOUNGER_THAN_A_DAY
    assert CONTENT.why_left(finding_of(OLD), COLLECTED, START) == Reason(Why.NO_WHOLE_ROW)
    assert CONTENT.why_left(other, REPORTED, START) == Reason(Why.NOT_SETTLED)
    assert CONTENT.why_left(other, replace(REPORTED, all_truths=False), START) == Reason(Why.NEEDS_SCAN)
