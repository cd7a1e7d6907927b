"""What a pair of rows can mean. Each kind of projection has its own total table from symptoms to verdicts.

Source: seed ADR-22 (insert, remove), DESIGN section 4 "Verdicts". `spark_repair.suspects` generates native columns from
the same tables, indexed by the same bits.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from itertools import product
from typing import Any, TypeVar

S = TypeVar("S", bound=tuple[Any, ...])


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

BY_POLICY = frozenset({Verdict.LOST_CONTENT, Verdict.LEAK})
"""Verdicts that remove what nothing can rebuild: only on demand, and only what is old enough."""


def table_of(symptoms: type[S], judge: Callable[[S], Verdict]) -> Mapping[S, Verdict]:
    """The verdict on every combination of symptoms, impossible ones too.

    Args:
        symptoms: a NamedTuple of booleans; the first field is the lowest bit, and the table is iterated in their order.
        judge: the rule that the table is made of.
    """
    width = len(symptoms._fields)  # type: ignore[attr-defined] # a NamedTuple has them
    every = (symptoms._make(reversed(bits)) for bits in product((False, True), repeat=width))  # type: ignore[attr-defined]
    return {seen: judge(seen) for seen in every}
