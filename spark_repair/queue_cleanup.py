"""One scan of the tables of all queues by Spark: rows and marks joined by mail; counts, and marks when asked for.

Implements `mailqueue.cleanup.scan.QueueScanner`; which partition is over is decided from the counts, by the
same rule for every scanner. What the driver holds is one line for each partition, never one for a mail. Marks are
removed by the executors, each over its own session.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from mailmend.cql.driver.contact import Contact
from mailmend.mailqueue.cleanup.scan import (
    MARK_COLUMNS,
    ROW_COLUMNS,
    Mark,
    MarksGone,
    MarksWanted,
    batches,
    goes,
    removed,
)
from mailmend.mailqueue.rules.cleanup import QueuePartition, RowCounts
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.ports import Progress
from mailmend.repair.clock import SystemClock
from mailmend.repair.log_fields import with_command_log
from mailmend.repair.mending.limits import Pace, share
from mailmend.spark_repair.executors import tasks_at_once
from mailmend.spark_repair.failures import translated
from mailmend.spark_repair.jvm import end_session, release
from mailmend.spark_repair.pace import open_here, throttled
from mailmend.spark_repair.progress import rows_read, watched
from mailmend.spark_repair.source import Source
from mailmend.spark_repair.tls import contact_of_executors

_QUEUE = "queuename"
_MAIL = "enqueueid"
_PLACES = "places"
_MARKED = "marked"
_SLICE = "slice"
_BUCKET = "bucket"
_GONE = "queue string, gone long, failed long, error string"
_GONE_SCHEMA = pa.schema([("queue", pa.string()), ("gone", pa.int64()), ("failed", pa.int64()), ("error", pa.string())])


@dataclass(frozen=True, slots=True)
class SparkQueueScanner:
    """Scans through the Cassandra connector."""

    source: Source

    def scan(self, progress: Progress) -> "SparkQueueScan":
        source = self.source
        progress.stage("scan")
        looking = throttled(source.session, source.throttle)
        with translated(source.contact, source.keyspace), watched(rows_read(source.session), progress), looking:
            rows = source.scan(ENQUEUED_MAILS, ROW_COLUMNS)
            source.size_shuffles([rows])
            mails = _by_mail(rows, source.scan(DELETED_MAILS, MARK_COLUMNS)).persist(StorageLevel.DISK_ONLY)
            return SparkQueueScan(source, mails, *_counted(mails))

    def interrupt(self) -> None:
        end_session(self.source.session)


@dataclass(frozen=True, slots=True)
class SparkQueueScan:
    """The mails of one scan, kept by the executors."""

    source: Source
    mails: DataFrame
    partitions: Mapping[QueuePartition, RowCounts]
    marks: Mapping[QueueName, int]
    orphan_marks: Mapping[QueueName, int]

    def marks_without_rows(self, wanted: MarksWanted) -> Mapping[QueueName, int]:
        return {queue: gone.marks for queue, gone in self._visited(wanted, None).items()}

    def going(self, wanted: MarksWanted) -> Iterator[Mark]:
        def visit(some: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for marks in batches(_going(some, wanted)):
                yield pa.RecordBatch.from_pylist([{_QUEUE: queue, _MAIL: str(mail)} for queue, mail in marks])

        with translated(self.source.contact, self.source.keyspace):
            marks = self._marks.mapInArrow(with_command_log(visit), f"{_QUEUE} string, {_MAIL} string")
            for queue, mail in marks.toLocalIterator():
                yield Mark(QueueName(queue), EnqueueId(UUID(mail)))

    def remove_marks(self, wanted: MarksWanted, progress: Progress) -> Mapping[QueueName, MarksGone]:
        source = self.source
        pace = share(source.rows_per_second, tasks_at_once(source.session))
        contact = contact_of_executors(source.session, source.contact)
        gone = self._visited(wanted, _Remover(contact, source.keyspace, wanted.as_of, pace))
        progress.advance(sum(marks_gone.marks + marks_gone.failed for marks_gone in gone.values()))
        return gone

    def _visited(self, wanted: MarksWanted, remover: "_Remover | None") -> Mapping[QueueName, MarksGone]:
        def visit(some: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield _visited(some, wanted, remover)

        gone: defaultdict[QueueName, MarksGone] = defaultdict(MarksGone)
        with translated(self.source.contact, self.source.keyspace):
            for queue, number, failed, error in self._marks.mapInArrow(with_command_log(visit), _GONE).collect():
                gone[QueueName(queue)].add(MarksGone(number, failed, error))
        return gone

    @property
    def _marks(self) -> DataFrame:
        return self.mails.where(sf.col(_MARKED)).select(_QUEUE, _MAIL, _PLACES)

    def close(self) -> None:
        release(self.source.session, self.mails)


@dataclass(frozen=True, slots=True)
class _Remover:
    """Removes marks where it is called; plain data until then."""

    contact: Contact
    keyspace: str
    as_of: int
    rows_per_second: float | None

    def remove(self, marks: Iterator[Mark]) -> Iterator[dict[QueueName, MarksGone]]:
        clock = SystemClock()
        tables = Pace(self.rows_per_second, clock).over(open_here(self.contact).keyspace(self.keyspace))
        for some in batches(marks):
            yield removed(some, self.as_of, tables, clock)


def _visited(some: Iterable[pa.RecordBatch], wanted: MarksWanted, remover: _Remover | None) -> pa.RecordBatch:
    """How many marks of each queue go, of one task; with a remover they are gone then."""
    marks = _going(some, wanted)
    gone: defaultdict[QueueName, MarksGone] = defaultdict(MarksGone)
    if remover is None:
        for queue, _ in marks:
            gone[queue].marks += 1
    else:
        for part in remover.remove(marks):
            for queue, marks_gone in part.items():
                gone[queue].add(marks_gone)
    rows = []
    for queue, sums in gone.items():
        row = {"queue": queue, "gone": sums.marks, "failed": sums.failed, "error": sums.error}
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=_GONE_SCHEMA)


def _going(some: Iterable[pa.RecordBatch], wanted: MarksWanted) -> Iterator[Mark]:
    assert wanted.planned is None, "one process applies a plan"
    for batch in some:
        for row in batch.to_pylist():
            places = ((place[_SLICE], place[_BUCKET]) for place in row[_PLACES])
            if goes(wanted, row[_QUEUE], places):
                yield Mark(QueueName(row[_QUEUE]), EnqueueId(UUID(row[_MAIL])))


def _by_mail(rows: DataFrame, marks: DataFrame) -> DataFrame:
    """One row for each mail: the partitions that it has rows in, and whether it is marked."""
    place = _place(sf.unix_millis("timerangestart"), sf.col("bucketid"))
    nowhere = sf.lit(None).cast(f"struct<{_SLICE}:bigint,{_BUCKET}:int>")
    placed = rows.select(_QUEUE, _MAIL, place.alias(_PLACES), sf.lit(0).alias(_MARKED))
    marked = marks.select(_QUEUE, _MAIL, nowhere.alias(_PLACES), sf.lit(1).alias(_MARKED))
    together = placed.unionByName(marked).groupBy(_QUEUE, _MAIL)
    return together.agg(sf.collect_set(_PLACES).alias(_PLACES), (sf.max(_MARKED) == 1).alias(_MARKED))


def _place(slice_millis: Expression, bucket: Expression) -> Expression:
    return sf.struct(slice_millis.cast("bigint").alias(_SLICE), bucket.cast("int").alias(_BUCKET))


def _counted(
    mails: DataFrame,
) -> tuple[dict[QueuePartition, RowCounts], dict[QueueName, int], dict[QueueName, int]]:
    one = sf.col(_MARKED).cast("int")
    placed = mails.select(_QUEUE, sf.explode(_PLACES).alias("place"), one.alias(_MARKED))
    by_partition = placed.groupBy(_QUEUE, "place").agg(sf.count("*"), sf.sum(_MARKED)).collect()
    orphan = sf.when(sf.size(_PLACES) == 0, one).otherwise(0)
    by_queue = mails.groupBy(_QUEUE).agg(sf.sum(one), sf.sum(orphan)).collect()
    partitions = {}
    for queue, place, *counts in by_partition:
        partition = QueuePartition.at_millis(queue, place[_SLICE], place[_BUCKET])
        partitions[partition] = RowCounts(*counts)
    marks = {}
    orphan_marks = {}
    for queue, found, orphans in by_queue:
        marks[QueueName(queue)] = found
        orphan_marks[QueueName(queue)] = orphans
    return partitions, marks, orphan_marks
