"""The desk of the API: it calls the services of the commands in the name of a token.

A service waits for the cluster, so each call has a thread while it works, and the number of such
calls is bounded. The cluster is opened once, and all calls use it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NoReturn, TypeVar
from uuid import UUID

from mailmend.admin.frame.caller import Caller, Question
from mailmend.admin.frame.cluster import OpenCluster, contact_of
from mailmend.admin.frame.http.desk import TooManyCalls
from mailmend.admin.frame.kept_clusters import keeping
from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.admin.jobs.children import Apart
from mailmend.admin.jobs.tasks import TaskDesk
from mailmend.admin.queue.reading import queue_names
from mailmend.model.errors import NotThere, UnsafeRequest
from mailmend.model.ids import QueueName
from mailmend.model.ports import Clock
from mailmend.repair.ledger.jobs import AdminTask

T = TypeVar("T")

SERVICES_AT_ONCE: Final = 16
"""How many calls may work in threads at once."""

_LOG: Final = logging.getLogger("mailmend.api")


def _own_threads() -> Executor:
    """Threads for services alone: the lease of the jobs is renewed in the threads of the loop."""
    return ThreadPoolExecutor(SERVICES_AT_ONCE, thread_name_prefix="api")


@dataclass(slots=True, kw_only=True, eq=False)
class ApiDesk:
    """Answers for one mail keyspace; one event loop uses it.

    Attributes:
        settings: the cluster, and the broker and the blobs of its queues as far as they are named.
        clock: paces what is watched.
        tasks: takes James's tasks, which the leader of the jobs runs.
        cluster: the cluster that is open; None: each call connects for itself.
        apart: runs a function in a thread; None: in one of the desk's own threads.
    """

    settings: QueueSettings
    clock: Clock
    tasks: TaskDesk
    cluster: OpenCluster | None = None
    apart: Apart | None = None
    _working: int = 0
    _threads: Executor = field(default_factory=_own_threads)

    @property
    def connection(self) -> ConnectionSettings:
        return self.settings.connection

    async def done(
        self,
        service: Callable[..., T],
        *given: Any,
        by: str = "",
        asks: bool = True,
    ) -> T:
        """The result of a service, in the name of who asks.

        Args:
            service: of a command.
            given: its arguments, but for the caller.
            by: the name of the token.
            asks: whether the service takes a caller.

        Raises:
            TooManyCalls: `SERVICES_AT_ONCE` calls are at work.
        """
        if self._working >= SERVICES_AT_ONCE:
            raise TooManyCalls(
                f"{SERVICES_AT_ONCE} calls are at work already",
                mend="Ask again in a moment.",
            )
        arguments = list(given)
        if asks:
            arguments.append(Caller(name=by, ask=_unconfirmed, remark=_log_remark))
        self._working += 1
        try:
            apart = self.apart or self._apart
            found: T = await apart(partial(self._served, service, arguments))
            return found
        finally:
            self._working -= 1

    async def _apart(self, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, copy_context().run, function)

    def _served(self, service: Callable[..., T], arguments: list[Any]) -> T:
        if self.cluster is None:
            return service(*arguments)
        with keeping(contact_of(self.connection), self.cluster.cluster):
            return service(*arguments)

    async def queues(self) -> list[QueueName]:
        return await self.done(queue_names, self.settings, asks=False)

    async def of_queue(self, name: str) -> QueueSettings:
        """The settings of a queue that is there.

        Raises:
            NotThere: the keyspace has no such queue.
        """
        for known in await self.queues():
            if known == name:
                return replace(self.settings, name=known)
        raise NotThere(f"{name} can not be found", mend="The queues that are there: GET /v1/queues")

    async def submit(self, kind: str, options: Mapping[str, Any], by: str) -> AdminTask:
        return await self.tasks.submit(kind, options, by)

    async def task(self, task: UUID) -> AdminTask:
        return await self.tasks.get(task)


def _log_remark(text: str) -> None:
    _LOG.warning("a call over HTTP has a remark", extra={"remark": text})


def _unconfirmed(question: Question) -> NoReturn:
    raise UnsafeRequest(
        f"not confirmed: {question}",
        mend='Look first with "dry_run": true; then say "confirm": true.',
    )
