"""The page over a cluster in memory: a world that commands fill, and browsers that ask it as a person does."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Self

import httpx2

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.http.access import Access, parse_tokens
from mailmend.admin.frame.http.application import application
from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.serve import job_health
from mailmend.admin.jobs.tasks import TaskDesk
from mailmend.admin.local.doctor import DoctorSettings
from mailmend.admin.metrics.metrics import Exposition
from mailmend.admin.page.desk import PageSettings
from mailmend.admin.page.table import SettingShown
from mailmend.admin.routes import SERVED
from mailmend.admin.serve import ServedSettings, WebDesk
from mailmend.cql.memory import MemoryTables
from mailmend.model.ids import QueueName
from mailmend.repair.ledger.jobs import AdminTasks
from tests.support.cluster_twin import ClusterTwin

READ = "r" * 32
OPERATE = "w" * 32
TOKENS = parse_tokens([f"watcher read {READ}", f"alice operate {OPERATE}"], "tokens")
HERE = "http://127.0.0.1"


@dataclass
class PageWorld:
    """Everything behind the page of one server."""

    cluster: ClusterTwin
    access: Access = field(default_factory=lambda: Access(TOKENS))
    jobs: Sequence[Job] = ()
    shown: Sequence[SettingShown] = ()

    def __post_init__(self) -> None:
        connection = ConnectionSettings(hosts=("127.0.0.1",), keyspace="mail")
        opened = OpenCluster(connection, self.cluster, self.cluster.clock)  # type: ignore[arg-type] # twins
        page = PageSettings(jobs=self.jobs, shown=self.shown, doctor=DoctorSettings(QueueName("outgoing")))
        settings = ServedSettings(queues=QueueSettings(connection, QueueName("outgoing")), page=page)
        exposition = Exposition(opened, lambda: self.jobs).text
        clock = opened.clock
        tasks = AdminTasks(MemoryTables(clock.micros), "mail", clock, "here")
        health = lambda: job_health(leads=True, unreached="")  # noqa: E731
        desk = TaskDesk(tasks, clock, lambda: None, health, exposition=exposition)
        self.desk = WebDesk.over(desk, settings, opened)
        self.app = application(SERVED, self.desk, self.access)

    def browser(self, base: str = HERE) -> "Visit":
        return Visit(self, base)


class _Fields(HTMLParser):
    """The hidden fields of each form of a page, by where the form goes to."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: dict[str, dict[str, str]] = {}
        self._action = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._action = given["action"]
            self.forms[self._action] = {}
        elif tag == "input" and given.get("type") == "hidden":
            self.forms[self._action][given["name"]] = given["value"]


class Visit:
    """A browser with its own cookies."""

    def __init__(self, world: PageWorld, base: str) -> None:
        self._client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(world.app, raise_app_exceptions=False),
            base_url=base,
            headers={"Accept": "text/html"},
        )
        self._base = base

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self._client.get(path, headers={name.replace("_", "-"): text for name, text in headers.items()})

    async def forms(self, path: str) -> Mapping[str, Mapping[str, str]]:
        parser = _Fields()
        parser.feed((await self.get(path)).text)
        return parser.forms

    async def send(
        self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Send a form as a browser does: with the origin of its page, unless `headers` say otherwise."""
        return await self._client.post(path, data=dict(fields), headers={"Origin": self._base, **(headers or {})})

    async def signed_in(self, token: str) -> Self:
        fields = (await self.forms("/sign-in"))["/sign-in"]
        answer = await self.send("/sign-in", {**fields, "token": token})
        assert answer.status_code == 303, answer.text
        return self


def text_of(page: httpx2.Response) -> str:
    """The text of a page, without its tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", page.text).split())
