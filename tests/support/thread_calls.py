"""Calls that run in threads for an event loop: a clock that tests turn by hand has to wait for them.

A thread takes real time: much of it on a busy machine, or where it is the first one of the process. The virtual time of
other tasks must not pass meanwhile.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio.to_thread

_LONG_SECONDS: Final = 2.0
"""A call that takes longer in real time is not waited for again: it may itself wait for virtual time to pass."""

_POLL_SECONDS: Final = 0.0005


@dataclass(slots=True)
class ThreadCalls:
    """The calls of one event loop.

    Attributes:
        begun: the number of calls that ever began.
        running: the calls that run now, without those that take long.
    """

    begun: int = 0
    running: set[object] = field(default_factory=set)

    def begin(self) -> object:
        call = object()
        self.begun += 1
        self.running.add(call)
        return call

    def end(self, call: object) -> None:
        self.running.discard(call)

    async def ended(self) -> None:
        """Wait in real time until no call runs; a call that takes long counts no more."""
        waited_for = set(self.running)
        until = time.monotonic() + _LONG_SECONDS
        while self.running:
            await asyncio.sleep(_POLL_SECONDS)
            if time.monotonic() >= until:
                self.running -= waited_for
                waited_for = set(self.running)
                until = time.monotonic() + _LONG_SECONDS


_BY_LOOP: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadCalls]()


def calls_of_this_loop() -> ThreadCalls:
    return _BY_LOOP.setdefault(asyncio.get_running_loop(), ThreadCalls())


def count_thread_calls() -> None:
    """Count the calls of `asyncio.to_thread` and of frameworks from now on; once for each process."""
    run_in_executor = asyncio.BaseEventLoop.run_in_executor
    run_sync = anyio.to_thread.run_sync

    def counted_in_executor(
        self: asyncio.BaseEventLoop, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        calls = _BY_LOOP.setdefault(self, ThreadCalls())
        future = run_in_executor(self, executor, func, *args)
        call = calls.begin()
        future.add_done_callback(lambda _: calls.end(call))
        return future

    async def counted_sync(func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        calls = calls_of_this_loop()
        call = calls.begin()
        try:
            return await run_sync(func, *args, **options)
        finally:
            calls.end(call)

    asyncio.BaseEventLoop.run_in_executor = counted_in_executor  # type: ignore[assignment,method-assign]
    anyio.to_thread.run_sync = counted_sync  # type: ignore[assignment]
