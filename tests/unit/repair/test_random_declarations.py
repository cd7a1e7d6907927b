"""Random declarations over random rows: what is found, mended and taken back, by an oracle of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.operations import Count
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, columns
from tests.support.random_declarations import (
    CELLS,
    PLACES,
    Case,
    Shop,
    Source,
    cases,
    cells,
    computed_line,
    damaged,
    demanded,
    header,
    mirror,
    plain,
    stray_of,
)

ROUNDS_MAX: Final = 3
"""Repairs until nothing is found: a group is left while the mirror lacks one of its rows."""


def expected(case: Case) -> dict[tuple[str, Key], Verdict]:
    """What is wrong by the oracle."""
    found = {}
    for follower, standing in damaged(case):
        wanted = demanded(case, follower)
        for key in wanted.keys() | standing.keys():
            verdict = _verdict(wanted.get(key, []), standing.get(key))
            if verdict is not None:
                found[follower.table.name, key] = verdict
    return found


def _verdict(claims: Sequence[Row], row: Row | None) -> Verdict | None:
    match claims, row:
        case [], _:
            return Verdict.WITHDRAW
        case [_, _, *_], _:
            return Verdict.CLASH
        case _, None:
            return Verdict.PROJECT
        case [claim], _ if claim != row:
            return Verdict.AMEND
        case _:
            return None


def mended(wanted: Mapping[Key, Sequence[Row]], standing: Mapping[Key, Row]) -> dict[Key, Row]:
    """The rows after a repair: what one truth row demands; a row that several claim stays as it is."""
    found = {}
    for key, claims in wanted.items():
        if len(claims) == 1:
            found[key] = claims[0]
        elif key in standing:
            found[key] = standing[key]
    return found


@given(cases())
def test_a_check_finds_what_the_oracle_finds(case: Case) -> None:
    assert Shop(case).check() == expected(case)


@given(cases())
def test_a_repair_makes_what_the_truth_demands_and_an_undo_takes_it_back(case: Case) -> None:
    shop = Shop(case)
    before = [shop.rows(follower.table) for follower in case.followers]

    run = shop.repaired()

    for follower, standing in damaged(case):
        assert shop.rows(follower.table) == mended(demanded(case, follower), standing)
    shop.undo(run)
    assert [shop.rows(follower.table) for follower in case.followers] == before
    assert shop.rows(case.truth) == {case.truth.key_of(row): cells(case.truth, row) for row in case.rows}


@dataclass(frozen=True)
class Grouped:
    """A table with a row for each place of a mirror.

    Attributes:
        value: the column of its row, which gathers, counts or bounds.
        gathered: the value that some truth rows demand.
        settled: the value after a repair, by the standing and the demanded one.
    """

    table: Table
    text: str
    value: str
    gathered: Callable[[Sequence[Row]], Any]
    settled: Callable[[Any, Any], Any]


def grouped(kind: str, place: Source, column: str, rule: str) -> tuple[Table, str]:
    table = Table(f"by_{kind}", columns(f"{place.name} {place.type}", regular=column))
    word = {"number": "count"}.get(kind, kind)
    return table, header(word, table.name) + rule + computed_line(place)


def sizes_of(rows: Sequence[Row]) -> list[int]:
    return [row["size"] for row in rows if row["size"] is not None]


def farther(pick: Callable[[Sequence[int]], int]) -> Callable[[Any, Any], Any]:
    """The value that is kept of two, each of which may be null."""

    def kept(standing: int | None, wanted: int | None) -> int | None:
        known = [value for value in (standing, wanted) if value is not None]
        if not known:
            return None
        return pick(known)

    return kept


def all_groups(place: Source) -> list[Grouped]:
    numbers = "counters = { total = {} }\n"
    bound = 'columns = { extreme = "size" }\n'
    return [
        Grouped(
            *grouped("union", place, "tags set<text>", 'column = "tags"\n'),
            value="tags",
            gathered=lambda rows: frozenset().union(*(row["tags"] for row in rows)),
            settled=lambda standing, wanted: (standing or frozenset()) | wanted,
        ),
        Grouped(
            *grouped("count", place, "total counter", numbers),
            value="total",
            gathered=len,
            settled=lambda _, wanted: wanted,
        ),
        Grouped(
            *grouped("number", place, "total int", numbers),
            value="total",
            gathered=len,
            settled=lambda _, wanted: wanted,
        ),
        Grouped(
            *grouped("max", place, "extreme int", bound),
            value="extreme",
            gathered=lambda rows: max(sizes_of(rows), default=None),
            settled=farther(max),
        ),
        Grouped(
            *grouped("min", place, "extreme int", bound),
            value="extreme",
            gathered=lambda rows: min(sizes_of(rows), default=None),
            settled=farther(min),
        ),
    ]


@dataclass(frozen=True)
class GroupedCase:
    """A case whose places have groups, and what stands in these: by table, the value of each place."""

    case: Case
    place: Source
    groups: Sequence[Grouped]
    standing: Sequence[Mapping[Any, Any]]

    def members(self) -> dict[Any, list[Row]]:
        found: dict[Any, list[Row]] = {}
        for row in self.case.rows:
            place = self.place.cell(row)
            if place is not None:
                found.setdefault(place, []).append(row)
        return found


@st.composite
def grouped_cases(draw: st.DrawFn) -> GroupedCase:
    plain_case = draw(cases())
    place = draw(st.sampled_from(PLACES))
    key = plain_case.truth.key_names
    first = mirror(0, place, key, draw(st.lists(st.sampled_from(CELLS), unique=True)), alone=False)
    case = Case(plain_case.truth, (first,), plain_case.rows, plain_case.damage[:1])
    stray = stray_of(first.table)[place.name]
    if draw(st.booleans()):  # without a mirror, groups are partitions of the truth
        place = plain("id")
        case = Case(plain_case.truth, (), plain_case.rows, ())
        stray = UUID(int=99)
    groups = draw(st.lists(st.sampled_from(range(5)), min_size=1, unique=True))
    chosen = [all_groups(place)[number] for number in groups]
    places = sorted({place.cell(row) for row in case.rows if place.cell(row) is not None}, key=str)
    standing = []
    for group in chosen:
        values: st.SearchStrategy[Any] = st.integers(0, 4) | st.none()
        if group.value == "tags":
            values = st.none() | st.frozensets(st.sampled_from("aAbBc"), min_size=1, max_size=2)
        standing.append({at: draw(values) for at in [*places, stray]})
    return GroupedCase(case, place, chosen, standing)


class GroupShop(Shop):
    """The keyspace of a case with groups, in memory."""

    def __init__(self, grouped_case: GroupedCase) -> None:
        self.grouped = grouped_case
        texts = "".join(group.text for group in grouped_case.groups)
        tables = [group.table for group in grouped_case.groups]
        Shop.__init__(self, grouped_case.case, texts, tables)
        for group, standing in zip(grouped_case.groups, grouped_case.standing, strict=True):
            for place, value in standing.items():
                if value is None:
                    continue
                if group.table.has_counters:
                    self.world.mail.write(Count(group.table, (place,), {group.value: value}))
                else:
                    self.put(group.table, {grouped_case.place.name: place, group.value: value})

    def values(self, group: Grouped) -> dict[Any, Any]:
        """The value of each place; null, 0 and the empty set are no value."""
        found = {}
        for key, row in self.rows(group.table).items():
            if row[group.value] or (group.value == "extreme" and row[group.value] is not None):
                found[key[0]] = row[group.value]
        return found

    def all_values(self) -> list[dict[Any, Any]]:
        return [self.values(group) for group in self.grouped.groups]

    def settled(self) -> list[dict[Any, Any]]:
        """The values of each group that the oracle expects after repairs."""
        every = []
        members = self.grouped.members()
        for group, standing in zip(self.grouped.groups, self.grouped.standing, strict=True):
            found = {}
            for place in members.keys() | standing.keys():
                value = group.settled(standing.get(place), group.gathered(members.get(place, [])))
                if value or (group.value == "extreme" and value is not None):
                    found[place] = value
            every.append(found)
        return every


@given(grouped_cases())
def test_repairs_make_groups_of_what_their_members_demand(grouped_case: GroupedCase) -> None:
    shop = GroupShop(grouped_case)

    for _ in range(ROUNDS_MAX):
        before = shop.all_values()
        run = shop.repaired()
        if not shop.check():
            break

    assert shop.check() == {}
    assert shop.all_values() == shop.settled()
    shop.undo(run)
    assert shop.all_values() == before
