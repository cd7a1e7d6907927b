"""Lists of queues, their sizes, mails, health and metrics, as documents."""

from collections.abc import Sequence
from typing import Any, Final

from admin.present.document import Document, Part, Table, Verbatim
from admin.present.queue.values import mail_json, mails_table, plain, printable, queue_document, shown
from admin.services.queue.health import HealthRequest, Measured, MetricsRequest, QueueHealth
from admin.services.queue.listing import BrowsedMail, BrowseResult, QueueOverview, SizeRequest
from admin.services.queue.request import QueueAnswer, QueueRequest
from admin.wiring import MailContent
from mailqueue.metrics import gauges_text
from model.queue.size import CountedBy, Size, SizeKind

_QUEUE_COLUMNS: Final = ("queue", "waiting", "delayed", "counted", "browse start", "content start", "last sweep")


def list_document(result: QueueAnswer[QueueRequest, Sequence[QueueOverview]]) -> Document:
    keyspace = result.request.keyspace
    queues = [
        {
            "queue": one.name,
            **plain(one.size),
            **plain({"browse_start": one.browse_start, "content_start": one.content_start, "swept_at": one.swept_at}),
        }
        for one in result.found
    ]
    body: Part = f"{keyspace} has no queue yet: nothing was ever enqueued."
    if result.found:
        body = Table(f"Queues of {keyspace}", _QUEUE_COLUMNS, [_cells(one) for one in result.found])
    return Document({"keyspace": keyspace, "queues": queues, "exit": 0}, (body,))


def _cells(one: QueueOverview) -> tuple[str, ...]:
    about = "" if one.size.kind is SizeKind.EXACT else "about "
    starts = [shown(at) if at else "" for at in (one.browse_start, one.content_start, one.swept_at)]
    return (one.name, f"{about}{one.size.mails:,}", f"{one.size.delayed:,}", one.size.counted_by.value, *starts)


def size_document(result: QueueAnswer[SizeRequest, Size]) -> Document:
    size, queue = result.found, result.request.queue
    about = "" if size.kind is SizeKind.EXACT else "About "
    delayed = f", {size.delayed:,} are delayed" if size.delayed else ""
    counted = "counted row by row" if size.counted_by is CountedBy.METADATA else "by the tallies"
    line = f"{about}{size.mails:,} mails wait in {queue}{delayed} ({counted}, {size.slices_read:,} slices)."
    return queue_document(result, plain(size), (line,))


def browse_document(result: BrowseResult) -> Document:
    """A page of mails; unreadable rows are remarks."""
    remarks = [
        f"not readable: {row.enqueue_id} in the slice of {row.slice_start:%Y-%m-%d %H:%M:%S}: {row.problem}"
        for row in result.broken
    ]
    if result.request.lines:
        return Document(exit=result.exit, remarks=remarks)
    token = result.next.token if result.next else None
    json = {"mails": [browsed_json(one) for one in result.mails], "next": token}
    return queue_document(result, json, _page(result, token), remarks)


def browsed_json(mail: BrowsedMail) -> dict[str, Any]:
    return mail_json(mail.listed, mail.at, mail.content)


def _page(result: BrowseResult, token: str | None) -> list[Part]:
    queue = result.request.queue
    if not result.mails:
        return [f"No mail of {queue} matches."]
    body: list[Part] = [mails_table(f"Mails of {queue}", [one.listed for one in result.mails], result.mails[0].at)]
    for one in result.mails:
        if one.content is not None:
            body += [f"--- {one.listed.queued.enqueue_id}", _text(one.content)]
    if token:
        body.append(f"There are more. Next: mailmend queue browse --queue {queue} --after {token}")
    return body


def _text(content: MailContent) -> str:
    if content.content is None:
        return f"(its content is missing: blob {content.missing})"
    return printable(content.content.decode("utf-8", "replace").replace("\r\n", "\n"), kept="\n\t")


def health_document(result: QueueAnswer[HealthRequest, Sequence[QueueHealth]]) -> Document:
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
    """Prometheus's text form; empty where the figures went into a file."""
    away = {figures.broker_away for figures, _ in result.found if figures.broker_away}
    remarks = [f"the broker's figures are missing: {why}" for why in sorted(away)]
    body = () if result.request.output else (Verbatim(gauges_text(result.found)),)
    return Document(None, body, result.exit, remarks)
