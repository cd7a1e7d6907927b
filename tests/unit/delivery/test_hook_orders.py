"""What hooks order beside their decisions: a server of deliveries with a ledger in memory, time turned by hand."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mailmend.cql.memory import MemoryTables
from mailmend.delivery.ledger.orders import LedgerOrders, OrderEvent
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.mail.hooks import (
    HookedAttempt,
    HookOrder,
    HookResult,
    LimitMails,
    PostDecision,
    SuspendMails,
    order_of,
)
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.orders import Order, OrderKind
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.shared import orders as shared_orders
from mailmend.delivery.shared.orders import HookOrders, SharedOrders
from mailmend.model.catalog.ledger import DELIVERY_CONDITION, DELIVERY_ORDER_HISTORY, DELIVERY_SUSPENSION
from mailmend.model.errors import AccessDenied, CannotReach, WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.operations import Put
from tests.support.clock import VirtualClock
from tests.support.deliveries import ACCEPTED, LATER, MINUTE, DeliverySite
from tests.support.in_turn import InTurn
from tests.support.thorough import few_or

ONE = "bob@one.example"
TWO = "cy@two.example"
DOMAIN = PickupField.RECIPIENT_DOMAIN
PER_DOMAIN = CounterPolicy((DOMAIN,))
OWNER = "hook backoff"
NOTHING = timedelta(0)


def suspend(lasts: timedelta, *domains: str) -> SuspendMails:
    return SuspendMails({DOMAIN: domains or ("one.example",)}, lasts, "they throttle us")


def limit(lasts: timedelta, concurrency: int = 0) -> LimitMails:
    return LimitMails({DOMAIN: ("one.example",)}, Threshold(concurrency), lasts, "they throttle us")


def backing_off(site: DeliverySite, refused: Sequence[HookOrder], taken: Sequence[HookOrder] = ()) -> DeliveryHooks:
    """A hook that orders the one when a server refuses for now, and the other when it takes a mail."""

    async def post(attempt: HookedAttempt) -> HookResult[PostDecision]:
        ended_by = {EntryEnd.REFUSED: refused, EntryEnd.DELIVERED: taken}
        return HookResult(None, tuple(ended_by.get(attempt.end, ())))

    return DeliveryHooks(site.clock, post=post, post_name="backoff")


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite(shares=True)


@pytest.mark.parametrize("order", [suspend(10 * MINUTE), limit(10 * MINUTE)])
async def test_a_refusal_stops_a_destination_for_a_while(site: DeliverySite, order: HookOrder) -> None:
    """From the next attempt on, for the time that the hook names; others go on."""
    site.relay.scripts[ONE] = [LATER, ACCEPTED]
    for one in (ONE, ONE, TWO):
        await site.put(one)
    began = site.clock.monotonic()
    await site.serve(1200, [PER_DOMAIN], hooks=backing_off(site, [order]), concurrency=1, waiting_max=20 * MINUTE)
    at = [(one.recipients[0].recipient, round(when - began)) for when, one in site.relay.attempts]
    assert [one for one, _ in at] == [ONE, TWO, ONE, ONE]
    assert all(600 <= when <= 620 for _, when in at[2:])


async def test_the_ledger_has_it_with_its_owner_its_reason_and_its_end(site: DeliverySite) -> None:
    """For the other servers of the queue."""
    site.relay.scripts[ONE] = [LATER]
    await site.put(ONE)
    await site.serve(20, [PER_DOMAIN], hooks=backing_off(site, [suspend(MINUTE), limit(MINUTE)]))
    made = [order for kind in OrderKind for order in await site.ledger.of(kind, site.queue.name)]
    assert [(one.owner, one.reason, one.values) for one in made] == [
        (OWNER, "they throttle us", {"recipientdomain": ("one.example",)})
    ] * 2
    assert all(one.ends_at and 40 <= (one.ends_at - site.clock.now).total_seconds() <= 60 for one in made)


async def test_the_first_success_ends_it(site: DeliverySite) -> None:
    """Here at once, and in the ledger."""
    site.relay.scripts[ONE] = [LATER, ACCEPTED]
    hooks = backing_off(site, [limit(60 * MINUTE, 1)], [limit(NOTHING), suspend(NOTHING)])
    found = list[int]()

    async def look() -> None:
        for _ in range(2):
            await site.clock.pause(30)
            found.append(len(await site.ledger.of(OrderKind.CONDITION, site.queue.name)))
            await site.clock.pause(60)

    await site.put(ONE)
    await site.serve(200, [PER_DOMAIN], hooks=hooks, beside=look())
    assert (site.relay.had, found) == ([ONE], [1, 0])


async def test_the_history_says_what_which_hook_did(site: DeliverySite, caplog: pytest.LogCaptureFixture) -> None:
    """Added, renewed once half of the time has passed, and removed; where it cannot be written only that is said."""
    site.relay.scripts[ONE] = [LATER, LATER, LATER, ACCEPTED]
    orders: list[HookOrder] = [limit(10 * MINUTE, 1), suspend(10 * MINUTE, "x")]
    ended: list[HookOrder] = [limit(NOTHING), suspend(NOTHING, "x")]
    denied = list[object]()

    def surround(operation: object, carry_out: Any) -> Any:
        if isinstance(operation, Put) and operation.table is DELIVERY_ORDER_HISTORY and not denied:
            denied.append(operation)
            raise AccessDenied("no MODIFY")
        return carry_out()

    site.tables.surround = surround
    await site.put(ONE)
    await site.serve(2000, [PER_DOMAIN], hooks=backing_off(site, orders, ended))
    site.tables.surround = lambda _, carry_out: carry_out()
    now = site.clock.micros()
    limits = await site.ledger.records(OrderKind.CONDITION, site.queue.name, now, 9)
    suspended = await site.ledger.records(OrderKind.SUSPENSION, site.queue.name, now, 9)
    assert {*(one.by for one in limits), *(one.by for one in suspended)} == {OWNER}
    assert [one.event for one in suspended] == [OrderEvent.REMOVED, OrderEvent.RENEWED, OrderEvent.ADDED]
    assert [one.event for one in limits] == [OrderEvent.REMOVED, OrderEvent.RENEWED]
    assert (site.relay.had, "cannot be written into the history" in caplog.text) == ([ONE], True)


async def test_what_is_ordered_again_is_written_when_half_of_its_time_has_passed(site: DeliverySite) -> None:
    """A refusal each five minutes costs a write each half an hour."""
    site.relay.scripts[ONE] = [LATER]
    written = list[float]()
    began = site.clock.monotonic()

    def surround(operation: object, carry_out: Any) -> Any:
        if isinstance(operation, Put) and operation.table in (DELIVERY_CONDITION, DELIVERY_SUSPENSION):
            written.append(round(site.clock.monotonic() - began))
        return carry_out()

    site.tables.surround = surround
    await site.put(ONE)
    await site.serve(4000, [PER_DOMAIN], hooks=backing_off(site, [limit(60 * MINUTE, 1), suspend(60 * MINUTE, "x")]))
    assert len(site.relay.attempts) > 10
    assert [round(at / 600) for at in written] == [0, 0, 3, 3, 6, 6]


async def test_a_ledger_that_does_not_answer_holds_up_nothing(site: DeliverySite) -> None:
    """What is ordered holds here all the same, and is written once it answers."""
    site.relay.scripts[ONE] = [LATER]
    await site.put(ONE)
    await site.put(TWO)
    began = site.clock.monotonic()

    def surround(_: object, carry_out: Any) -> Any:
        if 0 < site.clock.monotonic() - began < 300:
            raise CannotReach("nobody answers")
        return carry_out()

    site.tables.surround = surround
    await site.serve(320, [PER_DOMAIN], hooks=backing_off(site, [suspend(60 * MINUTE)]))
    assert sorted(site.relay.recipients) == [ONE, TWO]
    (one,) = await site.ledger.of(OrderKind.SUSPENSION, site.queue.name)
    assert round((one.ends_at - site.clock.now) / MINUTE) == 55 if one.ends_at else False


async def test_no_hook_orders_without_end(
    site: DeliverySite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So many values as its queue has recipients, say; what is there already is still renewed."""
    monkeypatch.setattr(shared_orders, "HOLDING_MAX", 2)
    site.relay.scripts[ONE] = [LATER]
    await site.put(ONE)
    orders = [suspend(MINUTE, f"{name}.example") for name in ("a", "b", "c")]
    await site.serve(30, [PER_DOMAIN], hooks=backing_off(site, orders))
    assert len(await site.ledger.of(OrderKind.SUSPENSION, site.queue.name)) == 2
    assert "a hook orders too much" in caplog.text


def test_a_rule_that_fills_its_places_leaves_the_places_of_hooks_and_other_rules(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that sends to any number of bad domains fills one rule; the log says so once in a minute."""
    monkeypatch.setattr(shared_orders, "RULE_HOLDING_MAX", 3)
    monkeypatch.setattr(shared_orders, "HOLDING_MAX", 2)
    clock = VirtualClock()
    hooks = HookOrders(QUEUE, clock)
    holding: Sequence[Order] = []

    def order(owner: str, name: str) -> None:
        nonlocal holding
        holding = hooks.ordered(suspend(60 * MINUTE, f"{name}.example"), owner, holding) or holding

    for number in range(90):
        order("automatic rule dns", f"bad{number}")
        clock.advance(1)
    for owner in (OWNER, "hook other", "automatic rule busy"):
        order(owner, "one")

    owners = Counter(one.owner for one in holding)
    assert owners == {"automatic rule dns": 3, OWNER: 1, "hook other": 1, "automatic rule busy": 1}
    assert [one.message for one in caplog.records] == ["an automatic rule orders too much"] * 2


async def test_without_a_ledger_nothing_is_ordered(caplog: pytest.LogCaptureFixture) -> None:
    """Which is in the log."""
    site = DeliverySite()
    site.relay.scripts[ONE] = [LATER, ACCEPTED]
    await site.put(ONE)
    await site.serve(200, [PER_DOMAIN], hooks=backing_off(site, [suspend(60 * MINUTE)]))
    assert site.relay.had == [ONE]
    assert "needs the ledger" in caplog.text


@pytest.mark.parametrize("order", [suspend(10 * MINUTE), limit(10 * MINUTE)])
def test_a_renewed_order_keeps_its_id_and_its_beginning(order: HookOrder) -> None:
    """Another hook's order of the same mails is another order."""
    clock = VirtualClock()
    hooks = HookOrders(QUEUE, clock)
    (first,) = hooks.ordered(order, OWNER, []) or ()
    clock.advance(301)

    (renewed,) = hooks.ordered(order, OWNER, [first]) or ()
    both = hooks.ordered(order, "hook other", [renewed]) or ()

    assert (renewed.id, renewed.made_at) == (first.id, first.made_at)
    assert renewed.ends_at == clock.now + 10 * MINUTE
    assert [one.owner for one in both] == [OWNER, "hook other"]
    assert len({one.id for one in both}) == 2


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (lambda: SuspendMails({}, MINUTE, "x"), "not said which mails"),
        (lambda: SuspendMails({DOMAIN: ()}, MINUTE, "x"), r"\(\) is no list of values"),
        (lambda: SuspendMails({DOMAIN: "one.example"}, MINUTE, "x"), "'one.example' is no list of values"),
        (lambda: SuspendMails({PickupField.LOCAL_IP: ("here",)}, MINUTE, "x"), "no address"),
        (lambda: suspend(-MINUTE), "-1 day, 23:59:00 is no time"),
        (lambda: limit(timedelta(days=400)), "400 days, 0:00:00 is no time"),
        (lambda: limit(MINUTE, -1), "must not be negative"),
        (lambda: LimitMails({DOMAIN: ("@x",)}, Threshold(1), MINUTE, "x"), "names a list"),
        (lambda: LimitMails({DOMAIN: ("x",)}, Threshold(1), MINUTE, "x", (PickupField.JOB_ID,)), "does not count by"),
    ],
)
def test_what_cannot_be_ordered_is_refused_where_it_is_made(order: Any, said: str) -> None:
    """In the hook itself, so its own tests see it."""
    with pytest.raises(WrongUse, match=said):
        order()


QUEUE = QueueName("outgoing")
ORDERS = st.builds(
    lambda kind, minutes, name: kind(timedelta(minutes=minutes), name),
    st.sampled_from(
        (suspend, lambda lasts, name: LimitMails({DOMAIN: (name,)}, Threshold(len(name)), lasts, "they throttle us"))
    ),
    st.integers(0, 4),
    st.sampled_from(("a", "b")),
)


async def nothing_is_in_hand() -> None:
    """No server of these tests has a mail."""


class HookOrdersMachine(RuleBasedStateMachine):
    """Hooks of two servers order, whose ledger may not answer; people remove: what was ordered last holds there."""

    @initialize()
    def start(self) -> None:
        self.clock = VirtualClock()
        self.tables = MemoryTables(self.clock.micros)
        self.ledger = LedgerOrders(InTurn(self.tables), "mail")
        self.servers = [
            SharedOrders(
                queue=QUEUE,
                server=name,
                ledger=self.ledger,
                engine=PickupEngine([PER_DOMAIN]),
                clock=self.clock,
                every=timedelta(seconds=5),
                wake=lambda: None,
                obey=nothing_is_in_hand,
            )
            for name in ("one", "two")
        ]

    @rule(number=st.integers(0, 1), order=ORDERS)
    def order(self, number: int, order: HookOrder) -> None:
        server = self.servers[number]
        server.apply_hook_orders([order], OWNER)
        asked = order_of(order, QUEUE, OWNER, self.clock.now, self.clock.new_uuid())
        ends = [one.ends_at for one in self._holding(server) if one.has_scope_of(asked)]
        same = [ends_at - self.clock.now for ends_at in ends if ends_at]
        assert bool(same) is bool(order.lasts)
        assert not same or max(same) >= order.lasts / 2

    @rule(number=st.integers(0, 1), writes=st.booleans(), answers=st.booleans())
    def turn(self, number: int, *, writes: bool, answers: bool) -> None:
        server = self.servers[number]

        def surround(_: object, carry_out: Any) -> Any:
            if not answers:
                raise CannotReach("nobody answers")
            return carry_out()

        usual, self.tables.surround = self.tables.surround, surround
        before = self._holding(server)
        try:
            asyncio.run(self._turn(server, writes=writes))
        except CannotReach:
            assert self._holding(server) == before
        self.tables.surround = usual

    @rule(seconds=st.integers(1, 90))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)
        for server in self.servers:
            server.in_force.expire()

    def teardown(self) -> None:
        """In the end all servers hold what the ledger has."""
        asyncio.run(self._settled())

    async def _settled(self) -> None:
        for server in (*self.servers, *self.servers):
            await self._turn(server, writes=True)
        read = [order for kind in OrderKind for order in await self.ledger.of(kind, QUEUE)]
        lasting = sorted((one for one in read if not one.has_ended(self.clock.now)), key=lambda one: one.id)
        assert [self._holding(server) for server in self.servers] == [lasting, lasting]

    @staticmethod
    async def _turn(server: SharedOrders, *, writes: bool) -> None:
        await server.read()
        if writes:
            await server._write()

    def _holding(self, server: SharedOrders) -> list[Order]:
        all_of_it = [order for kind in OrderKind for order in server.in_force.holding[kind].values()]
        return sorted((one for one in all_of_it if not one.has_ended(self.clock.now)), key=lambda one: one.id)


TestHookOrders = HookOrdersMachine.TestCase
TestHookOrders.settings = settings(max_examples=few_or(60), stateful_step_count=20, deadline=None)
