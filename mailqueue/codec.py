"""A mail as James has it: its message for the broker, its rows, and its attributes.

*Messages* are James's JSON of the mail, to the byte, and our headers. Reading takes what any James
may have written: fields that are missing or null where it has a default, whole seconds, ISO
instants, fields that are not known here. Golden files that James 3.8.1 wrote are read and written
by the tests.

*Rows* are of enqueuedMailsV4, as James writes and reads them, and of our own dueMails, which keep
the same. Instants are cut to milliseconds, as Cassandra's timestamps are, so that a row reads back
as it was made. A row that no mail can be made of (half of it deleted, or written by an unknown
program) raises `BadPayload` with the column's name.

*Attributes* are for Python callers: James's AttributeValue as JSON text, and back. Each value says
what kind it is of: `{"serializer": "IntSerializer", "value": 5}`. Kinds of James's own that Python
has nothing for stay what they are: their parsed JSON.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from mailmend.mailqueue.broker import ATTEMPTS_HEADER, SLICE_HEADER, Broker, Message
from mailmend.mailqueue.rules.james_json import (
    filled_text_of,
    in_millis,
    instant_of,
    json_bytes,
    json_text,
    mapping_of,
    object_in,
    optional,
    refuse,
    seconds_of,
    text_of,
    texts_of,
    uuid_of,
)
from mailmend.mailqueue.rules.mails import (
    PRIORITIES,
    PRIORITY_ATTRIBUTE,
    PRIORITY_NORMAL,
    Listed,
    Mail,
    MailBlobs,
    QueuedMail,
    RecipientHeader,
    Whereabouts,
)
from mailmend.mailqueue.rules.slices import EPOCH, millis_of
from mailmend.model.errors import BadPayload, WrongUse
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.table import Row

_KINDS: Final = frozenset(
    f"{kind}Serializer" for kind in ("Boolean", "Int", "Long", "String", "Bytes", "Collection", "Map")
)
_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)


def attribute(value: Any) -> str:
    """The JSON text of a text, whole number, flag, bytes, or a list or mapping of them.

    Raises:
        WrongUse: James has no kind for it.
    """
    return json_text(_described(value))


def attribute_value(text: str) -> Any:
    try:
        return _value_of(object_in(text, "the attribute"))
    except RecursionError:
        raise BadPayload("the attribute is not one that anybody reads: it nests too deep") from None


def is_attribute(text: str) -> bool:
    """Whether James reads the text as an attribute; contents of unknown kinds are not checked."""
    try:
        return _is_typed(object_in(text, "the attribute"))
    except (BadPayload, RecursionError):
        return False


def priority_of(mail: Mail) -> int:
    """The mail's priority, 0 to 9; the normal one where it has none that can be read."""
    text = mail.attributes.get(PRIORITY_ATTRIBUTE)
    if text is None:
        return PRIORITY_NORMAL
    try:
        value = attribute_value(text)
    except BadPayload:
        return PRIORITY_NORMAL
    if isinstance(value, int) and not isinstance(value, bool) and value in PRIORITIES:
        return value
    return PRIORITY_NORMAL


def with_priority(mail: Mail, priority: int) -> Mail:
    """The same mail with that priority.

    Raises:
        WrongUse: it is not one from 0 to 9.
    """
    if priority not in PRIORITIES:
        raise WrongUse(
            f"{priority} is not a priority", mend="Priorities go from 0, the last, to 9, the first; 5 is normal."
        )
    return replace(mail, attributes={**mail.attributes, PRIORITY_ATTRIBUTE: attribute(int(priority))})


def _described(value: Any) -> Mapping[str, Any]:  # noqa: PLR0911 - one for each kind
    match value:
        case bool():
            return _kind("BooleanSerializer", value)
        case int() if value in _INT:
            return _kind("IntSerializer", value)
        case int() if value in _LONG:
            return _kind("LongSerializer", value)
        case str():
            return _kind("StringSerializer", value)
        case bytes():
            return _kind("BytesSerializer", b64encode(value).decode())
        case list() | tuple():
            return _kind("CollectionSerializer", [_described(part) for part in value])
        case Mapping():
            return _kind("MapSerializer", {str(name): _described(part) for name, part in value.items()})
        case _:
            raise WrongUse(
                f"James has no attribute of the kind {type(value).__name__}",
                mend="Give a text, whole number, flag, bytes, or a list or mapping of them.",
            )


def _kind(serializer: str, value: Any) -> Mapping[str, Any]:
    return {"serializer": serializer, "value": value}


def _is_number(value: int, allowed: range) -> bool:
    return not isinstance(value, bool) and value in allowed


def _value_of(serialised: Any) -> Any:  # noqa: PLR0911 - one for each kind
    match serialised:
        case {"serializer": "BooleanSerializer", "value": bool(value)}:
            return value
        case {"serializer": "IntSerializer", "value": int(value)} if _is_number(value, _INT):
            return value
        case {"serializer": "LongSerializer", "value": int(value)} if _is_number(value, _LONG):
            return value
        case {"serializer": "StringSerializer", "value": str(value)}:
            return value
        case {"serializer": "BytesSerializer", "value": str(value)}:
            return _bytes_in(value)
        case {"serializer": "CollectionSerializer", "value": list(value)}:
            return [_value_of(part) for part in value]
        case {"serializer": "MapSerializer", "value": dict(value)}:
            return {name: _value_of(part) for name, part in value.items()}
        case _:
            return serialised


def _is_typed(serialised: Any) -> bool:
    """In one pass: a mail of many recipients has an attribute with as many parts."""
    match serialised:
        case {"serializer": "CollectionSerializer", "value": list(parts)}:
            return all(map(_is_typed, parts))
        case {"serializer": "MapSerializer", "value": dict(parts)}:
            return all(map(_is_typed, parts.values()))
        case _:
            return _is_scalar(serialised)


def _is_scalar(serialised: Any) -> bool:
    if _value_of(serialised) is not serialised:
        return True
    match serialised:
        case {"serializer": str(serializer), "value": _}:
            return serializer not in _KINDS
        case _:
            return False


def _bytes_in(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise BadPayload("the attribute is not base64") from None


BODY_BYTES_MAX: Final = 128 * 2**20
"""A larger body is not parsed: no broker takes such messages unless it is configured to."""

STATE_DEFAULT: Final = "root"
HOST_DEFAULT: Final = ("127.0.0.1", "localhost")
"""Remote address and host of a mail that names neither: James's own defaults."""

_NULL_SENDERS: Final = frozenset({"", "<>"})


def fields_of(queued: QueuedMail, last_updated: object, headers: object) -> Mapping[str, Any]:
    """The fields of a mail's message, in James's order.

    Brokers differ in how they write the time and the headers of recipients.
    """
    mail = queued.mail
    return {
        "enqueueId": str(queued.enqueue_id),
        "recipients": mail.recipients,
        "name": mail.name,
        "sender": mail.sender,
        "state": mail.state,
        "errorMessage": mail.error_message,
        "lastUpdated": last_updated,
        "attributes": mail.attributes,
        "remoteAddr": mail.remote_addr,
        "remoteHost": mail.remote_host,
        "perRecipientHeaders": headers,
        "headerBlobId": queued.blobs.header,
        "bodyBlobId": queued.blobs.body,
    }


def payload_of(queued: QueuedMail) -> bytes:
    """The mail as James writes it in a message's body; `last_updated` is cut to milliseconds."""
    mail = queued.mail
    last_updated = None
    if mail.last_updated is not None:
        last_updated = seconds_of(in_millis(mail.last_updated) - EPOCH)
    fields = fields_of(queued, last_updated, _by_recipient(mail.recipient_headers))
    try:
        return json_bytes(fields)
    except UnicodeEncodeError:
        raise BadPayload(f"the mail {queued.enqueue_id} holds half a surrogate pair") from None


def queued_of(body: bytes) -> QueuedMail:
    return queued_in(body, _headers_in)


def queued_in(body: bytes, headers_in: Callable[[Any], Iterable[RecipientHeader]]) -> QueuedMail:
    """The mail in a message's body; `headers_in` reads its perRecipientHeaders, which James writes in two forms."""
    if len(body) > BODY_BYTES_MAX:
        refuse("the message's body", f"has more than {BODY_BYTES_MAX:,} bytes")
    fields = object_in(body, "the message's body")
    enqueue_id = EnqueueId(uuid_of(fields.get("enqueueId"), "enqueueId"))
    mail = _mail_of(fields, headers_in)
    return QueuedMail(enqueue_id, mail, blobs_of(fields.get("headerBlobId"), fields.get("bodyBlobId")))


def blobs_of(header: Any, body: Any) -> MailBlobs:
    return MailBlobs(BlobId(filled_text_of(header, "headerBlobId")), BlobId(filled_text_of(body, "bodyBlobId")))


def sender_of(value: Any) -> str | None:
    """The sender; None for the null sender in any form."""
    sender: str | None = optional(text_of, value, "sender")
    if sender in _NULL_SENDERS:
        return None
    return sender


def message_of(queued: QueuedMail, slice_start: datetime | None, attempts: int = 0) -> Message:
    headers: dict[str, int | str] = {}
    if slice_start is not None:
        headers[SLICE_HEADER] = millis_of(slice_start)
    if attempts:
        headers[ATTEMPTS_HEADER] = attempts
    return Message(payload_of(queued), headers)


def slice_of_message(message: Message) -> datetime | None:
    """The start of the slice of the mail's row; None where James published it."""
    millis = message.headers.get(SLICE_HEADER)
    if not isinstance(millis, int):
        return None
    try:
        return EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return None


def attempts_of(message: Message) -> int:
    attempts = message.headers.get(ATTEMPTS_HEADER)
    if isinstance(attempts, int) and attempts > 0:
        return attempts
    return 0


async def publish_mail(
    broker: Broker, queue: QueueName, queued: QueuedMail, slice_start: datetime | None, attempts: int = 0
) -> None:
    await broker.publish(queue, message_of(queued, slice_start, attempts), priority_of(queued.mail))


def _mail_of(fields: Mapping[str, Any], headers_in: Callable[[Any], Iterable[RecipientHeader]]) -> Mail:
    def text_or(field: str, default: str | None) -> Any:
        return optional(text_of, fields.get(field), field, default)

    addr, host = HOST_DEFAULT
    return Mail(
        name=text_of(fields.get("name"), "name"),
        recipients=texts_of(fields.get("recipients"), "recipients"),
        sender=sender_of(fields.get("sender")),
        state=text_or("state", STATE_DEFAULT),
        error_message=text_or("errorMessage", None),
        remote_addr=text_or("remoteAddr", addr),
        remote_host=text_or("remoteHost", host),
        last_updated=optional(instant_of, fields.get("lastUpdated"), "lastUpdated"),
        attributes=_attributes_in(fields.get("attributes")),
        recipient_headers=tuple(headers_in(fields.get("perRecipientHeaders"))),
    )


def _attributes_in(value: Any) -> Mapping[str, str]:
    attributes = {}
    for name, text in mapping_of(value, "attributes").items():
        attributes[name] = text_of(text, f"attributes[{name}]")
    return attributes


def _by_recipient(headers: Iterable[RecipientHeader]) -> Mapping[str, Mapping[str, Mapping[str, list[str]]]]:
    """By recipient, then by name; both in the order of first occurrence."""
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for header in headers:
        found.setdefault(header.recipient, {"header": {}})["header"].setdefault(header.name, []).append(header.value)
    return found


def _headers_in(value: Any) -> Iterable[RecipientHeader]:
    for place, (recipient, headers) in enumerate(mapping_of(value, "perRecipientHeaders").items()):
        field = f"perRecipientHeaders[{place}]"
        for name, values in mapping_of(mapping_of(headers, field).get("header"), f"{field}.header").items():
            for text in texts_of(values, f"{field}.header[{name}]"):
                yield RecipientHeader(recipient, name, text)


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


def due_row_of(  # noqa: PLR0917 - the row has seven parts
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
        _queued_of_row(row),
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
        _queued_of_row(row),
        instant_of(_there(row, "enqueuedtime"), "enqueuedtime"),
        Whereabouts.DELAYED,
        due_at=instant_of(_there(row, "dueat"), "dueat"),
        attempts=row.get("attempts") or 0,
    )


def _mail_columns(enqueued_at: datetime, queued: QueuedMail) -> Row:
    mail = queued.mail
    last_updated = None
    if mail.last_updated is not None:
        last_updated = in_millis(mail.last_updated)
    headers = [(header.recipient, header.name, header.value) for header in mail.recipient_headers]
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
        "lastupdated": last_updated,
        "perrecipientspecificheaders": tuple(headers),
    }


def _queued_of_row(row: Row) -> QueuedMail:
    enqueue_id = EnqueueId(uuid_of(row.get("enqueueid"), "enqueueid"))
    return QueuedMail(enqueue_id, _mail_of_row(row), blobs_of(row.get("headerblobid"), row.get("bodyblobid")))


def _mail_of_row(row: Row) -> Mail:
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
    if value is None:
        refuse(column, "is missing")
    return value
