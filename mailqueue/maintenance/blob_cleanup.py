"""What a queue does behind its consumers: the bytes of mails that are done with go, and now and then a sweep begins.

Bytes wait a moment for those of the next mails and go together with them, so the store is asked seldom: a consumer that
takes one mail after the other is slowed down most by requests that run beside its own. What a crash, or a store that
does not answer, leaves is left to the sweep of the mails' slices.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mailqueue.background import BackgroundTasks
from model.ports import Blobs, Clock
from model.queue.mails import MailBlobs

GATHER_SECONDS: Final = 0.05
"""How long the bytes of one mail wait for those of others."""

TOGETHER_MAX: Final = 500
"""How many mails' bytes go together."""

WAITING_MAX: Final = 5_000
"""How many mails' bytes may wait to be deleted; then consumers wait."""


@dataclass(frozen=True, slots=True)
class _Done:
    """A mail's bytes, and whether a consumer was done with it just now."""

    blobs: MailBlobs
    dequeued: bool


class BlobCleanup:
    """Tidies up behind one queue.

    Args:
        blobs: where the bytes are.
        maybe_sweep: asked once for each mail that was dequeued.
        afterwards: waits for the work at the end.
        clock: lets others come.
    """

    def __init__(
        self, blobs: Blobs, maybe_sweep: Callable[[], Awaitable[None]], afterwards: BackgroundTasks, clock: Clock
    ) -> None:
        self._blobs, self._maybe_sweep, self._afterwards, self._clock = blobs, maybe_sweep, afterwards, clock
        self._waiting: deque[_Done] = deque()
        self._has_room = asyncio.Event()
        self._working = False

    async def add(self, blobs: MailBlobs, *, dequeued: bool) -> None:
        """These bytes go soon."""
        while len(self._waiting) >= WAITING_MAX:
            self._has_room.clear()
            await self._has_room.wait()
        self._waiting.append(_Done(blobs, dequeued))
        if not self._working:
            self._working = True
            await self._afterwards.add(self._work)

    async def _work(self) -> None:
        """Until nothing waits any more; what could not be deleted is not tried again."""
        try:
            while self._waiting:
                if len(self._waiting) < TOGETHER_MAX:
                    await self._clock.pause(GATHER_SECONDS)
                some = list(islice(self._waiting, TOGETHER_MAX))
                for _ in some:
                    self._waiting.popleft()
                self._has_room.set()
                await self._tidied(some)
        finally:
            self._working = False
            self._has_room.set()

    async def _tidied(self, some: list[_Done]) -> None:
        try:
            await self._blobs.delete_all([blob_id for one in some for blob_id in (one.blobs.header, one.blobs.body)])
        finally:
            for one in some:
                if one.dequeued:
                    await self._maybe_sweep()
