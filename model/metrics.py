"""What a metric is, and one value of it; `mailqueue.prometheus` shows them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: one line of `docs/metrics.md`.

    Attributes:
        name: as it is exposed, in base units: a counter ends in `_total`.
        labels: with few values each; never a message, a user or a mailbox.
        no_alert: why no alert speaks of it; "" where one does.
    """

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    no_alert: str = ""

    @property
    def kind(self) -> Literal["gauge", "counter"]:
        """A counter only grows while its process lives; a gauge may fall."""
        if self.name.endswith("_total"):
            return "counter"
        return "gauge"


class MetricSample(NamedTuple):
    """One value of a metric; the labels' values are in the order of their names."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


def with_label(samples: Iterable[MetricSample], name: str, value: str) -> Iterator[MetricSample]:
    """The samples with one more label."""
    for sample in samples:
        metric = replace(sample.metric, labels=(*sample.metric.labels, name))
        yield MetricSample(metric, (*sample.labels, value), sample.value)
