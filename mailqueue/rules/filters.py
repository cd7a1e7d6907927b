"""Which mails of a queue are meant: conditions that select them, and a position to go on from. Pure.

Addresses are compared as in James, without regard to case. Unlike in James, `*` stands for any
text.

Clients keep a position to read a listing page by page. It holds the sort key of the last mail that
was seen, not a count. So the next page begins right behind that mail even if mails come and go.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self
from uuid import UUID

from mailmend.mailqueue.rules.mails import Listed, Whereabouts
from mailmend.mailqueue.rules.places import MessagePlace
from mailmend.mailqueue.rules.slices import EPOCH, millis_of
from mailmend.model.errors import BadPayload, WrongUse
from mailmend.model.grammar import comparable_mailbox
from mailmend.model.ids import EnqueueId
from mailmend.model.matching import check_wildcard, text_fits

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
