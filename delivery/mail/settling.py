"""What follows when all entries of a mail have ended: who is told what, and what comes again when.

Only attempts that were refused for now are counted: waiting for a pickup policy is no attempt. The age of a mail runs
on whatever it waits for, so it may expire while it is deferred or active; only what is held does not.

Source: docs/design.md, "Pickup" (12).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

from mailmend.delivery.mail.attempts import RecipientResult
from mailmend.delivery.mail.entries import (
    HELD_FOR,
    DeliveryEntry,
    EndedEntry,
    EntryAction,
    EntryChange,
    EntryEnd,
    OutgoingMail,
)
from mailmend.delivery.mail.notices import NoticeKind, RecipientNotice
from mailmend.model.errors import WrongUse

_DIGEST_BYTES: Final = 8
_DIGESTS: Final = 256**_DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class RetryInterval:
    """How long a mail waits before it is tried again.

    Attributes:
        notify: whether its sender is told at the beginning of the wait that the mail is delayed.
    """

    wait: timedelta
    notify: bool = False


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """The waits between attempts, and how long a mail is tried.

    Attributes:
        intervals: after the first attempt that was refused for now, the second, ...; the last one repeats.
        count: how often a mail is tried again; None: as often as its age allows.
        longest_age: after its first enqueueing a mail that names no expiry of its own has failed.
        jitter: the part of an interval, 0 to 1, by which it may be longer.
    """

    intervals: tuple[RetryInterval, ...]
    count: int | None = None
    longest_age: timedelta = timedelta(days=5)
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not self.intervals or min(self.longest_age, *(interval.wait for interval in self.intervals)) <= timedelta():
            raise WrongUse(
                "the intervals and the age of a schedule of retries are longer than nothing", mend="As in 1m,15m,1h."
            )
        if not 0 <= self.jitter <= 1:
            raise WrongUse(f"a jitter of {self.jitter:g} is not a part from 0 to 1")
        if self.count is not None and self.count < 0:
            raise WrongUse(f"{self.count} is no number of retries", mend="0 tries every mail once.")

    def interval(self, refusals: int) -> RetryInterval:
        """The one after that many attempts that were refused for now; 1 or more."""
        return self.intervals[min(refusals, len(self.intervals)) - 1]

    def expires_at(self, first_seen_at: datetime, own: datetime | None) -> datetime:
        """When a mail has failed; its own expiry counts, whether it is sooner or later."""
        return own or first_seen_at + self.longest_age

    def after(self, refusals: int, now: datetime, expires_at: datetime, spread: float) -> datetime | None:
        """When a mail is tried again that was refused for now, or has expired; None where that was the last attempt.

        Args:
            refusals: attempts that were refused for now, this one included.
            now: when it was refused.
            expires_at: when the mail has failed; no wait goes beyond.
            spread: which part of the jitter its wait has, from 0 up to 1 (`spread_of`).
        """
        if now >= expires_at or (self.count is not None and refusals > self.count):
            return None
        wait = self.interval(refusals).wait * (1 + self.jitter * spread)
        return min(now + wait, expires_at)


DEFAULT_SCHEDULE: Final = RetrySchedule(
    (
        RetryInterval(timedelta(minutes=1)),
        RetryInterval(timedelta(minutes=15)),
        RetryInterval(timedelta(hours=1), notify=True),
        RetryInterval(timedelta(hours=2)),
        RetryInterval(timedelta(hours=3)),
    ),
    jitter=0.1,
)
"""As MTAs have it: soon at first, then every 3 hours, for the 5 days of RFC 5321 4.5.4.1."""


def spread_of(*parts: object) -> float:
    """A number from 0 up to, but not including, 1 that follows from these parts alone, evenly spread over many."""
    digest = blake2b("\0".join(map(str, parts)).encode(), digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(digest) / _DIGESTS


@dataclass(frozen=True, slots=True)
class MailSettlement:
    """What is to be done before a mail may leave its queue.

    Attributes:
        notices: what its sender is told, by recipient.
        again: entries that come again, by when.
        untold: failures of a mail without a sender, by recipient: it is a report mostly, and only a
            postmaster can be told.
    """

    notices: Sequence[RecipientNotice]
    again: Mapping[datetime, Sequence[DeliveryEntry]]
    untold: Sequence[RecipientNotice] = ()


def ended_by(
    result: RecipientResult,
    entry: DeliveryEntry,
    at: datetime,
    *,
    arrives: bool,
) -> EndedEntry:
    """How an entry ends by a result, at the time that the journal has.

    Args:
        result: of its attempt.
        entry: with what the server said.
        at: when it ended.
        arrives: whether the server is the recipients' own (LMTP).
    """
    reply = result.reply
    end = EntryEnd.REFUSED
    if result.delivered:
        end = EntryEnd.DELIVERED
    elif reply.permanent:
        end = EntryEnd.FAILED
    why = ""
    if reply.ours:
        why = reply.text
    return EndedEntry(entry, end, at, reply.status, why, result.tells and not arrives, arrives)


def without_attempt(entry: DeliveryEntry, now: datetime, expires_at: datetime) -> EndedEntry | None:
    """How an entry ends that is not to be tried now: held, to be bounced, or not due; None where it is to be tried.

    What has expired waits for no time of its own: it is given up.
    """
    if entry.is_held:
        return EndedEntry(entry, EntryEnd.RETURNED, now, wait=HELD_FOR)
    if entry.order and entry.order.action is EntryAction.BOUNCE:
        return EndedEntry(replace(entry, reply="", host=""), EntryEnd.FAILED, now, why=entry.order.reason)
    if entry.due_at and entry.due_at > now and expires_at > now:
        return EndedEntry(entry, EntryEnd.RETURNED, now, wait=entry.due_at - now)
    return None


def as_ordered(mail: OutgoingMail, entry: DeliveryEntry, change: EntryChange, now: datetime) -> EndedEntry | None:
    """How an entry ends by what was ordered while it was active, in place of its next attempt; None where it goes on.

    The same again changes nothing, so it may be carried out twice.
    """
    if change.is_void(entry, now):
        return None
    behind = change.of(entry, None, mail.expires_at)
    if behind is None:
        return EndedEntry(entry, EntryEnd.DELETED, now, why=change.reason)
    if behind == entry:
        return None
    ended = without_attempt(behind, now, HELD_FOR + now)
    if ended is None:
        return None
    return replace(ended, why=change.reason, changed=True)


def all_as_ordered(
    mail: OutgoingMail,
    ended: Iterable[EndedEntry],
    changes: Mapping[int, EntryChange],
    schedule: RetrySchedule,
    now: datetime,
) -> list[EndedEntry]:
    """How entries end by what was ordered meanwhile, by their numbers: only what would come again is changed."""
    expires_at = schedule.expires_at(mail.first_seen_at, mail.expires_at)
    found = list[EndedEntry]()
    for entry in ended:
        change = changes.get(entry.entry.id.number)
        again_at, counted = _next(mail, entry, schedule, now, expires_at)
        ordered = None
        if change and again_at:
            ordered = as_ordered(mail, counted, change, now)
        found.append(ordered or entry)
    return found


def settlement_of(
    mail: OutgoingMail, ended: Iterable[EndedEntry], schedule: RetrySchedule, now: datetime
) -> MailSettlement:
    """What follows from how each of a mail's entries has ended.

    Entries that were refused equally often come again together, as do those that come again within
    a second. That follows from when they were refused, as the journal of attempts has it: a server
    that settles the mail again, after a crash, puts the same entries together.
    """
    notices = list[RecipientNotice]()
    again = dict[datetime, list[DeliveryEntry]]()
    untold = list[RecipientNotice]()
    expires_at = schedule.expires_at(mail.first_seen_at, mail.expires_at)
    entries = list(ended)
    refused_at = _refused_at(entries)
    for entry in entries:
        since = now
        if entry.end is EntryEnd.REFUSED:
            since = refused_at[entry.entry.refusals, entry.journalled]
        again_at, counted = _next(mail, entry, schedule, since, expires_at)
        if again_at:
            again.setdefault(_whole_second(again_at), []).append(counted)
        kind = _kind_of(entry, schedule, again_at)
        if kind and mail.sender and entry.entry.notifies(kind):
            notices.append(_notice(kind, entry, expires_at))
        if kind is NoticeKind.FAILED and not mail.sender:
            untold.append(_notice(kind, entry, expires_at))
    return MailSettlement(notices, again, tuple(untold))


def _refused_at(ended: Iterable[EndedEntry]) -> Mapping[tuple[int, bool], datetime]:
    """When the last of the entries was refused that were refused equally often before, and are journalled or not."""
    found = dict[tuple[int, bool], datetime]()
    for entry in ended:
        if entry.end is EntryEnd.REFUSED:
            alike = (entry.entry.refusals, entry.journalled)
            found[alike] = max(entry.at, found.get(alike, entry.at))
    return found


def _whole_second(at: datetime) -> datetime:
    """Rounded up."""
    if at.microsecond == 0:
        return at
    return at.replace(microsecond=0) + timedelta(seconds=1)


def _next(
    mail: OutgoingMail, ended: EndedEntry, schedule: RetrySchedule, now: datetime, expires_at: datetime
) -> tuple[datetime | None, DeliveryEntry]:
    """When it comes again, if it does, and the entry as it comes."""
    entry = ended.entry
    match ended.end:
        case EntryEnd.REFUSED:
            counted = replace(entry, refusals=entry.refusals + 1, due_at=None)
            if ended.wait is not None and now < expires_at:
                return min(now + ended.wait, expires_at), counted
            spread = spread_of(mail.id, counted.refusals)
            return schedule.after(counted.refusals, now, expires_at, spread), counted
        case EntryEnd.RETURNED if entry.is_held:  # the only state in which nothing expires
            return ended.at + (ended.wait or HELD_FOR), entry
        case EntryEnd.RETURNED:
            due_at = ended.at + (ended.wait or timedelta())
            return max(now, min(due_at, expires_at)), entry
        case EntryEnd.DELIVERED | EntryEnd.FAILED | EntryEnd.EXPIRED | EntryEnd.DELETED:
            return None, entry


def _kind_of(ended: EndedEntry, schedule: RetrySchedule, again_at: datetime | None) -> NoticeKind | None:
    """What the sender is told of an entry that comes again then, or never."""
    match ended.end:
        case EntryEnd.DELIVERED if ended.arrived:
            return NoticeKind.DELIVERED
        case EntryEnd.DELIVERED if not ended.tells:
            return NoticeKind.RELAYED
        case EntryEnd.FAILED | EntryEnd.EXPIRED:
            return NoticeKind.FAILED
        case EntryEnd.REFUSED | EntryEnd.RETURNED if again_at is None:
            return NoticeKind.FAILED
        case EntryEnd.REFUSED if ended.wait is None and schedule.interval(ended.entry.refusals + 1).notify:
            return NoticeKind.DELAYED
        case EntryEnd.DELIVERED | EntryEnd.REFUSED | EntryEnd.RETURNED | EntryEnd.DELETED:
            return None


def _notice(kind: NoticeKind, ended: EndedEntry, expires_at: datetime) -> RecipientNotice:
    entry = ended.entry
    return RecipientNotice(
        kind=kind,
        recipient=entry.recipient,
        status=ended.status or _STATUS[kind],
        original=entry.original,
        reply=entry.reply,
        host=entry.host,
        why=ended.why,
        attempted_at=ended.at,
        retry_until=expires_at,
        expired=kind is NoticeKind.FAILED and ended.end is not EntryEnd.FAILED,
    )


_STATUS = {
    NoticeKind.FAILED: "5.0.0",
    NoticeKind.DELAYED: "4.0.0",
    NoticeKind.RELAYED: "2.0.0",
    NoticeKind.DELIVERED: "2.0.0",
}
