"""How much a repair may mend before somebody is asked: what is due is summed up between the scan and the first write.

Only what this order would write counts. Content and truth rows are counted by their age too, once the plain counts
alone exceed the limit: a young one is never removed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from model.errors import FixLimit
from model.projections.declarations import Projection
from repair.decisions.findings import Detection, Errand, Suspect, counts_of
from repair.decisions.fixes import BY_POLICY, asked_for, older_than_a_day
from repair.decisions.verdicts import Verdict
from repair.mending.request import Excess, GoOn, Order

SAMPLES_MAX = 5
"""Suspects that are shown to whoever is asked."""


def stop_at_limit(detection: Detection, order: Order, errand: Errand, now: int, go_on: GoOn | None) -> None:
    """Stop before anything is written when more could be mended than was allowed, unless somebody says to go on.

    Args:
        detection: what the scan found.
        order: its `max_fixes` is the limit, None is none.
        errand: what would be mended; without a run nothing would.
        now: microseconds since 1970.
        go_on: asked once, and only then; None where nobody can be asked.

    Raises:
        FixLimit: more suspects than `max_fixes` would be mended, and nobody wanted that.
    """
    if order.max_fixes is None or errand.run is None:
        return
    due = due_beyond(order.max_fixes, detection, order, errand, now)
    if due is not None and not (go_on and go_on(due)):
        raise _refused(due)


def due_beyond(allowed: int, detection: Detection, order: Order, errand: Errand, now: int) -> Excess | None:
    """What would be mended, where that is more than allowed."""
    projections = {one.name: one for family in order.families for one in family.projections}
    due = Excess(order.keyspace, allowed, _asked_for(detection.counts, projections, errand))
    if due.total > allowed and any(BY_POLICY & counts.keys() for counts in due.counts.values()):
        due = Excess(order.keyspace, allowed, counts_of(_due(detection, projections, errand, now)))
    if due.total <= allowed:
        return None
    samples = tuple(islice(_due(detection, projections, errand, now), SAMPLES_MAX))
    return Excess(order.keyspace, allowed, due.counts, samples)


def _asked_for(
    counts: Mapping[str, Mapping[Verdict, int]], projections: Mapping[str, Projection], errand: Errand
) -> dict[str, Counter[Verdict]]:
    """The suspects that the scan counted, as far as the errand asks for them."""
    due = {
        name: Counter({one: number for one, number in sums.items() if asked_for(projections[name], one, errand)})
        for name, sums in counts.items()
    }
    return {name: sums for name, sums in due.items() if sums}


def _due(detection: Detection, projections: Mapping[str, Projection], errand: Errand, now: int) -> Iterator[Suspect]:
    """The suspects that would be mended, streamed."""
    for suspect in detection.suspects():
        wanted = asked_for(projections[suspect.projection], suspect.verdict, errand)
        if wanted and (suspect.verdict not in BY_POLICY or older_than_a_day(suspect.truth_ids or suspect.key, now)):
            yield suspect


def _refused(due: Excess) -> FixLimit:
    return FixLimit(
        f"{due.total:,} suspects in {due.keyspace} could be mended, --max-fixes allows {due.allowed:,}; "
        "nothing was written",
        mend=f"See what they are with: mailmend check messages --keyspace {due.keyspace}; "
        f"if that is what you want mended, type the same command with --max-fixes {due.total}.",
    )
