"""When a job runs, until when, and what was missed: functions of its declaration and an instant (aware, any zone).

Schedulers start what they are asked to; these rules say the same to each of them, and to `mailmend jobs list`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import islice
from types import TracebackType
from typing import Final, Protocol, Self

from mailmend.admin.jobs.declaration import Job, Missed

EARLY: Final = timedelta(minutes=1)
"""By how much a scheduler's clock may be ahead of ours."""

LATE: Final = timedelta(minutes=15)
"""A run that has not begun by then, after its jitter, was missed."""

_MINUTE: Final = timedelta(minutes=1)
_WEEK: Final = timedelta(weeks=1)
_SCAN_MINUTES: Final = 3 * 24 * 60
"""A window opens and closes at least once in three days, also where the clocks leave its hours out on one."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One run that a schedule asks for.

    Attributes:
        due_at: by the schedule.
        start_at: with its jitter.
    """

    due_at: datetime
    start_at: datetime


def turns_after(job: Job, at: datetime) -> Iterator[Turn]:
    """The runs that are due after this instant, for ever; runs outside the window are left out."""
    return (_turn(job, due) for due in job.schedule.after(at, job.zone) if is_open(job, due))


def next_turns(job: Job, at: datetime, count: int) -> list[Turn]:
    return list(islice(turns_after(job, at), count))


def due_after(job: Job, at: datetime) -> datetime:
    """When the next run after this instant is due."""
    return next(turns_after(job, at)).due_at


def longest_wait(job: Job, at: datetime) -> timedelta:
    """The longest time between two runs that are due one after the other, within a week, or the next two."""
    dues = (due for due in job.schedule.after(at, job.zone) if is_open(job, due))
    longest = timedelta()
    first = before = next(dues)
    for due in dues:
        longest = max(longest, due - before)
        before = due
        if due - first > _WEEK:
            return longest
    raise AssertionError("schedules have no end")


def last_turn(job: Job, at: datetime) -> Turn:
    """The run that was due last, at this instant or before it."""
    before = job.schedule.before(at.astimezone(UTC) + timedelta(microseconds=1), job.zone)
    return next(_turn(job, due) for due in before if due <= at and is_open(job, due))


def is_open(job: Job, at: datetime) -> bool:
    """Whether the job may run then, by its zone's wall clock."""
    return job.window is None or job.window.holds(at.astimezone(job.zone).time())


def window_ends_at(job: Job, at: datetime) -> datetime | None:
    """When the window that is open then closes; None where the job has none."""
    if job.window is None:
        return None
    return _first_minute(job, at, opening=False)


def window_opens_at(job: Job, at: datetime) -> datetime | None:
    """When a window that is closed then opens; None where the job has none."""
    if job.window is None:
        return None
    return _first_minute(job, at, opening=True)


def ends_at(job: Job, started_at: datetime) -> datetime:
    """When a run that begins then is ended: after its longest duration, or with its window if that is earlier."""
    longest = started_at + job.longest
    window = window_ends_at(job, started_at)
    if window is None or not is_open(job, started_at):
        return longest
    return min(longest, window)


def turn_meant(job: Job, at: datetime) -> Turn:
    """The run that a scheduler means when it starts the job at `at`; its clock may be ahead of ours."""
    before = last_turn(job, at)
    ahead = last_turn(job, at + EARLY)
    if ahead.due_at - at < at - before.due_at:
        return ahead
    return before


def missed_turn(job: Job, last_started_at: datetime | None, at: datetime) -> Turn | None:
    """The run that was due last and has not begun; None where none ever has: it may have been declared just now."""
    if last_started_at is None:
        return None
    turn = last_turn(job, at - LATE - job.jitter)
    if turn.due_at <= last_started_at:
        return None
    return turn


def counts_from(job: Job, last_begun_at: datetime | None, at: datetime) -> datetime:
    """The instant after which due runs count for a scheduler that begins at `at`; earlier ones were begun or missed."""
    oldest = at - LATE - job.jitter
    if last_begun_at is None:
        return oldest
    if job.missed is Missed.RUN:
        return last_begun_at
    return max(last_begun_at, oldest)


def due_turn(job: Job, since: datetime, at: datetime) -> Turn | None:
    """The run to begin at `at`: the last run that was due after `since`; None without one."""
    turn = last_turn(job, at)
    if turn.due_at <= since:
        return None
    return turn


def _turn(job: Job, due_at: datetime) -> Turn:
    """Its jitter is the same wherever it is asked for, and never leads beyond the first half of the window's rest."""
    room = job.jitter
    end = window_ends_at(job, due_at)
    if end is not None:
        room = min(room, (end - due_at) / 2)
    digest = blake2b(f"{job.name} {due_at.astimezone(UTC).isoformat()}".encode(), digest_size=4).digest()
    seconds = int(room.total_seconds() * int.from_bytes(digest, "big") / 2**32)
    return Turn(due_at, due_at + timedelta(seconds=seconds))


def _first_minute(job: Job, at: datetime, *, opening: bool) -> datetime:
    """Windows begin and end on full minutes, and so do the changes of clocks: each minute is looked at."""
    minute = at.astimezone(UTC).replace(second=0, microsecond=0)
    for passed in range(1, _SCAN_MINUTES):
        then = minute + passed * _MINUTE
        if is_open(job, then) is opening:
            return then
    raise AssertionError(f"the window {job.window} neither opens nor closes")


TimeAfter = Callable[[datetime], datetime]
"""The time that comes next after the given one."""


class Timers(Protocol):
    """Times of a running event loop, from the beginning to the end of its context."""

    def set(self, times: Mapping[str, TimeAfter], wake: Callable[[], None]) -> None:
        """Have `wake` called at these times from now on, and at those that were set before no more."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
