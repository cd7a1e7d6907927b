"""A real Pulsar for tests: found or started, ended; every test takes queues with names of its own.

`MAILMEND_TEST_PULSAR=host:port:admin_port` names one that runs already; else one is started from the same code as
`mailmend local up --with pulsar`, with free ports and a folder of its own.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

from mailmend.admin.local.pulsar import Pulsar
from mailmend.admin.local.server import HOST, LocalServer, Site
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.model.blobs import Blobs
from mailmend.model.errors import MailmendError
from mailmend.repair.clock import SystemClock
from tests.support.checkout import CHECKOUT
from tests.support.pulsar_stories import QUEUE
from tests.support.servers import throwaway_server

GIVEN = "MAILMEND_TEST_PULSAR"

_MISHAPS_SOON: Mapping[str, object] = {
    "backlogQuotaCheckIntervalInSeconds": 1,
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}
"""Each second, not each minute, it looks whether a backlog is beyond its quota; and ledgers end after few messages."""


@dataclass(frozen=True, slots=True)
class RealPulsar:
    """A Pulsar that a test may use together with others."""

    host: str
    port: int
    admin_port: int

    @property
    def settings(self) -> PulsarSettings:
        return PulsarSettings(f"pulsar://{self.host}:{self.port}", f"http://{self.host}:{self.admin_port}")

    @contextmanager
    def namespace(self) -> Iterator["PulsarNamespace"]:
        """A namespace of the test's own."""
        found = PulsarNamespace(self, f"public/t-{uuid4().hex[:12]}")
        found.admin("PUT", f"namespaces/{found.name}", {})
        yield found


@dataclass(frozen=True, slots=True)
class PulsarNamespace:
    """A namespace, and what its admin does there."""

    pulsar: RealPulsar
    name: str

    @property
    def settings(self) -> PulsarSettings:
        return replace(self.pulsar.settings, namespace=self.name)

    def environment(self, known: Mapping[str, str]) -> dict[str, str]:
        """The variables of a shell, with a queue of this namespace in place of one over RabbitMQ."""
        others = {name: one for name, one in known.items() if "BROKER" not in name}
        address = f"{self.settings.service}/{self.name}"
        return {**others, "MAILMEND_BROKER": address, "MAILMEND_BROKER_MANAGEMENT": self.settings.admin}

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """The answer of the admin API; None where what was asked for is not there."""
        content = None if body is None else json.dumps(body).encode()
        url = f"{self.settings.admin}/admin/v2/{path}"
        try:
            with urlopen(Request(url, content, {"Content-Type": "application/json"}, method=method)) as answer:
                found = answer.read()
        except HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error
        return json.loads(found) if found else None

    def topic(self, method: str, topic: str, verb: str = "", body: object = None) -> Any:
        return self.admin(method, f"persistent/{self.name}/{topic}{verb}", body)

    def quota(self, policy: str | None) -> None:
        """Allow no backlog at all, or as much as there may be."""
        path = f"namespaces/{self.name}/backlogQuota?backlogQuotaType=destination_storage"
        if policy:
            self.admin("POST", path, {"limitSize": 1, "policy": policy})
        else:
            self.admin("DELETE", path)

    def program(self, story: str, wish: object = None) -> "subprocess.Popen[str]":
        """Another process, which tells a story of `tests.support.pulsar_stories`."""
        settings = self.settings
        words = (story, settings.service, settings.admin, self.name, str(wish))
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.pulsar_stories", *words],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @asynccontextmanager
    async def process(self, blobs: Blobs, clock: SystemClock | None = None) -> AsyncGenerator[PulsarMailQueue]:
        """The queue as one more process has it."""
        clock = clock or SystemClock()
        topics = PulsarTopics(self.settings, clock)
        try:
            async with await open_queue(QUEUE, topics, blobs, clock) as queue:
                yield queue
        finally:
            await topics.close()


@dataclass(frozen=True, slots=True)
class OwnPulsar(RealPulsar):
    """A Pulsar that a test has for itself: it may be killed and started, and keeps its ports over all of it."""

    run: LocalServer


@dataclass(frozen=True, slots=True)
class SetPulsar(Pulsar):
    """A Pulsar whose configuration says more, or something else."""

    settings: Mapping[str, object] = field(default_factory=dict)

    def write_files(self, parts: Path, site: Site) -> None:
        super(SetPulsar, self).write_files(parts, site)
        with (site.folder / "standalone.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in self.settings.items())


@contextmanager
def one_pulsar() -> Iterator[RealPulsar]:
    if given := os.environ.get(GIVEN):
        host, port, admin_port = given.rsplit(":", 2)
        yield RealPulsar(host, int(port), int(admin_port))
        return
    with throwaway_pulsar(SetPulsar(_MISHAPS_SOON)) as own:
        yield own


@contextmanager
def throwaway_pulsar(kind: Pulsar | None = None) -> Iterator[OwnPulsar]:
    with throwaway_server(kind or Pulsar()) as run:
        ports = run.site.ports
        yield OwnPulsar(HOST, ports["pulsar"], ports["admin"], run)


async def answered(ask: Callable[[], Awaitable[object]], within_seconds: float) -> None:
    """Wait until the client has found its broker again."""
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            await ask()
        except MailmendError:
            assert time.monotonic() < deadline, "it never answered"
            await asyncio.sleep(0.2)
        else:
            return
