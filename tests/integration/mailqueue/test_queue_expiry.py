"""What the queue's tables give back of the disk, on a real Cassandra: with our options all, with James's nothing.

A time window is told by the stamps of writes, so rows of four windows are written with stamps of four minutes, flushed
one after the other, and nobody waits for a minute to pass; lives are seconds. All else is the catalog's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.nodes import sstables_of, traced
from mailmend.cql.driver.session import CassandraCluster, Keyspace, connect
from mailmend.cql.render import in_every_data_centre, keyspace_cql, table_cql
from mailmend.model.catalog.mail_queue import DELETED_MAILS, DUE_MAILS, ENQUEUED_MAILS, window_compaction
from mailmend.model.ids import EnqueueId
from mailmend.model.operations import Put, Read, Remove, Write
from mailmend.model.table import Compaction, Row, Table
from mailmend.repair.clock import SystemClock
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]

QUEUE = "spool"
SLICES, MAILS, OCTETS = 4, 256, 8_192
SLICE_MIB = MAILS * OCTETS // 2**20
DONE, FORGOTTEN, LIVE = (0, 1), 2, 3
"""Slices that are swept; one whose mails are marked and never swept; one whose mails wait."""

ROW_SECONDS, MARK_SECONDS, LONG_SECONDS = 20, 30, 3_600
DEADLINE_SECONDS = 60
LOOK_SECONDS = 0.2
LOOKED_UP = 5
MINUTE = timedelta(minutes=1)


def windowed(table: Table, seconds: int) -> Table:
    """The table in windows of a minute, its rows living so long; 0: for ever, as James has it.

    Tombstones need not wait for hints here, and expiry is looked for each second instead of every ten minutes.
    """
    windows = window_compaction(60)
    often = Compaction(windows.strategy, {**windows.options, "expired_sstable_check_frequency_seconds": "1"})
    lives = {"default_time_to_live": str(seconds), "gc_grace_seconds": "0"}
    return replace(table, compaction=often, options={**table.options, **lives})


OURS = (windowed(ENQUEUED_MAILS, ROW_SECONDS), windowed(DELETED_MAILS, MARK_SECONDS), DUE_MAILS)
JAMES = (windowed(ENQUEUED_MAILS, 0), windowed(DELETED_MAILS, 0), windowed(DUE_MAILS, 0))
"""The same without a time to live; and delayed mails in windows of time, which is what was decided against."""


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail: of which slice, under which id."""

    slice_number: int
    enqueue_id: UUID


@dataclass(frozen=True, slots=True)
class Place:
    """One keyspace with the queue's tables."""

    cluster: CassandraCluster
    name: str
    tables: tuple[Table, ...]
    start: datetime

    @property
    def rows(self) -> Keyspace:
        return self.cluster.keyspace(self.name)

    def slice_start(self, number: int) -> datetime:
        return self.start + 2 * number * MINUTE

    def write(self, writes: Iterable[Write]) -> None:
        assert not any(self.rows.write_all(list(writes)))

    def flush(self, *tables: Table) -> None:
        for milliseconds in (1, 0):
            for table in tables or self.tables:
                option = f"memtable_flush_period_in_ms = {milliseconds}"
                self.cluster.execute_ddl(f"ALTER TABLE {self.name}.{table.name} WITH {option}")

    def mebibytes(self, table: Table) -> int:
        rows = self.cluster.query("SELECT keyspace_name, table_name, mebibytes FROM system_views.disk_usage")
        held = {(row["keyspace_name"], row["table_name"]): int(row["mebibytes"]) for row in rows}
        return held[self.name, table.name]

    def on_disk(self, mails: Sequence[Mail]) -> bool:
        """Whether an SSTable still holds the marks of these mails, which lie in one: told by traces of look-ups.

        A bloom filter may be wrong about one mail, not about each of them.
        """
        text = f"SELECT enqueueid FROM {self.name}.{DELETED_MAILS.name} WHERE queuename = ? AND enqueueid = ?"
        return all(self._sstables(text, (QUEUE, mail.enqueue_id)) for mail in mails[:LOOKED_UP])

    def _sstables(self, text: str, values: Sequence[Any]) -> int:
        """The SSTables that a read took rows from; the node writes that down a moment later."""
        trace = traced(self.cluster, text, values)
        reported = (sstables_of(self.cluster, trace) for _ in range(2_000))
        return next(found for found in reported if found is not None)

    def partition(self, number: int) -> tuple[str, datetime, int]:
        return QUEUE, self.slice_start(number), 0

    @property
    def next_slice(self) -> Row:
        return {"timerangestart": self.slice_start(SLICES), "bucketid": 0}

    def ids_in(self, number: int) -> frozenset[UUID]:
        seen = self.rows.read(Read(ENQUEUED_MAILS, self.partition(number)))
        return frozenset(one.row["enqueueid"] for one in seen)

    def marked(self, mails: Sequence[Mail]) -> frozenset[UUID]:
        reads = [Read(DELETED_MAILS, (QUEUE, mail.enqueue_id)) for mail in mails]
        answers = self.rows.read_all(reads)
        return frozenset(mail.enqueue_id for mail, seen in zip(mails, answers, strict=True) if seen)


def row_of(place: Place, mail: Mail, content: bytes) -> Row:
    at = place.slice_start(mail.slice_number)
    queue, start, bucket = place.partition(mail.slice_number)
    return {
        "queuename": queue,
        "timerangestart": start,
        "bucketid": bucket,
        "enqueueid": EnqueueId(mail.enqueue_id),
        "enqueuedtime": at,
        "attributes": {"content": content},
    }


def due_row_of(row: Row) -> Row:
    rest = {name: value for name, value in row.items() if name != "timerangestart"}
    return rest | {"dueslice": row["timerangestart"], "dueat": row["timerangestart"], "attempts": 1}


def stamp(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)


@contextmanager
def place_of(cluster: CassandraCluster, tables: tuple[Table, ...], start: datetime) -> Iterator[Place]:
    name = f"t_expiry_{uuid4().hex[:8]}"
    cluster.execute_ddl(keyspace_cql(name, in_every_data_centre(1)))
    try:
        for table in tables:
            cluster.execute_ddl(table_cql(name, table))
        yield Place(cluster, name, tables, start)
    finally:
        cluster.execute_ddl(f"DROP KEYSPACE IF EXISTS {name}")


def until(holds: Callable[[], bool], what: str, between: Callable[[], Any] = lambda: None) -> None:
    clock = SystemClock()
    deadline = clock.micros() + DEADLINE_SECONDS * 1_000_000
    while not holds():
        assert clock.micros() < deadline, what
        between()
        clock.sleep(LOOK_SECONDS)


@pytest.fixture(scope="module")
def places(cassandra: CassandraServer) -> Iterator[tuple[Place, Place]]:
    start = datetime.now(UTC).replace(microsecond=0) - (2 * SLICES + 1) * MINUTE
    with (
        connect(Contact((cassandra.host,), cassandra.port)) as cluster,
        place_of(cluster, OURS, start) as ours,
        place_of(cluster, JAMES, start) as james,
    ):
        yield ours, james


def fill(places: tuple[Place, ...], mails: Sequence[Mail], contents: Sequence[bytes]) -> None:
    """Slice after slice: rows, marks of all but the last, and as many delayed mails; each flushed by itself."""
    for number in range(SLICES):
        for place in places:
            at = stamp(place.slice_start(number))
            both = [(one, row_of(place, one, octets)) for one, octets in zip(mails, contents, strict=True)]
            rows = [(one, row) for one, row in both if one.slice_number == number]
            marked = [one for one, _ in rows if number != LIVE]
            place.write(
                [
                    *(Put(ENQUEUED_MAILS, row, at=at) for _, row in rows),
                    *(Put(DELETED_MAILS, {"queuename": QUEUE, "enqueueid": one.enqueue_id}, at=at) for one in marked),
                    *(Put(DUE_MAILS, due_row_of(row), at=at, ttl_seconds=LONG_SECONDS) for _, row in rows),
                ]
            )
            place.flush()


def swept(place: Place) -> None:
    """The slices that are done with go by partition; of the delayed mails all but the last slice's have moved away."""
    rows = [Remove(ENQUEUED_MAILS, place.partition(number)) for number in DONE]
    due = [Remove(DUE_MAILS, place.partition(number)) for number in range(SLICES) if number != LIVE]
    place.write([*rows, *due])
    place.flush(ENQUEUED_MAILS, DUE_MAILS)


def test_what_expires_drops_whole_and_the_disk_returns_to_what_lives(places: tuple[Place, Place]) -> None:
    """Rows, then marks; the same writes with James's options keep all of it. Delayed mails go without windows."""
    ours, james = places
    chance = Random(7)
    mails = [
        Mail(number, UUID(int=chance.getrandbits(128), version=4)) for number in range(SLICES) for _ in range(MAILS)
    ]
    contents = [chance.randbytes(OCTETS) for _ in mails]
    forgotten = [one for one in mails if one.slice_number == FORGOTTEN]
    live = {one.enqueue_id for one in mails if one.slice_number == LIVE}
    whole = SLICES * SLICE_MIB

    # Given four slices on disk, each in a window of its own
    fill(places, mails, contents)
    for place in places:
        until(lambda place=place: place.mebibytes(ENQUEUED_MAILS) >= whole, "the rows are on disk")  # type: ignore[misc]

    # When two of them are swept, and what waits is renewed in place
    for place in places:
        swept(place)
    renewed = [
        Put(ENQUEUED_MAILS, row_of(ours, one, octets), ttl_seconds=LONG_SECONDS)
        for one, octets in zip(mails, contents, strict=True)
        if one.slice_number == LIVE
    ]
    ours.write(renewed)
    ours.flush(ENQUEUED_MAILS)

    # Then no mail is ever seen without its mark, until the last of them has expired
    def gone() -> bool:
        marked = ours.marked(forgotten)
        rows = ours.ids_in(FORGOTTEN)
        assert rows <= marked, "a row outlived the mark that hides it"
        return not rows

    until(gone, "rows expire")
    assert ours.ids_in(LIVE) == live

    # And, as mail goes on, what has expired drops whole: the disk holds what lives
    def another_mail(table: Table = ENQUEUED_MAILS) -> None:
        for place in places:
            slice_of_it = {} if table is DELETED_MAILS else place.next_slice
            place.write([Put(table, {"queuename": QUEUE, "enqueueid": uuid4(), **slice_of_it})])
            place.flush(table)

    until(lambda: ours.mebibytes(ENQUEUED_MAILS) <= SLICE_MIB + 1, "expired rows drop", another_mail)
    assert ours.ids_in(LIVE) == live
    until(lambda: not ours.marked(forgotten), "marks expire")
    marked = [[one for one in mails if one.slice_number == number] for number in range(LIVE)]
    until(lambda: not any(map(ours.on_disk, marked)), "expired marks drop", lambda: another_mail(DELETED_MAILS))

    # While James's windows keep all of it, and so would windows the delayed mails
    assert james.mebibytes(ENQUEUED_MAILS) >= whole
    assert all(map(james.on_disk, marked))
    assert [len(james.ids_in(number)) for number in range(SLICES)] == [0, 0, MAILS, MAILS]
    assert james.mebibytes(DUE_MAILS) >= whole
    until(lambda: ours.mebibytes(DUE_MAILS) <= SLICE_MIB + 1, "in levels, tombstones meet what they delete")
    assert len(ours.rows.read(Read(DUE_MAILS, ours.partition(LIVE)))) == MAILS
