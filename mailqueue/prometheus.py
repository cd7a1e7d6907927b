"""Metrics in Prometheus's text format, and the metrics of queues; the only module that imports Prometheus's library.

`PrometheusCounts` has a registry of its own, so that two services in one process do not meet in the global one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.metrics import QueueCount, QueueFigures, QueueRates, judged, problems_of
from mailmend.mailqueue.rules.health import HealthProblem
from mailmend.model.ids import QueueName
from mailmend.model.metrics import Metric, MetricSample

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""The content type of an HTTP answer with a text of this module."""

OF_STARTS: Final = (
    HealthProblem.BROWSE_START_OLD,
    HealthProblem.MOVED_BACK,
    HealthProblem.NOT_SWEPT,
    HealthProblem.MARKS_EXPIRE_FIRST,
)
"""Problems of a queue that are seen without a look at its mails or its broker."""


class PrometheusCounts:
    """One Prometheus counter for each kind, with the queue as its label: `mailmend_queue_acked_total{queue="spool"}`.

    Args:
        registry: where the counters live; a new one by default.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry or CollectorRegistry()
        self._counters: dict[QueueCount, Counter] = {}
        for count, metric in COUNTS.items():
            self._counters[count] = Counter(metric.name, metric.meaning, metric.labels, registry=self._registry)

    def add(self, name: QueueCount, queue: QueueName, n: int = 1) -> None:
        self._counters[name].labels(queue=queue).inc(n)

    def text(self) -> str:
        return generate_latest(self._registry).decode()


class _Samples(Collector):
    def __init__(self, samples: Iterable[MetricSample]) -> None:
        self._families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        values: dict[tuple[Metric, tuple[str, ...]], float] = {}
        for sample in samples:
            values[sample.metric, sample.labels] = sample.value
        for (metric, labels), value in values.items():
            kind: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily
            if metric.kind == "counter":
                kind = CounterMetricFamily
            family = self._families.setdefault(metric.name, kind(metric.name, metric.meaning, labels=metric.labels))
            family.add_metric(labels, value)

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        return self._families.values()


def metrics_text(samples: Iterable[MetricSample]) -> str:
    """The samples in Prometheus's text format; of two with the same metric and labels, the last counts."""
    registry = CollectorRegistry()
    registry.register(_Samples(samples))
    return generate_latest(registry).decode()


def samples_in(text: str, metrics: Iterable[Metric]) -> Iterator[MetricSample]:
    """The samples of those metrics in such a text.

    Raises:
        ValueError: it is no such text.
    """
    known = {metric.name: metric for metric in metrics}
    try:
        families = list(text_string_to_metric_families(text))
    except (IndexError, TypeError, AttributeError) as error:  # of the library's parser, on some texts
        raise ValueError("these are no metrics") from error
    for family in families:
        for name, labels, value, *_ in family.samples:
            if metric := known.get(name):
                yield MetricSample(metric, tuple(labels.get(label, "") for label in metric.labels), value)


def gauges_text(looks: Iterable[tuple[QueueFigures, QueueRates | None]]) -> str:
    """The figures in Prometheus's text format; figures that are None are left out."""
    samples: list[MetricSample] = []
    for figures, rates in looks:
        samples.extend(queue_samples(figures, rates))
    return metrics_text(samples)


def queue_samples(figures: QueueFigures, rates: QueueRates | None = None) -> Iterator[MetricSample]:
    yield from _gauges(figures, _COUNTED)
    yield from start_samples(figures, problems_of(figures))
    if rates is None:
        return
    for metric, of_rates in _RATES:
        yield MetricSample(metric, (figures.queue,), of_rates(rates))


def start_samples(figures: QueueFigures, problems: Iterable[HealthProblem] = OF_STARTS) -> Iterator[MetricSample]:
    """What the starts and the last sweep tell, without a look at any mail.

    Each of these metrics is 1 or 0, so that alerts need not wait for a series to appear.
    """
    yield from _gauges(figures, _STARTS)
    present = {reason.trouble for reason in judged(figures)}
    for problem in problems:
        yield MetricSample(PROBLEM, (figures.queue, problem.value), problem in present)


def _gauges(figures: QueueFigures, table: "_Figures") -> Iterator[MetricSample]:
    for metric, of_figures in table:
        value = of_figures(figures)
        if value is not None:
            yield MetricSample(metric, (figures.queue,), value)


def _of_depth(value: Callable[[Depth], int | None]) -> Callable[[QueueFigures], float | None]:
    def of_figures(figures: QueueFigures) -> float | None:
        if figures.depth is None:
            return None
        return value(figures.depth)

    return of_figures


def _deletions(figures: QueueFigures) -> float | None:
    if figures.topics is None:
        return None
    return figures.topics.deletions


def _overdue(figures: QueueFigures) -> float | None:
    if figures.topics is None:
        return None
    return figures.topics.overdue.total_seconds()


def _answers(figures: QueueFigures) -> float | None:
    if figures.depth is None and figures.broker_away is None:
        return None
    return figures.broker_away is None


def _alarms(figures: QueueFigures) -> float | None:
    if figures.depth is None or not figures.tabled:
        return None
    return len(figures.depth.alarms)


def _marks_expire(figures: QueueFigures) -> float | None:
    if not figures.tabled:
        return None
    return figures.marks_expire


def _exact(figures: QueueFigures) -> float | None:
    if figures.mails is None:
        return None
    return figures.exact


def _age(figures: QueueFigures, since: datetime | None) -> float | None:
    if since is None:
        return None
    return (figures.at - since).total_seconds()


def _lag(figures: QueueFigures) -> float | None:
    """The span between content start and browse start, not yet swept."""
    browse = figures.browse_start
    content = figures.content_start
    if browse is None or content is None:
        return None
    return max(timedelta(), browse - content).total_seconds()


def _epoch(at: datetime | None) -> float | None:
    if at is None:
        return None
    return at.timestamp()


_Figures = Sequence[tuple[Metric, Callable[[QueueFigures], float | None]]]


def _metric(name: str, meaning: str, no_alert: str = "") -> Metric:
    return Metric(f"mailmend_queue_{name}", meaning, ("queue",), no_alert=no_alert)


_IN_TROUBLE: Final = "A wrong value is a trouble of the queue, with its alert"
_TRAFFIC: Final = "Informational: the traffic. A mail that stays too long is a trouble of the queue"
_COUNT: Final = "Counts of one process since its start. A person acts on the troubles of the queue"


PROBLEM: Final = Metric("mailmend_queue_trouble", "Whether the queue has this trouble", ("queue", "trouble"))
COUNTS: Final[Mapping[QueueCount, Metric]] = {
    count: Metric(f"mailmend_queue_{count.word}_total", count.meaning, ("queue",), _COUNT) for count in QueueCount
}
_STARTS: Final[_Figures] = (
    (
        _metric("browse_start_age_seconds", "Age of the browse start: what every listing reads", _IN_TROUBLE),
        lambda figures: _age(figures, figures.browse_start),
    ),
    (_metric("content_start_lag_seconds", "Slices before the browse start that are not swept yet, as time"), _lag),
    (
        _metric("last_sweep_timestamp_seconds", "End of the last sweep", _IN_TROUBLE),
        lambda figures: _epoch(figures.swept_at),
    ),
    (
        _metric("last_sweep_age_seconds", "Time since the last sweep", _IN_TROUBLE),
        lambda figures: _age(figures, figures.swept_at),
    ),
    (
        _metric("marks_expire", "Whether the marks of removed mails expire", _IN_TROUBLE),
        _marks_expire,
    ),
    (_metric("looked_at_timestamp_seconds", "When the queue was looked at"), lambda figures: _epoch(figures.at)),
)
_COUNTED: Final[_Figures] = (
    (_metric("mails", "Mails that wait", _TRAFFIC), lambda figures: figures.mails),
    (_metric("delayed_mails", "Mails that are not due yet", _TRAFFIC), lambda figures: figures.delayed),
    (
        _metric(
            "size_exact",
            "Whether the numbers of waiting and delayed mails are counts (1) or estimates (0)",
            "Informational: how to read these two numbers",
        ),
        _exact,
    ),
    (
        _metric("oldest_age_seconds", "Age of the mail that has waited longest", _IN_TROUBLE),
        lambda figures: _age(figures, figures.oldest_at),
    ),
    (_metric("broker_up", "Whether the broker answers, where it was asked", _IN_TROUBLE), _answers),
    (
        _metric("deletions", "Messages about deletions that a queue over topics keeps", _IN_TROUBLE),
        _deletions,
    ),
    (
        _metric("overdue_seconds", "Delay of the most overdue mail in a topic", _IN_TROUBLE),
        _overdue,
    ),
    (_metric("broker_ready", "Messages that wait in the broker", _TRAFFIC), _of_depth(lambda depth: depth.ready)),
    (
        _metric("broker_unacked", "Messages that consumers have and have not acknowledged", _TRAFFIC),
        _of_depth(lambda depth: depth.unacked),
    ),
    (
        _metric("broker_lacking", "Mails that wait and surely have no message", _IN_TROUBLE),
        lambda figures: figures.lacking,
    ),
    (_metric("broker_consumers", "Consumers", _IN_TROUBLE), _of_depth(lambda depth: depth.consumers)),
    (
        _metric("broker_alarms", "Alarms for which the broker takes no new messages", _IN_TROUBLE),
        _alarms,
    ),
    (
        _metric("broker_dead_letters", "Messages in the dead letter queue", _IN_TROUBLE),
        _of_depth(lambda depth: depth.dead),
    ),
)
_RATES: Final[Sequence[tuple[Metric, Callable[[QueueRates], float]]]] = (
    (_metric("enqueued_per_second", "Mails that came, between two looks", _TRAFFIC), lambda rates: rates.enqueued),
    (_metric("marked_per_second", "Mails that left, between two looks", _TRAFFIC), lambda rates: rates.marked),
)
QUEUE_METRICS: Final = (
    *(metric for metric, _ in (*_COUNTED, *_STARTS, *_RATES)),
    PROBLEM,
    *COUNTS.values(),
)
"""Every metric of queues."""
