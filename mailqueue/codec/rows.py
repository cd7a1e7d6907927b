"""Rows of a mail: of enqueuedMailsV4, as James writes and reads them, and of our own dueMails, which keep the same.

Instants are cut to milliseconds, as Cassandra's timestamps are, so that a row reads back as it was
made. A row that no mail can be made of (half of it deleted, or written by an unknown program)
raises `BadPayload` with the column's name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mailmend.mailqueue.codec.messages import HOST_DEFAULT, STATE_DEFAULT, blobs_of, sender_of
from mailmend.mailqueue.rules.james_json import (
    in_millis,
    instant_of,
    mapping_of,
    optional,
    refuse,
    text_of,
    texts_of,
    uuid_of,
)
from mailmend.mailqueue.rules.mails import Listed, Mail, QueuedMail, RecipientHeader, Whereabouts
from mailmend.model.errors import BadPayload
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.table import Row


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A row of enqueuedMailsV4 that no mail can be made of, by its key."""

    enqueue_id: EnqueueId
    slice_start: datetime
    bucket: int
    why: str


def row_of(queue: QueueName, slice_start: datetime, bucket: int, enqueued_at: datetime, queued: QueuedMail) -> Row:
    return {
        "queuename": queue,
        "timerangestart": slice_start,
        "bucketid": bucket,
        "enqueueid": queued.enqueue_id,
        **_mail_columns(enqueued_at, queued),
    }


def due_row_of(  # noqa: PLR0917 - a row of so many parts
    queue: QueueName,
    due_slice: datetime,
    bucket: int,
    due_at: datetime,
    attempts: int,
    enqueued_at: datetime,
    queued: QueuedMail,
) -> Row:
    return {
        "queuename": queue,
        "dueslice": due_slice,
        "bucketid": bucket,
        "dueat": in_millis(due_at),
        "enqueueid": queued.enqueue_id,
        "attempts": attempts,
        **_mail_columns(enqueued_at, queued),
    }


def listed_of(row: Row) -> Listed:
    return Listed(
        _queued_of(row),
        instant_of(_there(row, "enqueuedtime"), "enqueuedtime"),
        slice_start=instant_of(_there(row, "timerangestart"), "timerangestart"),
    )


def read_row(row: Row) -> Listed | BrokenRow:
    try:
        return listed_of(row)
    except BadPayload as error:
        return BrokenRow(EnqueueId(row["enqueueid"]), row["timerangestart"], row["bucketid"], error.what)


def due_listed_of(row: Row) -> Listed:
    return Listed(
        _queued_of(row),
        instant_of(_there(row, "enqueuedtime"), "enqueuedtime"),
        Whereabouts.DELAYED,
        due_at=instant_of(_there(row, "dueat"), "dueat"),
        attempts=row.get("attempts") or 0,
    )


def _mail_columns(enqueued_at: datetime, queued: QueuedMail) -> Row:
    mail = queued.mail
    return {
        "enqueuedtime": in_millis(enqueued_at),
        "name": mail.name,
        "state": mail.state,
        "headerblobid": queued.blobs.header,
        "bodyblobid": queued.blobs.body,
        "attributes": {name: value.encode() for name, value in mail.attributes.items()},
        "errormessage": mail.error_message,
        "sender": mail.sender,
        "recipients": mail.recipients,
        "remotehost": mail.remote_host,
        "remoteaddr": mail.remote_addr,
        "lastupdated": None if mail.last_updated is None else in_millis(mail.last_updated),
        "perrecipientspecificheaders": tuple(
            (header.recipient, header.name, header.value) for header in mail.recipient_headers
        ),
    }


def _queued_of(row: Row) -> QueuedMail:
    enqueue_id = EnqueueId(uuid_of(row.get("enqueueid"), "enqueueid"))
    return QueuedMail(enqueue_id, _mail_of(row), blobs_of(row.get("headerblobid"), row.get("bodyblobid")))


def _mail_of(row: Row) -> Mail:
    addr, host = HOST_DEFAULT
    return Mail(
        name=text_of(row.get("name"), "name"),
        recipients=texts_of(row.get("recipients") or (), "recipients"),
        sender=sender_of(row.get("sender")),
        state=optional(text_of, row.get("state"), "state", STATE_DEFAULT),
        error_message=optional(text_of, row.get("errormessage"), "errormessage"),
        remote_addr=optional(text_of, row.get("remoteaddr"), "remoteaddr", addr),
        remote_host=optional(text_of, row.get("remotehost"), "remotehost", host),
        last_updated=optional(instant_of, row.get("lastupdated"), "lastupdated"),
        attributes=_attributes_of(mapping_of(row.get("attributes"), "attributes")),
        recipient_headers=tuple(_headers_of(row.get("perrecipientspecificheaders") or ())),
    )


def _attributes_of(cells: Mapping[str, bytes]) -> Mapping[str, str]:
    return {name: _decoded(value, f"attributes[{name}]") for name, value in cells.items()}


def _decoded(value: bytes, field: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        refuse(field, "is not UTF-8")


def _headers_of(cells: Iterable[tuple[Any, ...]]) -> Iterable[RecipientHeader]:
    for place, cell in enumerate(cells):
        field = f"perrecipientspecificheaders[{place}]"
        match texts_of(cell, field):
            case (recipient, name, value):
                yield RecipientHeader(recipient, name, value)
            case _:
                refuse(field, "is not of 3 texts")


def _there(row: Row, column: str) -> Any:
    value = row.get(column)
    return refuse(column, "is missing") if value is None else value
