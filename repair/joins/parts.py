"""Joins within one part: content with the truths that name it, truths with mirror and filters.

Each function takes one part of a spill, which has all records of its keys, and yields suspects by the tables of
verdicts. Pure: no files, no servers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from model.projections.content import Content, ContentSymptoms
from model.projections.filters import Filter, FilterSymptoms
from model.projections.findings import Suspect
from model.projections.mirror import Mirror, MirrorSymptoms
from model.projections.verdicts import Verdict
from repair.joins.records import WHOLE, Forms, Packed, TruthRecord, unpacked_key
from repair.joins.spill import Record


class Tag(IntEnum):
    """The kind of a record: the field after its key. Filters continue from the last number."""

    TRUTH = 0
    BESIDE = 1  # content, or the mirror's row, or a group's own row
    FILTER = 2


@dataclass(slots=True)
class Named:
    """Content rows of one part, and the truths that name them."""

    stands: bool = False
    truths: list[TruthRecord] = field(default_factory=list)


def content_record(truth: TruthRecord) -> Record:
    return (truth[0], int(Tag.TRUTH), *truth[1:])


def by_content(records: Iterable[Record]) -> dict[Packed, Named]:
    found: dict[Packed, Named] = {}
    for record in records:
        named = found.setdefault(record[0], Named())
        if record[1] == Tag.BESIDE:
            named.stands = True
        else:
            named.truths.append(TruthRecord(record[0], *record[2:]))
    return found


def content_suspects(content: Content, found: dict[Packed, Named]) -> Iterator[Suspect]:
    for key, named in found.items():
        verdict = Content.verdicts[ContentSymptoms(in_truth=bool(named.truths), in_projection=named.stands)]
        if verdict is not Verdict.AGREE:
            yield Suspect(content.name, unpacked_key(content.table.key, key), verdict)


class Claim(NamedTuple):
    """What a place needs of a truth row."""

    fingerprint: bytes
    bits: int
    has_content: bool


_NOBODY = Claim(b"", WHOLE, has_content=True)
"""The claim of a place without a truth."""


@dataclass(slots=True)
class Place:
    """All rows seen at one place: truths by their whole key (a row that was read twice counts once)."""

    truths: dict[Packed, Claim] = field(default_factory=dict)
    mirrored: bytes | None = None
    filters: int = 0

    @property
    def claim(self) -> Claim:
        """The truth's claim; where several clash, any of them: the clash itself is reported."""
        return next(iter(self.truths.values()), _NOBODY)


def place_record(truth: TruthRecord, *, has_content: bool) -> Record:
    return (truth.place, int(Tag.TRUTH), truth.truth, truth.fingerprint, truth.bits, has_content)


def by_place(records: Iterable[Record]) -> dict[Packed, Place]:
    found: dict[Packed, Place] = {}
    for record in records:
        key, tag = record[0], record[1]
        place = found.get(key)
        if place is None:
            place = found[key] = Place()
        if tag == Tag.TRUTH:
            place.truths[record[2]] = Claim(*record[3:])
        elif tag == Tag.BESIDE:
            place.mirrored = record[2]
        else:
            place.filters |= 1 << (tag - Tag.FILTER)
    return found


def place_suspects(forms: Forms, found: dict[Packed, Place]) -> Iterator[Suspect]:
    filters = [(1 << number, one, forms.condition_bit(one.when)) for number, one in enumerate(forms.family.filters)]
    for key, place in found.items():
        claim = place.claim
        verdict = Mirror.verdicts[_mirror_symptoms(place, claim)]
        if verdict is not Verdict.AGREE:
            yield _mirror_suspect(forms, key, place, verdict)
        for mask, one, bit in filters:
            seen = _filter_symptoms(place, claim, wanted=bool(claim.bits & bit), present=bool(place.filters & mask))
            verdict = Filter.verdicts[seen]
            if verdict is not Verdict.AGREE:
                yield _filter_suspect(forms, key, place, one, verdict)


def _mirror_symptoms(place: Place, claim: Claim) -> MirrorSymptoms:
    return MirrorSymptoms(
        in_truth=bool(place.truths),
        clash=len(place.truths) > 1,
        in_projection=place.mirrored is not None,
        rows_agree=claim.fingerprint == place.mirrored,
        has_content=claim.has_content,
        whole=bool(claim.bits & WHOLE),
    )


def _filter_symptoms(place: Place, claim: Claim, *, wanted: bool, present: bool) -> FilterSymptoms:
    return FilterSymptoms(
        in_truth=bool(place.truths),
        clash=len(place.truths) > 1,
        in_projection=present,
        wanted=wanted,
        has_content=claim.has_content,
        whole=bool(claim.bits & WHOLE),
    )


def _mirror_suspect(forms: Forms, key: Packed, place: Place, verdict: Verdict) -> Suspect:
    mirror = forms.family.mirror
    return Suspect(mirror.name, unpacked_key(mirror.table.key, key), verdict, forms.truth_ids(place.truths))


def _filter_suspect(forms: Forms, key: Packed, place: Place, filtered: Filter, verdict: Verdict) -> Suspect:
    return Suspect(filtered.name, forms.filter_key(filtered, key), verdict, forms.truth_ids(place.truths))
