"""Blobs: the bytes of mails under their ids, and the interfaces of stores that keep them."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from mailmend.model.errors import MailmendError
from mailmend.model.ids import BlobId


class BlobKind(Enum):
    """What a blob holds; a store may keep them apart."""

    HEADER = "header"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob as its store lists it; `stored_at` in UTC."""

    blob_id: BlobId
    size_bytes: int
    stored_at: datetime


class Blobs(Protocol):
    """The bytes of mails. Adapters are in `mailqueue.blobs`, a twin in tests."""

    async def put(self, data: bytes, kind: BlobKind) -> BlobId:
        """Keep the bytes durably and return their id.

        Raises:
            BlobsUnreachable: the store does not answer, or takes nothing.
        """
        ...

    async def put_all(self, contents: Sequence[tuple[bytes, BlobKind]]) -> Sequence[BlobId]:
        """Keep the bytes of one mail as `put` does, in as few requests as the store can.

        The ids are in the order of the contents.
        After an error, and where the caller is cancelled, what was kept is deleted again.

        Raises:
            BlobsUnreachable: the store does not answer, or does not take all of them.
        """
        ...

    async def get(self, blob_id: BlobId) -> bytes:
        """The bytes under the id.

        Raises:
            BlobMissing: there are no bytes.
            BlobsUnreachable: the store does not answer.
        """
        ...

    async def get_all(self, blob_ids: Sequence[BlobId]) -> Sequence[bytes]:
        """The bytes of one mail as `get` has them, in order, in as few requests as the store can.

        Raises:
            BlobMissing: there are no bytes under one of the ids.
            BlobsUnreachable: the store does not answer.
        """
        ...

    async def delete(self, blob_id: BlobId) -> None:
        """Delete the bytes, if there are any. Deduplicated blobs are left alone: others may refer to them.

        Raises:
            BlobsUnreachable: the store does not answer.
        """
        ...

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        """Delete the bytes of many, as `delete` does, in as few requests as the store can.

        Raises:
            BlobsUnreachable: the store does not answer; some may be left.
            BadPayload: some are no ids; all the others are forgotten.
        """
        ...

    async def exists(self, blob_id: BlobId) -> bool:
        """Whether there are bytes under the id."""
        ...


class BlobStore(Protocol):
    """A store of bytes under any id. Adapters are in `mailqueue.blobs`, a twin in tests.

    Every method may raise `BlobsUnreachable`.
    """

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        """Keep the bytes durably, all or nothing, in place of what is there."""
        ...

    async def keep_all(self, blobs: Mapping[BlobId, bytes]) -> Sequence[MailmendError | None]:
        """Keep the bytes of several, as `keep` does; None, or the error, for each one in order."""
        ...

    async def get(self, blob_id: BlobId) -> bytes:
        """The bytes; `BlobMissing` where there are no bytes."""
        ...

    async def get_all(self, blob_ids: Sequence[BlobId]) -> Sequence[bytes]:
        """The bytes of several, in order; `BlobMissing` where one of them is not there."""
        ...

    async def part(self, blob_id: BlobId, offset: int, length: int) -> bytes:
        """Some of the bytes, fewer where they end before; `BlobMissing` where there is no blob."""
        ...

    async def remove(self, blob_id: BlobId) -> None:
        """Delete the bytes, even if others refer to them; none there is fine."""
        ...

    async def remove_all(self, blob_ids: Sequence[BlobId]) -> None:
        """Delete the bytes of many distinct ids, as `remove` does; after an error some may be left."""
        ...

    async def exists(self, blob_id: BlobId) -> bool:
        """Whether there are bytes."""
        ...

    async def stored_at(self, blob_id: BlobId) -> datetime | None:
        """When the bytes were stored last, by the store's clock; None where there are no bytes."""
        ...

    def scan(self) -> AsyncIterator[StoredBlob]:
        """Every blob, page by page, in no order."""
        ...
