"""One scan of the tables of all queues: rows and marks joined by mail, on disk, in bounded memory.

Marks are read before rows: what is finished meanwhile looks as if it waited, and is left alone. Spark's scan is
`spark_repair.queue_cleanup`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from threading import Event
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from mailmend.mailqueue.rules.cleanup import QueuePartition, RowCounts
from mailmend.mailqueue.rules.slices import millis_of
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.operations import Level, Read, Remove, Scan
from mailmend.model.ports import Clock, Progress, Tables
from mailmend.model.table import Row
from mailmend.repair.joins.records import PART_BYTES_MAX, Record, Spill, Workshop, few_collections
from mailmend.repair.retries import Retries

ROW_COLUMNS = ("queuename", "timerangestart", "bucketid", "enqueueid")
MARK_COLUMNS = ("queuename", "enqueueid")
_REPORTED_ROWS = 1_000
MARKS_TOGETHER: Final = 400
"""How many marks are removed at once: in forty requests of ten partitions each."""


class Mark(NamedTuple):
    """A row of deletedMailsV2, by its key."""

    queue: QueueName
    mail: EnqueueId


@dataclass(frozen=True, slots=True)
class MarksWanted:
    """Which marks are to go: the marks of these queues whose mails have no row in the partitions that are kept.

    Attributes:
        as_of: in microseconds; marks that were written later stay.
        planned: reads the only ones that may go; None: any.
    """

    queues: frozenset[QueueName]
    standing: frozenset[QueuePartition]
    as_of: int
    planned: Callable[[], Iterator[Mark]] | None = None


@dataclass(slots=True)
class MarksGone:
    """How many marks of a queue were removed (or would be), why others could not be, and how many stay."""

    marks: int = 0
    failed: int = 0
    error: str | None = None
    left: int = 0

    def add(self, other: "MarksGone") -> None:
        self.marks += other.marks
        self.failed += other.failed
        self.left += other.left
        self.error = self.error or other.error


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

    def marks_without_rows(self, wanted: MarksWanted) -> Mapping[QueueName, int]:
        """How many marks would go; blocks. Call one of this, `going` and `remove_marks`, and call it once."""
        ...

    def going(self, wanted: MarksWanted) -> Iterator[Mark]:
        """The marks that would go, one by one; blocks."""
        ...

    def remove_marks(self, wanted: MarksWanted, progress: Progress) -> Mapping[QueueName, MarksGone]:
        """Remove the marks that are to go, and tell for each queue what became of them; blocks."""
        ...

    def close(self) -> None: ...


class QueueScanner(Protocol):
    """Reads the rows and marks of all queues.

    Adapters: `LocalQueueScanner`, `spark_repair.queue_cleanup.SparkQueueScanner`.
    """

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
    clock: Clock
    level: Level = Level.LOCAL_QUORUM
    part_bytes_max: int = PART_BYTES_MAX
    interrupted: Event = field(default_factory=Event)

    @few_collections()
    def scan(self, progress: Progress) -> "LocalQueueScan":
        found = LocalQueueScan(self)
        try:
            pairs = found.spill("pairs")
            for row in self._rows(Scan(DELETED_MAILS, MARK_COLUMNS, self.level), progress):
                pairs.add(((row["queuename"], row["enqueueid"].bytes),))
            for row in self._rows(Scan(ENQUEUED_MAILS, ROW_COLUMNS, self.level), progress):
                place = millis_of(row["timerangestart"]), row["bucketid"]
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
                if self.interrupted.is_set():
                    raise InterruptedError
                progress.advance(_REPORTED_ROWS)

    def interrupt(self) -> None:
        self.interrupted.set()


@dataclass(slots=True)
class LocalQueueScan:
    """Counts in memory, marks on disk."""

    scanner: LocalQueueScanner
    partitions: dict[QueuePartition, RowCounts] = field(default_factory=dict)
    marks: Counter[QueueName] = field(default_factory=Counter)
    orphan_marks: Counter[QueueName] = field(default_factory=Counter)
    _workshop: Workshop = field(default_factory=Workshop)
    _marked: Spill = field(init=False)

    def __post_init__(self) -> None:
        self._marked = self.spill("marks")

    def spill(self, name: str) -> Spill:
        return Spill(self._workshop, name, part_bytes_max=self.scanner.part_bytes_max)

    def take(self, part: list[Record]) -> None:
        """Count the records of one part, and keep its marks, each with the places of its mail."""
        places: defaultdict[tuple[str, bytes], list[tuple[int, int]]] = defaultdict(list)
        for key, *place in part:
            places[key].extend(place)
        marked = {key for key, *place in part if not place}
        for (queue, enqueue_id), found in places.items():
            is_marked = (queue, enqueue_id) in marked
            for partition in {QueuePartition.at_millis(queue, *place) for place in found}:
                rows, before = self.partitions.get(partition, RowCounts(0, 0))
                self.partitions[partition] = RowCounts(rows + 1, before + is_marked)
            if is_marked:
                self.marks[QueueName(queue)] += 1
                self.orphan_marks[QueueName(queue)] += not found
                self._marked.add(((queue, enqueue_id), tuple(found)))

    def marks_without_rows(self, wanted: MarksWanted) -> Mapping[QueueName, int]:
        return Counter(queue for queue, _ in self.going(wanted))

    def remove_marks(self, wanted: MarksWanted, progress: Progress) -> Mapping[QueueName, MarksGone]:
        gone: defaultdict[QueueName, MarksGone] = defaultdict(MarksGone)
        for some in batches(self.going(wanted, gone)):
            if self.scanner.interrupted.is_set():
                raise InterruptedError
            for queue, marks_gone in removed(some, wanted.as_of, self.scanner.tables, self.scanner.clock).items():
                gone[queue].add(marks_gone)
            progress.advance(len(some))
        return gone

    def going(self, wanted: MarksWanted, gone: Mapping[QueueName, MarksGone] | None = None) -> Iterator[Mark]:
        """The marks that go. May be read once, since each part is deleted from the disk after it was read.

        `gone` counts, as left, those that a plan names and that have rows again.
        """
        if wanted.planned:
            for queue, mail in wanted.planned():
                self._marked.add(((queue, mail.bytes), None))
        for part in self._marked.parts():
            planned = {key for key, places in part if places is None}
            for key, places in part:
                if places is None or (wanted.planned and key not in planned):
                    continue
                name, uuid_bytes = key
                queue = QueueName(name)
                if goes(wanted, queue, places):
                    yield Mark(queue, EnqueueId(UUID(bytes=uuid_bytes)))
                elif gone is not None and wanted.planned and queue in wanted.queues:
                    gone[queue].left += 1

    def close(self) -> None:
        self._workshop.close()


def goes(wanted: MarksWanted, queue: str, places: Iterable[tuple[int, int]]) -> bool:
    """Whether the mark of a mail may go; `places`: of its rows, slice start in milliseconds and bucket."""
    standing = wanted.standing
    return queue in wanted.queues and not any(QueuePartition.at_millis(queue, *place) in standing for place in places)


def batches(marks: Iterator[Mark]) -> Iterator[list[Mark]]:
    while some := list(islice(marks, MARKS_TOGETHER)):
        yield some


def removed(marks: list[Mark], as_of: int, tables: Tables, clock: Clock) -> dict[QueueName, MarksGone]:
    """Remove marks by their own keys, in groups by replica, and read them back: those that were written later stay.

    What fails is tried again, and reported.
    """
    gone: defaultdict[QueueName, MarksGone] = defaultdict(MarksGone)
    errors = Retries(clock).write_all(tables, [Remove(DELETED_MAILS, mark, as_of, joinable=True) for mark in marks])
    left = tables.read_all([Read(DELETED_MAILS, mark, joinable=True) for mark in marks])
    for (queue, _), error, found in zip(marks, errors, left, strict=True):
        if error:
            fate = MarksGone(failed=1, error=str(error))
        elif isinstance(found, MailmendError):
            fate = MarksGone(failed=1, error=str(found))
        elif found:
            fate = MarksGone(left=1)
        else:
            fate = MarksGone(marks=1)
        gone[queue].add(fate)
    return gone
