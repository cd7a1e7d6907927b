"""One answer for many who ask the same at once: each gets one whose question was asked after its own call.

Whoever enqueues must look at the browse start after its row was put. A look that began before will not do; the next
one serves all who came meanwhile. So a hundred at once cost two looks, and one alone costs one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedReads(Generic[K, T]):
    """Reads of one kind, at most one under way for each key, and one that waits to be next.

    Args:
        read: what is asked.
    """

    def __init__(self, read: Callable[[K], Awaitable[T]]) -> None:
        self._read = read
        self._under_way: dict[K, asyncio.Task[T]] = {}
        self._next: dict[K, asyncio.Task[T]] = {}

    async def get(self, key: K) -> T:
        """What a read answers that begins from now on.

        Whoever is cancelled leaves the read to the others.

        Raises:
            MailmendError: what the read met.
        """
        waiting = self._next.get(key)
        if waiting is None:
            waiting = self._next[key] = asyncio.create_task(self._after(key, self._under_way.get(key)))
            waiting.add_done_callback(_noted)
        return await asyncio.shield(waiting)

    async def _after(self, key: K, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        task = self._under_way[key] = self._next.pop(key)
        try:
            return await self._read(key)
        finally:
            if self._under_way.get(key) is task:
                del self._under_way[key]


def _noted(task: asyncio.Task[T]) -> None:
    """A failure that nobody waits for any more is nobody's."""
    if not task.cancelled():
        task.exception()
