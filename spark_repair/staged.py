"""A staged scan in Spark: each task reads token segments through the Cassandra driver, or from the staging area.

The connector cuts a table into ranges of its own, anew each time, and takes none from us (docs/adr/0035); staged rows
pass through Python, by the same code as without Spark. A lost executor or session loses the segments being read.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from mailmend.cql.driver.contact import Contact
from mailmend.model.operations import Scan
from mailmend.repair.clock import SystemClock
from mailmend.repair.mending.limits import Pace
from mailmend.repair.staging.area import StagingArea, columns_of
from mailmend.repair.staging.parquet import schema_of
from mailmend.spark_repair.executor_pace import ThrottledPlace, open_here
from mailmend.spark_repair.executors import tasks_at_once

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
        pace = self.throttled.pace(clock) if self.throttled else Pace(self.rows_per_second, clock)
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
