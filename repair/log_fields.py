"""What every line of the log says besides its event: the run at work, and the job on whose behalf.

One set of fields for a command: whatever thread of it writes a line, the run is that of the ledger.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_FIELDS: ContextVar[dict[str, str] | None] = ContextVar("mailmend_log_fields", default=None)


def log_fields() -> Mapping[str, str]:
    return _FIELDS.get() or {}


def put_log_field(name: str, value: str) -> None:
    """From now on every line of the command has it, whichever thread writes it; "" takes it away.

    A program of somebody else's has no command, and may have several runs at once: there it is left out.
    """
    fields = _FIELDS.get()
    if fields is None:
        return
    fields.pop(name, None)
    if value:
        fields[name] = value


@contextmanager
def own_log_fields() -> Iterator[None]:
    """Those of one command, beginning with those of the command within which it runs."""
    token = _FIELDS.set(dict(log_fields()))
    try:
        yield
    finally:
        _FIELDS.reset(token)


def with_log_fields(function: Callable[P, T]) -> Callable[P, T]:
    """The same for another thread, whose lines then have the fields of this one's command."""
    fields = _FIELDS.get()

    def called(*arguments: P.args, **named: P.kwargs) -> T:
        _FIELDS.set(fields)
        return function(*arguments, **named)

    return called
