"""James's administrative tasks: a desk for callers over a network, and what runs them.

The server that leads runs each task as a command in a process of its own. A task that a killed
server has left is begun again by the next leader: repairs converge. Tasks of one lease run one
after another, and wait while another process holds it; others run side by side.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from mailmend.admin.frame.http.desk import PartHealth
from mailmend.admin.jobs.children import Apart, Child, Say
from mailmend.admin.jobs.james_tasks import (
    KINDS,
    TaskKind,
    TaskOutcome,
    TaskProgress,
    information_of,
    mended,
)
from mailmend.mailqueue.concurrency import paused
from mailmend.model.errors import INTERRUPTED, MailmendError
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock
from mailmend.repair.ledger.jobs import AdminTask, AdminTasks, TaskStatus
from mailmend.repair.ledger.leases import Leases

LOOK_EVERY: Final = timedelta(seconds=1)
"""How often a task with a waiting caller is looked at."""


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
            UnknownTask: there is no such task.
        """
        until = self.clock.monotonic() + within.total_seconds()
        while not (found := await self.get(task)).status.is_over:
            left = timedelta(seconds=until - self.clock.monotonic())
            if left <= timedelta():
                return None
            await paused(self.clock, min(LOOK_EVERY, left))
        return found


_LOG: Final = logging.getLogger("mailmend.jobs")

BeginCommand = Callable[[Iterable[str], Say, bytearray], Awaitable[Child]]
"""Begins a command of ours, without the program; its stdout goes into the array, and it logs events as JSON."""


@dataclass(slots=True, kw_only=True)
class TaskRunner:
    """Runs the tasks of a keyspace while this server leads.

    Attributes:
        folder: for files of findings, which no other user may read; each goes with its task.
        wake: called when a task has ended.
    """

    tasks: AdminTasks
    leases: Leases
    clock: Clock
    begin: BeginCommand
    folder: Path
    apart: Apart
    wake: Callable[[], None]
    _working: dict[UUID, asyncio.Task[None]] = field(default_factory=dict)
    _children: dict[UUID, Child] = field(default_factory=dict)
    _leases: dict[UUID, str] = field(default_factory=dict)
    _progress: dict[UUID, TaskProgress] = field(default_factory=dict)
    _telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stopped: set[UUID] = field(default_factory=set)
    _closing: bool = False

    @property
    def working(self) -> list[asyncio.Task[None]]:
        return list(self._working.values())

    async def look(self) -> None:
        """Begin what waits, as far as leases allow, end what is to be cancelled, and tell how far the others are."""
        mine = set(self._working)  # before it is read what is open: what ends meanwhile must not begin again
        for task in await self.apart(self.tasks.open):
            if task.type not in KINDS:
                continue  # of another version
            if task.cancelled_from:
                await self._cancel(task, at_work=task.id in mine)
            elif task.id in mine:
                await self._tell(task)
            elif await self._is_free(task):
                self._leases[task.id] = self._lease_of(task)
                self._working[task.id] = asyncio.create_task(self._run(task))

    def stop(self) -> None:
        """End what runs in good order; another server goes on with it."""
        self._closing = True
        for child in self._children.values():
            child.stop()

    def kill(self) -> None:
        for child in self._children.values():
            child.kill()

    def _lease_of(self, task: AdminTask) -> str:
        return KINDS[task.type].lease.of(self.tasks.keyspace)

    async def _is_free(self, task: AdminTask) -> bool:
        name = self._lease_of(task)
        return name not in self._leases.values() and await self.apart(self.leases.holder, name) is None

    async def _cancel(self, task: AdminTask, *, at_work: bool) -> None:
        if not at_work:
            await self._end(task, TaskStatus.CANCELED, TaskOutcome(INTERRUPTED))
        elif task.id in self._children and task.id not in self._stopped:
            self._stopped.add(task.id)
            self._children[task.id].stop()

    async def _tell(self, task: AdminTask) -> None:
        async with self._telling:
            progress = self._progress.get(task.id)
            if progress and progress.is_news:
                progress.is_news = False
                await self.apart(self.tasks.tell, task.id, self._information(task, progress.outcome))

    async def _run(self, task: AdminTask) -> None:
        kind = KINDS[task.type]
        kept = bytearray()
        said = list[str]()
        findings = self.folder / f"{task.id}.jsonl"
        words = [*kind.words(task.options), "--json"]
        if kind.finds:
            words += ("--findings", str(findings))
        progress = self._progress[task.id] = TaskProgress()

        def say(line: str) -> None:
            event = _event(line)
            if event.get("level") == "info":
                progress.take(event)
                return
            if line.startswith("mailmend: "):
                said[:] = [line]
            _LOG.info("a task says", extra={"task": task.id, "line": line})

        try:
            await self.apart(self.tasks.start, task.id)
            _LOG.info("a task begins", extra={"task": task.id, "command": " ".join(kind.words(task.options))})
            child = self._children[task.id] = await self.begin(words, say, kept)
            if self._closing:
                child.stop()
            code = await child.wait()
            async with self._telling:  # a message under way is not to come after the end
                del self._progress[task.id]
            outcome = await self.apart(_outcome, kind, code, bytes(kept), findings, "".join(said))
            await self._conclude(task, outcome)
        except (MailmendError, OSError) as error:
            _LOG.warning("a task stays as it is, and is begun again", extra={"task": task.id, "error": str(error)})
        finally:
            findings.unlink(missing_ok=True)
            for kept_of in (self._children, self._leases, self._progress, self._working):
                kept_of.pop(task.id, None)
            self.wake()

    async def _conclude(self, task: AdminTask, outcome: TaskOutcome) -> None:
        status = TaskStatus.FAILED
        if outcome.code == INTERRUPTED:
            cancelled = (await self.apart(self.tasks.get, task.id)).cancelled_from
            if cancelled:
                status = TaskStatus.CANCELED
            elif self._closing:
                await self.apart(self.tasks.put_back, task.id)
                _LOG.info("a task is left to another server", extra={"task": task.id})
                return
        elif outcome.is_complete:
            status = TaskStatus.COMPLETED
        await self._end(task, status, outcome)

    async def _end(self, task: AdminTask, status: TaskStatus, outcome: TaskOutcome) -> None:
        await self.apart(self.tasks.end, task.id, status, self._information(task, outcome))
        _LOG.info("a task ended", extra={"task": task.id, "status": status.value, "exit": outcome.code})

    def _information(self, task: AdminTask, outcome: TaskOutcome) -> dict[str, Any]:
        at = f"{instant_of(self.clock.micros()):%Y-%m-%dT%H:%M:%S.%fZ}"
        return information_of(KINDS[task.type], task.options, outcome, at)


def _event(line: str) -> Mapping[str, Any]:
    """An event of a command's log; empty where the line is not an event."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(event, dict):
        return {}
    return event


def _outcome(kind: TaskKind, code: int, printed: bytes, findings: Path, said: str) -> TaskOutcome:
    result: Mapping[str, Any] = {}
    with suppress(ValueError):  # nothing, or half of it: it was killed
        result = json.loads(printed)
    if not (kind.finds and findings.exists()):
        return TaskOutcome(code, result, said=said)
    with findings.open(encoding="utf-8") as lines:
        return TaskOutcome(code, result, mended(lines), said)
