"""The API over a cluster in memory, as a client sees it; each answer is held against the API's description."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import httpx2
from jsonschema import Draft202012Validator

from mailmend.admin.api.desk import ApiDesk
from mailmend.admin.api.http.routes import API
from mailmend.admin.frame.http.access import Access, parse_tokens
from mailmend.admin.frame.http.application import application
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.jobs.tasks import TaskDesk
from tests.support.task_desk import TaskWorld

VIEWER = "r" * 32
OPERATOR = "o" * 32
TOKENS = parse_tokens([f"watcher read {VIEWER}", f"ann operate {OPERATOR}"], "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOnly(TaskDesk):
    """The desk of a server without pages."""

    api: ApiDesk


@dataclass
class ApiWorld:
    """Everything behind the routes.

    Attributes:
        tasks: James's tasks, in a ledger of their own.
    """

    tasks: TaskWorld
    settings: QueueSettings

    def __post_init__(self) -> None:
        tasks = self.tasks.desk
        api = ApiDesk(settings=self.settings, clock=tasks.clock, tasks=tasks)
        self.desk = ApiOnly(**{each.name: getattr(tasks, each.name) for each in fields(tasks)}, api=api)

    @asynccontextmanager
    async def client(self, token: str | None = OPERATOR) -> AsyncIterator[httpx2.AsyncClient]:
        """A client that shows this token."""
        app = application(API, self.desk, Access(TOKENS))
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers) as found:
            yield found

    async def asked(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = OPERATOR,
        status: int = 200,
    ) -> Any:
        """The JSON of an answer of that status, which is as its route is described; None: it has no content."""
        async with self.client(token) as client:
            answer = await client.request(method, path, json=body)
        assert answer.status_code == status, answer.text
        if not answer.content:
            return None
        found = answer.json()
        if schema := schema_of(method, path.partition("?")[0], str(status)):
            Draft202012Validator(schema).validate(found)
        return found


@cache
def description() -> dict[str, Any]:
    return application(API, None, Access()).openapi()


def schema_of(method: str, path: str, status: str) -> dict[str, Any] | None:
    """The schema of an answer; None where no route has this path."""
    document = description()
    for template in sorted(document["paths"], key=lambda text: text.count("{")):
        operation = document["paths"][template].get(method.lower())
        if operation and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            schema = operation["responses"][status]["content"]["application/json"]["schema"]
            return {**schema, "components": document["components"]}
    return None
