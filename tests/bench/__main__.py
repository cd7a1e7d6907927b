"""`make bench`: what a check, a repair and a write cost, each beside what it is measured against, in one run.

A table on stdout and a JSON file in `bench-results/`. Ratios travel between machines, seconds do not.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from cql.contact import Contact
from cql.session import CassandraCluster, Keyspace, connect
from model.catalog import FAMILIES, IMAP_UID, MESSAGE_ID, MESSAGES
from model.operations import Read, Scan
from model.table import Table
from repair.clock import SystemClock, Timing, take_as_of
from repair.decide import MENDABLE, Verdict
from repair.findings import Errand, Survey
from repair.runs import Ledger
from spark_repair.connector import Source
from spark_repair.frames import columns_read
from spark_repair.message_inconsistencies import SparkDetection, SparkEngine
from spark_repair.session import SparkSettings, open_session
from tests.bench import writing
from tests.bench.population import Population, damage
from tests.support.keyspaces import LEDGER, MAIL, created, dropped
from tests.support.progress import SilentProgress
from tests.support.servers import one_node

SMALL = 100_000
"""The smaller of the two sizes between which growth is told."""

ROUNDS = 3
WALKED = 20_000
JAMES_THROTTLE = 43
"""Messages a second that James's own task checks by default."""

DAMAGES = 10_000
CLOCK = SystemClock()


@dataclass(slots=True)
class Bench:
    """What is measured with, and what was measured."""

    spark: SparkSession
    contact: Contact
    cluster: CassandraCluster
    figures: dict[str, Any] = field(default_factory=dict)

    def populated(self, messages: int) -> Keyspace:
        """A keyspace of that size."""
        keyspace = created(self.cluster, f"d_bench_{messages}", MAIL)
        with self._timed(f"population_{messages}_seconds"):
            Population(self.spark, self.contact, keyspace.name, messages).write()
        return keyspace

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.figures[name] = round(time.monotonic() - started, 2)

    def check_and_bare_scans(self, keyspace: Keyspace, messages: int) -> None:
        """Rounds of both, one after the other, so that a busy machine disturbs both alike; the first only warms up."""
        rounds = [(seconds(self._bare, keyspace), seconds(self._check, keyspace)) for _ in range(ROUNDS + 1)][1:]
        self.figures[f"bare_scans_{messages}_seconds"] = median(bare for bare, _ in rounds)
        self.figures[f"check_{messages}_seconds"] = median(check for _, check in rounds)
        self.figures[f"check_over_bare_scans_{messages}"] = round(median(check / bare for bare, check in rounds), 3)
        self.figures[f"driver_peak_{messages}_mib"] = self._peak_mib()

    def _bare(self, keyspace: Keyspace) -> None:
        source = Source(self.spark, self.contact, keyspace.name)
        for table, columns in (read for family in FAMILIES for read in columns_read(family).values()):
            source.scan(table, columns).write.format("noop").mode("overwrite").save()

    def _check(self, keyspace: Keyspace) -> None:
        detection = self._detected(keyspace)
        assert not detection.counts, detection.counts
        detection.close()

    def _detected(self, keyspace: Keyspace, ledger: str | None = None) -> SparkDetection:
        return SparkEngine(self.spark, self.contact, keyspace.name, ledger).detect(Survey(FAMILIES), SilentProgress())

    def walk(self, keyspace: Keyspace, messages: int) -> None:
        """As James's task: every row of each big table, its counterpart read by key; on a sample of rows."""
        taken = seconds(self._walk, keyspace)
        rate = WALKED / taken
        self.figures["walk_messages_per_second"] = round(rate)
        self.figures["walk_sampled_rows"] = WALKED
        self.figures["james_default_throttle_messages_per_second"] = JAMES_THROTTLE
        check = self.figures[f"check_{messages}_seconds"]
        self.figures["check_messages_per_second"] = round(messages / check)
        self.figures["check_over_walk"] = round(messages / check / rate, 1)

    def _walk(self, keyspace: Keyspace) -> None:
        mirror = MESSAGES.mirror
        self._read_beside(keyspace, IMAP_UID, lambda row: Read(MESSAGE_ID, mirror.key_of(row)))
        self._read_beside(keyspace, MESSAGE_ID, lambda row: Read(IMAP_UID, (row["messageid"], row["mailboxid"])))

    def _read_beside(self, keyspace: Keyspace, table: Table, beside: Callable[[Any], Read]) -> None:
        rows = islice(keyspace.scan(Scan(table, table.names)), WALKED)
        while page := list(islice(rows, 1000)):
            keyspace.read_all([beside(row) for row in page])

    def fixes(self, keyspace: Keyspace, messages: int) -> None:
        """Damage, found and mended; then found clean."""
        expected = damage(keyspace, messages, min(DAMAGES, messages // 10))
        book = created(self.cluster, "d_bench_ledger", LEDGER)
        ledger = Ledger(book, CLOCK)
        as_of = take_as_of(CLOCK, self.cluster, Timing(no_writers=True))
        run = ledger.start(keyspace.name, "repair messages", as_of, {}).id
        detection = self._detected(keyspace, book.name)
        assert detection.counts == {MESSAGE_ID.spelling: expected}, detection.counts
        errand = Errand(run, as_of, 5.0, MENDABLE)
        started = time.monotonic()
        fixed = sum(one.result is Verdict.FIXED for one in detection.revisit(errand, SilentProgress()))
        self.figures["fixes"] = fixed
        self.figures["fixes_per_second"] = round(fixed / (time.monotonic() - started))
        detection.close()
        self._check(keyspace)

    def _peak_mib(self) -> dict[str, int]:
        """The most that this process and its JVM ever held; with a local master they are driver and executors."""
        jvm: Any = self.spark.sparkContext._jvm
        status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return {
            "python": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "jvm": int(peak.split()[1]) // 1024,
        }


def seconds(work: Callable[[Keyspace], None], keyspace: Keyspace) -> float:
    """How long it takes."""
    started = time.monotonic()
    work(keyspace)
    return round(time.monotonic() - started, 2)


def measured(messages: int, *, write: bool) -> dict[str, Any]:
    """All figures, on the server that tests use."""
    with one_node() as server:
        contact = Contact((server.host,), server.port, server.local_dc)
        spark = open_session(SparkSettings(master=f"local[{os.cpu_count()}]", driver_memory="2g"))
        with connect(contact) as cluster:
            bench = Bench(spark, contact, cluster, {"messages": messages, "cores": os.cpu_count()})
            try:
                _measure(bench, messages)
            finally:
                names = (f"d_bench_{size}" for size in (SMALL, messages))
                dropped(cluster, (*names, "d_bench_ledger"))
                spark.stop()
        if write:
            bench.figures["writing"] = [
                {"operation": one.operation, "store_over_raw": round(one.share, 2)}
                | {"store_over_raw_with_reads": round(one.share_with_reads, 2)}
                for one in writing.measure(server.host, server.port, 2000)
            ]
    return bench.figures


def _measure(bench: Bench, messages: int) -> None:
    sizes = sorted({min(SMALL, messages), messages})
    for size in sizes:
        keyspace = bench.populated(size)
        bench.check_and_bare_scans(keyspace, size)
    bench.figures["growth"] = {
        "messages": round(sizes[-1] / sizes[0], 1),
        "seconds": round(bench.figures[f"check_{sizes[-1]}_seconds"] / bench.figures[f"check_{sizes[0]}_seconds"], 1),
    }
    bench.walk(keyspace, messages)
    bench.fixes(keyspace, messages)


def main(arguments: Sequence[str]) -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--messages", type=int, default=int(os.environ.get("MESSAGES", "1000000")))
    parser.add_argument("--no-writing", action="store_true", help="leave out the measurement of the store")
    chosen = parser.parse_args(arguments)
    figures = measured(chosen.messages, write=not chosen.no_writing)
    for name, figure in figures.items():
        print(f"{name:45} {figure}")
    folder = Path("bench-results")
    folder.mkdir(exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"kept in {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
