"""A mail's message for the broker: James's JSON of the mail, to the byte, and our headers.

Reading takes what any James may have written: fields that are missing or null where it has a default, whole seconds,
ISO instants, fields that are not known here. Golden files that James 3.8.1 wrote are read and written by the tests.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from mailmend.mailqueue.broker import ATTEMPTS_HEADER, SLICE_HEADER, Broker, Message
from mailmend.mailqueue.codec.attributes import priority_of
from mailmend.mailqueue.rules.james_json import (
    filled_text_of,
    in_millis,
    instant_of,
    json_bytes,
    mapping_of,
    object_in,
    optional,
    refuse,
    seconds_of,
    text_of,
    texts_of,
    uuid_of,
)
from mailmend.mailqueue.rules.mails import Mail, MailBlobs, QueuedMail, RecipientHeader
from mailmend.mailqueue.rules.slices import EPOCH, millis_of
from mailmend.model.errors import BadPayload
from mailmend.model.ids import BlobId, EnqueueId, QueueName

BODY_BYTES_MAX: Final = 128 * 2**20
"""A larger body is not parsed: no broker takes such messages unless it is configured to."""

STATE_DEFAULT: Final = "root"
HOST_DEFAULT: Final = ("127.0.0.1", "localhost")
"""Remote address and host of a mail that names neither: James's own defaults."""

_NULL_SENDERS: Final = frozenset({"", "<>"})


def payload_of(queued: QueuedMail) -> bytes:
    """The mail as James writes it in a message's body; `last_updated` is cut to milliseconds."""
    mail = queued.mail
    updated = queued.mail.last_updated
    fields = {
        "enqueueId": str(queued.enqueue_id),
        "recipients": mail.recipients,
        "name": mail.name,
        "sender": mail.sender,
        "state": mail.state,
        "errorMessage": mail.error_message,
        "lastUpdated": None if updated is None else seconds_of(in_millis(updated) - EPOCH),
        "attributes": mail.attributes,
        "remoteAddr": mail.remote_addr,
        "remoteHost": mail.remote_host,
        "perRecipientHeaders": _by_recipient(mail.recipient_headers),
        "headerBlobId": queued.blobs.header,
        "bodyBlobId": queued.blobs.body,
    }
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
    return None if sender in _NULL_SENDERS else sender


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
    return attempts if isinstance(attempts, int) and attempts > 0 else 0


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
        attributes={
            name: text_of(value, f"attributes[{name}]")
            for name, value in mapping_of(fields.get("attributes"), "attributes").items()
        },
        recipient_headers=tuple(headers_in(fields.get("perRecipientHeaders"))),
    )


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
