"""How a command runs what is awaited: in one loop of its own, ended as every other command is.

Ctrl-C and SIGTERM cancel what is under way, so that it undoes itself before the command ends (130). A service wants to
be told instead, and to finish what it has in hand: `told_to_stop`; a second signal cancels it all the same.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from model.errors import MailmendError

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_CALLED: Final[ContextVar[list[Callable[[], None]]]] = ContextVar("called when a signal comes, the last one")


def awaited(story: Coroutine[Any, Any, T]) -> T:
    """What the story comes to.

    Raises:
        KeyboardInterrupt: somebody ended it, and it has let go of everything.
        MailmendError: what ended it, also where it came out of a group of tasks.
    """
    try:
        with asyncio.Runner() as runner:
            return runner.run(_interruptible(story))
    except BaseExceptionGroup as group:
        raise _spoken(group) from group


async def _interruptible(story: Coroutine[Any, Any, T]) -> T:
    called: list[Callable[[], None]] = []
    _CALLED.set(called)
    task = asyncio.ensure_future(story)
    interrupted = asyncio.Event()
    called += [interrupted.set, lambda: _cancel(task)]
    with _signals_call(called):
        try:
            return await task
        except asyncio.CancelledError:
            if interrupted.is_set():
                raise KeyboardInterrupt from None
            raise


def _cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()


@contextmanager
def told_to_stop() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C or SIGTERM sets, instead of cancelling; whoever watches it ends in good order."""
    stop = asyncio.Event()
    called = _CALLED.get([])
    before = list(called)

    def tell() -> None:
        if stop.is_set():
            for one in before:
                one()
        stop.set()

    called[:] = [tell]
    try:
        yield stop
    finally:
        called[:] = before


@contextmanager
def _signals_call(called: list[Callable[[], None]]) -> Iterator[None]:
    """Have the loop call them; what a signal did before is put back at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears of signals
        return
    loop = asyncio.get_running_loop()
    before = {which: signal.getsignal(which) for which in _SIGNALS}
    for which in _SIGNALS:
        loop.add_signal_handler(which, lambda: [one() for one in list(called)])
    try:
        yield
    finally:
        for which, reaction in before.items():
            loop.remove_signal_handler(which)
            signal.signal(which, reaction)


def _spoken(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one of the group that says what happened: the first of our own errors, or else the first of all."""
    leaves = list(_leaves(group))
    return next((one for one in leaves if isinstance(one, MailmendError)), leaves[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one
