"""The orders of a queue on one of its servers, which reads them in the ledger again and again and obeys them.

A server reads all orders before it obeys any: where the ledger cannot be read, nothing changes. An order that cannot be
read does not stop the others: a suspension holds more mails than it names, a condition lets nothing begin of the
mails that it names, or is parked where it does not tell them.

This server obeys an order of a hook at once; the ledger keeps it for the other servers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from mailmend.delivery.ledger.intents import EntryIntent, IntentStage
from mailmend.delivery.ledger.orders import SAID_FOR, LedgerOrders, OrderEvent, OrderRecord
from mailmend.delivery.mail.entries import EndedEntry, EntryChange, EntryEnd, EntryId
from mailmend.delivery.mail.hooks import HookOrder, SuspendMails, order_of
from mailmend.delivery.policy.counters import PolicyChanges
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.orders import (
    AUTOMATIC_OWNER,
    HOOK_OWNER,
    Order,
    OrderKind,
    PlacedCondition,
    ServedPolicies,
    with_conditions,
)
from mailmend.delivery.policy.policy import CounterPolicy
from mailmend.delivery.policy.sub_queues import UNKNOWN
from mailmend.mailqueue.concurrency import paused
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import instant_of, nanos_in, nanos_of, span_of
from mailmend.model.ports import Clock

HOLDING_MAX: Final = 1_000
"""The maximum number of suspensions of all hooks in a queue, and of conditions.

A further one is not taken.
"""

RULE_HOLDING_MAX: Final = 200
"""The same for each automatic rule alone: clients can trigger a rule for any number of domains."""

_SAID_EVERY: Final = timedelta(minutes=1)
"""How long the log is silent about further orders of an owner that are not taken."""

_READING: Final = "what is ordered stays as it was"
"""Said where the orders cannot be read."""

_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(slots=True, eq=False)
class EngineOrders:
    """The orders that an engine obeys; each ends by the engine's own clock, which never goes back.

    Attributes:
        policies: the policies of the file alone.
        holding: of each kind, by id; some may have ended.
        placed: what became of the conditions that have not ended.
    """

    engine: PickupEngine
    clock: Clock
    policies: Sequence[CounterPolicy] = ()
    holding: dict[OrderKind, Mapping[UUID, Order]] = field(default_factory=lambda: {kind: {} for kind in OrderKind})
    placed: tuple[PlacedCondition, ...] = ()
    _ends: dict[UUID, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policies = self.engine.policies

    def apply(self, kind: OrderKind, orders: Sequence[Order]) -> bool:
        """Have these orders of a kind hold from now on, and no others; whether anything has changed."""
        before = self.holding[kind]
        found = {order.id: order for order in orders}
        new = [order for order in orders if before.get(order.id) != order]
        gone = [order for order in before.values() if order.id not in found]
        if kind is OrderKind.SUSPENSION:
            self._suspend(new, gone)
            self.holding[kind] = found
            return bool(new or gone)
        gone = [order for order in gone if order.id in self._ends]  # a condition without an entry is over already
        self.holding[kind] = found
        if new or gone:
            ends = {name: at for name, at in self._ends.items() if name in found}
            for order in new:
                ends[order.id] = self._end_of(order)
            self._ends = ends
            for order in gone:
                _log_end(kind, order.id)
            self._reload()
        return bool(new or gone)

    def _suspend(self, new: Sequence[Order], gone: Sequence[Order]) -> None:
        suspensions = [order.suspension(self._end_of(order)) for order in new]
        now = self.nanos
        for order in gone:
            self.engine.lift(str(order.id), now)
            _log_end(order.kind, order.id)
        for order, suspension in zip(new, suspensions, strict=True):
            self.engine.suspend(suspension, now)
            _LOG.info("mails are suspended", extra=_shown(order))
            if order.unread:
                what = "a suspension cannot be read, and holds more mails than it names"
                _LOG.warning(what, extra={**_shown(order), "error": "; ".join(order.unread)})

    def limit(self, policies: Sequence[CounterPolicy]) -> PolicyChanges:
        """Let these policies of the file hold from now on, behind the same conditions."""
        self.policies = policies
        return self._reload()

    def expire(self) -> bool:
        """End the conditions that are to end by now; whether there was any. The engine itself ends suspensions."""
        now = self.nanos
        ended = [name for name, at in self._ends.items() if at <= now]
        for name in ended:
            del self._ends[name]
            _log_end(OrderKind.CONDITION, name)
        if ended:
            self._reload()
        return bool(ended)

    @property
    def next_end(self) -> int:
        """When the next condition ends, by the engine's clock; UNKNOWN: none ends without an order."""
        return min(self._ends.values(), default=UNKNOWN)

    @property
    def nanos(self) -> int:
        """The time of the engine's clock."""
        return nanos_of(self.clock.monotonic())

    @property
    def suspensions(self) -> Sequence[Order]:
        """The suspensions that hold now."""
        now = instant_of(self.clock.micros())
        return [order for order in self.holding[OrderKind.SUSPENSION].values() if not order.has_ended(now)]

    def _end_of(self, order: Order) -> int:
        if order.ends_at is None:
            return UNKNOWN
        return self.nanos + nanos_in(order.ends_at - instant_of(self.clock.micros()))

    def _reload(self) -> PolicyChanges:
        now = self.nanos
        before = {condition.order.id: condition for condition in self.placed}
        conditions = self.holding[OrderKind.CONDITION].values()
        lasting = [order for order in conditions if self._ends.get(order.id, now) > now]
        policies, self.placed = with_conditions(self.policies, lasting, self.engine.algorithm)
        for condition in self.placed:
            if before.get(condition.order.id) != condition:
                _log_placed(condition)
        return self.engine.reload(policies, now)


def _shown(order: Order) -> dict[str, str]:
    """What the log says of an order."""
    return {
        order.kind.value: str(order.id),
        "owner": order.owner,
        "why": order.reason,
        "ends_at": str(order.ends_at),
    }


def _log_end(kind: OrderKind, order_id: UUID) -> None:
    what = f"a {kind.value} is over"
    _LOG.info(what, extra={kind.value: str(order_id)})


def _log_placed(placed: PlacedCondition) -> None:
    order = placed.order
    shown = _shown(order)
    if placed.parked:
        _LOG.warning("a condition is parked", extra={**shown, "parked": placed.parked})
    elif order.damage:
        what = "a condition cannot be read, and lets nothing begin of the mails that it names"
        _LOG.warning(what, extra={**shown, "error": order.damage})
    else:
        if placed.groups:
            shown["counted_as"] = ", ".join(placed.groups.values())
        _LOG.info("a condition sets limits", extra=shown)


@dataclass(slots=True, eq=False)
class OwnersSaid:
    """The owners that the log has named within a minute: a burst of refused orders is one line."""

    _said: dict[str, float] = field(default_factory=dict)

    def is_new(self, owner: str, now: float) -> bool:
        """Whether the log may name an owner now, in seconds of a clock that never goes back."""
        since = now - _SAID_EVERY.total_seconds()
        self._said = {name: at for name, at in self._said.items() if at > since}
        if owner in self._said:
            return False
        self._said[owner] = now
        return True


@dataclass(slots=True, eq=False)
class HookOrders:
    """Orders of the hooks and the automatic rules of one server, until the ledger has them.

    No attempt waits for the ledger. Until the ledger has an order, the order holds on this server alone, in addition to
    the orders that the server reads meanwhile.
    """

    queue: QueueName
    clock: Clock
    _unwritten: dict[UUID, Order] = field(default_factory=dict)
    _unremoved: dict[UUID, Order] = field(default_factory=dict)
    _renewed: set[UUID] = field(default_factory=set)
    _said_full: OwnersSaid = field(default_factory=OwnersSaid)

    def ordered(self, given: HookOrder, owner: str, holding: Iterable[Order]) -> Sequence[Order] | None:
        """The orders that hold after this one, of all that hold of its kind; None where nothing changes."""
        now = self._now
        order = order_of(given, self.queue, owner, now, self.clock.new_uuid())
        lasting = [other for other in holding if not other.has_ended(now)]
        same = [other for other in lasting if other.owner == owner and other.has_scope_of(order)]
        if not given.lasts:
            return self._without(same, lasting)
        for other in same:
            # Half of its time is left: nothing is written before.
            suffices = other.ends_at is not None and other.ends_at - now >= given.lasts / 2
            if suffices and other.threshold == order.threshold:
                return None
        if same:
            order = replace(order, id=same[0].id, made_at=same[0].made_at)
        return self._with(order, lasting)

    def beside(self, read: Sequence[Order], kind: OrderKind) -> Sequence[Order]:
        """What holds of a kind by a reading, with what the ledger has not been told yet."""
        unwritten = {order.id: order for order in self._unwritten.values() if order.kind is kind}
        found = [order for order in read if order.id not in unwritten and order.id not in self._unremoved]
        return [*found, *unwritten.values()]

    async def write(self, ledger: LedgerOrders) -> None:
        """Tell the ledger what it does not know yet.

        Raises:
            CannotReach: it does not answer; what is left is told the next time.
        """
        for order in list(self._unwritten.values()):
            if not order.has_ended(self._now):
                await ledger.put(order, self._now)
                event = OrderEvent.ADDED
                if order.id in self._renewed:
                    event = OrderEvent.RENEWED
                await self._record(ledger, event, order)
            if self._unwritten.get(order.id) is order:
                del self._unwritten[order.id]
        for order in list(self._unremoved.values()):
            await ledger.remove(order, self._now)
            await self._record(ledger, OrderEvent.REMOVED, order)
            if self._unremoved.get(order.id) is order:
                del self._unremoved[order.id]

    @property
    def _now(self) -> datetime:
        return instant_of(self.clock.micros())

    def _with(self, order: Order, lasting: Sequence[Order]) -> Sequence[Order] | None:
        others = [other for other in lasting if other.id != order.id]
        if _is_full(order.owner, others):
            self._say_full(order.owner)
            return None
        if order.id not in self._unwritten:
            if len(others) == len(lasting):
                self._renewed.discard(order.id)
            else:
                self._renewed.add(order.id)
        self._unwritten[order.id] = order
        self._unremoved.pop(order.id, None)
        return [*others, order]

    def _say_full(self, owner: str) -> None:
        if not self._said_full.is_new(owner, self.clock.monotonic()):
            return
        what = "a hook orders too much"
        most = HOLDING_MAX
        if owner.startswith(AUTOMATIC_OWNER):
            what = "an automatic rule orders too much"
            most = RULE_HOLDING_MAX
        _LOG.warning(what, extra={"owner": owner, "holding": most})

    def _without(self, ended: Sequence[Order], lasting: Sequence[Order]) -> Sequence[Order] | None:
        for order in ended:
            self._unwritten.pop(order.id, None)
            self._unremoved[order.id] = order
        if not ended:
            return None
        return [order for order in lasting if order not in ended]

    async def _record(self, ledger: LedgerOrders, event: OrderEvent, order: Order) -> None:
        """Keep in the history what was done; where that fails it is done all the same."""
        try:
            await ledger.put_record(OrderRecord(self.clock.new_uuid(), event, order, order.owner))
        except MailmendError as error:
            shown = {"event": event.value, "id": str(order.id), "owner": order.owner, "error": str(error)}
            what = "what a hook or an automatic rule orders cannot be written into the history"
            _LOG.warning(what, extra=shown)


def _is_full(owner: str, others: Iterable[Order]) -> bool:
    """Whether a program has no place left: each rule has its own places, hooks share places."""
    if owner.startswith(AUTOMATIC_OWNER):
        return sum(other.owner == owner for other in others) >= RULE_HOLDING_MAX
    return sum(other.owner.startswith(HOOK_OWNER) for other in others) >= HOLDING_MAX


@dataclass(slots=True, kw_only=True, eq=False)
class SharedOrders:
    """Has the engine of one server obey the orders of its queue; the policies of the file stay as they are.

    Attributes:
        server: the name of this process, under which it says what it counts by.
        every: how long after a reading the next one begins.
        wake: called when others may be picked than before.
        obey: called after a reading that found new orders of recipients.
        intended: whether anything may be ordered of recipients.
        read_micros: when the ledger was last read, in microseconds since 1970; None: never.
    """

    queue: QueueName
    server: str
    ledger: LedgerOrders
    engine: PickupEngine
    clock: Clock
    every: timedelta
    wake: Callable[[], None]
    obey: Callable[[], Awaitable[None]]
    in_force: EngineOrders = field(init=False)
    intended: bool = False
    read_micros: int | None = None
    _hooks: HookOrders = field(init=False)
    _ordered: asyncio.Event = field(default_factory=asyncio.Event)
    _failing: set[str] = field(default_factory=set)
    _said: ServedPolicies | None = None
    _said_at: float = 0.0
    _latest: int | None = None
    _obeyed: int | None = None
    _answering: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.in_force = EngineOrders(self.engine, self.clock)
        self._hooks = HookOrders(self.queue, self.clock)

    def apply_hook_orders(self, orders: Sequence[HookOrder], owner: str) -> None:
        """Let what a hook has ordered hold from now on; the ledger is told of it in parallel to the deliveries."""
        for given in orders:
            kind = OrderKind.CONDITION
            if isinstance(given, SuspendMails):
                kind = OrderKind.SUSPENSION
            holding = self._hooks.ordered(given, owner, self.in_force.holding[kind].values())
            if holding is not None and self.in_force.apply(kind, holding):
                self._ordered.set()
                self.wake()

    async def read(self) -> None:
        """Have the engine obey the orders that the ledger has now.

        Raises:
            CannotReach: the ledger does not answer.
        """
        read = dict[OrderKind, Sequence[Order]]()
        for kind in OrderKind:
            read[kind] = await self.ledger.of(kind, self.queue)
        self._latest = await self.ledger.intents.latest(self.queue)
        self.intended = self._latest is not None
        has_changed = False
        for kind, orders in read.items():
            has_changed |= self.in_force.apply(kind, self._hooks.beside(orders, kind))
        self.read_micros = self.clock.micros()
        if has_changed:
            self.wake()

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Read the orders until a stop signal. After an error all orders stay as they were until the next reading."""
        while not stop.is_set():
            if self.in_force.expire():
                self.wake()
            self._ordered.clear()
            if await self._tried(_READING, self.read):
                await self._tried("what is ordered of mails is not done yet", self._obey_latest)
                await self._tried("the ledger is not told what is counted by", self._say_policies)
                what = "orders of hooks and automatic rules are not written yet"
                await self._tried(what, self._write)
            await paused(self.clock, self._rest(), stop, self._ordered)

    async def _obey_latest(self) -> None:
        """Carry out what is ordered of mails in hand, if something new is."""
        if self._latest is None or self._latest == self._obeyed:
            return
        self._obeyed = self._latest
        try:
            await self.obey()
        except BaseException:
            self._obeyed = None
            raise

    @property
    def is_failing(self) -> bool:
        """Whether the ledger cannot be used at present."""
        return bool(self._failing)

    async def intents_of(self, mail: EnqueueId) -> Mapping[int, EntryChange]:
        """The changes that are ordered of a mail's entries, by number.

        A ledger that cannot be read orders nothing.
        """
        if _READING in self._failing:
            self._obeyed = None
            return {}
        try:
            return await self.ledger.intents.of(self.queue, mail)
        except Exception as error:  # noqa: BLE001 - the mail goes on as it would
            self._obeyed = None
            _LOG.warning("what is ordered of a mail is not read", extra={"mail": str(mail), "error": str(error)})
            return {}

    async def intents_after(self, mail: EnqueueId, ended: Iterable[EndedEntry]) -> Mapping[int, EntryChange]:
        """The same changes when a mail ends. The ledger is read where a server refused, or where any were ordered."""
        looks = self.intended or any(entry.end is EntryEnd.REFUSED for entry in ended)
        if not looks:
            return {}
        return await self.intents_of(mail)

    async def found_intents(self, mails: Sequence[EnqueueId]) -> Mapping[EntryId, EntryIntent]:
        """The changes that are ordered of many mails' entries.

        Raises:
            CannotReach: the ledger does not answer.
        """
        return await self.ledger.intents.find(self.queue, mails)

    async def answer_intents(self, answers: Mapping[EntryId, IntentStage]) -> None:
        """Say what became of orders. Where this fails, they stay as they are until they expire."""
        async with self._answering:
            with suppress(MailmendError):
                await self.ledger.intents.answer(self.queue, answers)

    async def close_intents(self, mail: EnqueueId, ended: Iterable[EndedEntry], ordered: Collection[int]) -> None:
        """Remove a mail's orders that were carried out, and say which ones came too late.

        Where this fails, they are void until they expire.
        """
        carried_out = set[EntryId]()
        left = dict[EntryId, IntentStage]()
        for entry in ended:
            number = entry.entry.id.number
            if number not in ordered:
                continue
            if entry.changed or entry.end is EntryEnd.DELETED:
                carried_out.add(EntryId(mail, number))
            else:
                left[EntryId(mail, number)] = IntentStage.LEFT
        async with self._answering:
            with suppress(MailmendError):
                await self.ledger.intents.remove(self.queue, carried_out)
                await self.ledger.intents.answer(self.queue, left)

    async def leave(self) -> None:
        """Remove what this server counts by from the ledger. Where that fails, the row expires in a few minutes."""
        with suppress(MailmendError):
            await self._write()
            if self._said:
                await self.ledger.policies.remove(self.queue, self.server)

    async def _write(self) -> None:
        await self._hooks.write(self.ledger)

    async def _say_policies(self) -> None:
        policies = tuple(self.in_force.policies)
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
        left = max(0, self.in_force.next_end - self.in_force.nanos)
        return min(self.every, span_of(left))

    async def _tried(self, otherwise: str, step: Callable[[], Awaitable[None]]) -> bool:
        """Whether a step was done. Deliveries go on whatever the ledger answers; the log has each failure once."""
        try:
            await step()
        except Exception as error:  # noqa: BLE001 - deliveries go on
            if otherwise not in self._failing:
                trace: Exception | None = error
                if isinstance(error, MailmendError):
                    trace = None
                _LOG.warning(otherwise, extra={"error": str(error)}, exc_info=trace)
            self._failing.add(otherwise)
            return False
        if otherwise in self._failing:
            _LOG.info("the ledger answers again", extra={"was": otherwise})
            self._failing.discard(otherwise)
        return True
