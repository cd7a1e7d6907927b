"""Limits that people set for a while: a server of deliveries with a ledger in memory, time turned by hand."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mailmend.delivery.policy.conditions import (
    MadeCondition,
    ServedPolicies,
    condition_id,
    normal_texts,
    with_conditions,
)
from mailmend.delivery.policy.engine import Picked, PickupEngine
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
from mailmend.delivery.policy.suspensions import MadeSuspension
from mailmend.delivery.shared.orders import EngineTime, HeededConditions
from mailmend.model.catalog.ledger import DELIVERY_CONDITION
from mailmend.model.errors import CannotReach
from mailmend.model.ids import QueueName
from mailmend.model.operations import Change, Read
from tests.support.clock import VirtualClock
from tests.support.deliveries import DeliverySite
from tests.support.thorough import few_or

ONE = "bob@one.example"
TWO = "cy@two.example"
DOMAIN = PickupField.RECIPIENT_DOMAIN
PER_DOMAIN = CounterPolicy((DOMAIN,))
PER_JOB = CounterPolicy((PickupField.JOB_ID,))


def condition(
    clock: VirtualClock, domains: tuple[str, ...], threshold: Threshold, lasts: timedelta | None = None
) -> MadeCondition:
    fields, values = normal_texts(("recipientdomain",), {"recipientdomain": domains} if domains else {})
    queue = QueueName("outgoing")
    return MadeCondition(
        id=condition_id(queue, fields, values),
        queue=queue,
        fields=fields,
        values=values,
        threshold=threshold,
        owner="ann",
        reason="x",
        made_at=clock.now,
        ends_at=clock.now + lasts if lasts else None,
    )


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite(shares=True)


async def limited(site: DeliverySite, concurrency: int, *domains: str, lasts: timedelta | None = None) -> MadeCondition:
    made = condition(site.clock, domains, Threshold(concurrency), lasts)
    await site.ledger.conditions.put(made, site.clock.now)
    return made


async def test_what_is_set_before_a_server_starts_holds_from_the_first_mail(site: DeliverySite) -> None:
    """Others go on."""
    await limited(site, 0, "one.example")
    await site.put(ONE)
    await site.put(TWO)
    await site.serve(120, [PER_DOMAIN])
    assert site.relay.recipients == [TWO]


async def test_what_is_removed_holds_no_longer_within_seconds(site: DeliverySite) -> None:
    made = await limited(site, 0, "one.example")
    await site.put(ONE)
    removed_at = list[float]()

    async def remove() -> None:
        await site.clock.pause(60)
        await site.ledger.conditions.remove(made, site.clock.now)
        removed_at.append(site.clock.monotonic())

    await site.serve(300, [PER_DOMAIN], until=lambda: bool(site.relay.had), beside=remove())
    assert site.relay.had == [ONE]
    assert 0 <= site.relay.attempts[0][0] - removed_at[0] <= 5


async def test_it_ends_by_the_clock_of_the_server(site: DeliverySite) -> None:
    """To the second, although the ledger is read once in ten minutes only, and does not answer then."""
    await limited(site, 0, "one.example", lasts=timedelta(seconds=90))
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


async def test_what_is_parked_holds_once_the_policies_count_by_its_fields(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """And no longer once they do not; the server says what it counts by, and metrics what it makes of it."""
    await limited(site, 0)
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
    made = await limited(site, 100, "one.example")
    key = ("mail", site.queue.name, made.id)
    site.clock.advance(1)
    site.tables.write(Change(DELIVERY_CONDITION, key, assign={"limits": '{"bytes": 5}'}))
    await site.put(ONE)
    await site.put("di@three.example")
    suspended = MadeSuspension(
        id=site.clock.new_uuid(),
        queue=site.queue.name,
        values={DOMAIN.value: ("two.example",)},
        owner="ann",
        reason="x",
    )
    seen = dict[str, float]()

    async def suspend() -> None:
        await site.clock.pause(20)
        await site.ledger.suspensions.put(suspended, site.clock.now)
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
    made = await limited(site, 0, "one.example")
    key = ("mail", site.queue.name, made.id)
    site.clock.advance(1)
    site.tables.write(Change(DELIVERY_CONDITION, key, assign={"matches": "{"}))
    await site.put(ONE)

    await site.serve(60, [PER_DOMAIN], until=lambda: bool(site.relay.had))

    (placed,) = site.server.orders.conditions.placed if site.server.orders else ()
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
        self.heeded = HeededConditions(self.engine, EngineTime(self.clock))
        self.ledger = dict[UUID, MadeCondition]()
        self.going = list[Picked]()

    @rule(
        domains=st.lists(st.sampled_from((*DOMAINS, "#g")), max_size=2).map(tuple),
        concurrency=st.none() | st.integers(0, 2),
        lasts=st.none() | st.integers(1, 5),
    )
    def put(self, domains: tuple[str, ...], concurrency: int | None, lasts: int | None) -> None:
        one = condition(self.clock, domains, Threshold(concurrency), timedelta(seconds=lasts) if lasts else None)
        self.ledger[one.id] = one

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.ledger:
            del self.ledger[data.draw(st.sampled_from(sorted(self.ledger)))]

    @rule()
    def read(self) -> None:
        self.heeded.understood(list(self.ledger.values()))()

    @rule(file=st.sampled_from(FILES))
    def reload(self, file: tuple[CounterPolicy, ...]) -> None:
        self.file = file
        self.heeded.limit(file)

    @rule(seconds=st.integers(0, 3))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.heeded.expire()

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
        lasting = [one for one in self.heeded.holding.values() if not one.has_ended(self.clock.now)]
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
        return self.heeded.time.nanos()


TestConditions = ConditionsMachine.TestCase
TestConditions.settings = settings(max_examples=few_or(60), stateful_step_count=25, deadline=None)
