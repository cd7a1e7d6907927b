"""Attempts as their journal has them: what was tried, what came of it, and what is unknown.

An attempt is written down before the content of its mail can go, and its outcome before the mail leaves the queue. What
has begun and has no outcome is uncertain: the server may have the mail.
Source: docs/adr/0040; RFC 1047 (mails that go twice as an answer was lost).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from mailmend.delivery.mail.attempts import AttemptStage
from mailmend.delivery.mail.entries import EntryEnd, EntryId
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.ids import EnqueueId, micros_of
from mailmend.model.instants import instant_of


class AttemptOutcome(Enum):
    """What came of an attempt, or what a hook made of that; the value is its name in rows."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # for now
    FAILED = "failed"
    RETURNED = "returned"  # not to the end: another server is tried, or it comes again, and no retry is counted


OUTCOMES: Final[Mapping[EntryEnd, AttemptOutcome]] = MappingProxyType(
    {
        EntryEnd.DELIVERED: AttemptOutcome.DELIVERED,
        EntryEnd.REFUSED: AttemptOutcome.REFUSED,
        EntryEnd.FAILED: AttemptOutcome.FAILED,
        EntryEnd.EXPIRED: AttemptOutcome.FAILED,
        EntryEnd.DELETED: AttemptOutcome.FAILED,
        EntryEnd.RETURNED: AttemptOutcome.RETURNED,
    }
)

ENDS: Final[Mapping[AttemptOutcome, EntryEnd]] = MappingProxyType(
    {
        AttemptOutcome.DELIVERED: EntryEnd.DELIVERED,
        AttemptOutcome.REFUSED: EntryEnd.REFUSED,
        AttemptOutcome.FAILED: EntryEnd.FAILED,
        AttemptOutcome.RETURNED: EntryEnd.RETURNED,
    }
)


class UncertainPolicy(Enum):
    """What becomes of a recipient whose server may have the mail; the value is its name in settings."""

    RETRY = "retry"  # it is tried again, and may get the mail twice
    HOLD = "hold"  # a person decides
    ASSUME = "assume"  # it counts as delivered, and may never have got the mail

    @property
    def doubles(self) -> bool:
        """Whether a recipient may get a mail twice."""
        return self is UncertainPolicy.RETRY


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalledAttempt:
    """One attempt to hand one recipient's mail to one server. It names no person, and no words of a server.

    Attributes:
        entry: the recipient, by the first id of its mail.
        mail: the passage of the mail through its queue.
        id: its time is when the attempt began.
        fields: what policies counted it by, as far as it had them, with the address that it came from.
        sources: the addresses that it could have come from.
        host: the server that was tried, by name.
        server: the process that tried.
        ready_at: since when it could be picked.
        outcome: None: none is known.
        stage: how far it got; None while it goes on.
        status: an enhanced status code; "" while it goes on.
    """

    entry: EntryId
    mail: EnqueueId
    id: UUID
    fields: Mapping[PickupField, str]
    sources: tuple[str, ...]
    host: str
    content_bytes: int
    urgent: bool
    server: str
    ready_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: AttemptOutcome | None = None
    stage: AttemptStage | None = None
    status: str = ""

    @property
    def started_at(self) -> datetime:
        return instant_of(micros_of(self.id))

    @property
    def doubt(self) -> str:
        """Who may have the mail, for people."""
        address = self.fields.get(PickupField.REMOTE_IP)
        known = self.host
        if address and address != self.host:
            known = f"{self.host} [{address}]"
        began = f"{self.started_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"{known} may have the mail: an attempt of {began} has no known outcome (by {self.server})"


def decisive(attempts: Iterable[JournalledAttempt], passage: EnqueueId) -> JournalledAttempt | None:
    """The attempt that says what becomes of a recipient whose mail comes again.

    A delivery decides in whichever passage through the queue it was made: a server that was killed while it put a
    recipient off may leave it in two passages. Apart from that only attempts of the same passage decide.

    Args:
        attempts: the recipient's attempts, in their order.
        passage: the mail's present one.

    Returns:
        One that delivered the mail, else the last one; None where there is no attempt, or it came
        to nothing.
    """
    last: JournalledAttempt | None = None
    for attempt in attempts:
        if attempt.outcome is AttemptOutcome.DELIVERED:
            return attempt
        if attempt.mail == passage:
            last = attempt
    if last and last.outcome is AttemptOutcome.RETURNED:
        return None
    return last
