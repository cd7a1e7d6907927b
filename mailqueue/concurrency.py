"""Bounded concurrency: many coroutines side by side, batches, work that outlives a cancelled caller."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing
from itertools import islice
from typing import Any, Final, TypeVar

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
