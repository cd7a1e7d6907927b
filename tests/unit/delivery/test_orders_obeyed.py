"""Orders of people on a server of deliveries: with a ledger in memory, time turned by hand."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.orders import NOTHING_BEGINS, Order, OrderKind, ServedPolicies, with_conditions
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    FieldGroup,
    PickupField,
    Threshold,
    ThresholdCondition,
    pattern_of,
)
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.delivery.policy.sub_queues import ActiveMail, CounterEntry
from mailmend.delivery.shared.orders import EngineOrders
from mailmend.mailqueue.codec import attribute
from mailmend.model.catalog.ledger import DELIVERY_CONDITION, DELIVERY_SUSPENSION
from mailmend.model.errors import CannotReach
from mailmend.model.operations import Change, Put, Read
from tests.support.clock import VirtualClock
from tests.support.deliveries import DeliverySite
from tests.support.orders import condition, suspension
from tests.support.thorough import few_or

ONE = "bob@one.example"
TWO = "cy@two.example"
DOMAIN = PickupField.RECIPIENT_DOMAIN
PER_DOMAIN = CounterPolicy((DOMAIN,))
PER_JOB = CounterPolicy((PickupField.JOB_ID,))


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite(shares=True)


async def ordered(
    site: DeliverySite,
    kind: OrderKind,
    *domains: str,
    lasts: timedelta | None = None,
    threshold: Threshold = NOTHING_BEGINS,
) -> Order:
    """An order that is in the ledger; where nothing else is said, nothing may begin."""
    values = {"recipientdomain": domains} if domains else {}
    ends_at = site.clock.now + lasts if lasts else None
    order = suspension(site.clock.new_uuid(), values, ends_at, site.queue.name)
    if kind is OrderKind.CONDITION:
        order = condition(site.clock.now, values, threshold, ends_at, queue=site.queue.name)
    await site.ledger.put(order, site.clock.now)
    return order


@pytest.mark.parametrize("kind", OrderKind)
async def test_what_is_ordered_before_a_server_starts_holds_from_the_first_mail(
    site: DeliverySite, kind: OrderKind
) -> None:
    """Others go on."""
    await ordered(site, kind, "one.example")
    await site.put(ONE)
    await site.put(TWO)
    await site.serve(120, [PER_DOMAIN])
    assert site.relay.recipients == [TWO]


@pytest.mark.parametrize("kind", OrderKind)
async def test_what_is_removed_holds_no_longer_within_seconds(site: DeliverySite, kind: OrderKind) -> None:
    """It is read every five seconds; its mail waits all the while."""
    made = await ordered(site, kind, "one.example")
    await site.put(ONE)
    removed_at = list[float]()

    async def remove() -> None:
        await site.clock.pause(60)
        await site.ledger.remove(made, site.clock.now)
        removed_at.append(site.clock.monotonic())

    await site.serve(300, [PER_DOMAIN], until=lambda: bool(site.relay.had), beside=remove())
    assert site.relay.had == [ONE]
    assert 0 <= site.relay.attempts[0][0] - removed_at[0] <= 5


@pytest.mark.parametrize("kind", OrderKind)
async def test_an_order_ends_by_the_clock_of_the_server(site: DeliverySite, kind: OrderKind) -> None:
    """To the second, although the ledger is read once in ten minutes only, and does not answer then."""
    await ordered(site, kind, "one.example", lasts=timedelta(seconds=90))
    await site.put(ONE)
    began = site.clock.monotonic()

    def surround(operation: object, carry_out: Any) -> Any:
        if isinstance(operation, Read) and site.clock.monotonic() > began + 60:
            raise CannotReach("nobody answers")
        return carry_out()

    site.tables.surround = surround
    every = timedelta(minutes=10)
    await site.serve(600, [PER_DOMAIN], until=lambda: bool(site.relay.had), suspensions_every=every)
    assert [round(at - began) for at, _ in site.relay.attempts] == [90]


@pytest.mark.parametrize("kind", OrderKind)
async def test_an_end_that_is_past_holds_nothing_back(site: DeliverySite, kind: OrderKind) -> None:
    """The row expires a minute after its end."""
    await ordered(site, kind, lasts=timedelta(seconds=1))
    site.clock.advance(30)
    await site.put(ONE)
    await site.serve(60, [PER_DOMAIN], until=lambda: bool(site.relay.had))
    assert site.relay.had == [ONE]
    site.clock.advance(60)
    assert await site.ledger.of(kind, site.queue.name) == []


async def test_a_suspension_stops_what_begins_and_not_what_is_under_way(site: DeliverySite) -> None:
    """Of two mails, of which one may go at once, the second stays."""
    site.relay.seconds = 60.0
    await site.put(ONE)
    await site.put(ONE)

    async def suspend() -> None:
        await site.clock.pause(20)
        await ordered(site, OrderKind.SUSPENSION)

    limit = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=1))
    await site.serve(200, [limit], beside=suspend())
    assert site.relay.had == [ONE]
    assert len(await site.mails()) == 1


async def test_a_suspension_disturbs_no_limit(site: DeliverySite) -> None:
    """Whatever comes and goes, no more than two are under way to a domain."""
    site.relay.seconds = 12.0
    for number in range(6):
        await site.put(f"r{number}@one.example")

    async def come_and_go() -> None:
        for _ in range(4):
            made = await ordered(site, OrderKind.SUSPENSION, "two.example")
            await site.clock.pause(6)
            await site.ledger.remove(made, site.clock.now)

    limit = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=2))
    await site.serve(300, [limit], until=lambda: len(site.relay.had) == 6, beside=come_and_go())
    assert (len(site.relay.had), site.relay.most) == (6, {"one.example": 2})


async def test_a_ledger_that_cannot_be_read_changes_nothing_and_is_said_once(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """Metrics tell since when; once it answers again, all goes on."""
    made = await ordered(site, OrderKind.SUSPENSION, "one.example")
    await site.put(ONE)
    silent, reads = [False], [0]

    def surround(operation: object, carry_out: Any) -> Any:
        if silent[0] and isinstance(operation, Read):
            reads[0] += 1
            raise CannotReach("nobody answers")
        return carry_out()

    site.tables.surround = surround

    async def fail_for_a_while() -> None:
        await site.clock.pause(30)
        await site.ledger.remove(made, site.clock.now)
        silent[0], since = True, site.clock.micros() / 1_000_000
        await site.clock.pause(60)
        values = {one.metric.name: one.value for one in site.server.samples()}
        assert (reads[0] > 5, site.relay.recipients) == (True, [])
        assert values["mailmend_delivery_suspensions"] == 1
        assert since - 5 <= values["mailmend_delivery_suspensions_read_timestamp_seconds"] <= since
        silent[0] = False

    with caplog.at_level("INFO", "mailmend.delivery"):
        await site.serve(300, until=lambda: bool(site.relay.had), beside=fail_for_a_while())
    assert site.relay.had == [ONE]
    assert caplog.text.count("what is ordered stays as it was") == 1
    assert caplog.text.count("the ledger answers again") == 1


async def test_a_server_that_cannot_read_them_at_its_start_takes_no_mail(site: DeliverySite) -> None:
    """Nobody knows what must not go."""

    def surround(_operation: object, _carry_out: Any) -> Any:
        raise CannotReach("nobody answers")

    await site.put(ONE)
    site.tables.surround = surround
    with pytest.raises(CannotReach):
        await site.serve(60)
    assert site.relay.recipients == []


async def keep(site: DeliverySite, fields: str) -> None:
    """A row as another version has written it."""
    key = DELIVERY_SUSPENSION.key_row(("mail", site.queue.name, site.clock.new_uuid()))
    site.tables.write(Put(DELIVERY_SUSPENSION, key | {"fields": fields}))


async def test_an_expression_of_an_older_version_holds_every_mail_of_the_other_fields(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """A server starts beside it, heeds the other suspensions, and says which one cannot be read."""
    await keep(site, '{"recipientdomain": ["/^(?!news)/"], "jobid": ["spring"]}')
    await ordered(site, OrderKind.SUSPENSION, "one.example")
    await site.put(ONE)
    await site.put(TWO)
    await site.put(TWO, attributes={"jobid": attribute("spring")})
    with caplog.at_level("WARNING", "mailmend.delivery"):
        await site.serve(120)
    assert site.relay.recipients == [TWO]
    values = {one.metric.name: one.value for one in site.server.samples()}
    assert values["mailmend_delivery_suspensions"] == 2
    assert values["mailmend_delivery_suspensions_unread"] == 1
    (record,) = [one for one in caplog.records if "cannot be read" in one.message]
    assert "(?!" in record.__dict__["error"]


async def test_what_a_later_version_suspends_by_a_field_of_its_own_holds_every_mail(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    await site.put(ONE)
    await keep(site, '{"weather": ["rain"]}')
    with caplog.at_level("WARNING", "mailmend.delivery"):
        await site.serve(120)
    assert site.relay.recipients == []
    assert "'weather' is no field" in caplog.records[-1].__dict__["error"]


async def test_what_is_parked_holds_once_the_policies_count_by_its_fields(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """And no longer once they do not; the server says what it counts by, and metrics what it makes of it."""
    await ordered(site, OrderKind.CONDITION)
    seen = list[tuple[tuple[float, float], tuple[CounterPolicy, ...]]]()

    async def look() -> None:
        await site.clock.pause(6)
        of = {one.labels[1]: one.value for one in site.server.samples() if one.metric.name.endswith("_conditions")}
        (said,) = await site.ledger.policies.of(site.queue.name)
        seen.append(((of["set"], of["parked"]), said.policies))

    async def reload() -> None:
        await look()
        for policies in ([PER_DOMAIN], [PER_JOB]):
            site.server.limit(policies, ())
            if policies == [PER_DOMAIN]:
                await site.put(ONE)
            await look()

    with caplog.at_level("INFO", "mailmend.delivery"):
        await site.serve(60, [PER_JOB], until=lambda: len(seen) == 3, beside=reload())
    assert seen == [((0, 1), (PER_JOB,)), ((1, 0), (PER_DOMAIN,)), ((0, 1), (PER_JOB,))]
    assert caplog.text.count("a condition is parked") == 2
    assert caplog.text.count("a condition sets limits") == 1
    assert await site.ledger.policies.of(site.queue.name) == []


async def test_what_a_killed_server_said_is_forgotten_and_what_a_living_one_says_is_not(site: DeliverySite) -> None:
    """However long it serves."""
    said = list[str]()
    dead = ServedPolicies(server="dead", policies=(), algorithm=RateAlgorithm.TOKEN_BUCKET, said_at=site.clock.now)
    await site.ledger.policies.put(site.queue.name, dead)

    async def look() -> None:
        for minutes in (1, 29):
            await site.clock.pause(60 * minutes)
            said.extend(one.server for one in await site.ledger.policies.of(site.queue.name))

    await site.serve(1900, [PER_DOMAIN], beside=look())
    assert said == ["dead", "server", "server"]


async def test_what_a_server_says_is_said_again_in_time_though_the_wall_clock_is_set_back(
    site: DeliverySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a wall clock that loses 10 minutes: what servers said would expire before the server says it again."""
    set_back = 0.0
    said_at = list[float]()

    def monotonic() -> float:
        return site.clock.micros() / 1_000_000 + set_back

    async def look() -> None:
        nonlocal set_back
        for lost in (0, 600):
            set_back += lost
            await site.clock.pause(6)
            (said,) = await site.ledger.policies.of(site.queue.name)
            said_at.append(said.said_at.timestamp())

    monkeypatch.setattr(site.clock, "monotonic", monotonic)
    await site.serve(620, [PER_DOMAIN], until=lambda: len(said_at) == 2, beside=look())

    first, second = said_at
    assert 0 < second - first < 13


async def test_limits_of_a_later_version_let_nothing_begin_and_other_orders_hold(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a condition for one.example by a later version, and a suspension of two.example that is made after it."""
    made = await ordered(site, OrderKind.CONDITION, "one.example", threshold=Threshold(100))
    key = ("mail", site.queue.name, made.id)
    site.clock.advance(1)
    site.tables.write(Change(DELIVERY_CONDITION, key, assign={"limits": '{"bytes": 5}'}))
    await site.put(ONE)
    await site.put("di@three.example")
    seen = dict[str, float]()

    async def suspend() -> None:
        await site.clock.pause(20)
        await ordered(site, OrderKind.SUSPENSION, "two.example")
        await site.clock.pause(20)
        await site.put("cy@two.example")
        await site.clock.pause(20)
        seen.update({sample.metric.name: sample.value for sample in site.server.samples()})

    with caplog.at_level("WARNING", "mailmend.delivery"):
        await site.serve(120, [PER_DOMAIN], beside=suspend())

    assert site.relay.recipients == ["di@three.example"]
    (warning,) = [record for record in caplog.records if record.msg.startswith("a condition cannot be read")]
    assert "limits that are not known here: bytes" in warning.__dict__["error"]
    assert seen["mailmend_delivery_conditions_unread"] == 1
    assert seen["mailmend_delivery_suspensions"] == 1


async def test_a_condition_that_does_not_tell_its_mails_is_parked(site: DeliverySite) -> None:
    made = await ordered(site, OrderKind.CONDITION, "one.example")
    key = ("mail", site.queue.name, made.id)
    site.clock.advance(1)
    site.tables.write(Change(DELIVERY_CONDITION, key, assign={"matches": "{"}))
    await site.put(ONE)

    await site.serve(60, [PER_DOMAIN], until=lambda: bool(site.relay.had))

    (placed,) = site.server.orders.in_force.placed if site.server.orders else ()
    assert placed.parked == "it cannot be read: its column matches is no JSON"
    assert site.relay.had == [ONE]


GROUP = FieldGroup("g", (pattern_of(DOMAIN, "a"), pattern_of(DOMAIN, "b")))
FILES = (
    (),
    (PER_DOMAIN,),
    (CounterPolicy((DOMAIN,), default=Threshold(2)), PER_JOB),
    (CounterPolicy((DOMAIN,), {DOMAIN: (GROUP,)}, (ThresholdCondition({}, Threshold(1)),)),),
)
DOMAINS = ("a", "b", "c")


class ConditionsMachine(RuleBasedStateMachine):
    """The engine of a server with a file and conditions that come and go decides as one built anew from the same."""

    @initialize(file=st.sampled_from(FILES))
    def start(self, file: tuple[CounterPolicy, ...]) -> None:
        self.clock, self.file = VirtualClock(), file
        self.engine = PickupEngine(file)
        self.in_force = EngineOrders(self.engine, self.clock)
        self.ledger = dict[UUID, Order]()
        self.going = list[Picked]()

    @rule(
        domains=st.lists(st.sampled_from((*DOMAINS, "#g")), max_size=2).map(tuple),
        concurrency=st.none() | st.integers(0, 2),
        lasts=st.none() | st.integers(1, 5),
    )
    def put(self, domains: tuple[str, ...], concurrency: int | None, lasts: int | None) -> None:
        ends_at = self.clock.now + timedelta(seconds=lasts) if lasts else None
        values = {"recipientdomain": domains} if domains else {}
        one = condition(self.clock.now, values, Threshold(concurrency), ends_at)
        self.ledger[one.id] = one

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.ledger:
            del self.ledger[data.draw(st.sampled_from(sorted(self.ledger)))]

    @rule()
    def read(self) -> None:
        self.in_force.apply(OrderKind.CONDITION, list(self.ledger.values()))

    @rule(file=st.sampled_from(FILES))
    def reload(self, file: tuple[CounterPolicy, ...]) -> None:
        self.file = file
        self.in_force.limit(file)

    @rule(seconds=st.integers(0, 3))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.in_force.expire()

    @rule(domain=st.sampled_from(DOMAINS))
    def begin(self, domain: str) -> None:
        if picked := self.engine.admit(ActiveMail("", {DOMAIN: domain}), self._now):
            self.going.append(picked)

    @rule()
    def end(self) -> None:
        if self.going:
            self.engine.end(self.going.pop(), self._now)

    @invariant()
    def decides_as_one_built_anew(self) -> None:
        conditions = self.in_force.holding[OrderKind.CONDITION].values()
        lasting = [one for one in conditions if not one.has_ended(self.clock.now)]
        policies, _ = with_conditions(self.file, lasting, self.engine.algorithm)
        anew = PickupEngine(policies)
        for domain in DOMAINS:
            mail = ActiveMail("", {DOMAIN: domain})
            ours, theirs = self._counters(self.engine, mail), self._counters(anew, mail)
            assert [(one.place, one.threshold) for one in ours] == [(one.place, one.threshold) for one in theirs]
            for one in ours:
                number, key = one.place
                assert one.delivering == sum(policies[number].key(begun.mail.values) == key for begun in self.going)

    def _counters(self, engine: PickupEngine, mail: ActiveMail) -> tuple[CounterEntry, ...]:
        return engine.sub_queue(mail, self._now).counters[""]

    @property
    def _now(self) -> int:
        return self.in_force.nanos


TestConditions = ConditionsMachine.TestCase
TestConditions.settings = settings(max_examples=few_or(60), stateful_step_count=25, deadline=None)
