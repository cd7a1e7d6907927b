"""Blobs in a directory: durable before `put` returns, named by what they hold.

An id is the SHA-256 of the bytes in base64, as James's deduplicating store makes them, so the same bytes are kept once
and a replayed write changes nothing. Files lie under two hexadecimal digits; a file appears under its name only when
it is whole and on disk.
"""

import os
import threading
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from model.errors import MailmendError


def blob_id_of(data: bytes) -> str:
    """The id of these bytes."""
    return b64encode(sha256(data).digest()).decode()


class MessageBlobs(Protocol):
    """Where message contents live."""

    def put(self, data: bytes) -> str:
        """Keep the bytes durably and return their id; the same bytes may give the same id."""
        ...

    def get(self, blob_id: str) -> bytes:
        """The bytes under the id; `KeyError` where there are none."""
        ...


class FileBlobs:
    """The Blobs port over a directory. Thread-safe; several processes may share the directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, data: bytes) -> str:
        """Keep the bytes durably and return their id."""
        blob_id = blob_id_of(data)
        path = self._path(blob_id)
        if not path.exists():
            try:
                self._write(path, data)
            except OSError as error:
                raise MailmendError(
                    f"a blob of {len(data)} bytes could not be kept under {self._root}: {error.strerror}",
                    mend="Make room there, or mend its permissions; nothing was written to the mail tables.",
                ) from error
        return blob_id

    def get(self, blob_id: str) -> bytes:
        """The bytes under the id.

        Raises:
            KeyError: there are none.
            MailmendError: the file no longer holds what its name says.
        """
        try:
            data = self._path(blob_id).read_bytes()
        except FileNotFoundError:
            raise KeyError(blob_id) from None
        if blob_id_of(data) != blob_id:
            raise MailmendError(f"blob {blob_id} under {self._root} is damaged", mend="Bring it back from a backup.")
        return data

    def _path(self, blob_id: str) -> Path:
        try:
            name = b64decode(blob_id, validate=True).hex()
        except (NotBase64, ValueError):
            name = ""
        if len(name) != 2 * sha256().digest_size:
            raise KeyError(blob_id)
        return self._root / name[:2] / name[2:]

    def _write(self, path: Path, data: bytes) -> None:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _sync_directory(self._root)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)  # half a blob must not keep a full disk full
            raise
        _sync_directory(path.parent)


class MemoryBlobs:
    """The Blobs port over a dict, for tests and trials."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """Keep the bytes and return their id."""
        blob_id = blob_id_of(data)
        self._held[blob_id] = data
        return blob_id

    def get(self, blob_id: str) -> bytes:
        """The bytes under the id.

        Raises:
            KeyError: there are none.
        """
        return self._held[blob_id]


def _sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
