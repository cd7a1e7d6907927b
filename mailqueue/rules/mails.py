"""A mail in a queue: its envelope, the ids of its bytes, the time of its enqueueing. Values only.

Byte-compatible with James's MailQueue: the names of the fields are the names of its `Mail`, the
attributes stay the JSON texts of its AttributeValue. Source: `MailReferenceDTO` of James and its
table enqueuedMailsV4; `mailqueue.codec` renders both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Self

from mailmend.mailqueue.rules.places import MessagePlace
from mailmend.model.errors import WrongUse
from mailmend.model.ids import BlobId, EnqueueId, QueueName
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
