"""What people and hooks order for a queue, as the ledger has it for all its servers: read again and again, and heeded.

All of it is read before anything of it counts: where the ledger cannot be read, nothing changes. One order that cannot
be read does not stop the others: a suspension holds more mails than it names, a condition lets nothing begin of the
mails that it names, or is parked where it does not tell them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from mailmend.delivery.ledger.orders import LedgerOrders
from mailmend.delivery.ledger.policies import SAID_FOR
from mailmend.delivery.mail.entries import EndedEntry, EntryEnd
from mailmend.delivery.mail.hooks import HookOrder, SuspendMails
from mailmend.delivery.mail.queued import EntryChange
from mailmend.delivery.policy.conditions import MadeCondition, PlacedCondition, ServedPolicies, with_conditions
from mailmend.delivery.policy.counters import PolicyChanges
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.policy import CounterPolicy
from mailmend.delivery.policy.sub_queues import UNKNOWN
from mailmend.delivery.policy.suspensions import MadeSuspension, Suspension
from mailmend.delivery.shared.hook_orders import HookOrders
from mailmend.mailqueue.background import paused
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import instant_of, nanos_in, nanos_of, span_of
from mailmend.model.ports import Clock

_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(frozen=True, slots=True)
class EngineTime:
    """The engine's own clock, which never goes back, however ours is set."""

    clock: Clock

    def nanos(self) -> int:
        return nanos_of(self.clock.monotonic())

    def of(self, at: datetime | None) -> int:
        """When that will be; UNKNOWN for never."""
        if at is None:
            return UNKNOWN
        return self.nanos() + nanos_in(at - instant_of(self.clock.micros()))


@dataclass(slots=True, eq=False)
class HeededSuspensions:
    """The suspensions that an engine knows, by id; each ends by the engine's own clock."""

    engine: PickupEngine
    time: EngineTime
    holding: Mapping[UUID, MadeSuspension] = field(default_factory=dict)

    def understood(self, made: Sequence[MadeSuspension]) -> Callable[[], bool]:
        """What lets these hold from now on, and no others, and says whether anything has changed."""
        found = {suspension.id: suspension for suspension in made}
        new = [suspension for suspension in made if self.holding.get(suspension.id) != suspension]
        suspensions = [suspension.suspension(self.time.of(suspension.ends_at)) for suspension in new]

        def heeded() -> bool:
            now = self.time.nanos()
            gone = [made_suspension for name, made_suspension in self.holding.items() if name not in found]
            for made_suspension in gone:
                self.engine.lift(str(made_suspension.id), now)
                _LOG.info("a suspension is over", extra={"suspension": str(made_suspension.id)})
            for made_suspension, suspension in zip(new, suspensions, strict=True):
                self._suspend(made_suspension, suspension, now)
            self.holding = found
            return bool(new or gone)

        return heeded

    def _suspend(self, one: MadeSuspension, suspension: Suspension, now: int) -> None:
        self.engine.suspend(suspension, now)
        shown = {"suspension": str(one.id), "owner": one.owner, "why": one.reason, "ends_at": str(one.ends_at)}
        _LOG.info("mails are suspended", extra=shown)
        if one.unread:
            what = "a suspension cannot be read, and holds more mails than it names"
            _LOG.warning(what, extra={**shown, "error": "; ".join(one.unread)})

    @property
    def count(self) -> int:
        """How many hold now."""
        now = instant_of(self.time.clock.micros())
        return sum(not suspension.has_ended(now) for suspension in self.holding.values())

    @property
    def unread_count(self) -> int:
        """How many of them cannot be read, and hold more mails than they name."""
        now = instant_of(self.time.clock.micros())
        return sum(bool(suspension.unread) and not suspension.has_ended(now) for suspension in self.holding.values())


@dataclass(slots=True, eq=False)
class HeededConditions:
    """The run-time conditions that come before an engine's policies; each ends by the engine's own clock.

    Attributes:
        policies: the policies of the file alone.
        holding: by id; some may have ended.
        placed: what became of the other conditions.
    """

    engine: PickupEngine
    time: EngineTime
    policies: Sequence[CounterPolicy] = ()
    holding: Mapping[UUID, MadeCondition] = field(default_factory=dict)
    placed: tuple[PlacedCondition, ...] = ()
    _ends: dict[UUID, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policies = self.engine.policies

    def understood(self, made: Sequence[MadeCondition]) -> Callable[[], bool]:
        """As of `HeededSuspensions`."""
        found = {condition.id: condition for condition in made}

        def heeded() -> bool:
            new = [condition for name, condition in found.items() if self.holding.get(name) != condition]
            gone = [condition for name, condition in self.holding.items() if name not in found and name in self._ends]
            if new or gone:
                known = {name: at for name, at in self._ends.items() if name in found}
                self._ends = known | {condition.id: self.time.of(condition.ends_at) for condition in new}
                for condition in gone:
                    _LOG.info("a condition is over", extra={"condition": str(condition.id)})
                self.holding = found
                self._reload()
            self.holding = found
            return bool(new or gone)

        return heeded

    def limit(self, policies: Sequence[CounterPolicy]) -> PolicyChanges:
        """Let these policies of the file hold from now on, behind the same conditions."""
        self.policies = policies
        return self._reload()

    def expire(self) -> bool:
        """End what is to end by now; whether there was any."""
        now = self.time.nanos()
        ended = [name for name, at in self._ends.items() if at <= now]
        for name in ended:
            del self._ends[name]
            _LOG.info("a condition is over", extra={"condition": str(name)})
        if ended:
            self._reload()
        return bool(ended)

    @property
    def next_end(self) -> int:
        """By the engine's clock; UNKNOWN: none ends without an order."""
        return min(self._ends.values(), default=UNKNOWN)

    def _reload(self) -> PolicyChanges:
        now = self.time.nanos()
        before = {condition.made.id: condition for condition in self.placed}
        lasting = [condition for name, condition in self.holding.items() if self._ends.get(name, now) > now]
        policies, self.placed = with_conditions(self.policies, lasting, self.engine.algorithm)
        for condition in self.placed:
            if before.get(condition.made.id) != condition:
                _log_placed(condition)
        return self.engine.reload(policies, now)


def _log_placed(one: PlacedCondition) -> None:
    made = one.made
    shown = {"condition": str(made.id), "owner": made.owner, "why": made.reason, "ends_at": str(made.ends_at)}
    if one.parked:
        _LOG.warning("a condition is parked", extra={**shown, "parked": one.parked})
    elif made.unread:
        what = "a condition cannot be read, and lets nothing begin of the mails that it names"
        _LOG.warning(what, extra={**shown, "error": made.unread})
    else:
        groups = {"counted_as": ", ".join(one.groups.values())} if one.groups else {}
        _LOG.info("a condition sets limits", extra={**shown, **groups})


@dataclass(slots=True, kw_only=True, eq=False)
class SharedOrders:
    """Has the engine of one server heed what is ordered for its queue; the policies of the file stay as they are.

    Attributes:
        server: the name of this process, under which it says what it counts by.
        every: how long after a reading the next one begins.
        wake: called when others may be picked than before.
        intended: whether anything may be ordered for after an attempt.
        read_micros: when the ledger was last read, in microseconds since 1970; None: never.
    """

    queue: QueueName
    server: str
    ledger: LedgerOrders
    engine: PickupEngine
    clock: Clock
    every: timedelta
    wake: Callable[[], None]
    suspensions: HeededSuspensions = field(init=False)
    conditions: HeededConditions = field(init=False)
    intended: bool = False
    read_micros: int | None = None
    _hooks: HookOrders = field(init=False)
    _ordered: asyncio.Event = field(default_factory=asyncio.Event)
    _failing: set[str] = field(default_factory=set)
    _said: ServedPolicies | None = None
    _said_at: float = 0.0

    def __post_init__(self) -> None:
        time = EngineTime(self.clock)
        self.suspensions = HeededSuspensions(self.engine, time)
        self.conditions = HeededConditions(self.engine, time)
        self._hooks = HookOrders(self.queue, self.clock)

    def heed(self, orders: Sequence[HookOrder], owner: str) -> None:
        """Let what a hook has ordered hold from now on; the ledger is told of it in parallel to the deliveries."""
        for order in orders:
            if isinstance(order, SuspendMails):
                suspended = self._hooks.suspended(order, owner, self.suspensions.holding.values())
                changed = suspended is not None and self.suspensions.understood(suspended)()
            else:
                limited = self._hooks.limited(order, owner, self.conditions.holding.values())
                changed = limited is not None and self.conditions.understood(limited)()
            if changed:
                self._ordered.set()
                self.wake()

    async def read(self) -> None:
        """Heed what the ledger says now.

        Raises:
            CannotReach: the ledger does not answer.
        """
        suspensions = await self.ledger.suspensions.of(self.queue)
        conditions = await self.ledger.conditions.of(self.queue)
        self.intended = await self.ledger.intents.are_there(self.queue)
        heeding = (
            self.suspensions.understood(self._hooks.beside(suspensions, MadeSuspension)),
            self.conditions.understood(self._hooks.beside(conditions, MadeCondition)),
        )
        changed = [heeded() for heeded in heeding]
        self.read_micros = self.clock.micros()
        if any(changed):
            self.wake()

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Read until a stop signal; after an error all stays as it was, and it is read again at the next turn."""
        while not stop.is_set():
            if self.conditions.expire():
                self.wake()
            self._ordered.clear()
            if await self._tried("what is ordered stays as it was", self.read):
                await self._tried("the ledger is not told what is counted by", self._say_policies)
                await self._tried("the ledger is not told what hooks order", self._write)
            await paused(self.clock, self._rest(), stop, self._ordered)

    @property
    def is_failing(self) -> bool:
        """Whether the ledger cannot be used at present."""
        return bool(self._failing)

    async def intents_of(self, mail: EnqueueId) -> Mapping[int, EntryChange]:
        """What is ordered of its entries, by number, for after their attempts; where it cannot be read, nothing is."""
        try:
            return {} if self._failing else await self.ledger.intents.of(self.queue, mail)
        except Exception as error:  # noqa: BLE001 - the mail goes on as it would
            _LOG.warning("what is ordered of a mail is not read", extra={"mail": str(mail), "error": str(error)})
            return {}

    async def intents_after(self, mail: EnqueueId, ended: Iterable[EndedEntry]) -> Mapping[int, EntryChange]:
        """The same at its end: always asked for where a server refused, and else where something was ordered lately."""
        looks = self.intended or any(entry.end is EntryEnd.REFUSED for entry in ended)
        return await self.intents_of(mail) if looks else {}

    async def forget_intents(self, mail: EnqueueId, numbers: Iterable[int]) -> None:
        """They were carried out, or came too late; where this fails they expire, and are void until then."""
        with suppress(MailmendError):
            await self.ledger.intents.remove(self.queue, mail, numbers)

    async def leave(self) -> None:
        """Say no longer what this server counts by; where that fails it is forgotten a few minutes later."""
        with suppress(MailmendError):
            await self._write()
            if self._said:
                await self.ledger.policies.remove(self.queue, self.server)

    async def _write(self) -> None:
        await self._hooks.write(self.ledger)

    async def _say_policies(self) -> None:
        policies = tuple(self.conditions.policies)
        began = self.clock.monotonic()
        is_old = began - self._said_at >= SAID_FOR.total_seconds() / 3
        if self._said is None or self._said.policies != policies or is_old:
            now = instant_of(self.clock.micros())
            said = ServedPolicies(server=self.server, policies=policies, algorithm=self.engine.algorithm, said_at=now)
            await self.ledger.policies.put(self.queue, said)
            self._said = said
            self._said_at = began

    def _rest(self) -> timedelta:
        """Until the next reading, or the next end of a condition."""
        left = max(0, self.conditions.next_end - self.conditions.time.nanos())
        return min(self.every, span_of(left))

    async def _tried(self, otherwise: str, step: Callable[[], Awaitable[None]]) -> bool:
        """Whether it was done: deliveries go on whatever the ledger says, and a failure is said once."""
        try:
            await step()
        except Exception as error:  # noqa: BLE001 - likewise
            if otherwise not in self._failing:
                trace = None if isinstance(error, MailmendError) else error
                _LOG.warning(otherwise, extra={"error": str(error)}, exc_info=trace)
            self._failing.add(otherwise)
            return False
        if otherwise in self._failing:
            _LOG.info("the ledger answers again", extra={"was": otherwise})
            self._failing.discard(otherwise)
        return True
