"""Joins within one part of a spill: content with truths, truths with mirror and filters, groups with their sums.

Each function takes records of one part, which has all records of its keys, and yields suspects by the tables of
verdicts. What truths demand of a group is added up in memory while it fits, and goes to a spill otherwise. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import IntEnum
from operator import add
from typing import Any, NamedTuple

from model.projections.content import Content, ContentSymptoms
from model.projections.filters import Filter, FilterSymptoms
from model.projections.findings import Suspect
from model.projections.groups import Counts, Group, GroupSymptoms, Union, within
from model.projections.mirror import Mirror, MirrorSymptoms
from model.projections.verdicts import Verdict
from repair.joins.records import STANDS, WHOLE, Forms, Packed, Record, TruthRecord, unpacked_key


class Tag(IntEnum):
    """The kind of a record: the field after its key. Filters continue from the last number."""

    TRUTH = 0
    BESIDE = 1  # content, or the mirror's row, or a group's own row
    FILTER = 2


def content_record(truth: TruthRecord) -> Record:
    return (truth[0], int(Tag.TRUTH), *truth[1:])


def by_content(records: Iterable[Record]) -> tuple[dict[Packed, list[TruthRecord]], set[Packed]]:
    """The truths by the content that they name, and the contents that stand."""
    truths: dict[Packed, list[TruthRecord]] = {}
    standing: set[Packed] = set()
    for record in records:
        if record[1] == Tag.BESIDE:
            standing.add(record[0])
        else:
            truths.setdefault(record[0], []).append(TruthRecord(record[0], *record[2:]))
    return truths, standing


def content_suspects(content: Content, named: AbstractSet[Packed], standing: AbstractSet[Packed]) -> Iterator[Suspect]:
    """What is wrong with content: only what is named and does not stand, or stands and is not named, can be."""
    for key in named ^ standing:
        verdict = Content.verdicts[ContentSymptoms(in_truth=key in named, in_projection=key in standing)]
        if verdict is not Verdict.AGREE:
            yield Suspect(content.name, unpacked_key(content.table.key, key), verdict)


class PlaceKind(NamedTuple):
    """All of a place that verdicts depend on."""

    truths: int
    bits: int
    mirrored: bool
    agree: bool
    filters: int


@dataclass(slots=True)
class PlaceRows:
    """All rows seen at one place.

    Attributes:
        truths: their whole keys (a row that was read twice counts once).
        fingerprint, bits: of the truth; where several clash, of any: the clash itself is reported.
        mirrored: the mirror row's fingerprint.
        filters: a bit for each filter that has a row.
    """

    truths: set[Packed] = field(default_factory=set)
    fingerprint: bytes = b""
    bits: int = WHOLE | STANDS
    mirrored: bytes | None = None
    filters: int = 0

    @property
    def kind(self) -> PlaceKind:
        mirrored = self.mirrored
        return PlaceKind(len(self.truths), self.bits, mirrored is not None, self.fingerprint == mirrored, self.filters)


def place_record(truth: TruthRecord, *, has_content: bool) -> Record:
    bits = truth.bits | STANDS if has_content else truth.bits
    return (truth.place, int(Tag.TRUTH), truth.truth, truth.fingerprint, bits)


def by_place(records: Iterable[Record]) -> dict[Packed, PlaceRows]:
    found: dict[Packed, PlaceRows] = {}
    for record in records:
        key, tag = record[0], record[1]
        place = found.get(key)
        if place is None:
            place = found[key] = PlaceRows()
        if tag == Tag.TRUTH:
            place.truths.add(record[2])
            place.fingerprint, place.bits = record[3:]
        elif tag == Tag.BESIDE:
            place.mirrored = record[2]
        else:
            place.filters |= 1 << (tag - Tag.FILTER)
    return found


def place_suspects(forms: Forms, found: dict[Packed, PlaceRows]) -> Iterator[Suspect]:
    """What is wrong at each place. There are few kinds of places, so each kind is judged once."""
    mirror, judged = forms.family.mirror, dict[PlaceKind, _Judged]()
    for key, place in found.items():
        kind = place.kind
        if kind not in judged:
            judged[kind] = _judged(forms, kind)
        in_mirror, in_filters = judged[kind]
        if in_mirror is not None:
            yield Suspect(mirror.name, unpacked_key(mirror.table.key, key), in_mirror, forms.truth_ids(place.truths))
        for one, verdict in in_filters:
            yield Suspect(one.name, forms.filter_key(one, key), verdict, forms.truth_ids(place.truths))


_Judged = tuple[Verdict | None, tuple[tuple[Filter, Verdict], ...]]
"""What is wrong in the mirror, if anything, and in which filters."""


def _judged(forms: Forms, kind: PlaceKind) -> _Judged:
    symptoms = {
        "in_truth": kind.truths > 0,
        "clash": kind.truths > 1,
        "has_content": bool(kind.bits & STANDS),
        "whole": bool(kind.bits & WHOLE),
    }
    seen = Mirror.verdicts[MirrorSymptoms(in_projection=kind.mirrored, rows_agree=kind.agree, **symptoms)]
    filters = []
    for number, one in enumerate(forms.family.filters):
        present, wanted = bool(kind.filters >> number & 1), bool(kind.bits & forms.condition_bit(one.when))
        verdict = Filter.verdicts[FilterSymptoms(in_projection=present, wanted=wanted, **symptoms)]
        if verdict is not Verdict.AGREE:
            filters.append((one, verdict))
    return None if seen is Verdict.AGREE else seen, tuple(filters)


SUMS_MAX = 100_000
"""Sums (a counter pair, or one element of a union) that are held in memory before they go to the spill."""

Counted = tuple[tuple[int, ...], tuple[int, ...]]
"""For each counter the sure sum, and what uncertain truths may add."""

Elements = dict[str, Packed]
"""For each element that a union must have, the smallest truth that demands it."""


def group_records(forms: Forms, truth: TruthRecord, *, has_content: bool) -> Iterator[Record]:
    """A truth's record for each group that it belongs to.

    A union must have each truth's elements (a superset is fine); a counter may or may not count a doubtful truth.
    """
    sure = has_content and bool(truth.bits & WHOLE)
    for number, (group, key) in enumerate(zip(forms.groups, truth.groups, strict=True)):
        match group:
            case Union():
                for element in truth.elements[number]:
                    yield ((number, key), int(Tag.TRUTH), element, truth.truth)
            case Counts():
                deltas = _deltas(forms, group, truth.bits)
                none = (0,) * len(deltas)
                yield ((number, key), int(Tag.TRUTH), deltas if sure else none, none if sure else deltas)


class GroupSums:
    """What truths demand of groups, so far."""

    def __init__(self, forms: Forms) -> None:
        self._groups = forms.groups
        self._size = 0
        self.elements: dict[Packed, Elements] = {}
        self.counted: dict[Packed, Counted] = {}

    def add(self, record: Record) -> None:
        key, _, one, other = record
        if isinstance(self._groups[key[0]], Union):
            self._add_element(key, one, other)
        else:
            self._add_counted(key, one, other)

    @property
    def full(self) -> bool:
        return self._size > SUMS_MAX

    def take(self) -> Iterator[Record]:
        """The sums as records of the same kind; resets them."""
        for key, elements in self.elements.items():
            yield from ((key, int(Tag.TRUTH), element, truth) for element, truth in elements.items())
        for key, (sure, uncertain) in self.counted.items():
            yield (key, int(Tag.TRUTH), sure, uncertain)
        self.elements, self.counted, self._size = {}, {}, 0

    def _add_element(self, key: Packed, element: str, truth: Packed) -> None:
        elements = self.elements.setdefault(key, {})
        self._size += element not in elements
        elements[element] = min(elements.get(element, truth), truth)

    def _add_counted(self, key: Packed, sure: tuple[int, ...], uncertain: tuple[int, ...]) -> None:
        before = self.counted.get(key)
        self._size += before is None
        self.counted[key] = (_plus(before[0], sure), _plus(before[1], uncertain)) if before else (sure, uncertain)


def group_suspects(forms: Forms, records: Iterable[Record]) -> Iterator[Suspect]:
    """The groups of one part whose row lacks what its truths demand."""
    sums = GroupSums(forms)
    rows: dict[Packed, tuple[Any, ...]] = {}
    for record in records:
        if record[1] == Tag.BESIDE:
            rows[record[0]] = record[2]
        else:
            sums.add(record)
    for key in sums.elements.keys() | sums.counted.keys() | rows.keys():
        match forms.groups[key[0]]:
            case Union() as union:
                yield from _union_suspect(forms, union, key[1], sums.elements.get(key, {}), rows.get(key))
            case Counts() as counts:
                yield from _counts_suspect(counts, key[1], sums.counted.get(key), rows.get(key))


def _union_suspect(
    forms: Forms, union: Union, key: Packed, asked: Mapping[str, Packed], row: tuple[str, ...] | None
) -> Iterator[Suspect]:
    missing = asked.keys() - frozenset(row or ())
    verdict = Group.verdicts[GroupSymptoms(in_projection=row is not None, covered=not missing)]
    if verdict is not Verdict.AGREE:
        truth_ids = forms.truth_ids(asked[element] for element in missing)
        wanted = {union.column: frozenset(missing)}
        yield Suspect(union.name, unpacked_key(union.table.key, key), verdict, truth_ids, wanted)


def _counts_suspect(
    counts: Counts, key: Packed, asked: Counted | None, row: tuple[int, ...] | None
) -> Iterator[Suspect]:
    names = [name for name, _ in counts.counters]
    none = (0,) * len(names)
    sure, uncertain = (dict(zip(names, sums, strict=True)) for sums in asked or (none, none))
    covered = within(sure, uncertain, dict(zip(names, row or none, strict=True)))
    verdict = Group.verdicts[GroupSymptoms(in_projection=row is not None, covered=covered)]
    if verdict is not Verdict.AGREE:
        yield Suspect(counts.name, unpacked_key(counts.table.key, key), verdict, wanted=sure)


def _deltas(forms: Forms, counts: Counts, bits: int) -> tuple[int, ...]:
    return tuple([int(when is None or bool(bits & forms.condition_bit(when))) for _, when in counts.counters])


def _plus(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(add, one, other))
