"""What documents share: values as JSON, instants, mails.

Addresses are shown, as an operator looks for them; contents only where they were asked for.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

from admin.present.document import Document, Grid, Part
from admin.services.queue.request import QueueRequest
from admin.wiring.queues import MailContent
from mailqueue.codec import priority_of
from model.errors import ExitCode
from model.projections.verdicts import Verdict
from model.queue.filters import NULL_SENDER
from model.queue.health import days
from model.queue.mails import Listed

MAIL_COLUMNS: Final = ("id", "enqueued", "age", "state", "sender", "recipients", "name", "where")
MAIL_WRAPPED: Final = frozenset({"sender", "recipients", "name", "where"})
MAILS_PAPER_COLUMNS: Final = 200
RECIPIENTS_SHOWN: Final = 3
IDS_SHOWN: Final = 20
"""How many ids of each kind a person is shown; `--json` names all."""

NOTHING_WRITTEN: Final = "Nothing was written."


class QueueResult(Protocol):
    """What a service of one queue returns."""

    @property
    def request(self) -> QueueRequest: ...

    @property
    def exit(self) -> ExitCode: ...


def queue_document(
    result: QueueResult,
    json: Mapping[str, Any],
    body: Sequence[Part],
    remarks: Sequence[str] = (),
) -> Document:
    """A result about one queue: its JSON begins with keyspace (or namespace) and queue."""
    request = result.request
    document = {**request.home, "queue": request.queue, **plain(json), "exit": int(result.exit)}
    return Document(document, body, result.exit, remarks)


def counts_json(counts: Mapping[Verdict, int]) -> dict[str, int]:
    """Counts by verdict name, without zeros, in the order of the verdicts."""
    return {verdict.value: counts[verdict] for verdict in Verdict if counts.get(verdict)}


def plain(value: Any) -> Any:
    """A value as JSON: a dataclass by its fields, an instant in UTC with milliseconds, a set sorted."""
    found = value
    match value:
        case datetime():
            found = instant_text(value)
        case Enum():
            found = value.value
        case UUID() | Path():
            found = str(value)
        case Mapping():
            found = {str(plain(name)): plain(one) for name, one in value.items()}
        case AbstractSet():
            found = sorted(map(plain, value))
        case list() | tuple():
            found = list(map(plain, value))
        case _ if is_dataclass(value):
            found = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            pass
    return found


def fields_json(value: Any, *names: str) -> dict[str, Any]:
    """These fields of a value as JSON, under their own names."""
    return {name: plain(getattr(value, name)) for name in names}


def instant_text(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else None


def shown(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def mail_json(listed: Listed, now: datetime, content: MailContent | None = None) -> dict[str, Any]:
    queued = listed.queued
    mail = listed.queued.mail
    document = {
        "id": str(queued.enqueue_id),
        "name": mail.name,
        "sender": mail.sender,
        "recipients": list(mail.recipients),
        "state": mail.state,
        "error_message": mail.error_message,
        "priority": priority_of(mail),
        "enqueued_at": instant_text(listed.enqueued_at),
        "age_seconds": round((now - listed.enqueued_at).total_seconds(), 3),
        "where": listed.whereabouts.value,
        "due_at": instant_text(listed.due_at),
        "attempts": listed.attempts,
        "slice": instant_text(listed.slice_start),
        "header_blob": queued.blobs.header,
        "body_blob": queued.blobs.body,
    }
    if content is None:
        return document
    encoded = b64encode(content.content).decode() if content.content is not None else None
    return {**document, "content_base64": encoded, "content_missing": content.missing}


def mails_table(title: str, mails: Sequence[Listed], now: datetime) -> Grid:
    rows = [_mail_cells(mail, now) for mail in mails]
    return Grid(title, MAIL_COLUMNS, rows, MAIL_WRAPPED, MAILS_PAPER_COLUMNS)


def _mail_cells(listed: Listed, now: datetime) -> Sequence[str]:
    mail = listed.queued.mail
    due = f", due {shown(listed.due_at)}" if listed.due_at else ""
    more = len(mail.recipients) - RECIPIENTS_SHOWN
    recipients = ", ".join(mail.recipients[:RECIPIENTS_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
    return (
        str(listed.queued.enqueue_id),
        listed.enqueued_at.astimezone(UTC).strftime("%m-%d %H:%M:%S"),
        days(now - listed.enqueued_at),
        printable(mail.state),
        printable(mail.sender or NULL_SENDER),
        printable(recipients),
        printable(mail.name),
        listed.whereabouts.value + due,
    )


def printable(text: str, kept: str = "", instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """The text without control characters (those in `kept` stay): a file or a sender must not steer the terminal."""
    return "".join(one if one.isprintable() or one in kept else instead for one in text)


def first_ids(title: str, ids: Sequence[object], total: int, rest: str = "") -> list[str]:
    if not ids:
        return []
    lines = [title, *(f"    {one}" for one in ids[:IDS_SHOWN])]
    return [*lines, f"    and {total - IDS_SHOWN:,} more{rest}"] if total > IDS_SHOWN else lines
