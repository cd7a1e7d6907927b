"""What requests about a queue and their answers share.

These are the queue, the mails, the question before a command is carried out, and what is shown.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.frame.values import fields_json, instant_text, plain, printable, shown
from mailmend.mailqueue.codec import priority_of
from mailmend.mailqueue.rules.health import days
from mailmend.mailqueue.rules.mails import NULL_SENDER, Listed, MailFilter, Whereabouts
from mailmend.model.errors import ExitCode, UnsafeRequest
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.instants import instant_before

Q_co = TypeVar("Q_co", bound="QueueRequest", covariant=True)
T_co = TypeVar("T_co", covariant=True)

PAGE_MAILS: Final = 100
PREFETCH_DEFAULT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    """A request about a queue; its result refers to it."""

    settings: QueueSettings

    @property
    def queue(self) -> QueueName:
        return self.settings.name

    @property
    def home(self) -> Mapping[str, str]:
        """The keyspace of its tables; of a queue over Pulsar, which has none, the namespace of its topics."""
        if self.settings.pulsar:
            return {"namespace": self.settings.pulsar.namespace}
        return {"keyspace": self.settings.connection.keyspace}

    @property
    def place(self) -> str:
        """The name of either."""
        return next(iter(self.home.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunRequest(QueueRequest):
    """A request that writes, or with `dry_run` only looks."""

    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class QueueAnswer(Generic[Q_co, T_co]):
    """A request and its result."""

    request: Q_co
    found: T_co
    exit: ExitCode = ExitCode.FINE


@dataclass(frozen=True, slots=True)
class MailSelection:
    """A selection of mails, relative to the time of the request; every field None: all of them."""

    sender: str | None = None
    recipient: str | None = None
    name: str | None = None
    state: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    ids: tuple[UUID, ...] = ()
    where: str | None = None

    def at(self, now: datetime) -> MailFilter:
        whereabouts = None
        if self.where:
            whereabouts = Whereabouts(self.where)
        return MailFilter(
            sender=self.sender,
            recipient=self.recipient,
            name=self.name,
            state=self.state,
            older_than_at=instant_before(now, self.older_than),
            newer_than_at=instant_before(now, self.newer_than),
            enqueue_ids=frozenset(map(EnqueueId, self.ids)) or None,
            whereabouts=whereabouts,
        )


def confirm(question: str, caller: Caller, *, yes: bool) -> None:
    """Ask a person to agree.

    Raises:
        UnsafeRequest: there is no terminal to ask on, or the answer was no.
    """
    if yes:
        return
    if caller.ask is None:
        raise UnsafeRequest(
            f"there is no terminal to ask on: {question}", mend="Look first with --dry-run; then say --yes."
        )
    if not caller.ask(question):
        raise UnsafeRequest("nothing was done", mend="Say --yes, or answer with y.")


@dataclass(frozen=True, slots=True)
class MailContent:
    """A mail's bytes; None, and the id of the missing blob, where they cannot be read."""

    content: bytes | None
    missing: BlobId | None = None


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
