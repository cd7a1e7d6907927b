"""The health and the metrics of queues, as documents."""

from collections.abc import Sequence
from typing import Any

from admin.present.document import Document, Verbatim
from admin.present.queue.values import plain
from admin.services.queue.health import HealthRequest, Measured, MetricsRequest, QueueHealth
from admin.services.queue.request import QueueAnswer
from mailqueue.metrics import gauges_text


def health_document(result: QueueAnswer[HealthRequest, Sequence[QueueHealth]]) -> Document:
    """Every queue, and what is wrong with it."""
    json = {
        "keyspace": result.request.keyspace,
        "queues": [_health_json(one) for one in result.found],
        "exit": int(result.exit),
    }
    return Document(json, [line for one in result.found for line in _lines(one)], result.exit)


def _health_json(one: QueueHealth) -> dict[str, Any]:
    figures = one.figures
    return {
        "queue": figures.queue,
        "healthy": not one.reasons,
        "reasons": [plain(reason) for reason in one.reasons],
        "mails": figures.mails,
        "delayed": figures.delayed,
        "exact": figures.exact,
        "oldest_at": plain(figures.oldest_at),
        "browse_start": plain(figures.browse_start),
        "content_start": plain(figures.content_start),
        "furthest_start": plain(figures.furthest_start),
        "swept_at": plain(figures.swept_at),
        "broker": plain(figures.depth),
    }


def _lines(one: QueueHealth) -> list[str]:
    figures, about = one.figures, "" if one.figures.exact else "about "
    if not one.reasons:
        return [f"{figures.queue} is well: {about}{figures.mails:,} mails wait, {figures.delayed:,} are delayed."]
    reasons = [f"  {reason.what}\n    -> {reason.mend}" for reason in one.reasons]
    return [f"{figures.queue} is not well ({about}{figures.mails:,} mails wait):", *reasons]


def metrics_document(result: QueueAnswer[MetricsRequest, Sequence[Measured]]) -> Document:
    """The figures in Prometheus's text form; nothing where they went into a file."""
    away = {figures.broker_away for figures, _ in result.found if figures.broker_away}
    remarks = [f"the broker's figures are missing: {why}" for why in sorted(away)]
    body = () if result.request.output else (Verbatim(gauges_text(result.found)),)
    return Document(None, body, result.exit, remarks)
