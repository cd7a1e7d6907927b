"""Blobs in James's own tables: where a James without an object store keeps them.

The order of writes is James's: first the parts, then the row that counts them, so that a blob is there whole or not at
all. When a blob is removed, that row goes first. Source: James's `CassandraBlobStoreDAO` and
`CassandraDefaultBucketDAO`.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Final, TypeVar

from mailmend.mailqueue.blobs.stores import NamedBlobs, each_kept
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rules.blob_ids import BlobNaming, is_deduplicated
from mailmend.model.blobs import StoredBlob
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.errors import (
    BlobMissing,
    BlobsUnreachable,
    CannotReach,
    MailmendError,
    raise_first,
)
from mailmend.model.ids import BlobId
from mailmend.model.instants import instant_of
from mailmend.model.operations import Level, Put, Read, Remove, Scan, Seen
from mailmend.model.ports import AsyncTables, Clock
from mailmend.repair.retries import AsyncRetries

T = TypeVar("T")

PART_BYTES: Final = 100 * 1024
"""The bytes of one part: James's default of `chunk.size`."""

PARTS_AT_ONCE: Final = 16
"""How many parts of one blob are under way at the same time: 1.6 MB."""

BLOBS_AT_ONCE: Final = 2
"""How many blobs of one mail are read at the same time."""

PAGE_BLOBS: Final = 32
"""How many blobs are looked at together while they are listed: two parts of each, 6.4 MB at most."""

REMOVED_AT_ONCE: Final = 32
"""How many blobs are removed together: a cleanup names thousands, of several partitions at once."""

_COUNTS: Final = BLOBS.with_columns(column for column in BLOBS.columns if column.in_key)
"""Without what older generations of the table do not have."""

_ZSTD: Final = b"\x28\xb5\x2f\xfd"


def open_cassandra(tables: AsyncTables, clock: Clock, naming: BlobNaming | None = None) -> NamedBlobs:
    """Blobs in the tables `blobs` and `blobParts` of a keyspace of James."""
    return NamedBlobs(CassandraStore(tables, clock), clock, naming)


class CassandraStore:
    """Bytes in rows. Implements `model.blobs.BlobStore`."""

    def __init__(self, tables: AsyncTables, clock: Clock) -> None:
        self._tables = tables
        self._retries = AsyncRetries(clock)

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        parts = parts_of(content)
        with _our_errors():
            if is_deduplicated(blob_id) and await self._count(blob_id) not in {None, len(parts)}:
                return
            rows = ({"id": blob_id, "chunknumber": number, "data": part} for number, part in enumerate(parts))
            for group in grouped(rows, PARTS_AT_ONCE):
                raise_first(await self._tables.write_all([Put(BLOB_PARTS, row) for row in group]))
            await self._tables.write(Put(_COUNTS, {"id": blob_id, "position": len(parts)}))

    async def keep_all(self, blobs: Mapping[BlobId, bytes]) -> Sequence[MailmendError | None]:
        return await each_kept(self.keep, blobs)

    async def get(self, blob_id: BlobId) -> bytes:
        with _our_errors():
            count = await self._count(blob_id)
            if count is None:
                raise _missing(blob_id, "no row of blobs counts its parts")
            parts = [part async for part in self._parts(blob_id, count)]
        content = b"".join(parts)
        if content.startswith(_ZSTD):
            raise BlobsUnreachable(
                f"the blob {blob_id} is compressed (zstd), which mailmend does not read",
                mend="Let James store blobs as they are (its compression.enabled), and its own consumers take this.",
            )
        return content

    async def get_all(self, blob_ids: Sequence[BlobId]) -> Sequence[bytes]:
        return await all_of(blob_ids, self.get, BLOBS_AT_ONCE)

    async def part(self, blob_id: BlobId, offset: int, length: int) -> bytes:
        """Some of the bytes. All are read: James packs blobs in object stores only."""
        return (await self.get(blob_id))[offset : offset + length]

    async def remove(self, blob_id: BlobId) -> None:
        with _our_errors():
            for table in (_COUNTS, BLOB_PARTS):
                await self._retries.write(self._tables, Remove(table, (blob_id,)))

    async def remove_all(self, blob_ids: Sequence[BlobId], as_of: int | None = None) -> None:
        """Remove what was written until `as_of`, in microseconds: what is stored again later stays whole."""
        with _our_errors():
            for table in (_COUNTS, BLOB_PARTS):
                removals = (Remove(table, (blob_id,), as_of, joinable=True) for blob_id in blob_ids)
                for group in grouped(removals, REMOVED_AT_ONCE):
                    raise_first(await self._retries.write_all(self._tables, group))

    async def exists(self, blob_id: BlobId) -> bool:
        with _our_errors():
            return await self._count(blob_id) is not None

    async def is_whole(self, blob_id: BlobId) -> bool:
        """Whether as many parts are there as the blob's row counts."""
        with _our_errors():
            count = await self._count(blob_id)
            parts = self._tables.scan(Scan(BLOB_PARTS, ("chunknumber",), Level.QUORUM, under=(blob_id,)))
            if count is None:
                return False
            there = 0
            async for _ in parts:
                there += 1
            return there >= count

    async def stored_at(self, blob_id: BlobId) -> datetime | None:
        with _our_errors():
            seen = await self._tables.read(Read(BLOB_PARTS, (blob_id, 0), times=True))
        if not seen:
            return None
        return instant_of(seen[0].newest or 0)

    async def scan(self) -> AsyncIterator[StoredBlob]:
        """Every blob that has parts, with or without its count: what a crash left is listed too."""
        page: dict[BlobId, int] = {}
        with _our_errors():
            async for row in self._tables.scan(Scan(BLOB_PARTS, ("id", "chunknumber"))):
                if row["id"] not in page and len(page) == PAGE_BLOBS:
                    for blob in await self._looked_at(page):
                        yield blob
                    page = {}
                page[row["id"]] = max(row["chunknumber"], page.get(row["id"], 0))
            for blob in await self._looked_at(page):
                yield blob

    async def _count(self, blob_id: BlobId) -> int | None:
        """The number of its parts. Parts of two sizes leave two rows; like James, take the first."""
        seen = await self._tables.read(Read(_COUNTS, (blob_id,)))
        if not seen:
            return None
        count: int | None = seen[0].row["position"]
        return count

    async def _parts(self, blob_id: BlobId, count: int) -> AsyncIterator[bytes]:
        for numbers in grouped(range(count), PARTS_AT_ONCE):
            answers = await self._tables.read_all([Read(BLOB_PARTS, (blob_id, number)) for number in numbers])
            for number, seen in zip(numbers, answered(answers), strict=True):
                if not seen:
                    raise _missing(blob_id, f"its part {number} of {count} is not there")
                yield seen[0].row["data"] or b""

    async def _looked_at(self, page: dict[BlobId, int]) -> list[StoredBlob]:
        """The first part tells when each blob was stored; the first and the last tell its size."""
        reads = []
        for blob_id, last in page.items():
            reads.append(Read(BLOB_PARTS, (blob_id, 0), times=True))
            reads.append(Read(BLOB_PARTS, (blob_id, last), times=True))
        seen = list(answered(await self._tables.read_all(reads)))
        pairs = zip(seen[::2], seen[1::2], strict=True)
        found = []
        for (blob_id, last), ends in zip(page.items(), pairs, strict=True):
            if any(ends):
                found.append(_blob(blob_id, last, ends))
        return found


def parts_of(content: bytes, part_bytes: int = PART_BYTES) -> list[bytes]:
    """The content in parts of equal size but for the last; empty content has one empty part, as in James."""
    return [content[start : start + part_bytes] for start in range(0, len(content), part_bytes)] or [b""]


def grouped(items: Iterable[T], most: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while group := list(islice(iterator, most)):
        yield group


def answered(answers: Iterable[Sequence[Seen] | MailmendError]) -> Iterator[Sequence[Seen]]:
    for answer in answers:
        if isinstance(answer, MailmendError):
            raise answer
        yield answer


def _blob(blob_id: BlobId, last: int, ends: tuple[Sequence[Seen], Sequence[Seen]]) -> StoredBlob:
    """What its ends tell: an incomplete blob may lack its first part, one being removed its last."""
    sizes = []
    for seen in ends:
        size = 0
        if seen:
            size = len(seen[0].row["data"] or b"")
        sizes.append(size)
    first_bytes, last_bytes = sizes
    stored_at = max(seen[0].newest or 0 for seen in ends if seen)
    return StoredBlob(blob_id, first_bytes * last + last_bytes, instant_of(stored_at))


def _missing(blob_id: BlobId, why: str) -> BlobMissing:
    return BlobMissing(blob_id, mend=f"It was looked for in the tables of James: {why}.")


@contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except BlobsUnreachable:
        raise
    except CannotReach as error:
        raise BlobsUnreachable(f"the blobs in Cassandra cannot be used: {error.what}", mend=error.mend) from error
