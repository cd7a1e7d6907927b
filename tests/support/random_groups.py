"""Random declarations with groups: sets, counters, numbers and bounds.

A group has a place of a mirror, or a partition of the truth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from mailmend.model.operations import Count
from mailmend.model.table import Row, Table, columns
from tests.support.random_declarations import (
    CELLS,
    PLACES,
    Case,
    Shop,
    Source,
    cases,
    computed_line,
    header,
    mirror,
    plain,
    stray_of,
)


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
