"""How a command runs coroutines: in one loop of its own, ended as every other command is.

Ctrl-C and SIGTERM cancel what is under way, so that it undoes itself before the command ends (130). A service waits for
a `stop_signal` instead, and finishes what it has begun; a second signal cancels it all the same.

A worker process is stopped by its parent, over a pipe (`ordered_by`). There a signal counts as the
parent's first order, however many signals come: who signals the parent may signal its workers too.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mailmend.model.errors import MailmendError, WrongUse

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_REACTIONS: Final[ContextVar[list[Callable[[], None]]]] = ContextVar("called in this order when a signal comes")
_PARENT: Final["ContextVar[Connection | None]"] = ContextVar("a worker's orders", default=None)


@contextmanager
def ordered_by(parent: "Connection") -> Iterator[None]:
    """Have coroutines in the block stop as the parent of this process says over this pipe.

    The parent sends 1 where a stop signal is meant, 2 where a second one is; the end of the pipe is
    as good as 1.
    """
    token = _PARENT.set(parent)
    try:
        yield
    finally:
        _PARENT.reset(token)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; Ctrl-C and SIGTERM raise KeyboardInterrupt, with all closed.

    Raises:
        WrongUse: an event loop runs in this thread already, because a program calls it there.
    """
    if _is_loop_running():
        work.close()
        raise WrongUse(
            "this waits for a server, and an event loop runs in this thread",
            mend="Open with mailmend.open_async, or call it by asyncio.to_thread.",
        )
    try:
        with asyncio.Runner() as runner:
            return runner.run(_interruptible(work))
    except BaseExceptionGroup as group:
        raise _first_error(group) from group


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    reactions: list[Callable[[], None]] = []
    _REACTIONS.set(reactions)
    task, interrupted = asyncio.ensure_future(work), asyncio.Event()
    reactions += [interrupted.set, lambda: _cancel(task)]
    with _signals_call(reactions):
        try:
            return await task
        except asyncio.CancelledError:
            if interrupted.is_set():
                raise KeyboardInterrupt from None
            raise


def _cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()


@contextmanager
def stop_signal() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C or SIGTERM sets instead of cancelling, so that the work can end in good order."""
    stop = asyncio.Event()
    reactions = _REACTIONS.get([])
    before = list(reactions)

    def react() -> None:
        # A second signal does what the first one would have done without this block.
        if stop.is_set():
            for undo in before:
                undo()
        stop.set()

    reactions[:] = [react]
    try:
        yield stop
    finally:
        reactions[:] = before


@contextmanager
def hangup_calls(reaction: Callable[[], None]) -> Iterator[None]:
    """Have SIGHUP call this in place of ending the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGHUP)
    loop.add_signal_handler(signal.SIGHUP, reaction)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before)


@contextmanager
def _signals_call(reactions: list[Callable[[], None]]) -> Iterator[None]:
    """Have the loop call them on a signal; the previous handlers are restored at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    loop = asyncio.get_running_loop()

    def react() -> None:
        for reaction in list(reactions):
            reaction()

    asked = 0

    def ask(level: int) -> None:
        nonlocal asked
        while asked < level:
            asked += 1
            react()

    parent = _PARENT.get()

    def hear(_: int, __: FrameType | None) -> None:
        if parent:
            loop.call_soon_threadsafe(ask, 1)
        else:
            loop.call_soon_threadsafe(react)

    # Not by the loop's add_signal_handler: its removal puts the default in force, by which SIGTERM ends the process.
    before = {which: signal.signal(which, hear) for which in _SIGNALS}
    try:
        with _orders_call(ask, parent):
            yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


@contextmanager
def _orders_call(ask: Callable[[int], None], parent: "Connection | None") -> Iterator[None]:
    """Have the loop call it with each order of the parent, where there is one."""
    if parent is None:
        yield
        return
    loop = asyncio.get_running_loop()
    source = parent.fileno()

    def read() -> None:
        try:
            level = int(parent.recv())
        except (EOFError, OSError):  # the parent is no more
            loop.remove_reader(source)
            level = 1
        ask(level)

    loop.add_reader(source, read)
    try:
        yield
    finally:
        loop.remove_reader(source)


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    leaves = list(_leaves(group))
    return next((leaf for leaf in leaves if isinstance(leaf, MailmendError)), leaves[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for exception in group.exceptions:
        if isinstance(exception, BaseExceptionGroup):
            yield from _leaves(exception)
        else:
            yield exception
