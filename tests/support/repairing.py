"""A small mail keyspace, its ledger and a fixer: what every test of repairing begins with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from mailmend.cql.memory import MemoryTables, Surround
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import APPLICABLE_FLAG, IMAP_UID, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.errors import TimedOut
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Put, Read, Remove, Scan, Seen
from mailmend.model.ports import Clock, NodeClocks, Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.model.table import Key, Row, Table
from mailmend.repair.clock import Timing
from mailmend.repair.ledger.leases import TTL_SECONDS, Leases
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import RepairResult, RepairSettings
from mailmend.repair.mending.fixer import Fixer
from mailmend.repair.mending.runner import RepairTools, check, repair
from mailmend.repair.scanners.local import LocalEngine
from tests.support.clock import START, VirtualClock, uuid_at
from tests.support.progress import SilentProgress

DAY_SECONDS = 24 * 3600
MAILBOX = uuid_at(START - 400 * DAY_SECONDS * MICROS, 1)
LONG_AGO = START - 100 * DAY_SECONDS * MICROS
"""When the rows of a test were written, unless it says otherwise."""

T = START - 30 * MICROS
"""T of a repair that begins at the start of the virtual clock."""


def message(number: int, born: int = LONG_AGO) -> UUID:
    return uuid_at(born, number)


def truth_row(number: int = 1, *, uid: int | None = None, born: int = LONG_AGO, **columns: Any) -> dict[str, Any]:
    row: dict[str, Any] = {column.name: None for column in IMAP_UID.columns}
    row |= {name: False for name in row if name.startswith("flag")}
    row |= {
        "messageid": message(number, born),
        "mailboxid": MAILBOX,
        "uid": uid or number,
        "modseq": 1,
        "internaldate": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "bodystartoctet": 10,
        "fullcontentoctets": 100,
        "headercontent": "1_1_header",
    }
    return row | columns


def mirror_row(truth: Row, **columns: Any) -> dict[str, Any]:
    return MESSAGES.mirror.row_of(truth) | columns


@dataclass(slots=True)
class Meter:
    """Surrounds tables in memory, and counts the rows that are read or written: one at least for a read by key."""

    rows: int = 0

    def __call__(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        answer = carry_out()
        match operation:
            case Scan():
                self.rows += len(answer)
            case Read():
                self.rows += max(1, len(answer))
            case _:
                self.rows += 1
        return answer


@dataclass(slots=True)
class World:
    """A mail keyspace with its ledger, and the clock of both and of the fixer; in memory unless tables are given."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    real_mail: Tables | None = None
    real_kept: Tables | None = None
    families: tuple[Family, ...] = (MESSAGES,)
    memory: MemoryTables = field(init=False)
    mail: Tables = field(init=False)
    kept: MemoryTables = field(init=False)
    ledger: Ledger = field(init=False)
    as_of: int = field(init=False)
    run: RunId = field(init=False)

    def __post_init__(self) -> None:
        self.memory, self.kept = MemoryTables(self.clock.micros), MemoryTables(self.clock.micros)
        self.mail = self.real_mail or self.memory
        self.ledger = Ledger(self.real_kept or self.kept, self.clock)
        self.as_of = self.clock.micros() - 30 * MICROS
        self.run = self.ledger.start("mail", "repair", self.as_of, {}).id

    def put(self, table: Table, row: Row, at: int = LONG_AGO) -> None:
        self.mail.write(Put(table, row, at=at))

    def remove(self, table: Table, key: Key, at: int) -> None:
        self.mail.write(Remove(table, key, at=at))

    def add_flag(self, flag: str, at: int) -> None:
        self.mail.write(Change(APPLICABLE_FLAG, (MAILBOX,), add={"userflags": frozenset({flag})}, at=at))

    def message(self, truth: Row, *, projected: bool = True, content: bool = True, at: int = LONG_AGO) -> Row:
        """A message with all that follows from it; or without its projections, or its content."""
        self.put(IMAP_UID, truth, at)
        if content:
            self.put(MESSAGE_V3, content_row(truth["messageid"]), at)
        if projected:
            self.project(truth, at)
        return truth

    def project(self, truth: Row, at: int = LONG_AGO) -> None:
        self.put(MESSAGE_ID, mirror_row(truth), at)
        for one in MESSAGES.filters:
            if one.when.holds(truth):
                self.put(one.table, one.table.key_row(one.key_of(truth)), at)

    def get(self, table: Table, key: Key) -> Seen | None:
        rows = self.mail.read(Read(table, key, times=True))
        return rows[0] if rows else None

    def seen(self, table: Table, key: Key) -> Seen:
        """A row that is there, with its times."""
        row = self.get(table, key)
        assert row is not None, f"{table.spelling} has no row {key}"
        return row

    def during_sleep(self, happen: Callable[[], None]) -> None:
        sleep = self.clock.sleep

        def slept(seconds: float) -> None:
            self.clock.sleep = sleep  # type: ignore[method-assign]
            sleep(seconds)
            happen()

        self.clock.sleep = slept  # type: ignore[method-assign]

    def watch_writes(self) -> list[Operation]:
        written: list[Operation] = []

        def watch(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if not isinstance(operation, Read | Scan):
                written.append(operation)
            self.clock.advance(1e-6)
            return carry_out()

        self.memory.surround = self.kept.surround = watch
        return written

    def metered(self) -> Meter:
        """Counts the rows of mail and ledger from now on."""
        self.memory.surround = self.kept.surround = meter = Meter()
        return meter

    def fail_in_mail(self, when: Callable[[Operation], bool]) -> None:
        self.memory.surround = _failing(when)

    def fail_in_ledger(self, when: Callable[[Operation], bool]) -> None:
        self.kept.surround = _failing(when)

    def policy(self, **changes: Any) -> RepairPolicy:
        return replace(RepairPolicy(self.run, self.as_of, skew_seconds=5.0, only=MENDABLE), **changes)

    def revisit(self, suspects: Iterable[Suspect], **changes: Any) -> list[Finding]:
        fixer = Fixer(self.mail, self.ledger, self.clock, self.families, self.policy(**changes))
        return list(fixer.revisit(suspects))


def _failing(when: Callable[[Operation], bool]) -> Surround:
    def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if when(operation):
            raise TimedOut("no answer in time")
        return carry_out()

    return surround


def content_row(message_id: UUID) -> dict[str, Any]:
    return {"messageid": message_id, "bodystartoctet": 10, "fullcontentoctets": 100, "headercontent": "1_1_header"}


def mirror_suspect(truth: Row, verdict: Verdict, *, known: bool = True) -> Suspect:
    keys = ((truth["messageid"],),) if known else ()
    return Suspect(MESSAGES.mirror.name, MESSAGES.mirror.key_of(truth), verdict, keys)


def place(truth: Row) -> Key:
    return (truth["mailboxid"], truth["uid"])


@dataclass(frozen=True, slots=True)
class Workplace:
    """A mail keyspace, its ledger and their clocks."""

    mail: Tables
    ledger: Tables
    clock: Clock
    nodes: NodeClocks

    def order(self, timing: Timing, delay_seconds: float = 0.0) -> RepairSettings:
        return RepairSettings("mail", (MESSAGES,), delay_seconds=delay_seconds, timing=timing)

    def tools(self, timing: Timing, lease_seconds: int = TTL_SECONDS) -> RepairTools:
        ledger, leases = Ledger(self.ledger, self.clock), Leases(self.ledger, self.clock, "a test", lease_seconds)
        counters = CounterMender(self.mail, "mail", (MESSAGES,), self.clock, timing, ledger, leases)
        engine = LocalEngine(self.mail, ledger, self.clock)
        return RepairTools(engine, self.clock, self.nodes, SilentProgress(), counters, ledger, leases)

    def repair(self) -> RepairResult:
        timing = Timing(no_writers=True)
        return repair(self.order(timing), self.tools(timing), lambda _: None)

    def drift(self) -> list[Finding]:
        timing, found = Timing(no_writers=True), list[Finding]()
        check(self.order(timing), self.tools(timing), found.append)
        return [one for one in found if one.verdict not in (Verdict.AGREE, Verdict.LEAK)]
