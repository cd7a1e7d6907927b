"""A stretch of a backlog as the process has it that takes mails from it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from mailmend.mailqueue.rabbitmq.view.backlog_tables import BacklogMail, Stretch


@dataclass(slots=True, eq=False)
class OwnStretch:
    """A stretch that this process takes mails from.

    Attributes:
        listed: as it is listed, with this process as its owner.
        is_ours: whether this process writes there.
        place: the greatest place that was given to a row.
        last_put: the last row that is known to be there; None: another process wrote it, and its
            end was not seen yet.
        fetched_to: each row at this place, or before it, was fetched.
        in_hand: the places of rows that are in hand, or could not be removed yet.
        had: the places of rows that went back from a hand.
        left: the places of rows that could not be removed yet.
        put, gone: how many rows were put there, and removed.
        noted: the figures that its list has.
        empty_since: in seconds of the monotonic clock; None: it has rows.
    """

    listed: Stretch
    is_ours: bool
    place: int
    last_put: int | None
    fetched_to: int
    in_hand: set[int] = field(default_factory=set)
    had: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    put: int = 0
    gone: int = 0
    noted: dict[str, int] = field(default_factory=dict)
    empty_since: float | None = None

    @property
    def is_read(self) -> bool:
        """Whether each row was fetched."""
        return self.last_put is not None and self.fetched_to >= self.last_put

    @property
    def is_empty(self) -> bool:
        """Whether it has no row."""
        return self.is_read and not self.in_hand

    @property
    def waiting(self) -> int:
        """How many of its rows were not fetched, at most."""
        if self.is_read:
            return 0
        return max(0, self.put - self.gone - len(self.in_hand))

    @property
    def figures(self) -> dict[str, int]:
        """How far the stretch is."""
        gone_to = self.fetched_to
        if self.in_hand:
            gone_to = min(gone_to, min(self.in_hand) - 1)
        return {"gone_to": gone_to, "put": self.put, "gone": self.gone}

    def next_place(self, now: int) -> int:
        """The place of the next row: later than those before, whatever the clock says."""
        self.place = max(now, self.place + 1)
        return self.place

    def fetched(
        self,
        mails: Sequence[BacklogMail],
        end: int | None,
        limit: int,
    ) -> Iterator[BacklogMail]:
        """Take mails in hand that were read behind `fetched_to`; the new ones.

        Args:
            mails: in the order of their places.
            end: `last_put` when the reading began: rows behind it may be incomplete.
            limit: how many were asked for.
        """
        is_whole = len(mails) < limit
        for mail in mails:
            if end is not None and mail.place > end:
                is_whole = True
                break
            self.fetched_to = mail.place
            if mail.place not in self.in_hand:
                self.in_hand.add(mail.place)
                again = mail.redelivered or not self.is_ours or mail.place in self.had
                yield replace(mail, redelivered=again)
        if is_whole:
            self.fetched_to = max(self.fetched_to, end or 0)
            if end is None:
                self.last_put = self.fetched_to

    def give_back(self, place: int) -> None:
        """Have a mail fetched once more."""
        self.in_hand.discard(place)
        self.had.add(place)
        self.fetched_to = min(self.fetched_to, place - 1)
