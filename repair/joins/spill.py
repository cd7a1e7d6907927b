"""Joins of more rows than memory holds: records spread over files by their key, read back one part at a time.

Records of one key are in the same part; a part that is still too large is spread once more. So memory is bounded by
the size of a part, whatever the number of rows. The files live as long as their scan and are read only by the process
that wrote them: hence Python's own fast serialisation.
"""

import marshal
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from model.errors import MailmendError
from model.projections.findings import Suspect
from repair.ledger.before_images import suspect_from, suspect_text

Record = tuple[Any, ...]
"""A key (a tuple of bytes, numbers and text), then whatever belongs to it: only what marshal takes."""

FAN_OUT = 32
"""Parts that a spill is spread over, at each level."""

PART_BYTES_MAX = 16 << 20
"""A part larger than this on disk is spread once more before it is read."""

_BATCH_RECORDS = 512
_LEVELS_MAX = 4
_LENGTH_BYTES = 4


class Workshop:
    """A folder for one scan's files, gone when the scan's result is closed."""

    def __init__(self, folder: Path | None = None) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix="mailmend-", dir=folder))
        except OSError as error:
            raise _no_room(folder or Path(tempfile.gettempdir()), error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class Spill:
    """Records spread over files by their key."""

    def __init__(self, workshop: Workshop, name: str, *, level: int = 0, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self._workshop = workshop
        self._name = name
        self._level = level
        self._part_bytes_max = part_bytes_max
        self._waiting: list[list[Record]] = [[] for _ in range(FAN_OUT)]

    def add(self, record: Record) -> None:
        """Add a record; its first field is its key."""
        part = (hash(record[0]) // FAN_OUT**self._level) % FAN_OUT
        waiting = self._waiting[part]
        waiting.append(record)
        if len(waiting) >= _BATCH_RECORDS:
            self._flush(part)

    def parts(self) -> Iterator[list[Record]]:
        """The records in parts, all of one key in the same part; each part is removed after it was read."""
        for part in range(FAN_OUT):
            self._flush(part)
        for part in range(FAN_OUT):
            yield from self._read(part)

    def _read(self, part: int) -> Iterator[list[Record]]:
        path = self._path(part)
        if not path.exists():
            return
        if path.stat().st_size <= self._part_bytes_max or self._level + 1 >= _LEVELS_MAX:
            yield [record for batch in _batches(path) for record in batch]
        else:
            yield from self._spread(part).parts()
        path.unlink(missing_ok=True)

    def _spread(self, part: int) -> "Spill":
        """A large part's records, spread by the next digits of their keys' hashes."""
        name, level = f"{self._name}.{part}", self._level + 1
        finer = Spill(self._workshop, name, level=level, part_bytes_max=self._part_bytes_max)
        for batch in _batches(self._path(part)):
            for record in batch:
                finer.add(record)
        return finer

    def _flush(self, part: int) -> None:
        if not self._waiting[part]:
            return
        path = self._path(part)
        try:
            with path.open("ab") as file:
                batch = marshal.dumps(self._waiting[part])
                file.write(len(batch).to_bytes(_LENGTH_BYTES) + batch)
        except OSError as error:
            raise _no_room(path.parent, error) from error
        self._waiting[part] = []

    def _path(self, part: int) -> Path:
        return self._workshop.path / f"{self._name}.{part}"


class SuspectFile:
    """Suspects on disk, in the order in which they were found."""

    def __init__(self, workshop: Workshop) -> None:
        self._path = workshop.path / "suspects"
        self._file = self._path.open("w", encoding="utf-8")

    def add(self, suspect: Suspect) -> None:
        try:
            self._file.write(suspect_text(suspect) + "\n")
        except OSError as error:
            raise _no_room(self._path.parent, error) from error

    def __iter__(self) -> Iterator[Suspect]:
        try:
            self._file.flush()
        except OSError as error:
            raise _no_room(self._path.parent, error) from error
        with self._path.open(encoding="utf-8") as file:
            for line in file:
                yield suspect_from(line)

    def close(self) -> None:
        """Close the file; unflushed data on a full disk is dropped, since nobody needs it any more."""
        with suppress(OSError):
            self._file.close()


def _batches(path: Path) -> Iterator[list[Record]]:
    with path.open("rb") as file:
        while length := file.read(_LENGTH_BYTES):
            yield marshal.loads(file.read(int.from_bytes(length)))  # noqa: S302 our own file, of this very scan


def _no_room(folder: Path, error: OSError) -> MailmendError:
    return MailmendError(
        f"cannot write to the temporary folder {folder}: {error.strerror}",
        mend="Free some space, or name another folder in the environment variable TMPDIR.",
    )
