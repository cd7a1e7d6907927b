"""Blobs as James's compaction and its AES store them."""

import struct
from collections.abc import Sequence

from mailmend.mailqueue.rules.stored_forms import crc32c
from mailmend.model.ids import BlobId

CHUNK = BlobId("1_600_chunkAb3_ef1-34567890QwErTy")


def slot_bytes(content: bytes, offset: int, metadata: bytes = b"") -> bytes:
    """A slot: where it begins, its checksum, its lines of metadata and an empty one, the content."""
    return struct.pack(">qI", offset, crc32c(content)) + metadata + b"\n" + content


def packed(contents: Sequence[bytes], chunk: BlobId = CHUNK) -> tuple[bytes, list[BlobId]]:
    """A chunk of these contents, and a reference to each."""
    written = bytearray(b"\x01")
    starts = []
    references = []
    for content in contents:
        slot = slot_bytes(content, len(written))
        starts.append(len(written))
        references.append(BlobId(f"{chunk}~{len(written)}~{len(slot)}"))
        written += slot
    footer = ",".join(map(str, starts)).encode()
    trailer = struct.pack(">iq", len(footer), len(written))
    return bytes(written) + footer + trailer, references


def encrypted(content: bytes, salt: bytes = bytes(range(39))) -> bytes:
    """Bytes of the form of James's AES: the header of Tink, and a tag in each segment; nothing is hidden by it."""
    written = bytearray(b"\x28" + salt)
    room = 4_096 - 40 - 16
    rest = content
    while True:
        written += rest[:room] + b"\xee" * 16
        rest = rest[room:]
        room = 4_096 - 16
        if not rest:
            return bytes(written)
