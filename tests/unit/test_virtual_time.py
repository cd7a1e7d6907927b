"""The clock that tests turn by hand stands while a thread works, however long that takes in real time."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import anyio.to_thread
import pytest

from tests.support import thread_calls
from tests.support.clock import START, VirtualClock

_MANY_TURNS = 1000
"""The number of turns of the event loop in which a clock that waits for no thread passes over many pauses."""


@pytest.mark.parametrize("in_thread", [asyncio.to_thread, anyio.to_thread.run_sync])
async def test_no_virtual_time_passes_while_a_thread_works(
    in_thread: Callable[[Callable[[], bool]], Awaitable[bool]],
) -> None:
    clock, gate = VirtualClock(), threading.Event()
    pausing = asyncio.create_task(clock.pause(900))
    working = asyncio.ensure_future(in_thread(gate.wait))
    try:
        for _ in range(_MANY_TURNS):
            await asyncio.sleep(0)
        passed = clock.micros() - START
    finally:
        gate.set()
    await working
    assert (passed, pausing.done()) == (0, False)

    await pausing
    assert clock.micros() == START + 900_000_000


async def test_a_thread_that_waits_for_virtual_time_does_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_calls, "_LONG_SECONDS", 0.01)
    clock, gate = VirtualClock(), threading.Event()
    waiting = asyncio.create_task(asyncio.to_thread(gate.wait))
    await asyncio.sleep(0)

    await clock.pause(60)
    gate.set()

    assert await waiting
    assert clock.micros() == START + 60_000_000
