"""A store over tables in memory, with faults on demand: what every test of writing begins with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID
from mailmend.model.errors import MailmendError, Unjournalled
from mailmend.model.ids import MailboxId
from mailmend.model.operations import Read, Scan
from mailmend.model.projections.findings import Suspect
from mailmend.model.table import Row, Table
from mailmend.repair.store.message import FlagsChange, FlagsMode, MessageKey, NewMail, parse_flags
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.writes import DEFAULTS, WriterSettings
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.repairing import Workplace

Fits = Callable[[Operation], bool]
SEEN = FlagsChange(FlagsMode.ADD, parse_flags([r"\Seen"]))


@dataclass(slots=True)
class Fault:
    """Something that goes wrong with the next operations that fit."""

    fits: Fits
    error: MailmendError
    times: int
    done_first: bool = False  # it happens, and its answer is lost
    then: Callable[[], object] = lambda: None


class Faults:
    """Wrapped around every operation of the tables; remembers what was asked of them."""

    def __init__(self) -> None:
        self.pending: list[Fault] = []
        self.seen: list[Operation] = []

    def __call__(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        self.seen.append(operation)
        fault = next((one for one in self.pending if one.times and one.fits(operation)), None)
        if fault is None:
            return carry_out()
        fault.times -= 1
        if fault.done_first:
            carry_out()
        fault.then()
        raise fault.error

    def fail(self, fits: Fits, error: MailmendError, times: int = 1) -> None:
        self.pending.append(Fault(fits, error, times))

    def doubt(self, fits: Fits, error: MailmendError, *, done: bool, then: Callable[[], object] = lambda: None) -> None:
        """Let the next that fits time out: done or not, nobody says; `then` happens before the error arrives."""
        self.pending.append(Fault(fits, error, 1, done_first=done, then=then))


class LagList:
    """Lags in a list."""

    def __init__(self) -> None:
        self.suspects: list[Suspect] = []
        self.causes: list[str] = []
        self.full = False

    def journal(self, suspects: Sequence[Suspect], cause: str) -> None:
        if self.full:
            raise Unjournalled("no room")
        self.suspects += suspects
        self.causes.append(cause)

    @property
    def names(self) -> set[str]:
        return {suspect.projection for suspect in self.suspects}


@dataclass(slots=True)
class Desk:
    """A store, its tables and its clock, two mailboxes."""

    settings: WriterSettings = DEFAULTS
    clock: VirtualClock = field(default_factory=VirtualClock)
    faults: Faults = field(default_factory=Faults)
    lags: LagList = field(default_factory=LagList)
    tables: MemoryTables = field(init=False)
    blobs: MemoryBlobs = field(init=False)
    store: MessageStore = field(init=False)
    inbox: MailboxId = field(init=False)
    archive: MailboxId = field(init=False)

    def __post_init__(self) -> None:
        self.tables = MemoryTables(self.clock.micros, self.faults)
        self.blobs = MemoryBlobs(self.clock)
        self.store = self._opened()
        self.inbox, self.archive = MailboxId(self.clock.new_uuid()), MailboxId(self.clock.new_uuid())

    def _opened(self) -> MessageStore:
        return MessageStore(self.tables, self.blobs, self.lags, self.clock, settings=self.settings)

    def restart(self) -> None:
        """Another process: whatever threads of the first one still had in hand has come to its end."""
        self.store.close()
        self.store = self._opened()

    def rows(self, table: Table) -> list[Row]:
        return list(self.tables.scan(Scan(table, table.names)))

    def truth(self, place: MessageKey) -> Row | None:
        seen = self.tables.read(Read(IMAP_UID, place.key))
        return seen[0].row if seen else None

    def mirror(self, place: MessageKey) -> Row | None:
        seen = self.tables.read(Read(MESSAGE_ID, (place.mailbox_id, place.uid)))
        return seen[0].row if seen else None

    def counters(self, mailbox: MailboxId) -> tuple[int, int]:
        seen = self.tables.read(Read(MAILBOX_COUNTERS, (mailbox,)))
        return (seen[0].row["count"] or 0, seen[0].row["unseen"] or 0) if seen else (0, 0)

    def drift(self) -> list[str]:
        self.clock.advance(1)
        ledger = MemoryTables(self.clock.micros)
        found = Workplace(self.tables, ledger, self.clock, self.tables).drift()
        return [f"{one.suspect.projection} {one.verdict.value}" for one in found]


def on(table: Table, *kinds: type) -> Fits:
    def fits(operation: Operation) -> bool:
        of_kind = isinstance(operation, kinds) if kinds else not isinstance(operation, Read | Scan)
        return operation.table.name == table.name and of_kind

    return fits


def mail(subject: str = "hello", *flags: str) -> NewMail:
    header = f"Subject: {subject}\r\n\r\n".encode()
    return NewMail(header, b"body\r\n", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC), flags=parse_flags(flags))


def change(mode: str, *words: str) -> FlagsChange:
    """A change of flags, in IMAP's spelling."""
    return FlagsChange(FlagsMode(mode), parse_flags(words))
