"""Counters of a queue, and gauges from its figures; the only module that imports Prometheus's library.

`PrometheusCounts` has a registry of its own, so that two services in one process do not meet in the global one.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from mailqueue.health import HealthProblem, QueueFigures, judged
from mailqueue.metrics import QueueCount, QueueRates
from model.ids import QueueName
from model.queue.messages import Depth


class PrometheusCounts:
    """One Prometheus counter for each kind, with the queue as its label: `mailmend_queue_acked_total{queue="spool"}`.

    Args:
        registry: where the counters live; a new one by default.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry or CollectorRegistry()
        self._counters = {
            count: Counter(f"mailmend_queue_{count.word}", count.meaning, ("queue",), registry=self._registry)
            for count in QueueCount
        }

    def add(self, name: QueueCount, queue: QueueName, n: int = 1) -> None:
        self._counters[name].labels(queue=queue).inc(n)

    def text(self) -> str:
        return generate_latest(self._registry).decode()


def gauges_text(looks: Iterable[tuple[QueueFigures, QueueRates | None]]) -> str:
    """The figures in Prometheus's text format; figures that are None are left out."""
    registry, found = CollectorRegistry(), list(looks)
    for name, meaning, of_figures in _GAUGES:
        _gauge(registry, name, meaning, ((one.queue, of_figures(one)) for one, _ in found))
    for name, meaning, of_pace in _RATES:
        _gauge(registry, name, meaning, ((one.queue, of_pace(pace) if pace else None) for one, pace in found))
    _troubles(registry, (one for one, _ in found))
    return generate_latest(registry).decode()


def _gauge(
    registry: CollectorRegistry, name: str, meaning: str, values: Iterable[tuple[QueueName, float | None]]
) -> None:
    known = [(queue, value) for queue, value in values if value is not None]
    if known:
        gauge = Gauge(f"mailmend_queue_{name}", meaning, ("queue",), registry=registry)
        for queue, value in known:
            gauge.labels(queue=queue).set(value)


def _troubles(registry: CollectorRegistry, looks: Iterable[QueueFigures]) -> None:
    """Every problem of every queue as 1 or 0, so that alerts need not wait for a series to appear."""
    gauge = Gauge("mailmend_queue_trouble", "Whether this is wrong", ("queue", "trouble"), registry=registry)
    for figures in looks:
        present = {reason.trouble for reason in judged(figures)}
        for trouble in HealthProblem:
            gauge.labels(queue=figures.queue, trouble=trouble.value).set(trouble in present)


def _of_depth(value: Callable[[Depth], int | None]) -> Callable[[QueueFigures], float | None]:
    return lambda figures: None if figures.depth is None else value(figures.depth)


def _answers(figures: QueueFigures) -> float | None:
    return None if figures.depth is None and figures.broker_away is None else figures.broker_away is None


def _age(figures: QueueFigures, since: datetime | None) -> float | None:
    return None if since is None else (figures.at - since).total_seconds()


def _lag(figures: QueueFigures) -> float | None:
    """The span between content start and browse start, not yet swept."""
    browse, content = figures.browse_start, figures.content_start
    return max(timedelta(), browse - content).total_seconds() if browse and content else None


def _epoch(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


_GAUGES: Final[tuple[tuple[str, str, Callable[[QueueFigures], float | None]], ...]] = (
    ("mails", "Mails that wait", lambda figures: figures.mails),
    ("delayed_mails", "Mails that are not due yet", lambda figures: figures.delayed),
    ("size_exact", "Whether the two numbers are counts (1) or estimates (0)", lambda figures: figures.exact),
    ("oldest_age_seconds", "Age of the mail that has waited longest", lambda figures: _age(figures, figures.oldest_at)),
    (
        "browse_start_age_seconds",
        "Age of the browse start: what every listing reads",
        lambda figures: _age(figures, figures.browse_start),
    ),
    ("content_start_lag_seconds", "Slices before the browse start that are not swept yet, as time", _lag),
    ("last_sweep_timestamp_seconds", "End of the last sweep", lambda figures: _epoch(figures.swept_at)),
    ("last_sweep_age_seconds", "Time since the last sweep", lambda figures: _age(figures, figures.swept_at)),
    ("broker_up", "Whether the broker answers, where it was asked", _answers),
    ("broker_ready", "Messages that wait in the broker", _of_depth(lambda depth: depth.ready)),
    ("broker_unacked", "Messages in consumers' hands", _of_depth(lambda depth: depth.unacked)),
    ("broker_lacking", "Mails that wait and surely have no message", lambda figures: figures.lacking),
    ("broker_consumers", "Consumers", _of_depth(lambda depth: depth.consumers)),
    ("broker_alarms", "Alarms for which the broker takes no new messages", _of_depth(lambda depth: len(depth.alarms))),
    ("broker_dead_letters", "Messages in the dead letter queue", _of_depth(lambda depth: depth.dead)),
    ("looked_at_timestamp_seconds", "When this was looked at", lambda figures: _epoch(figures.at)),
)
_RATES: Final[tuple[tuple[str, str, Callable[[QueueRates], float]], ...]] = (
    ("enqueued_per_second", "Mails that came, between two looks", lambda pace: pace.enqueued),
    ("marked_per_second", "Mails that left, between two looks", lambda pace: pace.marked),
)
