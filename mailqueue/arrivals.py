"""Mails that come to a queue from elsewhere: removed ones that are restored, and those that leave another queue."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from mailmend.mailqueue.rules.mails import Listed, Mail, MailBlobs
from mailmend.model.ids import EnqueueId


@dataclass(frozen=True, slots=True)
class RemovedMail:
    """A mail that was removed and is to come back.

    Attributes:
        was: its id before.
        due_at: when it is due, if not at once.
    """

    was: EnqueueId
    mail: Mail
    content: bytes
    due_at: datetime | None = None


class RestoreResult(Enum):
    """What it took to bring a mail back."""

    PUT = "put"  # everything: nothing was there
    PUBLISH = "publish"  # its message again: its row was there
    NOTHING = "nothing"  # it is back already, or was and has left since
    STAYS = "stays"  # it never left


class Restoring(Protocol):
    """Brings removed mails back, each once, however often that is repeated."""

    async def restore(self, removed: RemovedMail) -> RestoreResult:
        """Bring a mail back under the id that follows from its old one (`model.ids.restored_id`).

        Raises:
            WrongUse: James could not read such a mail; nothing was put anywhere.
            Delayed: it is delayed, and delays are not possible here.
            CannotReach, PublishFailed: some of it may be there; the same again goes on from that.
        """
        ...


class Arrivals(Protocol):
    """Takes in mails that leave another queue, each once, however often that is repeated."""

    async def had(self, ids: Collection[EnqueueId]) -> frozenset[EnqueueId]:
        """Which of them this queue had before: a mail that came under such an id would be taken for a removed one.

        Raises:
            CannotReach: that cannot be known.
        """
        ...

    async def keep(self, content: bytes) -> MailBlobs:
        """Store a mail's bytes where this queue has them."""
        ...

    async def put(self, listed: Listed, *, again: bool = False) -> None:
        """Put a mail under its id, with its story: the same due time, attempts, and time of enqueueing.

        Args:
            listed: the mail; its bytes are kept.
            again: whether this may have been done before. Then it is done only if it was not,
                whichever consumer had the mail since: it must have been named when the arrivals
                were opened.

        Raises:
            CannotReach, PublishFailed: it may be there; the same again, with `again`, goes on from that.
        """
        ...

    async def end(self) -> None:
        """Forget what told which mails came: all of them did.

        Raises:
            CannotReach: that is still kept; the same again forgets it.
        """
        ...
