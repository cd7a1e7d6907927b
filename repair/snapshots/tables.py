"""The tables of a keyspace whose scans read snapshot files; other requests go to the cluster.

A Java process reads the files (`SstableReader.java`): it merges a table's SSTables as a node does,
and sends the live rows. The process is started at the first scan and serves all of them.
"""

import subprocess
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import SEEK_END
from itertools import repeat
from struct import error as StructError  # noqa: N812 - an exception
from typing import IO, Any, Self

from mailmend.model.errors import MailmendError
from mailmend.model.operations import Applied, Conditional, Read, Scan, Seen, Write
from mailmend.model.ports import Tables
from mailmend.model.table import Column, Row, Table
from mailmend.repair.snapshots import wire
from mailmend.repair.snapshots.cells import without_unknown_types
from mailmend.repair.snapshots.layout import Snapshot, SnapshotTable

_ENDS_SECONDS_MAX = 10
_SAID_BYTES = 2000


class SnapshotUnread(MailmendError):
    """The process that reads SSTables failed: the rows of a table may lack others."""

    page = "check-found-inconsistencies"


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file that cannot be read, or not to its end; its other rows are taken as absent."""

    file: str
    reason: str


class ReaderProcess:
    """The process that reads SSTables, started at the first request.

    Args:
        command: starts it; called once.
        environment: of the process, without our secrets.
    """

    def __init__(
        self,
        command: Callable[[], Sequence[str]],
        environment: Mapping[str, str],
    ) -> None:
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def frames(self, request: wire.ReadRequest) -> Iterator[tuple[bytes, bytes]]:
        """The frames of the answer: a letter and a body, without the last one.

        Raises:
            SnapshotUnread: the table cannot be read, or the process ended.
        """
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request.encoded())
            process.stdin.flush()
        except OSError as error:
            raise self._ended(request) from error
        while True:
            head = process.stdout.read(wire.HEAD.size)
            if len(head) < wire.HEAD.size:
                raise self._ended(request)
            kind, length = wire.HEAD.unpack(head)
            if kind not in wire.KINDS or length < 0:
                raise _unread(request, f"the reader of SSTables sent no frame: {head!r}")
            body = process.stdout.read(length)
            if len(body) < length:
                raise self._ended(request)
            if kind == wire.END:
                return
            if kind == wire.FAILURE:
                raise _unread(request, body.decode("utf-8", "replace"))
            yield kind, body

    def close(self) -> None:
        process = self._process
        self._process = None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            try:
                process.wait(_ENDS_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._said is not None:
            self._said.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
            self._process = subprocess.Popen(  # noqa: S603 - the command is our own
                list(self._command()),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=self._environment,
            )
        return self._process

    def _ended(self, request: wire.ReadRequest) -> SnapshotUnread:
        signal = self._signal()
        said = ""
        if self._said is not None:
            size = self._said.seek(0, SEEK_END)
            self._said.seek(max(0, size - _SAID_BYTES))
            said = self._said.read(_SAID_BYTES).decode("utf-8", "replace").strip()
        return _unread(
            request,
            f"the reader of SSTables ended{signal}: {said or 'it said nothing'}",
        )

    def _signal(self) -> str:
        """Which signal ended the process, as where the system had no memory left; else nothing."""
        if self._process is None:
            return ""
        try:
            code = self._process.wait(_ENDS_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return ""
        if code >= 0:
            return ""
        return f" by signal {-code}"


def _unread(request: wire.ReadRequest, reason: str) -> SnapshotUnread:
    return SnapshotUnread(
        f"the snapshot of {request.keyspace}.{request.table} cannot be read: {reason}",
        mend="Leave --snapshot out to check by reading the cluster.",
    )


@dataclass(slots=True)
class SnapshotTables:
    """Scans read the snapshot; other requests go to the cluster. Implements `model.ports.Tables`.

    Attributes:
        live: the keyspace on the cluster; None: no cluster is asked.
        damaged: the files that scans found damaged, in the order of the tables.
    """

    snapshot: Snapshot
    process: ReaderProcess
    live: Tables | None = None
    damaged: list[DamagedFile] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close()

    def scan(self, scan: Scan) -> Iterator[Row]:
        """Yield every row of the table, as of the snapshot's time."""
        if scan.under or scan.among or scan.tokens or scan.limit is not None or scan.distinct:
            yield from self._cluster.scan(scan)
            return
        found = self.snapshot.tables[scan.table.name]
        if not found.files:
            return
        columns = _wanted(scan, found.table)
        request = _request(self.snapshot, found, tuple(columns))
        user_types = {kind.name: kind.normal_fields for kind in found.schema.types}
        frames = wire.RowFrames(list(columns.values()), user_types)
        names = tuple(columns)
        plain = names == scan.table.stored(scan.columns) and not scan.table.computed
        for kind, body in self.process.frames(request):
            if kind == wire.DAMAGE:
                file, _, reason = body.decode("utf-8", "replace").partition("\n")
                self.damaged.append(DamagedFile(file, reason))
                continue
            try:
                found_values = frames.values(body)
                if plain:  # as quick as Python makes rows: there are millions
                    yield from map(dict, map(zip, repeat(names), found_values))
                else:
                    yield from map(partial(_row, scan, names), found_values)
            except (StructError, ArithmeticError, ValueError, LookupError) as error:
                raise _unread(request, f"a cell has a value that Python lacks: {error}") from error

    def read(self, read: Read) -> Sequence[Seen]:
        return self._cluster.read(read)

    def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        return self._cluster.read_all(reads)

    def write(self, write: Write) -> None:
        self._cluster.write(write)

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        return self._cluster.write_all(writes)

    def attempt(self, write: Conditional) -> Applied:
        return self._cluster.attempt(write)

    @property
    def _cluster(self) -> Tables:
        assert self.live is not None, "a snapshot alone is only scanned"
        return self.live


def _wanted(scan: Scan, table: Table) -> dict[str, Column]:
    """The columns of the snapshot that the scan needs, by name; for a field its user type."""
    found = {}
    for name in scan.table.stored(scan.columns):
        whole = name.partition(".")[0]
        if whole in table:
            found[whole] = table.column(f'"{whole}"')
    return found


def _row(scan: Scan, names: Sequence[str], values: tuple[Any, ...]) -> Row:
    """A row of the scan from the values of some columns; what the snapshot lacks is null."""
    cells = dict(zip(names, values, strict=True))
    row = {}
    for name in scan.table.stored(scan.columns):
        whole, _, part = name.partition(".")
        cell = cells.get(whole)
        if part and cell is not None:
            cell = cell.get(part)
        row[name] = cell
    return scan.table.completed(row)


def _request(snapshot: Snapshot, found: SnapshotTable, wanted: tuple[str, ...]) -> wire.ReadRequest:
    known = frozenset(kind.name for kind in found.schema.types)
    return wire.ReadRequest(
        keyspace=snapshot.keyspace,
        table=found.table.name,
        now=snapshot.taken,
        types=found.schema.types,
        columns=tuple(_readable(column, known) for column in found.table.columns),
        dropped=tuple(_readable_dropped(gone, known) for gone in found.dropped),
        wanted=wanted,
        files=tuple(map(str, found.files)),
    )


def _readable(column: Column, known: Container[str]) -> Column:
    """The column with types that its snapshot describes."""
    return replace(column, type=without_unknown_types(column.type, known))


def _readable_dropped(gone: wire.DroppedColumn, known: Container[str]) -> wire.DroppedColumn:
    return replace(gone, column=_readable(gone.column, known))
