"""One look at a store's listing and at every reference, joined by id on disk, in bounded memory.

The listing is there before the first reference is read: what is stored meanwhile is not in it. A
reference to a slot of a chunk counts for the chunk: it stays, and it is what may be missing.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import Event
from typing import IO, Any, Protocol

from mailmend.mailqueue.collection.references import ReferenceSource
from mailmend.mailqueue.rules.blob_ids import ListedBlob, MissingBlob, referred_as
from mailmend.mailqueue.rules.stored_forms import stored_as
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.errors import StateUnwritable
from mailmend.model.ids import BlobId
from mailmend.model.operations import Level, Scan
from mailmend.model.ports import Progress, Tables
from mailmend.model.table import Row
from mailmend.repair.joins.records import PART_BYTES_MAX, Record, Spill, Workshop, few_collections

REFERRERS_MAX = 10
"""How many rows are named that refer to one missing blob."""

_REPORTED = 1_000
_BLOB, _COUNT, _PART, _REFERENCE, _WANTED = range(5)


class BlobLines:
    """Blobs as lines of JSON in a file: id, when stored (ISO), size in bytes. There may be more than fit in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._file: IO[str] | None = None

    def add(self, *fields: Any) -> None:
        try:
            self._file = self._file or self.path.open("w", encoding="utf-8")
            self._file.write(json.dumps(fields) + "\n")
        except OSError as error:
            raise _no_room(self.path, error) from error
        self.count += 1

    def add_blob(self, blob: ListedBlob) -> None:
        self.add(*blob_fields(blob))

    def close(self) -> None:
        try:
            if self._file is None:
                self.path.touch()
            else:
                self._file.close()
        except OSError as error:
            raise _no_room(self.path, error) from error

    def __iter__(self) -> Iterator[list[Any]]:
        with self.path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    def blobs(self) -> Iterator[ListedBlob]:
        return (blob_of(*fields) for fields in self)


def blob_fields(blob: ListedBlob) -> tuple[str, str | None, int | None]:
    """A blob in JSON's types: the way back is `blob_of`."""
    stored_at = None
    if blob.stored_at:
        stored_at = blob.stored_at.isoformat()
    return blob.blob_id, stored_at, blob.size_bytes


def blob_of(blob_id: str, stored_at: str | None, size_bytes: int | None) -> ListedBlob:
    if stored_at:
        return ListedBlob(BlobId(blob_id), datetime.fromisoformat(stored_at), size_bytes)
    return ListedBlob(BlobId(blob_id), None, size_bytes)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a second look is about: blobs that nothing referred to, and ids that were missing."""

    candidates: BlobLines
    missing: BlobLines


class BlobLook(Protocol):
    """What one look found, kept by its scanner until closed.

    Attributes:
        listed, bytes: how many blobs were listed, and their bytes; None where the store does not tell sizes.
        references: how many each source holds.
    """

    @property
    def listed(self) -> int: ...

    @property
    def bytes(self) -> int | None: ...

    @property
    def references(self) -> Mapping[str, int]: ...

    def unreferenced(self) -> Iterator[ListedBlob]: ...

    def missing_ids(self) -> Iterator[BlobId]:
        """Ids that a first look found referred to, needed, and missing or incomplete."""
        ...

    def missing(self) -> Iterator[MissingBlob]:
        """The missing blobs of a second look, one for each row that refers to them.

        The referrers of one id follow one another, at most `REFERRERS_MAX` of them.
        """
        ...

    def close(self) -> None: ...


class BlobScanner(Protocol):
    """Reads a store's blobs with all references to them.

    Adapters: `LocalBlobScanner`, `spark_repair.blob_collection.SparkBlobScanner`.
    """

    def first(self, listing: BlobLines | None, sources: Sequence[ReferenceSource], progress: Progress) -> BlobLook:
        """Read the listing and every reference; None: the blobs are in the tables of the keyspace. Blocks."""
        ...

    def second(self, wanted: Wanted, sources: Sequence[ReferenceSource], progress: Progress) -> BlobLook:
        """The references once more, for what the first look found."""
        ...

    def interrupt(self) -> None:
        """End a look that runs in another thread: it raises some error there."""
        ...


@dataclass(frozen=True, slots=True)
class LocalBlobScanner:
    """Scans in this process alone, without Spark. Implements `BlobScanner`.

    Attributes:
        ids_max: up to this many ids, a second look keeps them in memory, and writes only references to them to the
            disk.
    """

    tables: Tables
    level: Level = Level.LOCAL_QUORUM
    part_bytes_max: int = PART_BYTES_MAX
    ids_max: int = 100_000
    _interrupted: Event = field(default_factory=Event)

    def first(self, listing: BlobLines | None, sources: Sequence[ReferenceSource], progress: Progress) -> "LocalLook":
        if listing is None:
            return self._look(self._table_records(progress), sources, progress)
        return self._look(_listing_records(listing), sources, progress)

    def second(self, wanted: Wanted, sources: Sequence[ReferenceSource], progress: Progress) -> "LocalLook":
        few = wanted.candidates.count + wanted.missing.count <= self.ids_max
        only = None
        if few:
            only = frozenset(record[0] for record in _wanted_records(wanted))
        return self._look(_wanted_records(wanted), sources, progress, only, all_missing=False)

    def interrupt(self) -> None:
        self._interrupted.set()

    @few_collections()
    def _look(
        self,
        records: Iterable[Record],
        sources: Sequence[ReferenceSource],
        progress: Progress,
        only: frozenset[str] | None = None,
        *,
        all_missing: bool = True,
    ) -> "LocalLook":
        look = LocalLook([reference_source.name for reference_source in sources], all_missing=all_missing)
        try:
            spill = Spill(look.workshop, "ids", part_bytes_max=self.part_bytes_max)
            for record in records:
                spill.add(record)
            for number, source in enumerate(sources):
                progress.stage(f"read {source.name}")
                count = 0
                for count, reference in enumerate(self._reported(source.references(), progress), start=1):  # noqa: B007
                    held_by = stored_as(reference.blob_id)
                    if only is None or held_by in only:
                        referred = (number, reference.referrer, reference.needed)
                        spill.add((held_by, _REFERENCE, *referred))
                look.references[source.name] = count
            progress.stage("compare")
            for part in spill.parts():
                look.take(part)
            look.end()
        except BaseException:
            look.close()
            raise
        return look

    def _table_records(self, progress: Progress) -> Iterator[Record]:
        for table, column, tag in ((BLOBS, "position", _COUNT), (BLOB_PARTS, "chunknumber", _PART)):
            progress.stage(f"read {table.spelling}")
            rows: Iterator[Row] = self.tables.scan(Scan(table, ("id", column), self.level))
            for row in self._reported(rows, progress):
                yield (referred_as(row["id"]), tag, row["id"], row[column])

    def _reported(self, items: Iterator[Any], progress: Progress) -> Iterator[Any]:
        for number, item in enumerate(items, start=1):
            yield item
            if number % _REPORTED == 0:
                if self._interrupted.is_set():
                    raise InterruptedError
                progress.advance(_REPORTED)


def _listing_records(listing: BlobLines) -> Iterator[Record]:
    for blob_id, stored_at, size_bytes in listing:
        yield (referred_as(blob_id), _BLOB, blob_id, stored_at, size_bytes)


def _wanted_records(wanted: Wanted) -> Iterator[Record]:
    yield from _listing_records(wanted.candidates)
    for blob_id, *_ in wanted.missing:
        yield (blob_id, _WANTED)


@dataclass(slots=True)
class _Seen:
    """All records of one id: its blobs (itself, its side-car), and who refers to it."""

    blobs: dict[str, tuple[str | None, int | None]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)
    referrers: list[tuple[int, str]] = field(default_factory=list)
    referred: bool = False
    wanted: bool = False

    def take(self, record: Record) -> None:
        tag = record[1]
        if tag == _REFERENCE:
            self.referred = True
            _, _, number, referrer, needed = record
            if needed and len(self.referrers) < REFERRERS_MAX and (number, referrer) not in self.referrers:
                self.referrers.append((number, referrer))
        elif tag == _PART:
            self.parts[record[2]] = self.parts.get(record[2], 0) + 1
        elif tag == _COUNT:
            self.counts[record[2]] = min(record[3], self.counts.get(record[2], record[3]))
        elif tag == _BLOB:
            self.blobs[record[2]] = record[3:]
        else:
            self.wanted = True

    def listed(self) -> Iterator[ListedBlob]:
        for blob_id, (stored_at, size_bytes) in self.blobs.items():
            yield blob_of(blob_id, stored_at, size_bytes)
        for blob_id in self.counts.keys() | self.parts.keys():
            yield ListedBlob(BlobId(blob_id))

    def is_whole(self, blob_id: str) -> bool:
        """In tables: as many parts as the row that counts them says; of two sizes, the first row, as in James."""
        if blob_id not in self.counts:
            return blob_id in self.blobs
        return self.parts.get(blob_id, 0) >= self.counts[blob_id]


@dataclass(slots=True)
class LocalLook:
    """Counts in memory, blobs on disk. Implements `BlobLook`."""

    sources: list[str]
    all_missing: bool
    listed: int = 0
    bytes: int | None = None
    references: Counter[str] = field(default_factory=Counter)
    workshop: Workshop = field(default_factory=Workshop)
    _unreferenced: BlobLines = field(init=False)
    _missing: BlobLines = field(init=False)

    def __post_init__(self) -> None:
        self._unreferenced = BlobLines(self.workshop.path / "unreferenced")
        self._missing = BlobLines(self.workshop.path / "missing")

    def take(self, part: list[Record]) -> None:
        found: dict[str, _Seen] = {}
        for record in part:
            if (seen := found.get(record[0])) is None:
                seen = found[record[0]] = _Seen()
            seen.take(record)
        for blob_id, seen in found.items():
            for blob in seen.listed():
                self.listed += 1
                if blob.size_bytes is not None:
                    self.bytes = (self.bytes or 0) + blob.size_bytes
                if not seen.referred:
                    self._unreferenced.add_blob(blob)
            if seen.referrers and (self.all_missing or seen.wanted) and not seen.is_whole(blob_id):
                for number, referrer in seen.referrers:
                    self._missing.add(blob_id, self.sources[number], referrer)

    def end(self) -> None:
        self._unreferenced.close()
        self._missing.close()

    def unreferenced(self) -> Iterator[ListedBlob]:
        return self._unreferenced.blobs()

    def missing_ids(self) -> Iterator[BlobId]:
        return (BlobId(blob_id) for blob_id, _ in groupby(self._missing, itemgetter(0)))

    def missing(self) -> Iterator[MissingBlob]:
        return (MissingBlob(BlobId(blob_id), source, referrer) for blob_id, source, referrer in self._missing)

    def close(self) -> None:
        self.workshop.close()


def _no_room(path: Path, error: OSError) -> StateUnwritable:
    return StateUnwritable(
        f"cannot write to {path.parent}: {error.strerror or error}",
        mend="Free some space, or name another folder in the environment variable TMPDIR.",
    )
