"""A model of the repair protocol: users and repairs step by step, in every order that real clusters allow.

One message at one place. Each actor runs the product's own code (`repair.truths` and `repair.plans` write,
`repair.fixer` looks again and mends, `repair.undo` takes back) in a thread of its own, but only one moves at a time:
before each operation on the mail tables it hands over, and a chooser says who goes on, or that time passes. The
chooser is chance, or a script, so that every order can be tried in turn. Time is virtual; clocks differ by `skew`.

Harm is what the repair alone did: a projection that is wrong in the end, and right when the same writes of the users
are replayed without any repair.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from cql.memory import MemoryTables
from cql.statements import Operation
from model.catalog import FIRST_UNSEEN, IMAP_UID, MESSAGE_ID
from model.errors import MailmendError
from model.ids import RunId
from model.messages import Place
from model.operations import Change, ChangeIf, Put, PutIfAbsent, Read, Remove, RemoveIf, Scan, Write
from model.projections import Condition, Family, Filter, Mirror
from model.table import Row, Table
from repair.clock import MICROS
from repair.decide import MENDABLE, Verdict
from repair.findings import Errand, Outcome, Suspect
from repair.fixer import Fixer
from repair.fixes import Sight
from repair.looks import Answers, Approach, SecondLook, _near_reads
from repair.pace import Pace
from repair.plans import writes_for
from repair.recheck import Look, verdict_of
from repair.retries import Retries
from repair.runs import Ledger
from repair.truths import ConditionalTruth
from repair.undo import UndoMeans, UndoOrder, undo
from tests.support.clock import VirtualClock, uuid_at
from tests.support.progress import SilentProgress

TICK = 10
"""Microseconds in a tick: an undo at T + 1 lies between two ticks."""

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
        users: what the users do, in kinds of writers: "ours" and "james".
        changes: the kinds of changes that are drawn from.
        repairs: how many repairs overlap.
        undo: whether one of them is taken back.
        lossy: whether projection writes may get lost or come twice.
        damages: the states that are drawn from for the beginning.
        scan_in_order: the scan reads the truth last, as the local engine does; else in any order, as Spark does.
        filters: whether firstUnseen is there too; without it every order can be tried in seconds.
        variant: what is broken on purpose: "" | "truth first".
    """

    skew: int = 3
    stamp_age: int = 1
    margin: int = 5
    delay: int = 0
    lateness: int = 6
    horizon: int = 12
    users: tuple[str, ...] = ("ours", "ours")
    changes: tuple[str, ...] = ("insert", "flags", "delete")
    repairs: int = 1
    undo: bool = False
    lossy: bool = False
    damages: tuple[str, ...] = ("absent", "sound")
    scan_in_order: bool = False
    filters: bool = True
    variant: str = ""

    @property
    def family(self) -> Family:
        """The declarations that the product's code is driven by."""
        return FAMILY if self.filters else MIRROR_ONLY

    @property
    def projections(self) -> tuple[Mirror | Filter, ...]:
        """What is judged in the end."""
        return (self.family.mirror, *self.family.filters)


@dataclass(slots=True)
class Story:
    """What came of one run."""

    harm: dict[str, Verdict] = field(default_factory=dict)
    false_fixed: list[Outcome] = field(default_factory=list)
    unsettled: dict[str, Verdict] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


class Chooser(Protocol):
    """Decides whatever is open."""

    def choose(self, options: int) -> int:
        """A number from 0 up to below `options`."""
        ...


class Chance:
    """Decides at random, the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, options: int) -> int:
        """Any number below `options`."""
        return self._random.randrange(options)


class Script:
    """Decides as written, then always the first; remembers how many options there were."""

    def __init__(self, written: Sequence[int]) -> None:
        self._written = list(written)
        self.taken: list[tuple[int, int]] = []

    def choose(self, options: int) -> int:
        """The next number of the script."""
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
    until: int | None = None  # by when it has to move: a stamp must not grow old
    finished: bool = False
    error: BaseException | None = None
    turn: Any = field(default_factory=threading.Lock)
    is_user: bool = True


@dataclass(slots=True)
class Delivery:
    """A write under way: it arrives whenever the chooser says, but no later than `until`."""

    write: Write
    until: int
    copies: int = 1


class World:
    """The tables, the time, and who moves next."""

    def __init__(self, setting: Setting, chooser: Chooser) -> None:
        self.setting, self.chooser = setting, chooser
        self.now = BEGIN
        self.stamp = BEGIN * TICK
        self.mail = MemoryTables(lambda: self.stamp, self._surround)
        self.ledger_clock = VirtualClock()
        self.ledger = Ledger(MemoryTables(self.ledger_clock.micros), self.ledger_clock)
        self.actors: list[Actor] = []
        self.deliveries: list[Delivery] = []
        self.trace: list[tuple[Operation, int]] = []
        self.story = Story()
        self._known = {table.name for table in (TRUTH, *(one.table for one in setting.projections))}
        self._scheduler = threading.Lock()
        self._scheduler.acquire()
        self._moving: Actor | None = None

    def clock_of(self, actor: Actor) -> "ActorClock":
        """The clock as the actor sees it."""
        return ActorClock(self, actor)

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return options[self.chooser.choose(len(options))] if len(options) > 1 else options[0]

    def add(self, name: str, act: Callable[[Actor], None], *, is_user: bool = True) -> None:
        """One more actor, with a clock of its own."""
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
        """Let everybody come to an end."""
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
        """Hand over, and go on when it is this actor's turn again."""
        self._scheduler.release()
        actor.turn.acquire()

    def _moves(self) -> list[Actor | Delivery | None]:
        """Who may move; None is the time."""
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
                self.ledger_clock.advance(1e-6)
            case Delivery(write=write):
                mover.copies -= 1
                if not mover.copies:
                    self.deliveries.remove(mover)
                self._note("late", write)
                self.trace.append((write, self.stamp))
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
        """Before each operation of an actor everybody else may move."""
        actor = self._moving
        if actor is None:
            return carry_out()
        self.pause(actor)
        if isinstance(operation, PutIfAbsent | ChangeIf | RemoveIf):
            age = self.pick((0, self.setting.stamp_age)) if self.setting.stamp_age else 0
            self.stamp = (self.now + actor.offset - age) * TICK
            actor.until = None
        if actor.is_user and not isinstance(operation, Read | Scan):
            self.trace.append((operation, self.stamp))
        answer = carry_out()
        self._note(actor.name, operation)
        return answer

    def _note(self, who: str, operation: Operation) -> None:
        at = getattr(operation, "at", None)
        what = f"{type(operation).__name__} {operation.table.spelling}"
        stamp = f" @{at / TICK - BEGIN:g}" if at is not None else ""
        self.story.log.append(f"{self.now - BEGIN:>3} {who}: {what}{stamp}")


@dataclass(slots=True)
class ActorClock:
    """The Clock port of one actor: taking the time starts the life of a stamp."""

    world: World
    actor: Actor

    def micros(self) -> int:
        """The world's time as this actor's clock has it."""
        if self.actor.is_user:
            self.actor.until = self.world.now + self.world.setting.stamp_age
        return (self.world.now + self.actor.offset) * TICK

    def sleep(self, seconds: float) -> None:
        """Sleep in ticks of virtual time."""
        self.actor.wake = self.world.now + round(seconds * MICROS / TICK)
        if self.actor.wake > self.world.now:
            self.world.pause(self.actor)

    def new_uuid(self) -> UUID:
        """A version-1 UUID of now."""
        return uuid_at(self.micros())


def truth_row(modseq: int, *, seen: bool) -> Row:
    """The message's truth row."""
    return {"messageid": MESSAGE, "mailboxid": MAILBOX, "uid": UID, "modseq": modseq, "flagseen": seen}


def start(world: World) -> None:
    """A state to begin with, written long ago."""
    damage, long_ago = world.pick(world.setting.damages), (BEGIN - 1000) * TICK
    truth = truth_row(1, seen=False)
    mirror, unseen = FAMILY.mirror.row_of(truth), FIRST_UNSEEN.key_row(PLACE)
    rows: dict[str, list[Put | Remove]] = {
        "absent": [],
        "sound": [_put(TRUTH, truth), _put(MIRROR, mirror), _put(FIRST_UNSEEN, unseen)],
        "not projected": [_put(TRUTH, truth)],
        "amended": [_put(TRUTH, truth), _put(MIRROR, {**mirror, "flagseen": True}), _put(FIRST_UNSEEN, unseen)],
        "stale": [_put(MIRROR, mirror), _put(FIRST_UNSEEN, unseen)],
        "filter missing": [_put(TRUTH, truth), _put(MIRROR, mirror)],
        "filter stale": [_put(FIRST_UNSEEN, unseen)],
        "hidden": [_put(TRUTH, truth), Remove(MIRROR, PLACE, at=FUTURE * TICK), _put(FIRST_UNSEEN, unseen)],
        "filter ahead": [Put(FIRST_UNSEEN, unseen, at=FUTURE * TICK)],
        "mirror ahead": [Put(MIRROR, mirror, at=FUTURE * TICK)],
    }
    for write in rows[damage]:
        dated = write if write.at else replace(write, at=long_ago)
        world.trace.append((dated, 0))
        world.mail.write(dated)
    world.story.log.append(f"begin: {damage}")


def _put(table: Table, row: Row) -> Put:
    return Put(table, row)


def user(kind: str, world: World) -> Callable[[Actor], None]:
    """One user who makes one change, through our writer's code or as James does it."""
    change = world.pick(world.setting.changes)
    return (_ours if kind == "ours" else _james)(change, world)


def _ours(change: str, world: World) -> Callable[[Actor], None]:
    def act(actor: Actor) -> None:
        clock = world.clock_of(actor)
        truth = ConditionalTruth(world.mail, TRUTH, clock, Retries(clock))
        seen = truth.read(Place(MESSAGE, MAILBOX, UID))  # type: ignore[arg-type]
        if change == "insert":
            made = truth.insert(truth_row(1, seen=False)) if seen is None and not _was_there(world) else None
        elif seen is None:
            made = None
        elif change == "delete":
            made = truth.remove(seen)
        else:
            after = {**seen.row, "modseq": seen.row["modseq"] + 1, "flagseen": not seen.row["flagseen"]}
            made = truth.change(seen, after)
        actor.until = None
        if made is None or made.stamp is None:
            return
        before = made.before.row if made.before else None
        for one in writes_for(world.setting.family, before, made.current, made.stamp):
            world.deliver(one.write, world.setting.lateness)

    return act


def _james(change: str, world: World) -> Callable[[Actor], None]:
    """Projections stamped by the client's clock; a delete that is plain, and parallel to its projections' ones."""

    def act(actor: Actor) -> None:
        clock, mail, late = world.clock_of(actor), world.mail, world.setting.lateness
        rows = mail.read(Read(TRUTH, (MESSAGE, MAILBOX, UID)))
        old = rows[0].row if rows else None
        if change == "insert" and old is None and not _was_there(world):
            row = truth_row(1, seen=False)
            if mail.attempt(PutIfAbsent(TRUTH, row)).applied:
                stamp = clock.micros()
                world.deliver(Put(MIRROR, FAMILY.mirror.row_of(row), at=stamp), late)
                world.deliver(Put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(PLACE), at=stamp), late)
        elif change == "flags" and old is not None:
            new = {"modseq": old["modseq"] + 1, "flagseen": not old["flagseen"]}
            key = (MESSAGE, MAILBOX, UID)
            if mail.attempt(ChangeIf(TRUTH, key, {"modseq": old["modseq"]}, assign=new)).applied:
                stamp = clock.micros()
                world.deliver(Change(MIRROR, PLACE, assign=new, at=stamp), late)
                world.deliver(_unseen(seen=new["flagseen"], stamp=stamp), late)
        elif change == "delete" and old is not None:
            stamp = clock.micros()
            world.deliver(Remove(TRUTH, (MESSAGE, MAILBOX), at=stamp), world.setting.stamp_age)
            world.deliver(Remove(MIRROR, PLACE, at=stamp), late)
            world.deliver(Remove(FIRST_UNSEEN, PLACE, at=stamp), late)
        actor.until = None

    return act


def _unseen(*, seen: bool, stamp: int) -> Write:
    if seen:
        return Remove(FIRST_UNSEEN, PLACE, at=stamp)
    return Put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(PLACE), at=stamp)


def _was_there(world: World) -> bool:
    """A uid is never given twice."""
    return any(operation.table.name == TRUTH.name for operation, _ in world.trace)


def repairer(world: World) -> Callable[[Actor], None]:
    """One repair: T, scan, delay, second look and fixes; perhaps taken back afterwards."""

    def act(actor: Actor) -> None:
        setting, clock = world.setting, world.clock_of(actor)
        as_of = clock.micros() - setting.margin * TICK
        run = world.ledger.start("mail", "repair", as_of, {}).id
        suspects = scan(world)
        clock.sleep(setting.delay * TICK / MICROS)
        world.story.outcomes += revisit(world, clock, suspects, run, as_of)
        if setting.undo and world.pick((False, True)):
            take_back(world, clock, run)

    return act


def take_back(world: World, clock: ActorClock, run: RunId) -> None:
    """Undo a run, and perhaps redo it."""
    means = UndoMeans(world.mail, world.ledger, clock, SilentProgress())
    undone = undo(UndoOrder(run, "mail", (world.setting.family,)), means, world.story.outcomes.append)
    if undone.run is not None and world.pick((False, True)):
        undo(UndoOrder(undone.run, "mail", (world.setting.family,)), means, world.story.outcomes.append)


def scan(world: World) -> list[Suspect]:
    """What a scan suspects: the three tables are read one after the other, in any order or the truth last."""
    tables = [one.table for one in world.setting.projections]
    order = [*tables, TRUTH] if world.setting.scan_in_order else world.pick(([*tables, TRUTH], [TRUTH, *tables]))
    keys = {MIRROR.name: PLACE, FIRST_UNSEEN.name: PLACE, TRUTH.name: (MESSAGE,)}
    rows = {table.name: tuple(world.mail.read(Read(table, keys[table.name]))) for table in order}
    truths, ids = rows[TRUTH.name], tuple(seen.row["messageid"] for seen in rows[TRUTH.name])
    found = []
    for one in world.setting.projections:
        projected = rows[one.table.name]
        verdict = verdict_of(Look(one, PLACE, truths, projected[0] if projected else None))
        if verdict is not Verdict.AGREE:
            found.append(Suspect(one.name, PLACE, verdict, ids))
    return found


def revisit(world: World, clock: Any, suspects: Sequence[Suspect], run: RunId, as_of: int) -> list[Outcome]:
    """The product's second look, or a variant of it that is broken on purpose."""
    errand = Errand(run, as_of, world.setting.skew * TICK / MICROS, MENDABLE)
    fixer = Fixer(world.mail, world.ledger, clock, (world.setting.family,), errand, Pace(None, clock))
    if world.setting.variant == "truth first":
        fixer._looks = TruthFirst(world.mail, (world.setting.family,), errand)
    return list(fixer.revisit(suspects))


class TruthFirst(SecondLook):
    """A second look in the wrong order: the truth before the projection."""

    def at(self, suspects: Sequence[Suspect]) -> list[Sight | MailmendError]:
        """The truth first, by what the scan saw of it; then the projection."""
        started = [self._start(suspect) for suspect in suspects]
        held: list[Any] = self._wave(started, self._truth_reads, lambda one, answers: (one, answers))
        near = self._wave(held, lambda one: _near_reads(one[0]), lambda one, rows: (_near(one[0], rows), one[1]))
        return [one if isinstance(one, MailmendError) else self._sight(one[0], one[1]) for one in near]


def _near(one: Approach, answers: Answers) -> Approach:
    return replace(one, near=tuple(answer[0] if answer else None for answer in answers))


def verdicts(mail: MemoryTables, setting: Setting) -> dict[str, Verdict]:
    """What each projection is worth by itself."""
    truths = tuple(mail.read(Read(TRUTH, (MESSAGE,))))
    found = {}
    for one in setting.projections:
        rows = mail.read(Read(one.table, PLACE))
        found[one.name] = verdict_of(Look(one, PLACE, truths, rows[0] if rows else None))
    return found


def without_repairs(trace: Sequence[tuple[Operation, int]], setting: Setting) -> dict[str, Verdict]:
    """What each projection would be worth, had the users been alone."""
    stamp = [0]
    mail = MemoryTables(lambda: stamp[0])
    for operation, at in trace:
        stamp[0] = at
        if isinstance(operation, PutIfAbsent | ChangeIf | RemoveIf):
            mail.attempt(operation)
        else:
            mail.write(operation)  # type: ignore[arg-type]
    return verdicts(mail, setting)


def tell(setting: Setting, chooser: Chooser) -> Story:
    """One story from its beginning to what two quiet runs make of it."""
    world = World(setting, chooser)
    start(world)
    for number, kind in enumerate(setting.users):
        world.add(f"{kind} {number}", user(kind, world))
    for number in range(setting.repairs):
        world.add(f"repair {number}", repairer(world), is_user=False)
    world.play()
    _judge(world)
    return world.story


def _judge(world: World) -> None:
    story, alone = world.story, without_repairs(world.trace, world.setting)
    story.harm = {
        name: verdict
        for name, verdict in verdicts(world.mail, world.setting).items()
        if verdict is not Verdict.AGREE and alone[name] is Verdict.AGREE
    }
    told = _quiet(world, 50)
    now = verdicts(world.mail, world.setting)
    story.false_fixed = [
        one for one in told if one.result is Verdict.FIXED and now[one.suspect.projection] is not Verdict.AGREE
    ]
    _quiet(world, 1000)
    story.unsettled = {
        name: verdict for name, verdict in verdicts(world.mail, world.setting).items() if verdict is not Verdict.AGREE
    }


def _quiet(world: World, ticks: int) -> list[Outcome]:
    """A repair that nobody disturbs, so much later."""
    world.now += ticks
    clock = VirtualClock(world.now * TICK)
    as_of = clock.micros() - world.setting.margin * TICK
    run = world.ledger.start("mail", "repair", as_of, {}).id
    return revisit(world, clock, scan(world), run, as_of)


def stories(setting: Setting, seeds: int) -> Iterator[Story]:
    """Stories at random, one for each seed."""
    return (tell(setting, Chance(seed)) for seed in range(seeds))


def every_story(setting: Setting, most: int) -> Iterator[Story]:
    """Every story there is.

    Raises:
        AssertionError: there are more than `most`.
    """
    script: list[int] | None = []
    for _ in range(most):
        if script is None:
            return
        chooser = Script(script)
        yield tell(setting, chooser)
        script = chooser.next()
    assert script is None, f"more than {most} stories"
