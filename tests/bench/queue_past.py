"""What so many mails leave behind in a queue when all of them are done with: rows, marks and tallies, written quickly.

Generated, because to put a million mails through a queue takes an hour and leaves the same. Rows of one slice go in
batches, which the queue itself never sends: a batch is only as good as its least reachable partition.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Any
from uuid import UUID

from cassandra.query import BatchStatement, BatchType

from mailmend.cql.driver.session import Keyspace
from mailmend.mailqueue.codec import row_of
from mailmend.mailqueue.rules.mails import Mail, MailBlobs, QueuedMail
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import (
    BROWSE_START,
    CONTENT_START,
    DELETED_MAILS,
    ENQUEUED_MAILS,
    QUEUE_TABLES,
    SLICE_TALLIES,
)
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Write
from mailmend.model.table import Table

WINDOW = timedelta(hours=1)
PER_SLICE = 10_000
"""What a slice should hold, as ADR-31 says."""

BATCH = 50
"""So many writes in one request: 15 kB of rows."""

IN_FLIGHT = 16

MAIL = Mail("bench", ("to@example.test",), "from@example.test")

_MEASURED = frozenset({ENQUEUED_MAILS.name, DELETED_MAILS.name})


def _uncompacted(table: Table) -> Table:
    """Its SSTables stay as they were flushed: what one lane has left is no work for the next, nor hidden from sight."""
    if table.compaction is None:
        return table
    compaction = replace(table.compaction, options={**table.compaction.options, "enabled": "false"})
    return replace(table, compaction=compaction)


SCHEMA = Schema((), (*map(_uncompacted, QUEUE_TABLES), EVENT_STORE))


@dataclass(frozen=True, slots=True)
class Past:
    """What so many mails have left in full slices; `until` is where the last one ends, well before now."""

    queue: QueueName
    mails: int
    until: datetime

    @property
    def slices(self) -> list[datetime]:
        """The last one ends a few windows before now, so that the grace period does not matter."""
        count = -(-self.mails // PER_SLICE)
        return [self.until - WINDOW * (count + 2 - number) for number in range(count)]

    def starts(self) -> Iterator[Put]:
        """Where listings and sweeps begin."""
        first = self.slices[0]
        yield Put(BROWSE_START, {"queuename": self.queue, "browsestart": first})
        yield Put(CONTENT_START, {"queuename": self.queue, "contentstart": first})

    def rows(self) -> Iterator[Put]:
        """One of each mail, slice by slice."""
        for start, enqueue_id in self._ids():
            blobs = MailBlobs(BlobId(f"1_692_{enqueue_id}"), BlobId(f"2_692_{enqueue_id}"))
            yield Put(ENQUEUED_MAILS, row_of(self.queue, start, 0, start, QueuedMail(enqueue_id, MAIL, blobs)))

    def marks(self) -> Iterator[Put]:
        """One of each mail."""
        for _, enqueue_id in self._ids():
            yield Put(DELETED_MAILS, {"queuename": self.queue, "enqueueid": enqueue_id})

    def tallies(self, *, marked: bool) -> Iterator[Put]:
        """One of each slice, of one process that has told all that it did."""
        left = self.mails
        for start in self.slices:
            held, left = min(left, PER_SLICE), left - PER_SLICE
            row = {"queuename": self.queue, "timerangestart": start, "writer": UUID(int=1), "enqueued": held}
            yield Put(SLICE_TALLIES, {**row, "marked": held * marked, "settled": True, "isforeign": False})

    def _ids(self) -> Iterator[tuple[datetime, EnqueueId]]:
        """The same ones each time."""
        drawn, first = Random(self.queue), self.slices[0]
        for number in range(self.mails):
            yield first + WINDOW * (number // PER_SLICE), EnqueueId(UUID(int=drawn.getrandbits(128), version=4))


def write(keyspace: Keyspace, writes: Iterator[Put]) -> None:
    """All of them, in batches; one that fails would make the rest meaningless."""
    flying: list[Any] = []
    bound = _binder(keyspace)
    while some := list(islice(writes, BATCH)):
        batch = BatchStatement(BatchType.UNLOGGED)
        for one in some:
            batch.add(bound(one))
        flying.append(keyspace.cluster.session.execute_async(batch))
        if len(flying) == IN_FLIGHT:
            flying.pop(0).result()
    for future in flying:
        future.result()


def flushed_mebibytes(keyspace: Keyspace) -> int:
    """What rows and marks of mails take on disk: a memtable that may grow a millisecond old at most is flushed."""
    for milliseconds in (1, 0):
        for table in _MEASURED:
            option = f"memtable_flush_period_in_ms = {milliseconds}"
            keyspace.cluster.execute_ddl(f"ALTER TABLE {keyspace.name}.{table} WITH {option}")
    rows = keyspace.cluster.query("SELECT keyspace_name, table_name, mebibytes FROM system_views.disk_usage")
    return sum(
        int(row["mebibytes"])
        for row in rows
        if row["keyspace_name"] == keyspace.name and row["table_name"] in _MEASURED
    )


def _binder(keyspace: Keyspace) -> Callable[[Write], Any]:
    def bound(write: Write) -> Any:
        return keyspace._bound(keyspace._shape(write), write)

    return bound
