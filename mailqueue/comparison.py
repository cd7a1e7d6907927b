"""Compares what broker, tables and blobs say of one queue. Pure; `reconcile` does the reading.

The broker cannot be searched, so its side is numbers, unless a drain has named every message.
Traffic goes on while one looks: a mail may be placed and not yet published, or marked and not yet
acked. So numbers are called lacking or surplus only as far as they surely are, and every id that is
named was there before the look began.

What the maintenance of a queue has done, or in a dry run would do, is values as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Self

from mailmend.mailqueue.broker import SETTLING, Depth
from mailmend.mailqueue.codec import BrokenRow
from mailmend.mailqueue.rules.mails import Listed, Mail, MailBlobs, QueuedMail
from mailmend.model.errors import UnsafeRequest
from mailmend.model.ids import EnqueueId, QueueName


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep has done, or would do.

    Attributes:
        slices: that were cleaned, whether or not they held anything.
        blobs: of mails that were done with, deleted once more in case they were left.
        rescued: mails without a mark that lay before the browse start, and were put back and published.
        renewed: mails that would have expired soon, put again.
        orphan_marks: marks that this process wrote since its last sweep for mails of slices that no listing reads.
        moved_back: whether another program moved the browse start back.
        browse_start, content_start: as they are now; None: nothing was ever enqueued.
        browse_start_before, content_start_before: as they were; None where they were not set.
    """

    slices: int = 0
    rows: int = 0
    blobs: int = 0
    rescued: int = 0
    renewed: int = 0
    orphan_marks: int = 0
    moved_back: bool = False
    browse_start: datetime | None = None
    content_start: datetime | None = None
    browse_start_before: datetime | None = None
    content_start_before: datetime | None = None
    rescued_ids: tuple[EnqueueId, ...] = ()


@dataclass(frozen=True, slots=True)
class TendedDeletions:
    """What was done about the deletions of a queue over topics.

    Attributes:
        left: how many deletions are still needed.
        expired: how many messages about deletions were no longer needed.
        again: how many deleted mails were there again.
    """

    left: int = 0
    expired: int = 0
    again: int = 0


Upkeep = Swept | TendedDeletions
"""One round of what keeps a queue small and safe, except moving due mails: the work depends on the broker."""


@dataclass(slots=True)
class Redriven:
    """What became of the dead letters; in a dry run, what would become of them.

    Attributes:
        dropped: those whose mails were deleted meanwhile.
        delivered: those that were dropped because every recipient has the mail.
        recipients_skipped: recipients that have their mail, of the dead letters that are back and of those dropped.
        unreadable: those that tell of no mail; they stay where they are.
    """

    redriven: int = 0
    dropped: int = 0
    unreadable: int = 0
    delivered: int = 0
    recipients_skipped: int = 0

    @property
    def seen(self) -> int:
        return self.redriven + self.dropped + self.delivered + self.unreadable

    def add(self, queued: QueuedMail, lacking: Mail | None) -> QueuedMail | None:
        """Count a dead letter; the mail as it goes back, None where every recipient has it.

        Args:
            queued: the mail of the dead letter.
            lacking: the mail for those recipients that lack it; None: none does.
        """
        skipped = len(queued.mail.recipients)
        if lacking:
            skipped -= len(lacking.recipients)
        self.recipients_skipped += skipped
        if lacking is None:
            self.delivered += 1
            return None
        self.redriven += 1
        return replace(queued, mail=lacking)


DRAIN_MAX: Final = 50_000
"""How many messages a drain holds unacked at once: AMQP counts what is unacked in 16 bits."""


class QueueFinding(Enum):
    """What a comparison may find; each is one mail or message."""

    BROKEN_ROW = "broken_row"
    BLOB_MISSING = "blob_missing"
    LACKS_MESSAGE = "lacks_message"
    ONLY_IN_BROKER = "only_in_broker"
    BAD_MESSAGE = "bad_message"
    DEAD_LETTER = "dead_letter"


MEANINGS: Final[Mapping[QueueFinding, str]] = {
    QueueFinding.BROKEN_ROW: "a row that no mail can be read from",
    QueueFinding.BLOB_MISSING: "waits, but its bytes are gone",
    QueueFinding.LACKS_MESSAGE: "waits, but the broker will not deliver it",
    QueueFinding.ONLY_IN_BROKER: "a message whose mail has neither row nor mark",
    QueueFinding.BAD_MESSAGE: "a message that no mail can be read from",
    QueueFinding.DEAD_LETTER: "was rejected, or could not be delivered",
}


@dataclass(frozen=True, slots=True)
class LiveMail:
    """What is kept in memory of a waiting mail."""

    enqueued_at: datetime
    slice_start: datetime | None
    blobs: MailBlobs

    @classmethod
    def of(cls, listed: Listed) -> Self:
        return cls(listed.enqueued_at, listed.slice_start, listed.queued.blobs)


@dataclass(frozen=True, slots=True)
class BadMessage:
    """A message that no mail can be read from, and where it is."""

    topic: str
    place: str
    why: str


@dataclass(frozen=True, slots=True)
class TablesSide:
    """What the live slices hold, and what is not due yet; of a queue over Pulsar, what its topics hold.

    Attributes:
        live: rows without a mark, by id, from the browse start on; messages that wait.
        marked: rows that are marked and wait for the sweep: no finding; messages of deleted mails
            are no finding either.
        delayed: mails that are not due; they have no message on purpose. At most the number that
            may be held in memory.
        delayed_beyond: the number of further delayed mails; their ids are not known.
        in_backlogs: mails whose message waits in a backlog, and not at the broker.
        bad: messages that are no mails; None where messages cannot be named.
    """

    live: Mapping[EnqueueId, LiveMail]
    marked: frozenset[EnqueueId] = frozenset()
    delayed: frozenset[EnqueueId] = frozenset()
    delayed_beyond: int = 0
    in_backlogs: frozenset[EnqueueId] = frozenset()
    broken: tuple[BrokenRow, ...] = ()
    bad: tuple[BadMessage, ...] | None = None

    @property
    def delayed_count(self) -> int:
        return len(self.delayed) + self.delayed_beyond


@dataclass(frozen=True, slots=True)
class Drained:
    """Every message of the broker, named.

    Attributes:
        began_at: in UTC; a mail enqueued later than `SETTLING` before it is not called lost.
        ids: of the mails that the messages tell of.
        bad: messages, and dead letters, that no mail could be read from.
        marked: of `ids`, those that are marked: their messages will be dropped.
        delayed: of `ids`, those that are delayed, whether or not `TablesSide` holds them.
        dead: mails of the dead letters. James leaves their rows as they are, so they look as if they waited.
        mails: the mails whose ids the caller asked for.
    """

    began_at: datetime
    ids: frozenset[EnqueueId]
    bad: int = 0
    marked: frozenset[EnqueueId] = frozenset()
    delayed: frozenset[EnqueueId] = frozenset()
    dead: frozenset[EnqueueId] = frozenset()
    mails: Mapping[EnqueueId, QueuedMail] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The three sides of a queue, compared.

    Attributes:
        missing: live mails whose header or body is gone, over Pulsar delayed ones too; None: not looked at.
        lacking: how many live mails surely have no message; None where the broker does not say what is unacked.
        surplus: how many messages surely belong to no row; None in the same case.
        without_message: exactly which mails lack their message; known after a drain only.
        only_in_broker: exactly which messages have neither row nor mark; known after a drain only.
    """

    queue: QueueName
    at: datetime
    tables: TablesSide
    depth: Depth | None = None
    missing: frozenset[EnqueueId] | None = None
    drained: Drained | None = None
    lacking: int | None = None
    surplus: int | None = None
    without_message: tuple[EnqueueId, ...] = ()
    only_in_broker: tuple[EnqueueId, ...] = ()
    counts: Mapping[QueueFinding, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not any(self.counts.values())


def compared(
    queue: QueueName,
    at: datetime,
    tables: TablesSide,
    *,
    depth: Depth | None = None,
    missing: frozenset[EnqueueId] | None = None,
    drained: Drained | None = None,
) -> Reconciled:
    without, only = _named(tables, drained)
    lacking: int | None
    surplus: int | None
    if drained:
        lacking = len(without)
        surplus = len(only)
        bad = drained.bad
    else:
        lacking = _lacking(tables, depth, at)
        surplus = _surplus(tables, depth)
        bad = 0
    counts = {
        QueueFinding.BROKEN_ROW: len(tables.broken),
        QueueFinding.BLOB_MISSING: len(missing or ()),
        QueueFinding.LACKS_MESSAGE: lacking or 0,
        QueueFinding.ONLY_IN_BROKER: len(only),
        QueueFinding.BAD_MESSAGE: bad,
        QueueFinding.DEAD_LETTER: _dead_letters(depth),
    }
    return Reconciled(queue, at, tables, depth, missing, drained, lacking, surplus, without, only, counts)


def compared_topics(
    queue: QueueName, at: datetime, topics: TablesSide, depth: Depth | None, missing: frozenset[EnqueueId] | None
) -> Reconciled:
    """Of a queue over Pulsar: what lists its mails is what delivers them, so neither can lack, or have too many."""
    counts = {
        QueueFinding.BLOB_MISSING: len(missing or ()),
        QueueFinding.BAD_MESSAGE: len(topics.bad or ()),
        QueueFinding.DEAD_LETTER: _dead_letters(depth),
    }
    return Reconciled(queue, at, topics, depth, missing, lacking=0, surplus=0, counts=counts)


def _dead_letters(depth: Depth | None) -> int:
    if depth is None:
        return 0
    return depth.dead


def _named(tables: TablesSide, drained: Drained | None) -> tuple[tuple[EnqueueId, ...], tuple[EnqueueId, ...]]:
    """Mails without a message, and messages without a mail; empty without a drain."""
    if drained is None:
        return (), ()
    edge = drained.began_at - SETTLING
    seen_of = drained.ids | drained.dead | tables.in_backlogs
    without = []
    for enqueue_id, mail in tables.live.items():
        if mail.enqueued_at <= edge and enqueue_id not in seen_of:
            without.append(enqueue_id)
    broken = {row.enqueue_id for row in tables.broken}
    known = tables.live.keys() | tables.marked | tables.delayed | drained.marked | drained.delayed | broken
    return tuple(without), tuple(sorted(drained.ids - known))


def _lacking(tables: TablesSide, depth: Depth | None, at: datetime) -> int | None:
    if depth is None:
        return None
    settled = 0
    for enqueue_id, mail in tables.live.items():
        settled += mail.enqueued_at <= at - SETTLING and enqueue_id not in tables.in_backlogs
    return depth.lacking(settled)


def _surplus(tables: TablesSide, depth: Depth | None) -> int | None:
    """Messages beyond one per row, marked rows too: copies, or of mails whose rows are swept. No finding."""
    if depth is None or depth.in_hands is None:
        return None
    with_message = len(tables.live.keys() - tables.in_backlogs)
    expected = with_message + len(tables.marked) + tables.delayed_count
    return max(0, depth.ready + depth.in_hands - expected)


def refuse_drain(queue: QueueName, depth: Depth, *, forced: bool) -> None:
    """A drain takes every message without an ack and returns it; refuse where that does harm.

    Raises:
        UnsafeRequest: it would.
    """
    if max(depth.ready, depth.dead) > DRAIN_MAX:
        raise UnsafeRequest(
            f"{depth.ready:,} messages and {depth.dead:,} dead letters wait in {queue}, and a drain can hold "
            f"{DRAIN_MAX:,} of each unacked at once",
            mend="Leave --drain out: the counts are reported without it.",
        )
    if forced:
        return
    refuse_burying(queue, depth, "Leave --drain out; or say --force where none has been returned that often.")
    if depth.delivery_limit is not None:
        raise UnsafeRequest(
            f"the broker sends a message of {queue} to the dead letter queue after {depth.delivery_limit} returns, "
            "and a drain returns every message once",
            mend="Leave --drain out; or say --force where no message has been returned that often.",
        )
    if depth.consumers:
        raise UnsafeRequest(
            f"{depth.consumers} consumers take from {queue}: what is in their hands would be called lost",
            mend="Pause them first (James: stop the spooler), or say --force.",
        )


def refuse_burying(queue: QueueName, depth: Depth, mend: str) -> None:
    """Looking at dead letters returns them; refuse where the broker drops after too many returns.

    Raises:
        UnsafeRequest: it does.
    """
    if depth.dead_limit is not None:
        raise UnsafeRequest(
            f"the broker drops a dead letter of {queue} for good after {depth.dead_limit} returns, and to look at all "
            "of them returns each once",
            mend=mend,
        )


def republishable(found: Reconciled, older_than: timedelta) -> frozenset[EnqueueId] | None:
    """The ids that `--republish` publishes again: mails without a message; None: every live mail that old.

    None is the answer without a drain, when messages surely lack and it is unknown which. The set
    is empty where none surely lacks: every copy of an existing message may be delivered in addition
    to it.
    """
    if found.drained is not None:
        edge = found.at - older_than
        live = found.tables.live
        return frozenset(enqueue_id for enqueue_id in found.without_message if live[enqueue_id].enqueued_at <= edge)
    if found.lacking:
        return None
    return frozenset()


@dataclass(frozen=True, slots=True)
class Mended:
    """What was done about what was found (or would be, after a dry run).

    Attributes:
        republished: mails whose message was published again.
        marked: mails that were taken out of the queue.
        unkept: the dropped messages that no row and no file knew.
        failed: what could not be done, in sentences.
    """

    republished: int = 0
    marked: frozenset[EnqueueId] = frozenset()
    unkept: frozenset[EnqueueId] = frozenset()
    failed: tuple[str, ...] = ()


def left_after(found: Reconciled, mended: Mended) -> Mapping[QueueFinding, int]:
    """What of each kind is left, without zeros."""
    broken = {row.enqueue_id for row in found.tables.broken}
    lacked = set(found.without_message) if found.drained else found.tables.live.keys()
    settled = {
        QueueFinding.BROKEN_ROW: len(broken & mended.marked),
        QueueFinding.BLOB_MISSING: len((found.missing or frozenset()) & mended.marked),
        QueueFinding.LACKS_MESSAGE: mended.republished + len(lacked & mended.marked),
        QueueFinding.ONLY_IN_BROKER: len(set(found.only_in_broker) & mended.marked),
    }
    left: dict[QueueFinding, int] = {}
    for kind, count in found.counts.items():
        remaining = count - settled.get(kind, 0)
        if remaining > 0:
            left[kind] = remaining
    return left
