"""The distributed mail queue: the broker carries it, Cassandra lists it, a blob store holds its bytes.

Any number of processes may open the same queue, James among them. What each operation promises, and how, stands in the
module that carries it out; here they have one name.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self

from mailqueue.background import BackgroundTasks
from mailqueue.blobs.contents import content_of
from mailqueue.maintenance.blob_cleanup import BlobCleanup
from mailqueue.maintenance.due_leases import DueLeases
from mailqueue.maintenance.loops import FLUSH_EVERY, MOVE_DUE_EVERY, SWEEP_EVERY, BackgroundJob, tend
from mailqueue.maintenance.move_due import Moving
from mailqueue.maintenance.republish import Republishing
from mailqueue.maintenance.sweep import Sweeper
from mailqueue.metrics import NoCounts, QueueCounts
from mailqueue.rabbitmq.dequeue import Dequeueing
from mailqueue.rabbitmq.enqueue import Enqueueing, due_time
from mailqueue.rabbitmq.parts import Parts, Removed
from mailqueue.rabbitmq.remove import OnRemoved, Removing
from mailqueue.rabbitmq.settle import Dequeued
from mailqueue.rabbitmq.view.configuration import Configurations
from mailqueue.rabbitmq.view.delays import delays
from mailqueue.rabbitmq.view.due_mails import DueMails
from mailqueue.rabbitmq.view.queue_view import QueueView
from mailqueue.rabbitmq.view.tallies import SliceTallies
from model.catalog.queue_tables import OwnTables
from model.errors import WrongUse
from model.ids import EnqueueId, QueueName
from model.instants import instant_of
from model.ports import AsyncTables, Blobs, Broker, Clock
from model.queue.configuration import DEFAULT, QueueConfiguration
from model.queue.filters import EVERYTHING, MailFilter
from model.queue.mails import Listed, Mail
from model.queue.positions import ListingPosition
from model.queue.size import Size

__all__ = ["Dequeued", "MailQueue", "Removed", "open_queue"]

PREFETCH: Final = 5
"""James's own."""


class MailQueue:
    """One queue, as one process has it. Opened by `open_queue`, and closed by leaving its `async with`."""

    def __init__(self, name: QueueName, parts: Parts) -> None:
        self.name, self.parts = name, parts
        self._enqueueing = Enqueueing(name, parts)
        self._dequeueing = Dequeueing(name, parts)
        self._removing = Removing(name, parts)
        self._republishing = Republishing(name, parts)
        self._moving = Moving(name, parts, parts.due, DueLeases(parts.tables, parts.clock, name)) if parts.due else None

    async def enqueue(
        self,
        mail: Mail,
        content: bytes,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> EnqueueId:
        """Put a mail into the queue; when this returns it is there, and after an error it is not.

        Args:
            mail: the envelope.
            content: the mail as it is on the wire: header, blank line, body.
            delay: not before so long from now.
            at: not before this instant.
            priority: 0, the last, to 9, the first; None: as the mail's attribute says, else 5.

        Raises:
            WrongUse: a delay, instant or priority that cannot be, or a mail that James could not read.
            Delayed: a delay, where the keyspace has no table for delayed mails.
            CannotReach, PublishFailed: it is not in the queue; where it could not be undone, the message says what is
                left.
        """
        return await self._enqueueing.enqueue(mail, content, due_time(self._now(), delay, at), priority)

    def dequeue(
        self, prefetch: int = PREFETCH, *, priorities: Collection[int] | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Dequeued]]:
        """Take mails, each to be acked, retried or rejected; what is not, when the context is left, comes again.

        Args:
            prefetch: how many of each level are in hand at once; the only pressure back.
            priorities: which levels; None: all that there are, urgent ones more often.
        """
        if prefetch < 1:
            raise WrongUse(f"{prefetch} mails cannot be in hand", mend="Take at least one at a time.")
        return self._dequeueing.mails(prefetch, priorities)

    def browse(self, where: MailFilter = EVERYTHING, after: ListingPosition | None = None) -> AsyncIterator[Listed]:
        """The mails in the queue without their bytes: those that wait, then the delayed ones."""
        return self.parts.view.browse(self.name, where, after)

    async def content(self, listed: Listed) -> bytes:
        """A listed mail's bytes.

        Raises:
            BlobMissing: the blob store has lost them, or the mail is gone by now.
            BlobsUnreachable: the store does not answer.
        """
        return await content_of(self.parts.blobs, listed.queued.blobs)

    async def size(self) -> Size:
        """How many mails wait and are delayed, and how sure that is."""
        await self.parts.tallies.flush()
        return await self.parts.view.size(self.name)

    async def delete(self, where: MailFilter, *, dry_run: bool = False, on_removed: OnRemoved | None = None) -> Removed:
        """Remove the mails that are meant, delayed ones too; none of them is delivered afterwards.

        One that a consumer has in hand at that moment may still be finished by it.

        Args:
            where: which.
            dry_run: only count.
            on_removed: told of each before it is removed; where it raises nothing further is.

        Raises:
            CannotReach: the listing broke off; what was removed stays removed.
        """
        return await self._removing.remove(where, on_removed, dry_run=dry_run)

    async def purge(self, *, dry_run: bool = False, on_removed: OnRemoved | None = None) -> Removed:
        """Remove every mail; as `delete`."""
        return await self.delete(EVERYTHING, dry_run=dry_run, on_removed=on_removed)

    async def flush(self, *, dry_run: bool = False) -> int:
        """Every delayed mail is delivered now; how many they were (or would be, after a dry run).

        Raises:
            LeaseHeld: another process kept moving delayed mails.
            CannotReach: tables or broker did not answer; what was moved stays moved.
        """
        if dry_run:
            return (await delays(self.parts.view, self.name)).count
        return await self._moving.flush() if self._moving else 0

    async def republish(self, older_than: timedelta, where: MailFilter = EVERYTHING, *, dry_run: bool = False) -> int:
        """Publish again what waits for longer than that, under the same id; how many mails.

        Raises:
            BrokerUnreachable, PublishFailed: the broker took no more; what was published stays so.
        """
        return await self._republishing.republish(older_than, where, dry_run=dry_run)

    async def move_due(self) -> int:
        """One round: what is delayed and due goes into the queue; how many mails.

        Raises:
            CannotReach: tables or broker did not answer; what was moved stays moved.
        """
        return await self._moving.move_due() if self._moving else 0

    async def tend(self, stop: asyncio.Event) -> None:
        """Do what a served queue needs in the background, until told to stop: move, count, sweep."""
        await tend(self.name, self.parts.clock, stop, self._chores())
        await self.parts.tallies.flush()

    async def close(self) -> None:
        """Finish what nobody waited for, and tell what was counted."""
        await self.parts.afterwards.close()
        await self.parts.sweeper.close()
        await self.parts.tallies.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _chores(self) -> tuple[BackgroundJob, ...]:
        parts = self.parts
        return (
            BackgroundJob("moving delayed mails", self.move_due, MOVE_DUE_EVERY),
            BackgroundJob("telling tallies", parts.tallies.flush, FLUSH_EVERY),
            BackgroundJob("sweeping", lambda: parts.sweeper.sweep(self.name), SWEEP_EVERY),
        )

    def _now(self) -> datetime:
        return instant_of(self.parts.clock.micros())


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
) -> MailQueue:
    """Open a queue. What it returns is an asynchronous context, and leaving that closes the queue.

    Args:
        name: which.
        tables: the keyspace; `model.ports` names the adapters of this and the next three.
        broker: stays open when the queue is closed.
        blobs: where mails' bytes are.
        clock: time and chance.
        configuration: how the view is to be cut; None: as it is, or as James does by default.
        own: which of our own tables the keyspace has (`model.catalog.queue_tables.queue_tables_of`); None: all.
        counts: where it is told what happened.
        looks_only: whether nothing will be written through it: then it is not settled either how the view is cut.

    Raises:
        ConfigurationRefused: the configuration would lose sight of mails.
    """
    own, counts = own or OwnTables(), counts or NoCounts()
    configurations = Configurations(tables)
    slicing = (
        (await configurations.current() or DEFAULT) if looks_only else await configurations.require(configuration)
    ).slicing
    tallies = SliceTallies(tables, clock, own)
    view = QueueView(tables, clock, configurations, tallies, own, counts=counts)
    sweeper = Sweeper(tables, view, blobs, broker, clock)
    due = DueMails(tables, clock, slicing.buckets, tallies) if own.due else None
    afterwards = BackgroundTasks()
    tidying = BlobCleanup(blobs, lambda: sweeper.maybe(name), afterwards, clock)
    parts = Parts(
        tables, broker, blobs, clock, slicing, view, sweeper, tallies, afterwards, tidying, due=due, counts=counts
    )
    return MailQueue(name, parts)
