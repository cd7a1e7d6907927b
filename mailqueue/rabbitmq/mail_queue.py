"""The mail queue over RabbitMQ: the broker carries it, Cassandra lists it, a blob store holds its bytes.

Any number of processes may open the same queue, James among them. The module that carries an
operation out describes how it keeps the promise of `mailqueue.queue.MailQueue`. This module gathers
the operations, and the operations of maintenance, under one name.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Final, Self

from mailmend.mailqueue.arrivals import Restoring
from mailmend.mailqueue.background import BackgroundJob, BackgroundTasks, BlobCleanup, broken_off, run_jobs
from mailmend.mailqueue.blobs.stores import content_of
from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.comparison import Mended, Reconciled
from mailmend.mailqueue.configuration import Configurations
from mailmend.mailqueue.draining import checked_prefetch
from mailmend.mailqueue.health import FigureScope, QueueFigures
from mailmend.mailqueue.metrics import NoCounts, QueueCounts, TrafficSums
from mailmend.mailqueue.queue import (
    IDS_MAX,
    PREFETCH,
    Changed,
    Delays,
    LackingMail,
    MailChange,
    OnBroken,
    OnRemoved,
    Removed,
    all_lack_it,
    due_time,
    passed_over,
)
from mailmend.mailqueue.rabbitmq.change_due import DueChange
from mailmend.mailqueue.rabbitmq.dequeue import Unacked, dequeue
from mailmend.mailqueue.rabbitmq.enqueue import enqueue
from mailmend.mailqueue.rabbitmq.figures import figures_of, sums_of
from mailmend.mailqueue.rabbitmq.move_due import DueMover, MoverTurns
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.reconcile_mend import Keeping, MendRequest, mended
from mailmend.mailqueue.rabbitmq.redrive import redrive, republish
from mailmend.mailqueue.rabbitmq.remove import remove
from mailmend.mailqueue.rabbitmq.restore import QueueArrivals, arrivals, restoring
from mailmend.mailqueue.rabbitmq.sweep import Moved, Sweeper
from mailmend.mailqueue.rabbitmq.unacked import UnackedMail
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules.configuration import DEFAULT, QueueConfiguration
from mailmend.mailqueue.rules.filters import EVERYTHING, MailFilter
from mailmend.mailqueue.rules.mails import Listed, Mail
from mailmend.mailqueue.rules.positions import ListingPosition
from mailmend.mailqueue.rules.size import Size
from mailmend.mailqueue.upkeep import Redriven, Swept
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.queue_tables import OwnTables
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.ports import AsyncTables, Clock

MOVE_DUE_EVERY: Final = timedelta(seconds=1)
"""The pause between two rounds that deliver the delayed mails whose time has come; a mail may be late by as much."""

FLUSH_EVERY: Final = timedelta(milliseconds=500)

SWEEP_EVERY: Final = timedelta(minutes=5)
"""The pause between two sweeps of a served queue. Dequeuing starts sweeps as well; this is for queues in which little
happens."""


class RabbitMailQueue:
    """One queue in one process. Implements `mailqueue.queue.MailQueue`; opened by `open_queue`."""

    def __init__(self, parts: Parts, sweeper: Sweeper) -> None:
        self.name = parts.queue
        self.view = parts.view
        self._parts = parts
        self._sweeper = sweeper
        self._unacked: Unacked = {}
        turns = MoverTurns(parts.tables, parts.clock, parts.queue)
        self._mover = DueMover(parts, parts.view.due, turns) if parts.view.due else None

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
    ) -> AbstractAsyncContextManager[AsyncIterator[UnackedMail]]:
        return dequeue(self._parts, self._unacked, checked_prefetch(prefetch), priorities, bytes_max)

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

    async def delete(self, where: MailFilter, *, dry_run: bool = False, on_removed: OnRemoved | None = None) -> Removed:
        return await remove(self._parts, where, on_removed, dry_run=dry_run)

    async def purge(self, *, dry_run: bool = False, on_removed: OnRemoved | None = None) -> Removed:
        return await self.delete(EVERYTHING, dry_run=dry_run, on_removed=on_removed)

    async def change(
        self,
        change: MailChange,
        *,
        dry_run: bool = False,
        on_change: OnRemoved | None = None,
        on_changed: Callable[[Listed], None] | None = None,
    ) -> Changed:
        mover = self._mover
        if mover is None:
            return Changed()
        one = DueChange(self._parts, mover.due, mover.turns, change, on_change, on_changed, dry_run)
        return await one.carried_out()

    async def flush(self, *, dry_run: bool = False) -> Delays:
        mover = self._mover.dry() if self._mover and dry_run else self._mover
        return await mover.flush() if mover else Delays()

    async def move_due(self, *, dry_run: bool = False) -> int:
        mover = self._mover.dry() if self._mover and dry_run else self._mover
        return (await mover.move_due()).count if mover else 0

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
        mover = replace(self._mover, stop=stop) if self._mover else None
        jobs = (
            *([BackgroundJob("moving delayed mails", mover.move_due, MOVE_DUE_EVERY)] if mover else ()),
            BackgroundJob("writing tallies", self._parts.view.tallies.flush, FLUSH_EVERY),
            BackgroundJob("sweeping", lambda: broken_off(stop, self.sweep()), SWEEP_EVERY),
        )
        await run_jobs(self.name, self._parts.clock, stop, jobs)
        await self._parts.view.tallies.flush()

    async def close(self) -> None:
        await self._parts.background.close()
        await self._sweeper.close()
        await self._parts.view.tallies.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Maintenance: what the field needs for a queue of this kind

    async def sweep(self, *, dry_run: bool = False) -> Swept:
        """Move the browse start, clean up to it, renew what grows old (`mailqueue.rabbitmq.sweep`)."""
        return await self._sweeper.sweep(self.name, dry_run=dry_run)

    async def move_browse_start(self, *, dry_run: bool = False) -> Moved:
        """The first step of a sweep alone."""
        return await self._sweeper.move(self.name, dry_run=dry_run)

    async def republish(self, older_than: timedelta, where: MailFilter = EVERYTHING, *, dry_run: bool = False) -> int:
        """Publish again what waits for longer than that (`mailqueue.rabbitmq.redrive`)."""
        return await republish(self._parts, older_than, where, dry_run=dry_run)

    async def mend(self, found: Reconciled, request: MendRequest, keeping: Keeping, *, dry_run: bool = False) -> Mended:
        """Mend what reconciling found, as far as it is asked for (`mailqueue.rabbitmq.reconcile_mend`)."""
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
        own: which of mailmend's own tables the keyspace has (`model.catalog.queue_tables.queue_tables_of`); None: all.
        counts: counts what happens in the queue.
        looks_only: whether no mail is put or taken through it; then opening reads no configuration.

    Raises:
        ConfigurationRefused: the configuration would hide mails from listings.
    """
    own = own or OwnTables()
    counts = counts or NoCounts()
    slicing = (DEFAULT if looks_only else await Configurations(tables).require(configuration)).slicing
    view = QueueView(tables, clock, own, counts, slicing.buckets)
    sweeper = Sweeper(view, blobs, broker)
    background = BackgroundTasks()
    maybe_sweep = partial(sweeper.maybe, name)
    parts = Parts(
        name,
        tables,
        broker,
        blobs,
        clock,
        slicing,
        view,
        background,
        BlobCleanup(blobs, maybe_sweep, background, clock),
        maybe_sweep,
        counts,
    )
    return RabbitMailQueue(parts, sweeper)
