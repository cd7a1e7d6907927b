"""Suspects, looks and findings: how they are put together, and what each tells of itself."""

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from mailmend.model.catalog.mail import IMAP_UID, MESSAGES, PATHS
from mailmend.model.errors import BadPayload, TimedOut
from mailmend.model.operations import Change, Put, PutIfAbsent, Seen
from mailmend.model.projections.findings import (
    Finding,
    RepairPolicy,
    Suspect,
    counts_of,
    failed,
    merged,
    row_if_absent,
    row_writes,
)
from mailmend.model.projections.look import Look
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.model.table import Row, Table, columns
from tests.support.repairing import MAILBOX, message, mirror_row, mirror_suspect, truth_row

SUSPECT = mirror_suspect(truth_row(1), Verdict.AMEND)
PUT, CONDITION = Put(IMAP_UID, truth_row(1), at=7), PutIfAbsent(IMAP_UID, truth_row(1))


def look(suspect: Suspect = SUSPECT, **fields: Any) -> Look:
    """A look at the mirror."""
    return Look(suspect, MESSAGES.mirror, MESSAGES.content, MESSAGES.mirror, **fields)


def test_a_policy_that_says_nothing_writes_nothing_and_removes_nothing() -> None:
    """What a check begins with."""
    quiet = RepairPolicy()
    assert (quiet.run, quiet.as_of, quiet.skew_seconds, quiet.rows_per_second) == (None, 0, 0, None)
    assert (quiet.orphans, quiet.dangling, quiet.leaks, quiet.only) == ("report", "withdraw", "report", MENDABLE)
    assert (quiet.beat_ahead, quiet.accept_torn, quiet.serial) == (False, False, True)


def test_a_look_and_a_finding_begin_with_nothing_wrong() -> None:
    """What is told apart is told by whoever saw it."""
    begun, found = look(), Finding(SUSPECT, Verdict.AMEND)
    assert (begun.has_content, begun.whole, begun.last_trace, begun.blind) == (True, True, False, False)
    assert (found.last_trace, found.due, found.unreached, found.untried) == (False, False, False, False)
    assert begun.verdict is Verdict.AGREE, "nothing on either side"


def test_suspects_are_counted_by_projection_and_verdict() -> None:
    """As the progress and the result show them."""
    other = Suspect("firstUnseen", (1,), Verdict.PROJECT)
    assert counts_of([SUSPECT, other, SUSPECT]) == {
        "messageIdTable": Counter({Verdict.AMEND: 2}),
        "firstUnseen": Counter({Verdict.PROJECT: 1}),
    }


def test_suspects_of_one_place_are_one_with_all_that_is_known_of_it() -> None:
    """Every truth once, every missing element; the first verdict stands, and other places stay apart."""
    a, b = (Suspect("applicableFlag", (MAILBOX,), verdict) for verdict in (Verdict.PROJECT, Verdict.AMEND))
    first = Suspect(*_place(a), ((message(1),), (message(2),)), {"userflags": frozenset("a"), "other": frozenset("d")})
    second = Suspect(*_place(b), ((message(2),), (message(3),)), {"userflags": frozenset("b"), "more": frozenset("c")})
    elsewhere = Suspect("applicableFlag", (message(9),), Verdict.PROJECT)
    known = {"userflags": frozenset("ab"), "more": frozenset("c"), "other": frozenset("d")}
    everything = Suspect(*_place(a), ((message(1),), (message(2),), (message(3),)), known)
    assert merged([first, elsewhere, second]) == [everything, elsewhere]
    assert merged([first]) == [first]


def _place(suspect: Suspect) -> tuple[str, tuple[Any, ...], Verdict]:
    return suspect.projection, suspect.key, suspect.verdict


def test_the_newest_write_of_a_pair_is_on_either_side() -> None:
    """None where no time can be read."""
    truths = (Seen({}, {"modseq": 3}), Seen({}))
    assert look(truths=truths, projected=Seen({}, {"modseq": 5, "uid": 4})).newest == 5
    assert look(truths=truths).newest == 3
    assert look(projected=Seen({}, {"uid": 2})).newest == 2
    assert look(truths=(Seen({}),), projected=Seen({})).newest is None


def test_every_known_way_to_the_truth_is_gone_once() -> None:
    """Those that the scan saw first, then what the mirror's row names; a half-written row names none."""
    named, half = (Seen({**mirror_row(truth_row(2)), **change}) for change in ({}, {"messageid": None}))
    assert look(mirrored=named).leads == ((message(1),), (message(2),))
    assert look(mirrored=Seen(mirror_row(truth_row(1)))).leads == ((message(1),),)
    assert look(mirrored=half).leads == ((message(1),),)
    assert look(mirrored=named).named == ((message(2),),)
    assert look().named == ()


@pytest.mark.parametrize(
    ("truths", "mirrored", "stands"), [((1,), 2, False), ((2,), None, True), ((), 2, True), ((), 1, False)]
)
def test_content_stands_beside_the_truth_or_else_beside_what_the_projection_names(
    truths: tuple[int, ...], mirrored: int | None, stands: bool
) -> None:
    """Only message 2 has its content."""
    named = Seen(mirror_row(truth_row(mirrored))) if mirrored else None
    rows = tuple(Seen(truth_row(number)) for number in truths)
    assert look(contents={(message(2),): {}}, mirrored=named).content_stands(rows) is stands


def test_where_nothing_must_stand_beside_the_truth_nothing_is_missing() -> None:
    """As for paths."""
    assert Look(SUSPECT, PATHS.mirror, PATHS.content, PATHS.mirror).content_stands(()) is True


def test_a_finding_changes_the_truth_before_what_follows_from_it() -> None:
    """That is the condition."""
    assert Finding(SUSPECT, Verdict.AMEND, writes=(PUT,), condition=CONDITION).changes == (CONDITION, PUT)
    assert Finding(SUSPECT, Verdict.AMEND, writes=(PUT,)).changes == (PUT,)
    assert Finding(SUSPECT, Verdict.AMEND).changes == ()


def test_a_finding_is_pending_while_nothing_spoke_against_its_changes() -> None:
    """Neither an end nor an error."""
    assert Finding(SUSPECT, Verdict.AMEND, writes=(PUT,)).is_pending
    assert not Finding(SUSPECT, Verdict.AMEND).is_pending
    assert not Finding(SUSPECT, Verdict.AMEND, Verdict.FIXED, writes=(PUT,)).is_pending
    assert not Finding(SUSPECT, Verdict.AMEND, error="no answer", writes=(PUT,)).is_pending


@pytest.mark.parametrize(
    ("before", "error", "after"),
    [(None, None, Verdict.FIXED), (Verdict.MOVED, None, Verdict.MOVED), (None, "no answer", None)],
)
def test_a_finding_that_ended_has_nothing_more_to_write(
    before: Verdict | None, error: str | None, after: Verdict | None
) -> None:
    """Its first end stands, and what failed is not fixed."""
    beside = (Finding(SUSPECT, Verdict.AMEND),)
    pending = Finding(SUSPECT, Verdict.AMEND, before, error=error, writes=(PUT,), condition=CONDITION, beside=beside)
    assert pending.ended(Verdict.FIXED) == Finding(SUSPECT, Verdict.AMEND, after, error=error)


def test_a_finding_that_failed_says_why_and_whether_anybody_was_reached() -> None:
    """It keeps the verdict that the scan gave it."""
    silent, refused = failed(SUSPECT, TimedOut("no answer")), failed(SUSPECT, BadPayload("field x"))
    assert silent == Finding(SUSPECT, Verdict.AMEND, error="no answer", unreached=True)
    assert refused == Finding(SUSPECT, Verdict.AMEND, error="field x")
    assert refused.failed(TimedOut("again"), "read back: ").error == "read back: again"


class TestWritesOfARow:
    """The writes of a row whose cells expire; instants in seconds since 1970, times in microseconds."""

    table = Table("notes", columns("id int", regular="a int, b int, tags set<text>"))
    row: Row = MappingProxyType({"id": 1, "a": 2, "b": 3, "tags": frozenset({"x"})})

    def put(self, *names: str, expires_at: int | None) -> Put:
        cells = {name: self.row[name] for name in ("id", *names)}
        return Put(self.table, cells, at=5, clear=True, expires_at=expires_at)

    def change(self, *names: str, expires_at: int) -> Change:
        assign = {name: self.row[name] for name in names}
        return Change(self.table, (1,), assign, at=5, expires_at=expires_at)

    def test_cells_that_end_together_are_one_write(self) -> None:
        ends = {"a": 20, "b": 20, "tags": 20}
        assert row_writes(self.table, self.row, ends, 5) == (self.put("a", "b", "tags", expires_at=20),)

    def test_the_row_lives_with_its_last_cells_and_each_earlier_instant_is_a_write_of_its_own(self) -> None:
        ends = {"a": 20, "b": 10, "tags": 30}
        expected = (
            self.put("tags", expires_at=30),
            self.change("b", expires_at=10),
            self.change("a", expires_at=20),
        )
        assert row_writes(self.table, self.row, ends, 5) == expected

    def test_the_row_stays_with_a_cell_that_stays(self) -> None:
        expected = (self.put("b", "tags", expires_at=None), self.change("a", expires_at=20))
        assert row_writes(self.table, self.row, {"a": 20}, 5) == expected

    def test_a_collection_of_unknown_end_does_not_keep_the_row(self) -> None:
        expected = (self.put("a", "b", "tags", expires_at=20),)
        assert row_writes(self.table, self.row, {"a": 20, "b": 20}, 5) == expected

    def test_a_row_of_its_key_lives_as_long_as_its_key(self) -> None:
        assert row_writes(self.table, {"id": 1}, {"id": 20}, 5) == (self.put(expires_at=20),)

    def test_a_conditional_insert_has_the_earlier_cells_beside_it(self) -> None:
        put = row_if_absent(self.table, self.row, {"a": 20, "b": 10, "tags": 20})
        beside = (replace(self.change("b", expires_at=10), at=None),)
        cells = {"id": 1, "a": 2, "tags": frozenset({"x"})}
        assert put == PutIfAbsent(self.table, cells, expires_at=20, beside=beside)
