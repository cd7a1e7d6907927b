"""A staged scan in Spark: each task reads some token segments through the driver, or what stands of them.

The connector cuts a table into ranges of its own, anew each time, and takes none from us (docs/adr/0035); staged rows
pass through Python, by the same code as without Spark. A lost executor or session loses the segments being read.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cql.driver.contact import Contact
from model.operations import Scan
from repair.clock import SystemClock
from repair.mending.limits import Pace
from repair.staging.area import StagingArea, columns_of
from repair.staging.parquet import schema_of
from spark_repair.executor_pace import ThrottledPlace, open_here
from spark_repair.executors import tasks_at_once

_SEGMENTS_PER_TASK_MAX: Final = 32
_TASKS_EACH: Final = 4
"""For each that runs at once: so none waits long for the last."""

_LIST_EVERY: Final = 10
"""The store is listed each time that progress is shown so often: a bucket is slow, and not for nothing."""


@dataclass(frozen=True, slots=True)
class StagedSource:
    """All that a task needs to read a segment; plain data.

    Attributes:
        rows_per_second: of one task.
        throttled: where that may change while tasks read.
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
    """How many segments stand that did not when the area was opened."""
    asked = found = 0

    def measure() -> int:
        nonlocal asked, found
        if asked % _LIST_EVERY == 0:
            found = area.standing() - area.kept
        asked += 1
        return found

    return measure
