"""Blobs as files of one folder, for one machine: each is there whole and on the disk, or not at all.

The library that speaks S3 has files too, but does not wait for the disk, takes `a/` and `a` for the same, and knows no
`a//b`, which is an id as James 3.8 makes them.
"""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from io import FileIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from mailmend.mailqueue.blobs.batches import ThreadedBatches
from mailmend.mailqueue.rules.blob_ids import checked
from mailmend.model.blobs import StoredBlob
from mailmend.model.errors import (
    BadPayload,
    BlobMissing,
    BlobsUnreachable,
    MailmendError,
    raise_first,
)
from mailmend.model.ids import BlobId
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock
from mailmend.repair.synced_files import NewFile, create_folder, write_together

T = TypeVar("T")

FILES_AT_ONCE: Final = 8
"""How many files of one store are written or read at the same time; more wait for their turn."""

PAGE_FILES: Final = 500
NAME_BYTES_MAX: Final = 255
LEFT_BEHIND_AFTER: Final = timedelta(days=1)
_UNFINISHED: Final = ".unfinished"
_SAFE: Final = "=+"


def file_name(blob_id: BlobId) -> str:
    """The name of a blob's file: no separator, no leading dot; `blob_id_of` reverses it.

    Raises:
        BadPayload: the text is no blob id, or cannot be the name of a file.
    """
    name = quote(checked(blob_id), safe=_SAFE)
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > NAME_BYTES_MAX:
        raise BadPayload(f"the id of a blob {blob_id} is too long for a file", mend="Ids of James are not that long.")
    return name


def blob_id_of(name: str) -> BlobId | None:
    """The id of the blob in a file of that name; None for a file that is no blob."""
    blob_id = BlobId(unquote(name, errors="replace"))
    try:
        is_own = file_name(blob_id) == name
    except MailmendError:
        return None
    if not is_own:
        return None
    return blob_id


class FileStore:
    """Bytes in files. Implements `model.blobs.BlobStore`.

    A blob is first written under a temporary name in a folder of its own. That folder also marks the store: a disk that
    is not mounted is not taken for a store that has lost every blob.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._unfinished = root / _UNFINISHED
        self._clock = clock
        self._turns = asyncio.Semaphore(FILES_AT_ONCE)
        self._keeping = ThreadedBatches(self._all_kept)
        self._getting = ThreadedBatches(self._all_read)

    def create(self) -> None:
        """Make the folder where it is missing; remove old files of writers that were killed."""
        try:
            create_folder(self._unfinished)
            _remove_older(self._unfinished, instant_of(self._clock.micros()) - LEFT_BEHIND_AFTER)
        except OSError as error:
            raise self._unreachable(error) from error

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        raise_first(await self.keep_all({blob_id: content}))

    async def keep_all(self, blobs: Mapping[BlobId, bytes]) -> Sequence[MailmendError | None]:
        """Keep them with the files of other callers that wait: one sync of the folder is for all.

        That sync begins after the last of them has its name.
        """
        files = [self._new_file(blob_id, content) for blob_id, content in blobs.items()]
        return await self._keeping.add(files, sum(len(file.content) for file in files))

    async def get(self, blob_id: BlobId) -> bytes:
        (content,) = await self.get_all((blob_id,))
        return content

    async def get_all(self, blob_ids: Sequence[BlobId]) -> Sequence[bytes]:
        found = await self._getting.add([file_name(blob_id) for blob_id in blob_ids])
        contents = list[bytes]()
        for blob_id, content in zip(blob_ids, found, strict=True):
            if content is None:
                raise self._missing(blob_id)
            if isinstance(content, OSError):
                raise self._unreachable(content) from content
            contents.append(content)
        return contents

    async def part(self, blob_id: BlobId, offset: int, length: int) -> bytes:
        read = partial(_part_of, self._root / file_name(blob_id), offset, length)
        content = await self._in_thread(lambda: self._of_store(read))
        if content is None:
            raise self._missing(blob_id)
        return content

    async def remove(self, blob_id: BlobId) -> None:
        await self._in_thread(lambda: self._of_store((self._root / file_name(blob_id)).unlink))

    async def remove_all(self, blob_ids: Sequence[BlobId]) -> None:
        paths = [self._root / file_name(blob_id) for blob_id in blob_ids]
        for first in range(0, len(paths), PAGE_FILES):
            await self._in_thread(partial(self._unlinked, paths[first : first + PAGE_FILES]))

    async def exists(self, blob_id: BlobId) -> bool:
        return await self.stored_at(blob_id) is not None

    async def stored_at(self, blob_id: BlobId) -> datetime | None:
        stat = await self._in_thread(lambda: self._of_store((self._root / file_name(blob_id)).stat))
        return stat and instant_of(stat.st_mtime_ns // 1000)

    async def scan(self) -> AsyncIterator[StoredBlob]:
        await self._in_thread(self._unfinished.stat)
        entries = await self._in_thread(lambda: os.scandir(self._root))
        with entries:
            while page := await self._in_thread(lambda: list(islice(_blobs(entries), PAGE_FILES))):
                for blob in page:
                    yield blob

    def _new_file(self, blob_id: BlobId, content: bytes) -> NewFile:
        part = self._unfinished / str(self._clock.random_uuid())
        return NewFile(part, self._root / file_name(blob_id), content)

    def _all_kept(self, batch: Sequence[Sequence[NewFile]]) -> list[list[MailmendError | None]]:
        ends = map(self._failure, write_together(self._root, list(chain.from_iterable(batch))))
        return [list(islice(ends, len(files))) for files in batch]

    def _failure(self, error: OSError | None) -> MailmendError | None:
        if error is None:
            return None
        return self._unreachable(error)

    def _all_read(self, batch: Sequence[Sequence[str]]) -> list[list[bytes | OSError | None]]:
        return [list(map(self._read, names)) for names in batch]

    def _read(self, name: str) -> bytes | OSError | None:
        try:
            return self._of_store(partial(_content_of, self._root / name))
        except OSError as error:
            return error

    def _missing(self, blob_id: BlobId) -> BlobMissing:
        return BlobMissing(blob_id, mend=f"It was looked for in {self._root}")

    def _unlinked(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self._of_store(path.unlink)

    def _of_store(self, work: Callable[[], T]) -> T | None:
        """The result of the work; None where the store is there and the file is not."""
        try:
            return work()
        except FileNotFoundError:
            self._unfinished.stat()
            return None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with self._turns:
            try:
                return await asyncio.to_thread(work)
            except OSError as error:
                raise self._unreachable(error) from error

    def _unreachable(self, error: OSError) -> BlobsUnreachable:
        return BlobsUnreachable(
            f"the blobs in {self._root} cannot be reached: {error.strerror or error}",
            mend=_MENDS.get(error.errno or 0, "Check the folder, its permissions and its disk."),
        )


_MENDS: Final = {
    errno.ENOENT: "Is its disk mounted? Where the folder is new, create it with the option for it.",
    errno.ENOSPC: "The disk is full: make room.",
    errno.EACCES: "Give the user that runs mailmend the right to write there.",
}


def _content_of(path: Path) -> bytes:
    with FileIO(path) as file:
        return file.readall()


def _part_of(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _remove_older(folder: Path, than: datetime) -> None:
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # its writer has given it its name
            if path.stat().st_mtime < than.timestamp():
                path.unlink()


def _blobs(entries: Iterator[Any]) -> Iterator[StoredBlob]:
    for entry in entries:
        blob_id = blob_id_of(entry.name)
        if blob_id is None or not entry.is_file(follow_symlinks=False):
            continue
        with suppress(FileNotFoundError):  # removed since
            stat = entry.stat(follow_symlinks=False)
            yield StoredBlob(blob_id, stat.st_size, instant_of(stat.st_mtime_ns // 1000))
