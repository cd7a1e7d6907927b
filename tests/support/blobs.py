"""Ids of blobs for tests: every form that James makes, and what is none."""

import base64
import hashlib

UUID_TEXT = "0f9a3c1e-7b0d-4c55-9a51-2f60d4a8c7e1"
HASH_URL = "_Zl1mZEsOtz8d7Mq-oN1BYXEMtnV83LRGoH2DcUcCgs="
HASH = "/Zl1mZEsOtz8d7Mq+oN1BYXEMtnV83LRGoH2DcUcCgs="

RANDOM_IDS = (f"1_692_{UUID_TEXT}", UUID_TEXT, f"12_7_{UUID_TEXT}", f"1/692/0/f/{UUID_TEXT[2:]}", f"1/692/{UUID_TEXT}")
"""The ids of blobs that belong to one mail: as James 3.8 to 3.9 make them, without a generation, for MinIO."""

SHARED_IDS = (
    f"1_692_{HASH}",
    f"1_692_{HASH_URL}",
    "1_692_Zl1//mZEsOtz8d7Mq+oN1BYXEMtnV83LRGoH2DcUcCgs=",  # one in a hundred
    "1_692_Zl1/mZEsOtz8d7Mq+oN1BYXEMtnV83LRGoH2DcUcCgs=",  # and another one than that
    "1_692_////////////////////////////////////////////=",
    "1_692_/Zl1mZEsOtz8d7Mq+oN1BYXEMtnV83LRGoH2DcUcCg/",
    f"1/692/Z/l/{HASH_URL[2:]}",
    f"1_692_{HASH_URL[:22]}",  # 128 bits of a random number or of a hash: nobody can tell
    "66597567" * 8,
)
"""The ids of blobs that others may refer to: every spelling, folders of every kind, and what cannot be told."""

BAD_IDS = (
    "", ".", "..", "../x", "a/../b", "a/./b", "a/..", "./a", "a b", "a\n", "a\0b", "\x7f", "é", "a\\b", "a?b", "a#b",
    "a%2Fb", "x" * 241, "/" * 241,
)  # fmt: skip


def blob_id(content: str, generation: int | None = 600) -> str:
    """As James names deduplicated blobs; None: without a generation."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return digest if generation is None else f"1_{generation}_{digest}"
