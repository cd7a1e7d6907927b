"""How long to wait before the next try: doubling up to a limit, so that what fails for long is asked for seldom.

Pure: no chance in it. What must not be tried by everybody at once gets its spread from when each try failed.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final


@dataclass(frozen=True, slots=True)
class BackOff:
    """The waits between tries.

    Attributes:
        first: after the first try.
        longest: the limit that the waits grow to.
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
"""For a mail that its consumer could not deal with."""

LOOK_AGAIN: Final = BackOff(timedelta(seconds=1), timedelta(seconds=30))
"""For a server that does not answer."""
