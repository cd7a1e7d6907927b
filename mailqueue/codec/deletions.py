"""Deletions and checkpoints as texts, which are properties of messages on James's topics of filters.

The payload of such a message is a filter that James can read and that holds for no mail: James bounds filters by a
number that each of its producers counts anew, so one that it applied would drop mails that come later.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from mailmend.mailqueue.codec.pulsar import JamesFilter
from mailmend.mailqueue.rules.deletions import DeletedMail, FilterKind, Reach, TopicProgress
from mailmend.mailqueue.rules.james_json import json_text, mapping_of, object_in, refuse, text_of
from mailmend.mailqueue.rules.places import EntryPosition, MessagePlace, TopicPlace, position_of
from mailmend.model.ids import EnqueueId

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
    return tuple(
        _deleted_mail(topic, pair)
        for topic, pairs in object_in(text, "the deletion").items()
        for pair in _list(pairs, "the deletion")
    )


def progress_text(progress: TopicProgress) -> str:
    return json_text(
        {"heard": _written(progress.heard), "last": _written(progress.last), "acked": _written(progress.acked)}
    )


def progress_in(text: str) -> TopicProgress:
    """Read what `progress_text` writes.

    Raises:
        BadPayload: it is something else.
    """
    fields = object_in(text, "the checkpoint")
    heard, last, acked = (_reach(fields.get(name), name) for name in ("heard", "last", "acked"))
    return TopicProgress(heard, last, acked)


def _deleted_mail(topic: str, pair: Any) -> DeletedMail:
    try:
        enqueue_id, place = (text_of(part, "a deleted mail") for part in _list(pair, "a deleted mail"))
        return DeletedMail(EnqueueId(UUID(hex=enqueue_id)), TopicPlace(topic, MessagePlace.parse(place)))
    except ValueError:
        refuse("a deleted mail", "is not an id and a place")


def _written(reach: Reach) -> Mapping[str, Mapping[str, str]]:
    return {
        topic: {str(number): f"{ledger}:{entry}" for number, (ledger, entry) in partitions.items()}
        for topic, partitions in reach.items()
    }


def _reach(found: Any, name: str) -> Reach:
    return {
        topic: dict(_position(number, text_of(text, name)) for number, text in mapping_of(partitions, name).items())
        for topic, partitions in mapping_of(found, name).items()
    }


def _position(number: str, text: str) -> tuple[int, EntryPosition]:
    try:
        return int(number), position_of(text)
    except ValueError:
        refuse("a position", "is not a position")


def _list(found: Any, name: str) -> list[Any]:
    if not isinstance(found, list):
        refuse(name, "is not a list")
    return found
