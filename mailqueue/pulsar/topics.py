"""The interface of a broker of topics and its values, and mails as messages of topics. Adapters: `adapter`, and a twin.

The payload of a message is James's own. What James has no field for is in properties, which it
passes over: a mail that is published for the first time has none. Source: `PulsarMailQueue` of
James; golden data in tests/data/james-pulsar.

James 3.9 writes every field, null where there is nothing; 3.8 leaves such fields out, and differs
in how it escapes. Both are read, whatever is written here; golden messages that both wrote are read
and written by the tests, to the byte.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from mailmend.mailqueue.codec import fields_of, queued_in
from mailmend.mailqueue.pulsar.settings import PulsarForm, out_subscription, out_topic, scheduled_topic
from mailmend.mailqueue.rules.health import TopicPolicies
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
from mailmend.mailqueue.rules.mails import Listed, QueuedMail, RecipientHeader, Whereabouts
from mailmend.mailqueue.rules.places import Backlog, MessagePlace, TopicPlace
from mailmend.mailqueue.rules.slices import EPOCH, millis_of
from mailmend.model.errors import BadPayload
from mailmend.model.ids import QueueName


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message to be published.

    Attributes:
        event_at: when what it tells of happens; for a delayed mail, its due time. In milliseconds since 1970.
        deliver_at: before which the broker gives it to no consumer, though to readers; in
            milliseconds, too. Where it takes no such delay, it is the latest that it takes.
    """

    payload: str
    properties: Mapping[str, str] = field(default_factory=dict)
    event_at: int | None = None
    deliver_at: int | None = None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in its topic.

    Attributes:
        published_at: by the clock of its publisher.
        event_at: in milliseconds since 1970; 0 where none is set.
    """

    place: MessagePlace
    payload: bytes
    properties: Mapping[str, str]
    published_at: datetime
    event_at: int = 0


class TopicDelivery(Protocol):
    """A delivered message, to be acknowledged or given back, once."""

    @property
    def message(self) -> StoredMessage: ...

    @property
    def redelivered(self) -> bool:
        """Whether a consumer may have had it before: the broker remembers only while there are consumers."""
        ...

    async def ack(self) -> None:
        """Acknowledge it, also after its consumer has ended; a broker that dies soon after may forget that.

        Raises:
            BrokerUnreachable: it will be delivered again.
        """
        ...

    async def give_back(self) -> None:
        """Have it delivered again soon, to some consumer."""
        ...


class Following(Protocol):
    """Reads a topic as it grows; closed at the end."""

    async def news(self) -> list[StoredMessage]:
        """What had been published when this was called, and was not told before, in the order of its partitions.

        Raises:
            BrokerUnreachable: what was read until then is told next time.
        """
        ...

    def each(self) -> AsyncGenerator[StoredMessage]:
        """As `news`, one by one: however many there are, few are in memory. Each is told once, taken or not.

        Raises:
            BrokerUnreachable: go on with a new one.
        """
        ...

    async def close(self) -> None: ...


class TopicLease(Protocol):
    """What one process at a time may hold: it alone can publish to the topic of that name."""

    async def publish(self, message: TopicMessage) -> MessagePlace:
        """Publish, and return once the broker keeps it: so the lease was still held. All are in one partition.

        Raises:
            LeaseHeld: it is not, as the connection was lost; others may have it.
            PublishFailed: it was refused, or not confirmed in time (`doubtful`).
        """
        ...


class Topics(Protocol):
    """The topics of one namespace, by their short names. Every method may raise `BrokerUnreachable`."""

    namespace: str

    async def create(self, topic: str, subscription: str) -> None:
        """Make sure that they are there; a new subscription begins with the first message."""
        ...

    async def unsubscribe(self, topic: str, subscription: str) -> None:
        """Delete a subscription without consumers: it keeps nothing of the topic any longer; a missing one is fine."""
        ...

    async def publish(self, topic: str, message: TopicMessage) -> MessagePlace:
        """Publish, and return once the broker keeps it.

        Raises:
            PublishFailed: it was refused, or not confirmed in time (`doubtful`).
        """
        ...

    def consume(
        self, topic: str, subscription: str, prefetch: int
    ) -> AbstractAsyncContextManager[AsyncIterator[TopicDelivery]]:
        """Take messages, at most `prefetch` unacked in the caller's hands; shared with all other consumers.

        What is unacked at the end is delivered again.
        """
        ...

    async def acknowledge(self, topic: str, subscription: str, places: Collection[MessagePlace]) -> None:
        """Acknowledge messages, delivered or not; returns once the broker has it."""
        ...

    def unacked(
        self, topic: str, subscription: str, after: MessagePlace | None = None
    ) -> AsyncGenerator[StoredMessage]:
        """Every message that the subscription has not acknowledged, in order, without taking any.

        What is published, or acknowledged, while it is read may be among them or not.

        Args:
            topic: which; one that is not there holds nothing.
            subscription: which; one that is not there has acknowledged nothing.
            after: what was seen last.
        """
        ...

    async def follow(self, topic: str, subscription: str) -> Following:
        """Read a topic from what the subscription has not acknowledged on; both are created if missing."""
        ...

    async def backlog(self, topic: str, subscription: str) -> Backlog | None:
        """What the subscription has not acknowledged, if it is there; None where there is no such topic."""
        ...

    def held(self, topic: str, backlog: Backlog) -> AsyncGenerator[StoredMessage]:
        """The messages that a backlog holds, in their order, acknowledged since or not; what is gone is left out."""
        ...

    async def policies(self, topic: str) -> TopicPolicies | None:
        """What the broker does there automatically; None where there is no such topic.

        Raises:
            BrokerDenied: we may not read that.
        """
        ...

    def lease(self, name: str) -> AbstractAsyncContextManager[TopicLease | None]:
        """Hold a lease; None: another has it. It goes with its holder's connection."""
        ...

    async def names(self) -> list[str]:
        """Every persistent topic of the namespace, a partitioned one once.

        Raises:
            WrongUse: there is no such namespace.
        """
        ...

    async def product(self) -> str:
        """The server's name and version, such as `Pulsar 4.2.4`, once it has answered in every way that is used.

        Creates nothing.
        """
        ...

    async def close(self) -> None: ...


_FIELDS: Final = 13
"""How many fields the payload of James 3.9 has."""


def pulsar_payload_of(queued: QueuedMail, form: PulsarForm = PulsarForm.JAMES_3_9) -> str:
    """The mail as James writes it in a message of Pulsar's; `last_updated` is cut to milliseconds."""
    mail = queued.mail
    last_updated = None
    if mail.last_updated is not None:
        last_updated = _iso(in_millis(mail.last_updated).isoformat(timespec="milliseconds"))
    fields = fields_of(queued, last_updated, _by_recipient(mail.recipient_headers))
    text = form_text(fields, form)
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


def form_text(fields: Mapping[str, Any], form: PulsarForm) -> str:
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


ATTEMPTS: Final = "mailmend-attempts"
"""How often the mail was tried before."""

ENQUEUED_AT: Final = "mailmend-enqueued-at"
"""When the mail was enqueued first, in milliseconds since 1970, where that is not when its message was published."""

ORIGIN: Final = "mailmend-origin"
"""The place of the delayed message that this one replaces: it is acknowledged before this one is."""

REDRIVEN: Final = "mailmend-redriven"
"""The place of the dead letter that this message replaces: it is acknowledged before this one is."""

_MILLISECOND: Final = timedelta(milliseconds=1)


def waiting_message(listed: Listed, form: PulsarForm, properties: Mapping[str, str] | None = None) -> TopicMessage:
    """The message of a mail that is ready."""
    return TopicMessage(pulsar_payload_of(listed.queued, form), properties or {})


def delayed_message(listed: Listed, form: PulsarForm, properties: Mapping[str, str] | None = None) -> TopicMessage:
    """The message of a mail that is delayed: due at its `due_at`, which James reads in two places."""
    due_at = millis_of(listed.due_at or listed.enqueued_at)
    return TopicMessage(pulsar_payload_of(listed.queued, form), properties or {}, due_at, due_at)


def as_it_is(message: StoredMessage) -> TopicMessage:
    """What takes the place of a delayed message of which no mail can be made."""
    return TopicMessage(
        message.payload.decode(errors="surrogateescape"), {**message.properties, ORIGIN: str(message.place)}
    )


def story_of(listed: Listed, origin: MessagePlace | None = None) -> Mapping[str, str]:
    """The properties of a mail that was published before."""
    story = {ENQUEUED_AT: str(millis_of(listed.enqueued_at))}
    if listed.attempts:
        story[ATTEMPTS] = str(listed.attempts)
    if origin:
        story[ORIGIN] = str(origin)
    return story


def listed_of(message: StoredMessage, whereabouts: Whereabouts) -> Listed:
    """The mail of a message.

    Raises:
        BadPayload: the payload is not valid.
    """
    queued = pulsar_queued_of(message.payload)
    enqueued_at = message.published_at
    enqueued_millis = _number(message, ENQUEUED_AT)
    if enqueued_millis is not None:
        enqueued_at = EPOCH + enqueued_millis * _MILLISECOND
    listed = Listed(
        queued,
        enqueued_at,
        whereabouts,
        attempts=_number(message, ATTEMPTS) or 0,
        place=message.place,
    )
    if whereabouts is Whereabouts.WAITING:
        return listed
    return replace(listed, due_at=EPOCH + message.event_at * _MILLISECOND)


def origin_of(message: StoredMessage) -> MessagePlace | None:
    """The delayed message whose place this one takes; None where there is no such message, or it cannot be read."""
    return _place(message, ORIGIN)


def redriven_from(message: StoredMessage) -> MessagePlace | None:
    """The dead letter whose place this one takes; None in the same cases."""
    return _place(message, REDRIVEN)


def first_place(queue: QueueName, message: StoredMessage, whereabouts: Whereabouts) -> TopicPlace:
    """Where the message is, or the delayed one whose place it takes."""
    origin = origin_of(message)
    if origin is None and whereabouts is Whereabouts.WAITING:
        return TopicPlace(out_topic(queue), message.place)
    return TopicPlace(scheduled_topic(queue), origin or message.place)


def redriven_message(letter: StoredMessage, queued: QueuedMail, form: PulsarForm) -> TopicMessage:
    """A dead letter as a mail that is ready and was never tried.

    Its payload stays as it is, whichever James wrote it, unless some recipients are left out.
    """
    payload = letter.payload.decode()
    if queued != pulsar_queued_of(letter.payload):
        payload = pulsar_payload_of(queued, form)
    return TopicMessage(payload, {REDRIVEN: str(letter.place)})


def dead_letter(queue: QueueName, namespace: str, message: StoredMessage) -> TopicMessage:
    """A dead letter as Pulsar's own client makes it, which James's is; and which says since when the mail is there."""
    place = str(message.place)
    kept = {name: text for name, text in message.properties.items() if name not in {ORIGIN, REDRIVEN}}
    return TopicMessage(
        message.payload.decode(errors="surrogateescape"),
        {
            ENQUEUED_AT: str(millis_of(message.published_at)),
            **kept,
            "ORIGIN_MESSAGE_ID": place,
            "ORIGIN_MESSAGE_IDY_TIME": place,
            "REAL_SUBSCRIPTION": out_subscription(queue),
            "REAL_TOPIC": f"persistent://{namespace}/{out_topic(queue)}",
        },
    )


def _place(message: StoredMessage, name: str) -> MessagePlace | None:
    text = message.properties.get(name)
    if text is None:
        return None
    try:
        return MessagePlace.parse(text)
    except BadPayload:
        return None


def _number(message: StoredMessage, name: str) -> int | None:
    text = message.properties.get(name, "")
    if text.isascii() and text.isdecimal() and len(text) <= len(str(2**63)):
        return int(text)
    return None
