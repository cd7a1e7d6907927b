"""A mail queue in memory, for one process: what `mailqueue.queue.MailQueue` promises, for tests of its users."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from mailmend.mailqueue.admission import admissible, admitted
from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.codec import priority_of
from mailmend.mailqueue.comparison import Redriven, Swept
from mailmend.mailqueue.concurrency import run_jobs
from mailmend.mailqueue.every_queue import DequeuedMail, checked_prefetch, moving_job, next_turn
from mailmend.mailqueue.metrics import FigureScope, QueueFigures, TrafficSums
from mailmend.mailqueue.queue import (
    IDS_MAX,
    PREFETCH,
    WAITING,
    AffectedMails,
    Delays,
    FailedMail,
    LackingMail,
    MailChange,
    MaintainedQueue,
    OnBroken,
    OnRemoved,
    RemovedMail,
    RestoreResult,
    SubQueueOf,
    all_lack_it,
    due_time,
    passed_over,
    refuse_too_many,
)
from mailmend.mailqueue.rules.mails import (
    EVERYTHING,
    PRIORITIES,
    Listed,
    ListingPosition,
    Mail,
    MailBlobs,
    MailFilter,
    QueuedMail,
    Whereabouts,
    is_behind,
)
from mailmend.mailqueue.rules.size import CountedBy, Size, SizeKind
from mailmend.model.errors import BlobMissing
from mailmend.model.ids import BlobId, EnqueueId, QueueName, restored_id
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock


@dataclass(slots=True)
class _Entry:
    """A mail of the queue, waiting, unacked or delayed."""

    listed: Listed
    content: bytes
    redelivered: bool = False

    @property
    def enqueue_id(self) -> EnqueueId:
        return self.listed.queued.enqueue_id

    @property
    def priority(self) -> int:
        return priority_of(self.listed.queued.mail)


class MemoryMailQueue(MaintainedQueue):
    """Implements `mailqueue.queue.MaintainedQueue`; all holders of this object share the queue."""

    def __init__(self, name: QueueName, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.dead: list[_Entry] = []
        self.ready: dict[int, deque[EnqueueId]] = {level: deque() for level in PRIORITIES}
        self.changed = asyncio.Event()
        self._entries: dict[EnqueueId, _Entry] = {}
        self._gone: set[EnqueueId] = set()
        self._streams: list[_MemoryStream] = []

    @property
    def now(self) -> datetime:
        return instant_of(self.clock.micros())

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
        due_at = due_time(self.now, delay, at)
        enqueue_id = known_as or EnqueueId(self.clock.random_uuid())
        if self.knows(enqueue_id):
            return enqueue_id
        return self._put(enqueue_id, admitted(mail, priority, was_queued=was_queued), content, due_at)

    def dequeue(
        self,
        prefetch: int = PREFETCH,
        *,
        priorities: Collection[int] | None = None,
        bytes_max: int | None = None,
        sub_queue_of: SubQueueOf | None = None,  # noqa: ARG002 - this queue keeps no backlogs
    ) -> "AbstractAsyncContextManager[AsyncIterator[MemoryDequeued]]":
        if priorities is None:
            priorities = PRIORITIES
        return self._dequeue(checked_prefetch(prefetch), priorities, bytes_max)

    async def browse(
        self, where: MailFilter = EVERYTHING, after: ListingPosition | None = None, *, on_broken: OnBroken = passed_over
    ) -> AsyncGenerator[Listed]:
        """The mails in their order in listings; `on_broken` is never called, as no row in memory can break."""
        del on_broken
        listed = [entry.listed for entry in self._entries.values()]
        for mail in sorted(listed, key=lambda one: ListingPosition.of(one).order):
            if where.matches(mail) and is_behind(mail, after):
                yield mail

    async def content(self, listed: Listed) -> bytes:
        entry = self._entries.get(listed.queued.enqueue_id)
        if entry is None:
            raise BlobMissing(listed.queued.blobs.body)
        return entry.content

    async def size(self) -> Size:
        delayed = len(self._delayed())
        return Size(len(self._entries) - delayed, delayed, SizeKind.EXACT, 0, CountedBy.METADATA)

    async def recount(self) -> int:
        return 0

    async def delete(
        self, where: MailFilter, *, dry_run: bool = False, on_removed: OnRemoved | None = None
    ) -> AffectedMails:
        meant = [mail async for mail in self.browse(where)]
        for listed in meant:
            if on_removed is not None:
                await on_removed(listed)
            if not dry_run:
                self.forget(listed.queued.enqueue_id)
        return AffectedMails(len(meant), tuple[FailedMail, ...]())

    async def change(
        self,
        change: MailChange,
        *,
        dry_run: bool = False,
        on_change: OnRemoved | None = None,
        on_changed: Callable[[Listed], None] | None = None,
    ) -> AffectedMails:
        count = 0
        for entry in self._delayed():
            was = entry.listed
            if (to_be := change(was)) is None:
                continue
            if on_change is not None and not dry_run:
                await on_change(was)
            if not dry_run:
                queued = replace(was.queued, mail=to_be.mail)
                entry.listed = replace(was, queued=queued, due_at=max(to_be.due_at, self.now))
            if on_changed is not None:
                on_changed(was)
            count += 1
        return AffectedMails(count)

    async def flush(self, *, dry_run: bool = False) -> Delays:
        return self._moved(self._delayed(), dry_run=dry_run)

    async def move_due(self, *, dry_run: bool = False) -> int:
        due = [entry for entry in self._delayed() if (entry.listed.due_at or self.now) <= self.now]
        return self._moved(due, dry_run=dry_run).count

    async def redrive(
        self,
        limit: int | None = None,
        where: MailFilter = EVERYTHING,
        *,
        dry_run: bool = False,
        ids_max: int = IDS_MAX,
        lacking: LackingMail = all_lack_it,
    ) -> Redriven:
        refuse_too_many(len(self._entries), f"mails in {self.name}", ids_max)
        done = Redriven()
        for entry in [dead for dead in self.dead if where.matches(dead.listed)][:limit]:
            back = done.add(entry.listed.queued, await lacking(entry.listed.queued))
            if dry_run:
                continue
            self.dead.remove(entry)
            if back is None:
                continue
            self._gone.discard(entry.enqueue_id)
            self._entries[entry.enqueue_id] = entry
            entry.listed = replace(entry.listed, queued=back, enqueued_at=self.now, attempts=0)
            self._deliver(entry)
        return done

    async def keep_up(self, *, dry_run: bool = False) -> Swept:
        """Nothing is left over."""
        del dry_run
        return Swept()

    async def restoring(self, removed: Collection[EnqueueId]) -> Self:
        del removed
        return self

    async def restore(self, removed: RemovedMail) -> RestoreResult:
        new = restored_id(removed.was, self.name)
        if self.knows(new):
            return RestoreResult.NOTHING
        if removed.was in self._entries:
            return RestoreResult.STAYS
        self._put(new, admissible(removed.mail), removed.content, removed.due_at)
        return RestoreResult.PUT

    async def arrivals(self, move: str, doubtful: Collection[EnqueueId]) -> "MemoryArrivals":
        del move, doubtful
        return MemoryArrivals(self)

    async def figures(self, scope: FigureScope = FigureScope.ALL) -> QueueFigures:
        if scope is FigureScope.STARTS:
            return QueueFigures(self.name, self.now)
        size = await self.size()
        waiting = [listed async for listed in self.browse(WAITING)]
        oldest_at = None
        if waiting:
            oldest_at = waiting[0].enqueued_at
        depth = None
        if scope is FigureScope.ALL:
            unacked = sum(len(stream.unacked) for stream in self._streams)
            depth = Depth(size.mails - unacked, unacked, len(self._streams), len(self.dead))
        return QueueFigures(
            self.name,
            self.now,
            mails=size.mails,
            delayed=size.delayed,
            oldest_at=oldest_at,
            depth=depth,
        )

    async def traffic_sums(self, before: TrafficSums | None = None) -> TrafficSums | None:
        """The sums of all mails that this queue ever had; `before` changes nothing."""
        del before
        return TrafficSums(self.now, (), len(self._entries) + len(self._gone), len(self._gone))

    async def maintain(self, stop: asyncio.Event) -> None:
        await run_jobs(self.name, self.clock, stop, (moving_job(self.move_due),))

    async def close(self) -> None:
        """Nothing is left to be done; the mails stay."""

    # Called by dequeued mails

    def taken(self, enqueue_id: EnqueueId) -> _Entry | None:
        """The mail; None once it has left the queue."""
        return self._entries.get(enqueue_id)

    def give_back(self, enqueue_id: EnqueueId) -> None:
        entry = self._entries.get(enqueue_id)
        if entry is not None:
            entry.redelivered = True
            self._deliver(entry)

    def knows(self, enqueue_id: EnqueueId) -> bool:
        """Whether the mail is, or was, in the queue."""
        return enqueue_id in self._gone or enqueue_id in self._entries

    def come(self, listed: Listed, content: bytes) -> None:
        self._entries[listed.queued.enqueue_id] = entry = _Entry(listed, content)
        if listed.whereabouts is Whereabouts.WAITING:
            self._deliver(entry)

    def forget(self, enqueue_id: EnqueueId) -> None:
        self._gone.add(enqueue_id)
        self._entries.pop(enqueue_id, None)

    def bury(self, enqueue_id: EnqueueId) -> None:
        entry = self._entries.get(enqueue_id)
        self.forget(enqueue_id)
        if entry is not None:
            self.dead.append(entry)

    def delay(self, enqueue_id: EnqueueId, delay: timedelta | None, error_message: str | None) -> None:
        entry = self._entries.get(enqueue_id)
        if entry is not None:
            entry.listed = entry.listed.retried(self.now, delay, error_message)

    def _put(self, enqueue_id: EnqueueId, mail: Mail, content: bytes, due_at: datetime | None) -> EnqueueId:
        blobs = MailBlobs(BlobId(f"header of {enqueue_id}"), BlobId(f"body of {enqueue_id}"))
        listed = Listed.entering(QueuedMail(enqueue_id, mail, blobs), self.now, due_at)
        self._entries[enqueue_id] = _Entry(listed, content)
        if due_at is None:
            self._deliver(self._entries[enqueue_id])
        return enqueue_id

    def _moved(self, delayed: Collection[_Entry], *, dry_run: bool) -> Delays:
        found = Delays.of([entry.listed.due_at for entry in delayed if entry.listed.due_at])
        if not dry_run:
            for entry in delayed:
                self._deliver(entry)
        return found

    def _deliver(self, entry: _Entry) -> None:
        entry.listed = replace(entry.listed, whereabouts=Whereabouts.WAITING, due_at=None)
        self.ready[entry.priority].append(entry.enqueue_id)
        self.changed.set()

    def _delayed(self) -> list[_Entry]:
        return [entry for entry in self._entries.values() if entry.listed.whereabouts is Whereabouts.DELAYED]

    @asynccontextmanager
    async def _dequeue(
        self, prefetch: int, levels: Collection[int], bytes_max: int | None
    ) -> "AsyncGenerator[AsyncIterator[MemoryDequeued]]":
        stream = _MemoryStream(self, prefetch, levels, bytes_max)
        self._streams.append(stream)
        try:
            yield stream
        finally:
            self._streams.remove(stream)
            for enqueue_id in list(stream.unacked):
                self.give_back(enqueue_id)


class _MemoryStream:
    """One consumer's mails; `unacked` by id, each with its level."""

    def __init__(
        self, queue: MemoryMailQueue, prefetch: int, levels: Collection[int], bytes_max: int | None = None
    ) -> None:
        self._queue = queue
        self._prefetch = prefetch
        self._levels = levels
        self._bytes_max = bytes_max
        self._sizes = dict[EnqueueId, int]()
        self._owed: dict[int, int] = {}
        self.unacked: dict[EnqueueId, int] = {}

    def __aiter__(self) -> AsyncIterator["MemoryDequeued"]:
        return self

    async def __anext__(self) -> "MemoryDequeued":
        while True:
            held = list(self.unacked.values())
            ready = self._queue.ready
            waiting = [level for level in self._levels if ready[level] and held.count(level) < self._prefetch]
            if not waiting or self._is_full:
                self._queue.changed.clear()
                await self._queue.changed.wait()
                continue
            level, self._owed = next_turn(self._owed, waiting)
            entry = self._queue.taken(self._queue.ready[level].popleft())
            if entry is not None:
                self.unacked[entry.enqueue_id] = level
                self._sizes[entry.enqueue_id] = len(entry.content)
                return MemoryDequeued(self._queue, self, entry)

    @property
    def _is_full(self) -> bool:
        return self._bytes_max is not None and sum(self._sizes.values()) >= self._bytes_max

    def settled(self, enqueue_id: EnqueueId) -> None:
        self.unacked.pop(enqueue_id, None)
        self._sizes.pop(enqueue_id, None)
        self._queue.changed.set()


class MemoryDequeued(DequeuedMail):
    """A mail to be worked on. Implements `mailqueue.queue.Dequeued`."""

    def __init__(self, queue: MemoryMailQueue, stream: _MemoryStream, entry: _Entry) -> None:
        listed = entry.listed
        super().__init__(listed.queued, listed.attempts, redelivered=entry.redelivered, content=entry.content)
        self._queue = queue
        self._stream = stream
        self._listed = listed

    async def listed(self) -> Listed:
        return self._listed

    async def leave(self) -> None:
        await self.ack()

    async def ack(self) -> None:
        self._once()
        self._queue.forget(self.enqueue_id)

    async def retry(self, delay: timedelta | None = None, error_message: str | None = None) -> None:
        due_time(self._queue.now, delay, None)
        self._once()
        self._queue.delay(self.enqueue_id, delay, error_message)

    async def reject(self) -> None:
        self._once()
        self._queue.bury(self.enqueue_id)

    def _once(self) -> None:
        self.begin_settling()
        self._stream.settled(self.enqueue_id)


class MemoryArrivals:
    """Implements `mailqueue.queue.Arrivals`."""

    def __init__(self, queue: MemoryMailQueue) -> None:
        self._queue = queue
        self._kept: dict[BlobId, bytes] = {}

    async def had(self, ids: Collection[EnqueueId]) -> frozenset[EnqueueId]:
        return frozenset(filter(self._queue.knows, ids))

    async def keep(self, content: bytes) -> MailBlobs:
        blob_id = BlobId(f"came as {self._queue.clock.random_uuid()}")
        self._kept[blob_id] = content
        return MailBlobs(blob_id, blob_id)

    async def put(self, listed: Listed, *, again: bool = False) -> None:
        if not (again and self._queue.knows(listed.queued.enqueue_id)):
            self._queue.come(listed, self._kept[listed.queued.blobs.body])

    async def end(self) -> None:
        self._kept.clear()
