"""Why a run leaves a finding: from the finding and the policy alone, whichever engine found it."""

from model.instants import MICROS
from model.projections.findings import Finding, RepairPolicy
from model.projections.mirror import Mirror
from model.projections.projection import Projection
from model.projections.reasons import Reason, Why
from model.projections.verdicts import MENDABLE, Verdict
from model.schema.table import Key
from repair.decisions.recheck import DAY_MICROS, born_at

_SETTLED = frozenset({Verdict.AGREE, Verdict.FIXED})


def reason_of(finding: Finding, policy: RepairPolicy, now: int, projection: Projection) -> Reason | None:
    """The reason; None where nothing is left, or where an error says why."""
    if finding.error is not None or (finding.result or finding.verdict) in _SETTLED:
        return None
    match finding.result:
        case Verdict.MOVED:
            return _of_moved(finding, policy)
        case Verdict.AHEAD:
            newest = finding.newest or now
            return Reason(Why.AHEAD, max(newest - now, 0), newest + _margin(policy))
        case Verdict.HIDDEN:
            return Reason(Why.HIDDEN)
        case _ if finding.due:
            return Reason(Why.DUE)
        case _:
            return _of_left(finding, policy, now, projection)


def _of_moved(finding: Finding, policy: RepairPolicy) -> Reason:
    if finding.suspect.planned:
        return Reason(Why.OTHER_THAN_PLANNED)
    newest = finding.newest
    if newest is None or newest <= policy.as_of:
        return Reason(Why.CHANGED)
    return Reason(Why.TOO_YOUNG, newest - policy.as_of, newest + _margin(policy))


def _of_left(  # noqa: PLR0911 - one return for each kind
    finding: Finding, policy: RepairPolicy, now: int, projection: Projection
) -> Reason:
    match finding.verdict:
        case Verdict.CLASH:
            return Reason(Why.TWO_TRUTHS)
        case Verdict.TORN:
            return Reason(Why.HALF_A_TRUTH)
        case Verdict.LOST_CONTENT if policy.orphans == "report":
            return Reason(Why.NEEDS_ORPHANS)
        case Verdict.LOST_CONTENT:
            columns = projection.truth.partition
            born = [seen.row[column.name] for seen in finding.truths for column in columns]
            return _of_young(tuple(born) or finding.suspect.truth_ids, None, now)
        case Verdict.LEAK if policy.leaks == "report":
            return Reason(Why.NEEDS_LEAKS)
        case Verdict.LEAK:
            return _of_young(finding.suspect.key, finding.newest, now)
        case verdict:
            return Reason(_why_not_mended(finding, verdict, policy, projection))


def _why_not_mended(finding: Finding, verdict: Verdict, policy: RepairPolicy, projection: Projection) -> Why:
    mirror = projection if isinstance(projection, Mirror) else None
    if mirror is not None and mirror.report_only:
        return Why.ONLY_REPORTED
    if verdict not in MENDABLE & policy.only:
        return Why.NEEDS_ONLY
    if mirror is not None and verdict is Verdict.WITHDRAW and policy.dangling == "report":
        return Why.NEEDS_DANGLING
    if not policy.all_truths:
        return Why.NEEDS_SCAN
    if not projection.by_row:
        return Why.ROWS_DIFFER
    return Why.NO_WHOLE_ROW if finding.last_trace and policy.dangling == "restore" else Why.NOT_SETTLED


def _of_young(key: Key, touched: int | None, now: int) -> Reason:
    """What is only removed after a day; what is older lacks something else."""
    since = max((at for at in (born_at(key), touched) if at is not None), default=None)
    if since is not None and since < now - DAY_MICROS:
        return Reason(Why.NO_WHOLE_ROW)
    return Reason(Why.YOUNGER_THAN_A_DAY, again_at=None if since is None else since + DAY_MICROS)


def _margin(policy: RepairPolicy) -> int:
    return round(policy.margin_seconds * MICROS)
