"""One scan of the tables of all queues: rows and marks joined by mail, on disk, in bounded memory.

Marks are read before rows: what is finished meanwhile looks as if it waited, and is left alone. Spark's scan is
`spark_repair.queue_cleanup`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Protocol
from uuid import UUID

from model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from model.ids import EnqueueId, QueueName
from model.operations import Level, Scan
from model.ports import Progress, Tables
from model.queue.cleanup import QueuePartition, RowCounts
from model.queue.slices import EPOCH
from model.schema.table import Row
from repair.joins.records import PART_BYTES_MAX, Record, Spill, Workshop

ROW_COLUMNS = ("queuename", "timerangestart", "bucketid", "enqueueid")
MARK_COLUMNS = ("queuename", "enqueueid")
_MILLISECOND = timedelta(milliseconds=1)
_REPORTED_ROWS = 1_000

Mark = tuple[QueueName, EnqueueId]


class QueueScan(Protocol):
    """What one scan found, kept by its scanner until closed.

    Attributes:
        partitions: every partition that has rows.
        marks, orphan_marks: how many there are of each queue; orphans have no row in any partition.
    """

    @property
    def partitions(self) -> Mapping[QueuePartition, RowCounts]: ...

    @property
    def marks(self) -> Mapping[QueueName, int]: ...

    @property
    def orphan_marks(self) -> Mapping[QueueName, int]: ...

    def marks_without(self, standing: Collection[QueuePartition]) -> Iterator[Mark]:
        """The marks of mails that have no row in the partitions that stand."""
        ...

    def close(self) -> None: ...


class QueueScanner(Protocol):
    """Adapters: `LocalQueueScanner`, `spark_repair.queue_cleanup.SparkQueueScanner`."""

    def scan(self, progress: Progress) -> QueueScan:
        """Read both tables once; blocks."""
        ...

    def interrupt(self) -> None:
        """End a scan that runs in another thread: it raises some error there."""
        ...


@dataclass(frozen=True, slots=True)
class LocalQueueScanner:
    """Scans with this process alone. Implements `QueueScanner`."""

    tables: Tables
    level: Level = Level.LOCAL_QUORUM
    part_bytes_max: int = PART_BYTES_MAX
    _interrupted: Event = field(default_factory=Event)

    def scan(self, progress: Progress) -> "LocalQueueScan":
        found = LocalQueueScan(part_bytes_max=self.part_bytes_max)
        try:
            pairs = found.spill("pairs")
            for row in self._rows(Scan(DELETED_MAILS, MARK_COLUMNS, self.level), progress):
                pairs.add(((row["queuename"], row["enqueueid"].bytes),))
            for row in self._rows(Scan(ENQUEUED_MAILS, ROW_COLUMNS, self.level), progress):
                place = (row["timerangestart"] - EPOCH) // _MILLISECOND, row["bucketid"]
                pairs.add(((row["queuename"], row["enqueueid"].bytes), place))
            progress.stage("compare")
            for part in pairs.parts():
                found.take(part)
        except BaseException:
            found.close()
            raise
        return found

    def _rows(self, scan: Scan, progress: Progress) -> Iterator[Row]:
        progress.stage(f"read {scan.table.spelling}")
        for number, row in enumerate(self.tables.scan(scan), start=1):
            yield row
            if number % _REPORTED_ROWS == 0:
                if self._interrupted.is_set():
                    raise InterruptedError
                progress.advance(_REPORTED_ROWS)

    def interrupt(self) -> None:
        self._interrupted.set()


@dataclass(slots=True)
class LocalQueueScan:
    """Counts in memory, marks on disk."""

    part_bytes_max: int = PART_BYTES_MAX
    partitions: dict[QueuePartition, RowCounts] = field(default_factory=dict)
    marks: Counter[QueueName] = field(default_factory=Counter)
    orphan_marks: Counter[QueueName] = field(default_factory=Counter)
    _workshop: Workshop = field(default_factory=Workshop)
    _marked: Spill = field(init=False)

    def __post_init__(self) -> None:
        self._marked = self.spill("marks")

    def spill(self, name: str) -> Spill:
        return Spill(self._workshop, name, part_bytes_max=self.part_bytes_max)

    def take(self, part: list[Record]) -> None:
        """Count the records of one part, and keep its marks, each with the places of its mail."""
        places: defaultdict[tuple[str, bytes], list[tuple[int, int]]] = defaultdict(list)
        for key, *place in part:
            places[key].extend(place)
        marked = {key for key, *place in part if not place}
        for (queue, one), found in places.items():
            is_marked = (queue, one) in marked
            for partition in {_partition(queue, place) for place in found}:
                rows, before = self.partitions.get(partition, RowCounts(0, 0))
                self.partitions[partition] = RowCounts(rows + 1, before + is_marked)
            if is_marked:
                self.marks[QueueName(queue)] += 1
                self.orphan_marks[QueueName(queue)] += not found
                self._marked.add(((queue, one), tuple(found)))

    def marks_without(self, standing: Collection[QueuePartition]) -> Iterator[Mark]:
        """Once: each part is gone after it was read."""
        for part in self._marked.parts():
            for (queue, one), places in part:
                if not any(_partition(queue, place) in standing for place in places):
                    yield QueueName(queue), EnqueueId(UUID(bytes=one))

    def close(self) -> None:
        self._workshop.close()


def _partition(queue: str, place: tuple[int, int]) -> QueuePartition:
    millis, bucket = place
    return QueuePartition(QueueName(queue), EPOCH + millis * _MILLISECOND, bucket)
