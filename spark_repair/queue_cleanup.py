"""One scan of the tables of all queues by Spark: rows and marks joined by mail; counts, and marks when asked for.

Implements `mailqueue.maintenance.cleanup_scan.QueueScanner`; which partition is over is decided from the counts, by the
same rule for every scanner. What the driver holds is one line for each partition, never one for a mail.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from pyspark import StorageLevel
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cql.driver.contact import Contact
from mailqueue.maintenance.cleanup_scan import MARK_COLUMNS, ROW_COLUMNS, Mark
from model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from model.ids import EnqueueId, QueueName
from model.operations import Level
from model.ports import Progress
from model.queue.cleanup import QueuePartition, RowCounts
from model.queue.slices import EPOCH
from spark_repair.connector import Source
from spark_repair.failures import translated
from spark_repair.interruption import end_session, is_over
from spark_repair.message_inconsistencies import rows_read, watched

_QUEUE, _MAIL, _PLACES, _MARKED = "queuename", "enqueueid", "places", "marked"
_SLICE, _BUCKET = "slice", "bucket"


@dataclass(frozen=True, slots=True)
class SparkQueueScanner:
    """Scans through the Cassandra connector."""

    session: SparkSession
    contact: Contact
    keyspace: str
    level: Level = Level.LOCAL_QUORUM
    rows_per_second: int | None = None

    def scan(self, progress: Progress) -> "SparkQueueScan":
        source = Source(self.session, self.contact, self.keyspace, self.level, self.rows_per_second)
        progress.stage("scan")
        with translated(self.contact, self.keyspace), watched(rows_read(self.session), progress):
            rows = source.scan(ENQUEUED_MAILS, ROW_COLUMNS)
            source.size_shuffles([rows])
            mails = _by_mail(rows, source.scan(DELETED_MAILS, MARK_COLUMNS)).persist(StorageLevel.DISK_ONLY)
            return SparkQueueScan(self, mails, *_counted(mails))

    def interrupt(self) -> None:
        end_session(self.session)


@dataclass(frozen=True, slots=True)
class SparkQueueScan:
    """The mails of one scan, kept by the executors."""

    scanner: SparkQueueScanner
    mails: DataFrame
    partitions: Mapping[QueuePartition, RowCounts]
    marks: Mapping[QueueName, int]
    orphan_marks: Mapping[QueueName, int]

    def marks_without(self, standing: Collection[QueuePartition]) -> Iterator[Mark]:
        places = sf.array(*(_place(sf.lit(_millis(one)), sf.lit(one.bucket)) for one in standing))
        needed = sf.arrays_overlap(_PLACES, places) if standing else sf.lit(False)  # noqa: FBT003 - a literal of SQL
        with translated(self.scanner.contact, self.scanner.keyspace):
            for queue, one in self.mails.where(sf.col(_MARKED) & ~needed).select(_QUEUE, _MAIL).toLocalIterator():
                yield QueueName(queue), EnqueueId(UUID(one))

    def close(self) -> None:
        if not is_over(self.scanner.session):
            self.mails.unpersist()


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
    partitions = {
        QueuePartition(QueueName(queue), EPOCH + timedelta(milliseconds=place[_SLICE]), place[_BUCKET]): RowCounts(
            *counts
        )
        for queue, place, *counts in by_partition
    }
    marks = {QueueName(queue): found for queue, found, _ in by_queue}
    return partitions, marks, {QueueName(queue): orphans for queue, _, orphans in by_queue}


def _millis(partition: QueuePartition) -> int:
    return (partition.slice_start - EPOCH) // timedelta(milliseconds=1)
