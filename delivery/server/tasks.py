"""The work of a server that is under way, by kind, and how it is waited for."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from mailmend.mailqueue.concurrency import cancelled, paused
from mailmend.model.instants import nanos_of, span_of
from mailmend.model.ports import Clock

Tasks = set[asyncio.Task[None]]

_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(slots=True, kw_only=True, eq=False)
class ServerTasks:
    """Tasks of one event loop.

    Attributes:
        woken: set when one has ended, and by others.
        preparing: from an entry to what it can be picked as.
        attempts: they count against the server's own concurrency.
        following: hooks behind waits that ended without an attempt.
        settling: mails that leave.
    """

    clock: Clock
    woken: asyncio.Event
    preparing: Tasks = field(default_factory=set)
    attempts: Tasks = field(default_factory=set)
    following: Tasks = field(default_factory=set)
    settling: Tasks = field(default_factory=set)

    def begin(self, tasks: Tasks, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        tasks.add(task)

        def ended(_: object) -> None:
            tasks.discard(task)
            self.woken.set()
            if not task.cancelled() and task.exception():
                _LOG.error("a mail is left unacked", exc_info=task.exception())

        task.add_done_callback(ended)

    async def end(self, tasks: Tasks, until: int) -> None:
        """Wait for some work until a moment, in nanoseconds of the monotonic clock; then break it off."""
        while tasks and (left := until - nanos_of(self.clock.monotonic())) > 0:
            self.woken.clear()
            await paused(self.clock, span_of(left), self.woken)
        await cancelled(tasks)
