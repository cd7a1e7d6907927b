"""A pace of scans that may change while they run.

For a local master a system property of its JVM has the pace: the connector's own limit
(`readsPerSec`) applies to joins only, not to scans, so each task pauses between its rows. The
length of the pause is either part of the plan, or a system property that the tasks read each time.

On other hosts each worker has its part of the limit and adjusts its own rate. Each worker looks at
the cluster itself, and reads new limits of `jobs set` from the ledger. All workers together never
exceed the limit.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.model.operations import Level
from mailmend.model.ports import Clock
from mailmend.model.table import Table
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.runs import RunLimits
from mailmend.repair.log_fields import with_command_log, with_log_fields
from mailmend.repair.mending.limits import Pace
from mailmend.repair.mending.throttle import SmallRead, Throttle
from mailmend.spark_repair.executors import runs_here, tasks_at_once
from mailmend.spark_repair.progress import rows_read

_PAUSE_MILLIS_MIN: Final = 20
"""Shorter pauses are less exact."""

_ROW_BITS: Final = (1 << 33) - 1
"""The part of `monotonically_increasing_id` that counts a task's rows."""

_GRAIN_MAX: Final = 20
"""The number of rows after which a task pauses, where that may change."""

_PAUSE_SECONDS_MAX: Final = 2
"""A pace that is slow from the start is cut finer, for a task that pauses hears nothing."""

PAUSE: Final = "mailmend.pause.nanos"


def pause_of(rows_per_second: int, tasks: int) -> tuple[int, int]:
    """(rows, milliseconds): each task pauses for the milliseconds after that number of rows; all keep the pace."""
    rows = max(1, rows_per_second * _PAUSE_MILLIS_MIN // (1000 * tasks))
    return rows, -(-rows * 1000 * tasks // rows_per_second)


def paced(rows: DataFrame, rows_per_second: int | None, throttle: Throttle | None) -> DataFrame:
    """The same rows, passed on at the pace by all tasks together.

    On other hosts, `passed_on` keeps a pace that may change, as a pace in the plan could not change.
    """
    session = rows.sparkSession
    if throttle and runs_here(str(session.sparkContext.master)):
        between = grain_of(throttle.declared, tasks_at_once(session))
        nanos = f"CAST(reflect('java.lang.Long', 'getLong', '{PAUSE}', 0L) AS BIGINT)"
        pause = f"reflect('java.util.concurrent.locks.LockSupport', 'parkNanos', {nanos})"
    elif throttle is None and rows_per_second is not None:
        between, millis = pause_of(rows_per_second, tasks_at_once(session))
        pause = f"reflect('java.lang.Thread', 'sleep', {millis}L)"
    else:
        return rows
    number = f"(monotonically_increasing_id() & {_ROW_BITS})"
    paused = f"CASE WHEN {number} % {between} = 0 THEN {pause} END"
    return rows.where(f"NOT (({paused}) <=> 'awake')")  # always true, which Spark cannot know


def grain_of(declared: int | None, tasks: int) -> int:
    """The number of rows between two pauses of a task, for a pace that may change."""
    if declared is None:
        return _GRAIN_MAX
    return max(1, min(_GRAIN_MAX, _PAUSE_SECONDS_MAX * declared // tasks))


def nanos_of(rows_per_second: float | None, tasks: int, grain: int) -> int:
    """The length of each pause of a task, in nanoseconds, for a pause after every `grain` rows."""
    if rows_per_second is None:
        return 0
    return ceil(grain * tasks * 1_000_000_000 / rows_per_second)


@contextmanager
def throttled(session: SparkSession, throttle: Throttle | None) -> Iterator[None]:
    """While the block runs, look at the cluster regularly, and set the pause of all tasks of a local master."""
    if throttle is None or not runs_here(str(session.sparkContext.master)):
        yield
        return
    done = threading.Event()
    looking = _Looking(session, throttle)
    looking.tell()
    thread = threading.Thread(
        target=with_log_fields(looking.until), args=(done,), name="mailmend-throttle", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class _Looking:
    def __init__(self, session: SparkSession, throttle: Throttle) -> None:
        self._session = session
        self._throttle = throttle
        self._measure = rows_read(session)
        self._rows = 0
        self._tasks = tasks_at_once(session)
        self._grain = grain_of(throttle.declared, self._tasks)
        self._last = -1

    def until(self, done: threading.Event) -> None:
        while not done.wait(self._throttle.due_in()):
            with suppress(Exception):  # a session that ends; the tasks keep the pace that they have
                rows = self._measure()
                self._throttle.note(max(0, rows - self._rows))
                self._rows = max(rows, self._rows)
            self._throttle.look()
            with suppress(Exception):
                self.tell()

    def tell(self) -> None:
        nanos = nanos_of(self._throttle.rows_per_second, self._tasks, self._grain)
        if nanos != self._last:
            java: Any = self._session.sparkContext._jvm  # noqa: SLF001 - no public name
            java.java.lang.System.setProperty(PAUSE, str(nanos))
            self._last = nanos


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
