"""Writers, crashes, doubtful answers, lags and repairs in any order, held to a plain dictionary of the mail.

Hypothesis makes up the stories and shortens those that go wrong. After every step the truth must be what the record
says: acknowledged changes are there, and nothing that was deleted is back. In a quiet moment one repair must make every
projection what the truth demands; where nobody was killed and nothing damaged, mending the journalled lags alone must.
In memory everything but the repairs is done to a twin as well: what is right there and wrong here, a repair did; it is
looked for before the next repair hides it, so that a margin of nothing is found out. Smaller stories, in every order,
are told by the protocol model (`tests.support.protocol`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mailmend.admin.local.demo import KINDS, DamageKind
from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import IMAP_UID, MESSAGES
from mailmend.model.errors import MailmendError, UnknownMessage
from mailmend.model.ids import MailboxId
from mailmend.model.operations import Conditional, RemoveIf, Scan
from mailmend.model.ports import Clock, NodeClocks, Tables
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row
from mailmend.repair.clock import SystemClock, Timing
from mailmend.repair.ledger.lags import LagJournal, Spool
from mailmend.repair.mending.engine import RepairResult, RepairSettings
from mailmend.repair.mending.runner import RepairTools, repair, repair_lags
from mailmend.repair.retries import RetryPolicy
from mailmend.repair.store.message import FlagsMode, MessageKey, Stored
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.plans import place_of
from mailmend.repair.store.writes import StampSource, WriterSettings
from tests.support.clock import VirtualClock, uuid_at
from tests.support.keyspaces import MailServer
from tests.support.mailbox_model import Add, Copy, Delete, Mailboxes, Move, Operation, SetFlags, landed_on, mailboxes_of
from tests.support.memory_blobs import MemoryBlobs
from tests.support.mishaps import Actor, Killed, Mishap, Network, alongside, wire
from tests.support.oracle import expected_suspects
from tests.support.repairing import Workplace
from tests.support.skewed import SkewedClock
from tests.support.store_stories import HARMLESS, MISHAPS, MOMENTS, WISHES, Wish
from tests.support.thorough import ALL, run_stories, seeds_of
from tests.support.writing import mail

SKEWS_SECONDS = (-2.0, 2.0)
"""Each writer's clock beside the node's: 4 seconds between them, where S is 5."""

REPORTED_ONLY = {"lost content", "torn truth", "clash", "leaked content"}
LEASE_SECONDS = 3600
WRITERS = st.integers(0, len(SKEWS_SECONDS) - 1)


@dataclass(slots=True)
class Arena:
    """Two keyspaces without any mishap, and how time passes over them: by hand (`virtual`), or by itself."""

    mail: Tables
    ledger: Tables
    clock: Clock
    nodes: NodeClocks
    timing: Timing
    pass_time: Callable[[float], None]
    virtual: bool = True
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    skews: tuple[float, ...] = SKEWS_SECONDS
    twin: Tables | None = None

    @property
    def users_mail(self) -> Tables:
        return alongside(self.mail, self.twin) if self.twin else self.mail


@dataclass(slots=True)
class Writer:
    """One process that writes."""

    actor: Actor
    store: MessageStore


class StoreMachine(RuleBasedStateMachine):
    """The stories in memory, under a clock that is turned by hand."""

    def arena(self) -> Arena:
        clock = VirtualClock()
        tables = MemoryTables(clock.micros)
        twin, ledger = MemoryTables(clock.micros), MemoryTables(clock.micros)
        return Arena(tables, ledger, clock, tables, Timing(), clock.advance, twin=twin)

    @initialize(stamp=st.sampled_from(StampSource), gentle=st.booleans())
    def begin(self, stamp: StampSource, gentle: bool) -> None:
        """Two mailboxes, two writers, no mail; in a gentle story nobody is killed and nothing damaged."""
        self.at = self.arena()
        self.stamp, self.gentle = stamp, gentle
        self.folder = TemporaryDirectory()
        self.network = Network(self.at.clock, tick=lambda: self.at.pass_time(0.001))
        self.numbers = count(1)
        self.blobs = MemoryBlobs(self.at.clock)
        self.writers = [self.new_writer(number) for number in range(len(self.at.skews))]
        self.mailboxes = [MailboxId(uuid_at(self.at.clock.micros(), next(self.numbers))) for _ in range(2)]
        self.record: Mailboxes = {}
        self.scan_needed = False
        self.hurt: list[MessageKey] = []
        self.unlucky: set[tuple[Any, ...]] = set()

    def new_writer(self, number: int) -> Writer:
        actor = Actor(self.network, self.at.virtual)
        clock = SkewedClock(self.at.clock, timedelta(seconds=self.at.skews[number]), self.numbers)
        settings = WriterSettings(threads=1, stamp=self.stamp, retries=self.at.retries, rounds_max=10)
        lags = self.journal(actor, clock)
        return Writer(actor, MessageStore(wire(self.at.users_mail, actor), self.blobs, lags, clock, settings=settings))

    @rule(writer=WRITERS, wish=WISHES)
    def write(self, writer: int, wish: Wish) -> None:
        self.change(writer, wish, ())

    @rule(writer=WRITERS, wish=WISHES, mishaps=HARMLESS)
    def write_amid_mishaps(self, writer: int, wish: Wish, mishaps: Sequence[Mishap]) -> None:
        self.change(writer, wish, mishaps)

    @precondition(lambda self: not self.gentle)
    @rule(writer=WRITERS, wish=WISHES, mishaps=MISHAPS)
    def write_and_be_killed(self, writer: int, wish: Wish, mishaps: Sequence[Mishap]) -> None:
        self.change(writer, wish, mishaps)

    @precondition(lambda self: self.record and not self.gentle)
    @rule(kind=st.sampled_from(KINDS), which=st.integers(0, 20))
    def damage(self, kind: DamageKind, which: int) -> None:
        rows = [row for row in self.rows(IMAP_UID) if kind.fits(row)]
        if rows:
            row = rows[which % len(rows)]
            if kind.name not in REPORTED_ONLY:
                for write in kind.writes(MESSAGES, row, self.at.clock.micros()):
                    self.at.users_mail.write(write)
                self.hurt.append(place_of(row))
                self.scan_needed = True
        self.at.pass_time(0.001)

    @rule(
        delay=st.sampled_from((0.0, 5.0, 60.0)),
        mishaps=MISHAPS | st.just([]),
        amid=st.lists(st.tuples(MOMENTS, WRITERS, WISHES, HARMLESS | st.just([])), max_size=3),
    )
    def repair_amid_writes(
        self, delay: float, mishaps: Sequence[Mishap], amid: Sequence[tuple[tuple[str, int], int, Wish, list[Mishap]]]
    ) -> None:
        """A repair while writers write between its reads and writes, with mishaps of its own."""
        actor = Actor(self.network, self.at.virtual)
        actor.arm(mishaps)

        def others(kind: str) -> Callable[[], None]:
            steps = count()

            def at_once() -> None:
                moment = (kind, next(steps))
                for when, writer, wish, faults in amid:
                    if when == moment:
                        self.change(writer, wish, faults, self.hurt)

            return at_once

        actor.before_each, actor.before_write = others("operation"), others("write")
        with suppress(Killed, MailmendError):
            self.repair(actor, delay)
        self.compare()
        self.harmless()

    @rule(rest=st.sampled_from((0.0, 1.0, 35.0, 2 * LEASE_SECONDS)), mishaps=MISHAPS | st.just([]))
    def mend_journalled_lags(self, rest: float, mishaps: Sequence[Mishap]) -> None:
        self.at.pass_time(rest)
        actor = Actor(self.network, self.at.virtual)
        actor.arm(mishaps)
        with suppress(Killed, MailmendError):
            self.repair_lags(actor)
        self.compare()

    def calm_down(self) -> None:
        self.network.calm_down()
        self.compare()
        self.harmless()
        self.at.pass_time(2 * LEASE_SECONDS)
        if not self.scan_needed and self.stamp is not StampSource.CLOCK:
            self.repair_lags(Actor(self.network))
            assert self.drift() == [], "mending the lags alone must do where nobody was killed"
        summary = self.repair(Actor(self.network), 0.0)
        assert (summary.failed, summary.moved) == (0, 0)
        assert self.drift() == []
        self.compare()
        for place in self.record:
            assert self.writers[0].store.content(place.message_id) == mail("hello").header + mail("hello").body
        self.scan_needed = False

    def teardown(self) -> None:
        if hasattr(self, "record"):
            try:
                self.calm_down()
            finally:
                self.leave()

    def leave(self) -> None:
        for writer in self.writers:
            writer.store.close()
        self.folder.cleanup()

    def change(self, number: int, wish: Wish, mishaps: Sequence[Mishap], targets: Sequence[MessageKey] = ()) -> None:
        """One operation of a writer, and what came of it; at one of these messages, if any of them is there."""
        writer = self.writers[number]
        writer.actor.arm(mishaps)
        there = sorted(self.record, key=lambda one: one.key)
        operation = wish.on(self.mailboxes, [one for one in there if one in targets] or there)
        stored = None
        try:
            stored = operation.act(writer.store)
        except Killed:
            writer.store.close()
            self.writers[number] = self.new_writer(number)
            self.scan_needed = True
        except UnknownMessage as error:  # right after a late delete only
            if _place_of(operation) in mailboxes_of(self.rows(IMAP_UID)):
                pytest.fail(f"{operation}: {error}")
        except MailmendError:
            pass
        writer.actor.arm(())
        if stored is None or stored.lagged:
            self.unlucky |= {one.key[1:] for one in (_place_of(operation), stored and stored.place) if one}
        self.compare(operation, stored)

    def compare(self, operation: Operation | None = None, stored: Stored | None = None) -> None:
        """The truth is as recorded, changed by this operation at most; what it is now is the record from here on."""
        before, found = self.record, mailboxes_of(self.rows(IMAP_UID))
        place = _place_of(operation)
        for write in self.network.landed:
            own_removal = (
                isinstance(operation, Move | Delete) and isinstance(write, RemoveIf) and _removes(write, place)
            )
            if write.table.name == IMAP_UID.name and not own_removal:
                before = landed_on(before, write)
        if place is not None and place not in before:
            operation = None  # a late delete was faster
        outcomes = list(operation.outcomes(before, found)) if operation else [before]
        allowed = outcomes[-1:] if stored else outcomes
        assert found in allowed, f"{operation}: acknowledged {stored}, then found {found}, not one of {allowed}"
        if stored and isinstance(operation, Add | Copy | Move):
            assert stored.place in found
            assert stored.place not in self.record
        if isinstance(operation, Move) and operation.place not in found:
            assert any(one not in self.record and one.message_id == operation.place.message_id for one in found)
        self.network.landed.clear()
        self.record = found

    def repair(self, actor: Actor, delay: float) -> RepairResult:
        order, tools = self.repairing(actor, delay)
        return repair(order, tools, lambda _: None)

    def repair_lags(self, actor: Actor) -> RepairResult:
        order, tools = self.repairing(actor, 0.0)
        journal = self.journal(actor, self.at.clock)
        return repair_lags(journal, wire(self.at.mail, actor), order, tools, lambda _: None)

    def journal(self, actor: Actor, clock: Clock) -> LagJournal:
        spool = Spool(Path(self.folder.name), "mail")
        return LagJournal(wire(self.at.ledger, actor), "mail", clock, spool)

    def repairing(self, actor: Actor, delay: float) -> tuple[RepairSettings, RepairTools]:
        ledger = wire(self.at.ledger, actor) if self.at.virtual else self.at.ledger  # leases would stay for hours
        place = Workplace(wire(self.at.mail, actor), ledger, self.at.clock, self.at.nodes)
        return place.order(self.at.timing, delay), place.tools(self.at.timing, LEASE_SECONDS)

    def rows(self, table: Any, tables: Tables | None = None) -> list[Row]:
        rows = (tables or self.at.mail).scan(Scan(table, table.names))
        return [row for row in rows if row.get("mailboxid", self.mailboxes[0]) in self.mailboxes]

    def drift(self, tables: Tables | None = None) -> list[Suspect]:
        rows = {table.spelling: self.rows(table, tables) for table in MESSAGES.tables}
        return [one for one in expected_suspects(MESSAGES, rows) if one.verdict is not Verdict.LEAK]

    def harmless(self) -> None:
        """What is wrong here is wrong on the twin too, or right there by luck: a write about it was lost."""
        if self.at.twin is None or self.network.flying:
            return
        alone = {(one.projection, one.key) for one in self.drift(self.at.twin)}
        judged = {one.name for one in (MESSAGES.mirror, *MESSAGES.filters)}
        found = [one for one in self.drift() if one.projection in judged and one.key not in self.unlucky]
        harm = [one for one in found if (one.projection, one.key) not in alone]
        assert harm == [], f"a repair made wrong what is right without it: {harm}"


def _place_of(operation: Operation | None) -> MessageKey | None:
    return operation.place if isinstance(operation, Copy | Move | Delete | SetFlags) else None


def _removes(write: Conditional, place: MessageKey | None) -> bool:
    return isinstance(write, RemoveIf) and place is not None and write.key == place.key


def test_stories_in_memory(story_seed: int) -> None:
    run_stories(StoreMachine, story_seed, stories=40, steps=25)


def _struck_amid(stamp: StampSource, kind: str, write: int) -> None:
    """A mirror row is missing; a writer whose clock is behind changes its message before one of a repair's writes."""
    machine = StoreMachine()
    machine.begin(stamp, gentle=False)
    try:
        machine.change(1, Wish("add", 0, 0, frozenset(), FlagsMode.ADD), ())
        machine.at.pass_time(30)
        machine.damage(KINDS[0], 0)
        machine.repair_amid_writes(0.0, [], [(("write", write), 0, Wish(kind, 0, 0, _WORK, FlagsMode.ADD), [])])
        machine.calm_down()
    finally:
        machine.leave()


_WORK = frozenset({"work"})
_STRIKES = [(stamp, kind, write) for stamp in StampSource for kind in ("delete", "flags") for write in range(8)]


def test_a_change_amid_a_repair_wins() -> None:
    """Whichever of the repair's writes it comes before, and however its projections are stamped."""
    for strike in _STRIKES:
        _struck_amid(*strike)


def test_a_margin_of_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair that writes as of its scan's own start brings a deleted message back, and the twin tells."""
    monkeypatch.setattr(Timing, "margin_micros", 0)

    with pytest.raises(AssertionError, match="a repair made wrong what is right without it"):
        test_a_change_amid_a_repair_wins()


def test_stories_on_a_real_server(mail_server: MailServer, pytestconfig: pytest.Config) -> None:
    """A few of them, where time goes by itself, so that nothing arrives late and repairs declare the keyspace quiet."""

    class RealMachine(StoreMachine):
        def arena(self) -> Arena:
            return _real_arena(mail_server)

    stories = 12 if pytestconfig.getoption(ALL) else 4  # of which a fourth is told
    run_stories(RealMachine, seeds_of(pytestconfig)[-1], stories=stories, steps=10)


def _real_arena(server: MailServer) -> Arena:
    return Arena(
        server.mail,
        server.ledger,
        SystemClock(),
        server.cluster,
        Timing(no_writers=True),
        pass_time=lambda _: None,
        virtual=False,
        retries=RetryPolicy(2, 0.001, 0.005),
        skews=(0.0, 0.0),
    )
