"""Values of storing mail: the mail as it arrives, its place in a mailbox, and the result of a change."""

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mailmend.model.ids import MailboxId, MessageId, ModSeq, Uid
from mailmend.model.table import Key
from mailmend.repair.store.flags import Flags

NO_FLAGS = Flags()


@dataclass(frozen=True, slots=True)
class Attachment:
    """One attachment as messageV3 lists it; the fields stand in the order of the user type."""

    id: str
    name: str | None = None
    cid: str | None = None
    is_inline: bool = False

    def as_cell(self) -> tuple[str, str | None, str | None, bool]:
        return (self.id, self.name, self.cid, self.is_inline)


@dataclass(frozen=True, slots=True)
class NewMail:
    """A mail to be stored: its bytes, split where the body begins, and what else is known.

    Attributes:
        header: everything up to and including the empty line.
        body: everything after it.
        internal_date: when it arrived (IMAP's INTERNALDATE), with a time zone.
        message_id: None lets the store make one; given, a repeated add of the same mail is the same message.
        thread_id: None makes the message a thread of its own.
    """

    header: bytes
    body: bytes
    internal_date: datetime
    flags: Flags = NO_FLAGS
    attachments: tuple[Attachment, ...] = ()
    message_id: MessageId | None = None
    thread_id: UUID | None = None

    @property
    def octets(self) -> int:
        """The size of the whole mail in bytes."""
        return len(self.header) + len(self.body)


_EMPTY_LINE = re.compile(rb"(?:\A|\n)\r{0,8}\n|(?:\A|[\r\n])\r(?!\r{0,8}\n)")
"""LF after LF with any CR between them, or CR after CR where no LF follows. Some programs end lines with CRCRLF."""


def split_mail(content: bytes) -> tuple[bytes, bytes]:
    """(header, body) of a mail's bytes; a mail without an empty line is all header.

    Lines end in CRLF, LF or CR: old mail programs wrote CR alone.
    """
    found = _EMPTY_LINE.search(content)
    if not found:
        return content, b""
    start = found.end()
    return content[:start], content[start:]


@dataclass(frozen=True, slots=True)
class MessageKey:
    """One message in one mailbox under one number: the primary key of the truth."""

    message_id: MessageId
    mailbox_id: MailboxId
    uid: Uid

    @property
    def key(self) -> Key:
        return (self.message_id, self.mailbox_id, self.uid)


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of adding, changing or deleting a message.

    Attributes:
        modseq: the version of the message's flags that the change made (for a delete: the last one).
        lagged: some projection could not be written; `mailmend repair lags` mends it if it is journalled.
        journalled: False where neither the ledger nor the disk took the lag: only a check finds it again.
    """

    message_id: MessageId
    mailbox_id: MailboxId
    uid: Uid
    modseq: ModSeq
    lagged: bool = False
    journalled: bool = True

    @property
    def place(self) -> MessageKey:
        return MessageKey(self.message_id, self.mailbox_id, self.uid)
