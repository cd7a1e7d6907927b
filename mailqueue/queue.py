"""What a mail queue is to whoever puts mails in, takes them out, or looks after it; nothing here says what carries it.

Implementations: `mailqueue.rabbitmq.mail_queue` (RabbitMQ with its view in Cassandra), `mailqueue.memory`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import TracebackType
from typing import Final, Protocol, Self

from mailqueue.health import QueueFigures
from model.errors import WrongUse
from model.ids import EnqueueId, QueueName
from model.queue.filters import EVERYTHING, MailFilter
from model.queue.mails import DELAY_MAX, Listed, Mail, QueuedMail, Whereabouts
from model.queue.positions import ListingPosition
from model.queue.size import Size

PREFETCH: Final = 5
"""James's own."""

DELAYED: Final = MailFilter(whereabouts=Whereabouts.DELAYED)

OnRemoved = Callable[[Listed], Awaitable[None]]
"""Called with each mail before it is removed: whoever keeps what is deleted keeps it then."""


@dataclass(frozen=True, slots=True)
class Unremoved:
    """A mail that could not be removed, and why; it is still in its queue, or nobody knows."""

    enqueue_id: EnqueueId
    why: str


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal came to.

    Attributes:
        count: mails that are no longer in the queue (or would not be, after a dry run); each counted once.
        failed: those that could not be removed.
    """

    count: int = 0
    failed: tuple[Unremoved, ...] = ()


@dataclass(frozen=True, slots=True)
class Delays:
    """Delayed mails: how many, and when the first and the last of them are due; None where that is not known."""

    count: int = 0
    earliest_at: datetime | None = None
    latest_at: datetime | None = None


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
    """What bringing a mail back took."""

    PUT = "put"  # all of it: nothing was there
    PUBLISH = "publish"  # a message, for its row was there
    NOTHING = "nothing"  # it is back, or was and has left since
    STAYS = "stays"  # it never left


class Dequeued(Protocol):
    """A mail to be worked on, until it is acked, retried or rejected: exactly one of them, once.

    Attributes:
        queued: the mail's passage through the queue.
        content: header and body together, as they were enqueued.
        attempts: how often it was tried before, as far as is known.
        redelivered: whether somebody may have had it before.
    """

    queued: QueuedMail
    content: bytes
    attempts: int
    redelivered: bool

    @property
    def mail(self) -> Mail:
        """The mail."""
        ...

    @property
    def enqueue_id(self) -> EnqueueId:
        """This passage's name."""
        ...

    async def ack(self) -> None:
        """It is done with: it is never delivered again, once this returns.

        Raises:
            WrongUse: it was settled before.
            CannotReach: that could not be written; the mail will be delivered again.
        """
        ...

    async def retry(self, delay: timedelta | None = None, error_message: str | None = None) -> None:
        """Deliver it again later: after the delay, or a wait that doubles with each try, from a minute to 4 hours.

        Where mails cannot be delayed it comes again after a pause of some seconds.

        Args:
            delay: None for the wait.
            error_message: kept with the mail.

        Raises:
            WrongUse: it was settled before, or the delay is too long; then the mail is still unacked.
            Delayed: a delay was given, and mails cannot be delayed here; the mail is still unacked.
            CannotReach: the delayed mail could not be written; it will be delivered again.
        """
        ...

    async def reject(self) -> None:
        """It goes to the dead letters, and out of the queue's listings; its bytes stay.

        Raises:
            WrongUse: it was settled before.
            CannotReach: that could not be told; it will be delivered again.
        """
        ...


class Restoring(Protocol):
    """Brings removed mails back, each once, however often that is begun again."""

    async def restore(self, removed: RemovedMail) -> RestoreResult:
        """Bring a mail back under the id that follows from its old one (`model.ids.restored_id`).

        Raises:
            WrongUse: James could not read such a mail; nothing was put anywhere.
            Delayed: it is delayed, and delays are not possible here.
            CannotReach, PublishFailed: some of it may be there; the same again goes on from that.
        """
        ...


class MailQueue(Protocol):
    """One queue, as one process has it: an asynchronous context, and leaving that closes the queue."""

    name: QueueName

    async def enqueue(
        self,
        mail: Mail,
        content: bytes,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> EnqueueId:
        """Put a mail into the queue; when this returns it is there, and after an error it is not.

        Args:
            mail: the envelope.
            content: the mail as it is on the wire: header, blank line, body.
            delay: not before so long from now.
            at: not before this instant.
            priority: 0, the last, to 9, the first; None: as the mail's attribute says, else 5.

        Raises:
            WrongUse: a delay, instant or priority that cannot be, or a mail that James could not read.
            Delayed: a delay, where mails cannot be delayed.
            CannotReach, PublishFailed: it is not in the queue; where it could not be undone, the message says what is
                left.
        """
        ...

    def dequeue(
        self, prefetch: int = PREFETCH, *, priorities: Collection[int] | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Dequeued]]:
        """Take mails, each to be acked, retried or rejected; what is not, when the context is left, comes again.

        Args:
            prefetch: how many of each level are unacked at once; the only pressure back.
            priorities: which levels; None: all that there are, urgent ones more often.
        """
        ...

    def browse(self, where: MailFilter = EVERYTHING, after: ListingPosition | None = None) -> AsyncIterator[Listed]:
        """The mails in the queue without their bytes: those that wait, then the delayed ones."""
        ...

    async def content(self, listed: Listed) -> bytes:
        """A listed mail's bytes.

        Raises:
            BlobMissing: they are lost, or the mail is gone by now.
            BlobsUnreachable: the store does not answer.
        """
        ...

    async def size(self) -> Size:
        """How many mails wait and are delayed, and how sure that is."""
        ...

    async def delete(self, where: MailFilter, *, dry_run: bool = False, on_removed: OnRemoved | None = None) -> Removed:
        """Remove the mails that are meant, delayed ones too; none of them is delivered afterwards.

        One that is unacked at that moment may still be finished by its consumer.

        Args:
            where: which.
            dry_run: only count.
            on_removed: called with each before it is removed; where it raises nothing further is.

        Raises:
            CannotReach: the listing broke off; what was removed stays removed.
        """
        ...

    async def purge(self, *, dry_run: bool = False, on_removed: OnRemoved | None = None) -> Removed:
        """Remove every mail; as `delete`."""
        ...

    async def flush(self, *, dry_run: bool = False) -> int:
        """Every delayed mail is delivered now; how many they were (or would be, after a dry run).

        Raises:
            LeaseHeld: another process kept moving delayed mails.
            CannotReach: what was moved stays moved.
        """
        ...

    async def restoring(self, removed: Collection[EnqueueId]) -> Restoring:
        """Look for removed mails, before they are brought back: one listing for all.

        Args:
            removed: their old ids.

        Raises:
            CannotReach: the tables do not answer.
        """
        ...

    async def figures(self) -> QueueFigures:
        """One look at the queue: what its health (`mailqueue.health.judged`) and its metrics are made of.

        Raises:
            CannotReach: the tables do not answer.
        """
        ...

    async def maintain(self, stop: asyncio.Event) -> None:
        """Do what a served queue needs in the background, until `stop` is set."""
        ...

    async def close(self) -> None:
        """Finish what is under way."""
        ...

    async def __aenter__(self) -> Self:
        """The queue."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        ...


def due_time(now: datetime, delay: timedelta | None, at: datetime | None) -> datetime | None:
    """When a mail is due that was asked for then; None for at once.

    Raises:
        WrongUse: it cannot be said, or is too far ahead.
    """
    if delay is not None and at is not None:
        raise WrongUse("a mail has either a delay or a time, not both", mend="Give one of them.")
    if at is not None and at.tzinfo is None:
        raise WrongUse(f"{at} names no time zone", mend="Give an instant in UTC.")
    wait = at.astimezone(UTC) - now if at is not None else delay or timedelta(0)
    if wait > DELAY_MAX:
        raise WrongUse(
            f"a delay of {wait.days} days is more than {DELAY_MAX.days}", mend="Enqueue the mail nearer to its time."
        )
    return now + wait if wait > timedelta(0) else None


async def delays(listing: AsyncIterator[Listed], until: datetime | None = None) -> Delays:
    """The delayed mails of a listing, in the order of their times; with `until` only those that are due by then."""
    count, earliest, latest = 0, None, None
    async for listed in listing:
        if until is not None and listed.due_at is not None and listed.due_at > until:
            break
        count, earliest, latest = count + 1, earliest or listed.due_at, listed.due_at
    return Delays(count, earliest, latest)
