"""The conditions that select mails of a queue for browsing and deleting. Pure.

Addresses are compared as in James, without regard to case. Unlike in James, `*` stands for any text.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mailmend.mailqueue.rules.mails import Listed, Whereabouts
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
