"""Whether queues are well, and their figures for monitoring."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.request import QueueAnswer, QueueRequest
from mailmend.mailqueue.health import FigureScope, QueueFigures, judged
from mailmend.mailqueue.metrics import QueueRates, TrafficSums, pace_between
from mailmend.mailqueue.prometheus import gauges_text
from mailmend.mailqueue.rules.health import HealthReason
from mailmend.model.errors import ExitCode
from mailmend.model.ids import QueueName

MeasuredQueue = tuple[QueueFigures, QueueRates | None]
"""The figures and the rates of a queue; these are None where they cannot be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRequest(QueueRequest):
    """Look at one queue, or at all of them; with `no_broker` at the tables alone."""

    everything: bool = False
    no_broker: bool = False

    @property
    def scope(self) -> FigureScope:
        return FigureScope.MAILS if self.no_broker else FigureScope.ALL


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """One queue: its figures, and what is wrong with it; no reasons: it is healthy."""

    figures: QueueFigures
    reasons: Sequence[HealthReason]


def queue_health(request: HealthRequest, caller: Caller) -> QueueAnswer[HealthRequest, Sequence[QueueHealth]]:

    async def judged_queues(connections: QueueConnections) -> QueueAnswer[HealthRequest, Sequence[QueueHealth]]:
        found = list[QueueHealth]()
        for name in await connections.names(everything=request.everything):
            async with connections.open(name, dry_run=True) as queue:
                figures = await queue.figures(request.scope)
            found.append(QueueHealth(figures, judged(figures)))
        if found and (remark := connections.marks_stay):
            caller.remark(remark)
        for unread in {health.figures.topics.unread for health in found if health.figures.topics}:
            if unread:
                caller.remark(f"Whether the broker drops mail by a policy was not looked at: {unread}")
        unwell = any(health.reasons for health in found)
        return QueueAnswer(request, found, ExitCode.DRIFT if unwell else ExitCode.FINE)

    return with_queues(request.settings, judged_queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRequest(HealthRequest):
    """The figures of one queue, or of all of them."""

    over: timedelta = timedelta()
    output: Path | None = None


def queue_metrics(request: MetricsRequest, _: Caller) -> QueueAnswer[MetricsRequest, Sequence[MeasuredQueue]]:
    """Measure each queue: rates between two looks, everything else at the second.

    Raises:
        WrongUse: the file cannot be written; what lay there before is untouched.
    """

    async def measured(connections: QueueConnections) -> QueueAnswer[MetricsRequest, Sequence[MeasuredQueue]]:
        names = await connections.names(everything=request.everything)
        before = dict[QueueName, TrafficSums | None]()
        for name in names if request.over else ():
            async with connections.open(name, dry_run=True) as queue:
                before[name] = await queue.traffic_sums()
        if before:
            await connections.clock.pause(request.over.total_seconds())
        found = list[MeasuredQueue]()
        for name in names:
            first = before.get(name)
            async with connections.open(name, dry_run=True) as queue:
                rates = pace_between(first, await queue.traffic_sums(first)) if first else None
                found.append((await queue.figures(request.scope), rates))
        incomplete = any(figures.broker_away for figures, _ in found)
        return QueueAnswer(request, found, ExitCode.PARTLY_FAILED if incomplete else ExitCode.FINE)

    if request.output:
        refuse_unwritable(request.output)
    answer = with_queues(request.settings, measured)
    if request.output:
        write_text(request.output, gauges_text(answer.found), masked=False)
    return answer
