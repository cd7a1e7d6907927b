"""Room for the bytes of mails that one consumer holds at once: while it is full, no further content is loaded.

The broker's prefetch bounds how many mails a consumer has, not how large they are. A content's size is known once it is
loaded; until then it counts as large as the largest of the last ones. The first mail is loaded however large it is.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

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
