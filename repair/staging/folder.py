"""A folder as the store of a staging area: its files belong to their owner only, and are complete or absent."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Final

from mailmend.model.errors import StagingRefused, StateUnwritable
from mailmend.repair.synced_files import create_folder, write_whole

_LOCK: Final = ".lock"
_PART: Final = ".part"


@dataclass(frozen=True, slots=True)
class StagingFolder:
    """A folder. Implements `repair.staging.area.StagingStore`."""

    path: Path

    @property
    def place(self) -> str:
        return str(self.path)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder for this process while the body runs; it is created if missing, and partial files removed."""
        with self._named():
            create_folder(self.path)
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with self._named():
                flock(lock, LOCK_EX | LOCK_NB)
            self._remove_parts()
            yield
            self._remove_parts()  # of executors that were lost
        finally:
            os.close(lock)  # a killed process gives it back likewise

    def names(self) -> Mapping[str, int]:
        with self._named():
            files = sorted(path for path in self.path.iterdir() if not path.name.startswith("."))
            return {file.name: file.stat().st_size for file in files}

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is no such file."""
        with self._named(), suppress(FileNotFoundError):
            return (self.path / name).read_bytes()
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, which gets its name once its bytes are on disk; only its owner may read it."""
        with self._named():
            handle, part = tempfile.mkstemp(dir=self.path, prefix=".", suffix=_PART)
            write_whole(handle, Path(part), self.path / name, content)

    def remove(self, names: Iterable[str]) -> None:
        with self._named():
            for name in names:
                (self.path / name).unlink(missing_ok=True)

    def _remove_parts(self) -> None:
        self.remove(path.name for path in self.path.glob(f".*{_PART}"))

    def free_bytes(self) -> int | None:
        with self._named():
            return shutil.disk_usage(self.path).free

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError as error:
            raise StagingRefused(
                f"another run is at work in the staging area {self.path}",
                mend="Wait until it ends (mailmend runs list), or name another folder.",
            ) from error
        except OSError as error:
            raise StateUnwritable(
                f"the staging area {self.path} cannot be used: {error.strerror or error}",
                mend="Staged data is kept. Make room, or see who may write there; then the same command goes on.",
            ) from error
