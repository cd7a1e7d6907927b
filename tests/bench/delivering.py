"""Mails through a server of deliveries, in by SMTP and out by SMTP, beside a Postfix that relays; both durable.

The same client (`smtp-source`) hands over the same mails with as many sessions, the same server (`smtp-sink`) takes
them; time runs from the first mail in to the last mail out. Both answer 250 once a mail is on disk: Postfix in a file
of its own, ours in Cassandra, RabbitMQ and a folder of blobs, which run on the same two cores.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from mailmend.admin.local.processes import free_port
from mailmend.cql.driver.session import Contact, Keyspace
from tests.support.brokers import Broker
from tests.support.postfix import HOST, MailDrain, mail_drain, relaying_postfix, send_mails, until_listening

MAILS = 1_000
BYTES = 5_000
SESSIONS = 20
ROUNDS = 3
_PATIENCE_SECONDS = 300.0
OURS, POSTFIX = "delivery serve", "Postfix"
LIMITS = (
    *("--concurrency", str(SESSIONS), "--domain-concurrency", str(SESSIONS)),
    *("--prefetch", "200", "--mails-per-connection", "100"),
)


@dataclass(frozen=True, slots=True)
class DeliveryLane:
    """Mails a second: those that were taken from the client, and those that went through; medians of the rounds."""

    name: str
    taken: float
    through: float

    def __str__(self) -> str:
        return f"{self.name}: {self.taken:,.0f} mails/s taken, {self.through:,.0f} mails/s through"


@dataclass(frozen=True, slots=True)
class DeliveryParts:
    """What a server of deliveries runs on."""

    contact: Contact
    keyspace: Keyspace
    broker: Broker
    vhost: str

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings of a process that uses them."""
        broker = self.broker
        return {
            "MAILMEND_HOST": self.contact.hosts[0],
            "MAILMEND_PORT": str(self.contact.port),
            "MAILMEND_LOCAL_DC": self.contact.local_dc or "",
            "MAILMEND_KEYSPACE": self.keyspace.name,
            "MAILMEND_BROKER": f"amqp://{broker.host}:{broker.port}/{self.vhost}",
        }


def measure(parts: DeliveryParts) -> list[DeliveryLane]:
    """Both lanes in turn, after a round of each that is not counted."""
    with (
        mail_drain() as ours_out,
        mail_drain() as postfix_out,
        relaying_postfix(postfix_out.port) as postfix,
        served(parts, "bench", ours_out.port, LIMITS) as ours,
    ):
        rounds: dict[str, list[tuple[float, float]]] = {OURS: [], POSTFIX: []}
        for number in range(ROUNDS + 1):
            for name, entry, drain in ((OURS, ours.port, ours_out), (POSTFIX, postfix.port, postfix_out)):
                one = _one_round(entry, drain)
                if number:
                    rounds[name].append(one)
    return [
        DeliveryLane(name, median(taken for taken, _ in some), median(through for _, through in some))
        for name, some in rounds.items()
    ]


def ratio(lanes: list[DeliveryLane]) -> float:
    ours, postfix = lanes
    return ours.through / postfix.through


def _one_round(port: int, drain: MailDrain) -> tuple[float, float]:
    wanted, began = drain.count + MAILS, time.monotonic()
    send_mails(port, MAILS, BYTES, SESSIONS)
    taken = time.monotonic() - began
    while drain.count < wanted:
        assert time.monotonic() - began < _PATIENCE_SECONDS, f"{wanted - drain.count} mails are missing"
        time.sleep(0.01)
    return MAILS / taken, MAILS / (time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class ServedQueue:
    """A `mailmend delivery serve` as a process of its own, and the port at which it takes mails."""

    process: "subprocess.Popen[bytes]"
    port: int

    @property
    def resident_mib(self) -> float:
        """The memory that the process has now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        return int(kib) / 1024


@contextmanager
def served(
    parts: DeliveryParts, queue: str, next_port: int, options: Sequence[str] = (), blobs: Path | None = None
) -> Iterator[ServedQueue]:
    """A server of the queue that hands all mail over to a port of this machine; it ends with the block.

    The folder of the contents is a new one where none is named.
    """
    port = free_port([HOST])
    with TemporaryDirectory() as home:
        folder = blobs or Path(home) / "blobs"
        folder.mkdir(exist_ok=True)
        where = {**parts.environment, "MAILMEND_BLOBS": f"file://{folder}"}
        words = ["delivery", "serve", queue, "--listen", f"{HOST}:{port}", "--next-hop", f"{HOST}:{next_port}"]
        with (Path(home) / "log").open("w") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "mailmend", *words, *options, "--log-level", "warning"],
                env={**os.environ, **where, "HOME": home},
                stderr=log,
            )
            try:
                until_listening(server, port)
                yield ServedQueue(server, port)
            finally:
                server.terminate()
                server.wait()
