"""What passes between a queue and its broker and blob store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

from model.ids import BlobId

SLICE_HEADER: Final = "x-mailmend-slice"
"""The header of our own messages with the start of their row's slice, in milliseconds since 1970 (an integer)."""

ATTEMPTS_HEADER: Final = "x-mailmend-attempts"
"""The header of our own messages with how often the mail was tried before (an integer)."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is published: a body, and headers beside those that James sets."""

    body: bytes
    headers: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Depth:
    """The broker's side of a queue, as counts: it cannot be searched.

    Attributes:
        ready: messages that wait, all levels together.
        unacked: messages delivered and not acked yet; None where the broker's HTTP API is not set up.
        delivery_limit: after so many returns the broker dead-letters a message; None: never, or not known.
        alarms: what is short, and on which node, so that the broker takes no new messages; none where not known.
        dead_limit: after so many returns the broker drops a dead letter; None: never, not known, or there is none.
    """

    ready: int
    unacked: int | None
    consumers: int
    dead: int
    delivery_limit: int | None = None
    alarms: tuple[str, ...] = ()
    dead_limit: int | None = None


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
