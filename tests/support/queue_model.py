"""What a queue has promised of each mail, and whether what it does keeps that: the model of the queue's stories.

Small on purpose: a mail is owed, may have come to an end, or must not come any more. It knows no slices and no marks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.ids import BlobId, EnqueueId


class Standing(Enum):
    """What is promised of a mail."""

    OWED = "owed"  # its enqueue was acknowledged, and nothing ended it: it must come, or be listed
    OPEN = "open"  # something ended in doubt: it may come, and need not
    REJECTED = "rejected"  # a dead letter; copies of its message may still come
    OVER = "over"  # acked, deleted, or refused to its sender: it must not come any more


@dataclass(slots=True)
class Promised:
    """One mail, by its name, and what is promised of it.

    Attributes:
        enqueue_id: None where its enqueue did not return.
        in_hand: the numbers of the workers that had it in hand, or on its way there, when it was over.
        blobs: that were put for it.
        blobs_named: whether somebody was told that blobs of it may be left.
        rejected: whether any consumer ever rejected it.
        over_at: when it was last said to be over.
    """

    name: str
    content: bytes
    ours: bool = True
    standing: Standing = Standing.OWED
    enqueue_id: EnqueueId | None = None
    blobs: frozenset[BlobId] = frozenset()
    blobs_named: bool = False
    rejected: bool = False
    over_at: datetime = EPOCH
    in_hand: set[int] = field(default_factory=set)


class Promises:
    """Every mail that was ever enqueued."""

    def __init__(self) -> None:
        self.mails: dict[str, Promised] = {}

    def new(self, name: str, content: bytes, *, ours: bool = True) -> Promised:
        """A mail that is about to be enqueued: until that ends well, nothing is promised."""
        mail = self.mails[name] = Promised(name, content, ours, Standing.OPEN)
        return mail

    def named(self, name: str) -> Promised:
        return self.mails[name]

    def by_id(self, enqueue_id: EnqueueId) -> Promised | None:
        return next((mail for mail in self.mails.values() if mail.enqueue_id == enqueue_id), None)

    def over(self, name: str, at: datetime, in_hand: Iterable[int] = ()) -> None:
        """It must not come any more, but for those who have it in hand."""
        mail = self.mails[name]
        mail.standing, mail.over_at = Standing.OVER, at
        mail.in_hand |= set(in_hand)

    def doubtful(self, name: str) -> None:
        """Something that would end it came to no clear end."""
        mail = self.mails[name]
        if mail.standing is Standing.OWED:
            mail.standing = Standing.OPEN

    def dead_letter(self, name: str, *, sure: bool) -> None:
        mail = self.mails[name]
        mail.rejected = True
        if mail.standing is Standing.OWED or (sure and mail.standing is Standing.OPEN):
            mail.standing = Standing.REJECTED if sure else Standing.OPEN

    def standing(self, *standings: Standing) -> list[Promised]:
        return [mail for mail in self.mails.values() if mail.standing in standings]

    def may_come(self, name: str, content: bytes, *, excused: bool = False) -> None:
        """It is delivered: fails where it must not be, or is not what was put."""
        mail = self.mails[name]
        assert excused or mail.standing is not Standing.OVER, f"{name} came although it was over"
        assert content == mail.content, f"{name} came with other bytes"
