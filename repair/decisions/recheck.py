"""The second look: what a suspect means once both sides were read again with their times, and what may be written.

Pure. The order of the reads (projection first, truth last), the delay and the read-back are the fixer's; the rule of
time is here (DESIGN idea 4; model-checked): a repair writes as of T, a moment before its scan began, so whatever a user
changes afterwards wins. A pair with a cell after T has MOVED and is left alone; cells at exactly T are this run's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from model.operations import Seen
from model.projections.declarations import Content, Counts, Filter, Mirror, Projection, Union
from model.schema.table import Key, Row
from repair.decisions.verdicts import (
    CONTENT,
    FILTER,
    GROUP,
    MENDABLE,
    MIRROR,
    ContentSymptoms,
    FilterSymptoms,
    GroupSymptoms,
    MirrorSymptoms,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Look:
    """One key of one projection, as both sides were just read.

    Attributes:
        truths: every truth row that claims the key, as far as known keys lead to them.
        projected: the projection's row, or None.
        has_content: whether the content stands beside the truth (or, without one, beside the projection).
        whole: whether the truth row has every column that an insert writes (or is accepted without).
        uncertain: for counters: truth rows without content or torn, which may be counted or not.
    """

    projection: Projection
    key: Key
    truths: tuple[Seen, ...]
    projected: Seen | None
    has_content: bool = True
    whole: bool = True
    uncertain: tuple[Seen, ...] = ()

    @property
    def newest(self) -> int | None:
        """The latest visible write of the pair, in microseconds; None where no time can be read."""
        times = [seen.newest for seen in (*self.truths, *((self.projected,) if self.projected else ()))]
        return max((time for time in times if time is not None), default=None)


@dataclass(frozen=True, slots=True)
class Moment:
    """The times that one judgement depends on, in microseconds: T, now, and the skew that clocks may have."""

    as_of: int
    now: int
    skew: int


def verdict_of(look: Look) -> Verdict:
    """What the pair means by itself, whatever the time."""
    match look.projection:
        case Mirror() as mirror:
            return MIRROR[_mirror_symptoms(mirror, look)]
        case Filter() as filtered:
            return FILTER[_filter_symptoms(filtered, look)]
        case Union() | Counts():
            return GROUP[GroupSymptoms(look.projected is not None, covered(look))]
        case Content():
            return CONTENT[ContentSymptoms(bool(look.truths), look.projected is not None)]


def judge(look: Look, moment: Moment) -> Verdict:
    """The verdict that may be acted upon.

    A pair that needs nothing is FIXED when this run's own write is what made it so (a task that was retried), else
    AGREE. A pair that could be mended is AHEAD or MOVED where a visible cell forbids it.
    """
    verdict = verdict_of(look)
    if verdict is Verdict.AGREE:
        return Verdict.FIXED if _written_at_t(look, moment.as_of) else Verdict.AGREE
    if verdict not in MENDABLE or look.newest is None:
        return verdict
    if look.newest > moment.now + moment.skew:
        return Verdict.AHEAD
    if look.newest > moment.as_of:
        return Verdict.MOVED
    return verdict


def covered(look: Look) -> bool:
    """Whether a group's row says what its truths demand."""
    row = look.projected.row if look.projected else {}
    match look.projection:
        case Union(column=column):
            wanted = frozenset[str]().union(*(seen.row.get(column) or () for seen in look.truths))
            return wanted <= frozenset(row.get(column) or ())
        case Counts() as counts:
            sure, open_ = _totals(counts, look.truths), _totals(counts, look.uncertain)
            return within(sure, open_, row)
        case _:
            return True


def within(sure: Mapping[str, int], open_: Mapping[str, int], row: Row) -> bool:
    """Whether counters stand where the truth allows: at least what is sure, at most with all that is uncertain."""
    return all(low <= (row.get(name) or 0) <= low + open_[name] for name, low in sure.items())


def _totals(counts: Counts, truths: tuple[Seen, ...]) -> dict[str, int]:
    deltas = [counts.deltas_of(seen.row) for seen in truths]
    return {name: sum(delta[name] for delta in deltas) for name, _ in counts.counters}


def _mirror_symptoms(mirror: Mirror, look: Look) -> MirrorSymptoms:
    truth = look.truths[0].row if look.truths else None
    projected = look.projected.row if look.projected else None
    return MirrorSymptoms(
        in_truth=truth is not None,
        clash=len(look.truths) > 1,
        in_projection=projected is not None,
        rows_agree=truth is not None and projected is not None and mirror.agree(truth, projected),
        has_content=look.has_content,
        whole=look.whole,
    )


def _filter_symptoms(filtered: Filter, look: Look) -> FilterSymptoms:
    truth = look.truths[0].row if look.truths else None
    return FilterSymptoms(
        in_truth=truth is not None,
        clash=len(look.truths) > 1,
        in_projection=look.projected is not None,
        wanted=truth is not None and filtered.when.holds(truth),
        has_content=look.has_content,
        whole=look.whole,
    )


def _written_at_t(look: Look, as_of: int) -> bool:
    return look.projected is not None and as_of in look.projected.written_at.values()
