"""When the server of jobs looks: a scheduler library keeps the times, and this is its only importer.

It says when, and no more: whether a job begins then is decided by the lease and by the ledger, which all servers share.
So a look too many does no harm, and one that came late finds what was due.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from mailmend.admin.jobs.schedule import TimeAfter


class ScheduledTimers:
    """Timers by the clock of this machine. A time that was slept through wakes once, however often it came."""

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1}
        )

    def set(self, times: Mapping[str, TimeAfter], wake: Callable[[], None]) -> None:
        async def call() -> None:
            wake()  # in the loop: what is no coroutine would be called in a thread

        self._scheduler.remove_all_jobs()
        for name, time_after in times.items():
            self._scheduler.add_job(call, _Times(time_after), id=name)

    def __enter__(self) -> Self:
        self._scheduler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scheduler.shutdown(wait=False)


class _Times(BaseTrigger):  # type: ignore[misc]
    """A trigger of the library by our own rules of time zones, windows and days."""

    def __init__(self, time_after: TimeAfter) -> None:
        self._time_after = time_after

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        return self._time_after(previous_fire_time or now)
