"""The ids of blobs as James makes them, and which blobs may be removed because nothing refers to them any more. Pure.

*Ids* are made of family, generation, and a random UUID or the hash of what is named. A blob under a
random id may be deleted with its mail. Blobs under ids made of their bytes are deduplicated, so
only a collector that knows every reference may delete them. The id shows which kind it is. A
doubtful id counts as made of bytes: a blob that is left is a leak, but one that is deleted too
early is lost mail.

*Removing*: what is not understood stays, and what may yet be referred to stays as well: a writer
stores a blob first and refers to it afterwards, and the same bytes stored again in one generation
are the same blob. Once a generation and the one after it are over, no writer makes that id again.
Source: `HashBlobId`, `GenerationAwareBlobId` and `MinIOGenerationAwareBlobId` of James;
docs/adr/0026.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.mailqueue.rules.stored_forms import is_chunk, slot_of
from mailmend.model.errors import BadPayload, WrongUse
from mailmend.model.ids import BlobId

ID_BYTES_MAX: Final = 240
"""The longest id that is accepted, in bytes; James's have 36 to 60, S3 allows 1024."""

_MICROSECOND: Final = timedelta(microseconds=1)
_UNITS: Final = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# The family and generation may be missing; a store for MinIO writes slashes, and two more into what follows.
_RANDOM: Final = re.compile(rf"(?:\d+_\d+_|\d+/\d+/)?({_UUID})|\d+/\d+/([0-9a-f])/([0-9a-f])/([0-9a-f-]{{34}})")
_SPELLING: Final = re.compile(r"[A-Za-z0-9_.,:@~+=/-]+")
_PREFIXED: Final = re.compile(r"(\d+)[_/](\d+)[_/].+")
_DOTS: Final = re.compile(r"(?:^|/)\.{1,2}(?:/|$)")


class BlobsMode(Enum):
    """What `put` makes ids of: random numbers, or the content."""

    RANDOM = "random"
    DEDUPLICATED = "deduplicated"


class HashSpelling(Enum):
    """How a hash is spelled in an id: both spellings are read, the configured one is written."""

    BASE64URL = "base64url"  # James's default after 3.8
    BASE64 = "base64"  # James 3.8: its `/` makes folders of it


@dataclass(frozen=True, slots=True)
class BlobNaming:
    """How blobs are named. The defaults are James's, except for the mode, whose blobs are deleted with their mails.

    Attributes:
        family: James's `deduplication.gc.generation.family`.
        generation: James's `deduplication.gc.generation.duration`.
    """

    mode: BlobsMode = BlobsMode.RANDOM
    spelling: HashSpelling = HashSpelling.BASE64URL
    family: int = 1
    generation: timedelta = timedelta(days=30)

    def __post_init__(self) -> None:
        if self.family < 1 or self.generation < timedelta(seconds=1):
            raise WrongUse(
                f"blobs cannot be named in family {self.family} with generations of {self.generation}",
                mend="A family is 1 or more, a generation lasts at least a second; James's defaults are 1 and 30 days.",
            )

    def name(self, content: bytes, micros: int, chance: UUID) -> BlobId:
        """The id for new content; `micros` is the time in microseconds since 1970, `chance` the random part."""
        generation = micros * _MICROSECOND // self.generation
        if self.mode is BlobsMode.RANDOM:
            tail = str(chance)
        else:
            tail = spelled(hashlib.sha256(content).digest(), self.spelling)
        return BlobId(f"{self.family}_{generation}_{tail}")


def naming_of(stored: Sequence[tuple[BlobId, int]]) -> BlobNaming:
    """Find out how a writer names its blobs; `stored` holds (id, microseconds since 1970), the newest blob first.

    A single random id means random naming, as such a writer deletes blobs with their mails and must share none. The
    length of a generation is derived from the newest blob: where several fit, the default is taken, else the one that
    is a whole number of the largest unit. Packed blobs are left out.
    """
    stored = [(blob_id, micros) for blob_id, micros in stored if not slot_of(blob_id)]
    mode = BlobsMode.DEDUPLICATED
    spelling = HashSpelling.BASE64URL
    for blob_id, _ in stored:
        if not is_deduplicated(blob_id):
            mode = BlobsMode.RANDOM
        tail = blob_id[_prefix_length(blob_id) :]
        if "+" in tail or ("/" in tail and "_" in blob_id):
            spelling = HashSpelling.BASE64
    naming = BlobNaming(mode, spelling)
    for blob_id, micros in stored:
        found = _PREFIXED.fullmatch(blob_id)
        if found and int(found[1]):
            length = _generation(int(found[2]), micros * _MICROSECOND)
            return replace(naming, family=int(found[1]), generation=length)
    return naming


def _prefix_length(blob_id: BlobId) -> int:
    """The length of an id's family and generation, with their separators; 0 for an id without them."""
    found = _PREFIXED.fullmatch(blob_id)
    if found is None:
        return 0
    return found.end(2) + 1


def _generation(number: int, age: timedelta) -> timedelta:
    """A length whose generation of that number holds the instant (since 1970)."""
    default = BlobNaming().generation
    if age // default == number or not 0 < number <= age // _UNITS[-1]:
        return default
    for unit in _UNITS:
        length = age // number // unit * unit
        if length and age // length == number:
            return length
    return default


def spelled(digest: bytes, spelling: HashSpelling) -> str:
    """A hash in James's spelling, with its padding."""
    encode = base64.urlsafe_b64encode if spelling is HashSpelling.BASE64URL else base64.standard_b64encode
    return encode(digest).decode("ascii")


def is_deduplicated(blob_id: BlobId) -> bool:
    """Whether others may refer to the same blob: all ids but those that end in a UUID."""
    found = _RANDOM.fullmatch(blob_id)
    return found is None or (found[1] is None and not re.fullmatch(_UUID, f"{found[2]}{found[3]}{found[4]}"))


def is_blob_id(text: str) -> bool:
    return len(text) <= ID_BYTES_MAX and bool(_SPELLING.fullmatch(text)) and not _DOTS.search(text)


def checked(text: str) -> BlobId:
    """The text as the id of a blob.

    Raises:
        BadPayload: no store makes such ids.
    """
    if not is_blob_id(text):
        raise BadPayload(
            f"{text[:ID_BYTES_MAX]!r} is not the id of a blob",
            mend=f"An id is 1 to {ID_BYTES_MAX} letters, digits and _.,:@~+=/-; none of its parts is '.' or '..'.",
        )
    return BlobId(text)


AGE_MIN: Final = timedelta(days=1)
"""The age that a blob must have before it may be collected, whatever its id says."""

SIDE_CAR: Final = "recovery/"
"""The prefix of side-cars: blobs under a header's id that hold the body's id, for James's recovery (JAMES-4209)."""


# SHA-256 in the spellings that James's `james.blob.id.hash.encoding` knows.
_HASH: Final = "[A-Za-z0-9_-]{43}=?|[A-Za-z0-9+/]{43}=?|[0-9a-fA-F]{64}|[0-9A-Z]{52}(?:={4})?"
_PLAIN: Final = re.compile(rf"(?:(\d{{1,9}})_(\d{{1,12}})_)?(?:({_UUID})|{_HASH})")
_IN_FOLDERS: Final = re.compile(r"(\d{1,9})/(\d{1,12})/(.)/(.)/(.+)")


class BlobVerdict(Enum):
    """The judgement on a blob."""

    KEEP = "KEEP"  # something refers to it
    COLLECT = "COLLECT"  # nothing does, and nothing can any more
    TOO_YOUNG = "TOO_YOUNG"  # nothing does yet
    PACKED = "PACKED"  # a chunk that nothing refers to: James's compaction removes it
    UNKNOWN_PREFIX = "UNKNOWN_PREFIX"  # nothing does, and neither James nor mailmend makes such ids now
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
    family = None
    generation = None
    if found[1] is not None:
        family = int(found[1])
        generation = int(found[2])
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
        """The judgement on a blob that nothing refers to.

        A chunk stays: James writes it before rows refer to it, under the id of an old generation.
        """
        if is_chunk(blob.blob_id):
            return BlobVerdict.PACKED
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
