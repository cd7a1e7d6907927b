"""A desk of administrative tasks over a ledger in memory, and a server that carries them out by a twin of commands."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from mailmend.admin.frame.http.access import Access
from mailmend.admin.frame.http.application import application
from mailmend.admin.jobs.children import Child, Say
from mailmend.admin.jobs.http import JOBS
from mailmend.admin.jobs.serve import job_health
from mailmend.admin.jobs.tasks import TaskDesk, TaskRunner
from mailmend.admin.metrics.declared import LEDGER_UP
from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.prometheus import metrics_text
from mailmend.model.metrics import MetricSample
from mailmend.repair.ledger.jobs import AdminTasks
from mailmend.repair.ledger.leases import Leases
from tests.support.clock import VirtualClock

RUN = "0d7b6ba4-a5f4-11f1-8003-0123456789ab"
MAILBOX, MESSAGE = "5b3b4b8a-8d1c-11f1-8003-0123456789ab", "6e0ab5e0-8d1c-11f1-8003-0123456789ab"


async def here(function: Callable[..., Any], *given: Any) -> Any:
    """In the caller's own thread: nothing of it blocks."""
    return function(*given)


@dataclass
class CommandTwin:
    """A command: what it prints and finds, and how it ends; with `waits` not before it is told to."""

    code: int = 0
    result: Mapping[str, Any] = field(default_factory=lambda: {"run": RUN, "scanned": {}})
    findings: Iterable[Mapping[str, Any]] = ()
    said: str = ""
    waits: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        self.code = 130
        self.over.set()

    def kill(self) -> None:
        self.stop()

    async def wait(self) -> int:
        if self.waits:
            await self.over.wait()
        return self.code


@dataclass
class TaskWorld:
    """Everything behind the routes.

    Attributes:
        next: what the next command does.
        begun: the words of each that was begun.
    """

    folder: Path
    clock: VirtualClock = field(default_factory=VirtualClock)
    next: CommandTwin = field(default_factory=CommandTwin)
    begun: list[list[str]] = field(default_factory=list)
    unreached: str = ""

    def __post_init__(self) -> None:
        self.tables = MemoryTables(self.clock.micros)
        self.tasks = AdminTasks(self.tables, "mail", self.clock, "here")
        self.leases = Leases(self.tables, self.clock, "somebody")
        self.runner = self.server()
        health = lambda: job_health(leads=True, unreached=self.unreached)  # noqa: E731
        metric = MetricSample(LEDGER_UP, ("mail",), 1)
        reported = metrics_text([metric]).encode()
        self.desk = TaskDesk(self.tasks, self.clock, lambda: None, health, here, lambda: reported)

    def server(self) -> TaskRunner:
        return TaskRunner(
            tasks=self.tasks,
            leases=self.leases,
            clock=self.clock,
            begin=self.begin,
            folder=self.folder,
            apart=here,
            wake=lambda: None,
        )

    async def begin(self, words: Iterable[str], say: Say, printed: bytearray) -> Child:
        given, twin = list(words), self.next
        self.begun.append(given)
        for line in twin.said.splitlines():
            say(line)
        if twin.code in (0, 1):
            printed += json.dumps(dict(twin.result)).encode()
        if "--findings" in given:
            lines = "".join(json.dumps(dict(one)) + "\n" for one in twin.findings)
            Path(given[given.index("--findings") + 1]).write_text(lines)
        return twin

    async def work(self) -> None:
        """Look once, and let what was begun come to its end, unless it waits."""
        await self.runner.look()
        for _ in range(20):
            await asyncio.sleep(0)

    @asynccontextmanager
    async def client(
        self, access: Access | None = None, token: str | None = None, host: str = "127.0.0.1:8000"
    ) -> AsyncIterator[httpx2.AsyncClient]:
        transport = httpx2.ASGITransport(application(JOBS, self.desk, access or Access()), raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}", headers=headers) as found:
            yield found
