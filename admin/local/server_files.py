"""What is written beside a local server: its ports, its processes, and the lock that is held while it is changed."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from filelock import FileLock, Timeout

from admin.local.processes import StartedProcess
from model.errors import LocalServerError

RECORD: Final = "server.json"
LOCK_SECONDS_MAX: Final = 1800.0  # the first one may be fetching its parts over a slow line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A server's ports, and its processes in the order of their start; both may be empty."""

    ports: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[str, StartedProcess] = field(default_factory=dict)

    @property
    def last_first(self) -> tuple[tuple[str, StartedProcess], ...]:
        """The processes in the order in which they are ended."""
        return tuple(reversed(tuple(self.processes.items())))

    def with_process(self, name: str, process: StartedProcess) -> "ServerRecord":
        return ServerRecord(self.ports, {**self.processes, name: process})

    def without(self, name: str) -> "ServerRecord":
        return ServerRecord(self.ports, {key: value for key, value in self.processes.items() if key != name})


def read_record(path: Path) -> ServerRecord:
    """The latest record; an empty one when there is none.

    Raises:
        LocalServerError: the file is there and is not ours.
    """
    return read_json(path, _record_of) or ServerRecord()


def read_json(path: Path, parse: Callable[[Any], T]) -> T | None:
    """The parsed content of a file of ours; None when it is missing.

    Raises:
        LocalServerError: the file is there and is not ours.
    """
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalServerError(
            f"{path} cannot be read: {error}", mend=f"If nothing runs there, remove {path.parent} and start again."
        ) from error


def write_json(path: Path, document: object) -> None:
    """Replaces the file in one step, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)


@contextmanager
def locked(path: Path, seconds_max: float = LOCK_SECONDS_MAX) -> Iterator[None]:
    """Hold a lock file while the block runs; its holder may take it again. The kernel drops it with its process.

    Raises:
        LocalServerError: another process held it for longer than `seconds_max`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=seconds_max, is_singleton=True):
            yield
    except Timeout as error:
        raise LocalServerError(
            f"another mailmend local has been at work for {seconds_max:.0f} s; it holds {path}",
            mend="Wait for it, or end it, and try again.",
        ) from error


def _record_of(document: Any) -> ServerRecord:
    processes = {str(name): StartedProcess(**process) for name, process in document["processes"].items()}
    return ServerRecord({str(name): int(port) for name, port in document["ports"].items()}, processes)
