"""A mirror that fills its truth from contents: which rows it fills, and how that is taken back."""

from dataclasses import replace
from typing import Any

import pytest

from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGES
from mailmend.model.instants import MICROS
from mailmend.model.operations import ChangeIf, Put, PutIfAbsent, Remove, Seen
from mailmend.model.projections.filled_mirror import FilledMirror
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.verdicts import Reason, Verdict, Why
from mailmend.model.table import Row
from tests.support.clock import START
from tests.support.repairing import T, mirror_row, place, truth_row

assert isinstance(MESSAGES.mirror, FilledMirror)
MIRROR = MESSAGES.mirror
LACKING = ("internaldate", "bodystartoctet", "fullcontentoctets", "headercontent")
WHOLE = truth_row(flagseen=True)
TORN: Row = {**WHOLE, **dict.fromkeys(LACKING)}
CELLS = {name: WHOLE[name] for name in LACKING}
FILLING = RepairPolicy(fill_torn=True)
YOUNG = {**TORN, "messageid": truth_row(born=START - 3600 * MICROS)["messageid"]}


def suspect(verdict: Verdict) -> Suspect:
    return Suspect(MIRROR.name, place(TORN), verdict, ((TORN["messageid"],),))


def look(truth: Seen, named: Row | None, content: Row) -> Look:
    """A torn truth row, its mirror row and its content."""
    projected = None
    if named is not None:
        projected = Seen(named)
    contents = {(truth.row["messageid"],): content}
    return Look(suspect(Verdict.TORN), MIRROR, MESSAGES.content, MIRROR, projected, contents=contents, truths=(truth,))


def fixed(there: Look) -> Finding | None:
    finding = Finding(there.suspect, Verdict.TORN, truths=there.truths)
    return MIRROR.fix(finding, there, FILLING, T)


@pytest.mark.parametrize(("verdict", "columns"), [(Verdict.TORN, LACKING), (Verdict.AMEND, ())])
def test_only_a_torn_row_needs_cells_of_its_content(verdict: Verdict, columns: tuple[str, ...]) -> None:
    assert MIRROR.content_columns(suspect(verdict)) == columns


@pytest.mark.parametrize(
    ("verdict", "policy", "asked"),
    [
        (Verdict.TORN, FILLING, True),
        (Verdict.TORN, RepairPolicy(), False),
        (Verdict.AMEND, RepairPolicy(), True),
        (Verdict.CLASH, FILLING, False),
    ],
)
def test_a_torn_row_is_filled_where_it_is_asked_for(verdict: Verdict, policy: RepairPolicy, asked: bool) -> None:
    assert MIRROR.asks_for(verdict, policy) is asked


@pytest.mark.parametrize(
    ("verdict", "truth", "is_old"),
    [
        (Verdict.TORN, TORN, True),
        (Verdict.TORN, YOUNG, False),
        (Verdict.AMEND, YOUNG, True),
        (Verdict.LOST_CONTENT, TORN, True),
        (Verdict.LOST_CONTENT, YOUNG, False),
    ],
)
def test_a_writer_of_a_torn_row_has_a_day_to_complete_it(verdict: Verdict, truth: Row, is_old: bool) -> None:
    assert MIRROR.old_enough(look(Seen(truth), None, {}), verdict, START) is is_old


@pytest.mark.parametrize(
    ("verdict", "policy", "truths", "why"),
    [
        (Verdict.TORN, FILLING, (Seen(TORN),), Why.NO_WHOLE_ROW),
        (Verdict.TORN, FILLING, (Seen(YOUNG),), Why.YOUNGER_THAN_A_DAY),
        (Verdict.TORN, FILLING, (), Why.NO_WHOLE_ROW),
        (Verdict.TORN, RepairPolicy(), (Seen(TORN),), Why.HALF_A_TRUTH),
        (Verdict.CLASH, FILLING, (Seen(TORN),), Why.TWO_TRUTHS),
        (Verdict.LOST_CONTENT, RepairPolicy(), (Seen(TORN),), Why.NEEDS_ORPHANS),
        (Verdict.LOST_CONTENT, RepairPolicy(orphans="quarantine"), (Seen(YOUNG),), Why.YOUNGER_THAN_A_DAY),
    ],
)
def test_a_row_that_is_left_has_a_reason(
    verdict: Verdict, policy: RepairPolicy, truths: tuple[Seen, ...], why: Why
) -> None:
    reason = MIRROR.why_left(Finding(suspect(verdict), verdict, truths=truths), policy, START)

    assert reason.why is why


def test_the_truth_gets_its_cells_while_it_is_unchanged_and_the_mirror_the_whole_row() -> None:
    found = fixed(look(Seen(TORN), mirror_row(TORN), CELLS))

    assert found is not None
    expected = {column.name: TORN[column.name] for column in IMAP_UID.regular if not column.is_collection}
    assert found.condition == ChangeIf(IMAP_UID, IMAP_UID.key_of(TORN), expected, CELLS)
    assert found.writes == (Put(MESSAGE_ID, mirror_row(WHOLE), at=T, clear=True),)


def test_a_cell_of_the_truth_is_not_replaced() -> None:
    own = {**TORN, "headercontent": "of its own"}

    found = fixed(look(Seen(own), mirror_row(own), CELLS))

    assert found is not None
    assert isinstance(found.condition, ChangeIf)
    assert set(found.condition.assign) == {*LACKING} - {"headercontent"}


@pytest.mark.parametrize(
    ("truth", "named", "content"),
    [
        (Seen(TORN), None, CELLS),
        (Seen(TORN), {**mirror_row(TORN), "messageid": None}, CELLS),
        (Seen(TORN), mirror_row(TORN), {}),
        (Seen(TORN), mirror_row(TORN), {**CELLS, "headercontent": None}),
        (Seen({**TORN, "modseq": None}), mirror_row(TORN), CELLS),
        (Seen(TORN, expires_at={"flagseen": 9}), mirror_row(TORN), CELLS),
        (Seen(WHOLE), mirror_row(WHOLE), CELLS),
    ],
    ids=["no mirror row", "it names none", "no content", "half a content", "no modseq", "it expires", "it is whole"],
)
def test_any_other_torn_row_is_only_reported(truth: Seen, named: Row | None, content: Row) -> None:
    assert fixed(look(truth, named, content)) is None


def test_other_findings_are_mended_as_those_of_any_mirror() -> None:
    there = look(Seen(WHOLE), None, {})

    found = MIRROR.fix(Finding(suspect(Verdict.PROJECT), Verdict.PROJECT), there, FILLING, T)

    assert found is not None
    assert (found.condition, found.writes) == (None, (Put(MESSAGE_ID, mirror_row(WHOLE), at=T, clear=True),))


def test_a_mirror_row_without_truth_is_removed_as_by_any_mirror() -> None:
    there = replace(look(Seen(TORN), mirror_row(TORN), {}), truths=())

    found = MIRROR.fix(Finding(suspect(Verdict.WITHDRAW), Verdict.WITHDRAW), there, FILLING, T)

    assert found is not None
    assert found.writes == (Remove(MESSAGE_ID, place(TORN), at=T),)


def taken_back(before: tuple[Row, ...], now: tuple[Row, ...], verdict: Verdict = Verdict.TORN) -> Any:
    """What an undo does with the truth, by the rows that were recorded and the rows that are there now."""
    image = Finding(suspect(verdict), verdict, truths=tuple(map(Seen, before)))
    there = replace(look(Seen(TORN), None, {}), truths=tuple(map(Seen, now)))
    return MIRROR.truth_back(image, there, None)


@pytest.mark.parametrize(("before", "now"), [(TORN, WHOLE), (WHOLE, TORN)])
def test_a_fill_is_taken_back_and_an_undo_of_it_too(before: Row, now: Row) -> None:
    change = taken_back((before,), (now,))

    assert isinstance(change, ChangeIf)
    assert change.key == IMAP_UID.key_of(now)
    assert change.assign == {name: before[name] for name in LACKING}
    assert change.expected["headercontent"] == now["headercontent"]


def test_a_truth_that_is_as_it_was_needs_nothing() -> None:
    assert taken_back((TORN,), (TORN,)) is None


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ((TORN,), ({**WHOLE, "modseq": 2},)),
        ((TORN,), ({**WHOLE, "save_date": WHOLE["internaldate"]},)),
        ((WHOLE,), ({**WHOLE, "headercontent": "another"},)),
        ((TORN,), ()),
        ((), (WHOLE,)),
        ((TORN, TORN), (WHOLE, WHOLE)),
    ],
)
def test_a_truth_that_others_changed_has_moved(before: tuple[Row, ...], now: tuple[Row, ...]) -> None:
    assert taken_back(before, now) is Verdict.MOVED


def test_another_fix_is_taken_back_as_that_of_any_mirror() -> None:
    assert taken_back((TORN,), (WHOLE,), Verdict.AMEND) is Verdict.MOVED
    assert taken_back((TORN,), (TORN,), Verdict.AMEND) is None
    assert isinstance(taken_back((WHOLE,), (), Verdict.LOST_CONTENT), PutIfAbsent)


def test_a_reason_of_a_young_row_says_when_it_may_be_tried_again() -> None:
    finding = Finding(suspect(Verdict.TORN), Verdict.TORN, truths=(Seen(YOUNG),))

    assert MIRROR.why_left(finding, FILLING, START) == Reason(
        Why.YOUNGER_THAN_A_DAY, again_at=START + 23 * 3600 * MICROS
    )
