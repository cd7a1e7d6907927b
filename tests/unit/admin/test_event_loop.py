"""Coroutines of a command end as every other command does: signals cancel or stop them, errors leave their groups."""

import asyncio
import os
import signal

import pytest

from mailmend.admin.frame.event_loop import run_async, stop_signal
from mailmend.model.errors import CannotReach


def interrupt(which: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), which)


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_and_lets_everything_undo_itself(which: signal.Signals) -> None:
    """What is under way comes to its own end before the command ends as interrupted."""
    undone = []

    async def work() -> None:
        try:
            interrupt(which)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            undone.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_async(work())
    assert undone == [True]


def test_signals_are_left_as_they_were() -> None:
    before = [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)]

    async def work() -> int:
        return 7

    assert run_async(work()) == 7
    assert [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_service_finishes_after_a_stop_signal() -> None:
    async def work() -> str:
        with stop_signal() as stop:
            interrupt()
            await stop.wait()
            await asyncio.sleep(0)
            return "finished"

    assert run_async(work()) == "finished"


def test_a_second_signal_cancels_a_service() -> None:
    async def work() -> None:
        with stop_signal() as stop:
            interrupt()
            await stop.wait()
            interrupt()
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run_async(work())


def test_after_a_service_has_stopped_signals_cancel_again() -> None:
    async def work() -> None:
        with stop_signal():
            pass
        interrupt()
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run_async(work())


def test_our_own_error_comes_out_of_its_groups() -> None:
    """Beside others, and nested: the person reads what happened, not that tasks failed."""

    async def fails(error: Exception) -> None:
        raise error

    async def work() -> None:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(fails(ValueError("later")))
            async with asyncio.TaskGroup() as inner:
                inner.create_task(fails(CannotReach("nobody answers")))

    with pytest.raises(CannotReach, match="nobody answers"):
        run_async(work())


def test_an_error_that_nobody_foresaw_comes_out_alone_too() -> None:
    async def fails() -> None:
        raise ValueError("odd")

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    with pytest.raises(ValueError, match="odd"):
        run_async(work())


def test_a_cancellation_of_its_own_is_no_interruption() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_async(work())
