"""The format of log lines, and the fields on each line of a command: the run, and the job that started it.

All threads and worker processes of a command have the same fields.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ROOT: Final = "mailmend"
_OWN: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_TRACES: Final = logging.Formatter()
_USER_OF_A_URL: Final = re.compile(r"://[^\s/]*@")
_PLAIN: Final = re.compile(r"[\w.,:/@+-]+")

_FIELDS: ContextVar[dict[str, str] | None] = ContextVar("mailmend_log_fields", default=None)


@contextmanager
def heard(logger: str) -> Iterator[None]:
    """What a server does is logged whatever the level of the log: who called, too, is on record."""
    log = logging.getLogger(logger)
    level = log.level
    log.setLevel(min(logging.INFO, log.getEffectiveLevel()))
    try:
        yield
    finally:
        log.setLevel(level)


def log_fields() -> Mapping[str, str]:
    return _FIELDS.get() or {}


def put_log_field(name: str, value: str) -> None:
    """Set a field of all further log lines of the command, in every thread; "" removes it.

    In other people's programs, which have no command and may have several runs at once, nothing is set.
    """
    fields = _FIELDS.get()
    if fields is None:
        return
    fields.pop(name, None)
    if value:
        fields[name] = value


@contextmanager
def own_log_fields() -> Iterator[None]:
    """Give a command its own log fields while the block runs, beginning with the fields of the command around it."""
    token = _FIELDS.set(dict(log_fields()))
    try:
        yield
    finally:
        _FIELDS.reset(token)


def with_log_fields(function: Callable[P, T]) -> Callable[P, T]:
    """The function for use in another thread, whose log lines then have the fields of this command."""
    fields = _FIELDS.get()

    def called(*arguments: P.args, **named: P.kwargs) -> T:
        _FIELDS.set(fields)
        return function(*arguments, **named)

    return called


def with_command_log(function: Callable[P, T]) -> Callable[P, T]:
    """The function for use in a worker process, which then logs to stderr in this command's form, with its fields."""
    log = logging.getLogger(ROOT)
    level = log.level
    fields = dict(log_fields())
    form = None
    for handler in log.handlers:
        if isinstance(handler.formatter, LineFormatter):
            form = handler.formatter.form
            break

    def called(*arguments: P.args, **named: P.kwargs) -> T:
        if form:
            _log_here(form, level, fields)
        return function(*arguments, **named)

    return called


def _log_here(form: str, level: int, fields: dict[str, str]) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form))
    log = logging.getLogger(ROOT)
    log.handlers[:] = [handler]
    log.setLevel(level)
    _FIELDS.set(fields)


def json_line(record: logging.LogRecord) -> str:
    """The event as one JSON object: time (UTC), level, logger, event, run, and its fields."""
    return json.dumps(_event(record), default=str)


def text_line(record: logging.LogRecord) -> str:
    """The event as one line: time (UTC), level, logger, event, and `name=value` for each field."""
    event = _event(record)
    words = [event.pop("time"), event.pop("level").upper(), event.pop("logger"), event.pop("event")]
    for name, value in event.items():
        words.append(f"{name}={_shown(value)}")
    return " ".join(words)


def _event(record: logging.LogRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"time": at, "level": record.levelname.lower(), "logger": record.name, "event": record.getMessage()}
    given = {name: value for name, value in vars(record).items() if name not in _OWN and value is not None}
    shared = {name: value for name, value in log_fields().items() if name not in given}
    event = {**head, **given, **shared}
    if record.exc_info:
        event["exception"] = _TRACES.formatException(record.exc_info)
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = _without_user(value)
    return event


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, default=str, separators=(",", ":"))
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return json.dumps(text)


def _without_user(text: str) -> str:
    """A URL in the message of a library may hold a password."""
    return _USER_OF_A_URL.sub("://***@", text)


LINES: Final = {"text": text_line, "json": json_line}


class LineFormatter(logging.Formatter):
    """Formats each event as one line, by one of the functions above."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        return LINES[self.form](record)
