"""`mailmend queue` on real servers: a keyspace, a virtual host and a store of blobs of a test's own."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from mailmend.cql.driver.session import CassandraCluster, Keyspace, connect
from mailmend.mailqueue.rabbitmq.broker.settings import topology_of
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS, QUEUE_TABLES
from mailmend.model.ids import QueueName
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Remove, Scan
from tests.support.brokers import Broker
from tests.support.commands import CommandLine, Ended, command_line, contact_of
from tests.support.keyspaces import created, dropped
from tests.support.patience import PATIENCE_SECONDS
from tests.support.servers import CassandraServer

QUEUE_SCHEMA = Schema((), (EVENT_STORE, *QUEUE_TABLES))
LETTER = b"From: ann@example.org\r\nSubject: hello\r\n\r\nBody.\r\n"


@dataclass(frozen=True, slots=True)
class RealQueue:
    """A queue that nobody used before, and a shell that knows its servers.

    Attributes:
        name: of the queue.
        keyspace: with the tables of the queue.
    """

    name: QueueName
    keyspace: Keyspace
    cluster: CassandraCluster
    broker: Broker
    vhost: str
    line: CommandLine

    def __call__(self, *arguments: str, **environment: str) -> Ended:
        return self.line("queue", *arguments, **environment)

    def put(self, *names: str, options: tuple[str, ...] = ()) -> list[str]:
        file = self.line.home / "letter.eml"
        file.write_bytes(LETTER)
        ids = []
        for name in names:
            ended = self("enqueue", str(file), "--recipient", "bob@example.org", "--name", name, "--json", *options)
            assert ended.code == 0, ended.err
            ids.append(ended.json["enqueued"][0]["id"])
        return ids

    def names(self) -> list[str]:
        return [one["name"] for one in self("browse", "--json").json["mails"]]

    def lose_messages(self) -> None:
        queue = topology_of(self.name).work_queue
        self.broker.api("DELETE", f"queues/{self.vhost}/{queue}/contents")

    def lose_broker_queue(self) -> None:
        self.broker.api("DELETE", f"queues/{self.vhost}/{topology_of(self.name).work_queue}")

    def lose_row(self, enqueue_id: str) -> None:
        for row in self.keyspace.scan(Scan(ENQUEUED_MAILS, tuple(column.name for column in ENQUEUED_MAILS.key))):
            if str(row["enqueueid"]) == enqueue_id:
                self.keyspace.write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row)))

    def empty(self) -> None:
        """As if nobody had used it, but for the configuration."""
        for table in QUEUE_TABLES:
            self.cluster.execute_ddl(f"TRUNCATE {self.keyspace.name}.{table.name}")
        for queue in self.broker.api("GET", f"queues/{self.vhost}"):
            self.broker.api("DELETE", f"queues/{self.vhost}/{queue['name']}")


@contextmanager
def real_queue(
    server: CassandraServer, broker: Broker, home: Path, blobs: dict[str, str], keyspace: str | None = None
) -> Iterator[RealQueue]:
    """A queue on real servers; keyspace and virtual host are gone afterwards.

    `blobs` are the environment variables that say where contents are; `keyspace` is one that is there, or None.
    """
    name = keyspace or f"g_queue_{uuid4().hex[:8]}"
    with connect(contact_of(server)) as cluster, broker.vhost() as vhost:
        tables = created(cluster, name, QUEUE_SCHEMA) if keyspace is None else cluster.keyspace(name)
        line = command_line(
            home,
            server,
            MAILMEND_KEYSPACE=name,
            MAILMEND_LEDGER_KEYSPACE=f"{name}_ledger",
            MAILMEND_BROKER=f"amqp://{broker.user}@{broker.host}:{broker.port}/{vhost}",
            MAILMEND_BROKER_PASSWORD=broker.password,
            MAILMEND_BROKER_MANAGEMENT=f"http://{broker.host}:{broker.management_port}",
            **blobs,
        )
        try:
            yield RealQueue(QueueName("spool"), tables, cluster, broker, vhost, line)
        finally:
            if keyspace is None:
                dropped(cluster, (name, f"{name}_ledger"))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.2)
