"""The configuration of a keyspace's queues, and advice on it, as documents."""

from typing import Final

from admin.present.advice import figures_json, figures_table, reasons_table
from admin.present.document import Document, Part, Table
from admin.services.queue.configure import ConfigureResult, QueueAdvised
from model.queue.configuration import DEFAULT, QueueConfiguration, window_text
from model.queue.slices import SECOND

_COLUMNS: Final = ("event", "slice window", "buckets", "pace")
_ADVICE_FIGURES: Final = ("mails_per_second", "peak_per_second", "longest_stay_seconds", "row_bytes", "nodes")
"""The figures that the configuration follows from."""


def configure_document(result: ConfigureResult) -> Document:
    """The current and the previous configuration, and what to do next."""
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
    """The configuration as James's rabbitmq.properties spells it."""
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


def advise_document(advised: QueueAdvised) -> Document:
    """The answer first, the reasons and figures after it, commands last."""
    advice = advised.advice
    command = _configure_command(advised) if advice.changes else None
    json = {
        "keyspace": advised.keyspace,
        "present": _advised_figures(advice.present) if advice.present else None,
        "advised": _advised_figures(advice.advised),
        "best": _advised_figures(advice.best),
        "changes": advice.changes,
        "command": command,
        "reasons": [{"setting": one.setting, "value": one.value, "why": one.why} for one in advice.reasons],
        "allowed": list(advice.allowed),
        "hindered": list(advice.hindered),
        "traffic": figures_json(advised.traffic, _ADVICE_FIGURES),
        "notes": list(advised.notes),
        "exit": 0,
    }
    body: list[Part] = [
        f"{'Set' if advice.changes else 'Keep'} {_advised_words(advice.advised)}.",
        f"Stored: {_advised_words(advice.present)}." if advice.present else "Stored: nothing.",
        *(f"  {sentence}" for sentence in (*advice.allowed, *advice.hindered)),
        "",
        reasons_table("Configuration", advice.reasons),
        figures_table(advised.traffic, _ADVICE_FIGURES),
        *(f"Note: {note}" for note in advised.notes),
        *((f"Next:\n  {command}",) if command else ()),
    ]
    return Document(json, body)


def _configure_command(advised: QueueAdvised) -> str:
    wanted = advised.advice.advised
    options = f"--slice-window {window_text(wanted.slicing.window)} --buckets {wanted.slicing.buckets}"
    return f"mailmend queue configure {options} --pace {wanted.pace} --keyspace {advised.keyspace}"


def _advised_words(configuration: QueueConfiguration) -> str:
    slicing = configuration.slicing
    buckets = f"{slicing.buckets} bucket{'' if slicing.buckets == 1 else 's'}"
    return f"slices of {window_text(slicing.window)}, {buckets}, pace {configuration.pace:,}"


def _advised_figures(configuration: QueueConfiguration) -> dict[str, int]:
    slicing = configuration.slicing
    return {"slice_seconds": slicing.window // SECOND, "buckets": slicing.buckets, "pace": configuration.pace}
