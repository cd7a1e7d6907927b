"""When a mail that was refused for now is tried again, and from when on it has failed.

Only attempts that were refused for now are counted: waiting for a pickup policy is no attempt. The age of a mail runs
on whatever it waits for, so it may expire while it is deferred or active; only what is held does not.
Source: docs/design.md, "Pickup" (12).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

from mailmend.model.errors import WrongUse

_DIGEST_BYTES: Final = 8
_DIGESTS: Final = 256**_DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class RetryInterval:
    """How long a mail waits before it is tried again.

    Attributes:
        notify: whether its sender is told at the beginning of the wait that the mail is delayed.
    """

    wait: timedelta
    notify: bool = False


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """The waits between attempts, and how long a mail is tried.

    Attributes:
        intervals: after the first attempt that was refused for now, the second, ...; the last one repeats.
        count: how often a mail is tried again; None: as often as its age allows.
        longest_age: after its first enqueueing a mail that names no expiry of its own has failed.
        jitter: the part of an interval, 0 to 1, by which it may be longer.
    """

    intervals: tuple[RetryInterval, ...]
    count: int | None = None
    longest_age: timedelta = timedelta(days=5)
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not self.intervals or min(self.longest_age, *(interval.wait for interval in self.intervals)) <= timedelta():
            raise WrongUse(
                "the intervals and the age of a schedule of retries are longer than nothing", mend="As in 1m,15m,1h."
            )
        if not 0 <= self.jitter <= 1:
            raise WrongUse(f"a jitter of {self.jitter:g} is not a part from 0 to 1")
        if self.count is not None and self.count < 0:
            raise WrongUse(f"{self.count} is no number of retries", mend="0 tries every mail once.")

    def interval(self, refusals: int) -> RetryInterval:
        """The one after that many attempts that were refused for now; 1 or more."""
        return self.intervals[min(refusals, len(self.intervals)) - 1]

    def expires_at(self, first_seen_at: datetime, own: datetime | None) -> datetime:
        """When a mail has failed; its own expiry counts, whether it is sooner or later."""
        return own or first_seen_at + self.longest_age

    def after(self, refusals: int, now: datetime, expires_at: datetime, spread: float) -> datetime | None:
        """When a mail is tried again that was refused for now, or has expired; None where that was the last attempt.

        Args:
            refusals: attempts that were refused for now, this one included.
            now: when it was refused.
            expires_at: when the mail has failed; no wait goes beyond.
            spread: which part of the jitter its wait has, from 0 up to 1 (`spread_of`).
        """
        if now >= expires_at or (self.count is not None and refusals > self.count):
            return None
        wait = self.interval(refusals).wait * (1 + self.jitter * spread)
        return min(now + wait, expires_at)


DEFAULT_SCHEDULE: Final = RetrySchedule(
    (
        RetryInterval(timedelta(minutes=1)),
        RetryInterval(timedelta(minutes=15)),
        RetryInterval(timedelta(hours=1), notify=True),
        RetryInterval(timedelta(hours=2)),
        RetryInterval(timedelta(hours=3)),
    ),
    jitter=0.1,
)
"""As MTAs have it: soon at first, then every 3 hours, for the 5 days of RFC 5321 4.5.4.1."""


def spread_of(*parts: object) -> float:
    """A number from 0 up to, but not including, 1 that follows from these parts alone, evenly spread over many."""
    digest = blake2b("\0".join(map(str, parts)).encode(), digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(digest) / _DIGESTS
