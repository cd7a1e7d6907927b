"""Which blobs of a store may be removed, because nothing refers to them any more. Pure.

A blob that is left is a leak, one that goes too early is lost mail. So what is not understood stays, and what may yet
be referred to stays as well: a writer stores a blob first and refers to it afterwards, and the same bytes stored again
in one generation are the same blob. Once a generation and the one after it are over, no writer makes that id again.
Source: `GenerationAwareBlobId` and `MinIOGenerationAwareBlobId` of James; docs/adr/0026.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.errors import WrongUse
from mailmend.model.ids import BlobId

AGE_MIN: Final = timedelta(days=1)
"""The age that a blob must have before it may be collected, whatever its id says."""

SIDE_CAR: Final = "recovery/"
"""The prefix of side-cars: blobs under a header's id that hold the body's id, for James's recovery (JAMES-4209)."""

_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# SHA-256 in the spellings that James's `james.blob.id.hash.encoding` knows.
_HASH: Final = "[A-Za-z0-9_-]{43}=?|[A-Za-z0-9+/]{43}=?|[0-9a-fA-F]{64}|[0-9A-Z]{52}(?:={4})?"
_PLAIN: Final = re.compile(rf"(?:(\d{{1,9}})_(\d{{1,12}})_)?(?:({_UUID})|{_HASH})")
_IN_FOLDERS: Final = re.compile(r"(\d{1,9})/(\d{1,12})/(.)/(.)/(.+)")


class BlobVerdict(Enum):
    """The judgement on a blob."""

    KEEP = "KEEP"  # something refers to it
    COLLECT = "COLLECT"  # nothing does, and nothing can any more
    TOO_YOUNG = "TOO_YOUNG"  # nothing does yet
    UNKNOWN_PREFIX = "UNKNOWN_PREFIX"  # nothing does, and its id is none that James or mailmend makes now
    MISSING = "MISSING"  # referred to, and not there


class ListedBlob(NamedTuple):
    """A blob as its store lists it; a field is None where the store does not tell it."""

    blob_id: BlobId
    stored_at: datetime | None = None
    size_bytes: int | None = None


class MissingBlob(NamedTuple):
    """A blob that is missing or lacks parts, with one reference to it: the source's name and the row's key."""

    blob_id: BlobId
    source: str
    referrer: str


class BlobName(NamedTuple):
    """What a blob's id tells: family and generation, if any, and whether no other content can have the same id."""

    family: int | None
    generation: int | None
    by_content: bool


def referred_as(blob_id: str) -> str:
    """The id by which a blob is referred to: the id of its header for a side-car, its own for all others."""
    return blob_id.removeprefix(SIDE_CAR)


def blob_name(blob_id: str) -> BlobName | None:
    """Parse the id; None where it has none of James's forms."""
    plain = referred_as(blob_id)
    if found := _IN_FOLDERS.fullmatch(plain):
        plain = f"{found[1]}_{found[2]}_{found[3]}{found[4]}{found[5]}"
    if not (found := _PLAIN.fullmatch(plain)):
        return None
    family, generation = (None if part is None else int(part) for part in found.group(1, 2))
    return BlobName(family, generation, by_content=found[3] is None)


@dataclass(frozen=True, slots=True)
class CollectionRule:
    """When a blob that nothing refers to may be removed.

    Attributes:
        now: the present time; it must not be ahead of any writer's clock.
        family, generation: James's `deduplication.gc.generation.family` and `.duration`.
        min_age: the least time since the blob was stored.
    """

    now: datetime
    family: int = 1
    generation: timedelta = timedelta(days=30)
    min_age: timedelta = AGE_MIN

    def __post_init__(self) -> None:
        if self.min_age < AGE_MIN:
            raise WrongUse(
                f"blobs younger than {self.min_age} cannot be collected",
                mend="A writer stores a blob before it refers to it: name a day or more.",
            )

    @property
    def stored_before(self) -> datetime:
        return self.now - self.min_age

    def verdict(self, blob: ListedBlob) -> BlobVerdict:
        """The judgement on a blob that nothing refers to."""
        name = blob_name(blob.blob_id)
        if name is None or name.family not in {None, self.family}:
            return BlobVerdict.UNKNOWN_PREFIX
        stored_at = blob.stored_at
        if name.generation is not None:
            if name.generation + 1 >= self._current:
                return BlobVerdict.TOO_YOUNG
            stored_at = stored_at or self._end_of(name.generation)
        if stored_at is None or stored_at >= self.stored_before:
            return BlobVerdict.TOO_YOUNG
        return BlobVerdict.COLLECT

    def is_as_planned(self, blob: ListedBlob, stored_at: datetime) -> bool:
        """Whether a blob of a plan may be collected: it was not stored again since, and the rule still says so.

        Times are compared to the second: a store's answer about a single blob leaves out the fractions of a listing.
        """
        is_same = blob.stored_at is not None and abs(stored_at - blob.stored_at) < timedelta(seconds=1)
        return is_same and self.verdict(blob) is BlobVerdict.COLLECT

    def depends_on_age(self, blob: ListedBlob) -> bool:
        """Whether the blob counts as too young only because its store did not tell when it was stored."""
        if blob.stored_at is not None or self.verdict(blob) is not BlobVerdict.TOO_YOUNG:
            return False
        return self.verdict(blob._replace(stored_at=EPOCH)) is BlobVerdict.COLLECT

    def may_come_again(self, blob: ListedBlob) -> bool:
        """Whether a writer may make that id at any time: it is made of the content, and no generation ends.

        A blob that was stored after its generation was over counts as such: its writer may have longer generations, or
        it was restored from a backup.
        """
        name = blob_name(blob.blob_id)
        if name is None or not name.by_content or name.generation is None:
            return name is None or name.by_content
        return blob.stored_at is not None and blob.stored_at >= self._end_of(name.generation)

    @property
    def _current(self) -> int:
        return (self.now - EPOCH) // self.generation

    def _end_of(self, generation: int) -> datetime:
        return EPOCH + (generation + 1) * self.generation
