"""Mailboxes, as far as storing mail needs them: their names, their rows, their uids and modseqs.

James lower-cases users, knows INBOX in any case, and never registers some names (MailboxPath,
Username). James cannot ask for some names. Mail under such a name would be invisible, so the name
is refused before anything is written.

The path registry is the truth of paths, and a conditional insert decides who creates a mailbox; the
`mailbox` row follows from it. Both are written again when a mailbox is asked for whose second row
is missing, so a creation that was killed half-way is completed by the next one.

Uids and modseqs are two sequences per mailbox, each one conditional row, as James keeps them. The
row holds the last number given out; there is no row before the first. A number may be lost (a
timed-out write is not read back) but is never given twice. The last number that this process took
is remembered, so that a mailbox with one writer costs one conditional write and no read; inside a
process, callers that wait for the same mailbox are served by one conditional write together.

A sequence may be behind the numbers in use: its table was restored from a backup, or lost. So a
number that this process learns from the table is compared with those in use, and the next one is
above both.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from uuid import UUID

from mailmend.model.catalog.mail import MAILBOX, MAILBOX_PATH, PRIVATE
from mailmend.model.errors import Contended, DoubtfulWrite, MailmendError, WrongUse
from mailmend.model.ids import MailboxId
from mailmend.model.instants import MICROS
from mailmend.model.operations import ChangeIf, Level, Put, PutIfAbsent, Read, Seen
from mailmend.model.ports import Clock, Tables
from mailmend.model.table import Row, Table
from mailmend.model.texts import printable
from mailmend.repair.retries import Retries

INBOX = "INBOX"
DELIMITER = "."
"""What separates a mailbox from its parents."""

USER_MAX = 255
MAILBOX_MAX = 200
"""The largest numbers of characters."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FORBIDDEN = re.compile(r"[%*]")
_WHITE = re.compile(r"\s")
_DIGITS = re.compile(r"\d+")
_ALIKE = 0.7
_SHOWN = 60


class BadName(WrongUse):
    """A name of a user or mailbox that James cannot know."""


def user_name(text: str) -> str:
    """The user as James writes it: in lower case.

    Raises:
        BadName: James has no user of that name.
    """
    name = text.lower()
    why = _wrong_with_user(name)
    if why:
        raise _bad("user", text, why, _WHITE.sub("", _CONTROL.sub("", name)), _wrong_with_user)
    return name


def mailbox_name(text: str) -> str:
    """The mailbox's name as James writes it: INBOX in capitals, others unchanged.

    Raises:
        BadName: James has no mailbox of that name.
    """
    if text.upper() == INBOX:
        return INBOX
    why = _wrong_with_mailbox(text)
    if why:
        clean = _FORBIDDEN.sub("", _CONTROL.sub("", text)).strip().lstrip("#")
        parts = (part.strip() for part in clean.split(DELIMITER))
        raise _bad("mailbox", text, why, DELIMITER.join(filter(None, parts)), _wrong_with_mailbox)
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the most similar known name; "" where none is similar.

    Users of one domain are compared by what is before it as well: most of such names is the same. People number their
    mailboxes and users (`box1`, `box2`), so a name with other digits is another name, not a typing error.
    """
    lower = name.lower()
    local = _local(lower)
    digits = _DIGITS.findall(lower)
    by_lower = {}
    for other in known:
        if _DIGITS.findall(other) == digits:
            by_lower[other.lower()] = other
    alike = [other for other in by_lower if get_close_matches(local, [_local(other)], 1, _ALIKE)]
    nearest = get_close_matches(lower, alike, n=1, cutoff=_ALIKE)
    if not nearest:
        return ""
    return f"Did you mean '{printable(by_lower[nearest[0]])}'?"


def _local(name: str) -> str:
    local, _, _ = name.partition("@")
    return local


def _wrong_with_user(name: str) -> str:
    """What James does not accept about a user, in words; "" where it is fine."""
    local, at, domain = name.partition("@")
    if not name:
        return "it is empty"
    if _CONTROL.search(name) or _WHITE.search(name):
        return "it contains white space or a control character"
    if not local or (at and not domain):
        return "nothing is before or after its '@'"
    if "@" in domain:
        return "it contains more than one '@'"
    if len(name) > USER_MAX:
        return f"it has more than {USER_MAX} characters"
    return ""


def _wrong_with_mailbox(name: str) -> str:
    """What James does not accept about a mailbox's name, in words; "" where it is fine."""
    checks = (
        (not name.strip(), "it is empty"),
        (_CONTROL.search(name), "it contains a control character"),
        (_FORBIDDEN.search(name), "it contains '%' or '*', which are wildcards in IMAP"),
        (name.startswith("#"), "it begins with '#', as IMAP's namespaces do"),
        (not all(map(str.strip, name.split(DELIMITER))), f"a part between its delimiters '{DELIMITER}' is empty"),
        (len(name) > MAILBOX_MAX, f"it has more than {MAILBOX_MAX} characters"),
    )
    for wrong, why in checks:
        if wrong:
            return why
    return ""


def _bad(what: str, text: str, why: str, cleaned: str, wrong: Callable[[str], str]) -> BadName:
    """The refusal, with the cleaned name where that would be accepted."""
    mend = ""
    if not wrong(cleaned):
        mend = f"Did you mean '{printable(cleaned)}'?"
    return BadName(f"James has no {what} {printable(text)[:_SHOWN]!r}: {why}", mend=mend)


_UID_VALIDITY_MAX = 2**31 - 1


class Mailboxes:
    """The mailboxes of one keyspace."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._retries = Retries(clock)

    def find(self, user: str, name: str, namespace: str = PRIVATE) -> MailboxId | None:
        """The mailbox of that path, whose names are read as James reads them; None without one.

        Raises:
            BadName: James cannot know such a name.
        """
        seen = self._path(user_name(user), mailbox_name(name), namespace)
        if seen is None:
            return None
        return _id_of(seen.row)

    def ensure(self, user: str, name: str, namespace: str = PRIVATE) -> MailboxId:
        """The mailbox of that path, created if necessary; what could not be written is completed by another call.

        Raises:
            BadName: James cannot know such a name; nothing is written.
        """
        user = user_name(user)
        name = mailbox_name(name)
        seen = self._path(user, name, namespace) or self._create(user, name, namespace)
        if not self._tables.read(Read(MAILBOX, (seen.row["mailboxid"],))):
            self._retries.call(lambda: self._tables.write(_mailbox_of(seen)))
        return _id_of(seen.row)

    def names(self, user: str, namespace: str = PRIVATE) -> list[str]:
        """The names of a user's mailboxes.

        Raises:
            BadName: James cannot know such a user.
        """
        read = Read(MAILBOX_PATH, (namespace, user_name(user)))
        return [seen.row["mailboxname"] for seen in self._retries.call(lambda: self._tables.read(read))]

    def _path(self, user: str, name: str, namespace: str) -> Seen | None:
        read = Read(MAILBOX_PATH, (namespace, user, name), Level.SERIAL, times=True)
        rows = self._retries.call(lambda: self._tables.read(read))
        return next(iter(rows), None)

    def _create(self, user: str, name: str, namespace: str) -> Seen:
        """Register the path; a second caller gets the first one's mailbox."""
        row = {
            "namespace": namespace,
            "user": user,
            "mailboxname": name,
            "mailboxid": self._clock.new_uuid(),
            "uidvalidity": self._clock.micros() // MICROS % _UID_VALIDITY_MAX + 1,
        }
        for _ in range(self._retries.policy.retries):
            with suppress(DoubtfulWrite):  # the SERIAL read decides
                self._tables.attempt(PutIfAbsent(MAILBOX_PATH, row))
            if seen := self._path(user, name, namespace):
                return seen
        raise MailmendError(
            f"the path of mailbox {name!r} of {user!r} was registered and does not show",
            mend="Most likely a deletion from a clock that runs ahead hides it: compare the clocks, try again later.",
        )


def _id_of(path: Row) -> MailboxId:
    mailbox_id: UUID = path["mailboxid"]
    return MailboxId(mailbox_id)


def _mailbox_of(path: Seen) -> Put:
    row = {
        "id": path.row["mailboxid"],
        "mailboxbase": {"namespace": path.row["namespace"], "user": path.row["user"]},
        "name": path.row["mailboxname"],
        "uidvalidity": path.row["uidvalidity"],
    }
    return Put(MAILBOX, row, at=path.newest)


MAILBOXES_REMEMBERED = 10_000
"""The number of mailboxes whose last number is remembered; the least recently used are forgotten."""


@dataclass(slots=True)
class _Queue:
    turn: threading.Lock = field(default_factory=threading.Lock)
    waiting: list["_Ticket"] = field(default_factory=list)


@dataclass(slots=True)
class _Ticket:
    """One caller's request for numbers above `above`; the caller that fetches them sets `first`."""

    count: int
    above: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class _Last:
    """The last number of a mailbox; `own`: this process took it, so it was compared with those in use."""

    number: int
    own: bool


HighestInUse = Callable[[MailboxId, int], int]
"""The highest number that a mailbox uses, where that is above the given one; else the given one."""


def _nothing_above(_: MailboxId, last: int) -> int:
    """For tables whose numbers no other program keeps."""
    return last


class Sequence:
    """One sequence for each mailbox; `take` returns numbers. Thread-safe.

    Args:
        tables: the mail keyspace.
        table: the sequence's table, with one row for each mailbox.
        retries: for reads, and the rounds of conditional writes.
        rounds_max: how often a conditional write is repeated when others are faster.
        in_use: asked when the last number was learned from the table.
    """

    def __init__(
        self,
        tables: Tables,
        table: Table,
        retries: Retries,
        rounds_max: int,
        in_use: HighestInUse = _nothing_above,
    ) -> None:
        self._tables = tables
        self._table = table
        self._retries = retries
        self._rounds_max = rounds_max
        self._in_use = in_use
        self._column = table.regular[0].name
        self._last: OrderedDict[MailboxId, _Last] = OrderedDict()  # number 0: no row yet
        self._queues: dict[MailboxId, _Queue] = {}
        self._guard = threading.Lock()

    def take(self, mailbox: MailboxId, count: int = 1, above: int = 0) -> int:
        """The first of `count` consecutive numbers that no other process gets, all of them above `above`."""
        ticket = _Ticket(count, above)
        queue = self._enter(mailbox, ticket)
        with queue.turn:
            if not ticket.first:
                self._serve(mailbox, queue, ticket)
        return ticket.first

    def _enter(self, mailbox: MailboxId, ticket: _Ticket) -> _Queue:
        with self._guard:
            queue = self._queues.setdefault(mailbox, _Queue())
            queue.waiting.append(ticket)
            return queue

    def _serve(self, mailbox: MailboxId, queue: _Queue, ticket: _Ticket) -> None:
        with self._guard:
            served = queue.waiting
            queue.waiting = []
        try:
            count = sum(other.count for other in served)
            above = max(other.above for other in served)
            last = self._fetch(mailbox, count, above)
        except BaseException:
            with self._guard:
                queue.waiting = [other for other in served if other is not ticket] + queue.waiting
                self._forget(mailbox, queue)
            raise
        for other in reversed(served):
            last -= other.count
            other.first = last + 1
        with self._guard:
            self._forget(mailbox, queue)

    def _forget(self, mailbox: MailboxId, queue: _Queue) -> None:
        if not queue.waiting and self._queues.get(mailbox) is queue:
            del self._queues[mailbox]

    def _fetch(self, mailbox: MailboxId, count: int, above: int) -> int:
        last = self._retries.rounds(lambda: self._round(mailbox, count, above), self._rounds_max)
        if last is None:
            raise Contended(f"no {self._column} for mailbox {mailbox} in {self._rounds_max} rounds")
        return last

    def _round(self, mailbox: MailboxId, count: int, above: int) -> int | None:
        """One compare-and-set; None where another process was faster, or the outcome is unknown."""
        last = self._known(mailbox)
        highest = last.number
        if not last.own:
            highest = self._in_use(mailbox, last.number)
        highest = max(highest, above)
        try:
            answer = self._tables.attempt(self._next(mailbox, last.number, highest + count))
        except DoubtfulWrite:
            self._remember(mailbox, None)
            return None
        if answer.applied:
            self._remember(mailbox, _Last(highest + count, own=True))
            return highest + count
        current = (answer.current or {}).get(self._column)
        if current is None:
            self._remember(mailbox, None)
        else:
            self._remember(mailbox, _Last(current, own=False))
        return None

    def _next(self, mailbox: MailboxId, last: int, new: int) -> PutIfAbsent | ChangeIf:
        if last:
            return ChangeIf(self._table, (mailbox,), {self._column: last}, {self._column: new})
        return PutIfAbsent(self._table, {self._table.partition[0].name: mailbox, self._column: new})

    def last(self, mailbox: MailboxId) -> int | None:
        """The last number that this process knows of; None where it knows none."""
        with self._guard:
            known = self._last.get(mailbox)
        if known is None:
            return None
        return known.number

    def _known(self, mailbox: MailboxId) -> _Last:
        with self._guard:
            if mailbox in self._last:
                self._last.move_to_end(mailbox)
                return self._last[mailbox]
        rows = self._retries.call(lambda: self._tables.read(Read(self._table, (mailbox,), Level.SERIAL)))
        number = 0
        if rows:
            number = rows[0].row.get(self._column) or 0
        return _Last(number, own=False)

    def _remember(self, mailbox: MailboxId, last: _Last | None) -> None:
        with self._guard:
            self._last.pop(mailbox, None)
            if last is not None:
                self._last[mailbox] = last
                if len(self._last) > MAILBOXES_REMEMBERED:
                    self._last.popitem(last=False)
