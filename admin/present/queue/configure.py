"""The configuration of a keyspace's queues, as a document."""

from typing import Final

from admin.present.document import Document, Part, Table
from admin.services.queue.configure import ConfigureResult
from model.queue.configuration import DEFAULT, QueueConfiguration, window_text
from model.queue.slices import SECOND

_COLUMNS: Final = ("event", "slice window", "buckets", "pace")


def configure_document(result: ConfigureResult) -> Document:
    """What applies, what was set before, and what to do next."""
    request, after = result.request, result.after
    keyspace, properties = request.connection.keyspace, _james_properties(after) if after else None
    json = {
        "keyspace": keyspace,
        "before": _figures(result.before),
        "configuration": _figures(after),
        "changed": result.differs and not request.dry_run,
        "dry_run": request.dry_run,
        "history": [{"event": one.event_id, **(_figures(one.configuration) or {})} for one in result.history],
        "james_properties": properties,
        "exit": 0,
    }
    body: list[Part] = []
    if result.history:
        rows = [(str(one.event_id), *_cells(one.configuration)) for one in result.history]
        body.append(Table(f"How the queues of {keyspace} are cut", _COLUMNS, rows))
    body.append(_sentence(result))
    hints = []
    if result.differs and properties:
        lines = ", ".join(f"{name}={value}" for name, value in properties.items())
        hints.append(
            f"Next: start every process of these queues again{', after the change' if request.dry_run else ''}; a "
            f"James with {lines} in its rabbitmq.properties. How: mailmend runbook show change-slice-window"
        )
    return Document(json, body, hints=hints)


def _figures(configuration: QueueConfiguration | None) -> dict[str, int] | None:
    if configuration is None:
        return None
    slicing = configuration.slicing
    return {"slice_window_seconds": slicing.window // SECOND, "buckets": slicing.buckets, "pace": configuration.pace}


def _james_properties(configuration: QueueConfiguration) -> dict[str, str]:
    """The same as James's rabbitmq.properties has it."""
    return {
        "mailqueue.view.sliceWindow": window_text(configuration.slicing.window),
        "mailqueue.view.bucketCount": str(configuration.slicing.buckets),
        "mailqueue.view.updateBrowseStartPace": str(configuration.pace),
    }


def _sentence(result: ConfigureResult) -> str:
    if result.after is None:
        return (
            f"Nothing was set in {result.request.connection.keyspace} yet: whatever opens a queue first sets "
            f"{_in_words(DEFAULT)}, unless it is given other values."
        )
    if not result.differs:
        return f"What counts: {_in_words(result.after)}."
    return f"{'It may be set' if result.request.dry_run else 'Set'}: {_in_words(result.after)}."


def _in_words(configuration: QueueConfiguration) -> str:
    buckets = configuration.slicing.buckets
    cut = f"slices of {window_text(configuration.slicing.window)} in {buckets:,} bucket{'' if buckets == 1 else 's'}"
    return f"{cut}, the browse start moved on one of {configuration.pace:,} dequeues and deletes"


def _cells(configuration: QueueConfiguration) -> tuple[str, str, str]:
    slicing = configuration.slicing
    return (window_text(slicing.window), f"{slicing.buckets:,}", f"{configuration.pace:,}")
