"""Mails as messages of topics, and back.

The payload is James's own. What James has no field for is in properties, which it passes over: a mail that is published
for the first time has none. Source: `PulsarMailQueue` of James; golden data in tests/data/james-pulsar.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from mailmend.mailqueue.codec.pulsar import PulsarForm, pulsar_payload_of, pulsar_queued_of
from mailmend.mailqueue.pulsar.broker.names import out_subscription, out_topic, scheduled_topic
from mailmend.mailqueue.pulsar.broker.topics import StoredMessage, TopicMessage
from mailmend.mailqueue.rules.mails import Listed, QueuedMail, Whereabouts
from mailmend.mailqueue.rules.places import MessagePlace, TopicPlace
from mailmend.mailqueue.rules.slices import EPOCH, millis_of
from mailmend.model.errors import BadPayload
from mailmend.model.ids import QueueName

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
    return {
        ENQUEUED_AT: str(millis_of(listed.enqueued_at)),
        **({ATTEMPTS: str(listed.attempts)} if listed.attempts else {}),
        **({ORIGIN: str(origin)} if origin else {}),
    }


def listed_of(message: StoredMessage, whereabouts: Whereabouts) -> Listed:
    """The mail of a message.

    Raises:
        BadPayload: the payload is not valid.
    """
    enqueued_at = _number(message, ENQUEUED_AT)
    listed = Listed(
        pulsar_queued_of(message.payload),
        message.published_at if enqueued_at is None else EPOCH + enqueued_at * _MILLISECOND,
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
    try:
        return None if text is None else MessagePlace.parse(text)
    except BadPayload:
        return None


def _number(message: StoredMessage, name: str) -> int | None:
    text = message.properties.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(2**63)) else None
