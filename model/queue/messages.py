"""Values that a queue exchanges with its broker and its blob store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from model.ids import BlobId

SLICE_HEADER: Final = "x-mailmend-slice"
"""A header of our own messages: the start of their row's slice, in milliseconds since 1970 (an integer)."""

ATTEMPTS_HEADER: Final = "x-mailmend-attempts"
"""A header of our own messages: how often the mail was tried before (an integer)."""


SETTLING: Final = timedelta(minutes=1)
"""How long a mail may have a row but no message yet; only after this time does it count as lost."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be published: its body, and the headers besides those that James sets."""

    body: bytes
    headers: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Depth:
    """The broker's counts of a queue.

    Attributes:
        ready: messages that wait, of all priorities together.
        unacked: messages delivered and not acked yet; None where the broker's HTTP API is not set up.
        delivery_limit: the number of returns after which the broker dead-letters a message; None: none, or not known.
        alarms: the resources that are short, with the node, so that the broker accepts no messages; empty if not known.
        dead_limit: the number of returns after which the broker drops a dead letter; None: none, or not known.
        counted: ready plus unacked messages at one instant some seconds ago, by the HTTP API; None where not known.
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
        """The number of unacked messages; 0 where there are no consumers; None where it is not known.

        RabbitMQ's HTTP API does not tell it for a queue in which little has happened yet.
        """
        return 0 if self.unacked is None and not self.consumers else self.unacked

    def lacking(self, settled: int) -> int | None:
        """A lower bound of the mails that have no message; None where the unacked messages are not known.

        A dead letter may belong to a mail that waits, or to one that waits no longer.
        """
        without = self.without_message(settled)
        return None if without is None else max(0, without - self.dead)

    def without_message(self, settled: int) -> int | None:
        """The mails without a message in the queue, at the least; dead letters may be theirs.

        Each message belongs to at most one mail. A message that was delivered after the HTTP API counted is no longer
        ready and not yet unacked, so the larger of the present sum and `counted` is used.

        Args:
            settled: the number of waiting mails that were enqueued at least `SETTLING` ago.
        """
        if self.in_hands is None:
            return None
        return max(0, settled - max(self.ready + self.in_hands, self.counted or 0))


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
