"""Writers, crashes, doubtful answers, lags and repairs in any order, held to a plain dictionary of the mail.

Hypothesis makes up the stories and shortens those that go wrong. After every step the truth must be what the record
says: acknowledged changes are there, and nothing that was deleted is back. In a quiet moment one repair must make every
projection what the truth demands; where nobody was killed and nothing damaged, mending the journalled lags alone must.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from admin.breaking import KINDS, Breaker
from cql.memory import MemoryTables
from cql.session import CassandraCluster, connect
from model.catalog import IMAP_UID, MESSAGES
from model.errors import MailmendError, UnknownMessage
from model.flags import FlagsChange, FlagsMode, parse_flags
from model.ids import MailboxId
from model.messages import Place, Stored
from model.operations import Conditional, RemoveIf, Scan
from model.table import Row
from repair.blobs import MemoryBlobs
from repair.clock import MICROS, SystemClock, Timing
from repair.decide import Verdict
from repair.findings import Summary, Suspect
from repair.lag_mending import mend_lags
from repair.lags import LagJournal, Spool
from repair.orders import Means, Order
from repair.ports import Clock, NodeClocks, Tables
from repair.retries import RetryPolicy
from repair.runner import repair
from repair.truths import StampSource
from repair.writer import MessageStore, WriterSettings
from tests.support.clock import VirtualClock, uuid_at
from tests.support.commands import contact_of
from tests.support.keyspaces import LEDGER, MAIL, created, dropped
from tests.support.mailbox_model import Add, Copy, Delete, Mailboxes, Move, Operation, SetFlags, landed_on, mailboxes_of
from tests.support.mending import Workplace
from tests.support.mishaps import Actor, Killed, Kind, Mishap, Network, Wire
from tests.support.oracle import expected_suspects
from tests.support.servers import CassandraServer
from tests.support.skewed import SkewedClock
from tests.support.writing import mail

SKEWS_SECONDS = (-2.0, 2.0)
"""Each writer's clock beside the node's: 4 seconds between them, where S is 5."""

WORDS = (r"\Seen", r"\Deleted", r"\Recent", r"\Flagged", "work", "later")
REPORTED_ONLY = {"lost content", "torn truth", "clash", "leaked content"}
LEASE_SECONDS = 3600

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

    def on(self, mailboxes: Sequence[MailboxId], there: Sequence[Place]) -> Operation:
        """The operation, on one of the messages that are there."""
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


@dataclass(slots=True)
class Writer:
    """One process that writes."""

    actor: Actor
    store: MessageStore


class StoreMachine(RuleBasedStateMachine):
    """The stories in memory, under a clock that is turned by hand."""

    def arena(self) -> Arena:
        """Where the stories take place."""
        clock = VirtualClock()
        tables = MemoryTables(clock.micros)
        return Arena(tables, MemoryTables(clock.micros), clock, tables, Timing(), clock.advance)

    @initialize(stamp=st.sampled_from((StampSource.TRUTH, StampSource.TRUTH, StampSource.CLOCK)), gentle=st.booleans())
    def begin(self, stamp: StampSource, gentle: bool) -> None:
        """Two mailboxes, two writers, no mail; in a gentle story nobody is killed and nothing damaged."""
        self.at = self.arena()
        self.stamp, self.gentle = stamp, gentle
        self.folder = TemporaryDirectory()
        self.network = Network(self.at.clock, tick=lambda: self.at.pass_time(0.001))
        self.numbers = count(1)
        self.blobs = MemoryBlobs()
        self.writers = [self.new_writer(number) for number in range(len(self.at.skews))]
        self.mailboxes = [MailboxId(uuid_at(self.at.clock.micros(), next(self.numbers))) for _ in range(2)]
        self.record: Mailboxes = {}
        self.scan_needed = False

    def new_writer(self, number: int) -> Writer:
        """A process that starts."""
        actor = Actor(self.network, self.at.virtual)
        clock = SkewedClock(self.at.clock, round(self.at.skews[number] * MICROS), self.numbers)
        settings = WriterSettings(threads=1, stamp=self.stamp, retries=self.at.retries, rounds_max=10)
        lags = self.journal(actor, clock)
        return Writer(actor, MessageStore(Wire(self.at.mail, actor), self.blobs, lags, clock, settings=settings))

    @rule(writer=WRITERS, wish=WISHES)
    def write(self, writer: int, wish: Wish) -> None:
        """A change, and nothing goes wrong."""
        self.change(writer, wish, ())

    @rule(writer=WRITERS, wish=WISHES, mishaps=HARMLESS)
    def write_amid_mishaps(self, writer: int, wish: Wish, mishaps: Sequence[Mishap]) -> None:
        """A change, and something goes wrong."""
        self.change(writer, wish, mishaps)

    @precondition(lambda self: not self.gentle)
    @rule(writer=WRITERS, wish=WISHES, mishaps=MISHAPS)
    def write_and_be_killed(self, writer: int, wish: Wish, mishaps: Sequence[Mishap]) -> None:
        """A change, and most likely it is the writer's last."""
        self.change(writer, wish, mishaps)

    @precondition(lambda self: self.record and not self.gentle)
    @rule(kind=st.sampled_from(KINDS), which=st.integers(0, 20))
    def damage(self, kind: Any, which: int) -> None:
        """Something breaks that a repair can mend."""
        damage, fits = kind
        rows = [row for row in self.rows(IMAP_UID) if fits(row)]
        if rows:
            done = damage(Breaker(MESSAGES, self.at.clock.micros()), rows[which % len(rows)])
            if done.kind not in REPORTED_ONLY:
                for write in done.writes:
                    self.at.mail.write(write)
                self.scan_needed = True
        self.at.pass_time(0.001)

    @rule(
        delay=st.sampled_from((0.0, 5.0, 60.0)),
        mishaps=MISHAPS,
        amid=st.lists(st.tuples(st.integers(0, 60), WRITERS, WISHES, HARMLESS | st.just([])), max_size=3),
    )
    def repair_amid_writes(
        self, delay: float, mishaps: Sequence[Mishap], amid: Sequence[tuple[int, int, Wish, Sequence[Mishap]]]
    ) -> None:
        """A repair while writers write between its reads and writes, with mishaps of its own."""
        actor = Actor(self.network, self.at.virtual)
        actor.arm(mishaps)
        steps = count()

        def others() -> None:
            step = next(steps)
            for when, writer, wish, troubles in amid:
                if when == step:
                    self.change(writer, wish, troubles)

        actor.before_each = others
        with suppress(Killed, MailmendError):
            self.repair(actor, delay)
        self.compare()

    @rule(rest=st.sampled_from((0.0, 1.0, 35.0, 2 * LEASE_SECONDS)), mishaps=MISHAPS | st.just([]))
    def mend_journalled_lags(self, rest: float, mishaps: Sequence[Mishap]) -> None:
        """Time passes, and lags are mended, or some of them."""
        self.at.pass_time(rest)
        actor = Actor(self.network, self.at.virtual)
        actor.arm(mishaps)
        with suppress(Killed, MailmendError):
            self.mend_lags(actor)
        self.compare()

    def calm_down(self) -> None:
        """What was under way arrives; everything is mended, and all must agree."""
        self.network.calm_down()
        self.compare()
        self.at.pass_time(2 * LEASE_SECONDS)
        if not self.scan_needed and self.stamp is StampSource.TRUTH:
            self.mend_lags(Actor(self.network))
            assert self.drift() == [], "mending the lags alone must do where nobody was killed"
        summary = self.repair(Actor(self.network), 0.0)
        assert (summary.failed, summary.moved) == (0, 0)
        assert self.drift() == []
        self.compare()
        for place in self.record:
            assert self.writers[0].store.content(place.message_id) == mail("hello").header + mail("hello").body
        self.scan_needed = False

    def teardown(self) -> None:
        """Every story ends in quiet."""
        if hasattr(self, "record"):
            self.calm_down()
            for writer in self.writers:
                writer.store.close()
            self.folder.cleanup()

    def change(self, number: int, wish: Wish, mishaps: Sequence[Mishap]) -> None:
        """One operation of a writer, and what came of it."""
        writer = self.writers[number]
        writer.actor.arm(mishaps)
        operation = wish.on(self.mailboxes, sorted(self.record, key=lambda one: one.key))
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

    def repair(self, actor: Actor, delay: float) -> Summary:
        """Mend what can be mended."""
        order, means = self.repairing(actor, delay)
        return repair(order, means, lambda _: None)

    def mend_lags(self, actor: Actor) -> Summary:
        """Mend what was journalled."""
        order, means = self.repairing(actor, 0.0)
        journal = self.journal(actor, self.at.clock)
        return mend_lags(journal, Wire(self.at.mail, actor), order, means, lambda _: None)

    def journal(self, actor: Actor, clock: Clock) -> LagJournal:
        """Where lags go: into the ledger, or on disk."""
        spool = Spool(Path(self.folder.name), "mail")
        return LagJournal(Wire(self.at.ledger, actor), "mail", clock, spool)

    def repairing(self, actor: Actor, delay: float) -> tuple[Order, Means]:
        """What a repair is asked for, and what it works with."""
        ledger = Wire(self.at.ledger, actor) if self.at.virtual else self.at.ledger  # leases would stay for hours
        place = Workplace(Wire(self.at.mail, actor), ledger, self.at.clock, self.at.nodes)
        return place.order(self.at.timing, delay), place.means(self.at.timing, LEASE_SECONDS)

    def rows(self, table: Any) -> list[Row]:
        """Every row of a table that is of this story."""
        rows = self.at.mail.scan(Scan(table, table.names))
        return [row for row in rows if row.get("mailboxid", self.mailboxes[0]) in self.mailboxes]

    def drift(self) -> list[Suspect]:
        """What a check must find, leaks apart, by the oracle and not by the engines."""
        rows = {table.spelling: self.rows(table) for table in MESSAGES.tables}
        return [one for one in expected_suspects(MESSAGES, rows) if one.verdict is not Verdict.LEAK]


def _place_of(operation: Operation | None) -> Place | None:
    return operation.place if isinstance(operation, Copy | Move | Delete | SetFlags) else None


def _removes(write: Conditional, place: Place | None) -> bool:
    return isinstance(write, RemoveIf) and place is not None and write.key == place.key


def test_stories_in_memory() -> None:
    """Any order of changes, mishaps, damages, repairs and hours."""
    run_state_machine_as_test(StoreMachine, settings=_settings(80, 25))


def test_stories_on_a_real_server(cassandra: CassandraServer) -> None:
    """A few of them, where time goes by itself, so that nothing arrives late and repairs declare the keyspace quiet."""
    names = (cassandra.keyspace(), cassandra.keyspace())
    with connect(contact_of(cassandra)) as cluster:
        mail_tables, ledger = created(cluster, names[0], MAIL), created(cluster, names[1], LEDGER)

        class RealMachine(StoreMachine):
            def arena(self) -> Arena:
                return _real_arena(cluster, mail_tables, ledger)

        try:
            run_state_machine_as_test(RealMachine, settings=_settings(6, 10))
        finally:
            dropped(cluster, names)


def _real_arena(cluster: CassandraCluster, mail_tables: Tables, ledger: Tables) -> Arena:
    return Arena(
        mail_tables,
        ledger,
        SystemClock(),
        cluster,
        Timing(no_writers=True),
        pass_time=lambda _: None,
        virtual=False,
        retries=RetryPolicy(2, 0.001, 0.005),
        skews=(0.0, 0.0),
    )


def _settings(stories: int, steps: int) -> settings:
    """The same stories in every run."""
    return settings(
        max_examples=stories,
        stateful_step_count=steps,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
