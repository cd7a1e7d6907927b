"""What was approved in a plan of a cleanup is done as it was approved, or not at all.

A plan holds what an earlier look saw, perhaps hours before. Of what two looks show now, only that is mended which the
plan names with the same counts and starts. Whatever else they show is not part of the plan, and is not reported.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from mailmend.mailqueue.cleanup.scan import Mark
from mailmend.mailqueue.cleanup.writes import CleanedQueue
from mailmend.mailqueue.rules.cleanup import JudgedQueue, QueuePartition, QueuePlace
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.reasons import Reason, Why
from mailmend.model.projections.verdicts import OVER_VERDICTS, QUEUE_VERDICTS, Verdict
from mailmend.repair.ledger.before_images import image_digest

_MOVES = frozenset(verdict for verdict, queue_verdict in QUEUE_VERDICTS.items() if queue_verdict.moves_start)
_TO = "browsestart"


@dataclass(frozen=True, slots=True)
class PlannedCleanup:
    """What a plan names.

    Attributes:
        suspects: by place; as in a scan's counts, one for a partition and never one for a mail.
        marks: reads from the file the marks that may go; each call reads them anew.
    """

    suspects: Mapping[QueuePlace, Suspect]
    marks: Callable[[], Iterator[Mark]]

    def limited(self, one: CleanedQueue, before: JudgedQueue) -> tuple[CleanedQueue, JudgedQueue, list[Finding]]:
        """What of the queue is still as planned, in three parts.

        Returns:
            The queue with only those findings, the first look with its browse start no later than planned, and findings
            on what is not as planned any more.
        """
        planned = {place: suspect for place, suspect in self.suspects.items() if place.key[:1] == (one.queue,)}
        same = {place: one.findings[place] for place, suspect in planned.items() if _is_as_seen(one, place, suspect)}
        others = (_moved(one, place, suspect) for place, suspect in planned.items() if place not in same)
        over = frozenset(
            place for place in one.over if same.keys() & {QueuePlace(verdict, place) for verdict in OVER_VERDICTS}
        )
        now = one.judged.scanned.starts.browse
        to = max((planned[place].wanted[_TO] for place in same if place.verdict in _MOVES), default=now)
        if before.browse_start is not None and to is not None:
            before = replace(before, browse_start=min(before.browse_start, to))
        return (
            replace(one, over=over, findings=same, suspects=len(planned)),
            before,
            [finding for finding in others if finding],
        )


def planned_of(found: Finding, one: JudgedQueue) -> Suspect:
    """The suspect that a plan keeps for a finding; a browse start is then moved no further than the plan says."""
    return replace(found.suspect, wanted={_TO: one.browse_start}) if found.verdict in _MOVES else found.suspect


def _is_as_seen(one: CleanedQueue, place: QueuePlace, suspect: Suspect) -> bool:
    """A browse start that others have moved since goes on to where it was planned to be."""
    if place.verdict in _MOVES:
        browse = one.judged.scanned.starts.browse
        return place in one.findings and browse is not None and browse < suspect.wanted[_TO]
    return place in one.findings and image_digest(one.findings[place]) == suspect.planned


def _moved(one: CleanedQueue, place: QueuePlace, suspect: Suspect) -> Finding | None:
    """What is there and not as it was seen; None where nothing is left to do."""
    partitions = one.judged.scanned.partitions
    counts = partitions.get(QueuePartition(*suspect.key)) if place.verdict in OVER_VERDICTS else None
    if counts is None and (place not in one.findings or place.verdict in _MOVES):
        return None
    number = counts.rows if counts else one.findings[place].number
    why = Reason(Why.OTHER_THAN_PLANNED)
    return Finding(suspect, suspect.verdict, result=Verdict.MOVED, reason=why, number=number)
