"""The rule of time: what may be written once both sides were looked at again."""

from dataclasses import replace
from typing import Any, cast
from uuid import uuid1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.operations import Seen
from mailmend.model.projections.content import Content
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.model.table import Key
from mailmend.repair.decisions.recheck import judge

T = 1_000_000
NOW, SKEW = T + 30_000_000, 5_000_000
MIRROR = MESSAGES.mirror
UNSEEN = MESSAGES.filters[0]
LABELS = MESSAGES.unions[0]
COUNTS = MESSAGES.counts[0]
CONTENT = cast("Content", MESSAGES.content)
MAILBOX, MESSAGE = uuid1(), uuid1()


def truth(at: int = 1, **columns: Any) -> Seen:
    """A truth row whose every cell was written at one time."""
    row = {"messageid": MESSAGE, "mailboxid": MAILBOX, "uid": 7, "modseq": 3, "flagseen": False} | columns
    return Seen(row, {"modseq": at})


def projected(at: int = 1, **columns: Any) -> Seen:
    """The mirror row that `truth()` demands, with differences."""
    return Seen(MIRROR.row_of(truth().row) | columns, {"modseq": at})


def look_at(projection: Projection, key: Key, truths: tuple[Seen, ...], row: Seen | None, **seen: Any) -> Look:
    """A look at one key."""
    suspect = Suspect(projection.name, key, Verdict.AMEND)
    return Look(suspect, MESSAGES.mirror, MESSAGES.content, projection, projected=row, truths=truths, **seen)


def mirror(truths: tuple[Seen, ...], row: Seen | None, **seen: Any) -> Look:
    """A look at the mirror's one key."""
    return look_at(MIRROR, (MAILBOX, 7), truths, row, **seen)


@pytest.mark.parametrize(
    ("truth_at", "row_at", "verdict"),
    [
        (T, 1, Verdict.AMEND),
        (1, T, Verdict.AMEND),
        (T + 1, 1, Verdict.MOVED),
        (1, T + 1, Verdict.MOVED),
        (1, NOW + SKEW, Verdict.MOVED),
        (1, NOW + SKEW + 1, Verdict.AHEAD),
    ],
)
def test_a_pair_touched_after_t_has_moved_and_one_later_than_any_clock_is_ahead(
    truth_at: int, row_at: int, verdict: Verdict
) -> None:
    """Only this run, or one before it, writes at T; up to the skew the writer may be an honest user."""
    assert judge(mirror((truth(at=truth_at),), projected(at=row_at, modseq=1)), T, NOW, SKEW) is verdict


@pytest.mark.parametrize(("ends_at", "verdict"), [(37, Verdict.MOVED), (38, Verdict.AMEND)])
@pytest.mark.parametrize("side", ["truth", "projection"])
def test_a_pair_of_which_a_cell_expires_about_now_has_moved(side: str, ends_at: int, verdict: Verdict) -> None:
    """Given now, 31 s, and a skew of 5 s; instants of expiry are whole seconds, so one more second counts as now."""
    sides = {"truth": truth(), "projection": projected(modseq=1)}
    sides[side] = replace(sides[side], expires_at={"modseq": ends_at})

    assert judge(mirror((sides["truth"],), sides["projection"]), T, NOW, SKEW) is verdict


def test_what_is_only_reported_is_reported_whenever_it_expires() -> None:
    expiring = replace(truth(), expires_at={"modseq": 1})
    assert judge(mirror((expiring, expiring), None), T, NOW, SKEW) is Verdict.CLASH


def test_what_is_only_reported_is_reported_however_new() -> None:
    """No write follows from a clash or a loss, so no time forbids naming it."""
    assert judge(mirror((truth(at=T + 1), truth(at=T + 1)), None), T, NOW, SKEW) is Verdict.CLASH
    assert judge(mirror((truth(at=T + 1),), None, has_content=False), T, NOW, SKEW) is Verdict.LOST_CONTENT
    assert judge(mirror((truth(at=T + 1),), None, whole=False), T, NOW, SKEW) is Verdict.TORN


def test_a_filter_row_has_no_time_of_its_own() -> None:
    """A row of key columns alone shows no WRITETIME: the margin, not MOVED, protects it."""
    look = look_at(UNSEEN, (MAILBOX, 7), (), Seen({"mailboxid": MAILBOX, "uid": 7}))
    assert look.newest is None
    assert judge(look, T, NOW, SKEW) is Verdict.WITHDRAW


def test_a_filter_follows_its_condition() -> None:
    """Unseen and not listed is inserted; seen and listed is deleted."""
    listed = Seen({"mailboxid": MAILBOX, "uid": 7})
    assert judge(look_at(UNSEEN, (MAILBOX, 7), (truth(),), None), T, NOW, SKEW) is Verdict.PROJECT
    assert judge(look_at(UNSEEN, (MAILBOX, 7), (truth(flagseen=True),), listed), T, NOW, SKEW) is Verdict.WITHDRAW


def test_two_truths_at_one_place_leave_their_filters_as_they_are() -> None:
    """Which of them counts is not guessed."""
    look = look_at(UNSEEN, (MAILBOX, 7), (truth(), truth()), None)
    assert look.verdict is Verdict.AGREE


def test_content_is_a_leak_only_where_no_truth_names_it() -> None:
    """What has no content at all is the mirror's to tell."""
    content = Seen({"messageid": MESSAGE}, {"bodyStartOctet": 1})
    verdicts = [
        look_at(CONTENT, (MESSAGE,), truths, row).verdict for truths in ((), (truth(),)) for row in (None, content)
    ]
    assert verdicts == [Verdict.AGREE, Verdict.LEAK, Verdict.AGREE, Verdict.AGREE]


def test_a_union_may_hold_more_but_not_less() -> None:
    """A superset is fine; what is missing is added."""
    holder = (truth(userflags=frozenset({"a", "b"})),)
    same = Seen({"mailboxid": MAILBOX, "userflags": frozenset({"a", "b"})})
    more = Seen({"mailboxid": MAILBOX, "userflags": frozenset({"a", "b", "c"})})
    less = Seen({"mailboxid": MAILBOX, "userflags": frozenset({"a"})})
    assert look_at(LABELS, (MAILBOX,), holder, same).verdict is Verdict.AGREE
    assert look_at(LABELS, (MAILBOX,), holder, more).verdict is Verdict.AGREE
    assert look_at(LABELS, (MAILBOX,), holder, less).verdict is Verdict.AMEND
    assert look_at(LABELS, (MAILBOX,), holder, None).verdict is Verdict.PROJECT


def test_a_counter_is_judged_within_what_is_certain() -> None:
    """One sure message and one in doubt: one or two is right, none or three is not."""
    sure, doubtful = (truth(),), (truth(uid=8),)
    for count, verdict in ((0, Verdict.AMEND), (1, Verdict.AGREE), (2, Verdict.AGREE), (3, Verdict.AMEND)):
        row = Seen({"mailboxid": MAILBOX, "count": count, "unseen": min(max(count, 1), 2)})
        assert look_at(COUNTS, (MAILBOX,), sure, row, uncertain=doubtful).verdict is verdict
    assert look_at(COUNTS, (MAILBOX,), (), None).verdict is Verdict.AGREE, "an empty mailbox needs no row"


@given(
    truth_at=st.integers(0, 4 * T),
    row_at=st.one_of(st.none(), st.integers(0, 4 * T)),
    modseq=st.integers(1, 4),
    has_content=st.booleans(),
    whole=st.booleans(),
)
def test_nothing_newer_than_t_is_ever_mended(
    truth_at: int, row_at: int | None, modseq: int, has_content: bool, whole: bool
) -> None:
    """Whatever is seen: a verdict that leads to a write never meets a cell later than T."""
    row = None if row_at is None else projected(at=row_at, modseq=modseq)
    look = mirror((truth(at=truth_at),), row, has_content=has_content, whole=whole)
    if judge(look, T, NOW, SKEW) in MENDABLE:
        assert max(truth_at, row_at or 0) <= T
