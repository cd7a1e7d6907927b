"""A mail in a queue: its envelope, where its bytes are, what time it was put there. Values only.

Byte-compatible with James's MailQueue: the names of the fields are those of its `Mail`, the attributes stay the JSON
texts of its AttributeValue. Source: facts on James's queue (payload, enqueuedMailsV4); `mailqueue.codec`
renders both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from model.errors import WrongUse
from model.ids import BlobId, EnqueueId, QueueName

PRIORITY_ATTRIBUTE: Final = "MAIL_PRIORITY"
"""The attribute in which James's mails carry their priority, 0 to 9."""

PRIORITY_NORMAL: Final = 5
PRIORITIES: Final = range(10)

DELAY_MAX: Final = timedelta(days=366)
"""How long a mail may be delayed."""

_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}")


def queue_name(text: str) -> QueueName:
    """The text as the name of a queue.

    Raises:
        WrongUse: it cannot be one.
    """
    if not _QUEUE_NAME.fullmatch(text):
        raise WrongUse(
            f"{text!r} is not the name of a queue",
            mend="A name starts with a letter or digit, and holds at most 100 letters, digits, '.', '-', '_' and '@'.",
        )
    return QueueName(text)


@dataclass(frozen=True, slots=True)
class RecipientHeader:
    """A header that one recipient alone gets."""

    recipient: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail without its bytes.

    Attributes:
        name: the sender's own word for it; not unique.
        sender: None for the null sender.
        state: the processor that it waits for; James's first is `root`.
        last_updated: in UTC.
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


@dataclass(frozen=True, slots=True)
class MailBlobs:
    """Where a mail's bytes are: the header with the blank line after it, and the body."""

    header: BlobId
    body: BlobId


@dataclass(frozen=True, slots=True)
class QueuedMail:
    """One passage of a mail through a queue."""

    enqueue_id: EnqueueId
    mail: Mail
    blobs: MailBlobs


class Whereabouts(Enum):
    """Where a mail of a queue is, as far as the tables tell."""

    WAITING = "waiting"  # a row without a mark
    DELAYED = "delayed"  # a row of dueMails: not before its time


LOOKS: Final = (Whereabouts.DELAYED, Whereabouts.WAITING, Whereabouts.DELAYED)
"""Where mails that must not be missed are looked for, in this order: one that becomes due meanwhile waits by the second
look, and one whose consumer retries it meanwhile is delayed by the third."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A mail as browsing shows it.

    Attributes:
        enqueued_at: in UTC.
        slice_start: of its row of enqueuedMailsV4; None while it is delayed.
        due_at: when a delayed mail comes; None for one that waits.
        attempts: how often it was tried, where that is known.
    """

    queued: QueuedMail
    enqueued_at: datetime
    whereabouts: Whereabouts = Whereabouts.WAITING
    slice_start: datetime | None = None
    due_at: datetime | None = None
    attempts: int = 0
