"""What the stories of the store are made of: wishes, mishaps and moments, drawn by Hypothesis."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from mailmend.model.catalog.mail import IMAP_UID, MESSAGES
from mailmend.model.ids import MailboxId
from mailmend.repair.store.message import FlagsChange, FlagsMode, MessageKey, parse_flags
from tests.support.mailbox_model import Add, Copy, Delete, Move, Operation, SetFlags
from tests.support.mishaps import Kind, Mishap
from tests.support.writing import mail

WORDS = (r"\Seen", r"\Deleted", r"\Recent", r"\Flagged", "work", "later")

_TABLES = st.sampled_from([table.spelling for table in MESSAGES.tables])
_FAILED = (Kind.REFUSED, Kind.LOST, Kind.DONE, Kind.LATE)
_FAILURES = st.sampled_from(_FAILED)
_KILLS = st.sampled_from((Kind.KILLED_BEFORE, Kind.KILLED_AFTER))
_TRUTH = IMAP_UID.spelling

FLICKER = st.builds(lambda *of: [Mishap(*of)], _FAILURES, st.integers(0, 12), st.integers(1, 3))
OUTAGE = st.builds(lambda kind, table: [Mishap(kind, 0, 99, table)], _FAILURES, _TABLES)
DOUBT = st.builds(
    lambda kind, deaf: [Mishap(kind, 0, 1, _TRUTH), Mishap(Kind.DEAF, deaf, 12, _TRUTH)],
    _FAILURES,
    st.sampled_from((1, 2, 99)),
)
"""The answer about the truth is lost, and perhaps those to whoever asks what came of it."""
DEAFNESS = st.builds(
    lambda first, times: [Mishap(Kind.DEAF, first, times)], st.integers(0, 12), st.sampled_from((1, 9))
)
KILL = st.builds(lambda *of: [Mishap(*of)], _KILLS, st.integers(0, 12))
HARMLESS = FLICKER | OUTAGE | DOUBT | DEAFNESS | st.tuples(FLICKER | OUTAGE, DOUBT).map(lambda pair: pair[0] + pair[1])
"""What ends with an answer, good or bad: the writer lives on and journals what it could not write."""
MISHAPS = HARMLESS | KILL | st.tuples(FLICKER, KILL).map(lambda pair: pair[0] + pair[1])


@dataclass(frozen=True, slots=True)
class Wish:
    """An operation before it is known which messages there are."""

    kind: str
    which: int
    mailbox: int
    words: frozenset[str]
    mode: FlagsMode

    def on(self, mailboxes: Sequence[MailboxId], there: Sequence[MessageKey]) -> Operation:
        mailbox, flags = mailboxes[self.mailbox], parse_flags(self.words)
        if self.kind == "add" or not there:
            return Add(mailbox, mail("hello", *self.words))
        place = there[self.which % len(there)]
        match self.kind:
            case "copy":
                return Copy(place, mailbox)
            case "move":
                return Move(place, mailbox)
            case "delete":
                return Delete(place)
            case _:
                return SetFlags(place, FlagsChange(self.mode, flags))


WISHES = st.builds(
    Wish,
    kind=st.sampled_from(("add", "flags", "flags", "flags", "copy", "move", "delete")),
    which=st.integers(0, 20),
    mailbox=st.integers(0, 1),
    words=st.frozensets(st.sampled_from(WORDS), max_size=3),
    mode=st.sampled_from(FlagsMode),
)
MOMENTS = st.tuples(st.just("operation"), st.integers(0, 60)) | st.tuples(st.just("write"), st.integers(0, 9))
"""Before which of a repair's operations, or of its writes: what it is about to mend changes under its hands."""
