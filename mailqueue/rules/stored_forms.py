"""What a store may hold other than the bytes of a mail: blobs that James packed, or encrypted.

*Packed*: James's compaction puts many blobs of an old generation into one object, a chunk. Rows
then refer to a slot of it: `FAMILY_GENERATION_chunkRANDOM~OFFSET~LENGTH`. A slot begins with its
offset and the CRC-32C of its content; lines of metadata follow, an empty line, and the content.

*Encrypted*: James's AES makes each blob a stream of Tink: a byte with the header's length (40), a
salt and a nonce at random, then segments of 4,096 bytes that each end with a tag of 16.

Source: `ChunkId`, `ChunkFormat`, `ChunkMarker` and `AESBlobStoreDAO` of James, September 2026;
docs/adr/0075.
"""

import re
import struct
from functools import cache
from typing import Final, NamedTuple

from mailmend.model.errors import BlobEncrypted, BlobsUnreachable
from mailmend.model.ids import BlobId

CHUNK: Final = "[0-9]+_[0-9]+_chunk[A-Za-z0-9_-]{16,}"
"""The form of a chunk's id, for regular expressions of Python and of Spark."""

SLOT: Final = f"^({CHUNK})~[0-9]+~[0-9]+$"
"""The form of a reference to a slot; its group is the chunk."""

_CHUNK: Final = re.compile(CHUNK)
_SLOT: Final = re.compile(f"({CHUNK})~([0-9]+)~([0-9]+)")
_HEAD: Final = struct.Struct(">qI")
_POLYNOMIAL: Final = 0x82F63B78

_TINK_HEADER_BYTES: Final = 40
_SEGMENT_BYTES: Final = 4_096
_TAG_BYTES: Final = 16
_IN_NO_MAIL: Final = frozenset(range(0x20)).union({0x7F}) - frozenset(b"\t\n\f\r\x0e\x0f\x1b")


class Slot(NamedTuple):
    """A part of a chunk: where it begins, and its length in bytes."""

    chunk: BlobId
    offset: int
    length: int

    @property
    def name(self) -> str:
        return f"{self.chunk}~{self.offset}~{self.length}"


def slot_of(blob_id: str) -> Slot | None:
    """The slot that an id refers to; None for an id of an object of its own."""
    found = _SLOT.fullmatch(blob_id)
    if found is None:
        return None
    return Slot(BlobId(found[1]), int(found[2]), int(found[3]))


def is_chunk(blob_id: str) -> bool:
    """Whether the object under the id holds many blobs."""
    return _CHUNK.fullmatch(blob_id) is not None


def stored_as(blob_id: str) -> BlobId:
    """The id of the object that holds the blob: its chunk's for a packed one, else its own."""
    slot = slot_of(blob_id)
    if slot is None:
        return BlobId(blob_id)
    return slot.chunk


def content_in(slot: Slot, stored: bytes) -> bytes:
    """The bytes of a packed blob.

    Args:
        slot: where it is.
        stored: that part of its chunk.

    Raises:
        BlobsUnreachable: the part is cut off, damaged, compressed, or of another form.
    """
    if not slot.length:
        raise _unread(slot, "its reference names no length")
    if len(stored) < slot.length:
        raise _unread(slot, f"its chunk ends after {len(stored):,} bytes of it")
    if slot.length <= _HEAD.size:
        raise _unread(slot, f"{slot.length} bytes are shorter than any slot")
    offset, checksum = _HEAD.unpack_from(stored)
    if offset != slot.offset:
        raise _unread(slot, f"another slot is there, which begins at {offset:,}")
    content = _after_metadata(slot, stored[_HEAD.size :])
    if crc32c(content) != checksum:
        raise _unread(slot, "its checksum is another one")
    return content


def _after_metadata(slot: Slot, content: bytes) -> bytes:
    while not content.startswith(b"\n"):
        line, _, rest = content.partition(b"\n")
        name, is_named, value = line.partition(b"=")
        if not is_named:
            return content
        if name.lower() == b"content-encoding":
            raise _unread(slot, f"it is compressed ({value.decode('ascii', 'replace')})")
        content = rest
    return content[1:]


def refuse_chunk(blob_id: BlobId) -> None:
    """Refuse an object of many blobs where the bytes of a mail are asked for.

    Raises:
        BlobsUnreachable: the id is a chunk's.
    """
    if is_chunk(blob_id):
        raise BlobsUnreachable(
            f"the blob {blob_id} is a chunk of many blobs",
            mend="A row refers to a slot of it: CHUNK~OFFSET~LENGTH.",
        )


def refuse_encrypted(blob_id: BlobId, content: bytes) -> None:
    """Refuse bytes that James encrypted.

    Raises:
        BlobEncrypted: they have the form of James's AES.
    """
    if is_encrypted(content):
        raise BlobEncrypted(blob_id)


def is_encrypted(content: bytes) -> bool:
    """Whether bytes have the form of James's AES: header, whole tags, a salt that is in no mail.

    Of 1,000 salts, 15 hold only bytes that a mail may have. Of 10,000 mails, 2 have two such salts.
    """
    if len(content) < _TINK_HEADER_BYTES + _TAG_BYTES or content[0] != _TINK_HEADER_BYTES:
        return False
    last = len(content) % _SEGMENT_BYTES  # the first segment holds the header
    if 0 < last < _TAG_BYTES:
        return False
    return not _IN_NO_MAIL.isdisjoint(content[1:_TINK_HEADER_BYTES])


def crc32c(content: bytes) -> int:
    """The checksum of Castagnoli, as Java's `CRC32C` counts it."""
    table = _table()
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum = table[(checksum ^ byte) & 0xFF] ^ (checksum >> 8)
    return checksum ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    found = []
    for number in range(256):
        checksum = number
        for _ in range(8):
            carry = checksum & 1
            checksum = (checksum >> 1) ^ (_POLYNOMIAL * carry)
        found.append(checksum)
    return tuple(found)


def _unread(slot: Slot, why: str) -> BlobsUnreachable:
    return BlobsUnreachable(
        f"the packed blob {slot.name} is not read: {why}",
        mend="Can James read the message? Its own consumers take what mailmend does not read.",
    )
