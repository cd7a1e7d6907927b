"""What several commands of queues show: the answer with its queue, and mails."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import fields_json, instant_text, plain, printable, shown
from mailmend.admin.queue.connections import MailContent
from mailmend.admin.queue.request import QueueRequest
from mailmend.mailqueue.codec import priority_of
from mailmend.mailqueue.rules.health import days
from mailmend.mailqueue.rules.mails import NULL_SENDER, Listed
from mailmend.model.errors import ExitCode


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


def mail_json(listed: Listed, now: datetime, content: MailContent | None = None) -> dict[str, Any]:
    queued = listed.queued
    mail = listed.queued.mail
    document = {
        "id": str(queued.enqueue_id),
        **fields_json(mail, "name", "sender", "recipients", "state", "error_message"),
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
    encoded = None
    if content.content is not None:
        encoded = b64encode(content.content).decode()
    return {**document, "content_base64": encoded, "content_missing": content.missing}


def mails_table(title: str, mails: Sequence[Listed], now: datetime) -> Grid:
    rows = [_mail_cells(mail, now) for mail in mails]
    return Grid(title, MAIL_COLUMNS, rows, MAIL_WRAPPED, MAILS_PAPER_COLUMNS)


def _mail_cells(listed: Listed, now: datetime) -> Sequence[str]:
    mail = listed.queued.mail
    where = listed.whereabouts.value
    if listed.due_at:
        where += f", due {shown(listed.due_at)}"
    recipients = ", ".join(mail.recipients[:RECIPIENTS_SHOWN])
    more = len(mail.recipients) - RECIPIENTS_SHOWN
    if more > 0:
        recipients += f" and {more:,} more"
    return (
        str(listed.queued.enqueue_id),
        listed.enqueued_at.astimezone(UTC).strftime("%m-%d %H:%M:%S"),
        days(now - listed.enqueued_at),
        printable(mail.state),
        printable(mail.sender or NULL_SENDER),
        printable(recipients),
        printable(mail.name),
        where,
    )


MAIL_COLUMNS: Final = ("id", "enqueued", "age", "state", "sender", "recipients", "name", "where")

MAIL_WRAPPED: Final = frozenset({"sender", "recipients", "name", "where"})

MAILS_PAPER_COLUMNS: Final = 200

RECIPIENTS_SHOWN: Final = 3

STARTS: Final = ("browse_start", "content_start", "swept_at")
