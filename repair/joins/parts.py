"""Joins within one part of a spill: content with truths, truths with mirror and filters, groups with their sums.

Each function takes the records of one part, which has all records of its keys, and yields suspects
by the tables of verdicts. Places are joined, and demands of groups added up, in memory while they
fit; the rest goes to a spill.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial
from typing import Any, NamedTuple

from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Filter
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.group import Group
from mailmend.model.projections.partial_mirror import ExplodedMirror
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.verdicts import ContentSymptoms, GroupSymptoms, Verdict, verdict_on
from mailmend.repair.joins.records import (
    STANDS,
    WHOLE,
    Forms,
    Packed,
    PlaceForms,
    Record,
    Spill,
    TruthRecord,
    unpacked_key,
)


class Tag(IntEnum):
    """The kind of a record: the field after its key. Filters continue from the last number."""

    TRUTH = 0
    BESIDE = 1  # content, or the mirror's row, or a group's own row
    FILTER = 2


def content_record(truth: TruthRecord) -> Record:
    return (truth[0], int(Tag.TRUTH), *truth[1:])


def by_content(records: Iterable[Record]) -> tuple[dict[Packed, list[TruthRecord]], set[Packed]]:
    """Split records into truths, by the content that they name, and the keys of contents that exist."""
    truths: dict[Packed, list[TruthRecord]] = {}
    standing: set[Packed] = set()
    for key, tag, *truth in records:
        if tag == Tag.BESIDE:
            standing.add(key)
        else:
            truths.setdefault(key, []).append(TruthRecord(key, *truth))
    return truths, standing


def content_suspects(content: Content, named: AbstractSet[Packed], standing: AbstractSet[Packed]) -> Iterator[Suspect]:
    """The suspects of content: keys that are named and do not exist, or that exist and are not named."""
    for key in named ^ standing:
        verdict = Content.verdicts[ContentSymptoms(in_truth=key in named, in_projection=key in standing)]
        if verdict is not Verdict.AGREE:
            yield Suspect(content.name, unpacked_key(key), verdict)


class PlaceKind(NamedTuple):
    """Everything that the verdicts on a place depend on."""

    truths: int
    differ: bool
    says: bool
    bits: int
    mirrored: bool
    agree: bool
    filters: int


@dataclass(slots=True)
class PlaceRows:
    """All rows seen at one place.

    Attributes:
        truths: the primary keys of the truth rows. A row that was read twice counts once; one that
            demands two different rows here, for two of its elements, counts twice.
        fingerprint: from the truth row that says what its row is; empty where none does.
        differ: whether truth rows say something different; the fingerprint is from any of them.
        bits: from the truth row; of several truth rows, those that each of them has.
        mirrored: the mirror row's fingerprint.
        filters: a bit for each filter that has a row.
    """

    truths: tuple[Packed, ...] = ()
    fingerprint: bytes = b""
    differ: bool = False
    bits: int = WHOLE | STANDS
    mirrored: bytes | None = None
    filters: int = 0

    def add(self, record: Record) -> None:
        _, tag, *fields = record
        if tag == Tag.TRUTH:
            self._add_truth(*fields)
        elif tag == Tag.BESIDE:
            (self.mirrored,) = fields
        else:
            self.filters |= 1 << (tag - Tag.FILTER)

    def _add_truth(self, truth: Packed, fingerprint: bytes, bits: int) -> None:
        if truth in self.truths and fingerprint == self.fingerprint:
            return
        if self.truths:
            bits &= self.bits
        self.truths += (truth,)
        self.bits = bits
        if not fingerprint:
            return
        if self.fingerprint and self.fingerprint != fingerprint:
            self.differ = True
        self.fingerprint = fingerprint

    @property
    def kind(self) -> PlaceKind:
        mirrored = self.mirrored
        return PlaceKind(
            len(self.truths),
            self.differ,
            bool(self.fingerprint),
            self.bits,
            mirrored is not None,
            self.fingerprint == mirrored,
            self.filters,
        )


def place_record(truth: TruthRecord, *, has_content: bool, at: Packed) -> Record:
    """The truth row at a place that it demands."""
    bits = truth.bits
    if has_content:
        bits |= STANDS
    return (at, int(Tag.TRUTH), truth.truth, truth.fingerprint, bits)


def by_place(records: Iterable[Record]) -> dict[Packed, PlaceRows]:
    found: dict[Packed, PlaceRows] = {}
    for record in records:
        key, *_ = record
        place = found.get(key)
        if place is None:
            place = found[key] = PlaceRows()
        place.add(record)
    return found


def place_suspects(
    forms: Forms,
    kept: PlaceForms,
    found: Iterable[tuple[Packed, PlaceRows]],
) -> Iterator[Suspect]:
    """The suspects of each place. There are few kinds of places, so each kind is judged once."""
    judge = cache(partial(_judged, forms, kept))
    for key, place in found:
        for projection, verdict in judge(place.kind):
            row_key = kept.row_key(projection, key)
            yield Suspect(projection.name, row_key, verdict, forms.truth_keys(place.truths))


class Places:
    """Places that are joined in memory; records of further places, beyond the limit, go to the spill.

    Truth rows must be added last. Where truth and projections agree, only the truth's key is kept, to detect a second
    truth at the same place.
    """

    def __init__(self, forms: Forms, kept: PlaceForms, spill: Spill, most: int) -> None:
        self._forms = forms
        self._kept = kept
        self._spill = spill
        self._most = most
        self._held: dict[Packed, PlaceRows | Packed] = {}
        self._judge = cache(partial(_judged, forms, kept))
        self._shrinks = kept.mirror is None or not _is_compared(kept.mirror)

    def add(self, record: Record) -> None:
        key, tag, *fields = record
        place = self._held.get(key)
        if type(place) is tuple:  # it agreed
            if fields[0] == place:
                return  # and is read twice
            place = self._held[key] = PlaceRows((place,))
        elif place is None:
            if len(self._held) >= self._most:
                self._spill.add(record)
                return
            place = self._held[key] = PlaceRows()
        assert isinstance(place, PlaceRows)
        place.add(record)
        is_first = self._shrinks and tag == Tag.TRUTH and len(place.truths) == 1
        if is_first and not self._judge(place.kind):
            (self._held[key],) = place.truths

    def parts(self) -> Iterator[tuple[Iterator[Suspect], int]]:
        """Yields pairs: the suspects of a part, and the number of places or records that were joined for them."""
        wrong = ((key, place) for key, place in self._held.items() if isinstance(place, PlaceRows))
        yield place_suspects(self._forms, self._kept, wrong), len(self._held)
        self._held = {}
        for part in self._spill.parts():
            yield place_suspects(self._forms, self._kept, by_place(part).items()), len(part)


def _is_compared(mirror: Mirror) -> bool:
    """Whether what truth rows demand at a place is compared with each other."""
    return mirror.claims.are_compared or isinstance(mirror, ExplodedMirror)


_Judged = tuple[tuple[Projection, Verdict], ...]
"""The projections in which something is wrong, the mirror first."""


def _judged(forms: Forms, kept: PlaceForms, kind: PlaceKind) -> _Judged:
    seen = {
        "in_truth": kind.truths > 0,
        "clash": kind.truths > 1,
        "rows_agree": kind.agree,
        "has_content": bool(kind.bits & STANDS),
        "whole": bool(kind.bits & WHOLE),
    }
    wrong: list[tuple[Projection, Verdict]] = []
    if kept.mirror is not None:
        symptoms = seen | {"in_projection": kind.mirrored, "says": True}
        if kept.mirror.claims.are_compared:
            symptoms |= {"clash": kind.differ, "says": kind.says}
        in_mirror = verdict_on(Mirror.verdicts, symptoms)
        if in_mirror is not Verdict.AGREE:
            wrong.append((kept.mirror, in_mirror))
    for number, filtered in enumerate(kept.filters):
        present = bool(kind.filters >> number & 1)
        wanted = bool(kind.bits & forms.condition_bit(filtered.when))
        verdict = verdict_on(Filter.verdicts, seen | {"in_projection": present, "wanted": wanted})
        if verdict is not Verdict.AGREE:
            wrong.append((filtered, verdict))
    return tuple(wrong)


SUMS_MAX = 100_000
"""The number of demands (sums of a counter, or an element of a union) in memory before they go to the spill."""

_Demands = dict[tuple[Packed, str], Any]
"""What truths demand of a group, under the name of an element or counter (`Group.together`)."""


class GroupSums:
    """Adds up what truth rows demand of their groups' rows."""

    def __init__(self, forms: Forms) -> None:
        self._groups = forms.groups
        self._bits = {when: forms.condition_bit(when) for when in forms.family.conditions}
        self._alike: dict[tuple[tuple[Packed, ...], int], int] = {}
        self._demands: _Demands = {}

    def count(self, truth: TruthRecord, *, has_content: bool) -> None:
        """Add a truth row to each group that it belongs to; equal ones are only counted.

        A union must have each truth's elements (a superset is fine); a counter may or may not count a doubtful truth.
        """
        bits = truth.bits
        if has_content:
            bits |= STANDS
        alike = (truth.groups, bits)
        self._alike[alike] = self._alike.get(alike, 0) + 1
        for number, elements in enumerate(truth.elements):
            key = truth.groups[number]
            if key:
                group = self._groups[number]
                for element in elements:
                    name, demand = group.demand_of(element, truth.truth)
                    self._add((number, key), name, demand)

    def add(self, record: Record) -> None:
        key, _, name, demand = record
        self._add(key, name, demand)

    @property
    def full(self) -> bool:
        return len(self._demands) + len(self._alike) > SUMS_MAX

    def take(self) -> Iterator[Record]:
        """Yield the demands as records, and reset them."""
        for (keys, bits), rows in self._alike.items():
            self._count_alike(keys, bits, rows)
        for (key, name), demand in self._demands.items():
            yield key, int(Tag.TRUTH), name, demand
        self._alike = {}
        self._demands = {}

    def by_group(self) -> dict[Packed, dict[str, Any]]:
        found: dict[Packed, dict[str, Any]] = {}
        for (key, name), demand in self._demands.items():
            found.setdefault(key, {})[name] = demand
        return found

    def _count_alike(self, keys: tuple[Packed, ...], bits: int, rows: int) -> None:
        sure = bits & WHOLE and bits & STANDS
        for number, (group, key) in enumerate(zip(self._groups, keys, strict=True)):
            if not key:
                continue
            for name, when in group.counters:
                counted = 0
                if when is None or bits & self._bits[when]:
                    counted = rows
                demand = (0, counted)
                if sure:
                    demand = (counted, 0)
                self._add((number, key), name, demand)

    def _add(self, key: Packed, name: str, demand: Any) -> None:
        before = self._demands.get((key, name))
        if before is not None:
            demand = self._groups[key[0]].together(before, demand)
        self._demands[key, name] = demand


def group_suspects(forms: Forms, records: Iterable[Record]) -> Iterator[Suspect]:
    """The suspects among the groups of one part: those whose row lacks what the truth rows demand."""
    sums = GroupSums(forms)
    rows: dict[Packed, tuple[Any, ...]] = {}
    for record in records:
        key, tag, *fields = record
        if tag == Tag.BESIDE:
            (rows[key],) = fields
        else:
            sums.add(record)
    demanded = sums.by_group()
    for key in demanded.keys() | rows.keys():
        group = forms.groups[key[0]]
        lacking = group.lacking(demanded.get(key, {}), rows.get(key, ()))
        if lacking is not None:
            verdict = Group.verdicts[GroupSymptoms(in_projection=key in rows, covered=False)]
            truth_keys = forms.truth_keys(lacking.truths)
            yield Suspect(group.name, unpacked_key(key[1]), verdict, truth_keys, lacking.wanted)
