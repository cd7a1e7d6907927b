"""Administrative tasks: submitted over HTTP to any server, and run by the leader.

The server that takes the request writes the task, the leader writes its status, and the server that takes a
cancellation writes that. Their writes follow each other, and each is stamped after what is seen, whatever the clocks
say. So no write needs a condition, and a killed server loses nothing that it has acknowledged.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final
from uuid import UUID

from mailmend.model.catalog.ledger import ADMIN_TASK
from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.instants import instant_of
from mailmend.model.operations import Level, Put, Read, Scan
from mailmend.model.ports import Clock, Tables
from mailmend.model.table import Row
from mailmend.repair.ledger.expiring import stamp_after

LISTED_MAX: Final = 1_000
"""The largest number of tasks that are read, the newest ones, to be listed or run."""

OPEN_MAX: Final = 100
"""The largest number of tasks that may wait or be at work."""


class TaskStatus(Enum):
    """The status of a task, in James's words; the last three are final."""

    WAITING = "waiting"
    IN_PROGRESS = "inProgress"
    CANCEL_REQUESTED = "canceledRequested"
    COMPLETED = "completed"
    CANCELED = "canceled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (TaskStatus.COMPLETED, TaskStatus.CANCELED, TaskStatus.FAILED)


class UnknownTask(WrongUse):
    """The ledger keeps no task of that id (any more)."""


class TooManyTasks(MailmendError):
    """The maximum number of tasks wait, so no more are taken."""


@dataclass(frozen=True, slots=True)
class AdminTask:
    """An administrative task.

    Attributes:
        type: James's name of the task, such as `solve-message-inconsistencies`.
        options: the parameters of the request.
        submitted_by, cancelled_by: the names of the tokens; "" where the server asks for none.
        information: the results so far, with James's names; empty where they were not read.
    """

    id: UUID
    type: str
    options: Mapping[str, Any]
    status: TaskStatus
    submitted_at: datetime
    submitted_from: str
    submitted_by: str = ""
    started_at: datetime | None = None
    executed_on: str | None = None
    ended_at: datetime | None = None
    cancelled_from: str | None = None
    cancelled_by: str | None = None
    information: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdminTasks:
    """The administrative tasks of one mail keyspace.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
        host: the name of this machine, for people.
    """

    tables: Tables
    keyspace: str
    clock: Clock
    host: str

    def submit(self, kind: str, options: Mapping[str, Any], by: str) -> AdminTask:
        """Record a task that is to be run.

        Raises:
            TooManyTasks: `OPEN_MAX` tasks wait or are at work already.
        """
        if len(self.open()) >= OPEN_MAX:
            raise TooManyTasks(f"{OPEN_MAX} tasks wait already", mend="Cancel some, or wait for them.")
        now = instant_of(self.clock.micros())
        task = AdminTask(self.clock.new_uuid(), kind, options, TaskStatus.WAITING, now, self.host, by)
        cells = {"type": kind, "options": json.dumps(dict(options)), "submittedat": now}
        self._put(task.id, **cells, status=task.status.value, submittedfrom=self.host, submittedby=by)
        return task

    def get(self, task: UUID) -> AdminTask:
        """Read a task.

        Raises:
            UnknownTask: the ledger keeps no task of that id (any more).
        """
        unknown = UnknownTask(f"{task} can not be found")
        if task.version != 1:  # ids of tasks have a time; no other can be bound to the column
            raise unknown
        rows = self.tables.read(Read(ADMIN_TASK, (self.keyspace, task)))
        if not rows:
            raise unknown
        found = _task_of(rows[0].row)
        if found is None:
            raise unknown
        return found

    def listed(self, *, whole: bool = True) -> list[AdminTask]:
        """The newest tasks, the newest first; their `information` is read only with `whole`."""
        columns = ADMIN_TASK.names
        if not whole:
            columns = tuple(name for name in columns if name != "information")
        scan = Scan(ADMIN_TASK, columns, Level.QUORUM, under=(self.keyspace,), limit=LISTED_MAX)
        return [task for row in self.tables.scan(scan) if (task := _task_of(row))]

    def open(self) -> list[AdminTask]:
        """The tasks that wait or are at work, the oldest first."""
        return [task for task in reversed(self.listed(whole=False)) if not task.status.is_over]

    def ask_to_cancel(self, task: UUID, by: str) -> None:
        """Record that the task is to be cancelled; nothing happens to a task that is over."""
        if not self.get(task).status.is_over:
            self._put(task, cancelledfrom=self.host, cancelledby=by)

    def start(self, task: UUID) -> None:
        now = instant_of(self.clock.micros())
        self._put(task, status=TaskStatus.IN_PROGRESS.value, startedat=now, executedon=self.host)

    def tell(self, task: UUID, information: Mapping[str, Any]) -> None:
        """Record the task's results so far."""
        self._put(task, information=json.dumps(dict(information)))

    def put_back(self, task: UUID) -> None:
        """Let the task wait again, so that another server runs it."""
        self._put(task, status=TaskStatus.WAITING.value)

    def end(self, task: UUID, status: TaskStatus, information: Mapping[str, Any]) -> None:
        now = instant_of(self.clock.micros())
        self._put(task, status=status.value, endedat=now, information=json.dumps(dict(information)))

    def _put(self, task: UUID, **cells: Any) -> None:
        """Write cells so that they are in force, also where another host's clock is ahead."""
        key = (self.keyspace, task)
        at = stamp_after(self.clock.micros(), self.tables.read(Read(ADMIN_TASK, key, times=True)))
        self.tables.write(Put(ADMIN_TASK, ADMIN_TASK.key_row(key) | cells, at=at))


def _task_of(row: Row) -> AdminTask | None:
    """None where only late cells of a task are left that has expired."""
    if not row.get("type") or not row.get("status"):
        return None
    status = TaskStatus(row["status"])
    if row.get("cancelledfrom") and not status.is_over:
        status = TaskStatus.CANCEL_REQUESTED
    return AdminTask(
        id=row["task"],
        type=row["type"],
        options=json.loads(row["options"]),
        status=status,
        submitted_at=row["submittedat"],
        submitted_from=row["submittedfrom"],
        submitted_by=row.get("submittedby") or "",
        started_at=row.get("startedat"),
        executed_on=row.get("executedon"),
        ended_at=row.get("endedat"),
        cancelled_from=row.get("cancelledfrom"),
        cancelled_by=row.get("cancelledby"),
        information=json.loads(row.get("information") or "{}"),
    )
