"""Work of many mails on one disk, in few turns of threads.

What comes while a batch is under way goes with the next one. So a quick disk has small batches one
by one, and a slow one has several at once, each of which waits for the disk once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")

BATCHES_AT_ONCE: Final = 8
"""How many batches of one store are under way at the same time, each in a thread."""

FULL_ITEMS: Final = 8
"""The number of items that begin a batch also while others are under way."""

FULL_BYTES: Final = 256 * 1024
"""The number of bytes that does so too. No batch has more; a larger item is alone."""

BATCH_ITEMS: Final = 64
"""The most items of one batch: two open files for each."""


class Batches(Generic[S]):
    """Which items go together, and when.

    Attributes:
        under_way: the number of batches that have begun and not ended.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[S, int]] = deque()
        self._bytes = 0
        self.under_way = 0

    def add(self, item: S, size: int) -> None:
        """Let an item of that many bytes wait for a batch."""
        self._waiting.append((item, size))
        self._bytes += size

    def begun(self) -> Sequence[S]:
        """The next batch, the oldest items first; empty where nothing may begin now.

        It is under way from now on.
        """
        if not self._may_begin:
            return ()
        self.under_way += 1
        batch = list[S]()
        size = 0
        while self._waiting and len(batch) < BATCH_ITEMS:
            more = self._waiting[0][1]
            if batch and size + more > FULL_BYTES:
                break
            item, _ = self._waiting.popleft()
            batch.append(item)
            size += more
        self._bytes -= size
        return batch

    def ended(self) -> None:
        """Count one batch no more."""
        self.under_way -= 1

    @property
    def _may_begin(self) -> bool:
        if not self.under_way:
            return bool(self._waiting)
        is_full = len(self._waiting) >= FULL_ITEMS or self._bytes >= FULL_BYTES
        return is_full and self.under_way < BATCHES_AT_ONCE


class ThreadedBatches(Generic[S, T]):
    """Carries items out in threads, a batch in one turn.

    Args:
        carry_out: called in a thread; one result for each item, in order. Its error is the error of each.
    """

    def __init__(self, carry_out: Callable[[Sequence[S]], Sequence[T]]) -> None:
        self._carry_out = carry_out
        self._batches = Batches[tuple[S, asyncio.Future[T]]]()

    async def add(self, item: S, size: int = 0) -> T:
        """The item's result. Where the caller is cancelled, work that has begun goes on."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._batches.add((item, result), size)
        self._begin()
        return await result

    def _begin(self) -> None:
        while batch := self._batches.begun():
            wanted = [(item, result) for item, result in batch if not result.cancelled()]
            if not wanted:
                self._batches.ended()
                continue
            items = [item for item, _ in wanted]
            try:
                working = asyncio.get_running_loop().run_in_executor(None, self._carry_out, items)
            except RuntimeError as error:  # no thread can be started
                self._batches.ended()
                for _, result in wanted:
                    result.set_exception(error)
                continue
            working.add_done_callback(partial(self._end, [result for _, result in wanted]))

    def _end(self, results: Sequence["asyncio.Future[T]"], working: "asyncio.Future[Sequence[T]]") -> None:
        self._batches.ended()
        if error := working.exception():
            for result in results:
                if not result.done():
                    result.set_exception(error)
        else:
            for result, answer in zip(results, working.result(), strict=True):
                if not result.done():
                    result.set_result(answer)
        self._begin()
