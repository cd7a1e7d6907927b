"""How old a row is that may be removed, and what a repair says of a row whose age it cannot tell."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.operations import RemoveIf, Seen
from mailmend.model.projections.ages import is_old, last_sign, why_kept
from mailmend.model.projections.content import Content
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import DAY_MICROS, Reason, Verdict, Why
from mailmend.model.table import Row, Table, columns
from tests.support.clock import START, uuid_at

TRUTH = Table("visits", columns("user_id uuid", "day int", "note text, tags set<text>"))
BY_DAY = Table("visits_by_day", columns("day int", "user_id uuid", "note text"))
CONTENT = Table("profiles", columns("user_id uuid", regular="body text"))
PROFILES = Content(TRUTH, CONTENT, (("user_id", "user_id"),))
MIRROR = Mirror(TRUTH, BY_DAY, (("day", "day"), ("user_id", "user_id")), (BY_DAY.column("note"),))
TELLS_NOTHING = UUID(int=1, version=4)
ASKED = RepairPolicy(orphans="quarantine", leaks="collect", as_of=START)

instants = st.integers(START - 3 * DAY_MICROS, START)


def visit(user: UUID = TELLS_NOTHING, **cells: Any) -> Row:
    return {"user_id": user, "day": 7, "note": None, "tags": frozenset(), **cells}


def sign(seen: Seen) -> int | None:
    return last_sign(TRUTH, TRUTH.key_of(seen.row), seen)


@given(st.dictionaries(st.sampled_from(["note", "tags"]), instants, min_size=1), st.none() | instants)
def test_a_row_is_as_old_as_the_newest_of_its_cells_and_of_its_uuid(times: Mapping[str, int], born: int | None) -> None:
    user = TELLS_NOTHING
    known = list(times.values())
    if born is not None:
        user = uuid_at(born, 1)
        known.append(born)
    cells = {"note": "x", "tags": frozenset({"a"})}
    row = visit(user, **{name: cells[name] for name in times})

    assert sign(Seen(row, times)) == max(known)


@given(instants, st.booleans())
def test_a_cell_without_a_write_time_leaves_the_age_unknown_unless_the_key_tells_it(at: int, tells: bool) -> None:
    """As a set does before Cassandra 5."""
    user = TELLS_NOTHING
    expected = None
    if tells:
        user = uuid_at(START - 3 * DAY_MICROS, 1)
        expected = at

    assert sign(Seen(visit(user, note="x", tags=frozenset({"a"})), {"note": at})) == expected


def test_a_row_of_keys_alone_has_the_age_of_its_uuid_or_none() -> None:
    assert sign(Seen(visit())) is None
    assert sign(Seen(visit(uuid_at(START, 1)))) == START


@given(instants)
def test_a_day_has_to_pass_since_the_last_sign(since: int) -> None:
    reason = why_kept(since, START)

    assert is_old(since, START) is (START - since > DAY_MICROS)
    if is_old(since, START):
        assert reason == Reason(Why.NO_WHOLE_ROW)
    else:
        assert reason.why is Why.YOUNGER_THAN_A_DAY
        assert reason.again_at is not None
        assert is_old(since, reason.again_at + 1)
        assert not is_old(since, reason.again_at)


def test_an_unknown_age_is_never_old() -> None:
    assert not is_old(None, START)
    assert why_kept(None, START) == Reason(Why.AGE_UNKNOWN)


def lost(*truths: Seen) -> Look:
    suspect = Suspect(MIRROR.name, (7, TELLS_NOTHING), Verdict.LOST_CONTENT)
    return Look(suspect, MIRROR, PROFILES, MIRROR, truths=truths, has_content=False)


def leaked(seen: Seen) -> Look:
    suspect = Suspect(PROFILES.name, (TELLS_NOTHING,), Verdict.LEAK)
    return Look(suspect, MIRROR, PROFILES, PROFILES, projected=seen)


@pytest.mark.parametrize(
    ("seen", "old", "why"),
    [
        (Seen(visit(note="x"), {"note": START - 2 * DAY_MICROS}), True, None),
        (Seen(visit(note="x"), {"note": START - DAY_MICROS}), False, Why.YOUNGER_THAN_A_DAY),
        (Seen(visit(note="x")), False, Why.AGE_UNKNOWN),
        (Seen(visit()), False, Why.AGE_UNKNOWN),
        (Seen(visit(uuid_at(START - 2 * DAY_MICROS, 1))), True, Why.KEYS_ALONE),
        (Seen(visit(uuid_at(START, 1), note="x"), {"note": START - 2 * DAY_MICROS}), False, Why.YOUNGER_THAN_A_DAY),
    ],
)
def test_a_row_of_truth_without_content_is_removed_or_left_with_the_reason(
    seen: Seen, old: bool, why: Why | None
) -> None:
    look = lost(seen)
    finding = Finding(look.suspect, Verdict.LOST_CONTENT, truths=look.truths)

    assert MIRROR.old_enough(look, Verdict.LOST_CONTENT, START) is old
    if why is None:
        fixed = MIRROR.fix(finding, look, ASKED, START)
        assert fixed is not None
        assert fixed.condition == RemoveIf(TRUTH, (TELLS_NOTHING, 7), {"note": "x", "tags": None})
    else:
        assert MIRROR.why_left(finding, ASKED, START).why is why
    if why is Why.KEYS_ALONE:
        assert MIRROR.fix(finding, look, ASKED, START) is None


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Seen({"user_id": TELLS_NOTHING, "body": "x"}, {"body": START - 2 * DAY_MICROS}), None),
        (Seen({"user_id": TELLS_NOTHING, "body": "x"}, {"body": START - 1}), Why.YOUNGER_THAN_A_DAY),
        (Seen({"user_id": TELLS_NOTHING, "body": None}), Why.AGE_UNKNOWN),
    ],
)
def test_content_that_no_row_names_is_collected_or_left_with_the_reason(seen: Seen, why: Why | None) -> None:
    look = leaked(seen)
    finding = Finding(look.suspect, Verdict.LEAK, projected=seen)

    assert PROFILES.old_enough(look, Verdict.LEAK, START) is (why is None)
    if why is not None:
        assert PROFILES.why_left(finding, ASKED, START).why is why


def test_other_findings_have_no_age() -> None:
    young = Seen(visit(note="x"), {"note": START})

    assert MIRROR.old_enough(lost(young), Verdict.AMEND, START)
    assert PROFILES.old_enough(leaked(young), Verdict.AGREE, START)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("restores", [True, False])
def test_content_is_put_back_always_and_removed_again_only_while_no_row_names_it(
    is_named: bool, restores: bool
) -> None:
    row = Seen({"user_id": TELLS_NOTHING, "body": "x"}, {"body": 1})
    image = Finding(Suspect(PROFILES.name, (TELLS_NOTHING,), Verdict.LEAK), Verdict.LEAK)
    if restores:
        image = replace(image, projected=row)
    look = leaked(row)
    if is_named:
        look = replace(look, truths=(Seen(visit()),))

    expected = None
    if is_named and not restores:
        expected = Verdict.MOVED
    assert PROFILES.truth_back(image, look, None) is expected
