"""The stories that the model of the protocol tells: what users and repairs do, and how their end is judged.

Each actor runs the product's own code: `repair.store.writes` and `repair.store.plans` write,
`repair.mending.fixer` looks again and mends,
`repair.mending.undo` takes back; James's ways are told by hand. Harm is what a repair alone did: a projection that is
wrong in the end, and right when the same writes of the users are replayed without any repair.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from mailmend.model.catalog.mail import FIRST_UNSEEN
from mailmend.model.errors import MailmendError
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, ChangeIf, Put, PutIfAbsent, Read, Remove, Seen, Write
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.model.table import Row, Table
from mailmend.repair.ledger.before_images import image_digest
from mailmend.repair.mending.fixer import Fixer
from mailmend.repair.mending.second_look import SecondLook, _near_reads, _truth_reads, _with_near
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from mailmend.repair.retries import Retries
from mailmend.repair.store.plans import writes_for
from mailmend.repair.store.writes import ConditionalTruth, StampSource
from tests.support.clock import VirtualClock
from tests.support.progress import SilentProgress
from tests.support.protocol import (
    BEGIN,
    FAMILY,
    FUTURE,
    MAILBOX,
    MESSAGE,
    MIRROR,
    PLACE,
    TICK,
    TRUTH,
    UID,
    Actor,
    ActorClock,
    Chance,
    Chooser,
    ExpiringTables,
    Script,
    Setting,
    Story,
    World,
)
from tests.support.thorough import KEPT

T_APART = 2
"""No two runs have one T: a lease keeps them apart, and clocks tell microseconds. It and an undo's stamp fit a tick."""

APART = 1
"""Ticks between the Ts of a plan's runs."""

ROUNDED = 2
"""Seconds by which a fix may expire before its truth: both instants are rounded down to whole seconds."""

STAMPS = {"ours": StampSource.TRUTH, "floor": StampSource.FLOOR, "clock": StampSource.CLOCK}
"""The kinds of our writers."""


def truth_row(modseq: int, *, seen: bool) -> Row:
    return {"messageid": MESSAGE, "mailboxid": MAILBOX, "uid": UID, "modseq": modseq, "flagseen": seen}


def start(world: World) -> None:
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
    left = world.pick(world.setting.lives)
    later = world.pick((0, 1)) if left else 0
    writes: list[Put | Remove | Change] = [
        _lasting(write, left if write.table is TRUTH else left and left + later) for write in rows[damage]
    ]
    if left and world.pick((False, True)):
        writes += [replace(change, at=long_ago + 1) for change in _flag_expires_first(rows[damage])]
    for write in writes:
        dated = write if write.at else replace(write, at=long_ago)
        world.users_did(dated)
        world.mail.write(dated)
    lives = f", {left} s left" if left else ""
    world.story.log.append(f"begin: {damage}{lives}")


def _lasting(write: Put | Remove, seconds: int | None) -> Put | Remove:
    return replace(write, ttl_seconds=seconds) if isinstance(write, Put) else write


def _flag_expires_first(rows: Sequence[Put | Remove]) -> list[Change]:
    """Changes of the flags, as they are, that live for a second only."""
    flagged = [put for put in rows if isinstance(put, Put) and "flagseen" in put.row]
    return [
        Change(put.table, put.table.key_of(put.row), {"flagseen": put.row["flagseen"]}, ttl_seconds=1)
        for put in flagged
    ]


def _put(table: Table, row: Row) -> Put:
    return Put(table, row)


def user(kind: str, world: World) -> Callable[[Actor], None]:
    """One user who makes one change, through our writer's code or as James does it."""
    change = world.pick(world.setting.changes)
    return _james(change, world) if kind == "james" else _ours(change, world, STAMPS[kind])


def _ours(change: str, world: World, stamp: StampSource) -> Callable[[Actor], None]:
    setting = world.setting
    skew = (setting.skew if setting.believed is None else setting.believed) * TICK

    def act(actor: Actor) -> None:
        clock = world.clock_of(actor)
        truth = ConditionalTruth(world.mail, TRUTH, clock, Retries(clock), stamp=stamp, skew_micros=skew)
        seen = truth.read((MESSAGE, MAILBOX, UID))
        if change == "insert":
            made = truth.insert(truth_row(1, seen=False), fresh=True) if seen is None and _is_new(world) else None
        elif seen is None or seen.row["modseq"] is None:  # absent, or its modseq has expired
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
        for one in writes_for(setting.family, before, made.current, made.stamp):
            world.deliver(one.write, setting.lateness)

    return act


def _james(change: str, world: World) -> Callable[[Actor], None]:
    """Projections stamped by the client's clock; a delete that is plain, and parallel to its projections' ones."""

    def act(actor: Actor) -> None:
        clock, mail, late = world.clock_of(actor), world.mail, world.setting.lateness
        rows = mail.read(Read(TRUTH, (MESSAGE, MAILBOX, UID)))
        old = rows[0].row if rows else None
        if change == "insert" and old is None and _is_new(world):
            row = truth_row(1, seen=False)
            if mail.attempt(PutIfAbsent(TRUTH, row)).applied:
                stamp = clock.micros()
                world.deliver(Put(MIRROR, FAMILY.mirror.row_of(row), at=stamp), late)
                world.deliver(Put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(PLACE), at=stamp), late)
        elif change == "flags" and old is not None and old["modseq"] is not None:
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


def _is_new(world: World) -> bool:
    """Whether the uid is still to be given: it is never given twice, not even to two who ask at once."""
    given = world.uid_given
    world.uid_given = True
    return not given


def repairer(world: World) -> Callable[[Actor], None]:
    """One repair: T, scan, delay, second look and fixes; perhaps killed and gone on with, perhaps taken back."""

    def act(actor: Actor) -> None:
        setting, clock = world.setting, world.clock_of(actor)
        began = clock.micros()
        suspects = scan(world, clock)
        for attempt in range(setting.attempts):
            now = clock.micros() if setting.variant == "late T" else began
            as_of = now - (setting.margin + attempt) * TICK
            run = world.ledger.start("mail", "repair", as_of, {}).id
            clock.sleep(setting.delay * TICK / MICROS)
            actor.writes_left = world.pick((1, 2, 3)) if attempt + 1 < setting.attempts else None
            with suppress(KeyboardInterrupt):
                world.story.outcomes += revisit(world, clock, suspects, run, as_of)
            rest(world, clock)
        if setting.undo and world.pick((False, True)):
            actor.offset = world.pick((0, setting.skew)) if setting.expires else actor.offset  # on any host
            take_back(world, clock, run)

    return act


def planner(world: World, number: int) -> Callable[[Actor], None]:
    """A repair that is planned, and applied twice by others, sooner or later; the first may be killed at any write."""

    def act(actor: Actor) -> None:
        setting, clock = world.setting, world.clock_of(actor)
        as_of = clock.micros() - setting.margin * TICK - T_APART * (1 + number)
        suspects = scan(world, clock)
        clock.sleep(setting.delay * TICK / MICROS)
        due = [one for one in revisit(world, clock, suspects, None, as_of) if one.due]
        plan = [replace(one.suspect, planned=image_digest(one)) for one in due]
        for runs in range(2):
            clock.sleep(world.pick((0, 4, 20)) * TICK / MICROS)
            actor.offset = world.pick((0, setting.skew))
            actor.writes_left = world.pick((None, 1, 2)) if not runs else None
            try:
                _apply(world, clock, plan, as_of - runs * APART * TICK)
            except KeyboardInterrupt:
                world.story.log.append("killed")

    return act


def _apply(world: World, clock: ActorClock, plan: Sequence[Suspect], as_of: int) -> None:
    """As `apply` does it: the plan's T, less a little for each run before; or broken on purpose."""
    story, variant = world.story, world.setting.variant
    latest = clock.micros() - world.setting.margin * TICK
    as_of = clock.micros() if variant == "as of now" else min(latest, as_of)
    run = world.ledger.start("mail", "repair", as_of, {}).id
    suspects = [replace(one, planned="") for one in plan] if variant == "no digests" else plan
    outcomes = revisit(world, clock, suspects, run, as_of)
    approved = {one.planned for one in plan}
    story.outcomes += outcomes
    story.unapproved += [one for one in outcomes if one.result is Verdict.FIXED and image_digest(one) not in approved]


def take_back(world: World, clock: ActorClock, run: RunId) -> None:
    again = _undone(world, clock, run)
    if again is not None and world.pick((False, True)):
        _undone(world, clock, again)


def _undone(world: World, clock: ActorClock, run: RunId) -> RunId | None:
    images = [image for image in world.ledger.findings(run) if image.projected and not image.projected.expires_at]
    world.undated |= {image.suspect.projection for image in images}
    tools = UndoTools(world.mail, world.ledger, clock, SilentProgress())
    return undo(UndoSettings(run, "mail", (world.setting.family,)), tools, world.story.outcomes.append).run


def rest(world: World, clock: VirtualClock) -> None:
    """For a while nobody works on a staged scan."""
    if world.setting.apart:
        clock.sleep(world.pick((0, world.setting.apart)) * TICK / MICROS)


def scan(world: World, clock: VirtualClock) -> list[Suspect]:
    """What a scan suspects: the three tables are read one after the other, in any order or the truth last."""
    tables = [one.table for one in world.setting.projections]
    order = [*tables, TRUTH] if world.setting.scan_in_order else world.pick(([*tables, TRUTH], [TRUTH, *tables]))
    keys = {MIRROR.name: PLACE, FIRST_UNSEEN.name: PLACE, TRUTH.name: (MESSAGE,)}
    rows: dict[str, tuple[Seen, ...]] = {}
    for table in order:
        rows[table.name] = tuple(world.mail.read(Read(table, keys[table.name])))
        rest(world, clock)
    truths, keys_seen = rows[TRUTH.name], tuple((seen.row["messageid"],) for seen in rows[TRUTH.name])
    found = []
    for one in world.setting.projections:
        projected = rows[one.table.name]
        verdict = verdict_of(one, truths, projected)
        if verdict is not Verdict.AGREE:
            found.append(Suspect(one.name, PLACE, verdict, keys_seen))
    return found


def revisit(world: World, clock: Any, suspects: Sequence[Suspect], run: RunId | None, as_of: int) -> list[Finding]:
    """The product's second look, or a variant of it that is broken on purpose."""
    policy = RepairPolicy(run, as_of, world.setting.skew * TICK / MICROS, MENDABLE)
    fixer = Fixer(world.mail, world.ledger, clock, (world.setting.family,), policy)
    if world.setting.variant == "truth first":
        fixer._looks = TruthFirst(world.mail, (world.setting.family,), policy, clock)
    return list(fixer.revisit(suspects))


class TruthFirst(SecondLook):
    """A second look in the wrong order: the truth before the projection."""

    def at(self, suspects: Sequence[Suspect]) -> list[Look | MailmendError]:
        """The truth first, by what the scan saw of it; then the projection."""
        begun = [self._begin(suspect) for suspect in suspects]
        held = self._wave(begun, _truth_reads, lambda look, rows: replace(look, truths=tuple(chain(*rows))))
        near = self._wave(held, _near_reads, _with_near)
        return [
            one if isinstance(one, MailmendError) else one.projection.looked_at(one, one.truths, accept_torn=False)
            for one in near
        ]

    def confirmed(self, looks: Sequence[Look | MailmendError]) -> list[Look | MailmendError]:
        return list(looks)


def verdict_of(projection: Projection, truths: Sequence[Seen], rows: Sequence[Seen]) -> Verdict:
    suspect = Suspect(projection.name, PLACE, Verdict.AMEND)
    return Look(
        suspect, FAMILY.mirror, FAMILY.content, projection, rows[0] if rows else None, truths=tuple(truths)
    ).verdict


def verdicts(mail: ExpiringTables, setting: Setting) -> dict[str, Verdict]:
    truths = tuple(mail.read(Read(TRUTH, (MESSAGE,))))
    found = {}
    for one in setting.projections:
        rows = mail.read(Read(one.table, PLACE))
        found[one.name] = verdict_of(one, truths, rows)
    return found


def tell(setting: Setting, chooser: Chooser) -> Story:
    """One story from its beginning to what two quiet runs make of it."""
    world = World(setting, chooser)
    if setting.expires:
        watch = ExpiryWatch(world)
        world.each_tick = watch.look
    start(world)
    for number, kind in enumerate(setting.users):
        world.add(f"{kind} {number}", user(kind, world))
    for number in range(setting.repairs):
        world.add(f"repair {number}", repairer(world), is_user=False)
    for number in range(setting.plans):
        world.add(f"plan {number}", planner(world, number), is_user=False)
    world.play()
    _judge(world)
    return world.story


class ExpiryWatch:
    """Looks after each tick whether a repair keeps, or brings back, what has expired.

    A row is outlived where it is only there by a repair, and its truth (or, without a truth, itself) has expired where
    users are alone. A TTL counts from when the server executes a write: so a row may stay for as long as the write was
    under way, in whole seconds, and where an undo of another host wrote it, for the difference of the clocks. A row of
    which no before-image tells when it expires is left out: a key without truth and mirror.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._ticks: Counter[str] = Counter()

    def look(self) -> None:
        world, setting = self._world, self._world.setting
        late = world.in_flight + (setting.skew if setting.undo else 0)
        allowed = -(-late * TICK // MICROS) * MICROS // TICK
        dated = (one for one in setting.projections if one.name not in world.undated)
        for one in dated:
            kept = self._is_kept(one)
            self._ticks[one.name] = self._ticks[one.name] + 1 if kept else 0
            if self._ticks[one.name] > allowed:
                world.story.outlived.append(f"{world.now - BEGIN}: {one.name}")

    def _is_kept(self, projection: Projection) -> bool:
        own = Read(projection.table, PLACE)
        if not _stored(self._world.mail, own) or _stored(self._world.alone, own):
            return False
        truth = Read(TRUTH, (MESSAGE, MAILBOX, UID))
        if _stored(self._world.alone, truth):
            return False
        return _stored(self._world.immortal, truth) or _stored(self._world.immortal, own)


def _stored(tables: ExpiringTables, read: Read) -> bool:
    return bool(tables.shown(read))


def _judge(world: World) -> None:
    story = world.story
    alone = verdicts(world.alone, world.setting)
    found = verdicts(world.mail, world.setting)
    story.drift = {name: verdict for name, verdict in found.items() if verdict is not Verdict.AGREE}
    if world.setting.expires:
        _wait_for_expiry(world)
    else:
        story.harm = {name: verdict for name, verdict in story.drift.items() if alone[name] is Verdict.AGREE}
    quiet = _quiet(world, 50)
    now = verdicts(world.mail, world.setting)
    story.false_fixed = [
        one for one in quiet if one.result is Verdict.FIXED and now[one.suspect.projection] is not Verdict.AGREE
    ]
    _quiet(world, 1000)
    story.unsettled = {
        name: verdict for name, verdict in verdicts(world.mail, world.setting).items() if verdict is not Verdict.AGREE
    }


def _wait_for_expiry(world: World) -> None:
    """Pass the time until everything has expired, with a look at each tick."""
    longest = max(world.setting.lifetime or 0, *(left or 0 for left in world.setting.lives)) + 2
    for _ in range(longest * MICROS // TICK):
        _note_harm(world)
        world.now += 1
        world.each_tick()


def _note_harm(world: World) -> None:
    """Note the harm at this tick, while the truth is there and loses nothing soon: a TTL is rounded down."""
    truth = world.alone.shown(Read(TRUTH, (MESSAGE, MAILBOX, UID), times=True))
    if not truth or any(left <= ROUNDED for left in truth[0].ttls.values()):
        return
    alone, found = verdicts(world.alone, world.setting), verdicts(world.mail, world.setting)
    for name, verdict in found.items():
        if verdict is not Verdict.AGREE and alone[name] is Verdict.AGREE:
            world.story.harm[name] = verdict


def _quiet(world: World, ticks: int) -> list[Finding]:
    world.now += ticks
    clock = VirtualClock(world.now * TICK)
    as_of = clock.micros() - world.setting.margin * TICK
    run = world.ledger.start("mail", "repair", as_of, {}).id
    return revisit(world, clock, scan(world, clock), run, as_of)


def stories(setting: Setting, count: int, seed: int = KEPT[0]) -> Iterator[Story]:
    return (tell(setting, Chance(f"{seed} {number}")) for number in range(count))


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
