"""How long to wait before the next try: doubling up to a limit, so that what fails for long is asked for seldom.

Pure: the waits have no random part. Tries of several processes are spread by the times at which each one failed.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final


@dataclass(frozen=True, slots=True)
class BackOff:
    """The waits between tries: each is twice the last one, up to a limit.

    Attributes:
        first: the wait after the first try.
        longest: the longest wait.
    """

    first: timedelta
    longest: timedelta

    def wait(self, attempts: int) -> timedelta:
        """The wait after that many tries, counted from 1."""
        doublings: int = max(attempts, 1) - 1
        if doublings >= (self.longest // self.first).bit_length():
            return self.longest
        return min(self.first * (1 << doublings), self.longest)


RETRY: Final = BackOff(timedelta(minutes=1), timedelta(hours=4))
"""The waits before a mail that its consumer could not process is delivered again."""

LOOK_AGAIN: Final = BackOff(timedelta(seconds=1), timedelta(seconds=30))
"""The waits before a server that did not answer is asked again."""
