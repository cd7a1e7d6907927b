"""Metrics of a keyspace, alerts and dashboard, as documents."""

from mailmend.admin.frame.document import Document, Verbatim
from mailmend.admin.metrics.metrics_service import ExposedMetrics, ShippedFile


def exposed_document(result: ExposedMetrics) -> Document:
    remarks = [f"Not all could be read: {result.unread}."] if result.unread else ()
    return Document(None, () if result.output else (Verbatim(result.text),), result.exit, remarks)


def shipped_document(result: ShippedFile) -> Document:
    if result.output:
        return Document(files={result.output: result.text})
    return Document(body=(Verbatim(result.text),))
