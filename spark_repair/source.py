"""Tables of a `Contact` as DataFrames: by the Spark connector, or by token segments of a staged scan.

The connector gets its options with each read, so that secrets stay in-process. It cuts a table into
ranges of its own, anew each time, and takes none from us (docs/adr/0035). So each task of a staged
scan reads token segments through the Cassandra driver, or from the staging area; staged rows pass
through Python, by the same code as without Spark. A lost executor or session loses the segments
being read.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from mailmend.cql.driver.contact import Contact
from mailmend.model.names import name_of
from mailmend.model.operations import Level, Scan
from mailmend.model.table import Table
from mailmend.model.transforms import Transform
from mailmend.repair.clock import SystemClock
from mailmend.repair.mending.limits import Pace, share
from mailmend.repair.mending.throttle import Throttle
from mailmend.repair.retries import Retries, RetryPolicy
from mailmend.repair.staging.area import StagingArea, columns_of, schema_of
from mailmend.spark_repair.executors import runs_here, tasks_at_once
from mailmend.spark_repair.failures import is_unknown
from mailmend.spark_repair.pace import ThrottledPlace, open_here, paced, passed_on, place_of
from mailmend.spark_repair.tls import contact_of_executors, tls_options
from mailmend.spark_repair.transforms import rendered

_SEGMENTS_PER_TASK_MAX: Final = 32
_TASKS_EACH: Final = 4
"""The number of tasks for each task slot, so that slots do not stay idle long while the last tasks run."""

_LIST_EVERY: Final = 10
"""The store is listed at every tenth display of progress only, as listing a bucket is slow and costs money."""


@dataclass(frozen=True, slots=True)
class StagedSource:
    """What a task needs to read a segment; plain data.

    Attributes:
        rows_per_second: the pace of one task; None: no limit.
        throttled: the settings of a pace that may change while tasks read; None: it does not.
    """

    area: StagingArea
    contact: Contact
    keyspace: str
    rows_per_second: float | None
    throttled: ThrottledPlace | None

    def rows(self, session: SparkSession, scan: Scan) -> DataFrame:
        number = self.area.segments[scan.table.spelling]
        tasks = min(number, max(_TASKS_EACH * tasks_at_once(session), -(-number // _SEGMENTS_PER_TASK_MAX)))
        segments = session.range(0, number, 1, tasks)
        return segments.mapInArrow(
            lambda numbers: self.batches(numbers, scan), from_arrow_schema(schema_of(columns_of(scan)))
        )

    def batches(self, numbers: Iterable[pa.RecordBatch], scan: Scan) -> Iterator[pa.RecordBatch]:
        clock = SystemClock()
        if self.throttled:
            pace = self.throttled.pace(clock)
        else:
            pace = Pace(self.rows_per_second, clock)
        self.area.refuse_another()
        tables = pace.over(open_here(self.contact).keyspace(self.keyspace))
        for batch in numbers:
            for at in batch.column(0).to_pylist():
                yield from self.area.batches(tables, scan, at)


def segments_read(area: StagingArea) -> Callable[[], int]:
    """A function that returns the number of segments staged since the area was opened."""
    asked = found = 0

    def measure() -> int:
        nonlocal asked, found
        if asked % _LIST_EVERY == 0:
            found = area.standing() - area.kept
        asked += 1
        return found

    return measure


_FORMAT = "org.apache.spark.sql.cassandra"
_PAGE_ROWS_MAX = 1000
SHUFFLE_PARTS = "spark.sql.shuffle.partitions"
_SCHEMA_LOOKS = 6
_SCHEMA_PACE = RetryPolicy(wait_seconds_min=0.5, wait_seconds_max=2.0)
"""The waits until the connector sees a new table, which takes a second or more after its creation."""


@dataclass(frozen=True, slots=True)
class Source:
    """The tables of one keyspace as DataFrames.

    Attributes:
        rows_per_second: the pace of all cores together; None: no limit.
        throttle: changes the pace while rows are read.
        staging: the staging area of the scan; None: the scan cannot be continued.
    """

    session: SparkSession
    contact: Contact
    keyspace: str
    level: Level = Level.LOCAL_QUORUM
    rows_per_second: int | None = None
    throttle: Throttle | None = None
    staging: StagingArea | None = None

    def scan(self, table: Table, columns: Iterable[str]) -> DataFrame:
        """All rows of the table with these columns only; a field of a user type is named `column.field`."""
        if self.staging:
            return self._staged(self.staging).rows(self.session, Scan(table, tuple(columns), self.level))
        reader = self.session.read.format(_FORMAT).options(**read_options(self))
        rows = opened(reader.options(keyspace=name_of(self.keyspace), table=table.name))
        rules = dict(table.computed)
        wanted = rows.select(*(read_cell(rules.get(name), name).alias(name) for name in columns))
        held = paced(wanted, self.rows_per_second, self.throttle)
        if self.throttle is None or runs_here(str(self.session.sparkContext.master)):
            return held
        return passed_on(held, place_of(self.throttle, self._contact, self.keyspace, tasks_at_once(self.session)))

    def _staged(self, area: StagingArea) -> StagedSource:
        contact = self._contact
        workers = tasks_at_once(self.session)
        place = None
        if self.throttle:
            place = place_of(self.throttle, contact, self.keyspace, workers)
        return StagedSource(area, contact, self.keyspace, share(self.rows_per_second, workers), place)

    @property
    def _contact(self) -> Contact:
        return contact_of_executors(self.session, self.contact)

    def size_shuffles(self, largest: Iterable[DataFrame]) -> None:
        """Shuffle in as many parts as the largest table's scan has: Spark's default is 200, for any size."""
        scanned = (rows.rdd.getNumPartitions() for rows in largest)
        parts = max(self.session.sparkContext.defaultParallelism, *scanned)
        self.session.conf.set(SHUFFLE_PARTS, str(parts))


def read_cell(rule: Transform | None, name: str) -> Expression:
    """A column of the server, or a computed one."""
    if rule is None:
        return sf.col(name)
    return rendered(rule, *map(sf.col, rule.sources))


def opened(reader: DataFrameReader, retries: Retries | None = None) -> DataFrame:
    """The table; asks again where the connector does not know it, since it may be new."""
    retries = retries or Retries(SystemClock(), _SCHEMA_PACE)
    found = retries.rounds(lambda: _known(reader), _SCHEMA_LOOKS)
    if found is None:
        return reader.load()
    return found


def _known(reader: DataFrameReader) -> DataFrame | None:
    try:
        return reader.load()
    except (PySparkException, Py4JError) as error:
        if is_unknown(error):
            return None
        raise


def read_options(source: Source) -> dict[str, str]:
    """The connector's options for address, credentials, consistency level and page size."""
    return {
        **contact_options(source.contact),
        **tls_options(source.session, source.contact),
        "spark.cassandra.input.consistency.level": source.level.value,
        **page_options(source.rows_per_second, tasks_at_once(source.session)),
    }


def contact_options(contact: Contact) -> dict[str, str]:
    options = {
        "spark.cassandra.connection.host": ",".join(contact.hosts),
        "spark.cassandra.connection.port": str(contact.port),
    }
    if contact.local_dc:
        options["spark.cassandra.connection.localDC"] = contact.local_dc
    if contact.username:
        options["spark.cassandra.auth.username"] = contact.username
        options["spark.cassandra.auth.password"] = contact.password or ""
    return options


def page_options(rows_per_second: int | None, tasks: int) -> dict[str, str]:
    """The options for pages of at most the rows of one second of a task, as the connector reads one page ahead."""
    if rows_per_second is None:
        return {}
    return {"spark.cassandra.input.fetch.sizeInRows": str(max(1, min(_PAGE_ROWS_MAX, rows_per_second // tasks)))}
