"""The decision of the second look: what may be written once both sides were read again with their write times.

Pure. The fixes of each kind of projection are in its own class; the order of the reads (projection
first, truth last), the delay and the read-back are in the fixer. This module has the rules of time
(docs/design.md): a repair writes as of T, a moment before its scan began, so all later changes of
users win. A pair with a cell after T has MOVED and is left alone; cells at T are this run's own.
Only removals from the truth, and their undo, are conditional writes.
"""

from dataclasses import replace

from mailmend.model.instants import MICROS
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import MENDABLE, ON_DEMAND, SETTLED, Reason, Verdict, Why


def judge(look: Look, as_of: int, now: int, skew: int) -> Verdict:
    """The verdict on which a repair may act.

    A pair that needs nothing is FIXED when this run's own write made it so (a retried task), else AGREE. A pair that
    could be mended is AHEAD or MOVED where a visible cell forbids it, and MOVED where a cell of it expires about now.

    Args:
        look: both sides, as read again.
        as_of: T, in microseconds, like the next two.
        now: the current time.
        skew: S, the greatest difference between any two clocks.
    """
    verdict = look.verdict
    if verdict is Verdict.AGREE:
        if look.projected is not None and as_of in look.projected.written_at.values():
            return Verdict.FIXED
        return Verdict.AGREE
    if verdict in MENDABLE and _expires_now(look, now, skew):
        return Verdict.MOVED
    if verdict not in MENDABLE or look.newest is None:
        return verdict
    if look.newest > now + skew:
        verdict = Verdict.AHEAD
    elif look.newest > as_of:
        verdict = Verdict.MOVED
    return verdict


def _expires_now(look: Look, now: int, skew: int) -> bool:
    """Whether a cell of the pair expires about now: the other side's may have expired between the two reads."""
    soonest = look.soonest
    return soonest is not None and soonest * MICROS <= now + skew + MICROS  # TTLs are whole seconds


def rule(look: Look, policy: RepairPolicy, now: int) -> Finding:
    """The finding of a second look, with the writes of the fix where the policy allows it; `now` in microseconds."""
    judged = judge(look, policy.as_of, now, round(policy.skew_seconds * MICROS))
    if judged is Verdict.FIXED and policy.run is None:
        judged = Verdict.AGREE  # that stamp is another's write: this run wrote nothing
    found = _found(look, judged)
    fixed = _fixed(look, found, policy, now)
    if fixed is None:
        return found
    if found.verdict in ON_DEMAND and (look.newest or 0) > policy.as_of:
        return replace(found, result=Verdict.MOVED)
    if policy.run is None:
        return replace(found, due=True)
    return fixed


def fixed_at(image: Finding, as_of: int) -> int:
    """The stamp of a fix of this before-image: T, or just above a stamp that was ahead of T."""
    if image.verdict not in MENDABLE:
        return as_of
    if image.newest is None or image.newest <= as_of:
        return as_of
    return image.newest + 1


def reason_of(finding: Finding, policy: RepairPolicy, now: int, projection: Projection) -> Reason | None:
    """Why a run leaves a finding, whichever engine found it; None where nothing is left, or where an error says why."""
    ended = finding.result or finding.verdict
    if finding.error is not None or ended in SETTLED:
        return None
    if ended is Verdict.MOVED:
        return _why_moved(finding, policy)
    if ended is Verdict.AHEAD:
        newest = finding.newest or now
        return Reason(Why.AHEAD, max(newest - now, 0), newest + _margin(policy))
    if ended is Verdict.HIDDEN:
        return Reason(projection.hidden_by)
    if finding.due:
        return Reason(Why.DUE)
    return projection.why_left(finding, policy, now)


def _why_moved(finding: Finding, policy: RepairPolicy) -> Reason:
    if finding.suspect.planned:
        return Reason(Why.OTHER_THAN_PLANNED)
    newest = finding.newest
    if newest is None or newest <= policy.as_of:
        return Reason(Why.CHANGED)
    return Reason(Why.TOO_YOUNG, newest - policy.as_of, newest + _margin(policy))


def _margin(policy: RepairPolicy) -> int:
    return round(policy.margin_seconds * MICROS)


def _found(look: Look, judged: Verdict) -> Finding:
    looked = look.verdict
    verdict = looked
    if judged is Verdict.FIXED or look.blind:  # the scan's verdict stands
        verdict = look.suspect.verdict
    result = None
    if judged is not looked and not look.blind:
        result = judged
    return Finding(
        suspect=look.suspect,
        verdict=verdict,
        result=result,
        truths=look.truths,
        projected=look.projected,
        last_trace=look.last_trace and looked is Verdict.WITHDRAW,
    )


def _fixed(look: Look, found: Finding, policy: RepairPolicy, now: int) -> Finding | None:
    """The policy's fix, if the verdict is confirmed (or is beaten) and all that it removes is old enough."""
    asked = look.projection.asks_for(found.verdict, policy)
    if look.blind or not asked or _may_have_truth(look, policy):
        return None
    if not look.projection.old_enough(look, found.verdict, now):
        return None
    if found.result is Verdict.AHEAD and policy.beat_ahead:
        assert look.newest is not None, "only a visible time can lie ahead"
        return look.projection.fix(replace(found, result=None), look, policy, look.newest + 1)
    if found.result is not None:
        return None
    return look.projection.fix(found, look, policy, policy.as_of)


def _may_have_truth(look: Look, policy: RepairPolicy) -> bool:
    """Whether a row of truth may stand there that nothing read so far leads to."""
    if policy.all_truths or look.truths:
        return False
    return not look.leads or look.projection is not look.mirror
