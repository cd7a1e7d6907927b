"""The pace of executors on other hosts: each worker has its part of the limit and adjusts its own rate.

Each worker looks at the cluster itself, and reads new limits of `jobs set` from the ledger. All workers together never
exceed the limit.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.model.operations import Level
from mailmend.model.ports import Clock
from mailmend.model.table import Table
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.runs import RunLimits
from mailmend.repair.log_fields import with_command_log
from mailmend.repair.mending.limits import Pace
from mailmend.repair.mending.throttle import SmallRead, Throttle

BATCH_ROWS: Final = 500
"""The largest number of rows in a batch that passes through a worker."""

_clusters: dict[Contact, CassandraCluster] = {}
"""The open clusters of this worker process; they end with it."""

_throttles: dict[tuple[Contact, str, UUID | None], Throttle] = {}
"""What this process knows of each cluster, keyspace and run: a task goes on at the rate of the one before."""


@dataclass(frozen=True, slots=True)
class ThrottledPlace:
    """What a worker needs to keep its part of the pace; plain data.

    Attributes:
        table: the table of the small read that is timed, at `level`; None: pressure does not change the rate.
        limit: the operator's limit, in rows per second of the whole run.
        ledger: the ledger keyspace, from which limits of `run` are read; None: they are not read.
        workers: the number of workers that share the limit.
    """

    contact: Contact
    keyspace: str
    table: Table | None
    level: Level
    limit: int | None
    ledger: str | None
    run: UUID | None
    workers: int

    @property
    def batch_rows(self) -> int:
        """The rows of a batch: at most the rows of one second at the limit, a batch is read before the wait."""
        if self.limit is None:
            return BATCH_ROWS
        return max(1, min(BATCH_ROWS, self.limit // self.workers))

    def pace(self, clock: Clock) -> Pace:
        """The pace of this worker process; all its tasks of one run share a throttle."""
        known = (self.contact, self.keyspace, self.run)
        if known not in _throttles:
            cluster = open_here(self.contact)
            read = None
            if self.table:
                read = SmallRead(cluster.keyspace(self.keyspace), self.table, clock, self.level)
            limits = None
            if self.ledger and self.run:
                limits = RunLimits(cluster.keyspace(self.ledger), clock)
            _throttles[known] = Throttle(clock, self.limit, read, None, limits, self.run, self.workers)
        return Pace(None, clock, _throttles[known])


def place_of(throttle: Throttle, contact: Contact, keyspace: str, workers: int) -> ThrottledPlace:
    """The same settings for workers, from the throttle of the run in the driver."""
    table = None
    level = Level.LOCAL_QUORUM
    if isinstance(throttle.read, SmallRead):
        table = throttle.read.table
        level = throttle.read.level
    ledger = None
    if throttle.limits:
        ledger = throttle.limits.keyspace
    return ThrottledPlace(contact, keyspace, table, level, throttle.limit, ledger, throttle.run, workers)


def passed_on(rows: DataFrame, place: ThrottledPlace) -> DataFrame:
    """The same rows, passed through Python workers, each of which keeps its part of the rate."""
    rows.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", place.batch_rows)

    def passed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return at_pace(place.pace(SystemClock()), batches)

    return rows.mapInArrow(with_command_log(passed), rows.schema)


def at_pace(pace: Pace, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        begun = 0
        while begun < batch.num_rows:
            part = batch.slice(begun, pace.at_once)
            pace.take(part.num_rows)
            begun += part.num_rows
            yield part


def open_here(contact: Contact) -> CassandraCluster:
    """The connection to the cluster of this worker process, opened at first use."""
    if contact not in _clusters:
        _clusters[contact] = connect(contact)
    return _clusters[contact]
