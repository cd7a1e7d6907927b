"""What the queues of every broker share: how mails are taken, held, settled once, and delayed.

*Order*: levels are drained by weight, so urgent mail is fast and no mail starves. Smooth weighted
round robin over the levels that have a delivery: a level of priority n has the weight n + 1, so of
mail that waits at all ten levels the highest gets ten turns for each one of the lowest, evenly
spread.

*Room*: while the room for the bytes that one consumer holds at once is full, no further content is
loaded. The broker's prefetch bounds how many mails a consumer has, not how large they are. A
content's size is known once it is loaded; until then it counts as large as the largest of the last
ones. The first mail is loaded however large it is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from mailmend.mailqueue.blobs.stores import content_of
from mailmend.mailqueue.comparison import LiveMail
from mailmend.mailqueue.concurrency import BackgroundJob, BackgroundTasks, BlobCleanup, cancelled, in_order
from mailmend.mailqueue.metrics import QueueCount, QueueCounts
from mailmend.mailqueue.rules.mails import Mail, MailBlobs, QueuedMail
from mailmend.model.blobs import Blobs
from mailmend.model.errors import BadPayload, LeaseHeld, WrongUse
from mailmend.model.ids import BlobId, EnqueueId, QueueName, restored_id
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock

D = TypeVar("D")
T = TypeVar("T")

HOLD: Final = timedelta(minutes=5)
"""How long a delivery is held while servers do not answer. The broker has it back afterwards, and
dead-letters what comes back too often (a quorum queue of RabbitMQ 4 after 20 times)."""

MOVE_DUE_EVERY: Final = timedelta(seconds=1)
"""The pause between two rounds that deliver the delayed mails whose time has come: the longest delay
that a round adds."""

BLOBS_AT_ONCE: Final = 32

_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class QueueParts:
    """What the operations of one queue share, whichever broker carries its mails."""

    queue: QueueName
    blobs: Blobs
    clock: Clock
    background: BackgroundTasks
    blob_cleanup: BlobCleanup
    counts: QueueCounts

    @property
    def now(self) -> datetime:
        return instant_of(self.clock.micros())


class DequeuedMail:
    """A mail until it is settled, once: the part of `mailqueue.queue.Dequeued` that all queues share."""

    def __init__(self, queued: QueuedMail, attempts: int, *, redelivered: bool, content: bytes = b"") -> None:
        self.queued = queued
        self.attempts = attempts
        self.redelivered = redelivered
        self.content = content
        self._used = False

    @property
    def mail(self) -> Mail:
        return self.queued.mail

    @property
    def enqueue_id(self) -> EnqueueId:
        return self.queued.enqueue_id

    def begin_settling(self) -> None:
        """Note that the mail is being settled.

        Raises:
            WrongUse: it was settled before.
        """
        if self._used:
            raise WrongUse(
                f"the mail {self.enqueue_id} was settled before", mend="Ack, retry or reject a mail once, never twice."
            )
        self._used = True


class Takings:
    """Takes the deliveries of one consumer, each in its own task; the prefetch bounds their number."""

    def __init__(self, queue: QueueName) -> None:
        self._queue = queue
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, taking: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(taking)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def wait(self) -> None:
        """Wait until none is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        await cancelled(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a delivery is left unacked", extra={"queue": self._queue}, exc_info=task.exception())


@contextmanager
def counted_enqueue(parts: QueueParts) -> Iterator[None]:
    """Count the mail that the body enqueues, or that this failed."""
    try:
        yield
    except BaseException:
        parts.counts.add(QueueCount.ENQUEUE_FAILED, parts.queue)
        raise
    parts.counts.add(QueueCount.ENQUEUED, parts.queue)


def moving_job(move_due: Callable[[], Awaitable[object]]) -> BackgroundJob:
    """The background work that every served queue has."""
    return BackgroundJob("moving delayed mails", move_due, MOVE_DUE_EVERY)


@asynccontextmanager
async def patient_turn(
    parts: QueueParts,
    taken: Callable[[], AbstractAsyncContextManager[T | None]],
    again: str,
    *,
    patience: timedelta,
    ask_again_seconds: float,
) -> AsyncIterator[T]:
    """A turn at delayed mails, as soon as other processes leave it.

    Args:
        parts: of the queue.
        taken: asks for the turn once; None while another process has it.
        again: tells the operator how to go on after the error.
        patience: how long the caller waits.
        ask_again_seconds: the pause before the next question.

    Raises:
        LeaseHeld: another process kept the turn for longer than that.
    """
    patient_until = parts.now + patience
    while True:
        async with taken() as turn:
            if turn:
                yield turn
                return
        if parts.now > patient_until:
            raise moved_by_others(parts.queue, again)
        await parts.clock.pause(ask_again_seconds)


def moved_by_others(queue: QueueName, again: str) -> LeaseHeld:
    return LeaseHeld(f"another process keeps moving delayed mails of the queue {queue!r}", mend=again)


def with_restored(removed: Collection[EnqueueId], queue: QueueName) -> frozenset[EnqueueId]:
    """The ids of removed mails, and the ids under which they come back."""
    return frozenset(removed).union(restored_id(enqueue_id, queue) for enqueue_id in removed)


async def is_missing(blobs: Blobs, blob_id: str) -> bool:
    """Whether the store lacks the blob; no blob has an id that is in no known form."""
    try:
        return not await blobs.exists(BlobId(blob_id))
    except BadPayload:
        return True


async def missing_among(blobs: Blobs, mails: Mapping[EnqueueId, LiveMail]) -> frozenset[EnqueueId]:
    """The mails whose header or body the store lacks."""

    async def lacking(enqueue_id: EnqueueId) -> bool:
        kept = mails[enqueue_id].blobs
        return await is_missing(blobs, kept.header) or await is_missing(blobs, kept.body)

    async with aclosing(in_order(mails, lacking, BLOBS_AT_ONCE)) as found:
        return frozenset([enqueue_id async for enqueue_id, lacks in found if lacks])


def checked_prefetch(prefetch: int) -> int:
    """The given prefetch.

    Raises:
        WrongUse: it is below 1; a broker takes 0 for no limit.
    """
    if prefetch < 1:
        raise WrongUse(f"a prefetch of {prefetch} takes nothing", mend="Ask for 1 or more.")
    return prefetch


def weight_of(priority: int) -> int:
    """How many turns the level has, relative to the other levels that have mail."""
    return priority + 1


def next_turn(owed: Mapping[int, int], waiting: Collection[int]) -> tuple[int, dict[int, int]]:
    """The level whose turn it is, and what each waiting level is owed now, in turns times the sum of weights.

    A level that has no mail is dropped: it neither saves turns nor pays for past ones.

    Args:
        owed: from the turn before; empty at the beginning.
        waiting: the levels that have mail; at least one.
    """
    now_owed = {level: owed.get(level, 0) + weight_of(level) for level in waiting}
    chosen = max(now_owed, key=lambda level: (now_owed[level], level))
    now_owed[chosen] -= sum(map(weight_of, waiting))
    return chosen, now_owed


class Drain(Generic[D]):
    """Deliveries not yet taken, handed out by weight; first in, first out within a level."""

    def __init__(self) -> None:
        self._lanes: dict[int, deque[D]] = {}
        self._owed: dict[int, int] = {}
        self._filled = asyncio.Event()
        self._failure: BaseException | None = None

    def put(self, priority: int, delivery: D) -> None:
        self._lanes.setdefault(priority, deque()).append(delivery)
        self._filled.set()

    def fail(self, error: BaseException) -> None:
        """Nothing more will come: iterating raises the error once all deliveries were handed out."""
        self._failure = error
        self._filled.set()

    def drop(self, priority: int) -> None:
        self._lanes.pop(priority, None)

    def clear(self) -> list[D]:
        """Remove all deliveries and return them."""
        left = list(self)
        self._lanes.clear()
        return left

    def __aiter__(self) -> "Drain[D]":
        return self

    async def __anext__(self) -> D:
        """The next delivery; waits for one. If cancelled, it has taken none, and may be asked again."""
        while not self._lanes:
            if self._failure is not None:
                raise self._failure
            self._filled.clear()
            await self._filled.wait()
        level, self._owed = next_turn(self._owed, self._lanes)
        delivery = self._lanes[level].popleft()
        if not self._lanes[level]:
            del self._lanes[level]
        return delivery

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[D]:
        return chain.from_iterable(self._lanes.values())


LOADS_MAX: Final = 16
"""The largest number of contents that are loaded at once: more than the bound is held by these at most."""

_REMEMBERED: Final = 100


class ContentRoom:
    """The contents of one consumer's mails.

    Args:
        bytes_max: how many bytes may be held; None: there is no bound.

    Attributes:
        held: how many bytes are held.
    """

    def __init__(self, bytes_max: int | None = None) -> None:
        self._max = bytes_max
        self.held = 0
        self._loading = 0
        self._sizes: deque[int] = deque([(bytes_max or 0) // LOADS_MAX], maxlen=_REMEMBERED)
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def load(self) -> AsyncGenerator[None]:
        """Load a content once there is room for it: the caller that waits longest is next."""
        await self._enter()
        try:
            yield
        finally:
            self._loading -= 1
            self._admit()

    async def loaded(self, blobs: Blobs, kept: MailBlobs) -> bytes:
        """A mail's bytes, once there is room for them; they count until they are let go.

        Raises:
            BlobMissing: they are lost.
            BadPayload: what names them is no id of a blob.
            BlobsUnreachable: the store does not answer.
        """
        async with self.load():
            content = await content_of(blobs, kept)
            self.hold(len(content))
        return content

    def hold(self, size: int) -> None:
        """Count a content that was loaded."""
        self.held += size
        self._sizes.append(size)

    def let_go(self, size: int) -> None:
        """Count it no more."""
        self.held -= size
        self._admit()

    async def _enter(self) -> None:
        if not self._waiting and self._has_room:
            self._loading += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was admitted at that moment
                self._loading -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._has_room:
            turn = self._waiting.popleft()
            if not turn.done():
                self._loading += 1
                turn.set_result(None)

    @property
    def _has_room(self) -> bool:
        if self._max is None or not (self.held or self._loading):
            return True
        expected = (self._loading + 1) * max(self._sizes)
        return self._loading < LOADS_MAX and self.held + expected <= self._max
