"""The cleanup of all queues against how much mail has gone through one, beside the online sweep and row by row.

The past is made as `queue_history` makes it. `repair queues` with either engine, without its delay, as a whole command
in a process of its own: the peak of that process's memory is told, and the peak of the JVM's heap, read from its log.
After a first run of each that warms up, the engines take turns. Both sizes have the same small heap. Then, in this
process, the sweep, and each row and each mark by itself. Tables are emptied before each run: a cleanup reads them
whole.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import Contact, Keyspace
from mailmend.mailqueue.rabbitmq.mail_queue import open_queue
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.ids import QueueName
from mailmend.model.instants import MICROS, instant_of
from mailmend.repair.clock import SystemClock
from tests.bench.queue_history import clean_row_by_row, sweep_past
from tests.bench.queue_past import WINDOW, Past, write
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker

GROWTH: Final = 10
ROUNDS: Final = 3
HEAP: Final = "768m"
ENGINES: Final[Mapping[str, tuple[str, ...]]] = {"local": (), "spark": ("--spark-conf", f"spark.driver.memory={HEAP}")}
_LOOK_SECONDS: Final = 0.1
_COLLECTION: Final = re.compile(r"Pause .*?(\d+)M->\d+M\(")
"""Java's log of collections says how much of the heap was taken before each."""


@dataclass(frozen=True, slots=True)
class Command:
    """A whole `repair queues`: the round of the median time; memory in MiB, the most of all rounds."""

    engine: str
    seconds: float
    cpu_seconds: float
    python_mib: int
    heap_mib: int

    def __str__(self) -> str:
        heap = f", heap {self.heap_mib} MiB of {HEAP}" if self.heap_mib else ""
        return (
            f"{self.engine:6} {self.seconds:6.1f} s, CPU {self.cpu_seconds:6.1f} s, Python {self.python_mib} MiB{heap}"
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds for one number of processed mails."""

    mails: int
    sweep: float
    row_by_row: float
    commands: tuple[Command, ...]

    def __str__(self) -> str:
        lines = "".join(
            f"\n{'':>17}repair queues, {one}: row by row takes {self.row_by_row / one.seconds:.1f} x as long"
            for one in self.commands
        )
        return f"{self.mails:>9,} mails: sweep {self.sweep:.1f} s, row by row {self.row_by_row:.1f} s{lines}"


def measure(contact: Contact, keyspace: Keyspace, mails: int) -> Iterator[Measured]:
    """A tenth of the mails, then all; the keyspace has `queue_past.SCHEMA`."""
    for engine in ENGINES:
        _run(contact, keyspace.name, engine, _lived_through(keyspace, mails // GROWTH))
    for number in (mails // GROWTH, mails):
        yield _measured(contact, keyspace, number)


def as_json(measured: Iterable[Measured]) -> list[dict[str, Any]]:
    """For the results' file."""
    return [asdict(one) for one in measured]


def _measured(contact: Contact, keyspace: Keyspace, mails: int) -> Measured:
    rounds = [
        [_run(contact, keyspace.name, engine, _lived_through(keyspace, mails)) for engine in ENGINES]
        for _ in range(ROUNDS)
    ]
    past = _lived_through(keyspace, mails)
    return Measured(mails, *asyncio.run(_beside(keyspace, past)), tuple(map(_median, zip(*rounds, strict=True))))


def _median(runs: Sequence[Command]) -> Command:
    python_mib, heap_mib = (max(one) for one in zip(*((run.python_mib, run.heap_mib) for run in runs), strict=True))
    middle = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
    return replace(middle, python_mib=python_mib, heap_mib=heap_mib)


def _lived_through(keyspace: Keyspace, mails: int) -> Past:
    """The only queue of the keyspace, written when its slices were."""
    for table in QUEUE_TABLES:
        keyspace.cluster.execute_ddl(f"TRUNCATE {keyspace.name}.{table.name}")
    past = Past(QueueName(f"past-{mails}"), mails, slice_of(instant_of(SystemClock().micros()), WINDOW))
    at = round(past.slices[0].timestamp() * MICROS)
    for writes in (past.starts(), past.rows(), past.marks()):
        write(keyspace, (replace(one, at=at) for one in writes))
    return past


async def _beside(keyspace: Keyspace, past: Past) -> tuple[float, float]:
    """The sweep, and another past row by row."""
    clock = SystemClock()
    blobs, broker = MemoryBlobs(clock), MemoryBroker(clock)
    async with await open_queue(past.queue, AsyncKeyspace(keyspace), broker, blobs, clock) as queue:
        sweep = await sweep_past(keyspace, queue, past)
        return sweep.seconds, (await clean_row_by_row(keyspace, queue, past)).seconds


def _run(contact: Contact, keyspace: str, engine: str, past: Past) -> Command:
    place = ["--host", contact.hosts[0], "--port", str(contact.port), "--keyspace", keyspace]
    ledger = ["--ledger-keyspace", f"{keyspace}_ledger"]
    words = [
        "repair",
        "queues",
        "--engine",
        engine,
        *ENGINES[engine],
        "--delay",
        "0",
        "--no-blobs",
        "--json",
        *place,
        *ledger,
    ]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "collections"
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": f"-Xlog:gc:file={log}"}
        begun = time.perf_counter()
        command = [sys.executable, "-m", "mailmend", *words]
        with psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
            cpu, python_bytes = _watched(process)
            seconds = time.perf_counter() - begun
            result = json.loads(process.stdout.read())
        collections = [int(found[1]) for found in _COLLECTION.finditer(log.read_text())] if log.exists() else []
    removed = sum(one["removed_rows"] for one in result["queues"])
    if removed != past.mails:
        raise AssertionError(f"{removed} of {past.mails} rows were removed: {result}")
    return Command(engine, seconds, cpu, python_bytes // 2**20, max(collections, default=0))


def _watched(process: psutil.Popen) -> tuple[float, int]:
    """Processor seconds of the process and its children, and the most memory of the process itself, until it ends."""
    cpu, most = dict[int, float](), 0
    while process.poll() is None:
        for one in (process, *process.children(recursive=True)):
            try:
                cpu[one.pid] = sum(one.cpu_times()[:2])
                most = max(most, one.memory_info().rss) if one.pid == process.pid else most
            except psutil.Error:
                continue
        time.sleep(_LOOK_SECONDS)
    return sum(cpu.values()), most
