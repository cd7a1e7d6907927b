"""The mail queue over RabbitMQ: the broker carries it, Cassandra lists it, blobs hold its bytes.

Any number of processes may open the same queue, James among them. The module that carries an
operation out describes how it keeps the promise of `mailqueue.queue.MailQueue`. This module gathers
the operations, and the operations of maintenance, under one name.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from mailmend.mailqueue.blobs.stores import content_of
from mailmend.mailqueue.broker import SETTLING, Broker, Depth
from mailmend.mailqueue.comparison import Mended, Reconciled, Redriven, Swept
from mailmend.mailqueue.concurrency import BackgroundJob, BackgroundTasks, BlobCleanup, broken_off, run_jobs
from mailmend.mailqueue.configuration import Configurations
from mailmend.mailqueue.every_queue import checked_prefetch, moving_job
from mailmend.mailqueue.metrics import FigureScope, NoCounts, QueueCounts, QueueFigures, TrafficSums
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
    Restoring,
    SubQueueOf,
    all_lack_it,
    due_time,
    passed_over,
)
from mailmend.mailqueue.rabbitmq.backlogs import ConsumerBacklogs
from mailmend.mailqueue.rabbitmq.changes import DueChange, QueueArrivals, arrivals, enqueue, remove, restoring
from mailmend.mailqueue.rabbitmq.dequeue import dequeue
from mailmend.mailqueue.rabbitmq.move_due import DueMover, MoverTurns
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.reconcile import Keeping, MendRequest, mended, redrive, republish
from mailmend.mailqueue.rabbitmq.return_backlogs import BacklogReturn
from mailmend.mailqueue.rabbitmq.sweep import Moved, Sweeper
from mailmend.mailqueue.rabbitmq.unacked import Unacked, UnackedMail
from mailmend.mailqueue.rabbitmq.view.backlog_tables import BacklogTables
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules import slices as starts
from mailmend.mailqueue.rules.backlogs import SubQueueName
from mailmend.mailqueue.rules.configuration import DEFAULT, QueueConfiguration
from mailmend.mailqueue.rules.mails import EVERYTHING, Listed, ListingPosition, Mail, MailFilter
from mailmend.mailqueue.rules.size import Size, SizeKind
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import OwnTables
from mailmend.model.errors import CannotReach
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.ports import AsyncTables, Clock

RECOUNTED_SECONDS: Final = 6.0
"""How far two looks at what lacks its message are apart: the broker's HTTP API counts every 5 s."""


async def figures_of(
    view: QueueView, queue: QueueName, broker: Broker, scope: FigureScope = FigureScope.ALL
) -> QueueFigures:
    """The queue's figures; a broker that does not answer is one of them.

    The broker is asked before the tables: a mail that is acked meanwhile is not taken for one that lacks its message.
    """
    if scope is FigureScope.STARTS:
        return await _starts_of(view, queue)
    depth = None
    away = None
    if scope is FigureScope.ALL:
        depth, away = await _depth(broker, queue)
    size = await view.size(queue)
    without = await _without_message(view, queue, broker, depth, size)
    lacking = None
    if without is not None and depth is not None:
        lacking = max(0, without - depth.dead)
    return replace(
        await _starts_of(view, queue),
        mails=size.mails,
        delayed=size.delayed,
        exact=size.kind is SizeKind.EXACT,
        oldest_at=await _oldest_at(view, queue),
        depth=depth,
        lacking=lacking,
        lacking_at_most=without,
        broker_away=away,
    )


async def _starts_of(view: QueueView, queue: QueueName) -> QueueFigures:
    """The figures that need no look at any mail or at the broker: starts, and how long rows and marks live."""
    state = await view.starts.state(queue)
    row_ttl = None
    if view.own.row_ttl_seconds:
        row_ttl = timedelta(seconds=view.own.row_ttl_seconds)
    return QueueFigures(
        queue,
        view.now,
        browse_start=await view.browse_start(queue),
        content_start=await view.starts.content_start(queue),
        furthest_start=state.furthest_start,
        swept_at=state.swept_at,
        remembers=view.own.state,
        row_ttl=row_ttl,
        slack=slack_of(view.own),
        marks_outlive_rows=view.own.marks_outlive_rows,
        marks_expire=view.own.marks_expire,
    )


def slack_of(own: OwnTables) -> timedelta | None:
    """How much longer rows live than a mail is meant to stay; None where they never expire."""
    if not own.row_ttl_seconds:
        return None
    return starts.slack_of(timedelta(seconds=own.row_ttl_seconds), timedelta(seconds=own.mark_ttl_seconds))


async def sums_of(view: QueueView, queue: QueueName, before: TrafficSums | None = None) -> TrafficSums | None:
    """The tallies' sums, of the slices of an earlier look and those since; None where there are no tallies."""
    if before and before.slices:
        start: datetime | None = before.slices[0]
    else:
        start = await view.browse_start(queue)
    if not view.own.tallies or start is None:
        return None
    at = view.now
    slices = list(starts.live_slices(start, at, (await view.slicing()).window))
    enqueued = 0
    marked = 0
    for tallies in await view.tallies.of(queue, slices):
        for tally in tallies:
            enqueued += tally.enqueued
            marked += tally.marked
    return TrafficSums(at, slices, enqueued, marked)


async def _depth(broker: Broker, queue: QueueName) -> tuple[Depth | None, str | None]:
    try:
        return await broker.depth(queue), None
    except CannotReach as error:
        return None, error.what


async def _without_message(
    view: QueueView, queue: QueueName, broker: Broker, depth: Depth | None, size: Size
) -> int | None:
    """The lesser of two looks where the first finds any: a delayed mail that is due has its row before its message.

    Rows are only counted where the size does not show that there are messages enough. Backlogs have
    messages too.
    """
    if depth is None:
        return None
    in_backlogs = await view.in_backlogs(queue)
    by_size = depth.without_message(size.mails - in_backlogs)
    if by_size is None or (by_size == 0 and size.kind is SizeKind.EXACT):
        return by_size
    settled = await view.count_settled(queue, view.now - SETTLING)
    first = depth.without_message(settled - in_backlogs)
    if not first:
        return first
    await view.clock.pause(RECOUNTED_SECONDS)
    again, _ = await _depth(broker, queue)
    if again is None:
        return None
    in_backlogs = await view.in_backlogs(queue)
    settled = await view.count_settled(queue, view.now - SETTLING)
    second = again.without_message(settled - in_backlogs)
    if second is None:
        return None
    return min(first, second)


async def _oldest_at(view: QueueView, queue: QueueName) -> datetime | None:
    """Slices are listed in order, each by time: the first mail is the oldest, as far as clocks agree."""
    async with aclosing(view.browse(queue, include_delayed=False)) as mails:
        async for listed in mails:
            return listed.enqueued_at
    return None


FLUSH_EVERY: Final = timedelta(milliseconds=500)

RETURN_EVERY: Final = timedelta(minutes=1)

SWEEP_EVERY: Final = timedelta(minutes=5)
"""The pause between two sweeps of a served queue. Dequeuing starts sweeps as well; this is for queues in which little
happens."""


class RabbitMailQueue(MaintainedQueue):
    """One queue in one process, opened by `open_queue`. Implements `queue.MaintainedQueue`."""

    def __init__(self, parts: Parts, sweeper: Sweeper) -> None:
        self.name = parts.queue
        self.view = parts.view
        self._parts = parts
        self._sweeper = sweeper
        self._unacked: Unacked = {}
        self._consumers: set[ConsumerBacklogs] = set()
        self._mover: DueMover | None = None
        self._backlogs: BacklogReturn | None = None
        if parts.backlogs:
            self._backlogs = BacklogReturn(parts, parts.backlogs)
        if parts.view.due:
            self._mover = DueMover(parts, parts.view.due, MoverTurns(parts.tables, parts.clock, parts.queue))

    @property
    def keeps_backlogs(self) -> bool:
        return self._parts.backlogs is not None

    @property
    def backlog_sizes(self) -> Mapping[SubQueueName, int]:
        sizes = Counter[SubQueueName]()
        for consumer in self._consumers:
            sizes.update(consumer.sizes)
        return sizes

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
    ) -> AbstractAsyncContextManager[AsyncIterator[UnackedMail]]:
        prefetch = checked_prefetch(prefetch)
        return dequeue(
            self._parts,
            self._unacked,
            prefetch,
            priorities,
            bytes_max,
            sub_queue_of,
            self._consumers,
        )

    def browse(
        self, where: MailFilter = EVERYTHING, after: ListingPosition | None = None, *, on_broken: OnBroken = passed_over
    ) -> AsyncGenerator[Listed]:
        return self.view.browse(self.name, where, after, on_broken=on_broken)

    async def content(self, listed: Listed) -> bytes:
        return await content_of(self._parts.blobs, listed.queued.blobs)

    async def size(self) -> Size:
        return await self.view.size(self.name)

    async def recount(self) -> int:
        return (await self.view.recount(self.name)).left

    async def delete(
        self, where: MailFilter, *, dry_run: bool = False, on_removed: OnRemoved | None = None
    ) -> AffectedMails:
        return await remove(self._parts, where, on_removed, dry_run=dry_run)

    async def change(
        self,
        change: MailChange,
        *,
        dry_run: bool = False,
        on_change: OnRemoved | None = None,
        on_changed: Callable[[Listed], None] | None = None,
    ) -> AffectedMails:
        mover = self._mover
        if mover is None:
            return AffectedMails()
        one = DueChange(self._parts, mover.due, mover.turns, change, on_change, on_changed, dry_run)
        return await one.carried_out()

    async def flush(self, *, dry_run: bool = False) -> Delays:
        mover = self._mover
        if mover is None:
            return Delays()
        if dry_run:
            mover = mover.dry()
        return await mover.flush()

    async def move_due(self, *, dry_run: bool = False) -> int:
        mover = self._mover
        if mover is None:
            return 0
        if dry_run:
            mover = mover.dry()
        return (await mover.move_due()).count

    async def return_backlogs(self) -> int:
        if self._backlogs is None:
            return 0
        return await self._backlogs.returned(timedelta(0))

    async def redrive(
        self,
        limit: int | None = None,
        where: MailFilter = EVERYTHING,
        *,
        dry_run: bool = False,
        ids_max: int = IDS_MAX,
        lacking: LackingMail = all_lack_it,
    ) -> Redriven:
        return await redrive(self._parts, limit, where, dry_run=dry_run, ids_max=ids_max, lacking=lacking)

    async def keep_up(self, *, dry_run: bool = False) -> Swept:
        return await self.sweep(dry_run=dry_run)

    async def restoring(self, removed: Collection[EnqueueId]) -> Restoring:
        return await restoring(self._parts, removed)

    async def arrivals(self, move: str, doubtful: Collection[EnqueueId]) -> QueueArrivals:
        del move
        return await arrivals(self._parts, doubtful)

    async def figures(self, scope: FigureScope = FigureScope.ALL) -> QueueFigures:
        return await figures_of(self.view, self.name, self._parts.broker, scope)

    async def traffic_sums(self, before: TrafficSums | None = None) -> TrafficSums | None:
        return await sums_of(self.view, self.name, before)

    async def maintain(self, stop: asyncio.Event) -> None:
        """Move what is due, write tallies, sweep, until `stop` is set.

        Moving then ends with its batch, and a sweep anywhere: the next one completes it.
        """
        jobs = [
            BackgroundJob("writing tallies", self._parts.view.tallies.flush, FLUSH_EVERY),
            BackgroundJob("sweeping", lambda: broken_off(stop, self.sweep()), SWEEP_EVERY),
        ]
        if self._mover is not None:
            mover = replace(self._mover, stop=stop)
            jobs.insert(0, moving_job(mover.move_due))
        if self._backlogs is not None:
            jobs.append(BackgroundJob("returning backlogs", self._backlogs.returned, RETURN_EVERY))
        await run_jobs(self.name, self._parts.clock, stop, tuple(jobs))
        await self._parts.view.tallies.flush()

    async def close(self) -> None:
        await self._parts.background.close()
        await self._sweeper.close()
        await self._parts.view.tallies.flush()

    # Maintenance: what the field needs for a queue of this kind

    async def sweep(self, *, dry_run: bool = False) -> Swept:
        """Move the browse start, clean up to it, renew what grows old (`mailqueue.rabbitmq.sweep`)."""
        return await self._sweeper.sweep(self.name, dry_run=dry_run)

    async def move_browse_start(self, *, dry_run: bool = False) -> Moved:
        """The first step of a sweep alone."""
        return await self._sweeper.move(self.name, dry_run=dry_run)

    async def republish(self, older_than: timedelta, where: MailFilter = EVERYTHING, *, dry_run: bool = False) -> int:
        """Publish again what waits for longer than that (`mailqueue.rabbitmq.reconcile`)."""
        return await republish(self._parts, older_than, where, dry_run=dry_run)

    async def mend(self, found: Reconciled, request: MendRequest, keeping: Keeping, *, dry_run: bool = False) -> Mended:
        """Mend what reconciling found, as far as it is asked for (`mailqueue.rabbitmq.reconcile`)."""
        return await mended(self._parts, found, request, keeping, dry_run=dry_run)


async def open_queue(  # noqa: PLR0917 - the four ports, in the order of every service's settings
    name: QueueName,
    tables: AsyncTables,
    broker: Broker,
    blobs: Blobs,
    clock: Clock,
    configuration: QueueConfiguration | None = None,
    *,
    own: OwnTables | None = None,
    counts: QueueCounts | None = None,
    looks_only: bool = False,
) -> RabbitMailQueue:
    """Open a queue. What it returns is an asynchronous context, and leaving that closes the queue.

    Args:
        name: which.
        tables: the keyspace; `model.ports` names the adapters of this and the next three.
        broker: stays open when the queue is closed.
        blobs: where mails' bytes are.
        clock: time and chance.
        configuration: how the view is to be cut; None: as it is, or as James does by default.
        own: which of mailmend's own tables the keyspace has (`model.catalog.mail_queue.queue_tables_of`); None: all.
        counts: counts what happens in the queue.
        looks_only: whether no mail is put or taken through it; then opening reads no configuration.

    Raises:
        ConfigurationRefused: the configuration would hide mails from listings.
    """
    own = own or OwnTables()
    counts = counts or NoCounts()
    if looks_only:
        in_force = DEFAULT
    else:
        in_force = await Configurations(tables).require(configuration)
    slicing = in_force.slicing
    view = QueueView(tables, clock, own, counts, slicing.buckets)
    sweeper = Sweeper(view, blobs, broker)
    background = BackgroundTasks()
    maybe_sweep = partial(sweeper.maybe, name)
    backlogs = None
    if own.backlogs:
        backlogs = BacklogTables(tables, clock, name)
    parts = Parts(
        name,
        blobs,
        clock,
        background,
        BlobCleanup(blobs, maybe_sweep, background, clock),
        counts,
        tables,
        broker,
        slicing,
        view,
        maybe_sweep,
        backlogs,
    )
    return RabbitMailQueue(parts, sweeper)
