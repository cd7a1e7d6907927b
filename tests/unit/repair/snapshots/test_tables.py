"""Rows of a snapshot as a process sends them, here one that needs no Java and no files."""

import os
import sys
from pathlib import Path
from struct import pack
from uuid import UUID

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Read, Scan
from mailmend.model.table import Table, columns
from mailmend.repair.snapshots.layout import Snapshot, SnapshotFolder, SnapshotTable
from mailmend.repair.snapshots.tables import DamagedFile, ReaderProcess, SnapshotTables, SnapshotUnread

STORED = Table("users", columns("id uuid", "", "name text"))
WANTED = Table("users", columns("id uuid", "", "name text, age int"))
BOX = UUID(int=7)


def snapshot_tables(answer: bytes, live: MemoryTables | None = None) -> SnapshotTables:
    """Tables whose reader answers the first request with these bytes, and then ends."""
    program = f"import sys; sys.stdin.buffer.read(1); sys.stdout.buffer.write(bytes.fromhex('{answer.hex()}'))"
    folder = SnapshotFolder(
        Path("/s"), "mail", STORED, Schema((), (STORED,)), (), (Path("/s/nb-1-big-Data.db"),), taken=5.0
    )
    snapshot = Snapshot("mail", {"users": SnapshotTable(STORED, (folder,))}, taken=5)
    process = ReaderProcess(lambda: (sys.executable, "-c", program), dict(os.environ))
    return SnapshotTables(snapshot, process, live)


def frame(kind: bytes, body: bytes) -> bytes:
    return pack(">ci", kind, len(body)) + body


ONE_ROW = frame(b"R", pack(">ibbi16sbbii3s", 1, 16, 0, 16, BOX.bytes, 0, 0, 3, 3, b"bob"))


def test_a_column_that_is_younger_than_the_snapshot_is_null() -> None:
    with snapshot_tables(ONE_ROW + frame(b"E", pack(">q", 1))) as tables:
        rows = list(tables.scan(Scan(WANTED, ("id", "name", "age"))))

    assert rows == [{"id": BOX, "name": "bob", "age": None}]


def test_a_damaged_file_is_named_and_the_rows_of_the_others_come() -> None:
    damage = frame(b"D", b"/s/nb-2-big-Data.db\nCorruptBlockException at 17")
    with snapshot_tables(ONE_ROW + damage + frame(b"E", pack(">q", 1))) as tables:
        rows = list(tables.scan(Scan(STORED, ("id", "name"))))

    assert len(rows) == 1
    assert tables.damaged == [DamagedFile("/s/nb-2-big-Data.db", "CorruptBlockException at 17")]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (frame(b"F", b"the table has no column x"), "the table has no column x"),
        (ONE_ROW[:-2], "the reader of SSTables ended"),
        (ONE_ROW, "the reader of SSTables ended"),
        (b"", "the reader of SSTables ended"),
        (b"Terminating due to an error", "sent no frame"),
        (pack(">ci", b"R", -1), "sent no frame"),
        (frame(b"R", pack(">i", 1)), "a value that Python lacks"),
        (
            frame(b"R", pack(">ibbi16sbbii1s", 1, 16, 0, 16, BOX.bytes, 0, 0, 1, 1, b"\xff")),
            "a value that Python lacks",
        ),
    ],
)
def test_an_answer_without_its_end_is_no_table(answer: bytes, said: str) -> None:
    """Rows that never came must not look like rows that do not exist."""
    with snapshot_tables(answer) as tables, pytest.raises(SnapshotUnread, match=said):
        list(tables.scan(Scan(STORED, ("id", "name"))))


def test_the_signal_that_ended_the_process_is_named() -> None:
    """Such as that of a system without memory, which leaves no word."""
    tables = snapshot_tables(b"")
    program = "import os; os.kill(os.getpid(), 9)"
    tables.process = ReaderProcess(lambda: (sys.executable, "-c", program), dict(os.environ))

    with tables, pytest.raises(SnapshotUnread, match="ended by signal 9"):
        list(tables.scan(Scan(STORED, ("id", "name"))))


def test_other_requests_go_to_the_cluster() -> None:
    live = MemoryTables(lambda: 1)
    live.write(Put(STORED, {"id": BOX, "name": "ann"}))
    with snapshot_tables(b"", live) as tables:
        (seen,) = tables.read(Read(STORED, (BOX,)))

    assert seen.row["name"] == "ann"
