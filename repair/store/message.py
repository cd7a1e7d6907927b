"""Values of storing mail: a mail as it arrives, its flags, its place in a mailbox, and the result of a change."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from uuid import UUID

from mailmend.model.ids import MailboxId, MessageId, ModSeq, Uid
from mailmend.model.table import Key, Row


class SystemFlag(Enum):
    """IMAP's system flags (RFC 3501 2.3.2); the value is James's column."""

    ANSWERED = "flaganswered"
    DELETED = "flagdeleted"
    DRAFT = "flagdraft"
    FLAGGED = "flagflagged"
    RECENT = "flagrecent"
    SEEN = "flagseen"

    __hash__ = object.__hash__  # each is one of its kind: sets of them need no hash that is computed in Python


_COLUMNS = tuple((flag, flag.value) for flag in SystemFlag)
"""Each flag with its column: looked up for every message that is written."""


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags that a message carries in one mailbox."""

    system: frozenset[SystemFlag] = frozenset()
    user: frozenset[str] = frozenset()

    def as_row(self) -> dict[str, object]:
        """All flag columns of the message tables, the unset ones as false."""
        columns: dict[str, object] = {column: flag in self.system for flag, column in _COLUMNS}
        columns["userflags"] = self.user
        return columns


def flags_of(row: Row) -> Flags:
    """The flags in a row; a null column reads as not set, as in James."""
    system = frozenset([flag for flag, column in _COLUMNS if row.get(column)])
    return Flags(system, frozenset(row.get("userflags") or ()))


class FlagsMode(Enum):
    """Whether a change adds flags, removes them or replaces all (IMAP STORE: +FLAGS, -FLAGS, FLAGS)."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class FlagsChange:
    """A change of flags, to be applied to the flags that the message has when it is written."""

    mode: FlagsMode
    flags: Flags

    def applied_to(self, flags: Flags) -> Flags:
        r"""The flags after the change. \Recent is the server's own: a client's replacement keeps it (RFC 3501)."""
        match self.mode:
            case FlagsMode.ADD:
                return Flags(flags.system | self.flags.system, flags.user | self.flags.user)
            case FlagsMode.REMOVE:
                return Flags(flags.system - self.flags.system, flags.user - self.flags.user)
            case FlagsMode.REPLACE:
                recent = flags.system & {SystemFlag.RECENT}
                return Flags(self.flags.system | recent, self.flags.user)


def parse_flags(words: Iterable[str]) -> Flags:
    r"""Flags from IMAP's spelling: ``\Seen`` is a system flag, anything without a backslash a user's.

    >>> flags = parse_flags([r"\Seen", "$Forwarded"])
    >>> SystemFlag.SEEN in flags.system, flags.user
    (True, frozenset({'$Forwarded'}))

    Raises:
        ValueError: a backslash word that is no system flag.
    """
    system = set()
    user = set()
    for word in words:
        if word.startswith("\\"):
            if word[1:].upper() not in SystemFlag.__members__:
                raise ValueError(f"{word} is not a system flag")
            system.add(SystemFlag[word[1:].upper()])
        else:
            user.add(word)
    return Flags(frozenset(system), frozenset(user))


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
    r"""(header, body) of a mail's bytes; a mail without an empty line is all header.

    Lines end in CRLF, LF or CR: old mail programs wrote CR alone.

    >>> split_mail(b"Subject: hello\r\n\r\nGood day.\r\n")
    (b'Subject: hello\r\n\r\n', b'Good day.\r\n')
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
