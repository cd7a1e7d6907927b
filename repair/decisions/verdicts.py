"""What a pair of rows means: the one table of verdicts, pure and total.

Rule 1: every verdict that mailmend can give is decided here. Rule 2: this file reads no clock, no table, no setting.
The online engines call `decide_*`; `spark_repair.verdicts` generates native columns from the same mappings, indexed by
the same bits. Source: seed ADR-22 (insert, remove), DESIGN section 4 "Verdicts".
"""

from collections.abc import Mapping
from enum import Enum
from itertools import product
from typing import NamedTuple


class Verdict(Enum):
    """The judgement on one key of one projection; the value is its name in reports."""

    AGREE = "AGREE"  # nothing to do
    PROJECT = "PROJECT"  # truth without projection: insert it
    AMEND = "AMEND"  # both, different: overwrite the whole row
    WITHDRAW = "WITHDRAW"  # projection without truth: delete it
    CLASH = "CLASH"  # two truths claim one place: report, never guess
    LOST_CONTENT = "LOST_CONTENT"  # truth whose content is gone: report, or quarantine
    TORN = "TORN"  # truth lacking what every insert writes: report
    LEAK = "LEAK"  # content that no truth names: report, or collect
    MOVED = "MOVED"  # changed since T: left to the next run
    AHEAD = "AHEAD"  # a cell from the future: left until T passes it
    FIXED = "FIXED"  # mended, and read back so
    HIDDEN = "HIDDEN"  # mended, yet not visible so: journalled


DETECTED = (
    Verdict.PROJECT,
    Verdict.AMEND,
    Verdict.WITHDRAW,
    Verdict.CLASH,
    Verdict.LOST_CONTENT,
    Verdict.TORN,
    Verdict.LEAK,
)
"""What a scan can find; MOVED, AHEAD, FIXED and HIDDEN come of looking again."""

MENDABLE = frozenset({Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW})
"""What a repair mends without being asked further."""


class MirrorSymptoms(NamedTuple):
    """What is seen at one key of a mirror. The order of the fields is the order of the bits, lowest first."""

    in_truth: bool  # at least one truth row claims the key
    clash: bool  # more than one does
    in_projection: bool
    rows_agree: bool
    has_content: bool
    whole: bool  # the truth row has every column that an insert writes


class FilterSymptoms(NamedTuple):
    """What is seen at one key of a filter."""

    in_truth: bool
    clash: bool
    in_projection: bool
    wanted: bool  # the truth row satisfies the filter's condition
    has_content: bool
    whole: bool


class GroupSymptoms(NamedTuple):
    """What is seen at one group of a union or of counters."""

    in_projection: bool
    covered: bool  # the projection says what the truth demands of it


class ContentSymptoms(NamedTuple):
    """What is seen at one row of shared content."""

    in_truth: bool
    in_projection: bool


def _mirror(seen: MirrorSymptoms) -> Verdict:
    match seen:
        case MirrorSymptoms(in_truth=False):
            return Verdict.WITHDRAW if seen.in_projection else Verdict.AGREE
        case MirrorSymptoms(clash=True):
            return Verdict.CLASH
        case MirrorSymptoms(has_content=False):
            return Verdict.LOST_CONTENT
        case MirrorSymptoms(whole=False):
            return Verdict.TORN
        case MirrorSymptoms(in_projection=False):
            return Verdict.PROJECT
        case _:
            return Verdict.AGREE if seen.rows_agree else Verdict.AMEND


def _filter(seen: FilterSymptoms) -> Verdict:
    """A clashing, torn or empty truth is the mirror's to report: its filters are left as they are."""
    match seen:
        case FilterSymptoms(in_truth=False):
            wanted = False
        case FilterSymptoms(clash=True) | FilterSymptoms(has_content=False) | FilterSymptoms(whole=False):
            wanted = seen.in_projection
        case _:
            wanted = seen.wanted
    if wanted == seen.in_projection:
        return Verdict.AGREE
    return Verdict.PROJECT if wanted else Verdict.WITHDRAW


def _group(seen: GroupSymptoms) -> Verdict:
    """What is missing in a group is added; what it has too much of (a union) is fine."""
    if seen.covered:
        return Verdict.AGREE
    return Verdict.AMEND if seen.in_projection else Verdict.PROJECT


def _content(seen: ContentSymptoms) -> Verdict:
    """A truth without content is told by the mirror, per place; here only what nobody names is found."""
    return Verdict.LEAK if seen.in_projection and not seen.in_truth else Verdict.AGREE


def _bits(width: int) -> list[tuple[bool, ...]]:
    """Every combination of that many bits, counted up with the first field lowest."""
    return [tuple(reversed(bits)) for bits in product((False, True), repeat=width)]


MIRROR: Mapping[MirrorSymptoms, Verdict] = {seen: _mirror(seen) for seen in map(MirrorSymptoms._make, _bits(6))}
FILTER: Mapping[FilterSymptoms, Verdict] = {seen: _filter(seen) for seen in map(FilterSymptoms._make, _bits(6))}
GROUP: Mapping[GroupSymptoms, Verdict] = {seen: _group(seen) for seen in map(GroupSymptoms._make, _bits(2))}
CONTENT: Mapping[ContentSymptoms, Verdict] = {seen: _content(seen) for seen in map(ContentSymptoms._make, _bits(2))}
"""The four tables: total over every combination of symptoms, impossible ones too; iterated in the order of the bits."""
