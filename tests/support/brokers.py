"""A real RabbitMQ for tests: found, started, ended; one fixture, whatever stands behind it.

`MAILMEND_TEST_RABBITMQ=host:port:management_port` names one that runs already; else Docker is used where it answers;
else a node is started from the same code as `mailmend local up --with rabbitmq`, with free ports and a folder of its
own. A test that kills, wipes or encrypts has a node of its own: `throwaway_rabbitmq()`.
"""

import http.client
import json
import os
import re
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

from mailmend.admin.local.processes import speaks_amqp
from mailmend.admin.local.rabbitmq import (
    GUEST,
    MEMORY_MIB,
    BrokerCertificates,
    RabbitMq,
    api_answers,
    environment_of,
    installation_in,
)
from mailmend.admin.local.server import HOST, LocalServer, Machine, throwaway_folder
from mailmend.mailqueue.broker_http import basic
from mailmend.model.errors import LocalServerError
from mailmend.repair.clock import SystemClock
from tests.support.servers import PREFIX, docker_answers, unavailable

T = TypeVar("T")

GIVEN = "MAILMEND_TEST_RABBITMQ"
_IMAGE = "rabbitmq:4.0.5-management"
_AMQP_PORT, _MANAGEMENT_PORT = 5672, 15672
_READY_SECONDS_MAX = 120
_POLL_SECONDS = 0.2
_HTTP_SECONDS_MAX = 30
_CONTROL_SECONDS_MAX = 60
_QUEUES_NOTED = "mnesia/*/quorum/*/names.dets"
_NOTED_SECONDS_MAX = 10
_NOTED_POLL_SECONDS = 0.02
_SAVED_AT, _SAVED_BYTES = 8, 4


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that a test may use together with others: whoever needs queues takes a virtual host of its own."""

    host: str
    port: int
    management_port: int
    user: str = GUEST[0]
    password: str = field(default=GUEST[1], repr=False)

    @contextmanager
    def vhost(self) -> Iterator[str]:
        """A new virtual host, removed with all that is in it after the block; its name."""
        name = f"t_{uuid4().hex[:12]}"
        self.api("PUT", f"vhosts/{name}")
        self.api("PUT", f"permissions/{name}/{self.user}", {"configure": ".*", "write": ".*", "read": ".*"})
        try:
            yield name
        finally:
            self.api("DELETE", f"vhosts/{name}")

    def url(self, vhost: str = "/") -> str:
        return f"amqp://{self.user}:{self.password}@{self.host}:{self.port}/{quote(vhost, safe='')}"

    def api(self, method: str, path: str, body: object | None = None) -> Any:
        """Ask the HTTP API, with a path below `/api/`; what it answers, None when nothing."""
        connection = http.client.HTTPConnection(self.host, self.management_port, timeout=_HTTP_SECONDS_MAX)
        headers = {"Authorization": basic(self.user, self.password), "Content-Type": "application/json"}
        try:
            connection.request(method, f"/api/{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        assert answer.status < http.client.BAD_REQUEST, f"{method} {path}: {answer.status} {content!r}"
        return json.loads(content) if content else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBroker(Broker):
    """A broker that a test has for itself: it may be killed, started and wiped, and keeps its ports over all of it."""

    run: LocalServer
    secure_port: int | None = None

    def start(self) -> None:
        self.run.up()

    def stop(self) -> None:
        self.run.down()

    def kill(self) -> None:
        """End it as a crash would, as soon as it has noted on disk which queues it has.

        RabbitMQ notes that up to a second after a quorum queue was declared. Killed before (`run.kill()` does so), it
        starts the queue anew without what was confirmed, and the queue never has a leader again: name_not_registered
        in its log. No test that is not about that means to meet it.
        """
        clock = SystemClock()
        deadline = clock.monotonic() + _NOTED_SECONDS_MAX
        while not all(map(_is_saved, self.run.folder.glob(_QUEUES_NOTED))) and clock.monotonic() < deadline:
            clock.sleep(_NOTED_POLL_SECONDS)
        self.run.kill()

    def wipe(self) -> None:
        """Forget all that it stored, virtual hosts and queues too; it must not run."""
        self.run.wipe()

    def control(self, *words: str) -> str:
        installation = installation_in(self.run.kind.fetch(self.run.machine))
        assert installation is not None
        environment = environment_of(installation, self.run.site, os.environ.get("PATH", os.defpath))
        program = [str(installation.server.parent / "rabbitmqctl"), *words]
        ended = subprocess.run(
            program, env=environment, capture_output=True, text=True, check=False, timeout=_CONTROL_SECONDS_MAX
        )
        assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    @contextmanager
    def short_of_memory(self) -> Iterator[None]:
        self.control("set_vm_memory_high_watermark", "0.0000001")
        # The command ends before the alarm is raised: on a busy machine a message was still taken.
        eventually(lambda: "memory" in self.control("eval", "rabbit_alarm:get_alarms()."))
        try:
            yield
        finally:
            self.control("set_vm_memory_high_watermark", "absolute", f"{MEMORY_MIB}MB")

    @contextmanager
    def patience_of_consumers(self, seconds: int) -> Iterator[None]:
        """Whoever holds a message longer than so has its channel closed; of channels that are opened in the block."""
        before = self.control(
            "eval", "[application:get_env(rabbit, N) || N <- [consumer_timeout, channel_tick_interval]]."
        )
        self._patience(seconds * 1000, 500)
        try:
            yield
        finally:
            timeout, tick = map(int, re.findall(r"\d+", before))
            self._patience(timeout, tick)

    def _patience(self, timeout_millis: int, tick_millis: int) -> None:
        known = {"consumer_timeout": timeout_millis, "channel_tick_interval": tick_millis}
        sets = ", ".join(f"application:set_env(rabbit, {name}, {value})" for name, value in known.items())
        self.control("eval", f"{sets}.")


def eventually(ask: Callable[[], T | None], seconds_max: float = 30) -> T:
    """What an answer is, once there is one: the counts of the HTTP API lag by a second or more."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds_max
    while not (answer := ask()):
        assert clock.monotonic() < deadline, f"still {answer!r} after {seconds_max} s"
        clock.sleep(_POLL_SECONDS)
    return answer


def _is_saved(table: Path) -> bool:
    """Whether Erlang has nothing to add to a table on disk: its header says so in four bytes, zero while it has."""
    header = table.read_bytes()[: _SAVED_AT + _SAVED_BYTES]
    return any(header[_SAVED_AT:])


@contextmanager
def one_rabbitmq() -> Iterator[Broker]:
    if given := os.environ.get(GIVEN):
        host, port, management_port = given.rsplit(":", 2)
        yield Broker(host, int(port), int(management_port))
    elif docker_answers():
        with _container() as broker:
            yield broker
    else:
        with throwaway_rabbitmq() as own:
            yield own


@contextmanager
def throwaway_rabbitmq(tls: BrokerCertificates | None = None) -> Iterator[OwnBroker]:
    """A node of our own, that runs and stores nothing yet; ended with the block.

    Args:
        tls: the certificates of a listener on `secure_port`, beside the plain one.
    """
    with throwaway_folder(PREFIX) as folder:
        service = folder / "services" / "rabbitmq"
        run = LocalServer(RabbitMq(tls), Machine.of_this_user(), service, folder / "lock", usual_ports=False)
        try:
            run.up()
        except LocalServerError as error:
            if not any(words in str(error) for words in _NOT_HERE):
                raise
            unavailable(error)
        ports = run.site.ports
        yield OwnBroker(HOST, ports["amqp"], ports["management"], run=run, secure_port=ports.get("amqps"))


_NOT_HERE = ("could not be fetched", "cannot be verified", "cannot be kept")
"""What an error says where this machine cannot have a RabbitMQ: no apt-get, no network, no patchelf."""


@contextmanager
def _container() -> Iterator[Broker]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only where Docker answers

        container = DockerContainer(_IMAGE).with_exposed_ports(_AMQP_PORT, _MANAGEMENT_PORT).start()
    try:
        host = container.get_container_host_ip()
        port, management_port = (int(container.get_exposed_port(port)) for port in (_AMQP_PORT, _MANAGEMENT_PORT))
        eventually(lambda: speaks_amqp(host, port) and api_answers(host, management_port), _READY_SECONDS_MAX)
        yield Broker(host, port, management_port)
    finally:
        container.stop()
