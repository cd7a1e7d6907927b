"""Work side by side and in the background: bounded coroutines, batches, work that outlives a cancelled caller.

Background work of a queue is tasks without a waiting caller, batched deletion of blobs, and
periodic jobs. Closing waits for all of it. What a crash or an unreachable store leaves undone, the
next sweep does.
"""

import asyncio
import logging
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from mailmend.mailqueue.rules.mails import MailBlobs
from mailmend.model.blobs import Blobs
from mailmend.model.durations import LOOK_AGAIN
from mailmend.model.errors import MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.ports import Clock

S = TypeVar("S")
T = TypeVar("T")

_LOG: Final = logging.getLogger("mailmend.queue")


async def in_order(
    items: Iterable[S],
    read: Callable[[S], Coroutine[Any, Any, T]],
    most: int,
    room: Callable[[T], int] | None = None,
) -> AsyncGenerator[tuple[S, T]]:
    """Each item with what was read for it, in the order of the items; the next ones are read ahead.

    Close it (`contextlib.aclosing`) when leaving early: running reads are then cancelled at once.

    Args:
        items: taken one by one, as they are needed.
        read: what is done for each.
        most: how many are read at once.
        room: how many more may be read ahead, judged by the last; then the first is read alone. None: always `most`.
    """
    left = iter(items)
    under_way = deque[tuple[S, asyncio.Task[T]]]()
    allowed = most
    if room is not None:
        allowed = 1
    try:
        while True:
            for item in islice(left, max(0, allowed - len(under_way))):
                under_way.append((item, asyncio.create_task(read(item))))
            if not under_way:
                return
            item, task = under_way[0]
            found = await task
            under_way.popleft()
            if room is not None:
                allowed = max(1, min(most, room(found)))
            yield item, found
    finally:
        tasks = [task for _, task in under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def all_of(items: Iterable[S], carry_out: Callable[[S], Coroutine[Any, Any, T]], most: int) -> list[T]:
    """The results in order, at most `most` running at once; the first failure cancels the others."""
    async with aclosing(in_order(items, carry_out, most)) as found:
        return [answer async for _, answer in found]


async def in_batches(items: AsyncIterator[S], most: int) -> AsyncGenerator[list[S]]:
    """The items in batches of `most`; the last may be smaller, none is empty.

    The caller closes the source.
    """
    some = list[S]()
    async for item in items:
        some.append(item)
        if len(some) == most:
            yield some
            some = []
    if some:
        yield some


async def next_until(
    items: AsyncIterator[T], stop: asyncio.Event, idle: Coroutine[Any, Any, object] | None = None
) -> T | None:
    """The next item; None at the end of them, once `stop` is set, or where `idle` ends first.

    An item that comes together with the stop is left to the code that closes the items.
    """
    coming = asyncio.ensure_future(_anext(items))
    others: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait())]
    if idle is not None:
        others.append(asyncio.ensure_future(idle))
    try:
        await asyncio.wait([coming, *others], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set() or not coming.done():
            return None
        return coming.result()
    finally:
        for task in (coming, *others):
            task.cancel()
        await asyncio.gather(coming, *others, return_exceptions=True)


async def _anext(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """The work's result; a caller that is cancelled meanwhile still waits for the end of the work."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await ended((task,))
        if not task.cancelled() and task.exception() is not None:
            _LOG.warning("failed after its caller was cancelled", extra={"error": str(task.exception())})
        raise


async def ended(tasks: "tuple[asyncio.Future[Any], ...]") -> None:
    """Wait until all have ended, however often the waiting itself is cancelled."""
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:  # the caller raises it when this is over
            continue


class Gathered(Generic[S, T]):
    """Carries items out together: those that come during a request go with the next.

    Args:
        carry_out: one result for each item, in order. An error of it is the error of each.
        most: how many items one request has.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[S]], Awaitable[Sequence[T]]],
        most: int,
    ) -> None:
        self._carry_out = carry_out
        self._most = most
        self._waiting: deque[tuple[S, asyncio.Future[T]]] = deque()
        self._working: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no item waits, and none is being carried out."""
        return self._working is None

    async def add(self, item: S) -> T:
        """The item's result. A caller that is cancelled does not end the work."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        if self._working is None:
            self._working = asyncio.ensure_future(self._work())
        return await asyncio.shield(result)

    async def close(self) -> None:
        """End the work; callers that wait are cancelled."""
        if self._working is not None:
            await cancelled([self._working])

    async def _work(self) -> None:
        some = list[tuple[S, asyncio.Future[T]]]()
        try:
            while self._waiting:
                some = list(islice(self._waiting, self._most))
                for _ in some:
                    self._waiting.popleft()
                await self._answered(some)
        finally:
            self._working = None
            for _, result in (*some, *self._waiting):
                result.cancel()  # nothing where it has its answer
            self._waiting.clear()

    async def _answered(self, some: Sequence["tuple[S, asyncio.Future[T]]"]) -> None:
        try:
            answers = await self._carry_out([item for item, _ in some])
        except Exception as error:  # noqa: BLE001 - the callers that wait get it
            for _, result in some:
                if not result.done():
                    result.set_exception(error)
            return
        for (_, result), answer in zip(some, answers, strict=True):
            if not result.done():
                result.set_result(answer)


UNDER_WAY: Final = 64
"""How many background tasks run at once. A caller that adds one more waits until one has ended: nothing else slows
callers down."""

GATHER_SECONDS: Final = 0.05
"""The seconds that blobs wait for other mails' blobs, so that one request deletes many: a request slows consumers."""

TOGETHER_MAX: Final = 500
"""The blobs of at most this many mails are deleted together."""

WAITING_MAX: Final = 5_000
"""The blobs of at most this many mails wait for their deletion; a consumer that adds more waits."""


class BackgroundTasks:
    """Tasks that end before `close` returns. A MailmendError in one of them is logged, and not raised."""

    def __init__(self, under_way: int = UNDER_WAY) -> None:
        self._room = asyncio.Semaphore(under_way)
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, work: Callable[[], Awaitable[None]]) -> None:
        await self._room.acquire()
        task = asyncio.get_running_loop().create_task(self._carried_out(work))
        self._tasks.add(task)
        task.add_done_callback(self._let_go)

    async def close(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _carried_out(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except MailmendError as error:
            _LOG.warning("left undone", extra={"error": error.what})

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("left undone", exc_info=task.exception())


class BlobCleanup:
    """Deletes the blobs of mails that left one queue."""

    def __init__(
        self, blobs: Blobs, maybe_sweep: Callable[[], Awaitable[None]], background: BackgroundTasks, clock: Clock
    ) -> None:
        self._blobs = blobs
        self._maybe_sweep = maybe_sweep
        self._background = background
        self._clock = clock
        self._waiting: deque[MailBlobs] = deque()
        self._dequeued = 0
        self._has_room = asyncio.Event()
        self._working = False

    async def add(self, blobs: MailBlobs, *, dequeued: bool) -> None:
        """Delete these blobs soon, in one request with others."""
        while len(self._waiting) >= WAITING_MAX:
            self._has_room.clear()
            await self._has_room.wait()
        self._waiting.append(blobs)
        self._dequeued += dequeued
        if not self._working:
            self._working = True
            await self._background.add(self._work)

    async def _work(self) -> None:
        try:
            while self._waiting:
                if len(self._waiting) < TOGETHER_MAX:
                    await self._clock.pause(GATHER_SECONDS)
                some = list(islice(self._waiting, TOGETHER_MAX))
                for _ in some:
                    self._waiting.popleft()
                self._has_room.set()
                await self._delete(some)
        finally:
            self._working = False
            self._has_room.set()

    async def _delete(self, some: list[MailBlobs]) -> None:
        dequeued = self._dequeued
        self._dequeued = 0
        try:
            blob_ids = []
            for blobs in some:
                blob_ids += [blobs.header, blobs.body]
            await self._blobs.delete_all(blob_ids)
        finally:
            for _ in range(dequeued):
                await self._maybe_sweep()


@dataclass(frozen=True, slots=True)
class BackgroundJob:
    """Periodic work.

    Attributes:
        every: how long after its end it begins anew.
    """

    name: str
    carry_out: Callable[[], Awaitable[Any]]
    every: timedelta


async def run_jobs(queue: QueueName, clock: Clock, stop: asyncio.Event, jobs: tuple[BackgroundJob, ...]) -> None:
    """Repeat every job until `stop` is set; a running job is finished, and pauses are cut short."""
    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            tasks.create_task(_repeated(queue, clock, stop, job), name=f"{job.name} of {queue}")


async def _repeated(queue: QueueName, clock: Clock, stop: asyncio.Event, job: BackgroundJob) -> None:
    failures = 0
    while not stop.is_set():
        if await _carried_out(queue, job):
            failures = 0
            wait = job.every
        else:
            failures += 1
            wait = max(job.every, LOOK_AGAIN.wait(failures))
        await paused(clock, wait, stop)


async def _carried_out(queue: QueueName, job: BackgroundJob) -> bool:
    """Whether it succeeded; an error, even a bug, does not end the job's repetition."""
    try:
        await job.carry_out()
    except MailmendError as error:
        _LOG.warning("background work failed", extra={"queue": queue, "work": job.name, "error": error.what})
    except Exception:  # noqa: BLE001 - logged with its trace
        _LOG.exception("background work failed", extra={"queue": queue, "work": job.name})
    else:
        return True
    return False


async def paused(clock: Clock, wait: timedelta, *until: asyncio.Event) -> None:
    """Wait for this time, or until one of the events is set."""
    waits = (clock.pause(wait.total_seconds()), *(event.wait() for event in until))
    waiting = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def broken_off(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> None:
    """Do this work, and cancel it where the event is set before it has ended."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.wait((working, stopping))
    if not working.cancelled():
        working.result()


async def cancelled(tasks: Iterable["asyncio.Task[None]"]) -> None:
    """Cancel them, and wait until each has ended."""
    some = tuple(tasks)
    for task in some:
        task.cancel()
    await asyncio.gather(*some, return_exceptions=True)
