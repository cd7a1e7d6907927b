"""`mailmend queue health` and `metrics`: whether queues are well, and their figures for monitoring."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Part, Verbatim
from mailmend.admin.frame.kinds import Duration
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.values import fields_json, plain
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import ALL, NO_BROKER, QUEUE_ARGUMENT, queue_settings, unless
from mailmend.admin.queue.request import STARTS, QueueAnswer, QueueRequest
from mailmend.mailqueue.metrics import (
    FigureScope,
    QueueFigures,
    QueueRates,
    TrafficSums,
    judged,
    pace_between,
)
from mailmend.mailqueue.prometheus import gauges_text
from mailmend.mailqueue.rules.health import HealthReason, TopicFigures
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
        if self.no_broker:
            return FigureScope.MAILS
        return FigureScope.ALL


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
        if any(health.reasons for health in found):
            return QueueAnswer(request, found, ExitCode.DRIFT)
        return QueueAnswer(request, found)

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
        if request.over:
            for name in names:
                async with connections.open(name, dry_run=True) as queue:
                    before[name] = await queue.traffic_sums()
        if before:
            await connections.clock.pause(request.over.total_seconds())
        found = list[MeasuredQueue]()
        for name in names:
            first = before.get(name)
            rates = None
            async with connections.open(name, dry_run=True) as queue:
                if first:
                    rates = pace_between(first, await queue.traffic_sums(first))
                found.append((await queue.figures(request.scope), rates))
        if any(figures.broker_away for figures, _ in found):
            return QueueAnswer(request, found, ExitCode.PARTLY_FAILED)
        return QueueAnswer(request, found)

    if request.output:
        refuse_unwritable(request.output)
    answer = with_queues(request.settings, measured)
    if request.output:
        write_text(request.output, gauges_text(answer.found), masked=False)
    return answer


def health_document(result: QueueAnswer[HealthRequest, Sequence[QueueHealth]]) -> Document:
    json = {
        **result.request.home,
        "queues": [_health_json(health) for health in result.found],
        "exit": int(result.exit),
    }
    lines = list[str]()
    for health in result.found:
        lines += _lines(health)
    return Document(json, lines, result.exit)


def _health_json(health: QueueHealth) -> dict[str, Any]:
    figures = health.figures
    json = {
        "queue": figures.queue,
        "healthy": not health.reasons,
        "reasons": [plain(reason) for reason in health.reasons],
        **fields_json(figures, "mails", "delayed", "exact", "oldest_at"),
        "broker": plain(figures.depth),
    }
    if figures.tabled:
        return json | fields_json(figures, *STARTS, "furthest_start", "lacking", "marks_expire")
    json["topics"] = None
    if figures.topics:
        json["topics"] = _topics_json(figures.topics)
    return json


def _topics_json(topics: TopicFigures) -> dict[str, Any]:
    return {
        **fields_json(topics, "namespace", "deletions", "stretches", "unread"),
        "overdue_seconds": topics.overdue.total_seconds(),
        "policies": {topic: plain(policy) for topic, policy in topics.policies.items()},
    }


def _lines(health: QueueHealth) -> list[str]:
    figures = health.figures
    about = "" if figures.exact else "about "
    if not health.reasons:
        delayed = figures.delayed or 0
        return [f"{figures.queue} is well: {about}{figures.mails:,} mails wait, {delayed:,} are delayed."]
    wait = "how many mails wait is not known"
    if figures.mails is not None:
        wait = f"{about}{figures.mails:,} mails wait"
    reasons = [f"  {reason.what}\n    -> {reason.mend}" for reason in health.reasons]
    return [f"{figures.queue} is not well ({wait}):", *reasons]


def metrics_document(result: QueueAnswer[MetricsRequest, Sequence[MeasuredQueue]]) -> Document:
    away = {figures.broker_away for figures, _ in result.found if figures.broker_away}
    remarks = [f"the broker's figures are missing: {why}" for why in sorted(away)]
    body = list[Part]()
    if not result.request.output:
        body.append(Verbatim(gauges_text(result.found)))
    return Document(None, body, result.exit, remarks)


OVER_MAX: Final = timedelta(minutes=10)


HEALTH: Final = Command(
    name="health",
    summary="Whether a queue is well, and why not.",
    about="""Writes nothing. Faults are: the browse start is older than 7 days; the browse start was moved back; no
    sweep ran for half of the time by which rows outlive mails; a mail stays longer than the tables are made for;
    dead letters; the broker lacks messages of mails that have waited for a minute (looked at twice, 6 s apart; where
    consumers run, it needs --broker-management); mails wait and no consumer takes any; the broker does not answer.
    Marks that never expire, in tables that James made, are named, but are no fault.

    Over Pulsar, where no table is read: dead letters; mails that no consumer takes; delayed mails more than 5 minutes
    late, because `queue tend` does not run; deletions that pile up; a broker that is away; and Pulsar's policies in
    force for each topic: messages or subscriptions expire, a backlog quota drops the oldest mails or is nearly full,
    idle topics are deleted, done mails are kept for ever, delayed delivery is off or bounded, or acknowledgements lie
    in almost more stretches than a broker remembers. Each fault comes with the pulsar-admin command that mends it.
    Only an administrator of the tenant may read policies; where they cannot be read, that is said, and is no fault.""",
    service="mailmend.admin.queue.health:queue_health",
    present="mailmend.admin.queue.health:health_document",
    paged=True,
    options=(QUEUE_ARGUMENT, ALL, NO_BROKER),
    shared=(queue_settings(broker=unless("no_broker")),),
    examples="""
        mailmend queue health --all
        mailmend queue health outgoing --json | jq '.queues[].reasons'""",
    exits="0 well, 1 something is wrong (each reason is named), 2 wrong use, 4 the cluster cannot be reached.",
)

METRICS: Final = Command(
    name="metrics",
    summary="Figures of a queue for Prometheus.",
    about="""How much waits, since when, how fast it goes. Writes no table. mailmend_queue_mails, _delayed_mails,
    _size_exact, _oldest_age_seconds, _browse_start_age_seconds, _content_start_lag_seconds, _last_sweep_age_seconds,
    _enqueued_per_second, _marked_per_second, _broker_up, _broker_ready, _broker_unacked, _broker_consumers,
    _broker_lacking, _broker_dead_letters, _trouble (1 where health names it). Over Pulsar also _deletions and
    _overdue_seconds, and nothing about slices, sweeps and marks. What a process of the queue counts itself
    (delivered, retried, ...) is in the file of `mailmend queue tend --metrics-file`.""",
    service="mailmend.admin.queue.health:queue_metrics",
    present="mailmend.admin.queue.health:metrics_document",
    paged=True,
    options=(
        QUEUE_ARGUMENT,
        option("--output", "Write to this file, whole or not at all.", type=FILE, metavar="FILE"),
        option(
            "--over",
            "Time between the two looks that measure rates; 0 leaves the rates out.",
            type=Duration(OVER_MAX),
            default="5s",
        ),
        ALL,
        NO_BROKER,
    ),
    shared=(queue_settings(broker=unless("no_broker")),),
    output=(),
    examples="""
        mailmend queue metrics --all
        mailmend queue metrics --all --output /var/lib/node_exporter/mailmend_queue.prom      from cron, each minute""",
    exits="0 written, 2 wrong use, 3 the broker does not answer (the rest is written), 4 the cluster cannot be "
    "reached.",
)
