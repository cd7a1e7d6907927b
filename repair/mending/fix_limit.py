"""`--max-fixes`: fixes are counted before the first write; above the limit a person is asked."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from mailmend.model.errors import FixLimit
from mailmend.model.ports import Progress, Silent
from mailmend.model.projections.family import projections_of
from mailmend.model.projections.findings import Excess, RepairPolicy, Suspect, counts_of
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import BY_POLICY, Verdict, older_than_a_day
from mailmend.model.texts import keyspace_option
from mailmend.repair.mending.engine import Detection, RepairSettings

SAMPLES_MAX = 5
"""The largest number of suspects that are shown to the person who is asked."""


GoOn = Callable[[Excess], bool]
"""Asks a person whether to go on."""


def stop_at_limit(  # noqa: PLR0917 - as many parts
    detection: Detection,
    settings: RepairSettings,
    policy: RepairPolicy,
    now: int,
    go_on: GoOn | None,
    progress: Progress | None = None,
) -> None:
    """Stop before any write when more would be mended than `settings.max_fixes`, unless a person agrees.

    Raises:
        FixLimit: no person agreed, or there is no terminal to ask on.
    """
    if settings.max_fixes is None or policy.run is None:
        return
    excess = excess_over(settings.max_fixes, detection, settings, policy, now)
    if excess is not None and settings.as_of is not None:
        excess = _still_over(excess, detection, settings, policy, progress or Silent())
    if excess is not None and not (go_on and go_on(excess)):
        raise FixLimit(
            f"{excess.total:,} suspects in {excess.keyspace} could be mended, --max-fixes allows {excess.allowed:,}; "
            "nothing was written",
            mend=f"See what they are with: mailmend check messages {keyspace_option(excess.keyspace)}; "
            f"if that is what you want mended, type the same command with --max-fixes {excess.total}.",
        )


def excess_over(
    allowed: int, detection: Detection, settings: RepairSettings, policy: RepairPolicy, now: int
) -> Excess | None:
    """The suspects that would be mended, where there are more than allowed; else None.

    Once the plain counts exceed the limit, content and truth rows are counted again by age: young ones are never
    removed.
    """
    projections = projections_of(settings.families)
    counts: dict[str, Counter[Verdict]] = {}
    for name, sums in detection.counts.items():
        for verdict, number in sums.items():
            if projections[name].asks_for(verdict, policy):
                counts.setdefault(name, Counter())[verdict] = number
    excess = Excess(settings.keyspace, allowed, counts)
    if excess.total > allowed and any(BY_POLICY & sums.keys() for sums in excess.counts.values()):
        excess = Excess(settings.keyspace, allowed, counts_of(_due(detection, projections, policy, now)))
    if excess.total <= allowed:
        return None
    samples = tuple(islice(_due(detection, projections, policy, now), SAMPLES_MAX))
    return Excess(settings.keyspace, allowed, excess.counts, samples)


def _still_over(
    excess: Excess, detection: Detection, settings: RepairSettings, policy: RepairPolicy, progress: Progress
) -> Excess | None:
    """The same after a look without writing: rows that a staged scan read hours apart differ where users worked.

    Counters are counted as suspected: only their own two looks tell.
    """
    counters = {count.name for family in settings.families for count in family.counts}
    counts = {name: sums for name, sums in excess.counts.items() if name in counters}
    samples = list[Suspect]()
    for finding in detection.revisit(replace(policy, run=None), progress):
        if finding.due:
            counts.setdefault(finding.suspect.projection, Counter())[finding.verdict] += finding.number
            if len(samples) < SAMPLES_MAX:
                samples.append(finding.suspect)
    seen = Excess(excess.keyspace, excess.allowed, counts, tuple(samples) or excess.samples)
    if seen.total <= seen.allowed:
        return None
    return seen


def _due(
    detection: Detection, projections: Mapping[str, Projection], policy: RepairPolicy, now: int
) -> Iterator[Suspect]:
    for suspect in detection.suspects():
        wanted = projections[suspect.projection].asks_for(suspect.verdict, policy)
        if wanted and (suspect.verdict not in BY_POLICY or older_than_a_day(suspect.truth_ids or suspect.key, now)):
            yield suspect
