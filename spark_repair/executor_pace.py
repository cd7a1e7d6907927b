"""The pace of executors elsewhere: each worker looks for itself, has its part of the limit, and hears of a new one.

So nothing has to reach them but what `jobs set` writes to the ledger, and all together are never above the limit.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame

from cql.driver.contact import Contact
from cql.driver.session import CassandraCluster, connect
from model.operations import Level
from model.ports import Clock
from model.schema.table import Table
from repair.clock import SystemClock
from repair.ledger.run_limits import RunLimits
from repair.log_fields import with_command_log
from repair.mending.limits import Pace
from repair.mending.throttle import SmallRead, Throttle

BATCH_ROWS: Final = 500
"""Rows that pass through a worker at once, at most: what is read is not held up by more."""

_clusters: dict[Contact, CassandraCluster] = {}
"""The open clusters of this worker process; they end with it."""

_throttles: dict[tuple[Contact, str, UUID | None], Throttle] = {}
"""What this process knows of each cluster, keyspace and run: a task goes on at the rate of the one before."""


@dataclass(frozen=True, slots=True)
class ThrottledPlace:
    """All that a worker needs to look for itself; plain data.

    Attributes:
        table: of the small read that is timed, at that level; None: the run is not pressed.
        limit: the operator's, in rows per second of the whole run.
        ledger: the keyspace in which limits are heard of, of that run.
        workers: that share the limit.
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
        """Those of a second at the declared limit, as all of a batch are read before the worker waits for any."""
        return BATCH_ROWS if self.limit is None else max(1, min(BATCH_ROWS, self.limit // self.workers))

    def pace(self, clock: Clock) -> Pace:
        """Of this worker process."""
        known = (self.contact, self.keyspace, self.run)
        if known not in _throttles:
            cluster = open_here(self.contact)
            read = SmallRead(cluster.keyspace(self.keyspace), self.table, clock, self.level) if self.table else None
            heard = RunLimits(cluster.keyspace(self.ledger), clock) if self.ledger and self.run else None
            _throttles[known] = Throttle(clock, self.limit, read, None, heard, self.run, self.workers)
        return Pace(None, clock, _throttles[known])


def place_of(throttle: Throttle, contact: Contact, keyspace: str, workers: int) -> ThrottledPlace:
    """Of a run whose driver has that throttle."""
    read = throttle.read if isinstance(throttle.read, SmallRead) else None
    table, level = (read.table, read.level) if read else (None, Level.LOCAL_QUORUM)
    ledger = throttle.limits.keyspace if throttle.limits else None
    return ThrottledPlace(contact, keyspace, table, level, throttle.limit, ledger, throttle.run, workers)


def passed_on(rows: DataFrame, place: ThrottledPlace) -> DataFrame:
    """The same rows, through Python as they are, each worker at its part of the rate."""
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
    """The cluster as this worker process has it open."""
    if contact not in _clusters:
        _clusters[contact] = connect(contact)
    return _clusters[contact]
