"""What a check costs beside the bare scans that it cannot do without, and beside a walk with point reads.

As a program it does these scans and nothing else: `python -m tests.bench.scanning HOST:PORT KEYSPACE ENGINE [brief]`.
"""

import json
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from mailmend.cql.driver.session import CassandraCluster, Contact, connect
from mailmend.cql.introspect import live_schema
from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.operations import Level, Read, Scan
from mailmend.model.ports import Tables
from mailmend.model.projections.family import Family
from mailmend.repair.binding import bind
from mailmend.repair.joins.records import few_collections
from mailmend.repair.mending.engine import RepairSettings
from mailmend.spark_repair.message_inconsistencies import SparkEngine
from mailmend.spark_repair.session import session_for_a_command
from mailmend.spark_repair.source import Source
from tests.support.progress import SilentProgress
from tests.support.spark import started_settings

ROUNDS = 3
WALKED = 5_000
JAMES_AS_SHIPPED_PER_SECOND = "43-48"
"""What James's own task does at its default throttle of 100 rows a second, measured over both of its passes."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """One size: the check and the bare scans in turn, medians of the rounds after a first one that warms up."""

    messages: int
    check_seconds: float
    bare_seconds: float
    driver_heap_mib: float
    python_mib: float

    @property
    def ratio(self) -> float:
        """The check in bare scans."""
        return self.check_seconds / self.bare_seconds


@dataclass(frozen=True, slots=True)
class Keyspace:
    """Where to measure."""

    session: SparkSession
    cluster: CassandraCluster
    name: str
    messages: int

    @property
    def family(self) -> Family:
        return family_of(self.cluster, self.name)

    @property
    def engine(self) -> SparkEngine:
        """What checks it."""
        return SparkEngine(self.session, self.cluster.contact, self.name)


def family_of(cluster: CassandraCluster, keyspace: str) -> Family:
    """What follows from the truth, as it is live."""
    (family,) = bind(keyspace, live_schema(cluster, keyspace), (MESSAGES,))
    return family


def scan(place: Keyspace) -> Scanned:
    """Check and scan in turn; a check that found something in a sound keyspace would measure nothing."""
    family = place.family
    _reset_heap_peaks(place.session)
    checks, bare = [], []
    for _ in range(ROUNDS + 1):
        bare.append(_seconds(lambda: _scan_bare(place, family)))
        checks.append(_seconds(lambda: _check(place, family)))
    rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    heap_mib = _heap_peak_mib(place.session)
    return Scanned(place.messages, median(checks[1:]), median(bare[1:]), heap_mib, rss_mib)


def walk_per_second(mail: Tables, family: Family) -> float:
    """Messages a second when each row of either table is looked up in the other one, as many in flight as fit.

    Both passes over a sample; the rate does not depend on how many are left.
    """
    mirror, truth = family.mirror.table, family.truth
    rows = list(islice(mail.scan(Scan(mirror, mirror.names)), WALKED))
    passes = (
        [Read(truth, (row["messageid"], row["mailboxid"]), Level.SERIAL) for row in rows],
        [Read(mirror, (row["mailboxid"], row["uid"])) for row in rows],
    )
    seconds = sum(_seconds(lambda reads=reads: mail.read_all(reads)) for reads in passes)  # type: ignore[misc]
    scans = sum(
        _seconds(lambda table=table: list(islice(mail.scan(Scan(table, table.names)), WALKED)))  # type: ignore[misc]
        for table in (mirror, truth)
    )
    return len(rows) / (seconds + scans)


def _check(place: Keyspace, family: Family) -> None:
    detection = place.engine.detect(RepairSettings("mail", (family,)), SilentProgress())
    found = {name: dict(counts) for name, counts in detection.counts.items() if counts}
    read = detection.scanned[family.truth.spelling]
    detection.close()
    assert not found, f"a sound keyspace was found wrong: {found}"
    assert read == place.messages, f"{read} rows of {place.messages} were read"


def _scan_bare(place: Keyspace, family: Family) -> None:
    source = Source(place.session, place.cluster.contact, place.name)
    for table, columns in family.columns_read.values():
        source.scan(table, columns).write.format("noop").mode("overwrite").save()


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _pools(session: SparkSession) -> list[Any]:
    jvm: Any = session.sparkContext._jvm
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    return [pool for pool in pools if pool.getType().toString() == "Heap memory"]


def _reset_heap_peaks(session: SparkSession) -> None:
    for pool in _pools(session):
        pool.resetPeakUsage()


def _heap_peak_mib(session: SparkSession) -> float:
    return float(sum(pool.getPeakUsage().getUsed() for pool in _pools(session))) / 2**20


def main(arguments: Sequence[str]) -> None:
    """Scan what a check of messages reads, by the reader of one engine."""
    address, keyspace, engine, *brief = arguments
    scan_once(address, keyspace, engine, family_of, brief=bool(brief))


def scan_once(
    address: str,
    keyspace: str,
    engine: str,
    family_in: Callable[[CassandraCluster, str], Family],
    *,
    brief: bool,
) -> None:
    """Scan what a check of a family reads, and print the seconds as a check does."""
    host, _, port = address.rpartition(":")
    with connect(Contact(hosts=(host,), port=int(port))) as cluster:
        family = family_in(cluster, keyspace)
        if engine == "spark":
            with session_for_a_command(started_settings("local[*]", brief=brief)) as session:
                seconds = _seconds(lambda: _scan_bare(Keyspace(session, cluster, keyspace, 0), family))
        else:
            seconds = _seconds(lambda: _read_bare(cluster.keyspace(keyspace), family))
    print(json.dumps({"seconds": {"scan": seconds}}))


def _read_bare(mail: Tables, family: Family) -> None:
    with few_collections():
        for table, columns in family.columns_read.values():
            deque(mail.scan(Scan(table, columns, Level.LOCAL_QUORUM)), maxlen=0)


if __name__ == "__main__":
    main(sys.argv[1:])
