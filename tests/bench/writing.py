"""How much of the throughput of raw prepared writes the store keeps: the very same writes, with and without it.

One pass over the store is recorded, statement by statement, which warms up everything as well. The same statements,
about other messages, are then sent by the driver alone: prepared beforehand, in the same groups, from as many threads,
at the same consistency. Lanes (the store and its cheaper ways, raw writes, raw writes with the reads that the default
makes) take turns in slices of half a second or so, each turn beginning with another lane, and a share is the median of
the shares within one turn: a busy machine disturbs all lanes alike. That no raw conditional write is refused is
checked, because a refused one is cheaper. Beside throughput stands the processor time of this process for one
operation, which other processes disturb least.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Any
from uuid import UUID

from cassandra.query import UNSET_VALUE

from mailmend.cql.driver.session import CassandraCluster, Contact, Keyspace, connect
from mailmend.cql.row_statements import Operation, values_of
from mailmend.model.blobs import BlobKind
from mailmend.model.errors import MailmendError
from mailmend.model.ids import BlobId, MailboxId
from mailmend.model.operations import Applied, Conditional, Read, Scan, Seen, Write
from mailmend.model.ports import Tables
from mailmend.model.projections.findings import Suspect
from mailmend.model.table import Row
from mailmend.repair.clock import SystemClock
from mailmend.repair.store.message import FlagsChange, FlagsMode, MessageKey, NewMail, parse_flags
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.writes import StampSource, WriterSettings
from tests.support.keyspaces import MAIL, created, dropped
from tests.support.memory_blobs import MemoryBlobs

CONCURRENCY = (1, 16)

SEE = FlagsChange(FlagsMode.ADD, parse_flags([r"\Seen"]))
MAIL_TO_STORE = NewMail(b"Subject: bench\r\n\r\n" + b"x" * 400, b"y" * 2000, datetime(2026, 1, 1, tzinfo=UTC))

WAYS: dict[str, tuple[StampSource, bool]] = {
    "": (StampSource.TRUTH, False),
    "seen": (StampSource.TRUTH, True),
    "floor": (StampSource.FLOOR, False),
    "floor, seen": (StampSource.FLOOR, True),
    "clock": (StampSource.CLOCK, False),
}
"""The default, and what is cheaper: where the stamps come from, and whether the caller has looked before it flags."""

Steps = list[list[Operation]]
Lane = Callable[[int, int], object]
"""What one thread does in one slice: (thread, slice)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way of writing at one concurrency, beside the raw writes, alone and with the reads that the default makes.

    Attributes:
        share: of the throughput of the raw writes alone: the median of the turns.
        share_with_reads: of that of the raw writes and reads.
        cpu_ms: processor time of this process for one operation; and for the two raw ways.
    """

    operation: str
    threads: int
    store_per_second: float
    raw_writes_per_second: float
    raw_with_reads_per_second: float
    share: float
    share_with_reads: float
    cpu_ms: float
    raw_writes_cpu_ms: float
    raw_with_reads_cpu_ms: float

    def __str__(self) -> str:
        return (
            f"{self.operation:22} x{self.threads:<3} {self.store_per_second:5.0f}/s   "
            f"writes alone {self.raw_writes_per_second:5.0f}/s, share {self.share:.2f}   "
            f"writes and reads {self.raw_with_reads_per_second:5.0f}/s, share {self.share_with_reads:.2f}   "
            f"CPU here {self.cpu_ms:.2f} ms, raw {self.raw_writes_cpu_ms:.2f} and {self.raw_with_reads_cpu_ms:.2f} ms"
        )


class Recorded:
    """Tables that remember what each thread asked of them, in the groups in which it was sent."""

    def __init__(self, tables: Keyspace) -> None:
        self._tables = tables
        self._local = threading.local()

    @property
    def steps(self) -> Steps:
        """This thread's groups."""
        if not hasattr(self._local, "steps"):
            self._local.steps = []
        found: Steps = self._local.steps
        return found

    def read(self, read: Read) -> Sequence[Seen]:
        """Read."""
        self.steps.append([read])
        return self._tables.read(read)

    def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        """Read many."""
        self.steps.append(list(reads))
        return self._tables.read_all(reads)

    def scan(self, scan: Scan) -> Iterator[Row]:
        """Scan."""
        return self._tables.scan(scan)

    def write(self, write: Write) -> None:
        """Write."""
        self.steps.append([write])
        self._tables.write(write)

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        """Write many."""
        self.steps.append(list(writes))
        return self._tables.write_all(writes)

    def attempt(self, write: Conditional) -> Applied:
        """Write conditionally."""
        self.steps.append([write])
        return self._tables.attempt(write)


class NoLags:
    """A measurement with lags would measure something else."""

    def journal(self, suspects: Sequence[Suspect], cause: str) -> None:
        """Refuse."""
        raise AssertionError(f"{len(suspects)} lags: {cause}")


class NoContents(MemoryBlobs):
    """Names contents and keeps none: the raw writes beside it have none either."""

    async def put(self, data: bytes, kind: BlobKind) -> BlobId:
        """Name the bytes."""
        return BlobId(f"{kind.value}-{len(data)}")


class StoreLane:
    """A store of its own with mailboxes of its own; each thread adds to one of them, then flags what it added.

    Args:
        looks: the caller has looked at what it flags, as one that shows messages has; else the store reads them.
    """

    def __init__(self, tables: Tables, stamp: StampSource, size: tuple[int, int], *, looks: bool = False) -> None:
        clock, (threads, self._per_slice) = SystemClock(), size
        self.store = MessageStore(tables, NoContents(clock), NoLags(), clock, settings=WriterSettings(stamp=stamp))
        self.looks = looks
        self._boxes = [MailboxId(clock.new_uuid()) for _ in range(threads)]
        self._stored: dict[tuple[int, int], list[tuple[MessageKey, Seen | None]]] = {}

    def add(self, thread: int, turn: int) -> None:
        """Add a slice of messages."""
        added = [self.store.add(self._boxes[thread], MAIL_TO_STORE) for _ in range(self._per_slice)]
        self._stored[thread, turn] = [(one.place, None) for one in added]

    def look(self, thread: int, turn: int) -> None:
        """Look at a slice of messages, which is not measured."""
        if self.looks:
            places = [place for place, _ in self._stored[thread, turn]]
            self._stored[thread, turn] = [(place, self.store.look(place)) for place in places]

    def flag(self, thread: int, turn: int) -> None:
        """Flag the messages of a slice."""
        for place, seen in self._stored[thread, turn]:
            self.store.set_flags(place, SEE, seen)


class RawLane:
    """The recorded statements, about other messages in other mailboxes, by the driver alone."""

    def __init__(self, keyspace: Keyspace, *, reads: bool) -> None:
        self._keyspace, self._session = keyspace, keyspace.cluster.session
        self._reads = reads
        self._clock, self._ids = SystemClock(), dict[UUID, UUID]()
        self._ready: dict[tuple[str, int, int], list[list[Any]]] = {}
        self._answers: list[Any] = []

    def prepare(self, operation: str, thread: int, turn: int, steps: Steps) -> None:
        """Keep what is to be sent in one slice."""
        wanted = [step for step in steps if self._reads or not isinstance(step[0], Read)]
        self._ready[operation, thread, turn] = [[self._statement(one) for one in step] for step in wanted]

    def send(self, operation: str, thread: int, turn: int) -> None:
        """Send one slice: a statement alone is awaited, those of a group go together."""
        session, answers = self._session, []
        for step in self._ready[operation, thread, turn]:
            if len(step) == 1:
                answers.append(session.execute(*step[0]))
            else:
                for future in [session.execute_async(*statement) for statement in step]:
                    future.result()
        self._answers += answers

    def check(self) -> None:
        """No conditional write may have been refused."""
        refused = [one for one in self._answers if one.column_names and one.column_names[0] == "[applied]"]
        refused = [one for one in refused if not one.was_applied]
        assert not refused, f"{len(refused)} raw conditional writes were refused"
        self._answers.clear()

    def _statement(self, operation: Operation) -> tuple[Any, list[Any]]:
        ready = self._keyspace._shape(operation)
        return ready.statement, [self._other(value) for value in values_of(operation, UNSET_VALUE)]

    def _other(self, value: Any) -> Any:
        if not isinstance(value, UUID):
            return value
        if value not in self._ids:
            self._ids[value] = self._clock.new_uuid()
        return self._ids[value]


@dataclass(slots=True)
class Bench:
    """A keyspace, and what was measured in it at one concurrency."""

    keyspace: Keyspace
    threads: int
    messages: int
    rates: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    cpu_ms: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    @property
    def per_slice(self) -> int:
        """Messages of one thread in one slice: short, so that what disturbs one lane disturbs the next as well."""
        return max(12, 60 // self.threads)

    @property
    def turns(self) -> range:
        """How often the lanes take turns; the first turn only warms up."""
        return range(max(4, self.messages // (self.threads * self.per_slice)))

    def run(self) -> list[Measured]:
        """Record, then let the lanes take turns."""
        raw = {"writes": RawLane(self.keyspace, reads=False), "reads": RawLane(self.keyspace, reads=True)}
        self._record(list(raw.values()))
        stores = {name: self._store(self.keyspace, *way) for name, way in WAYS.items()}
        add: dict[str, Lane] = {name: lane.add for name, lane in stores.items()}
        flag: dict[str, Lane] = {name: lane.flag for name, lane in stores.items()}
        add |= {name: partial(lane.send, "add") for name, lane in raw.items()}
        flag |= {name: partial(lane.send, "flag") for name, lane in raw.items()}
        for turn in self.turns:
            self._take_turns("add", add, turn)
            for lane in stores.values():
                self._together(lane.look, turn)
            self._take_turns("flag", flag, turn)
            for one in raw.values():
                one.check()
        for lane in stores.values():
            lane.store.close()
        adds = [self._measured("add", name) for name, lane in stores.items() if not lane.looks]
        return adds + [self._measured("flag", name) for name in stores]

    def _store(self, tables: Tables, stamp: StampSource, looks: bool = False) -> StoreLane:
        return StoreLane(tables, stamp, (self.threads, self.per_slice), looks=looks)

    def _record(self, raw: Sequence[RawLane]) -> None:
        """All slices by a store that is watched; the raw lanes prepare the same."""
        tables = Recorded(self.keyspace)
        lane = self._store(tables, StampSource.TRUTH)

        def work(thread: int, turn: int) -> None:
            for operation, act in (("add", lane.add), ("flag", lane.flag)):
                tables.steps.clear()
                act(thread, turn)
                for one in raw:
                    one.prepare(operation, thread, turn, tables.steps)

        for turn in self.turns:
            self._together(work, turn)
        lane.store.close()

    def _take_turns(self, operation: str, lanes: dict[str, Lane], turn: int) -> None:
        names = list(lanes)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            cpu, began = time.process_time(), time.perf_counter()
            self._together(lanes[name], turn)
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
            if turn:
                done = self.per_slice * self.threads
                self.rates.setdefault((operation, name), []).append(done / seconds)
                self.cpu_ms.setdefault((operation, name), []).append(cpu_seconds / done * 1000)

    def _together(self, lane: Lane, turn: int) -> None:
        failures: list[BaseException] = []

        def work(thread: int) -> None:
            try:
                lane(thread, turn)
            except BaseException as error:  # noqa: BLE001 - raised below
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _measured(self, operation: str, lane: str) -> Measured:
        rates, cpu_ms = ([of[operation, one] for one in (lane, "writes", "reads")] for of in (self.rates, self.cpu_ms))
        shares = [median(store / one for store, one in zip(rates[0], raw, strict=True)) for raw in rates[1:]]
        (store, writes, reads), cpu = map(median, rates), list(map(median, cpu_ms))
        return Measured(f"{operation} {lane}".strip(), self.threads, store, writes, reads, *shares, *cpu)


def measure(host: str, port: int, messages: int, concurrency: Sequence[int] = CONCURRENCY) -> list[Measured]:
    """Measure on a server that answers there, in keyspaces of our own; a single thread writes a third as many."""
    found = []
    with connect(Contact(hosts=(host,), port=port)) as cluster:
        for threads in concurrency:
            found += _measure(cluster, threads, messages if threads > 1 else messages // 3)
    return found


def _measure(cluster: CassandraCluster, threads: int, messages: int) -> list[Measured]:
    name = f"bench_writing_{SystemClock().micros()}"
    try:
        return Bench(created(cluster, name, MAIL), threads, messages).run()
    finally:
        dropped(cluster, (name,))


def main(arguments: Sequence[str]) -> None:
    """HOST PORT [MESSAGES [THREADS...]]: a table, and the same as JSON."""
    host, port, *rest = arguments
    numbers = [int(one) for one in rest]
    found = measure(host, int(port), numbers[0] if numbers else 2000, numbers[1:] or CONCURRENCY)
    for one in found:
        print(one)
    print(json.dumps([as_row(one) for one in found]))


def as_row(one: Measured) -> dict[str, Any]:
    """For JSON, in figures that mean something."""
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in _fields(one).items()}


def _fields(one: Measured) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Measured.__slots__}


if __name__ == "__main__":
    main(sys.argv[1:])
