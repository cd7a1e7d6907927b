"""A mail in a queue: its envelope, the ids of its bytes, the time of its enqueueing; and which mails are meant. Pure.

Byte-compatible with James's MailQueue: the names of the fields are the names of its `Mail`, the
attributes stay the JSON texts of its AttributeValue. Source: `MailReferenceDTO` of James and its
table enqueuedMailsV4; `mailqueue.codec` renders both.

Conditions select mails, and a listing goes on from a position.
Addresses are compared as in James, without regard to case. Unlike in James, `*` stands for any
text.

Clients keep a position to read a listing page by page. It holds the sort key of the last mail that
was seen, not a count. So the next page begins right behind that mail even if mails come and go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, Self
from uuid import UUID

from mailmend.mailqueue.rules.places import MessagePlace
from mailmend.mailqueue.rules.slices import EPOCH, millis_of
from mailmend.model.durations import RETRY
from mailmend.model.errors import BadPayload, WrongUse
from mailmend.model.grammar import comparable_mailbox
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.matching import check_wildcard, text_fits
from mailmend.model.texts import cut

PRIORITY_ATTRIBUTE: Final = "MAIL_PRIORITY"
"""The attribute in which James's mails carry their priority, 0 to 9."""

PRIORITY_NORMAL: Final = 5
PRIORITIES: Final = range(10)

DELAY_MAX: Final = timedelta(days=366)
"""The longest delay of a mail."""

_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}")


def queue_name(text: str) -> QueueName:
    """Check the name of a queue.

    >>> queue_name("outgoing")
    'outgoing'
    >>> queue_name("to be sent")
    Traceback (most recent call last):
    WrongUse: 'to be sent' is not the name of a queue

    Raises:
        WrongUse: no queue can have this name.
    """
    if not _QUEUE_NAME.fullmatch(text):
        raise WrongUse(
            f"{text!r} is not the name of a queue",
            mend="A name starts with a letter or digit, and holds at most 100 letters, digits, '.', '-', '_' and '@'.",
        )
    return QueueName(text)


@dataclass(frozen=True, slots=True)
class RecipientHeader:
    """A header that is added to the mail for one recipient only."""

    recipient: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail without its bytes.

    Attributes:
        name: the name that the sending program gave the mail; not unique.
        sender: None for the null sender.
        state: the processor (of James) that the mail waits for; the first is `root`.
        last_updated: time of the last change, in UTC.
        attributes: name to the JSON text of an AttributeValue, `{"serializer": ..., "value": ...}`.
    """

    name: str
    recipients: tuple[str, ...]
    sender: str | None = None
    state: str = "root"
    error_message: str | None = None
    remote_addr: str = "127.0.0.1"
    remote_host: str = "localhost"
    last_updated: datetime | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    recipient_headers: tuple[RecipientHeader, ...] = ()

    def tried(self, now: datetime, error_message: str | None) -> Self:
        """The mail behind an attempt: with what was said of it, as far as every store can keep that."""
        kept = self.error_message
        if error_message:
            kept = cut(error_message)
        return replace(self, last_updated=now, error_message=kept)


@dataclass(frozen=True, slots=True)
class MailBlobs:
    """Where a mail's bytes are: the header with the blank line after it, and the body."""

    header: BlobId
    body: BlobId


@dataclass(frozen=True, slots=True)
class QueuedMail:
    """A mail in a queue, with its enqueue id and the place of its bytes."""

    enqueue_id: EnqueueId
    mail: Mail
    blobs: MailBlobs


class Whereabouts(Enum):
    """Whether a mail waits in its queue or is delayed, by the tables."""

    WAITING = "waiting"  # a row without a mark
    DELAYED = "delayed"  # a row of dueMails: not before its time


LOOKS: Final = (Whereabouts.DELAYED, Whereabouts.WAITING, Whereabouts.DELAYED)
"""The order in which mails are searched where none may be missed.

A mail that becomes due during the first step waits by the second; one that its consumer delays again during the
second is delayed by the third."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A mail as listings of a queue show it.

    Attributes:
        enqueued_at: in UTC.
        slice_start: the slice of its row in enqueuedMailsV4; None while it is delayed.
        due_at: when a delayed mail is due; None for one that waits.
        attempts: how often it was tried; None where that is not known.
        place: where its message is, of a queue that is listed from its topics.
    """

    queued: QueuedMail
    enqueued_at: datetime
    whereabouts: Whereabouts = Whereabouts.WAITING
    slice_start: datetime | None = None
    due_at: datetime | None = None
    attempts: int = 0
    place: MessagePlace | None = None

    @classmethod
    def entering(cls, queued: QueuedMail, now: datetime, due_at: datetime | None) -> "Listed":
        """The mail as it enters its queue: delayed where it has a due time."""
        whereabouts = Whereabouts.WAITING
        if due_at is not None:
            whereabouts = Whereabouts.DELAYED
        return cls(queued, now, whereabouts, due_at=due_at)

    def retried(self, now: datetime, delay: timedelta | None, error_message: str | None) -> "Listed":
        """The mail, delayed after one more try: by the given time, or by a wait that doubles with each try."""
        wait = delay
        if wait is None:
            wait = RETRY.wait(self.attempts + 1)
        queued = replace(self.queued, mail=self.queued.mail.tried(now, error_message))
        return replace(
            self, queued=queued, whereabouts=Whereabouts.DELAYED, due_at=now + wait, attempts=self.attempts + 1
        )


NULL_SENDER: Final = "<>"
"""The text that selects the null sender."""


@dataclass(frozen=True, slots=True)
class MailFilter:
    """Conditions that must all hold; None is no condition.

    Attributes:
        sender, recipient: an address, in any case; `*` stands for anything; `<>` is the null sender.
        name, state: compared with regard to case; `*` stands for anything.
        older_than_at: the mail was enqueued before this time.
        newer_than_at: the mail was enqueued at this time or later.
        enqueue_ids: the mail has one of these ids.
        whereabouts: whether the mail waits or is delayed.

    Raises:
        WrongUse: a text is too long.
    """

    sender: str | None = None
    recipient: str | None = None
    name: str | None = None
    state: str | None = None
    older_than_at: datetime | None = None
    newer_than_at: datetime | None = None
    enqueue_ids: frozenset[EnqueueId] | None = None
    whereabouts: Whereabouts | None = None

    def __post_init__(self) -> None:
        for wanted in (self.sender, self.recipient, self.name, self.state):
            check_wildcard(wanted or "")

    def matches(self, listed: Listed) -> bool:
        return (
            self._fits_passage(listed)
            and text_fits(self.sender, comparable_mailbox(listed.queued.mail.sender or NULL_SENDER), any_case=True)
            and _fits_one(self.recipient, listed.queued.mail.recipients)
            and text_fits(self.name, listed.queued.mail.name)
            and text_fits(self.state, listed.queued.mail.state)
        )

    def _fits_passage(self, listed: Listed) -> bool:
        return (
            (self.whereabouts is None or self.whereabouts is listed.whereabouts)
            and (self.enqueue_ids is None or listed.queued.enqueue_id in self.enqueue_ids)
            and (self.older_than_at is None or listed.enqueued_at < self.older_than_at)
            and (self.newer_than_at is None or listed.enqueued_at >= self.newer_than_at)
        )


EVERYTHING: Final = MailFilter()


def _fits_one(wanted: str | None, addresses: tuple[str, ...]) -> bool:
    return wanted is None or any(text_fits(wanted, comparable_mailbox(address), any_case=True) for address in addresses)


_MILLISECOND = timedelta(milliseconds=1)
_LETTERS = {Whereabouts.WAITING: "w", Whereabouts.DELAYED: "d"}


@dataclass(frozen=True, slots=True)
class ListingPosition:
    """The position right behind a mail.

    Attributes:
        stretch: the slice of a waiting mail, or the due time of a delayed one.
        enqueued_at: the mail's enqueueing time, by which mails of one slice are ordered.
        place: where its message is, in a listing of topics, which is in that order; None in one of tables.
    """

    whereabouts: Whereabouts
    stretch: datetime
    enqueued_at: datetime
    enqueue_id: EnqueueId
    place: MessagePlace | None = None

    @classmethod
    def of(cls, listed: Listed) -> Self:
        stretch = listed.due_at
        if listed.whereabouts is Whereabouts.WAITING:
            stretch = listed.slice_start
        return cls(
            listed.whereabouts,
            stretch or listed.enqueued_at,
            listed.enqueued_at,
            listed.queued.enqueue_id,
            listed.place,
        )

    @classmethod
    def parse(cls, token: str) -> Self:
        """Parse the token of a position.

        Raises:
            WrongUse: the text is not a token of a position.
        """
        try:
            letter, stretch, enqueued_at, enqueue_id, *place = token.split(".", 4)
            whereabouts = next(kind for kind, its in _LETTERS.items() if its == letter)
            where = None
            if place:
                where = MessagePlace.parse(place[0])
            return cls(whereabouts, _instant(stretch), _instant(enqueued_at), EnqueueId(UUID(hex=enqueue_id)), where)
        except (ValueError, StopIteration, OverflowError, BadPayload) as error:
            raise WrongUse(
                f"{token!r} is no position in a listing", mend="Take the one that came with the page before."
            ) from error

    @property
    def token(self) -> str:
        """The position as opaque text, for the request of the next page."""
        parts = [
            _LETTERS[self.whereabouts],
            f"{millis_of(self.stretch):x}",
            f"{millis_of(self.enqueued_at):x}",
            self.enqueue_id.hex,
        ]
        if self.place:
            parts.append(str(self.place))
        return ".".join(parts)

    @property
    def order(self) -> tuple[bool, Any]:
        """Sort key: waiting mails first, by slice and time; then the delayed ones by due time. In topics: by place.

        Delayed mails of equal times stand by their ids alone, as their rows do.
        """
        is_delayed = self.whereabouts is Whereabouts.DELAYED
        if self.place is not None:
            return (is_delayed, self.place)
        enqueued_at = self.enqueued_at
        if is_delayed:
            enqueued_at = EPOCH
        return (is_delayed, (self.stretch, enqueued_at, self.enqueue_id))


def is_behind(listed: Listed, position: ListingPosition | None) -> bool:
    return position is None or ListingPosition.of(listed).order > position.order


def _instant(millis: str) -> datetime:
    return EPOCH + int(millis, 16) * _MILLISECOND
