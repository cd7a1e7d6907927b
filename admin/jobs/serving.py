"""The server of jobs: it begins each at its times as long as it leads; other servers stand by.

One server of a keyspace leads: it holds a lease. After a leader was killed, another server leads when the lease has
expired. A run is begun by `mailmend jobs run NAME --scheduled`, as in every other scheduler's unit, in a process of its
own. That command keeps two runs of a job apart, and a planned run from being run twice, whichever server leads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from mailmend.admin.jobs.children import Apart, Child, Say
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.schedule import TimeAfter, Timers, Turn, counts_from, due_after, due_turn
from mailmend.admin.jobs.tasks import TaskRunner
from mailmend.mailqueue.background import paused
from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.errors import LeaseHeld, LeaseLost, MailmendError
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock
from mailmend.repair.ledger.jobs import ENDING, JobRuns
from mailmend.repair.ledger.leases import TTL_SECONDS, Lease, Leases

BEAT: Final = timedelta(seconds=TTL_SECONDS / 4)
"""How often whoever leads renews the lease, and whoever stands by tries to take it."""

_EARLY: Final = timedelta(seconds=1)
"""A look may come so much early and count for the lease: the next one may be a whole beat later."""

TASKS_EVERY: Final = timedelta(seconds=5)
"""How often whoever leads looks for tasks that other servers were asked for."""

_KILLED_SECONDS: Final = 5
"""How long the end of what was killed is waited for."""

_LOG: Final = logging.getLogger("mailmend.jobs")

Begin = Callable[[Job, Say], Awaitable[Child]]


@dataclass(slots=True, kw_only=True)
class JobServer:
    """Runs jobs until it is asked to stop.

    Attributes:
        declared: reads the settings anew, and is safe to call at any time; raises what is wrong with them.
        begin: starts the run of a job that is due.
        tasks: runs what is asked for over HTTP, on this server or another.
        jobs: the last ones that were declared rightly.
        lease: that of the server which leads; None while another does.
        unreached: why the ledger could not be used the last time; "" where it could.
    """

    runs: JobRuns
    leases: Leases
    clock: Clock
    timers: Timers
    declared: Callable[[], Sequence[Job]]
    begin: Begin
    tasks: TaskRunner | None = None
    apart: Apart = asyncio.to_thread
    jobs: Sequence[Job] = ()
    lease: Lease | None = None
    unreached: str = ""
    _counts_from: dict[str, datetime] = field(default_factory=dict)
    _working: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _children: dict[str, Child] = field(default_factory=dict)
    _beat_at: float | None = None
    _standing_by: str = ""
    _reload: bool = False
    _closing: bool = False
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def reload(self) -> None:
        """Have the settings read again soon; wrong settings change nothing."""
        self._reload = True
        self.wake()

    def wake(self) -> None:
        """Have the server look for due jobs and waiting tasks at once."""
        self._woken.set()

    @property
    def name(self) -> str:
        return KeyspaceLease.SERVE.of(self.runs.keyspace)

    async def serve(self, stop: asyncio.Event) -> None:
        """Work until asked to stop; what runs then is ended in good order."""
        self.jobs = self.declared()
        _LOG.info("jobs are served", extra={"jobs": [job.name for job in self.jobs]})
        try:
            with self.timers:
                self.timers.set(self._times(), self.wake)
                while not stop.is_set():
                    self._woken.clear()
                    await self.look()
                    await paused(self.clock, TASKS_EVERY if self.tasks else BEAT, stop, self._woken)
        finally:
            await self._close()

    async def look(self) -> None:
        """Begin the runs that are due."""
        if self._reload:
            self._read_again()
        try:
            await self._lead()
            for job in self.jobs if self.lease else ():
                await self._begin_due(job)
            if self.lease and self.tasks:
                await self.tasks.look()
            self.unreached = ""
        except MailmendError as error:
            _LOG.warning("the ledger cannot be used", extra={"error": error.what})
            self.unreached = error.what

    @property
    def _at_work(self) -> list[asyncio.Task[None]]:
        return [*self._working.values(), *(self.tasks.working if self.tasks else ())]

    def _times(self) -> Mapping[str, TimeAfter]:
        """When jobs are due, by the wall clock. The lease and tasks are looked at by the monotonic clock."""
        return {f"job {job.name}": partial(due_after, job) for job in self.jobs}

    def _now(self) -> datetime:
        return instant_of(self.clock.micros())

    def _read_again(self) -> None:
        self._reload = False
        try:
            self.jobs = self.declared()
        except MailmendError as error:
            _LOG.error("the settings stay as they were", extra={"error": str(error)})
            return
        self.timers.set(self._times(), self.wake)
        _LOG.info("the settings were read again", extra={"jobs": [job.name for job in self.jobs]})

    async def _lead(self) -> None:
        """Take the lease, or renew it, when that is due."""
        now = self.clock.monotonic()
        if self._beat_at is not None and now < self._beat_at:
            return
        self._beat_at = now + (BEAT - _EARLY).total_seconds()
        if self._closing and not self.lease:
            return
        if self.lease and self.lease.lives_until <= now:
            self._lose("nobody answered in time")
        try:
            if self.lease:
                self.lease = await self.apart(self.leases.renew, self.lease)
                return
            self.lease = await self.apart(self.leases.acquire, self.name, "jobs serve")
        except LeaseLost as lost:
            self._lose(lost.what)
        except LeaseHeld as held:
            holder = held.what.split(", since")[0]
            if holder != self._standing_by:
                _LOG.info("this server stands by", extra={"reason": holder})
            self._standing_by = holder
        else:
            self._standing_by = ""
            self._counts_from.clear()
            _LOG.info("this server leads")

    def _lose(self, why: str) -> None:
        self.lease = None
        _LOG.warning("this server leads no longer, and what runs goes on", extra={"reason": why})

    async def _begin_due(self, job: Job) -> None:
        since = self._counts_from.get(job.name)
        if since is None:
            since = counts_from(job, await self.apart(self.runs.last_begun, job.name), self._now())
        turn = due_turn(job, since, self._now())
        pause = await self.apart(self.runs.pause_of, job.name) if turn else None
        self._counts_from[job.name] = turn.due_at if turn else since
        if pause:
            _LOG.info("a job does not begin: it is paused", extra={"job": job.name, "owner": pause.owner})
        elif turn and job.name in self._working:
            _LOG.warning("a job does not begin: its run before is at work", extra={"job": job.name})
        elif turn:
            self._working[job.name] = asyncio.create_task(self._run(job, turn))

    async def _run(self, job: Job, turn: Turn) -> None:
        _LOG.info("a job begins", extra={"job": job.name, "due_at": turn.due_at.isoformat()})

        def say(line: str) -> None:
            _LOG.info("a job says", extra={"job": job.name, "line": line})

        try:
            child = self._children[job.name] = await self.begin(job, say)
            if self._closing:
                child.stop()
            _LOG.info("a job ended", extra={"job": job.name, "exit": await child.wait()})
        except OSError as error:
            _LOG.error("a job cannot begin", extra={"job": job.name, "error": str(error.strerror)})
        finally:
            self._children.pop(job.name, None)
            del self._working[job.name]
            self.wake()

    async def _close(self) -> None:
        """End what runs, in good order as long as there is patience; lead until then."""
        self._closing = True
        until = self.clock.monotonic() + ENDING.total_seconds()
        if self._working:
            _LOG.info("jobs are ended", extra={"jobs": list(self._working)})
        for child in self._children.values():
            child.stop()
        if self.tasks:
            self.tasks.stop()
        while self._at_work and self.clock.monotonic() < until:
            self._woken.clear()
            with suppress(MailmendError):
                await self._lead()
            await paused(self.clock, BEAT, self._woken)
        for child in self._children.values():
            child.kill()
        if self.tasks:
            self.tasks.kill()
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=_KILLED_SECONDS)
        if self.lease:
            await self.apart(self.leases.release, self.lease)
            self.lease = None
