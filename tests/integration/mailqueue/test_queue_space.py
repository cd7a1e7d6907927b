"""What a cleanup gives back of the disk, on a real Cassandra: tables take no more than what waits would take alone.

Windows are told by the stamps of writes, so mails of ten hours are written with stamps of yesterday. Tombstones need
not wait for hints here (gc_grace_seconds 0), and expiry is looked for each second instead of every ten minutes.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import QueueName
from mailmend.model.instants import MICROS
from mailmend.model.operations import Put
from mailmend.repair.clock import SystemClock
from tests.bench.queue_past import WINDOW, Past, flushed_mebibytes, write
from tests.support.brokers import Broker, eventually
from tests.support.nodetool import nodetool_of
from tests.support.real_queue import RealQueue, real_queue
from tests.support.servers import CassandraServer, unavailable

MAILS, WAITING = int(os.environ.get("MAILMEND_SPACE_MAILS", "100000")), 5_000
SHARE_MAX = 1.2
LIVE_SECONDS = 100 + MAILS // 800
"""After so long what was processed expires, all at once, where tables expire; written, and cleaned, before that."""

pytestmark = [
    pytest.mark.cassandra,
    pytest.mark.broker,
    pytest.mark.thorough,
    pytest.mark.timeout(600 + 2 * LIVE_SECONDS),
]

TABLES = (ENQUEUED_MAILS, DELETED_MAILS)
CLOCK = SystemClock()
CLEAN = ("repair", "queues", "--engine", "local", "--delay", "0s", "--no-blobs", "--json")


@dataclass(frozen=True, slots=True)
class Disk:
    """The queue's tables of one keyspace, and what they take."""

    queue: RealQueue
    sstables: Path

    def flushed(self) -> int:
        """Bytes of all files, a moment after a flush; 0 while nothing of it is on disk."""
        flushed_mebibytes(self.queue.keyspace)
        folders = [folder for table in TABLES for folder in self.sstables.glob(f"{table.name}-*")]
        return sum(file.stat().st_size for folder in folders for file in folder.iterdir() if file.is_file())

    def waits(self) -> None:
        """Mails of this hour."""
        write(self.queue.keyspace, chain(waiting().starts(), waiting().rows()))

    def goes_on(self) -> None:
        """A mail is put once more, and a mark that expires at once: Cassandra looks around when it writes SSTables."""
        write(self.queue.keyspace, islice(waiting().rows(), 1))
        write(self.queue.keyspace, (replace(one, ttl_seconds=1) for one in islice(waiting().marks(), 1)))

    def lived_through(self, until: float | None) -> None:
        """Mails of ten hours; where rows expire, all do at that moment of the clock that never goes back."""
        done = Past(self.queue.name, MAILS, slice_of(datetime.now(UTC) - 8 * WINDOW, WINDOW))
        write(self.queue.keyspace, done.starts())
        write(self.queue.keyspace, (then(one, until) for one in chain(done.rows(), done.marks())))
        self.flushed()

    def cleaned(self, *options: str) -> dict[str, Any]:
        ended = self.queue.line(*CLEAN, *options)
        assert ended.code == 0, f"{ended.out}\n{ended.err}"
        return ended.json


def waiting() -> Past:
    return Past(QueueName("outgoing"), WAITING, slice_of(datetime.now(UTC), WINDOW) + 3 * WINDOW)


def then(write: Put, until: float | None) -> Put:
    at = write.row.get("timerangestart") or datetime.now(UTC) - 8 * WINDOW
    seconds = None if until is None else max(1, round(until - CLOCK.monotonic()))
    return replace(write, at=round(at.timestamp() * MICROS), ttl_seconds=seconds)


@pytest.fixture(params=["expires", "never expires"])
def disks(
    request: pytest.FixtureRequest, cassandra: CassandraServer, rabbitmq: Broker, tmp_path: Path
) -> Iterator[tuple[Disk, Disk]]:
    """One in which mails were processed, and one in which nothing was but those that wait."""
    if cassandra.sstables is None:
        unavailable("the data files of that server are elsewhere")
    with (
        real_queue(cassandra, rabbitmq, tmp_path, {}) as worked,
        real_queue(cassandra, rabbitmq, tmp_path, {}) as fresh,
    ):
        for queue in (worked, fresh):
            for table in TABLES:
                assert table.compaction is not None
                checked = {"expired_sstable_check_frequency_seconds": "1"}
                compaction = {"class": table.compaction.strategy, **table.compaction.options, **checked}
                lives = "" if request.param == "expires" else " AND default_time_to_live = 0"
                options = f"compaction = {compaction} AND gc_grace_seconds = 0{lives}"
                queue.cluster.execute_ddl(f"ALTER TABLE {queue.keyspace.name}.{table.name} WITH {options}")
        one, other = (Disk(queue, cassandra.sstables / queue.keyspace.name) for queue in (worked, fresh))
        other.waits()
        yield one, other


@pytest.mark.parametrize("disks", ["expires"], indirect=True)
def test_once_its_windows_are_over_a_cleaned_table_takes_what_waits(disks: tuple[Disk, Disk]) -> None:
    worked, alone = disks
    until = CLOCK.monotonic() + LIVE_SECONDS
    worked.lived_through(until)
    worked.waits()
    full = worked.flushed()
    assert worked.cleaned()["queues"][1]["removed_rows"] == MAILS
    left = until - CLOCK.monotonic()
    assert left > 0, f"written and cleaned {-left:.0f} s too late: what has expired is not removed"

    CLOCK.sleep(left)

    taken = [full]

    def small() -> bool:
        worked.goes_on()
        taken.append(worked.flushed())
        return taken[-1] <= SHARE_MAX * alone.flushed()  # asked each time: what a flush writes may be there in part

    try:
        eventually(small, 180)
    finally:
        print({"left": left, "taken": taken, "alone": alone.flushed()})  # noqa: T201 - figures, with -s


@pytest.mark.parametrize("disks", ["never expires"], indirect=True)
def test_where_nothing_expires_garbage_collection_gives_the_room_back(
    disks: tuple[Disk, Disk], cassandra: CassandraServer, tmp_path: Path
) -> None:
    """Nothing is begun where nodetool cannot be reached, or nobody agrees; a dry run tells, and leaves all as it is."""
    worked, alone = disks
    worked.lived_through(None)
    worked.waits()
    nodetool = ("--garbagecollect", "--nodetool", nodetool_of(cassandra, tmp_path))
    refused = {
        shown: worked.queue.line(*CLEAN, *options).code
        for shown, options in {
            "unreachable": ("--garbagecollect", "--nodetool", "false {host}", "--yes"),
            "nobody agreed": nodetool,
        }.items()
    }
    assert refused == {"unreachable": 4, "nobody agreed": 2}
    reported = worked.queue.line(*CLEAN, *nodetool, "--dry-run")
    assert reported.code == 1, reported.err
    assert reported.json["garbagecollect"]["nodes"][0]["bytes"] is None
    assert "Garbage collection rewrites" in reported.err

    cleaned = worked.cleaned("--marks", "old", "--marks-age", "1h")
    assert [cleaned["queues"][1][what] for what in ("removed_rows", "removed_marks")] == [MAILS, MAILS]
    full = worked.flushed()
    assert full > 2 * alone.flushed()

    collected = worked.queue.line(*CLEAN, *nodetool, "--yes")
    print(collected.err, collected.json["garbagecollect"], alone.flushed())  # noqa: T201 - figures, with -s
    assert "by one SSTable" in collected.err
    assert worked.flushed() <= SHARE_MAX * alone.flushed()
