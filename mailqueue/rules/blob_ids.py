"""The ids of blobs as James makes them: family, generation, and a random UUID or the hash of what is named.

A blob under a random id may be deleted with its mail. Blobs under ids made of their bytes are deduplicated, so only a
collector that knows every reference may delete them. The id shows which kind it is. A doubtful id counts as made of
bytes: a blob that is left is a leak, but one that is deleted too early is lost mail.
Source: `HashBlobId`, `GenerationAwareBlobId` and `MinIOGenerationAwareBlobId` of James.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Final
from uuid import UUID

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
        tail = (
            str(chance) if self.mode is BlobsMode.RANDOM else spelled(hashlib.sha256(content).digest(), self.spelling)
        )
        return BlobId(f"{self.family}_{generation}_{tail}")


def naming_of(stored: Sequence[tuple[BlobId, int]]) -> BlobNaming:
    """Find out how a writer names its blobs; `stored` holds (id, microseconds since 1970), the newest blob first.

    A single random id means random naming, as such a writer deletes blobs with their mails and must share none. The
    length of a generation is derived from the newest blob: where several fit, the default is taken, else the one that
    is a whole number of the largest unit.
    """
    mode = BlobsMode.DEDUPLICATED if all(is_deduplicated(blob_id) for blob_id, _ in stored) else BlobsMode.RANDOM
    named = [(_PREFIXED.fullmatch(blob_id), blob_id, micros) for blob_id, micros in stored]
    tails = [(blob_id[found.end(2) + 1 :] if found else blob_id) for found, blob_id, _ in named]
    standard = any(
        "+" in tail or ("/" in tail and "_" in blob_id) for tail, (_, blob_id, _) in zip(tails, named, strict=True)
    )
    naming = BlobNaming(mode, HashSpelling.BASE64 if standard else HashSpelling.BASE64URL)
    for found, _, micros in named:
        if found and int(found[1]):
            length = _generation(int(found[2]), micros * _MICROSECOND)
            return replace(naming, family=int(found[1]), generation=length)
    return naming


def _generation(number: int, age: timedelta) -> timedelta:
    """A length whose generation of that number holds the instant (since 1970)."""
    default = BlobNaming().generation
    if age // default == number or not 0 < number <= age // _UNITS[-1]:
        return default
    lengths = (age // number // unit * unit for unit in _UNITS)
    return next((length for length in lengths if length and age // length == number), default)


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
