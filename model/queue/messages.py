"""What passes between a queue and its broker and blob store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from model.ids import BlobId

SLICE_HEADER: Final = "x-mailmend-slice"
"""The header of our own messages with the start of their row's slice, in milliseconds since 1970 (an integer)."""

ATTEMPTS_HEADER: Final = "x-mailmend-attempts"
"""The header of our own messages with how often the mail was tried before (an integer)."""


SETTLING: Final = timedelta(minutes=1)
"""How long a mail may be between its row and its message; a younger one is not yet called lost."""


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
        counted: ready and unacked at one instant some seconds ago, by the HTTP API; None where it does not tell.
    """

    ready: int
    unacked: int | None
    consumers: int
    dead: int
    delivery_limit: int | None = None
    alarms: tuple[str, ...] = ()
    dead_limit: int | None = None
    counted: int | None = None

    @property
    def in_hands(self) -> int | None:
        """Unacked messages; 0 where there are no consumers, even if the broker does not tell.

        RabbitMQ's HTTP API does not tell it of a queue in which little has happened yet.
        """
        return 0 if self.unacked is None and not self.consumers else self.unacked

    def lacking(self, settled: int) -> int | None:
        """The least number of mails without a message; None where unacked messages are not known.

        A message or dead letter belongs to one mail at most. What was delivered since the HTTP API counted is no longer
        ready, and not yet unacked: so what it counted then is taken where that is more.

        Args:
            settled: mails that wait, and were enqueued `SETTLING` before or earlier.
        """
        if self.in_hands is None:
            return None
        return max(0, settled - max(self.ready + self.in_hands, self.counted or 0) - self.dead)


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
