"""The interface of a mail queue, for code that enqueues, dequeues or maintains; independent of what carries it.

Mails also come to a queue from elsewhere: removed ones that are restored, and those that leave
another queue. Implementations: `mailqueue.rabbitmq.mail_queue` (RabbitMQ with its view in
Cassandra), `mailqueue.memory`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import TracebackType
from typing import Final, Protocol, Self

from mailmend.mailqueue.codec import BrokenRow
from mailmend.mailqueue.comparison import Redriven, Upkeep
from mailmend.mailqueue.metrics import FigureScope, QueueFigures, TrafficSums
from mailmend.mailqueue.rules.backlogs import SubQueueName
from mailmend.mailqueue.rules.mails import (
    DELAY_MAX,
    EVERYTHING,
    Listed,
    ListingPosition,
    Mail,
    MailBlobs,
    MailFilter,
    QueuedMail,
    Whereabouts,
)
from mailmend.mailqueue.rules.size import Size
from mailmend.model.errors import Delayed, UnsafeRequest, WrongUse
from mailmend.model.ids import EnqueueId, QueueName


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


PREFETCH: Final = 5
"""James's default: how many mails of each level a consumer holds unacked."""

WAITING: Final = MailFilter(whereabouts=Whereabouts.WAITING)
DELAYED: Final = MailFilter(whereabouts=Whereabouts.DELAYED)

OnBroken = Callable[[BrokenRow], None]


def passed_over(_: BrokenRow) -> None:
    """Do nothing about a row that no mail can be made of."""


OnRemoved = Callable[[Listed], Awaitable[None]]
"""Called with each mail before it is removed, so that the caller can keep a copy of it."""


@dataclass(frozen=True, slots=True)
class FailedMail:
    """A mail that could not be removed, changed or moved, and why; it may still be in its queue."""

    enqueue_id: EnqueueId
    why: str


@dataclass(frozen=True, slots=True)
class AffectedMails:
    """The mails that a removal or a change affected, or would affect without its dry run.

    Attributes:
        count: mails that are no longer in the queue, or that are changed; each counted once.
        failed: mails that could not be removed or changed. A mail that could not be changed may be in
            the queue twice: the copy that is due first is delivered, and with its ack the other is gone.
    """

    count: int = 0
    failed: tuple[FailedMail, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedMail:
    """A delayed mail as it is to be; its bytes stay."""

    mail: Mail
    due_at: datetime


MailChange = Callable[[Listed], ChangedMail | None]
"""What becomes of a delayed mail; None: it stays as it is. It may be asked again of what it has changed."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Delayed mails: how many, and when the first and the last of them are due; None without delayed mails."""

    count: int = 0
    earliest_at: datetime | None = None
    latest_at: datetime | None = None

    @classmethod
    def of(cls, due_at: Collection[datetime]) -> Self:
        return cls(len(due_at), min(due_at, default=None), max(due_at, default=None))

    def __add__(self, other: "Delays") -> "Delays":
        instants = (self.earliest_at, self.latest_at, other.earliest_at, other.latest_at)
        known = [at for at in instants if at]
        return replace(Delays.of(known), count=self.count + other.count)


IDS_MAX: Final = 500_000
"""How many mails are held in memory at once, about half a KiB each; more is refused."""


def refuse_too_many(held: int, what: str, limit: int = IDS_MAX) -> None:
    """Bound what is held in memory.

    Raises:
        UnsafeRequest: more would be held than the limit allows.
    """
    if held > limit:
        raise UnsafeRequest(
            f"there are more than {limit:,} {what}, the maximum number of ids held in memory",
            mend="Allow more with --ids-max (about half a KiB each).",
        )


LackingMail = Callable[[QueuedMail], Awaitable[Mail | None]]
"""A dead letter's mail for those recipients that lack it; None: every recipient has it."""


async def all_lack_it(queued: QueuedMail) -> Mail | None:
    """Nothing is known of deliveries."""
    return queued.mail


SubQueueOf = Callable[[QueuedMail], SubQueueName]
"""Names the sub-queue of a mail by its envelope: of each, a consumer holds a bounded number of
mails."""


class Dequeued(Protocol):
    """A mail to be worked on, until it is acked, retried or rejected: exactly one of them, once.

    Attributes:
        queued: the mail's passage through the queue.
        content: header and body together, as they were enqueued.
        attempts: how often it was tried before, as far as is known.
        redelivered: whether a consumer may have had it before.
    """

    queued: QueuedMail
    content: bytes
    attempts: int
    redelivered: bool

    @property
    def mail(self) -> Mail: ...

    @property
    def enqueue_id(self) -> EnqueueId: ...

    async def listed(self) -> Listed:
        """The mail with its story: since when it is in the queue, how often it was tried.

        Raises:
            CannotReach: the tables do not answer; the mail is still unacked.
        """
        ...

    async def leave(self) -> None:
        """As `ack`, of a mail that goes on elsewhere: it never comes again, whatever its broker may forget."""
        ...

    async def ack(self) -> None:
        """Once this returns, the mail is never delivered again.

        Raises:
            WrongUse: it was settled before.
            CannotReach: that could not be written; the mail will be delivered again.
        """
        ...

    async def retry(self, delay: timedelta | None = None, error_message: str | None = None) -> None:
        """Deliver it again after the delay, or a wait that doubles with each try, from a minute to 4 hours.

        Where mails cannot be delayed, it comes again after some seconds.

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
        """Send it to the dead letters and remove it from the listings; its bytes stay.

        Raises:
            WrongUse: it was settled before.
            CannotReach: the broker did not get it; it will be delivered again.
        """
        ...


class MailQueue(Protocol):
    """One queue in one process: an asynchronous context; leaving it closes the queue.

    The queues of every broker are derived from this class, and share what it carries out.
    """

    name: QueueName

    @property
    def keeps_backlogs(self) -> bool:
        """Whether mails of a sub-queue that does not move can wait in a table."""
        return False

    @property
    def backlog_sizes(self) -> Mapping[SubQueueName, int]:
        """How many mails wait in backlogs of this process, at most; nothing is read for it."""
        return {}

    async def enqueue(
        self,
        mail: Mail,
        content: bytes,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        known_as: EnqueueId | None = None,
        was_queued: bool = False,
    ) -> EnqueueId:
        """When this returns the mail is in the queue; after an error it is not, unless its id was chosen.

        Args:
            mail: the envelope.
            content: the mail as it is on the wire: header, blank line, body.
            delay: the shortest time until its delivery.
            at: not before this instant.
            priority: 0, the last, to 9, the first; None: as the mail's attribute says, else 5.
            known_as: its id, for callers who do the same again after an error or a crash; None: a new id. However often
                that is, it is one mail: over RabbitMQ it is not delivered again once it was acked. Over Pulsar a copy
                may come under its id, so callers have to know by the id what is done.
            was_queued: whether the mail came out of this queue. Its envelope is kept as it is, also where a new mail
                with such an envelope is refused.

        Raises:
            WrongUse: a delay, instant or priority that cannot be, a mail that James could not read, or a new one whose
                envelope no queue has room for.
            Delayed: a delay, where mails cannot be delayed.
            CannotReach, PublishFailed: it is not in the queue; where it could not be undone, the message says what is
                left.
        """
        ...

    def dequeue(
        self,
        prefetch: int = PREFETCH,
        *,
        priorities: Collection[int] | None = None,
        bytes_max: int | None = None,
        sub_queue_of: SubQueueOf | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[Dequeued]]:
        """Take mails, each to be acked, retried or rejected; the others come again after the context.

        Args:
            prefetch: how many of each level are unacked at once.
            priorities: which levels; None: all, urgent ones more often.
            bytes_max: how many bytes of contents are held at once; further ones are loaded as mails are settled. One
                that is larger comes alone. None: there is no bound but the prefetch.
            sub_queue_of: names the sub-queue of each mail. Of a sub-queue whose mails do not leave,
                a bounded number is held, and the others wait in a table (`keeps_backlogs`). None:
                mails come as the broker has them.
        """
        ...

    def browse(
        self, where: MailFilter = EVERYTHING, after: ListingPosition | None = None, *, on_broken: OnBroken = passed_over
    ) -> AsyncGenerator[Listed]:
        """The mails in the queue without their bytes: the waiting ones, then the delayed ones.

        Args:
            where: which.
            after: what was seen last.
            on_broken: called with each row that no mail can be made of.
        """
        ...

    async def content(self, listed: Listed) -> bytes:
        """A listed mail's bytes.

        Raises:
            BlobMissing: they are lost, or the mail is gone by now.
            BlobsUnreachable: the store does not answer.
        """
        ...

    async def size(self) -> Size:
        """How many mails wait and are delayed, and whether that is exact."""
        ...

    async def recount(self) -> int:
        """Count every mail, and correct the counts that the size is summed from.

        Returns:
            How many stretches of the queue could not be counted: something changed there, or a process that counts
            there may still report. They can be counted again in ten minutes.
        """
        ...

    async def delete(
        self, where: MailFilter, *, dry_run: bool = False, on_removed: OnRemoved | None = None
    ) -> AffectedMails:
        """Remove the matching mails, delayed ones too; none of them is delivered after this.

        A mail that is unacked at that moment may still be finished by its consumer.

        Args:
            where: which.
            dry_run: remove nothing; `on_removed` is called with each that would be.
            on_removed: called with each before it is removed; where it raises nothing further is.

        Raises:
            CannotReach: the listing broke off; what was removed stays removed.
        """
        ...

    async def purge(self, *, dry_run: bool = False, on_removed: OnRemoved | None = None) -> AffectedMails:
        """Remove every mail, and over topics every dead letter; as `delete`."""
        return await self.delete(EVERYTHING, dry_run=dry_run, on_removed=on_removed)

    async def change(
        self,
        change: MailChange,
        *,
        dry_run: bool = False,
        on_change: OnRemoved | None = None,
        on_changed: Callable[[Listed], None] | None = None,
    ) -> AffectedMails:
        """Change envelopes and times of delayed mails, each where it is; waiting ones are left alone.

        Args:
            change: asked of each delayed mail.
            dry_run: change nothing; `on_changed` is called with each that would be.
            on_change: called with each before it is changed; where it raises nothing further is.
            on_changed: called with each, as it was, once it is changed.

        Raises:
            LeaseHeld: another process kept moving delayed mails.
            CannotReach: the listing broke off; what was changed stays changed.
        """
        ...

    async def flush(self, *, dry_run: bool = False) -> Delays:
        """Deliver every delayed mail now; return how many, and when they were due. A dry run only looks.

        Raises:
            LeaseHeld: another process kept moving delayed mails.
            CannotReach: what was moved stays moved.
        """
        ...

    async def move_due(self, *, dry_run: bool = False) -> int:
        """One round of what `maintain` repeats: deliver the delayed mails whose time has come; how many they were.

        Raises:
            CannotReach: what was moved stays moved.
        """
        ...

    async def return_backlogs(self) -> int:
        """Publish again the mails of backlogs that no consumer owns; how many they were.

        Raises:
            CannotReach, PublishFailed: what was returned stays returned.
        """
        return 0

    async def redrive(
        self,
        limit: int | None = None,
        where: MailFilter = EVERYTHING,
        *,
        dry_run: bool = False,
        ids_max: int = IDS_MAX,
        lacking: LackingMail = all_lack_it,
    ) -> Redriven:
        """Put dead letters back into their queue, each under its id; where it is in the queue, it is not put again.

        Args:
            limit: the largest number of dead letters to take.
            where: which; those that do not match stay. Of the conditions those on the envelope and
                the id hold, because it is not recorded since when a dead letter's mail was in its
                queue.
            dry_run: only look.
            ids_max: how many mails of the queue are held in memory; more is refused.
            lacking: says which recipients of a dead letter lack the mail; the others are left out.

        Raises:
            LeaseHeld: another process does the same.
            UnsafeRequest: the queue holds more mails than that, or to look would lose some.
            CannotReach, PublishFailed: what is back stays back; the same again goes on from there.
        """
        ...

    async def maintain(self, stop: asyncio.Event) -> None:
        """Run the background work of a served queue until `stop` is set."""
        ...

    async def close(self) -> None:
        """Finish running work."""
        ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class MaintainedQueue(MailQueue, Protocol):
    """The same queue, for code that maintains it, measures it, or moves mails between queues."""

    async def keep_up(self, *, dry_run: bool = False) -> Upkeep:
        """One round of the rest of what `maintain` repeats: clean up what is no longer needed, keep what still is.

        Raises:
            CannotReach: what was done stays done.
        """
        ...

    async def restoring(self, removed: Collection[EnqueueId]) -> Restoring:
        """Look for removed mails before they are brought back: one listing for all.

        Args:
            removed: their old ids.

        Raises:
            CannotReach: the tables do not answer.
        """
        ...

    async def arrivals(self, move: str, doubtful: Collection[EnqueueId]) -> Arrivals:
        """Begin to take in mails of another queue, or go on with it.

        Args:
            move: names the move, the same each time it goes on; letters and digits.
            doubtful: which mails may have been put before, by a process that was interrupted.

        Raises:
            CannotReach: tables or broker do not answer.
        """
        ...

    async def figures(self, scope: FigureScope = FigureScope.ALL) -> QueueFigures:
        """The figures for the queue's health (`mailqueue.metrics.judged`) and its metrics.

        Raises:
            CannotReach: the tables do not answer.
        """
        ...

    async def traffic_sums(self, before: TrafficSums | None = None) -> TrafficSums | None:
        """How many mails came and went, as far back as `before` goes; None where they are not counted."""
        ...


def due_time(now: datetime, delay: timedelta | None, at: datetime | None) -> datetime | None:
    """When the mail is due; None for at once.

    Raises:
        WrongUse: it cannot be said, or is too far ahead.
    """
    if delay is not None and at is not None:
        raise WrongUse("a mail has either a delay or a time, not both", mend="Give one of them.")
    if at is not None and at.tzinfo is None:
        raise WrongUse(f"{at} names no time zone", mend="Give an instant in UTC.")
    wait = delay or timedelta(0)
    if at is not None:
        wait = at.astimezone(UTC) - now
    if wait > DELAY_MAX:
        raise WrongUse(
            f"a delay of {wait.days} days is more than {DELAY_MAX.days}", mend="Enqueue the mail nearer to its time."
        )
    if wait <= timedelta(0):
        return None
    return now + wait


def no_due_mails() -> Delayed:
    return Delayed(
        "this keyspace has no table for delayed mails, dueMails",
        mend="Create it with: mailmend schema apply (James neither lists nor touches it); or give no delay.",
    )
