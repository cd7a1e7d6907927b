"""Lags: projection writes that failed after all retries, kept until they are mended.

They are journalled in our own keyspace, by the day on which they were noticed; when that refuses, in a local file that
is on disk before the writer goes on, and drained into the keyspace later. Nothing is ever scanned to find them.
"""

import errno
import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import UUID

from mailmend.model.catalog.ledger import LAG_BUCKETS, REPAIR_LAG, bucket_of, day_of, days_back
from mailmend.model.errors import MailmendError, Unjournalled
from mailmend.model.ids import micros_of
from mailmend.model.names import name_of
from mailmend.model.operations import Put, Read, Remove, Scan
from mailmend.model.ports import Clock, Tables
from mailmend.model.projections.findings import Suspect
from mailmend.model.table import Key, Row
from mailmend.model.texts import keyspace_option, noted
from mailmend.repair.ledger.before_images import key_text, suspect_from, suspect_text
from mailmend.repair.synced_files import make_own_folder, open_own, write_all

_LOG = logging.getLogger("mailmend.lags")


@dataclass(frozen=True, slots=True)
class Lag:
    """One journalled lag: the suspect, the cause, and the key of its row."""

    suspect: Suspect
    cause: str
    entry: Key

    @property
    def noticed_micros(self) -> int:
        """When the lag was noticed, in microseconds since 1970."""
        *_, noticed = self.entry
        return micros_of(noticed)


class Spool:
    """Lags in a local directory, one file per process, each line on disk before `append` returns."""

    def __init__(self, directory: Path, keyspace: str) -> None:
        self._directory = directory
        self._keyspace = name_of(keyspace)
        self._path = directory / f"lags-{self._keyspace}-{os.getpid()}.jsonl"
        self._lock = threading.Lock()

    def append(self, lines: Sequence[str]) -> None:
        """Append the lines and sync them to disk.

        Raises:
            OSError: the write failed.
        """
        with self._lock, self._owned(self._path) as file:
            file.seek(0, os.SEEK_END)
            write_all(file, "".join(f"\n{line}" for line in lines).encode())  # a torn last line stays separate
            os.fsync(file.fileno())

    def files(self) -> list[Path]:
        """The files of all processes for this keyspace."""
        return sorted(self._directory.glob(f"lags-{self._keyspace}-*.jsonl"))

    @contextmanager
    def drained(self, path: Path) -> Iterator[list[str]]:
        """The complete lines of a file (a kill may cut the last short); the file is removed when the block succeeds."""
        with self._owned(path) as file:
            yield [line.decode() for line in file.read().splitlines() if _is_whole(line)]
            path.unlink()

    @contextmanager
    def _owned(self, path: Path) -> Iterator[IO[bytes]]:
        """The file, locked against other processes; opened again if another process drained it meanwhile."""
        make_own_folder(self._directory)
        while True:
            with open_own(path) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_name_of(path, file):
                    file.seek(0)
                    yield file
                    return


class LagJournal:
    """The journal of one mail keyspace's lags.

    Args:
        ledger: our own keyspace.
        keyspace: the mail keyspace's name.
        clock: the time at which a lag is noticed.
        spool: keeps lags that the ledger does not take; None: there is no spool.
    """

    def __init__(self, ledger: Tables, keyspace: str, clock: Clock, spool: Spool | None = None) -> None:
        self._ledger = ledger
        self._keyspace = keyspace
        self._clock = clock
        self._spool = spool

    def journal(self, suspects: Sequence[Suspect], cause: str) -> None:
        """Record the suspects durably.

        Raises:
            Unjournalled: neither the ledger nor the disk took all of them; an error-level event says which.
        """
        rows = [self._row(suspect, cause) for suspect in suspects]
        refused = self._put(rows)
        if refused:
            self._spool_or_tell(refused)

    def due(self, before_micros: int) -> Iterator[Lag]:
        """The lags noticed before that moment, oldest day first.

        Raises:
            CannotReach: a part of the journal could not be read.
        """
        for day in reversed(days_back(self._clock.micros())):
            reads = [Read(REPAIR_LAG, (self._keyspace, day, bucket)) for bucket in range(LAG_BUCKETS)]
            for answer in self._ledger.read_all(reads):
                if isinstance(answer, MailmendError):
                    raise answer
                for seen in answer:
                    lag = _lag_of(seen.row)
                    if lag.noticed_micros < before_micros:
                        yield lag

    def waiting(self, limit: int) -> tuple[int, int | None]:
        """How many lags wait, counted up to a limit, and when the oldest was noticed, in microseconds since 1970.

        Only their times are read, of one day after the other.
        """
        found: list[int] = []
        buckets = tuple(range(LAG_BUCKETS))
        for day in reversed(days_back(self._clock.micros())):
            of_day = Scan(REPAIR_LAG, ("noticed",), under=(self._keyspace, day), among=buckets, limit=limit)
            found += (micros_of(row["noticed"]) for row in self._ledger.scan(of_day))
            if len(found) >= limit:
                break
        return min(len(found), limit), min(found, default=None)

    def remove(self, lags: Sequence[Lag]) -> None:
        """Remove mended lags. One that cannot be removed is looked at again, which does no harm."""
        self._ledger.write_all([Remove(REPAIR_LAG, lag.entry) for lag in lags])

    def drain(self) -> int:
        """Move all local files' lags into the ledger and return their number; what it refuses stays in its file."""
        drained = 0
        if self._spool is None:
            return drained
        for path in self._spool.files():
            with self._spool.drained(path) as lines:
                rows = [_row_of(line) for line in lines]
                for error in self._written(rows):
                    if error:
                        raise error
                drained += len(rows)
        return drained

    def _row(self, suspect: Suspect, cause: str) -> Row:
        noticed = self._clock.new_uuid()
        return {
            "keyspacename": self._keyspace,
            "day": day_of(noticed),
            "bucket": bucket_of(key_text(suspect.key), LAG_BUCKETS),
            "noticed": noticed,
            "projection": suspect.projection,
            "rowkey": key_text(suspect.key),
            "suspect": suspect_text(suspect),
            "cause": noted(cause),
        }

    def _put(self, rows: Sequence[Row]) -> list[Row]:
        errors = self._written(rows)
        return [row for row, error in zip(rows, errors, strict=True) if error]

    def _written(self, rows: Sequence[Row]) -> list[MailmendError | None]:
        """Write the rows to the ledger; for each its error, or None."""
        return self._ledger.write_all([Put(REPAIR_LAG, row) for row in rows])

    def _spool_or_tell(self, rows: Sequence[Row]) -> None:
        lines = [json.dumps({**row, "noticed": str(row["noticed"])}) for row in rows]
        try:
            if self._spool is None:
                raise FileNotFoundError(errno.ENOENT, "no spool directory is set")
            self._spool.append(lines)
        except OSError as error:
            for line in lines:
                _LOG.error("unjournalled lag", extra={"keyspace": self._keyspace, "lag": line})
            raise Unjournalled(
                f"{len(rows)} lags in {self._keyspace} could not be journalled: {error.strerror}",
                mend=f"Find and mend them with: mailmend repair messages {keyspace_option(self._keyspace)}",
            ) from error


def _lag_of(row: Row) -> Lag:
    return Lag(suspect_from(row["suspect"]), row["cause"] or "", REPAIR_LAG.key_of(row))


def _is_name_of(path: Path, file: IO[bytes]) -> bool:
    """Whether the path still names the open file; another process may have removed it, and begun another one."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _is_whole(line: bytes) -> bool:
    """Whether the line parses; a line that was cut short may still end in a brace."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _row_of(line: str) -> Row:
    row = json.loads(line)
    return {**row, "noticed": UUID(row["noticed"])}
