"""The mail queue over Pulsar: topics carry and list it, a blob store holds its bytes.

A broker that was killed may have forgotten acknowledgements. A consumer drops what is deleted; here
it is acknowledged again, so that James's consumers, who do not know of our deletions, do not get it
for long.

Any number of processes may open the same queue, James among them. The module that carries an
operation out describes how it keeps the promise of `mailqueue.queue.MailQueue`. Pulsar has no
priorities: one is kept with its mail, and ready mails of one consumer are handed out by it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import datetime, timedelta
from typing import Final

from mailmend.mailqueue.blobs.stores import content_of
from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.comparison import Redriven, TendedDeletions
from mailmend.mailqueue.concurrency import BackgroundJob, BackgroundTasks, BlobCleanup, in_batches, run_jobs
from mailmend.mailqueue.every_queue import checked_prefetch, moving_job
from mailmend.mailqueue.metrics import FigureScope, NoCounts, QueueCounts, QueueFigures, TrafficSums
from mailmend.mailqueue.pulsar.changes import (
    PulsarArrivals,
    PulsarRestoring,
    arrivals,
    enqueue,
    purge,
    redrive,
    remove,
    restoring,
)
from mailmend.mailqueue.pulsar.deletions import Deletions, checkpoint_message, filter_topics, notices
from mailmend.mailqueue.pulsar.dequeue import PulsarUnacked, dequeue
from mailmend.mailqueue.pulsar.moving import Mover
from mailmend.mailqueue.pulsar.parts import (
    FormOfQueue,
    PulsarParts,
    acknowledged,
    backlog_of,
    browse,
    found,
    is_deleted,
    place_of,
)
from mailmend.mailqueue.pulsar.settings import (
    DEAD_SUBSCRIPTION,
    OWN_SUBSCRIPTION,
    PulsarForm,
    dead_topic,
    filter_topic,
    out_topic,
    queues_among,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.topics import Topics
from mailmend.mailqueue.queue import (
    IDS_MAX,
    PREFETCH,
    AffectedMails,
    Delays,
    LackingMail,
    MailChange,
    MaintainedQueue,
    OnBroken,
    OnRemoved,
    SubQueueOf,
    all_lack_it,
    due_time,
    passed_over,
)
from mailmend.mailqueue.rules.deletions import (
    Checkpoint,
    KnownDeletions,
    Notice,
    progress_of,
    tending,
)
from mailmend.mailqueue.rules.health import TopicFigures, TopicPolicies
from mailmend.mailqueue.rules.mails import EVERYTHING, Listed, ListingPosition, Mail, MailFilter, Whereabouts
from mailmend.mailqueue.rules.places import Backlog
from mailmend.mailqueue.rules.size import CountedBy, Size, SizeKind
from mailmend.model.blobs import Blobs
from mailmend.model.errors import BrokerDenied, CannotReach
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.ports import Clock

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
    waiting = await backlog_of(parts, Whereabouts.WAITING)
    delayed = await backlog_of(parts, Whereabouts.DELAYED)
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
    places = {place.place for place in known.places if place.topic == topic}
    return backlog.count - len(backlog.held(places))


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
    deletions = 0
    for topic in filters:
        backlog = await parts.topics.backlog(topic, OWN_SUBSCRIPTION) or Backlog()
        deletions += backlog.count
    return TopicFigures(
        parts.topics.namespace,
        policies,
        {out_topic(queue): waiting.stretches, scheduled_topic(queue): delayed.stretches},
        scheduled_topic(queue),
        deletions,
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


AT_ONCE: Final = 500


async def tend_deletions(parts: PulsarParts, *, dry_run: bool = False) -> TendedDeletions:
    """One round; if two processes do it at once, nothing is lost, and some work is done twice."""
    lying = await notices(parts.topics, parts.queue)
    if not lying:
        return TendedDeletions()
    backlogs: dict[str, Backlog] = {}
    for whereabouts in Whereabouts:
        topic, _ = place_of(whereabouts, parts.queue)
        backlogs[topic] = await backlog_of(parts, whereabouts)
    again = 0
    for whereabouts in Whereabouts:
        again += await _gone_again(parts, whereabouts, lying, dry_run=dry_run)
    progress = progress_of(lying, backlogs)
    to_do = tending(lying, progress, parts.now)
    if not dry_run:
        form = await parts.form()
        for mails in to_do.merged:
            await parts.deletions.publish(form, mails)
        if to_do.checkpoint:
            await parts.topics.publish(filter_topic(parts.queue), checkpoint_message(progress, form))
        for topic in filter_topics(parts.queue):
            places = [place.place for place in to_do.expired if place.topic == topic]
            await parts.topics.acknowledge(topic, OWN_SUBSCRIPTION, places)
    deletions = {deletion.where for deletion in lying if not isinstance(deletion, Checkpoint)}
    left = deletions.difference(to_do.expired)
    return TendedDeletions(len(left) + len(to_do.merged), len(to_do.expired), again)


async def _gone_again(parts: PulsarParts, whereabouts: Whereabouts, lying: list[Notice], *, dry_run: bool) -> int:
    """Acknowledge what is deleted and lies there all the same; how many mails that are."""
    known = KnownDeletions()
    for notice in lying:
        known.hear(notice)
    topic, _ = place_of(whereabouts, parts.queue)
    places = {place.place for place in known.places if place.topic == topic}
    if not places or not (await backlog_of(parts, whereabouts)).held(places):
        return 0
    count = 0
    mails = found(parts, whereabouts, known=None)
    async with aclosing(mails), aclosing(in_batches(mails, AT_ONCE)) as batches:
        async for batch in batches:
            deleted = [mail for mail in batch if is_deleted(parts.queue, mail.message, mail.listed, known)]
            count += len(deleted)
            if not dry_run:
                await acknowledged(parts, deleted)
    return count


TEND_DELETIONS_EVERY: Final = timedelta(minutes=1)


class PulsarMailQueue(MaintainedQueue):
    """One queue in one process, opened by `open_queue`. Implements `queue.MaintainedQueue`."""

    def __init__(self, parts: PulsarParts) -> None:
        self.name = parts.queue
        self._parts = parts
        self._mover = Mover(parts)

    async def enqueue(
        self,
        mail: Mail,
        content: bytes,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        known_as: EnqueueId | None = None,
        was_queued: bool = False,
    ) -> EnqueueId:
        due_at = due_time(self._parts.now, delay, at)
        return await enqueue(self._parts, mail, content, due_at, priority, known_as=known_as, was_queued=was_queued)

    def dequeue(
        self,
        prefetch: int = PREFETCH,
        *,
        priorities: Collection[int] | None = None,
        bytes_max: int | None = None,
        sub_queue_of: SubQueueOf | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[PulsarUnacked]]:
        """As of every queue; `priorities` changes nothing, and no backlogs are kept."""
        del priorities, sub_queue_of
        return dequeue(self._parts, checked_prefetch(prefetch), bytes_max)

    def browse(
        self, where: MailFilter = EVERYTHING, after: ListingPosition | None = None, *, on_broken: OnBroken = passed_over
    ) -> AsyncGenerator[Listed]:
        """The mails in the order of their topics; a message that is not a mail gives no row."""
        del on_broken
        return browse(self._parts, where, after)

    async def content(self, listed: Listed) -> bytes:
        return await content_of(self._parts.blobs, listed.queued.blobs)

    async def size(self) -> Size:
        known = await self._parts.deletions.look()
        counts = []
        for whereabouts in Whereabouts:
            backlog = await backlog_of(self._parts, whereabouts)
            counts.append(left(backlog, known, self._parts, whereabouts))
        waiting, delayed = counts
        kind = SizeKind.EXACT
        if known.has_james and waiting + delayed:
            kind = SizeKind.ESTIMATE
        return Size(waiting, delayed, kind, 0, CountedBy.BROKER)

    async def recount(self) -> int:
        """Nothing is to be corrected: the broker itself counts."""
        return 0

    async def delete(
        self, where: MailFilter, *, dry_run: bool = False, on_removed: OnRemoved | None = None
    ) -> AffectedMails:
        return await remove(self._parts, where, on_removed, dry_run=dry_run)

    async def purge(self, *, dry_run: bool = False, on_removed: OnRemoved | None = None) -> AffectedMails:
        """Remove every mail, and every dead letter."""
        return await purge(self._parts, on_removed, dry_run=dry_run)

    async def change(
        self,
        change: MailChange,
        *,
        dry_run: bool = False,
        on_change: OnRemoved | None = None,
        on_changed: Callable[[Listed], None] | None = None,
    ) -> AffectedMails:
        return await self._mover.change(change, on_change, on_changed, dry_run=dry_run)

    async def flush(self, *, dry_run: bool = False) -> Delays:
        return await self._mover.flush(dry_run=dry_run)

    async def move_due(self, *, dry_run: bool = False) -> int:
        return await self._mover.move_due(dry_run=dry_run)

    async def redrive(
        self,
        limit: int | None = None,
        where: MailFilter = EVERYTHING,
        *,
        dry_run: bool = False,
        ids_max: int = IDS_MAX,
        lacking: LackingMail = all_lack_it,
    ) -> Redriven:
        return await redrive(self._parts, limit, where, lacking, dry_run=dry_run, ids_max=ids_max)

    async def restoring(self, removed: Collection[EnqueueId]) -> PulsarRestoring:
        return await restoring(self._parts, removed)

    async def arrivals(self, move: str, doubtful: Collection[EnqueueId]) -> PulsarArrivals:
        return await arrivals(self._parts, move, doubtful)

    async def figures(self, scope: FigureScope = FigureScope.ALL) -> QueueFigures:
        return await figures_of(self._parts, scope)

    async def traffic_sums(self, before: TrafficSums | None = None) -> TrafficSums | None:
        """What came and went since the broker serves the topic of ready mails; `before` changes nothing."""
        del before
        waiting = await backlog_of(self._parts, Whereabouts.WAITING)
        return TrafficSums(self._parts.now, (), waiting.added, waiting.consumed)

    async def maintain(self, stop: asyncio.Event) -> None:
        jobs = (
            moving_job(self.move_due),
            BackgroundJob("tending deletions", self.keep_up, TEND_DELETIONS_EVERY),
        )
        await run_jobs(self.name, self._parts.clock, stop, jobs)

    async def keep_up(self, *, dry_run: bool = False) -> TendedDeletions:
        """Let deletions expire that are no longer needed."""
        return await tend_deletions(self._parts, dry_run=dry_run)

    async def close(self) -> None:
        await self._mover.close()
        await self._parts.background.close()
        await self._parts.deletions.close()


async def open_queue(
    name: QueueName,
    topics: Topics,
    blobs: Blobs,
    clock: Clock,
    form: PulsarForm | None = None,
    *,
    counts: QueueCounts | None = None,
) -> PulsarMailQueue:
    """Open a queue. What it returns is an asynchronous context, and leaving that closes the queue.

    Args:
        name: which.
        topics: stays open when the queue is closed.
        blobs: where mails' bytes are.
        clock: time and chance.
        form: which James is to read what is published; None: the one that wrote what lies there.
        counts: counts what happens in the queue.
    """
    background = BackgroundTasks()
    cleanup = BlobCleanup(blobs, _nothing, background, clock)
    form_of_queue = FormOfQueue(topics, name, form)
    return PulsarMailQueue(
        PulsarParts(
            name,
            blobs,
            clock,
            background,
            cleanup,
            counts or NoCounts(),
            topics,
            form_of_queue,
            Deletions(topics, name, clock),
        )
    )


async def queue_names(topics: Topics) -> list[QueueName]:
    """Every queue of the namespace."""
    return queues_among(await topics.names())


async def _nothing() -> None:
    """Do nothing: a queue over topics has nothing to be swept after its blobs."""
