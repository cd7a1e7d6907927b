"""Mails through a server of deliveries, in by SMTP and out by SMTP, beside a Postfix that relays; both durable.

The same client (`smtp-source`) hands over the same mails with as many sessions, the same server (`smtp-sink`) takes
them; time runs from the first mail in to the last mail out. Both answer 250 once a mail is on disk: Postfix in a file
of its own, ours in Cassandra, RabbitMQ and a folder of blobs, which run on the same two cores. Ours runs in one
process, and in two (`--processes 2`). Beside the rates stands the processor time of a mail: of the server's processes,
of Cassandra and of RabbitMQ.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psutil

from mailmend.admin.local.processes import free_port
from mailmend.cql.driver.session import Contact, Keyspace
from tests.support.brokers import Broker
from tests.support.postfix import HOST, MailDrain, mail_drain, relaying_postfix, send_mails, until_listening

MAILS = 1_000
BYTES = 5_000
SESSIONS = 20
ROUNDS = 3
_PATIENCE_SECONDS = 300.0
OURS, TWO, POSTFIX = "delivery serve", "delivery serve --processes 2", "Postfix"
LIMITS = (
    *("--concurrency", str(SESSIONS), "--domain-concurrency", str(SESSIONS)),
    *("--prefetch", "200", "--mails-per-connection", "100"),
)


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Milliseconds of processor time that a mail cost: in the server, in Cassandra, in the broker."""

    server: float
    cassandra: float
    broker: float

    def __str__(self) -> str:
        return f"{self.server:.1f} ms server, {self.cassandra:.1f} ms Cassandra, {self.broker:.1f} ms RabbitMQ a mail"


@dataclass(frozen=True, slots=True)
class DeliveryRound:
    """Mails a second that were taken and that went through, and what they cost; None: nothing of ours worked."""

    taken: float
    through: float
    cost: ProcessorTime | None = None


@dataclass(frozen=True, slots=True)
class DeliveryLane:
    """Medians of the rounds: mails a second that were taken from the client and that went through, and their cost."""

    name: str
    taken: float
    through: float
    cost: ProcessorTime | None = None

    def __str__(self) -> str:
        text = f"{self.name}: {self.taken:,.0f} mails/s taken, {self.through:,.0f} mails/s through"
        if self.cost is not None:
            text += f"; {self.cost}"
        return text


def lane_of(name: str, rounds: Sequence[DeliveryRound]) -> DeliveryLane:
    costs = [one.cost for one in rounds if one.cost is not None]
    cost = None
    if costs:
        cost = ProcessorTime(
            median(cost.server for cost in costs),
            median(cost.cassandra for cost in costs),
            median(cost.broker for cost in costs),
        )
    return DeliveryLane(name, median(one.taken for one in rounds), median(one.through for one in rounds), cost)


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
    """All lanes in turn, after a round of each that is not counted."""
    rounds: dict[str, list[DeliveryRound]] = {OURS: [], TWO: [], POSTFIX: []}
    with (
        mail_drain() as drain,
        relaying_postfix(drain.port) as postfix,
        served(parts, "bench", drain.port, LIMITS) as ours,
        served(parts, "bench-2", drain.port, (*LIMITS, "--processes", "2")) as two,
    ):
        servers = {OURS: ours, TWO: two}
        for number in range(ROUNDS + 1):
            for name, lane in rounds.items():
                if name == POSTFIX:
                    one = _one_round(postfix.port, drain)
                else:
                    one = _round_of_ours(servers[name], drain)
                if number:
                    lane.append(one)
    return [lane_of(name, some) for name, some in rounds.items()]


def ratios(lanes: list[DeliveryLane]) -> str:
    """One process and two by Postfix, and two by one."""
    ours, two, postfix = lanes
    return (
        f"{OURS} / {POSTFIX}: {ours.through / postfix.through:.2f}; {TWO} / {POSTFIX}: "
        f"{two.through / postfix.through:.2f}; {TWO} / {OURS}: {two.through / ours.through:.2f}"
    )


def _round_of_ours(server: "ServedQueue", drain: MailDrain) -> DeliveryRound:
    before = _used(server)
    one = _one_round(server.port, drain)
    time.sleep(0.5)  # what follows a delivery costs too: marks, acks, blobs
    used = [1000 * (after - earlier) / MAILS for earlier, after in zip(before, _used(server), strict=True)]
    return replace(one, cost=ProcessorTime(*used))


def _used(server: "ServedQueue") -> list[float]:
    """Seconds of processor time so far: of the server's processes, of Cassandra, of the broker."""
    top = psutil.Process(server.process.pid)
    return [
        _seconds([top, *top.children()]),
        _seconds(_processes("CassandraDaemon")),
        _seconds(_processes("beam.smp")),
    ]


def _processes(word: str) -> list[psutil.Process]:
    """The processes of this machine with that word in their command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(word in argument for argument in process.info["cmdline"] or ()):
            found.append(process)
    return found


def _seconds(processes: Sequence[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        times = process.cpu_times()
        total += times.user + times.system
    return total


def _one_round(port: int, drain: MailDrain) -> DeliveryRound:
    wanted, began = drain.count + MAILS, time.monotonic()
    send_mails(port, MAILS, BYTES, SESSIONS)
    taken = time.monotonic() - began
    while drain.count < wanted:
        assert time.monotonic() - began < _PATIENCE_SECONDS, f"{wanted - drain.count} mails are missing"
        time.sleep(0.01)
    return DeliveryRound(MAILS / taken, MAILS / (time.monotonic() - began))


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
