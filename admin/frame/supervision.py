"""Rules for worker processes: their parts of a limit, when one begins again, what ends them all."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Final

FIRST_PAUSE: Final = timedelta(seconds=1)
LONGEST_PAUSE: Final = timedelta(minutes=1)
SOUND_AFTER: Final = timedelta(minutes=1)
"""A worker that lived this long is begun again after the first pause, whatever failed before."""

_SIGNALLED: Final = 128
"""Shells report a process that a signal ended by this number plus the signal's."""


def parts_of(whole: int, count: int) -> tuple[int, ...]:
    """Equal parts of a number, which is their sum; the first have 1 more where it is no multiple."""
    least, left = divmod(whole, count)
    return tuple(least + (number < left) for number in range(count))


def restart_pause(failures: int) -> timedelta:
    """How long after the end of a worker another begins: 1, 2, 4 ... seconds, at most 60."""
    doublings = min(max(0, failures - 1), 10)
    return min(FIRST_PAUSE * (1 << doublings), LONGEST_PAUSE)


def exit_code_of(ended: int) -> int:
    """The exit code of a process as a shell reports it; a negative number is its last signal."""
    if ended < 0:
        return _SIGNALLED - ended
    return ended


def worst_code(codes: Iterable[int]) -> int:
    """The exit code of a command whose workers ended with these."""
    return max(codes, default=0)


class WorkerFate(Enum):
    """What follows from the end of a worker.

    OVER: the server stops, and the worker has ended. AGAIN: another process takes its number.
    GIVEN_UP: no process of that number could ever begin to serve, so the server ends as it would
    with one process.
    """

    OVER = auto()
    AGAIN = auto()
    GIVEN_UP = auto()


@dataclass(slots=True)
class WorkerRecord:
    """What is known of the processes that had one number.

    Attributes:
        number: from 1.
        begun_at: of the present or last process, in seconds of a clock that never goes back.
        failures: ends in a row before which no process had lived for `SOUND_AFTER`.
        has_served: whether any of its processes began to serve.
        due_at: when the next process begins; None: one runs, or none follows.
        exit_code: of the last process, once none follows.
    """

    number: int
    begun_at: float = 0.0
    failures: int = 0
    has_served: bool = False
    due_at: float | None = 0.0
    exit_code: int | None = None

    def began(self, now: float) -> None:
        self.begun_at = now
        self.due_at = None

    def ended(self, code: int, now: float, *, stopping: bool) -> WorkerFate:
        """Note the end of the process, by its exit code."""
        if stopping or not self.has_served:
            self.exit_code = code
            if stopping:
                return WorkerFate.OVER
            return WorkerFate.GIVEN_UP
        if now - self.begun_at >= SOUND_AFTER.total_seconds():
            self.failures = 0
        self.failures += 1
        self.due_at = now + restart_pause(self.failures).total_seconds()
        return WorkerFate.AGAIN

    def stop(self) -> None:
        """No process follows the present one."""
        self.due_at = None
