"""A model of the repair protocol: who moves when, in every order that real clusters allow.

One message at one place. Each actor has a thread of its own, but only one moves at a time: before each operation on the
mail tables it hands over, and a chooser says who goes on, or that time passes. The chooser is chance, or a script, so
that every order can be tried in turn. Time is virtual; clocks differ by `skew`. `tests.support.protocol_stories` says
what the actors do.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from mailmend.cql.memory import MemoryTables, Surround
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import FIRST_UNSEEN, IMAP_UID, MESSAGE_ID
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, ChangeIf, Put, PutIfAbsent, Read, RemoveIf, Scan, Seen, Write
from mailmend.model.projections.conditions import Condition
from mailmend.model.projections.family import Family, Filter
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Table
from mailmend.repair.ledger.runs import Ledger
from tests.support.clock import VirtualClock, uuid_at

TICK = MICROS // 2
"""Microseconds in a tick: an undo at T + 1 lies between two ticks, and a TTL, of whole seconds, ends at every other."""

BEGIN = 100_000_000
"""The tick at which the story begins."""

FUTURE = BEGIN + 200
"""A stamp from a clock that was set wrong."""

MESSAGE, MAILBOX, UID = uuid_at(1), uuid_at(2), 1


def _few(table: Table, *names: str) -> Table:
    """The table with its key and a few columns: the model needs no more, and is fast."""
    return table.with_columns(column for column in table.columns if column.in_key or column.name in names)


TRUTH = _few(IMAP_UID, "modseq", "flagseen")
MIRROR = _few(MESSAGE_ID, "messageid", "modseq", "flagseen")
_KEY = (("mailboxid", "mailboxid"), ("uid", "uid"))
FAMILY = Family(
    Mirror(TRUTH, MIRROR, _KEY, compared=tuple(MIRROR.regular), required=("modseq",)),
    filters=(Filter(TRUTH, FIRST_UNSEEN, _KEY, Condition("flagseen", value=False)),),
)
MIRROR_ONLY = replace(FAMILY, filters=())
PLACE = (MAILBOX, UID)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a story is made of; times in ticks.

    Attributes:
        skew: S, between any two clocks.
        stamp_age: A, from taking a stamp to the truth's commit.
        margin: what T lies before the scan.
        delay: between scan and recheck.
        lateness: the longest that a projection write is under way, always under one stamp.
        horizon: for how long time may pass while somebody could move.
        users: what the users do, in kinds of writers: "ours", "james", and ours with another stamp: "floor", "clock".
        believed: S as our floor stamps believe it to be; None believes what is so.
        nodes: conditional writes are stamped by a node with a clock of its own, after the writer has asked it.
        changes: the kinds of changes that are drawn from.
        repairs: how many repairs overlap.
        plans: how many repairs are planned, and applied later, once more, and perhaps killed in between.
        undo: whether one of them is taken back.
        lossy: whether projection writes may get lost or come twice.
        damages: the states that are drawn from for the beginning.
        apart: at most so long after one segment of a scan the next one is read: a staged scan rests between them.
        attempts: how often a repair goes on with one scan; all but the last are killed somewhere.
        scan_in_order: the scan reads the truth last, as the local engine does; else in any order, as Spark does.
        filters: whether firstUnseen is there too; without it every order can be tried in seconds.
        lives: the TTLs, in seconds, that are drawn from for the rows of the beginning; None: a row stays.
        lifetime: `default_time_to_live` of all tables, in seconds.
        variant: what is broken on purpose: "" | "truth first" | "late T" | "no digests" | "as of now".
    """

    skew: int = 3
    stamp_age: int = 1
    margin: int = 5
    delay: int = 0
    lateness: int = 6
    horizon: int = 12
    users: tuple[str, ...] = ("ours", "ours")
    believed: int | None = None
    nodes: bool = False
    changes: tuple[str, ...] = ("insert", "flags", "delete")
    repairs: int = 1
    plans: int = 0
    undo: bool = False
    lossy: bool = False
    damages: tuple[str, ...] = ("absent", "sound")
    apart: int = 0
    attempts: int = 1
    scan_in_order: bool = False
    filters: bool = True
    lives: tuple[int | None, ...] = (None,)
    lifetime: int | None = None
    variant: str = ""

    @property
    def family(self) -> Family:
        return FAMILY if self.filters else MIRROR_ONLY

    @property
    def projections(self) -> tuple[Mirror | Filter, ...]:
        return (self.family.mirror, *self.family.filters)

    @property
    def expires(self) -> bool:
        return self.lifetime is not None or self.lives != (None,)


@dataclass(slots=True)
class Story:
    """What came of one run."""

    drift: dict[str, Verdict] = field(default_factory=dict)
    harm: dict[str, Verdict] = field(default_factory=dict)
    false_fixed: list[Finding] = field(default_factory=list)
    unsettled: dict[str, Verdict] = field(default_factory=dict)
    outcomes: list[Finding] = field(default_factory=list)
    unapproved: list[Finding] = field(default_factory=list)
    outlived: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


class Chooser(Protocol):
    """Decides whatever is open."""

    def choose(self, options: int) -> int: ...


class Chance:
    """Decides at random, the same way for the same seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def choose(self, options: int) -> int:
        return self._random.randrange(options)


class Script:
    """Decides as written, then always the first; remembers how many options there were."""

    def __init__(self, written: Sequence[int]) -> None:
        self._written = list(written)
        self.taken: list[tuple[int, int]] = []

    def choose(self, options: int) -> int:
        at = len(self.taken)
        choice = self._written[at] if at < len(self._written) else 0
        self.taken.append((choice, options))
        return choice

    def next(self) -> list[int] | None:
        """The script that follows this one, or None when all were tried."""
        for at in reversed(range(len(self.taken))):
            choice, options = self.taken[at]
            if choice + 1 < options:
                return [one for one, _ in self.taken[:at]] + [choice + 1]
        return None


@dataclass(slots=True, eq=False)
class Actor:
    """Somebody with a clock and a thread."""

    name: str
    offset: int
    act: Callable[["Actor"], None]
    wake: int = 0
    asked: int = 0  # when it last took the time
    until: int | None = None  # by when it has to move: a stamp must not grow old
    finished: bool = False
    error: BaseException | None = None
    turn: Any = field(default_factory=threading.Lock)
    is_user: bool = True
    writes_left: int | None = None  # after which it is killed


@dataclass(slots=True)
class Delivery:
    """A write under way: it arrives whenever the chooser says, but no later than `until`."""

    write: Write
    until: int
    copies: int = 1


class ExpiringTables(MemoryTables):
    """Tables whose rows expire by the time of the story, whatever the stamps of the writes are.

    Args:
        stamp: the stamp of the next conditional write, in microseconds.
        seconds: the time, in seconds since 1970.
        lifetime: `default_time_to_live`, in seconds.
        mortal: False in a world without expiry.
    """

    def __init__(
        self,
        stamp: Callable[[], int],
        seconds: Callable[[], int],
        lifetime: int | None,
        surround: Surround | None = None,
        *,
        mortal: bool = True,
    ) -> None:
        super().__init__(stamp, surround)
        self._time = seconds
        self._lifetime = lifetime
        self._mortal = mortal

    def do(self, operation: Operation) -> None:
        """Carry out what a user did."""
        if isinstance(operation, PutIfAbsent | ChangeIf | RemoveIf):
            self.attempt(operation)
        else:
            self.write(operation)  # type: ignore[arg-type]

    def shown(self, read: Read) -> list[Seen]:
        """What stands there, read by nobody in the story."""
        return self._read(read.table, read.key, times=read.times)

    def _seconds(self) -> int:
        return self._time()

    def _expiry(self, table: Table, ttl: int | None) -> int | None:
        return super()._expiry(table, ttl or self._lifetime) if self._mortal else None


class World:
    """The tables, the time, and who moves next.

    Attributes:
        mail: the tables.
        alone: the tables as they would be, had the users been alone.
        immortal: the same, if nothing expired.
        undated: projections of which an undo brings back a row whose before-image has no expiry.
        in_flight: the longest time, in ticks, that a write of a repair was under way.
    """

    def __init__(self, setting: Setting, chooser: Chooser) -> None:
        self.setting, self.chooser = setting, chooser
        self.now = BEGIN
        self.stamp = BEGIN * TICK
        self.mail = self._tables(self._surround)
        self.alone = self._tables()
        self.immortal = self._tables(mortal=False)
        self.undated: set[str] = set()
        self.in_flight = 0
        self.each_tick: Callable[[], None] = lambda: None
        self.ledger_clock = VirtualClock()
        self.ledger = Ledger(MemoryTables(self.ledger_clock.micros), self.ledger_clock)
        self.actors: list[Actor] = []
        self.deliveries: list[Delivery] = []
        self.story = Story()
        self.uid_given = False
        self._known = {table.name for table in (TRUTH, *(one.table for one in setting.projections))}
        self._scheduler = threading.Lock()
        self._scheduler.acquire()
        self._moving: Actor | None = None

    def _tables(self, surround: Surround | None = None, *, mortal: bool = True) -> ExpiringTables:
        return ExpiringTables(lambda: self.stamp, self.seconds, self.setting.lifetime, surround, mortal=mortal)

    def seconds(self) -> int:
        return self.now * TICK // MICROS

    def users_did(self, operation: Operation) -> None:
        """Carry out what a user did where there are no repairs."""
        self.uid_given = self.uid_given or operation.table.name == TRUTH.name
        self.alone.do(operation)
        if self.setting.expires:
            self.immortal.do(operation)

    def clock_of(self, actor: Actor) -> "ActorClock":
        return ActorClock(self, actor)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.chooser.choose(len(options))] if len(options) > 1 else options[0]

    def add(self, name: str, act: Callable[[Actor], None], *, is_user: bool = True) -> None:
        offset = self.pick((0, self.setting.skew)) if self.setting.skew else 0
        actor = Actor(name, offset, act, is_user=is_user)
        actor.turn.acquire()
        self.actors.append(actor)

    def deliver(self, write: Write, within: int) -> None:
        """Send a write on its way; perhaps it gets lost, perhaps it comes twice."""
        if write.table.name not in self._known:
            return
        copies = self.pick((1, 0, 2)) if self.setting.lossy else 1
        if copies:
            self.deliveries.append(Delivery(write, self.now + within, copies))

    def play(self) -> None:
        for actor in self.actors:
            threading.Thread(target=self._thread, args=(actor,), daemon=True).start()
            if not self.setting.horizon:  # all begin at once: nothing happens before their first operation
                self._move(actor)
        while moves := self._moves():
            self._move(self.pick(moves))
        for actor in self.actors:
            if actor.error is not None:
                raise actor.error

    def pause(self, actor: Actor) -> None:
        self._scheduler.release()
        actor.turn.acquire()

    def _moves(self) -> list[Actor | Delivery | None]:
        waiting = [actor for actor in self.actors if not actor.finished]
        ready: list[Actor | Delivery | None] = [actor for actor in waiting if actor.wake <= self.now]
        ready += self.deliveries
        bounds = [*(actor.until for actor in waiting), *(one.until for one in self.deliveries)]
        hurry = any(until is not None and until <= self.now for until in bounds)
        sleeping = any(actor.wake > self.now for actor in waiting)
        may_wait = sleeping or (bool(ready) and self.now < BEGIN + self.setting.horizon)
        return [*ready, None] if may_wait and not hurry else ready

    def _move(self, mover: Actor | Delivery | None) -> None:
        match mover:
            case None:
                self.now += 1
                self.ledger_clock.advance(TICK / MICROS)
                self.each_tick()
            case Delivery(write=write):
                mover.copies -= 1
                if not mover.copies:
                    self.deliveries.remove(mover)
                self._note("late", write)
                self.users_did(write)
                self._carry_out(write)
            case Actor():
                self._moving = mover
                mover.turn.release()
                self._scheduler.acquire()
                self._moving = None

    def _carry_out(self, write: Write) -> None:
        self.mail.write(write)

    def _thread(self, actor: Actor) -> None:
        actor.turn.acquire()
        try:
            actor.act(actor)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            actor.error = error
        actor.finished = True
        self._scheduler.release()

    def _surround(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        actor = self._moving
        if actor is None:
            return carry_out()
        self.pause(actor)
        if isinstance(operation, PutIfAbsent | ChangeIf | RemoveIf):
            self.stamp = self._ballot(actor) * TICK
            actor.until = None
        if actor.is_user and not isinstance(operation, Read | Scan):
            self.users_did(operation)
        if not actor.is_user and isinstance(operation, Put | Change):
            self.in_flight = max(self.in_flight, self.now - actor.asked)
        answer = carry_out()
        self._note(actor.name, operation)
        if actor.writes_left is not None and not isinstance(operation, Read | Scan):
            actor.writes_left -= 1
            if actor.writes_left <= 0:
                raise KeyboardInterrupt
        return answer

    def _ballot(self, actor: Actor) -> int:
        skew, oldest = self.setting.skew, self.setting.stamp_age
        ahead: int = self.pick((0, skew)) if self.setting.nodes else actor.offset
        oldest = min(oldest, self.now - actor.asked) if self.setting.nodes else oldest
        age: int = self.pick((0, oldest)) if oldest else 0
        return self.now + ahead - age

    def _note(self, who: str, operation: Operation) -> None:
        at = getattr(operation, "at", None)
        what = f"{type(operation).__name__} {operation.table.spelling}"
        stamp = f" @{at / TICK - BEGIN:g}" if at is not None else ""
        self.story.log.append(f"{self.now - BEGIN:>3} {who}: {what}{stamp}")


@dataclass(slots=True)
class ActorClock(VirtualClock):
    """The Clock port of one actor: taking the time starts the life of a stamp."""

    world: World
    actor: Actor

    def micros(self) -> int:
        self.actor.asked = self.world.now
        if self.actor.is_user:
            self.actor.until = self.world.now + self.world.setting.stamp_age
        return (self.world.now + self.actor.offset) * TICK

    def sleep(self, seconds: float) -> None:
        self.actor.wake = self.world.now + round(seconds * MICROS / TICK)
        if self.actor.wake > self.world.now:
            self.world.pause(self.actor)

    def new_uuid(self) -> UUID:
        return uuid_at(self.micros())
