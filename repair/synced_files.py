"""Writing of files whose bytes are on the disk when the call returns; only the owner may read them."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

OWNER_ALONE: Final = 0o600


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
    _sync_folder(path.parent)


def append_synced(path: Path, content: bytes) -> None:
    """Append to a file, which is created if missing.

    Raises:
        OSError: writing failed.
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
