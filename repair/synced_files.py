"""Writing of files whose bytes are on the disk when the call returns; only the owner may read them."""

import errno
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from stat import S_IMODE, S_ISDIR
from typing import IO, Final

OWNER_ALONE: Final = 0o600
FOLDER_OF_OWNER: Final = 0o700
_OF_OTHERS: Final = 0o077

_LOG: Final = logging.getLogger("mailmend.files")


def create_folder(folder: Path) -> None:
    """Create a folder that only its owner may enter, with the folders above it that are missing.

    Raises:
        OSError: it cannot be created.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=FOLDER_OF_OWNER, exist_ok=True)
        sync_folder(path.parent)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def make_own_folder(folder: Path) -> None:
    """Create a folder of our own state; where one is there that others may enter, it stays so and the log says it.

    Raises:
        OSError: it cannot be created.
    """
    create_folder(folder)
    warn_if_open(folder, folder.stat().st_mode)


def open_own(path: Path) -> IO[bytes]:
    """Open a file unbuffered, to read it and to append to it; a new one is its owner's alone.

    Raises:
        OSError: it cannot be opened.
    """
    is_new = not path.exists()
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ALONE), "a+b", buffering=0)
    if is_new:
        sync_folder(path.parent)
    else:
        # The mode is the open file's: another process may have removed the name by now.
        warn_if_open(path, os.fstat(file.fileno()).st_mode)
    return file


@cache
def warn_if_open(path: Path, mode: int) -> None:
    """Say once in the log that others may read a file, or enter a folder, that holds mail or names people.

    Args:
        path: the file or folder.
        mode: its `st_mode`.
    """
    permissions = S_IMODE(mode)
    if permissions & _OF_OTHERS:
        wanted = OWNER_ALONE
        if S_ISDIR(mode):
            wanted = FOLDER_OF_OWNER
        fields = {"path": str(path), "mode": f"{permissions:o}", "mend": f"chmod {wanted:o} {path}"}
        _LOG.warning("other users of this machine may read what should be private", extra=fields)


def write_whole(handle: int, part: Path, path: Path, content: bytes) -> None:
    """Write the open file `part` and move it to `path`, which is then complete or as it was before.

    Raises:
        OSError: writing failed; `part` is removed.
    """
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to be written.

    Attributes:
        part: its name while it is not whole, on the same disk.
    """

    part: Path
    path: Path
    content: bytes


def write_together(folder: Path, files: Sequence[NewFile]) -> list[OSError | None]:
    """Write files of one folder; None for each that is whole and on the disk, else its error.

    All bytes are written before the first file is synced, so one journal of the disk has them all.
    The folder is synced once, after the last file has its name. A file that fails is as before.
    """
    written = [_written(file) for file in files]
    ends = [_named(file, handle) for file, handle in zip(files, written, strict=True)]
    if None not in ends:
        return ends
    try:
        sync_folder(folder)
    except OSError as error:
        return [end or error for end in ends]
    return ends


def _written(file: NewFile) -> int | OSError:
    """The descriptor of the file, whose bytes are not on the disk yet."""
    try:
        handle = os.open(file.part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ALONE)
    except OSError as error:
        return error
    try:
        rest = memoryview(file.content)
        while rest:
            rest = rest[os.write(handle, rest) :]
    except OSError as error:
        os.close(handle)
        _remove(file.part)
        return error
    return handle


def _named(file: NewFile, handle: int | OSError) -> OSError | None:
    """Put the bytes on the disk, then give the file its name."""
    if isinstance(handle, OSError):
        return handle
    try:
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        file.part.replace(file.path)
    except OSError as error:
        _remove(file.part)
        return error
    return None


def _remove(part: Path) -> None:
    with suppress(OSError):
        part.unlink(missing_ok=True)


def append_synced(path: Path, content: bytes) -> None:
    """Append to a file, which is created if missing: all of the content, or nothing of it.

    Raises:
        OSError: writing failed; the file is as long as it was.
    """
    with open_own(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            write_all(file, content)
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.ftruncate(file.fileno(), size)  # what a full disk took of it would end a reader's way
            raise


def write_all(file: IO[bytes], content: bytes) -> None:
    """Write to an unbuffered file, which may take a part at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def sync_folder(folder: Path) -> None:
    """A new name is on disk only after its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
