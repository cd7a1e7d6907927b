"""The figures by which the health of a queue over Pulsar is judged."""

from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final

from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.health import FigureScope, QueueFigures
from mailmend.mailqueue.pulsar.broker.names import (
    DEAD_SUBSCRIPTION,
    OWN_SUBSCRIPTION,
    dead_topic,
    out_topic,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.pulsar.view.deletions import filter_topics
from mailmend.mailqueue.pulsar.view.listing import backlog_of, found, place_of
from mailmend.mailqueue.rules.deletions import KnownDeletions
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.mailqueue.rules.places import Backlog
from mailmend.mailqueue.rules.topic_health import TopicFigures, TopicPolicies
from mailmend.model.errors import BrokerDenied, CannotReach

OVERDUE_LOOKED_AT_MAX: Final = 1_000
"""The number of delayed mails that are checked for being late: the oldest ones."""


async def figures_of(parts: PulsarParts, scope: FigureScope) -> QueueFigures:
    """The figures; of a scope without what carries the mails, those alone that listings give.

    A broker that does not answer is one of them.
    """
    if scope is FigureScope.STARTS:
        return QueueFigures(parts.queue, parts.now, mails=None, delayed=None, tabled=False)
    try:
        return await _figures(parts, scope)
    except CannotReach as error:
        return QueueFigures(parts.queue, parts.now, mails=None, delayed=None, broker_away=error.what, tabled=False)


async def _figures(parts: PulsarParts, scope: FigureScope) -> QueueFigures:
    waiting, delayed = [
        await backlog_of(parts, whereabouts) for whereabouts in (Whereabouts.WAITING, Whereabouts.DELAYED)
    ]
    depth = None
    topics = None
    known = await parts.deletions.look()
    if scope is FigureScope.ALL:
        dead = await parts.topics.backlog(dead_topic(parts.queue), DEAD_SUBSCRIPTION) or Backlog()
        depth = Depth(waiting.count - waiting.unacked, waiting.unacked, waiting.consumers, dead.count)
        topics = await _of_topics(parts, waiting, delayed, known)
    mails = left(waiting, known, parts, Whereabouts.WAITING)
    later = left(delayed, known, parts, Whereabouts.DELAYED)
    return QueueFigures(
        parts.queue,
        parts.now,
        mails=mails,
        delayed=later,
        exact=not (known.has_james and mails + later),
        oldest_at=await _oldest_at(parts, known),
        depth=depth,
        tabled=False,
        topics=topics,
    )


def left(backlog: Backlog, known: KnownDeletions, parts: PulsarParts, whereabouts: Whereabouts) -> int:
    """How many mails of a topic are not deleted, as far as deletions name them."""
    topic, _ = place_of(whereabouts, parts.queue)
    return backlog.count - len(backlog.held({place.place for place in known.places if place.topic == topic}))


async def _of_topics(parts: PulsarParts, waiting: Backlog, delayed: Backlog, known: KnownDeletions) -> TopicFigures:
    queue = parts.queue
    filters = filter_topics(parts.queue)
    policies = dict[str, TopicPolicies]()
    unread = ""
    try:
        for topic in (out_topic(queue), scheduled_topic(queue), dead_topic(queue), *filters):
            if one := await parts.topics.policies(topic):
                policies[topic] = one
    except BrokerDenied as error:
        unread = error.what
    deletions = [await parts.topics.backlog(topic, OWN_SUBSCRIPTION) or Backlog() for topic in filters]
    return TopicFigures(
        parts.topics.namespace,
        policies,
        {out_topic(queue): waiting.stretches, scheduled_topic(queue): delayed.stretches},
        scheduled_topic(queue),
        sum(deletion.count for deletion in deletions),
        await _overdue(parts, known),
        unread,
    )


async def _overdue(parts: PulsarParts, known: KnownDeletions) -> timedelta:
    """By how much the mail that is late by most is late, among those that lie there longest."""
    earliest = parts.now
    looked_at = 0
    async with aclosing(found(parts, Whereabouts.DELAYED, known=known)) as mails:
        async for mail in mails:
            earliest = min(earliest, mail.listed.due_at or earliest)
            looked_at += 1
            if looked_at == OVERDUE_LOOKED_AT_MAX:
                break
    return parts.now - earliest


async def _oldest_at(parts: PulsarParts, known: KnownDeletions) -> datetime | None:
    async with aclosing(found(parts, Whereabouts.WAITING, known=known)) as mails:
        async for mail in mails:
            return mail.listed.enqueued_at
    return None
