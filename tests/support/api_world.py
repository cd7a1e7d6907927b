"""The API over a cluster in memory, as a client sees it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from mailmend.admin.api.desk import ServedDesk
from mailmend.admin.api.http.routes import API
from mailmend.admin.frame.http.access import Access, parse_tokens
from mailmend.admin.frame.http.application import application
from mailmend.admin.frame.settings import QueueSettings
from tests.support.task_desk import TaskWorld

VIEWER = "r" * 32
OPERATOR = "o" * 32
TOKENS = parse_tokens([f"watcher read {VIEWER}", f"ann operate {OPERATOR}"], "tokens")


@dataclass
class ApiWorld:
    """Everything behind the routes.

    Attributes:
        tasks: James's tasks, in a ledger of their own.
    """

    tasks: TaskWorld
    settings: QueueSettings

    def __post_init__(self) -> None:
        self.desk = ServedDesk.over(self.tasks.desk, self.settings)
        self.desk.api.apart = in_a_thread

    @asynccontextmanager
    async def client(self, token: str | None = OPERATOR) -> AsyncIterator[httpx2.AsyncClient]:
        """A client that shows this token."""
        app = application(API, self.desk, Access(TOKENS))
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers) as found:
            yield found


async def in_a_thread(function: Any) -> Any:
    return await asyncio.to_thread(function)
