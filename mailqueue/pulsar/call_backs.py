"""The functions that threads of Pulsar's client call, and their end before the interpreter's.

Python ends a thread that asks for its lock when the interpreter ends. A thread in a C++ function
that may not be left that way, such as one that destroys a call back, takes the process with it:
SIGABRT.
"""

import functools
from contextlib import suppress
from threading import Event
from typing import Any, ClassVar, Final
from weakref import WeakSet

LET_GO_TRIES_MAX: Final = 200
LET_GO_SECONDS: Final = 0.005
"""How often and how long the end of the interpreter waits for the threads of closed clients."""


class CallBack(functools.partial[None]):
    """What a thread of the library calls when an answer has come."""

    held: ClassVar = WeakSet["CallBack"]()
    """The call backs that the library's threads have not let go of."""

    def __init__(self, *_: object, **__: object) -> None:
        self.held.add(self)

    def __call__(self, /, *args: Any, **named: Any) -> None:
        with suppress(RuntimeError):  # the event loop is closed: no task waits any more
            super().__call__(*args, **named)

    @classmethod
    def wait_until_let_go(cls) -> None:
        """Wait while threads of clients that are closed still have call backs.

        The wait has an end, as a client that was connecting forgets a call back now and then.
        """
        for _ in range(LET_GO_TRIES_MAX):
            if not cls.held:
                return
            Event().wait(LET_GO_SECONDS)


class Functools:
    """What the library uses of the module of that name."""

    partial = CallBack


def tell(event: Event, _: object) -> None:
    """The call back of a thread that waits for the event."""
    event.set()
