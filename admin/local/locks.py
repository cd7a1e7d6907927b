"""One lock file, so that two commands at once take turns instead of starting the same thing twice.

The kernel drops the lock with the process that holds it: a killed command leaves nothing to clean up.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from model.errors import LocalServerError
from model.ports import Clock

_POLL_SECONDS: Final = 0.2


@contextmanager
def locked(path: Path, clock: Clock, seconds_max: float) -> Iterator[None]:
    """Hold the lock file while the block runs.

    Raises:
        LocalServerError: another process held it for longer than `seconds_max`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for(descriptor, path, clock, seconds_max)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, path: Path, clock: Clock, seconds_max: float) -> None:
    deadline = clock.monotonic() + seconds_max
    while not _taken(descriptor):
        if clock.monotonic() >= deadline:
            raise LocalServerError(
                f"another mailmend local has been at work for {seconds_max:.0f} s; it holds {path}",
                mend="Wait for it, or end it, and try again.",
            )
        clock.sleep(_POLL_SECONDS)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
