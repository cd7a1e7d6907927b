"""Counts what an interrupted run has mended, by its ledger, as executors did more than was reported.

Each fix is recorded before it is written, and settled after it was read back. A fix that is recorded and not settled is
read once more: the row shows whether it was written.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from mailmend.model.errors import MailmendError
from mailmend.model.operations import Read, Seen
from mailmend.model.ports import Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.decisions.recheck import fixed_at
from mailmend.repair.ledger.runs import Ledger, Run

_BATCH_FINDINGS = 200


def mended_so_far(ledger: Ledger, run: Run, mail: Tables, families: Iterable[Family]) -> Counter[Verdict]:
    """The run's fixes by verdict; those that only their rows show are settled in the ledger as well.

    Call it only when no process works for the run any more.
    """
    rows: dict[str, tuple[Family, Projection]] = {}
    projections: dict[str, Projection] = {}
    for family in families:
        for projection in family.projections:
            if projection.by_row:
                rows[projection.name] = (family, projection)
                projections[projection.name] = projection
    fixed: Counter[Verdict] = Counter()
    unsettled: list[Finding] = []
    for finding in ledger.findings(run.id):
        if finding.result is Verdict.FIXED:
            fixed[finding.verdict] += finding.number
        elif finding.result is None and _is_own(finding, rows.get(finding.suspect.projection)):
            unsettled.append(finding)
    pending = iter(unsettled)
    while batch := list(islice(pending, _BATCH_FINDINGS)):
        shown = list(_shown(batch, run.as_of, mail, projections))
        fixed.update(example.verdict for example in shown)
        ledger.settle(run.id, [replace(example, result=Verdict.FIXED, error=None) for example in shown])
    return fixed


def fix_shows(image: Finding, seen: Seen | None, as_of: int) -> bool:
    """Whether the row is as the run's fix of this before-image left it."""
    appeared_or_went = (seen is None) != (image.projected is None)
    return appeared_or_went or (seen is not None and fixed_at(image, as_of) in seen.written_at.values())


def _is_own(image: Finding, of: tuple[Family, Projection] | None) -> bool:
    """False for counters, and for other rows that a quarantine changes: their images are never settled."""
    if of is None:
        return False
    family, projection = of
    return image.verdict is not Verdict.LOST_CONTENT or projection is family.mirror


def _shown(batch: Sequence[Finding], as_of: int, mail: Tables, known: dict[str, Projection]) -> Iterator[Finding]:
    reads = [
        Read(known[finding.suspect.projection].table, finding.suspect.key, times=True, joinable=True)
        for finding in batch
    ]
    for image, answer in zip(batch, mail.read_all(reads), strict=True):
        if not isinstance(answer, MailmendError) and fix_shows(image, answer[0] if answer else None, as_of):
            yield image
