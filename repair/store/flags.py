"""Flags of a message and changes of them: IMAP's system flags and the users' own keywords."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from mailmend.model.table import Row


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
