"""Messages of James's Pulsar queue: a mail, a filter, a deletion and a checkpoint, to the byte.

James 3.9 writes every field, null where there is nothing; 3.8 leaves such fields out, and differs
in how it escapes. Both are read, whatever is written here; golden messages that both wrote are read
and written by the tests.

The payload of such a message is a filter that James can read and that holds for no mail: James
bounds filters by a number that each of its producers counts anew, so one that it applied would drop
mails that come later.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from uuid import UUID

from mailmend.mailqueue.codec.messages import queued_in
from mailmend.mailqueue.rules.deletions import DeletedMail, FilterKind, Reach, TopicProgress
from mailmend.mailqueue.rules.james_json import (
    Escapes,
    in_millis,
    json_text,
    mapping_of,
    object_in,
    refuse,
    text_of,
    texts_of,
)
from mailmend.mailqueue.rules.mails import QueuedMail, RecipientHeader
from mailmend.mailqueue.rules.places import EntryPosition, MessagePlace, TopicPlace, position_of
from mailmend.model.errors import BadPayload
from mailmend.model.ids import EnqueueId

_FIELDS: Final = 13
"""How many fields the payload of James 3.9 has."""


class PulsarForm(Enum):
    """Which James wrote a message, or is to read it."""

    JAMES_3_9 = "3.9"
    JAMES_3_8 = "3.8"


@dataclass(frozen=True, slots=True)
class JamesFilter:
    """A deletion as James publishes it: every mail of that name, sender or recipient, up to a number of its sender's.

    Attributes:
        last_sequence_id: of the last message of the topic, by its producer's own counting: it means nothing for
            messages of another producer.
    """

    kind: FilterKind
    value: str
    last_sequence_id: int


def pulsar_payload_of(queued: QueuedMail, form: PulsarForm = PulsarForm.JAMES_3_9) -> str:
    """The mail as James writes it in a message of Pulsar's; `last_updated` is cut to milliseconds."""
    mail = queued.mail
    last_updated = None
    if mail.last_updated is not None:
        last_updated = _iso(in_millis(mail.last_updated).isoformat(timespec="milliseconds"))
    fields = {
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
        "perRecipientHeaders": _by_recipient(mail.recipient_headers),
        "headerBlobId": queued.blobs.header,
        "bodyBlobId": queued.blobs.body,
    }
    text = _written(fields, form)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadPayload(f"the mail {queued.enqueue_id} holds half a surrogate pair") from None
    return text


def pulsar_queued_of(payload: bytes) -> QueuedMail:
    return queued_in(payload, _headers_in)


def form_of(payload: bytes) -> PulsarForm | None:
    """Which James wrote a mail; None where both would have written the same.

    Raises:
        BadPayload: it is no mail.
    """
    fields = object_in(payload, "the message")
    if len(fields) < _FIELDS:
        return PulsarForm.JAMES_3_8
    if None in fields.values():
        return PulsarForm.JAMES_3_9
    return None


def filter_text(one: JamesFilter, form: PulsarForm = PulsarForm.JAMES_3_9) -> str:
    last: Any = one.last_sequence_id
    if form is PulsarForm.JAMES_3_8:
        last = {"value": last}
    return _written({one.kind.word: {one.kind.field: one.value, "lastSequenceId": last}}, form)


def filter_of(payload: bytes) -> JamesFilter:
    """A filter that any James wrote.

    Raises:
        BadPayload: the payload is not valid.
    """
    fields = object_in(payload, "the filter")
    kind = next((filter_kind for filter_kind in FilterKind if filter_kind.word in fields), None)
    if kind is None:
        refuse("the filter", "is of no known kind")
    inner = mapping_of(fields[kind.word], kind.word)
    last = inner.get("lastSequenceId")
    if isinstance(last, Mapping):
        last = last.get("value")
    if isinstance(last, bool) or not isinstance(last, int):
        refuse("lastSequenceId", "is not a whole number")
    return JamesFilter(kind, text_of(inner.get(kind.field), kind.field), last)


def _written(fields: Mapping[str, Any], form: PulsarForm) -> str:
    if form is PulsarForm.JAMES_3_9:
        return json_text(fields, Escapes.CIRCE)
    return json_text({name: value for name, value in fields.items() if value is not None})


def _iso(text: str) -> str:
    """As Java writes an instant: no fraction where it is a whole second."""
    return text.replace("+00:00", "Z").replace(".000Z", "Z")


def _by_recipient(headers: Iterable[RecipientHeader]) -> Mapping[str, list[Mapping[str, Any]]]:
    """By recipient, then by name; both in the order of first occurrence."""
    found: dict[str, dict[str, list[str]]] = {}
    for header in headers:
        found.setdefault(header.recipient, {}).setdefault(header.name, []).append(header.value)
    fields: dict[str, list[Mapping[str, Any]]] = {}
    for recipient, named in found.items():
        fields[recipient] = [{"key": name, "values": values} for name, values in named.items()]
    return fields


def _headers_in(value: Any) -> Iterable[RecipientHeader]:
    for place, (recipient, headers) in enumerate(mapping_of(value, "perRecipientHeaders").items()):
        field = f"perRecipientHeaders[{place}]"
        if not isinstance(headers, list):
            refuse(field, "is not a list")
        for header in headers:
            one = mapping_of(header, field)
            name = text_of(one.get("key"), f"{field}.key")
            for text in texts_of(one.get("values"), f"{field}.values"):
                yield RecipientHeader(recipient, name, text)


FOR_NO_MAIL: Final = JamesFilter(FilterKind.NAME, "", -1)


def deleted_text(mails: Sequence[DeletedMail]) -> str:
    """By topic: the ids of mails and the places of their messages."""
    found: dict[str, list[list[str]]] = {}
    for mail in mails:
        found.setdefault(mail.where.topic, []).append([mail.enqueue_id.hex, str(mail.where.place)])
    return json_text(found)


def deleted_in(text: str) -> tuple[DeletedMail, ...]:
    """Read what `deleted_text` writes.

    Raises:
        BadPayload: it is something else.
    """
    mails: list[DeletedMail] = []
    for topic, pairs in object_in(text, "the deletion").items():
        mails += [_deleted_mail(topic, pair) for pair in _list(pairs, "the deletion")]
    return tuple(mails)


def progress_text(progress: TopicProgress) -> str:
    return json_text(
        {"heard": _reach_text(progress.heard), "last": _reach_text(progress.last), "acked": _reach_text(progress.acked)}
    )


def progress_in(text: str) -> TopicProgress:
    """Read what `progress_text` writes.

    Raises:
        BadPayload: it is something else.
    """
    fields = object_in(text, "the checkpoint")
    heard = _reach(fields.get("heard"), "heard")
    last = _reach(fields.get("last"), "last")
    acked = _reach(fields.get("acked"), "acked")
    return TopicProgress(heard, last, acked)


def _deleted_mail(topic: str, pair: Any) -> DeletedMail:
    try:
        enqueue_id, place = (text_of(part, "a deleted mail") for part in _list(pair, "a deleted mail"))
        return DeletedMail(EnqueueId(UUID(hex=enqueue_id)), TopicPlace(topic, MessagePlace.parse(place)))
    except ValueError:
        refuse("a deleted mail", "is not an id and a place")


def _reach_text(reach: Reach) -> Mapping[str, Mapping[str, str]]:
    texts: dict[str, dict[str, str]] = {}
    for topic, partitions in reach.items():
        of_topic = texts.setdefault(topic, {})
        for number, (ledger, entry) in partitions.items():
            of_topic[str(number)] = f"{ledger}:{entry}"
    return texts


def _reach(found: Any, name: str) -> Reach:
    reach: dict[str, dict[int, EntryPosition]] = {}
    for topic, partitions in mapping_of(found, name).items():
        of_topic = reach.setdefault(topic, {})
        for number, text in mapping_of(partitions, name).items():
            partition, position = _position(number, text_of(text, name))
            of_topic[partition] = position
    return reach


def _position(number: str, text: str) -> tuple[int, EntryPosition]:
    try:
        return int(number), position_of(text)
    except ValueError:
        refuse("a position", "is not a position")


def _list(found: Any, name: str) -> list[Any]:
    if not isinstance(found, list):
        refuse(name, "is not a list")
    return found
