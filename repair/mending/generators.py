"""Generators of uids and modseqs that are behind the messages of their mailbox, as after a restored backup.

James gives a number from `messageCounter` or `modseq` to each new message, and writes over the row of the message that
has it already. What a scan shows of each mailbox is compared with the last number of its generators, which are read
after the rows: a generator is moved before a row is written, so none is called behind by accident. A generator only
ever grows: raising one to the numbers in use is safe at any time, and is never undone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from uuid import UUID

from mailmend.model.catalog.mail import IMAP_UID, MAILBOX, MAILBOX_PATH, MESSAGE_COUNTER, MODSEQ
from mailmend.model.errors import AccessDenied, DoubtfulWrite, MailmendError, SchemaMismatch
from mailmend.model.ids import MailboxId
from mailmend.model.operations import ChangeIf, Level, PutIfAbsent, Read, Scan, Seen
from mailmend.model.ports import Clock, Tables
from mailmend.model.projections.family import Family
from mailmend.model.table import Table
from mailmend.repair.joins.records import Spill
from mailmend.repair.retries import Retries

SHOWN_MAX = 1000
"""The largest number of generators that a result names."""

_READS_AT_ONCE = 500
PENDING_MAX = 100_000
"""The largest number of mailboxes whose numbers are held in memory, which takes some 30 MB; more go to files."""
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class BehindGenerator:
    """A generator whose next number is in use.

    Attributes:
        table: its table, in James's spelling.
        mailbox: whose numbers it gives.
        last: the last number that it gave; 0 where it has no row.
        in_use: the highest number that a message has.
        statement: the CQL that mends it.
        raised: whether a repair has raised it.
    """

    table: str
    mailbox: MailboxId
    last: int
    in_use: int
    statement: str
    raised: bool = False

    @property
    def kept(self) -> dict[str, Any]:
        """What a run keeps of it in the ledger: the number before it was raised, too."""
        return {
            "table": self.table,
            "mailbox": str(self.mailbox),
            "last": self.last,
            "in_use": self.in_use,
            "raised": self.raised,
        }


def is_numbered(family: Family) -> bool:
    """Whether its generators gave the numbers of its rows; other generators only change."""
    if family.truth.name != IMAP_UID.name:
        return False
    return any(counts.generators for counts in family.counts)


def raised_by(summary: Mapping[str, Any]) -> list[BehindGenerator]:
    """The generators that a run raised, by the sums that the ledger keeps of it."""
    found = []
    for kept in summary.get("generators", ()):
        if kept["raised"]:
            mailbox = MailboxId(UUID(kept["mailbox"]))
            numbers = (kept["last"], kept["in_use"])
            found.append(BehindGenerator(kept["table"], mailbox, *numbers, "", raised=True))
    return found


@dataclass(frozen=True, slots=True)
class Generators:
    """The generators of one keyspace.

    Args:
        mail: the mail keyspace.
        family: the declarations, restricted to what the live schema has.
        clock: the time of waits between retries.
        keyspace: its name, for statements.
    """

    mail: Tables
    family: Family
    clock: Clock
    keyspace: str

    def behind(self, in_use: Mapping[MailboxId, "HighestNumbers"]) -> Iterator[BehindGenerator]:
        """The mailboxes whose last number is below the one in use.

        A generator without a row is behind as well, except in a keyspace where nothing gives numbers.

        Args:
            in_use: the mailboxes, with the numbers of their messages.
        """
        used: bool | None = None  # asked for the first generator without a row
        waiting = iter(in_use)
        while some := list(islice(waiting, _READS_AT_ONCE)):
            for table in self._tables.values():
                answers = self.mail.read_all([Read(table, (mailbox,)) for mailbox in some])
                for mailbox, answer in zip(some, answers, strict=True):
                    if isinstance(answer, MailmendError):
                        raise answer
                    last = _number(table, answer)
                    highest = in_use[mailbox].of(table)
                    if last >= highest:
                        continue
                    if not last and used is None:
                        used = self.used()
                    if last or used:
                        yield from self._confirmed(table, mailbox, highest)

    def used(self) -> bool:
        """Whether something gives numbers in this keyspace: a generator has a row, or a mailbox is registered.

        No program adds a message to a mailbox without a name, so rows of messages alone need no
        generator.
        """
        return any(self._has_rows(table) for table in (*self._tables.values(), MAILBOX_PATH, MAILBOX))

    def raised(self, found: BehindGenerator) -> BehindGenerator:
        """Raise a generator to the numbers in use; unchanged where the role may not write it."""
        table = self._tables[found.table]
        with suppress(AccessDenied):
            for _ in range(_ROUNDS):
                last = self._last(table, found.mailbox, Level.SERIAL)
                if last >= found.in_use:
                    return replace(found, raised=True)
                with suppress(DoubtfulWrite):  # the next SERIAL read decides
                    self.mail.attempt(_raise(table, found.mailbox, last, found.in_use))
        return found

    def _has_rows(self, table: Table) -> bool:
        try:
            return any(True for _ in self.mail.scan(Scan(table, table.partition_names, limit=1)))
        except SchemaMismatch:  # the keyspace lacks the table
            return False
        except AccessDenied:  # a needless report costs less than a message that is overwritten
            return True

    def _confirmed(self, table: Table, mailbox: MailboxId, in_use: int) -> Iterator[BehindGenerator]:
        """The generator, where a second look still shows it behind; at QUORUM, so that a check leaves no promise."""
        last = self._last(table, mailbox, Level.QUORUM)
        if last < in_use:
            statement = self._statement(table, mailbox, last, in_use)
            yield BehindGenerator(table.spelling, mailbox, last, in_use, statement)

    def _last(self, table: Table, mailbox: MailboxId, level: Level) -> int:
        read = Read(table, (mailbox,), level)
        return _number(table, Retries(self.clock).call(lambda: self.mail.read(read)))

    def _statement(self, table: Table, mailbox: MailboxId, last: int, in_use: int) -> str:
        key = table.partition[0].spelling
        number = table.regular[0].spelling
        place = f"{self.keyspace}.{table.spelling}"
        if last:
            return f"UPDATE {place} SET {number} = {in_use} WHERE {key} = {mailbox} IF {number} = {last};"  # noqa: S608
        return f"INSERT INTO {place} ({key}, {number}) VALUES ({mailbox}, {in_use}) IF NOT EXISTS;"  # noqa: S608

    @property
    def _tables(self) -> dict[str, Table]:
        """The generators' tables that the live schema has."""
        tables = {}
        for counts in self.family.counts:
            for table in counts.generators:
                tables[table.spelling] = table
        return tables


@dataclass(frozen=True, slots=True)
class HighestNumbers:
    """The highest numbers that the messages of a mailbox have."""

    uid: int = 0
    modseq: int = 0

    def with_(self, other: "HighestNumbers | None") -> "HighestNumbers":
        """The higher ones of both."""
        if other is None:
            return self
        return HighestNumbers(max(self.uid, other.uid), max(self.modseq, other.modseq))

    def of(self, generator: Table) -> int:
        """The number that this generator gave."""
        return {MESSAGE_COUNTER.name: self.uid, MODSEQ.name: self.modseq}.get(generator.name, 0)


@dataclass(slots=True)
class GeneratorWatch:
    """Looks at the rows of messages as a scan reads them, in any order and in bounded memory.

    Args:
        spill: where the numbers of mailboxes go that are too many for memory; None for a few mailboxes.
    """

    generators: Generators
    spill: Spill | None = None
    _mailbox: UUID | None = None
    _numbers: HighestNumbers = HighestNumbers()
    _pending: dict[MailboxId, HighestNumbers] = field(default_factory=dict)
    _spilled: bool = False

    def add(self, mailbox: UUID, uid: int, modseq: int | None = None) -> None:
        """A message's numbers; rows of one mailbox that come together cost least."""
        if mailbox != self._mailbox:
            self._close()
            self._mailbox = mailbox
        before = self._numbers
        modseq = modseq or 0
        if uid > before.uid or modseq > before.modseq:
            self._numbers = HighestNumbers(max(uid, before.uid), max(modseq, before.modseq))

    def end(self) -> list[BehindGenerator]:
        """The generators behind, at most `SHOWN_MAX`; call it once, after all rows. The generators are read now."""
        self._close()
        found: list[BehindGenerator] = []
        for numbers in self._parts():
            found += islice(self.generators.behind(numbers), SHOWN_MAX - len(found))
        return in_order(found)

    def _close(self) -> None:
        if self._mailbox is not None:
            mailbox = MailboxId(self._mailbox)
            self._pending[mailbox] = self._numbers.with_(self._pending.get(mailbox))
        self._numbers = HighestNumbers()
        if self.spill is not None and len(self._pending) >= PENDING_MAX:
            self._put_away(self.spill)

    def _put_away(self, spill: Spill) -> None:
        for mailbox, numbers in self._pending.items():
            spill.add((mailbox.bytes, numbers.uid, numbers.modseq))
        self._pending = {}
        self._spilled = True

    def _parts(self) -> Iterator[dict[MailboxId, HighestNumbers]]:
        if self.spill is None or not self._spilled:
            yield self._pending
            return
        self._put_away(self.spill)
        for part in self.spill.parts():
            numbers: dict[MailboxId, HighestNumbers] = {}
            for key, uid, modseq in part:
                mailbox = MailboxId(UUID(bytes=key))
                numbers[mailbox] = HighestNumbers(uid, modseq).with_(numbers.get(mailbox))
            yield numbers


def in_order(found: Sequence[BehindGenerator]) -> list[BehindGenerator]:
    """The generators by mailbox, whichever engine found them."""
    return sorted(found, key=lambda generator: (generator.mailbox, generator.table))


def _number(table: Table, rows: Sequence[Seen]) -> int:
    return max((seen.row.get(table.regular[0].name) or 0 for seen in rows), default=0)


def _raise(table: Table, mailbox: MailboxId, last: int, number: int) -> ChangeIf | PutIfAbsent:
    column = table.regular[0].name
    if last:
        return ChangeIf(table, (mailbox,), {column: last}, {column: number})
    return PutIfAbsent(table, {table.partition[0].name: mailbox, column: number})
