"""Administrative tasks for whoever asks over a network: taken, shown, waited for, cancelled; the server runs them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from mailmend.admin.frame.http.desk import HealthStatus, PartHealth
from mailmend.admin.jobs.children import Apart
from mailmend.admin.jobs.serving import JobServer
from mailmend.mailqueue.background import paused
from mailmend.model.ports import Clock
from mailmend.repair.ledger.tasks import AdminTask, AdminTasks

LOOK_EVERY: Final = timedelta(seconds=1)
"""How often a task that somebody waits for is looked at."""


@dataclass(frozen=True, slots=True)
class TaskDesk:
    """Takes tasks, and tells how they stand.

    Args:
        wake: has this server look at the tasks at once, in case it leads.
        health: tells how the parts of the server stand, without asking others.
        exposition: the server's metrics, in Prometheus's text format.
    """

    tasks: AdminTasks
    clock: Clock
    wake: Callable[[], None]
    health: Callable[[], Sequence[PartHealth]]
    apart: Apart = asyncio.to_thread
    exposition: Callable[[], bytes] = bytes

    async def metrics(self) -> bytes:
        text: bytes = await self.apart(self.exposition)
        return text

    async def submit(self, kind: str, options: Mapping[str, Any], by: str) -> AdminTask:
        given = {name: value for name, value in options.items() if value is not None}
        task: AdminTask = await self.apart(self.tasks.submit, kind, given, by)
        self.wake()
        return task

    async def get(self, task: UUID) -> AdminTask:
        found: AdminTask = await self.apart(self.tasks.get, task)
        return found

    async def listed(self) -> list[AdminTask]:
        found: list[AdminTask] = await self.apart(self.tasks.listed)
        return found

    async def cancel(self, task: UUID, by: str) -> None:
        await self.apart(self.tasks.ask_to_cancel, task, by)
        self.wake()

    async def ended(self, task: UUID, within: timedelta) -> AdminTask | None:
        """The task once it is over; None when that took too long.

        Raises:
            UnknownTask: there is none.
        """
        until = self.clock.monotonic() + within.total_seconds()
        while not (found := await self.get(task)).status.is_over:
            left = timedelta(seconds=until - self.clock.monotonic())
            if left <= timedelta():
                return None
            await paused(self.clock, min(LOOK_EVERY, left))
        return found


def desk_of(server: JobServer, tasks: AdminTasks, exposition: Callable[[], bytes]) -> TaskDesk:
    health = lambda: job_health(leads=server.lease is not None, unreached=server.unreached)  # noqa: E731
    return TaskDesk(tasks, server.clock, server.wake, health, server.apart, exposition)


def job_health(*, leads: bool, unreached: str) -> Sequence[PartHealth]:
    """`unreached` says why the ledger cannot be used, or is ""."""
    ledger = PartHealth("Ledger", HealthStatus.HEALTHY)
    if unreached:
        ledger = PartHealth("Ledger", HealthStatus.UNHEALTHY, "the cluster does not answer")
    return (ledger, PartHealth("Jobs", HealthStatus.HEALTHY, "it leads" if leads else "it stands by"))
