"""Work that nobody waits for before the queue is closed: removing blobs, tidying up; no consumer need wait either.

A bounded number is under way at once: whoever adds more waits, which is the only pressure back. Everything is awaited
at the end. What a crash leaves undone here, the sweep does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from model.errors import MailmendError

T = TypeVar("T")

UNDER_WAY: Final = 64
"""How much of it is under way at once."""

_LOG: Final = logging.getLogger("mailmend.queue")


class BackgroundTasks:
    """Work to be done some time before `close` returns. An error of ours in it is logged, and fails nobody."""

    def __init__(self, under_way: int = UNDER_WAY) -> None:
        self._room = asyncio.Semaphore(under_way)
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin the work, as soon as there is room."""
        await self._room.acquire()
        task = asyncio.get_running_loop().create_task(self._carried_out(work))
        self._tasks.add(task)
        task.add_done_callback(self._let_go)

    async def close(self) -> None:
        """Wait for everything that was begun."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _carried_out(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except MailmendError as error:
            _LOG.warning("left undone: %s", error.what)

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("left undone", exc_info=task.exception())


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """The work's result; cancelled meanwhile, the caller goes only when the work has come to its end all the same."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await ended((task,))
        if not task.cancelled() and task.exception() is not None:
            _LOG.warning("after its caller was cancelled: %s", task.exception())
        raise


async def ended(tasks: "tuple[asyncio.Future[Any], ...]") -> None:
    """Wait until all have come to an end, however often the waiting itself is cancelled."""
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:  # told once already: the caller raises it when this is over
            continue
