"""Numbers, maxima and minima by group: bound, found, mended and taken back."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mailmend.model.ids import RunId
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, Put, Read, Remove, Seen
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import RepairPolicy, Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.valued import Bound, Bounds, Numbers
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, columns
from mailmend.repair.declared import DoesNotFit, declared_families
from tests.support.repairing import LONG_AGO
from tests.unit.repair.test_declared_pairs import Shop

EVENTS = Table("events", columns("user text", "id uuid", "at timestamp, size int, team text, open boolean"))
BY_TEAM = Table("events_by_team", columns("team text", "user text, id uuid", "size int"))
TOTALS = Table("totals", columns("user text", regular="total bigint, open int, note text"))
TEAMS = Table("teams", columns("team text", regular="total int"))
LAST = Table("last_seen", columns("user text", regular="seen_at timestamp, biggest int"))
FIRST = Table("first_seen", columns("user text", regular="seen_at timestamp"))
SIZES = Table("sizes", columns("size int", regular="total int"))
LIVE = Schema((), (EVENTS, BY_TEAM, TOTALS, TEAMS, LAST, FIRST, SIZES))

MIRROR = "[truth.events.mirror.events_by_team]\n"
TOTALS_TEXT = "[truth.events.count.totals]\ncounters = { total = {}, open = { open = true } }\n"
TEAMS_TEXT = "[truth.events.count.teams]\ncounters = { total = {} }\n"
LAST_TEXT = '[truth.events.max.last_seen]\ncolumns = { seen_at = "at", biggest = "size" }\n'
FIRST_TEXT = '[truth.events.min.first_seen]\ncolumns = { seen_at = "at" }\n'
EVERYTHING = MIRROR + TOTALS_TEXT + TEAMS_TEXT + LAST_TEXT + FIRST_TEXT


def families(text: str) -> tuple[Family, ...]:
    return declared_families("shop", read_declaration(text, "shop.toml"), LIVE)


def refused(text: str) -> str:
    with pytest.raises(DoesNotFit) as caught:
        families(MIRROR + text)
    return str(caught.value)


def at(hour: int) -> datetime:
    return datetime(2024, 5, 31, hour, tzinfo=UTC)


class Groups:
    """A keyspace of events and values of their groups, in memory."""

    def __init__(self, text: str = EVERYTHING) -> None:
        (family,) = families(text)
        self.shop = Shop(family)

    def event(self, number: int, user: str = "ann", **cells: Any) -> None:
        """A row of the truth, with its copy."""
        row = {"user": user, "id": UUID(int=number), "at": at(number), "size": number, "team": "red", "open": True}
        self.shop.put(EVENTS, row | cells)
        self.shop.put(BY_TEAM, {name: (row | cells)[name] for name in BY_TEAM.names})

    def verdicts(self) -> dict[Key, Verdict]:
        return {key: found.verdict for key, found in self.shop.check().items()}

    def cells(self, table: Table, key: str) -> Row | None:
        seen = self.shop.world.get(table, (key,))
        if seen is None:
            return None
        return seen.row


def test_a_number_is_a_counter_or_a_column_by_its_type() -> None:
    (family,) = families(EVERYTHING)
    assert family.counts == ()
    assert [numbers.name for numbers in family.numbers] == ["totals", "teams"]
    assert isinstance(family.numbers[0], Numbers)


def test_a_max_and_a_min_have_their_columns() -> None:
    (family,) = families(EVERYTHING)
    last, first = family.bounds
    assert isinstance(last, Bounds)
    assert (last.bounds, last.bound) == ((("seen_at", "at"), ("biggest", "size")), Bound.MAX)
    assert first.bound is Bound.MIN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[truth.events.count.totals]\ncounters = { note = {} }", "totals.note is not a counter, an int or"),
        ("[truth.events.count.sizes]\ncounters = { total = {} }", "the rows of a group of sizes are not kept together"),
        ("[truth.events.count.sizes]\ncounters = { total = {} }", "a mirror whose partition key is (size)"),
        ('[truth.events.max.last_seen]\ncolumns = { seen_at = "ta" }', "events has no column ta"),
        ('[truth.events.max.last_seen]\ncolumns = { seen = "at" }', "last_seen has no column seen"),
        ('[truth.events.max.last_seen]\ncolumns = { seen_at = "size" }', "last_seen.seen_at is of type timestamp, and"),
        (
            '[truth.events.max.totals]\ncolumns = { note = "team" }',
            "totals.note is of type text, which has no form",
        ),
        ('[truth.events.max.last_seen]\ncolumns = { user = "user" }', "is in the key, or static"),
    ],
)
def test_what_does_not_fit_is_named(text: str, said: str) -> None:
    assert said in refused(text)


def test_missing_values_are_found_mended_and_taken_back() -> None:
    # Given
    groups = Groups()
    groups.event(1)
    groups.event(2, open=False)
    assert set(groups.verdicts().values()) == {Verdict.PROJECT}

    # When
    run = groups.shop.repair()

    # Then
    assert groups.verdicts() == {}
    assert groups.cells(TOTALS, "ann") == {"user": "ann", "total": 2, "open": 1, "note": None}
    assert groups.cells(TEAMS, "red") == {"team": "red", "total": 2}
    assert groups.cells(LAST, "ann") == {"user": "ann", "seen_at": at(2), "biggest": 2}
    assert groups.cells(FIRST, "ann") == {"user": "ann", "seen_at": at(1)}
    groups.shop.undo(run)
    assert groups.cells(TOTALS, "ann") is None
    assert groups.cells(LAST, "ann") is None


def test_a_wrong_number_is_amended_and_other_columns_stay() -> None:
    groups = Groups(MIRROR + TOTALS_TEXT)
    groups.event(1)
    groups.shop.put(TOTALS, {"user": "ann", "total": 7, "open": 1, "note": "n"})
    assert groups.verdicts() == {("ann",): Verdict.AMEND}

    run = groups.shop.repair()

    assert groups.cells(TOTALS, "ann") == {"user": "ann", "total": 1, "open": 1, "note": "n"}
    groups.shop.undo(run)
    assert groups.cells(TOTALS, "ann") == {"user": "ann", "total": 7, "open": 1, "note": "n"}


def test_a_number_of_a_group_without_rows_is_0() -> None:
    groups = Groups(MIRROR + TOTALS_TEXT)
    groups.shop.put(TOTALS, {"user": "ann", "total": 1, "open": None})
    groups.shop.put(TOTALS, {"user": "bob", "total": 0, "open": None})
    assert groups.verdicts() == {("ann",): Verdict.AMEND}
    groups.shop.repair()
    assert groups.cells(TOTALS, "ann") == {"user": "ann", "total": 0, "open": None, "note": None}


def test_a_max_that_is_behind_is_raised_and_one_ahead_stays() -> None:
    groups = Groups(MIRROR + LAST_TEXT)
    groups.event(3)
    groups.shop.put(LAST, {"user": "ann", "seen_at": at(2), "biggest": 99})
    assert groups.verdicts() == {("ann",): Verdict.AMEND}
    groups.shop.repair()
    assert groups.cells(LAST, "ann") == {"user": "ann", "seen_at": at(3), "biggest": 99}


def test_a_min_that_is_too_late_is_lowered() -> None:
    groups = Groups(MIRROR + FIRST_TEXT)
    groups.event(3)
    groups.shop.put(FIRST, {"user": "ann", "seen_at": at(4)})
    groups.shop.repair()
    assert groups.cells(FIRST, "ann") == {"user": "ann", "seen_at": at(3)}


def test_a_max_without_rows_is_right() -> None:
    groups = Groups(MIRROR + LAST_TEXT)
    groups.shop.put(LAST, {"user": "ann", "seen_at": at(2), "biggest": None})
    assert groups.verdicts() == {}


def test_a_number_waits_for_the_mirror_by_which_its_rows_are_found() -> None:
    """The mirror lacks one of the two rows: a count by it would be 1."""
    groups = Groups(MIRROR + TEAMS_TEXT)
    groups.event(1)
    groups.event(2)
    groups.shop.world.mail.write(Remove(BY_TEAM, ("red", "ann", UUID(int=2)), at=LONG_AGO + 1))
    groups.shop.put(TEAMS, {"team": "red", "total": 5})

    groups.shop.repair()

    assert groups.cells(TEAMS, "red") in ({"team": "red", "total": 5}, {"team": "red", "total": 2})
    groups.shop.repair()
    assert groups.cells(TEAMS, "red") == {"team": "red", "total": 2}


def test_a_group_that_changed_since_the_scan_began_is_left() -> None:
    groups = Groups(MIRROR + TOTALS_TEXT)
    groups.event(1)
    world = groups.shop.world
    late = {"user": "ann", "id": UUID(int=2), "at": at(2), "size": 2, "team": "red", "open": True}
    world.mail.write(Put(EVENTS, late, at=world.clock.micros() + 10**9))
    groups.shop.repair()
    assert groups.cells(TOTALS, "ann") is None


ROWS = st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.integers(0, 23), st.booleans()), max_size=8)
STORED = st.none() | st.integers(0, 23)


@settings(max_examples=40, deadline=None)
@given(ROWS, STORED, STORED)
def test_after_a_repair_each_value_is_what_its_rows_demand(
    rows: list[tuple[str, int, bool]],
    total: int | None,
    biggest: int | None,
) -> None:
    # Given
    groups = Groups(MIRROR + TOTALS_TEXT + LAST_TEXT)
    groups.shop.put(TOTALS, {"user": "ann", "total": total, "open": None})
    groups.shop.put(LAST, {"user": "ann", "seen_at": None, "biggest": biggest})
    for number, (user, size, is_open) in enumerate(rows):
        groups.event(number, user, size=size, open=is_open)

    # When
    groups.shop.repair()

    # Then
    assert groups.verdicts() == {}
    for user in ("ann", "bob"):
        own = [(size, is_open) for name, size, is_open in rows if name == user]
        counted = groups.cells(TOTALS, user) or {}
        assert (counted.get("total") or 0) == len(own)
        assert (counted.get("open") or 0) == sum(is_open for _, is_open in own)
        known = [size for size, _ in own]
        if user == "ann" and biggest is not None:
            known.append(biggest)
        assert (groups.cells(LAST, user) or {}).get("biggest") == max(known, default=None)


@pytest.mark.parametrize("there", [True, False], ids=["changed", "new"])
def test_values_are_written_with_the_stamp_of_the_run(*, there: bool) -> None:
    """A program that writes meanwhile has later stamps, and wins."""
    groups = Groups(MIRROR + TOTALS_TEXT)
    groups.event(1)
    if there:
        groups.shop.put(TOTALS, {"user": "ann", "total": 7, "open": 1})
    finding = groups.shop.check()["ann",]
    family = groups.shop.family
    (numbers,) = family.numbers
    look = Look(
        finding.suspect,
        family.mirror,
        None,
        numbers,
        projected=finding.projected,
        truths=finding.truths,
    )

    fixed = numbers.fix(finding, look, RepairPolicy(), 7)

    assert fixed is not None
    (write,) = fixed.writes
    assert isinstance(write, Change | Put)
    assert (isinstance(write, Change), write.at) == (there, 7)


@pytest.mark.parametrize("kind", ["bigint", "date", "int", "smallint", "timestamp", "tinyint"])
def test_a_maximum_is_of_a_type_with_an_order(kind: str) -> None:
    truth = Table("t", columns("user text", "id uuid", f"v {kind}"))
    copy = Table("c", columns("id uuid", "user text"))
    most = Table("m", columns("user text", regular=f"v {kind}"))
    declared = read_declaration('[truth.t.mirror.c]\n[truth.t.max.m]\ncolumns = { v = "v" }')

    (family,) = declared_families("shop", declared, Schema((), (truth, copy, most)))

    assert [bounds.name for bounds in family.bounds] == ["m"]


def test_a_maximum_that_is_reached_lacks_nothing() -> None:
    (family,) = families(EVERYTHING)
    last, first = family.bounds
    demanded = {"seen_at": 5}

    assert last.lacking(demanded, (5, None)) is None
    assert last.lacking(demanded, (6, None)) is None
    assert last.lacking(demanded, (4, None)) is not None
    assert first.name == "first_seen"


def test_the_sum_of_a_group_is_as_new_as_its_newest_row_and_ends_with_the_first() -> None:
    (family,) = families(MIRROR + TOTALS_TEXT)
    (numbers,) = family.numbers
    look = Look(Suspect("totals", ("ann",), Verdict.AMEND), family.mirror, None, numbers)
    members = [
        Seen({"user": "ann", "open": True}, {"open": 9}, expires_at={"open": 50}),
        Seen({"user": "ann", "open": False}, {"open": 5}, expires_at={"open": 100}),
        Seen({"user": "bob", "open": True}, {"open": 99}, expires_at={"open": 1}),
    ]

    (summed,) = numbers.summed(look, members).truths

    assert summed.row == {"total": 2, "open": 1}
    assert summed.written_at == {"total": 9, "open": 9}
    assert summed.expires_at == {"total": 50, "open": 50}


def test_the_rows_of_a_group_are_read_under_its_key() -> None:
    (family,) = families(MIRROR + TOTALS_TEXT + TEAMS_TEXT)
    totals, teams = family.numbers

    of_truth = totals.members(family.mirror, ("ann",))
    of_mirror = teams.members(family.mirror, ("red",))

    assert (of_truth.scan.table, of_truth.scan.under) == (family.truth, ("ann",))
    assert (of_mirror.scan.table, of_mirror.scan.under) == (family.mirror.table, ("red",))
    assert totals.near_reads(family.mirror, ("ann",)) == [Read(totals.table, ("ann",), times=True)]


def test_a_report_shows_what_the_truth_demands_of_a_group() -> None:
    groups = Groups(MIRROR + TOTALS_TEXT)
    groups.event(1)
    finding = groups.shop.check()["ann",]
    (numbers,) = groups.shop.family.numbers

    (shown,) = numbers.truth_rows(finding)

    assert shown.row == {"user": "ann", "total": 1, "open": 1}
    assert set(shown.written_at.values()) == {LONG_AGO}


@pytest.mark.parametrize(
    ("scanned", "is_blind"),
    [({"total": 2, "open": 0}, True), ({"total": 1, "open": 0}, False), ({}, False)],
    ids=["more rows", "the same rows", "no scan"],
)
def test_a_look_that_finds_other_rows_than_the_scan_is_blind(scanned: Row, *, is_blind: bool) -> None:
    """A truth row that lacks its mirror is not found by the look at its group."""
    (family,) = families(MIRROR + TOTALS_TEXT)
    (numbers,) = family.numbers
    suspect = Suspect("totals", ("ann",), Verdict.AMEND, wanted=scanned)
    look = Look(suspect, family.mirror, None, numbers)

    looked = numbers.summed(look, [Seen({"user": "ann", "open": False}, {})])

    assert looked.blind is is_blind


def extremes(groups: Groups) -> tuple[Row | None, Row | None]:
    """The rows of the greatest and of the smallest values."""
    return groups.cells(LAST, "ann"), groups.cells(FIRST, "ann")


class Runs:
    """Repairs and undos of one group, a minute apart."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.states = [extremes(groups)]

    def repaired(self) -> RunId:
        self.groups.shop.world.clock.advance(60)
        run = self.groups.shop.repair()
        self.states.append(extremes(self.groups))
        return run

    def undone(self, run: RunId) -> RunId:
        self.groups.shop.world.clock.advance(60)
        return self.groups.shop.undo(run)


@given(st.lists(st.integers(0, 23), min_size=1, max_size=4), st.booleans())
@example(hours=[5, 2, 7], there=True)
def test_runs_are_taken_back_one_after_the_other_and_made_again(hours: list[int], there: bool) -> None:
    """The last one first; whatever each of them changed: a maximum, a minimum, both or neither."""
    groups = Groups(MIRROR + LAST_TEXT + FIRST_TEXT)
    if there:
        groups.shop.put(LAST, {"user": "ann", "seen_at": at(1), "biggest": 1})
        groups.shop.put(FIRST, {"user": "ann", "seen_at": at(20)})
    story = Runs(groups)
    made = []
    for hour in hours:
        groups.event(hour)
        made.append(story.repaired())
    undos = []
    for number in reversed(range(len(made))):
        undos.append(story.undone(made[number]))
        assert extremes(groups) == story.states[number]
    for number, undo in enumerate(reversed(undos), start=1):
        story.undone(undo)
        assert extremes(groups) == story.states[number]


def test_a_maximum_that_a_program_raised_since_is_left_by_both_undos() -> None:
    groups = Groups(MIRROR + LAST_TEXT)
    story = Runs(groups)
    groups.event(1)
    first = story.repaired()
    groups.event(2)
    second = story.repaired()
    groups.shop.world.clock.advance(60)
    now = groups.shop.world.clock.micros()
    raised = {"user": "ann", "seen_at": at(9), "biggest": 9}
    groups.shop.world.put(LAST, raised, now)

    story.undone(second)
    story.undone(first)

    assert groups.cells(LAST, "ann") == raised


def test_a_value_of_the_same_number_that_a_program_wrote_is_not_taken_back() -> None:
    """It is what the run wrote, and no undo has put it back."""
    groups = Groups(MIRROR + LAST_TEXT)
    story = Runs(groups)
    groups.event(1)
    first = story.repaired()
    groups.shop.world.clock.advance(60)
    same = {"user": "ann", "seen_at": at(1), "biggest": 1}
    groups.shop.world.put(LAST, same, groups.shop.world.clock.micros())

    story.undone(first)

    assert groups.cells(LAST, "ann") == same


def test_a_maximum_is_taken_back_although_its_group_has_other_rows_by_now() -> None:
    """Another row of the truth does not stand against it: the value is the run's own."""
    groups = Groups(MIRROR + LAST_TEXT)
    story = Runs(groups)
    groups.event(2)
    run = story.repaired()
    groups.event(1)

    story.undone(run)

    assert groups.cells(LAST, "ann") is None
