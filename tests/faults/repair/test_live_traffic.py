"""Repairs run again and again while writers write: nothing acknowledged is lost, and nothing deleted is back.

A real Cassandra with its own clock and its own conditional writes; writers whose clocks differ, whose answers get lost
and whose projections stay behind; old damages, and new ones with every write that fails. Every writer keeps a plain
record of what was acknowledged. Afterwards the truth is held to the records, the projections to the truth (by the
oracle of `tests.support.oracle`), and one quiet repair must leave nothing that it could have mended.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from mailmend.admin.local.demo import break_one_by_one
from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_COUNTER, MESSAGE_ID, MESSAGE_V3, MESSAGES, MODSEQ
from mailmend.model.errors import MailmendError
from mailmend.model.ids import MailboxId, MessageId
from mailmend.model.instants import MICROS
from mailmend.model.operations import Count, Put, Scan, Write
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.model.table import Key, Row, Table
from mailmend.repair.clock import SystemClock, Timing
from mailmend.repair.ledger.lags import LagJournal
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import RepairResult, RepairSettings
from mailmend.repair.mending.runner import RepairTools, repair
from mailmend.repair.retries import RetryPolicy
from mailmend.repair.scanners.local import LocalEngine
from mailmend.repair.store.message import Flags, FlagsChange, FlagsMode, MessageKey, NewMail, flags_of, parse_flags
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.writes import WriterSettings
from tests.support.keyspaces import MailServer
from tests.support.memory_blobs import MemoryBlobs
from tests.support.mishaps import Actor, Killed, Kind, Mishap, Network, wire
from tests.support.oracle import expected_suspects
from tests.support.progress import SilentProgress
from tests.support.repairing import content_row, mirror_row, truth_row
from tests.support.skewed import SkewedClock

SKEWS_SECONDS = (-0.6, 0.0, 0.6)
"""One writer for each: 1.2 seconds between the first and the last."""

TIMING = Timing(margin_seconds=8.0, skew_seconds=1.5, stamp_age_seconds=6.0)
"""The real law, made small: a margin greater than S + A, so that repairs touch what these very writers wrote."""

SETTINGS = WriterSettings(
    stamp_age_seconds=6.0, write_seconds=4.0, threads=1, retries=RetryPolicy(2, 0.002, 0.01), rounds_max=50
)
OPERATIONS = 100
"""Per writer."""

PAUSE_SECONDS = 0.12
"""Between two operations, so that the writers outlast the margin on a fast machine too."""

OLD_MESSAGES, DAMAGES_OF_A_KIND = 60, 2
MAILBOXES = 2
OWN_FLAGS = (r"\Seen", r"\Deleted", r"\Flagged")
"""Each writer changes one system flag and one keyword of its own, on everybody's messages: their changes of one row
contend, and yet each writer alone knows what its own must be."""


@dataclass(slots=True)
class Acknowledged:
    """What was acknowledged about one place; None where nobody knows."""

    there: bool | None = True
    flags: dict[str, bool | None] = field(default_factory=dict)


@dataclass(slots=True)
class Record:
    """What all writers were told, and who could not be told anything."""

    places: dict[MessageKey, Acknowledged] = field(default_factory=dict)
    maybe_copied: list[tuple[MessageId, MailboxId]] = field(default_factory=list)
    acknowledged: int = 0
    slowest_seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def some_place(self, chance: random.Random) -> MessageKey | None:
        with self.lock:
            there = [place for place, known in self.places.items() if known.there]
        return chance.choice(there) if there else None

    def put(self, place: MessageKey) -> None:
        with self.lock:
            self.places[place] = Acknowledged()

    def note(self, place: MessageKey, *, there: bool | None) -> None:
        with self.lock:
            known = self.places[place]
            known.there = known.there if known.there is False else there


@dataclass(slots=True)
class Traffic:
    """One writer: its store behind a bad wire, its own seed."""

    number: int
    seed: int
    mail: Keyspace
    ledger: Keyspace
    name: str
    blobs: MemoryBlobs
    mailboxes: Sequence[MailboxId]
    record: Record
    lucky: bool
    chance: random.Random = field(init=False)
    clock: SkewedClock[SystemClock] = field(init=False)
    network: Network = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed} {self.number}")
        skew = timedelta(seconds=SKEWS_SECONDS[self.number])
        self.clock = SkewedClock(SystemClock(), skew, count(self.number << 20))
        self.network = Network(SystemClock())

    def run(self) -> None:
        actor, store = self._born()
        for _ in range(OPERATIONS):
            actor.arm(self._mishaps())
            began = time.monotonic()
            try:
                self._change(store)
            except Killed:
                store.close()
                actor, store = self._born()
            with self.record.lock:
                self.record.slowest_seconds = max(self.record.slowest_seconds, time.monotonic() - began)
            time.sleep(PAUSE_SECONDS * self.chance.random() * 2)
        store.close()

    def _born(self) -> tuple[Actor, MessageStore]:
        actor = Actor(self.network, late=False)
        lags = LagJournal(wire(self.ledger, Actor(self.network, late=False)), self.name, self.clock)
        return actor, MessageStore(wire(self.mail, actor), self.blobs, lags, self.clock, settings=SETTINGS)

    def _mishaps(self) -> list[Mishap]:
        match self.chance.randrange(8) if not self.lucky else None:
            case 0:
                return [Mishap(self.chance.choice((Kind.LOST, Kind.DONE)), self.chance.randrange(10))]
            case 1:
                return [Mishap(Kind.REFUSED, 0, 99, self.chance.choice(MESSAGES.tables[1:]).spelling)]
            case 2:
                kind = self.chance.choice((Kind.KILLED_BEFORE, Kind.KILLED_AFTER))
                return [Mishap(kind, self.chance.randrange(10))]
            case _:
                return []

    def _change(self, store: MessageStore) -> None:
        place, mailbox = self.record.some_place(self.chance), self.chance.choice(self.mailboxes)
        draw = self.chance.random()
        if place is None or draw < 0.25:
            self._add(store, mailbox)
        elif draw < 0.75:
            self._set_flag(store, place)
        elif draw < 0.85:
            self._copy(store, place, mailbox, moving=False)
        elif draw < 0.93:
            self._copy(store, place, mailbox, moving=True)
        else:
            self._delete(store, place)

    def _add(self, store: MessageStore, mailbox: MailboxId) -> None:
        message = MessageId(self.clock.new_uuid())
        mail = NewMail(b"Subject: x\r\n\r\n", b"body\r\n", datetime(2026, 3, 4, tzinfo=UTC), message_id=message)
        self._arriving(lambda: store.add(mailbox, mail).place, message, mailbox)

    def _copy(self, store: MessageStore, place: MessageKey, mailbox: MailboxId, *, moving: bool) -> None:
        if moving:
            self.record.note(place, there=None)
        change = store.move if moving else store.copy
        done = self._arriving(lambda: change(place, mailbox).place, place.message_id, mailbox)
        if moving and done:
            self.record.note(place, there=False)

    def _arriving(self, act: Callable[[], MessageKey], message: MessageId, mailbox: MailboxId) -> bool:
        entry = (message, mailbox)
        with self.record.lock:
            self.record.maybe_copied.append(entry)
        try:
            place = act()
        except MailmendError:
            return False
        self.record.put(place)
        self._acknowledged()
        with self.record.lock:
            self.record.maybe_copied.remove(entry)
        return True

    def _delete(self, store: MessageStore, place: MessageKey) -> None:
        self.record.note(place, there=None)
        try:
            store.delete(place)
        except MailmendError:
            return
        self.record.note(place, there=False)
        self._acknowledged()

    def _set_flag(self, store: MessageStore, place: MessageKey) -> None:
        word = self.chance.choice((OWN_FLAGS[self.number], f"of-{self.number}"))
        on = self.chance.random() < 0.6
        known = self.record.places[place].flags
        known[word] = None
        try:
            store.set_flags(place, FlagsChange(FlagsMode.ADD if on else FlagsMode.REMOVE, parse_flags([word])))
        except MailmendError:
            return
        known[word] = on
        self._acknowledged()

    def _acknowledged(self) -> None:
        with self.record.lock:
            self.record.acknowledged += 1


@dataclass(slots=True)
class Town:
    """The keyspaces, and the repairs that run over them."""

    cluster: CassandraCluster
    mail: Keyspace
    ledger: Keyspace
    mailboxes: Sequence[MailboxId]
    record: Record = field(default_factory=Record)
    damaged: set[tuple[str, Key]] = field(default_factory=set)
    mended: set[tuple[str, Key]] = field(default_factory=set)
    rewritten: Counter[tuple[str, Key]] = field(default_factory=Counter)

    def settle_down(self) -> None:
        now = time.time_ns() // 1000
        truths = [
            truth_row(number, mailboxid=self.mailboxes[number % MAILBOXES]) for number in range(1, OLD_MESSAGES + 1)
        ]
        self._write([write for truth in truths for write in _healthy(truth, now - 120 * MICROS)])
        self._write(
            [
                Put(table, _last_number(table, one), now - 120 * MICROS)
                for table in (MESSAGE_COUNTER, MODSEQ)
                for one in self.mailboxes
            ]
        )
        damages = break_one_by_one(truths, now - 60 * MICROS, DAMAGES_OF_A_KIND)
        self._write([write for one in damages if one.kind.verdict in MENDABLE for write in one.writes])
        for truth in truths:
            self.record.put(MessageKey(truth["messageid"], truth["mailboxid"], truth["uid"]))
        self.damaged = {_where(one) for one in self.drift()}

    def traffic(self, seed: int, *, lucky: bool) -> list[Traffic]:
        blobs = MemoryBlobs(SystemClock())
        places = (self.mail, self.ledger, self.mail.name, blobs, self.mailboxes, self.record, lucky)
        return [Traffic(number, seed, *places) for number in range(len(SKEWS_SECONDS))]

    def repair(self, timing: Timing, *, counters: bool) -> RepairResult:
        clock = SystemClock()
        ledger, leases = Ledger(self.ledger, clock), Leases(self.ledger, clock, "live traffic")
        mender = CounterMender(self.mail, self.mail.name, (MESSAGES,), clock, timing, ledger, leases)
        engine = LocalEngine(self.mail, ledger, clock)
        tools = RepairTools(engine, clock, self.cluster, SilentProgress(), mender if counters else None, ledger, leases)
        order = RepairSettings(self.mail.name, (MESSAGES,), delay_seconds=0.3, timing=timing)
        return repair(order, tools, self._note)

    def _note(self, outcome: Finding) -> None:
        if outcome.result is Verdict.FIXED:
            self.mended.add(_where(outcome.suspect))
            if outcome.suspect.projection == MESSAGE_ID.spelling and outcome.verdict is not Verdict.WITHDRAW:
                self.rewritten[_where(outcome.suspect)] += 1

    def lagging(self) -> set[tuple[str, Key]]:
        journal = LagJournal(self.ledger, self.mail.name, SystemClock())
        return {_where(lag.suspect) for lag in journal.due(2**62)}

    def rows(self, table: Table) -> list[Row]:
        return list(self.mail.scan(Scan(table, table.names)))

    def drift(self) -> list[Suspect]:
        rows = {table.spelling: self.rows(table) for table in MESSAGES.tables}
        return [one for one in expected_suspects(MESSAGES, rows) if one.verdict is not Verdict.LEAK]

    def summary(self, seed: int, summaries: Sequence[RepairResult]) -> str:
        fixed = sum(sum(one.fixed.values()) for one in summaries)
        return (
            f"seed {seed}: {self.record.acknowledged} changes acknowledged, the slowest took "
            f"{self.record.slowest_seconds:.1f} s; {len(summaries)} repairs fixed {fixed}"
        )

    def _write(self, writes: Sequence[Write]) -> None:
        assert [error for error in self.mail.write_all(writes) if error] == []


@pytest.fixture
def town(mail_server: MailServer) -> Town:
    mailboxes = [MailboxId(SystemClock().new_uuid()) for _ in range(MAILBOXES)]
    town = Town(mail_server.cluster, mail_server.mail, mail_server.ledger, mailboxes)
    town.settle_down()
    return town


def test_repairs_never_undo_what_writers_did(town: Town) -> None:
    """Nothing fails, so only what was broken at first is written again, once, and nothing else is wrong at the end.

    A repair that overwrote a newer change would make drift of its own, and the next one would have to mend it. (What
    bears no time, or is being deleted, a repair may mend beside its writer: both do the same.)
    """
    seed = 20261121
    summaries = _repairs_while_writing(town, seed, lucky=True)
    lagging = town.lagging()
    excused = (town.damaged - town.mended) | lagging

    where = town.summary(seed, summaries)
    assert [key for key, times in town.rewritten.items() if key not in lagging and times > 1] == [], where
    assert set(town.rewritten) - town.damaged - lagging == set(), where
    assert {_where(one) for one in town.drift()} - excused == set(), where
    assert len(town.mended) >= 8 * DAMAGES_OF_A_KIND, where
    assert _broken_promises(town.record, town.rows(IMAP_UID), ()) == [], where


def test_repairs_amid_live_traffic(town: Town) -> None:
    """Three writers with skewed clocks and bad luck: in the end the truth as it was told, all else as the truth."""
    seed = 20261120
    summaries = _repairs_while_writing(town, seed, lucky=False)
    time.sleep(max(SKEWS_SECONDS) + 0.5)  # until the fastest clock's stamps are past
    quiet = Timing(no_writers=True)
    town.repair(quiet, counters=True)  # its SERIAL reads finish what contention left half decided: MOVED, for the next
    last, again = town.repair(quiet, counters=True), town.repair(quiet, counters=True)

    where = town.summary(seed, summaries)
    assert town.record.acknowledged > len(SKEWS_SECONDS) * OPERATIONS / 3, where
    assert _broken_promises(town.record, town.rows(IMAP_UID), town.rows(MESSAGE_ID)) == [], where
    assert (last.failed, last.moved) == (0, 0), where
    assert {name: sums for name, sums in again.findings.items() if name != "messageV3"} == {}, where
    assert town.drift() == [], where


def _repairs_while_writing(town: Town, seed: int, *, lucky: bool) -> list[RepairResult]:
    summaries = []
    with ThreadPoolExecutor(len(SKEWS_SECONDS)) as pool:
        writers = [pool.submit(one.run) for one in town.traffic(seed, lucky=lucky)]
        for run in count(1):
            summaries.append(town.repair(TIMING, counters=run % 4 == 0))
            if all(writer.done() for writer in writers):
                break
        for writer in writers:
            writer.result()
    return summaries


def _broken_promises(record: Record, truths: Sequence[Row], mirror: Sequence[Row]) -> list[str]:
    """Each acknowledged change that is not there, each deleted message that is back, each message from nowhere."""
    found = {MessageKey(row["messageid"], row["mailboxid"], row["uid"]): flags_of(row) for row in truths}
    shown = {(row["mailboxid"], row["uid"]) for row in mirror}
    broken = []
    for place, known in record.places.items():
        if known.there and place not in found:
            broken.append(f"{place} is lost")
        if known.there is False and (place in found or (place.mailbox_id, place.uid) in shown):
            broken.append(f"{place} is back")
        if place in found:
            broken += [f"{place}: {wrong}" for wrong in _broken_flags(known, found[place])]
    unforeseen = [(place.message_id, place.mailbox_id) for place in found if place not in record.places]
    for entry in unforeseen:
        if unforeseen.count(entry) > record.maybe_copied.count(entry):
            broken.append(f"{entry} came from nowhere")
    return broken


def _broken_flags(known: Acknowledged, flags: Flags) -> Iterator[str]:
    for word, on in known.flags.items():
        wanted = parse_flags([word])
        carries = wanted.system <= flags.system and wanted.user <= flags.user
        if on is not None and carries is not on:
            yield f"was told {word} {on} and has {flags}"


def _healthy(truth: Row, at: int) -> list[Write]:
    filters = [one for one in MESSAGES.filters if one.when.holds(truth)]
    counts = MESSAGES.counts[0]
    return [
        Put(IMAP_UID, truth, at),
        Put(MESSAGE_ID, mirror_row(truth), at),
        Put(MESSAGE_V3, content_row(truth["messageid"]), at),
        *(Put(one.table, one.table.key_row(one.key_of(truth)), at) for one in filters),
        Count(counts.table, counts.key_of(truth), {name: n for name, n in counts.deltas_of(truth).items() if n}),
    ]


def _last_number(table: Table, mailbox: MailboxId) -> Row:
    return {table.partition[0].name: mailbox, table.regular[0].name: OLD_MESSAGES}


def _where(suspect: Suspect) -> tuple[str, Key]:
    return suspect.projection, suspect.key
