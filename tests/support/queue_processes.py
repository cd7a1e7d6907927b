"""A queue's three real servers as a fault test has them: processes on them that die, and one that looks and heals."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from mailmend.admin.frame import cluster as wiring_cluster
from mailmend.cql.driver.session import Keyspace, connect
from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.codec import queued_of
from mailmend.mailqueue.queue import Dequeued
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.ids import BlobId, EnqueueId
from mailmend.model.keyspace import Schema
from tests.support.brokers import Broker, eventually
from tests.support.commands import CommandLine, Ended, command_line
from tests.support.keyspaces import created, dropped
from tests.support.object_stores import S3
from tests.support.patience import PATIENCE_SECONDS
from tests.support.queue_faults import COMMAND, Ahead, Order, asked, ledger_of, opened
from tests.support.queue_servers import Servers
from tests.support.queue_wires import WiredBlobs
from tests.support.queues import CONTENT, listed, mail, parts_of
from tests.support.servers import CassandraServer, ThreeNodes

T = TypeVar("T")

KILLED = -9
HOUR = 3600.0
LATER = 3 * HOUR
"""So far ahead a clock has to be for a sweep to pass what was enqueued just now."""

LedgerLines = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class QueueProcesses:
    """Three servers, a program that forks processes on them, and a folder for their ledgers."""

    servers: Servers
    keyspace: Keyspace
    program: "subprocess.Popen[str]"
    folder: Path

    def begin(self, story: str, queue: str, **wishes: Any) -> tuple[int, Path]:
        ledger = self.folder / f"{queue}-{story}-{uuid4().hex[:6]}.jsonl"
        return int(self._ask(asked(self.servers, Order(story, queue, str(ledger), **wishes)))), ledger

    def wait(self, pid: int) -> int:
        return int(self._ask(json.dumps({"wait": pid})))

    def killed(self, story: str, queue: str, at: str, nth: int = 1, **wishes: Any) -> LedgerLines:
        """What a process told before it killed itself at that step."""
        pid, ledger = self.begin(story, queue, at=at, nth=nth, **wishes)
        assert self.wait(pid) == KILLED, f"{story} never came to {at}"
        return ledger_of(ledger)

    def typed(
        self,
        home: Path,
        *arguments: str,
        at: str,
        nth: int = 1,
        ahead_seconds: float = 0,
        group: str = "queue",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Type `mailmend`, the group and the arguments: a command that kills itself at that step, which it comes to."""
        where = variables or self.servers.environment
        environment = {**where, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
        wishes = {"at": at, "nth": nth, "ahead_seconds": ahead_seconds}
        pid, _ = self.begin(COMMAND, "", arguments=(group, *arguments), environment=environment, **wishes)
        assert self.wait(pid) == KILLED, f"{arguments} never came to {at}"

    def run(self, queue: str, story: Callable[[RabbitMailQueue], Awaitable[T]], *, ahead_seconds: float = 0) -> T:
        """What a story comes to in a process that lives on."""

        async def all_of_it() -> T:
            async with opened(self.servers, self.keyspace, queue, ahead_seconds=ahead_seconds) as process:
                return await story(process)

        return asyncio.run(all_of_it())

    def put(self, queue: str, *names: str, ahead_seconds: float = 0, **when: Any) -> list[EnqueueId]:

        async def story(process: RabbitMailQueue) -> list[EnqueueId]:
            return [await process.enqueue(mail(name), CONTENT, **when) for name in names]

        return self.run(queue, story, ahead_seconds=ahead_seconds)

    def put_at_once(self, queue: str, names: Sequence[str]) -> list[EnqueueId]:

        async def story(process: RabbitMailQueue) -> list[EnqueueId]:
            return list(await asyncio.gather(*(process.enqueue(mail(name), CONTENT) for name in names)))

        return self.run(queue, story)

    def listed(self, queue: str) -> set[str]:

        async def story(process: RabbitMailQueue) -> set[str]:
            return {str(one.queued.enqueue_id) for one in await listed(process)}

        return self.run(queue, story)

    def blobs(self) -> set[BlobId]:

        async def story(process: RabbitMailQueue) -> set[BlobId]:
            wired = parts_of(process).blobs
            assert isinstance(wired, WiredBlobs)
            assert isinstance(wired.blobs, NamedBlobs)
            return {blob.blob_id async for blob in wired.blobs.scan()}

        return self.run("of-no-matter", story)

    def in_bucket(self, s3: S3) -> "QueueProcesses":
        return replace(self, servers=replace(self.servers, bucket=s3.bucket().bucket))

    def shell(self, home: Path, monkeypatch: pytest.MonkeyPatch, ahead_seconds: float = LATER) -> "QueueLine":
        """A shell in which it is later: what is too young to be judged is old."""
        monkeypatch.setattr(wiring_cluster, "SystemClock", lambda: Ahead(ahead_seconds))
        server = CassandraServer(self.servers.hosts[0], self.servers.port)
        return QueueLine(command_line(home, server, **self.servers.environment))

    def _ask(self, line: str) -> Any:
        assert self.program.stdin
        assert self.program.stdout
        self.program.stdin.write(f"{line}\n")
        self.program.stdin.flush()
        return json.loads(self.program.stdout.readline())


@dataclass(frozen=True, slots=True)
class QueueLine:
    """`mailmend queue` as a person types it."""

    line: CommandLine

    def __call__(self, *arguments: str) -> Ended:
        return self.line("queue", *arguments)

    def unreferenced(self, *queues: str) -> dict[str, int]:
        """What a check of all blobs finds; what is TOO_YOUNG has nothing that refers to it.

        No mail of these queues lacks a blob; other tests' mails in the same keyspace have theirs in other buckets.
        """
        how = ("--engine", "local", "--delay", "0s", "--oldest-message", "1m", "--json")
        document = self.line("check", "blobs", *how).json
        missing = [one for one in document["missing"] if one["referrer"].split()[0] in queues]
        assert not missing, missing
        return {verdict: number for verdict, number in document["findings"].items() if verdict != "MISSING"}

    def reconciled(self, queue: str, *options: str, code: int) -> dict[str, Any]:
        """What a comparison tells, with the exit code that is expected; the broker's counts may lag for a while."""
        ended: Ended | None = None

        def reported() -> Ended | None:
            nonlocal ended
            ended = self("reconcile", "--queue", queue, "--json", *options)
            return ended if ended.code == code else None

        try:
            return eventually(reported).json
        except AssertionError:
            pytest.fail(f"{ended}")


def ids_of(reported: Sequence[dict[str, Any]], what: str) -> list[str]:
    return [one["of"] for one in reported if one["what"] == what]


async def delivered(
    queue: RabbitMailQueue, wanted: Collection[str] = (), settle: Callable[[Dequeued], Awaitable[None]] | None = None
) -> list[str]:
    """Take and ack everything that comes: what is wanted first, and then whatever comes before a mail put behind it."""
    taken: list[str] = []

    async def take(mails: Any) -> str:
        one = await anext(mails)
        await (settle(one) if settle else one.ack())
        taken.append(str(one.enqueue_id))
        return taken[-1]

    await _let_go(queue)
    async with asyncio.timeout(PATIENCE_SECONDS), queue.dequeue(prefetch=1, priorities=[5]) as mails:
        while not set(wanted) <= set(taken):
            await take(mails)
        last = str(await queue.enqueue(mail("last"), CONTENT))
        while await take(mails) != last:
            continue
    return taken[:-1]


async def _let_go(queue: RabbitMailQueue) -> None:
    """Wait until the broker has back what a killed process had in hand."""

    async def free() -> bool:
        depth: Depth = await parts_of(queue).broker.depth(queue.name)
        return depth.consumers == 0

    await until(free)


async def until(holds: Callable[[], Awaitable[bool]], seconds_max: float = PATIENCE_SECONDS) -> None:
    async with asyncio.timeout(seconds_max):
        while not await holds():  # noqa: ASYNC110 - servers tell nobody
            await asyncio.sleep(0.05)


async def swept(queue: RabbitMailQueue) -> None:
    await queue.sweep()


async def dead_letters(queue: RabbitMailQueue) -> list[str]:
    """The ids of the dead letters; taken away, for their blobs are needed as long as they are there."""
    ids = list[str]()
    count = (await parts_of(queue).broker.depth(queue.name)).dead
    async with parts_of(queue).broker.dead_letters(queue.name, count or 1) as letters:
        for _ in range(count):
            letter = await anext(letters)
            ids.append(str(queued_of(letter.message.body).enqueue_id))
            await letter.ack()
    return ids


def servers_of(nodes: CassandraServer | ThreeNodes, keyspace: str, broker: Broker, vhost: str, s3: S3) -> Servers:
    hosts = nodes.hosts[:1] if isinstance(nodes, ThreeNodes) else (nodes.host,)
    at = s3.bucket()
    keys = (s3.access_key, s3.secret_key)
    where = (nodes.port, keyspace, broker.port, vhost, s3.endpoint, at.bucket)
    return Servers(hosts, *where, *keys, broker.host, broker.management_port)


@contextmanager
def queue_processes(
    server: CassandraServer, broker: Broker, vhost: str, s3: S3, folder: Path
) -> Iterator[QueueProcesses]:
    """A keyspace of its own on these servers; gone afterwards, and no process lives on."""
    servers = servers_of(server, f"f_queue_{uuid4().hex[:8]}", broker, vhost, s3)
    with connect(servers.contact) as cluster:
        keyspace = created(cluster, servers.keyspace, Schema((), (EVENT_STORE, *QUEUE_TABLES)))
        with program() as forks:
            yield QueueProcesses(servers, keyspace, forks, folder)
        dropped(cluster, (servers.keyspace, f"{servers.keyspace}_ledger"))


@contextmanager
def program() -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "tests.support.queue_faults"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forks:
        assert forks.stdin
        try:
            yield forks
        finally:
            forks.stdin.close()
