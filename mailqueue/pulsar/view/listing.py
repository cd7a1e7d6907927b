"""What a queue holds, read from its topics: from the first message on that is not acknowledged, no blob read."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from mailmend.mailqueue.pulsar.broker.messages import first_place, listed_of, origin_of, redriven_from
from mailmend.mailqueue.pulsar.broker.names import (
    DEAD_SUBSCRIPTION,
    dead_topic,
    out_subscription,
    out_topic,
    scheduled_subscription,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.broker.topics import StoredMessage, Topics
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.rules.deletions import KnownDeletions
from mailmend.mailqueue.rules.filters import EVERYTHING, MailFilter
from mailmend.mailqueue.rules.mails import Listed, Whereabouts
from mailmend.mailqueue.rules.places import Backlog, MessagePlace
from mailmend.mailqueue.rules.positions import ListingPosition
from mailmend.model.errors import BadPayload
from mailmend.model.ids import QueueName


@dataclass(frozen=True, slots=True)
class FoundMail:
    """A message of a queue, and its mail."""

    message: StoredMessage
    listed: Listed


OnUnreadable = Callable[[StoredMessage, BadPayload], None]


def ignored(_message: StoredMessage, _error: BadPayload) -> None:
    """Do nothing about a message that no mail can be made of."""


def place_of(where: Whereabouts, queue: QueueName) -> tuple[str, str]:
    """Topic and subscription of the waiting or of the delayed mails."""
    if where is Whereabouts.WAITING:
        return out_topic(queue), out_subscription(queue)
    return scheduled_topic(queue), scheduled_subscription(queue)


async def backlog_of(parts: PulsarParts, whereabouts: Whereabouts) -> Backlog:
    return await parts.topics.backlog(*place_of(whereabouts, parts.queue)) or Backlog()


async def read_mails(
    topics: Topics,
    place: tuple[str, str],
    whereabouts: Whereabouts,
    after: MessagePlace | None = None,
    on_unreadable: OnUnreadable = ignored,
) -> AsyncGenerator[FoundMail]:
    """The mails that a subscription of a topic has not acknowledged, in the topic's order."""
    async with aclosing(topics.unacked(*place, after)) as messages:
        async for message in messages:
            try:
                yield FoundMail(message, listed_of(message, whereabouts))
            except BadPayload as error:
                on_unreadable(message, error)


async def found(
    parts: PulsarParts,
    whereabouts: Whereabouts,
    where: MailFilter = EVERYTHING,
    after: MessagePlace | None = None,
    on_unreadable: OnUnreadable = ignored,
    *,
    known: KnownDeletions | None,
) -> AsyncGenerator[FoundMail]:
    """The matching mails of one topic, in its order; without those that are `known` to be deleted."""
    if where.whereabouts not in {None, whereabouts}:
        return
    place = place_of(whereabouts, parts.queue)
    async with aclosing(read_mails(parts.topics, place, whereabouts, after, on_unreadable)) as mails:
        async for mail in mails:
            if where.matches(mail.listed) and not (known and is_deleted(parts.queue, mail.message, mail.listed, known)):
                yield mail


def dead_letters(topics: Topics, queue: QueueName) -> AsyncGenerator[FoundMail]:
    """The mails among the dead letters."""
    return read_mails(topics, (dead_topic(queue), DEAD_SUBSCRIPTION), Whereabouts.WAITING)


def is_deleted(queue: QueueName, message: StoredMessage, listed: Listed, known: KnownDeletions) -> bool:
    return known.hold(listed, first_place(queue, message, listed.whereabouts))


async def acknowledged(parts: PulsarParts, some: Sequence[FoundMail]) -> None:
    """Acknowledge deleted mails, before them the dead letters whose place they took, and delete their bytes."""
    letters = [letter for mail in some if (letter := redriven_from(mail.message))]
    await parts.topics.acknowledge(dead_topic(parts.queue), DEAD_SUBSCRIPTION, letters)
    for whereabouts in {mail.listed.whereabouts for mail in some}:
        topic, subscription = place_of(whereabouts, parts.queue)
        places = [mail.message.place for mail in some if mail.listed.whereabouts is whereabouts]
        await parts.topics.acknowledge(topic, subscription, places)
    for mail in some:
        await parts.blob_cleanup.add(mail.listed.queued.blobs, dequeued=False)


async def browse(parts: PulsarParts, where: MailFilter, after: ListingPosition | None) -> AsyncGenerator[Listed]:
    """The matching mails: those that wait, then the delayed ones; each in the order of its topic.

    A delayed mail whose move to the others was interrupted is listed among these alone.
    """
    moved = set[MessagePlace]()
    behind = after.place if after else None
    known = await parts.deletions.look()
    if after is None or after.whereabouts is Whereabouts.WAITING:
        async with aclosing(found(parts, Whereabouts.WAITING, where, behind, known=known)) as waiting:
            async for mail in waiting:
                if origin := origin_of(mail.message):
                    moved.add(origin)
                yield mail.listed
        behind = None
    async with aclosing(found(parts, Whereabouts.DELAYED, where, behind, known=known)) as delayed:
        async for mail in delayed:
            if mail.message.place not in moved:
                yield mail.listed
