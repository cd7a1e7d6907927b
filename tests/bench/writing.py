"""How much of the throughput of raw prepared writes the store keeps: the very same writes, with and without it.

What the store sends is recorded while it is measured; the same statements, for other messages, are then sent by the
driver alone, prepared beforehand, in the same groups and from as many threads. Rounds alternate, so that a busy machine
disturbs both alike. Beside the writes alone the same is measured with the store's two kinds of reads (the row that is
about to change, and the time of the truth's change, which becomes the stamp): what is left then is the store itself.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any
from uuid import UUID

from cassandra.query import UNSET_VALUE

from cql.session import CassandraCluster, Contact, Keyspace, connect
from cql.statements import Operation, values_of
from model.errors import MailmendError
from model.flags import FlagsChange, FlagsMode, parse_flags
from model.ids import MailboxId
from model.messages import Mail, Stored
from model.operations import Applied, Conditional, Read, Scan, Seen, Write
from model.table import Row
from repair.blobs import MemoryBlobs
from repair.clock import SystemClock
from repair.findings import Suspect
from repair.writer import MessageStore
from tests.support.keyspaces import MAIL, created, dropped

THREADS = 8
ROUNDS = 5
SEE = FlagsChange(FlagsMode.ADD, parse_flags([r"\Seen"]))
MAIL_TO_STORE = Mail(b"Subject: bench\r\n\r\n" + b"x" * 400, b"y" * 2000, datetime(2026, 1, 1, tzinfo=UTC))

Steps = list[list[Operation]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One operation: how many a second, and the store's share of the raw throughput."""

    operation: str
    store_per_second: float
    raw_writes_per_second: float
    raw_with_reads_per_second: float

    @property
    def share(self) -> float:
        """Of the same writes without the store."""
        return self.store_per_second / self.raw_writes_per_second

    @property
    def share_with_reads(self) -> float:
        """Of the same writes and reads without the store."""
        return self.store_per_second / self.raw_with_reads_per_second


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


@dataclass(slots=True)
class Bench:
    """A cluster, a keyspace, and what was measured in it."""

    cluster: CassandraCluster
    keyspace: Keyspace
    messages: int
    rates: dict[str, list[float]] = field(default_factory=dict)

    def run(self) -> list[Measured]:
        """All rounds; the first only warms up."""
        for number in range(ROUNDS + 1):
            self._round()
            if number == 0:
                self.rates.clear()
        return [self._measured("MessageStore.add"), self._measured("MessageStore.set_flags")]

    def _measured(self, name: str) -> Measured:
        store, writes, reads = (median(self.rates[f"{name} {kind}"]) for kind in ("store", "writes", "reads"))
        return Measured(name, store, writes, reads)

    def _round(self) -> None:
        """The store adds and flags; then the driver alone does the same, with other ids, and once more with reads."""
        tables, clock = Recorded(self.keyspace), SystemClock()
        with MessageStore(tables, MemoryBlobs(), NoLags(), clock) as store:
            boxes = [[MailboxId(clock.new_uuid()) for _ in range(4)] for _ in range(THREADS)]
            stored: list[list[Stored]] = [[] for _ in boxes]
            added, flagged = [list[list[Operation]]() for _ in boxes], [list[list[Operation]]() for _ in boxes]

            def add(thread: int) -> None:
                for number in range(self.messages // THREADS):
                    stored[thread].append(store.add(boxes[thread][number % 4], MAIL_TO_STORE))
                added[thread].extend(tables.steps)

            def flag(thread: int) -> None:
                for one in stored[thread]:
                    store.set_flags(one.place, SEE)
                flagged[thread].extend(tables.steps)

            self._timed("MessageStore.add store", add)
            self._timed("MessageStore.set_flags store", flag)
        for kind in ("writes", "reads"):
            ids: dict[UUID, UUID] = {}
            for name, steps in (("MessageStore.add", added), ("MessageStore.set_flags", flagged)):
                bound = [self._bound(own, ids, clock, reads=kind == "reads") for own in steps]
                self._timed(f"{name} {kind}", lambda thread, bound=bound: self._send(bound[thread]))  # type: ignore[misc]

    def _timed(self, name: str, work: Callable[[int], None]) -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.rates.setdefault(name, []).append(self.messages / (time.perf_counter() - began))

    def _bound(self, steps: Steps, ids: dict[UUID, UUID], clock: SystemClock, *, reads: bool) -> list[list[Any]]:
        """The driver's own prepared statements with their values, about other messages in other mailboxes."""
        wanted = [step for step in steps if reads or not isinstance(step[0], Read)]
        return [[self._statement(operation, ids, clock) for operation in step] for step in wanted]

    def _statement(self, operation: Operation, ids: dict[UUID, UUID], clock: SystemClock) -> tuple[Any, list[Any]]:
        ready = self.keyspace._shape(operation)
        return ready.statement, [_other(value, ids, clock) for value in values_of(operation, UNSET_VALUE)]

    def _send(self, steps: list[list[Any]]) -> None:
        session = self.cluster.session
        for step in steps:
            if len(step) == 1:
                session.execute(*step[0])
            else:
                for future in [session.execute_async(*statement) for statement in step]:
                    future.result()


def _other(value: Any, ids: dict[UUID, UUID], clock: SystemClock) -> Any:
    if not isinstance(value, UUID):
        return value
    if value not in ids:
        ids[value] = clock.new_uuid()
    return ids[value]


def measure(host: str, port: int, messages: int) -> list[Measured]:
    """Measure on a server that answers there, in a keyspace of our own."""
    name = f"bench_writing_{SystemClock().micros()}"
    with connect(Contact(hosts=(host,), port=port)) as cluster:
        try:
            return Bench(cluster, created(cluster, name, MAIL), messages).run()
        finally:
            dropped(cluster, (name,))


def main(arguments: Sequence[str]) -> None:
    """HOST PORT [MESSAGES]: a table, and the same as JSON."""
    found = measure(arguments[0], int(arguments[1]), int(arguments[2]) if len(arguments) > 2 else 2000)
    for one in found:
        print(
            f"{one.operation:24} store {one.store_per_second:7.0f}/s   raw writes {one.raw_writes_per_second:7.0f}/s "
            f"(share {one.share:.2f})   with reads {one.raw_with_reads_per_second:7.0f}/s "
            f"(share {one.share_with_reads:.2f})"
        )
    print(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    main(sys.argv[1:])
