"""Files whose bytes are on the disk when a call returns; for their owner alone."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

OWNER_ALONE: Final = 0o600


def write_whole(handle: int, part: Path, path: Path, content: bytes) -> None:
    """Write what is open as `part` and move it to `path`, which is whole or as it was.

    Raises:
        OSError: the disk refused it; nothing is left of the part.
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
    _sync_folder(path.parent)


def append_synced(path: Path, content: bytes) -> None:
    """Add to a file, which is made where there is none.

    Raises:
        OSError: the disk refused it.
    """
    is_new = not path.exists()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, OWNER_ALONE), "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """A new name is on disk only after its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
