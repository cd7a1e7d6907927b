"""What is picked up: never more than the policies let through, never less, and in a fair order."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold, ThresholdCondition, pattern_of
from mailmend.delivery.policy.rates import DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.sub_queues import URGENT_IN_A_ROW, ActiveMail, SubQueue
from tests.support.thorough import few_or

LOCAL_IP, DOMAIN, JOB = PickupField.LOCAL_IP, PickupField.RECIPIENT_DOMAIN, PickupField.JOB_ID
TENANT = PickupField.TENANT_ID
WEIGHTS = {"": 1, "x": 1, "y": 3}
A, B = "192.0.2.1", "192.0.2.2"
GLOBAL_ONE = CounterPolicy(default=Threshold(concurrency=1))


def mail(
    name: str,
    domain: str = "a.org",
    job: str = "",
    sources: Sequence[str] = (A,),
    *,
    urgent: bool = False,
    tenant: str = "",
) -> ActiveMail:
    return ActiveMail(name, {DOMAIN: domain, JOB: job, TENANT: tenant}, tuple(sources), urgent)


def engine_with(*mails: ActiveMail, policies: Sequence[CounterPolicy]) -> PickupEngine:
    engine = PickupEngine(policies, RateAlgorithm.SLIDING)
    for one in mails:
        engine.add(one)
    return engine


def all_picked(engine: PickupEngine, now: int = 0) -> list[Picked]:
    return list(iter(lambda: engine.pick(now), None))


def names(picked: Sequence[Picked]) -> list[str]:
    return [one.mail.id for one in picked]


def test_two_at_once_to_a_domain_leave_the_third_waiting_until_one_has_ended() -> None:
    """The seed's example: a limit of two is reached by two deliveries; other domains go on."""
    policy = CounterPolicy(
        (LOCAL_IP, DOMAIN),
        conditions=(ThresholdCondition({DOMAIN: (pattern_of(DOMAIN, "halon.io"),)}, Threshold(concurrency=2)),),
    )
    engine = engine_with(*(mail(str(n), "halon.io") for n in range(3)), mail("other"), policies=[policy])

    picked = all_picked(engine)
    assert sorted(names(picked)) == ["0", "1", "other"]
    engine.end(picked[0], now=0)

    assert names(all_picked(engine)) == ["2"]


def test_a_rate_says_when_the_next_may_go() -> None:
    engine = engine_with(mail("1"), mail("2"), policies=[CounterPolicy(default=Threshold(rate=DeliveryRate(1, 60)))])
    assert names(all_picked(engine, now=5)) == ["1"]

    assert engine.next_at() == 65
    assert engine.pick(64) is None
    assert names(all_picked(engine, now=65)) == ["2"]


def test_an_address_that_is_full_leaves_the_mail_to_the_others() -> None:
    per_address = CounterPolicy((LOCAL_IP,), default=Threshold(concurrency=1))
    engine = engine_with(*(mail(str(n), sources=[A, B]) for n in range(3)), policies=[per_address])

    assert sorted(one.source for one in all_picked(engine)) == [A, B]


def test_addresses_are_taken_by_their_weights() -> None:
    engine = engine_with(*(mail(str(n), sources=[A, A, B]) for n in range(30)), policies=[])

    assert Counter(one.source for one in all_picked(engine)) == {A: 20, B: 10}


def test_a_refused_mail_has_spent_nothing_of_the_counters_that_would_have_let_it_pass() -> None:
    slow = CounterPolicy((JOB,), default=Threshold(rate=DeliveryRate(1, 100)))
    full = CounterPolicy((DOMAIN,), default=Threshold(concurrency=1))
    engine = engine_with(mail("1", job="x"), mail("2", job="y"), policies=[slow, full])
    (first,) = all_picked(engine)

    engine.end(first, now=1)

    assert names(all_picked(engine, now=1)) == ["2"]


def test_policies_behind_one_that_stops_neither_limit_nor_count() -> None:
    free = CounterPolicy((JOB,), default=Threshold(stop=True))
    engine = engine_with(mail("1"), mail("2"), policies=[free, CounterPolicy(default=Threshold(concurrency=1))])

    assert names(all_picked(engine)) == ["1", "2"]


def test_sub_queues_that_share_a_limit_take_turns() -> None:
    one_at_once = CounterPolicy(default=Threshold(concurrency=1))
    engine = engine_with(
        *(mail(f"{domain}{n}", domain) for domain in ("a.org", "b.org", "c.org") for n in range(3)),
        policies=[one_at_once, CounterPolicy((DOMAIN,))],
    )
    order = []
    while (picked := engine.pick(0)) is not None:
        order.append(picked.mail.values[DOMAIN])
        engine.end(picked, 0)

    assert all(len(set(order[at : at + 3])) == 3 for at in (0, 3, 6))


def test_urgent_mails_go_first_and_the_others_have_their_turns() -> None:
    urgent = [mail(f"u{n}", urgent=True) for n in range(URGENT_IN_A_ROW + 1)]
    engine = engine_with(mail("n"), *urgent, policies=[])

    assert names(all_picked(engine)).index("n") == URGENT_IN_A_ROW


def test_counters_are_forgotten_once_nothing_of_them_counts() -> None:
    policies = [CounterPolicy((DOMAIN,), default=Threshold(2, DeliveryRate(5, 10), 3))]
    engine = engine_with(*(mail(str(n), f"{n}.org") for n in range(50)), policies=policies)
    for picked in all_picked(engine):
        engine.end(picked, now=1)

    assert engine.pick(now=11) is None
    assert engine.next_at() is None
    assert not engine._counters.entries
    assert not engine._sub_queues


def test_a_mail_that_was_woken_and_is_removed_hands_its_wake_on() -> None:
    """Given two domains that wait for one counter, and the first is removed once it is woken."""
    engine = engine_with(*(mail(one, f"{one}.org") for one in "abc"), policies=[GLOBAL_ONE, CounterPolicy((DOMAIN,))])
    (picked,) = all_picked(engine)
    engine.end(picked, now=0)
    engine.remove(mail("b", "b.org"), now=0)

    assert names(all_picked(engine)) == ["c"]


def test_what_is_admitted_at_once_counts_as_all_others_or_not_at_all() -> None:
    """Given room for one: the first is begun, the second is refused, and nothing of it stays."""
    engine = engine_with(policies=[GLOBAL_ONE, CounterPolicy((DOMAIN,), default=Threshold(concurrency=5))])
    first = engine.admit(mail("a"), now=0)
    assert first
    assert engine.admit(mail("b", "b.org"), now=0) is None
    engine.end(first, now=0)

    assert not engine._counters.entries
    assert engine.admit(mail("b", "b.org"), now=0)


def test_a_counter_that_was_forgotten_does_not_take_its_successor_along() -> None:
    """Given one whose timer is still to come when it is forgotten, and another in its place, that one is kept."""
    policies = [CounterPolicy(default=Threshold(concurrency=2, rate=DeliveryRate(1, 1)))]
    engine = engine_with(policies=policies)
    first = engine.admit(mail("1"), now=0)
    assert first
    engine.end(first, now=0)
    engine.add(mail("2"))
    engine.remove(mail("2"), now=1)
    assert engine.admit(mail("3"), now=1)
    assert engine.pick(now=1) is None

    assert engine.admit(mail("4"), now=1) is None


def test_a_suspension_holds_back_what_it_names_until_it_is_lifted_or_ends() -> None:
    """Another address may still send; what has begun goes on; deliveries elsewhere are not held back."""
    engine = engine_with(mail("1"), mail("2", sources=[A, B]), mail("3", "b.org"), policies=[GLOBAL_ONE])
    begun = engine.pick(0)
    assert begun
    of_a = Suspension("x", {DOMAIN: (pattern_of(DOMAIN, "a.org"),), LOCAL_IP: (pattern_of(LOCAL_IP, f"{A}/32"),)}, 9)
    engine.suspend(of_a, now=0)
    engine.suspend(Suspension("y", {JOB: (pattern_of(JOB, "other"),)}), now=0)
    engine.end(begun, 0)

    picked = list[tuple[str, str]]()
    while one := engine.pick(0):
        picked.append((one.mail.id, one.source))
        engine.end(one, 0)

    assert sorted(picked) == [("2", B), ("3", A)] if begun.mail.id == "1" else picked
    engine.add(mail("4"))
    assert engine.pick(8) is None
    assert engine.lift("x", 8)
    assert names(all_picked(engine, 8)) == ["4"]
    assert not engine.lift("x", 8)


def test_a_suspension_of_nothing_in_particular_is_of_everything_and_ends_by_itself() -> None:
    engine = engine_with(mail("1"), mail("2", "b.org"), policies=[])
    engine.suspend(Suspension("all", ends_at=7), now=0)

    assert engine.pick(6) is None
    assert engine.next_at() == 7
    assert sorted(names(all_picked(engine, 7))) == ["1", "2"]


def test_a_reload_gives_no_limit_anew() -> None:
    """What is counted as before goes on counting, under other limits; what is new counts what is being delivered."""
    rate = CounterPolicy((JOB,), default=Threshold(rate=DeliveryRate(2, 100)))
    engine = engine_with(*(mail(str(n)) for n in range(5)), policies=[rate, CounterPolicy((DOMAIN,))])
    assert len(all_picked(engine)) == 2

    changes = engine.reload([CounterPolicy((LOCAL_IP,), default=Threshold(concurrency=3)), replace(rate)], now=1)

    assert (changes.kept, changes.new, changes.dropped) == (((0, 1),), (0,), (1,))
    assert engine.pick(99) is None, "the rate is spent"
    assert len(all_picked(engine, 100)) == 1, "two of three at once had begun before"


def test_a_limit_that_is_lowered_lets_none_begin_until_fewer_are_under_way() -> None:
    engine = engine_with(
        *(mail(str(n)) for n in range(5)), policies=[CounterPolicy((DOMAIN,), default=Threshold(concurrency=4))]
    )
    begun = all_picked(engine)
    engine.reload([CounterPolicy((DOMAIN,), default=Threshold(concurrency=2))], now=1)
    found = []
    for one in begun:
        found.append(len(all_picked(engine, 1)))
        engine.end(one, 1)
    assert (len(begun), found) == (4, [0, 0, 0, 1])


class PickupMachine(RuleBasedStateMachine):
    """Mails come, are picked and end, as time passes; a recount from the policies alone says what may be picked."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.waiting: dict[str, ActiveMail] = {}
        self.delivering: list[Picked] = []
        self.begun: list[tuple[int, ActiveMail, str]] = []
        self.numbers = iter(range(10**6))
        self.suspensions: dict[str, Suspension] = {}
        self.ahead: dict[tuple[str, str], list[Fraction]] = {pair: [Fraction()] for pair in combinations(WEIGHTS, 2)}

    @initialize(
        most=st.integers(1, 3),
        rate=st.builds(DeliveryRate, st.integers(1, 3), st.integers(1, 20)),
        gap=st.integers(0, 5),
    )
    def begin(self, most: int, rate: DeliveryRate, gap: int) -> None:
        self.policies: tuple[CounterPolicy, ...] = (
            CounterPolicy((LOCAL_IP, DOMAIN), default=Threshold(concurrency=most)),
            CounterPolicy((DOMAIN,), default=Threshold(rate=rate)),
            CounterPolicy((LOCAL_IP,), default=Threshold(connect_interval=gap or None)),
            CounterPolicy((JOB,), default=Threshold(concurrency=2)),
        )
        self.engine = PickupEngine(self.policies, RateAlgorithm.SLIDING)
        self.engine.weigh(WEIGHTS)

    @rule(
        domain=st.sampled_from(["a.org", "b.org"]),
        tenant=st.sampled_from(list(WEIGHTS)),
        job=st.sampled_from(["", "x", "y"]),
        sources=st.sampled_from([(A,), (B,), (A, B), (B, A, A)]),
        mails=st.integers(1, 4),
    )
    def add(self, domain: str, tenant: str, job: str, sources: tuple[str, ...], mails: int) -> None:
        for _ in range(mails):
            one = mail(str(next(self.numbers)), domain, job, sources, tenant=tenant)
            self.waiting[one.id] = one
            self.engine.add(one)

    @rule()
    def pick(self) -> None:
        ready = self.ready()
        picked = self.engine.pick(self.now)
        may_go = [one for one in self.waiting.values() if any(self.lets_through(one, at) for at in one.sources)]
        if picked is None:
            assert not may_go, "a mail waits that nothing refuses"
            return
        assert self.lets_through(picked.mail, picked.source)
        self.turn(picked.mail.values[TENANT], ready)
        del self.waiting[picked.mail.id]
        self.delivering.append(picked)
        self.begun.append((self.now, picked.mail, picked.source))

    @rule(domain=st.sampled_from(["a.org", "b.org"]), sources=st.sampled_from([(A,), (B, A)]))
    def admit(self, domain: str, sources: tuple[str, ...]) -> None:
        one = mail(str(next(self.numbers)), domain, "x", sources)
        may_go = any(self.lets_through(one, at) for at in sources)
        picked = self.engine.admit(one, self.now)
        assert (picked is not None) == may_go, "what waits nowhere begins where nothing refuses it"
        if picked:
            assert self.lets_through(one, picked.source)
            self.delivering.append(picked)
            self.begun.append((self.now, one, picked.source))

    @rule(
        name=st.sampled_from("xyz"),
        domain=st.sampled_from([None, "a.org", "*.org"]),
        source=st.sampled_from([None, A]),
        lasting=st.none() | st.integers(1, 20),
    )
    def suspend(self, name: str, domain: str | None, source: str | None, lasting: int | None) -> None:
        wanted = {one: (pattern_of(one, text),) for one, text in ((DOMAIN, domain), (LOCAL_IP, source)) if text}
        self.suspensions[name] = Suspension(name, wanted, lasting and self.now + lasting)
        self.engine.suspend(self.suspensions[name], self.now)

    @rule(name=st.sampled_from("xyz"))
    def lift(self, name: str) -> None:
        self.suspensions.pop(name, None)
        self.engine.lift(name, self.now)

    @rule(most=st.integers(1, 3), count=st.integers(1, 3), other_way_round=st.booleans())
    def reload(self, most: int, count: int, *, other_way_round: bool) -> None:
        """The interval stays: what is older than it was forgotten."""

        def limited(policy: CounterPolicy) -> CounterPolicy:
            limits = policy.default
            assert limits
            if limits.concurrency:
                limits = replace(limits, concurrency=most)
            if limits.rate:
                limits = replace(limits, rate=replace(limits.rate, count=count))
            return replace(policy, default=limits)

        changed = tuple(map(limited, self.policies))
        self.policies = changed[::-1] if other_way_round else changed
        self.engine.reload(self.policies, self.now)

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 99))
    def remove(self, which: int) -> None:
        one = list(self.waiting.values())[which % len(self.waiting)]
        del self.waiting[one.id]
        self.engine.remove(one, self.now)

    @precondition(lambda self: self.delivering)
    @rule(which=st.integers(0, 99))
    def end(self, which: int) -> None:
        self.engine.end(self.delivering.pop(which % len(self.delivering)), self.now)

    @rule(nanoseconds=st.integers(1, 9))
    def time_passes(self, nanoseconds: int) -> None:
        self.now += nanoseconds

    @rule()
    def time_passes_until_the_engine_would_look_again(self) -> None:
        self.now = max(self.now, self.engine.next_at() or 0)

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "engine"):
            queued = [one for queue in self.engine._sub_queues.values() for one in (*queue.urgent, *queue.normal)]
            assert {one.id for one in queued} == self.waiting.keys()

    def ready(self) -> set[str]:
        """Tenants with a mail that may go, and that no counter has to wake first."""
        queues = [one for one in self.engine._sub_queues.values() if not one.waits_on]
        mails = [one for queue in queues for one in (*queue.urgent, *queue.normal)]
        return {one.values[TENANT] for one in mails if any(self.lets_through(one, at) for at in one.sources)}

    def turn(self, tenant: str, ready: set[str]) -> None:
        """Of two tenants that have been ready all the while, neither has got ahead by more than a turn of each."""
        for (one, two), stretch in self.ahead.items():
            if {one, two} <= ready:
                stretch.append(stretch[-1] + Fraction((tenant == one) - (tenant == two), WEIGHTS[tenant]))
                bound = Fraction(1, WEIGHTS[one]) + Fraction(1, WEIGHTS[two])
                assert max(stretch) - min(stretch) <= bound, (one, two)
            else:
                stretch[:] = [Fraction()]

    def lets_through(self, one: ActiveMail, source: str) -> bool:
        values = {**one.values, LOCAL_IP: source}
        held_back = any(
            other.holds(values) and (other.ends_at is None or other.ends_at > self.now)
            for other in self.suspensions.values()
        )
        return not held_back and all(self.room(policy, values) for policy in self.policies)

    def room(self, policy: CounterPolicy, values: Mapping[PickupField, str]) -> bool:
        key, limits = policy.key(values), policy.threshold(policy.key(values))
        assert limits is not None

        def alike(other: ActiveMail, source: str) -> bool:
            return policy.key({**other.values, LOCAL_IP: source}) == key

        begun = [at for at, other, source in self.begun if alike(other, source)]
        at_once = sum(alike(other.mail, other.source) for other in self.delivering)
        return (
            (limits.concurrency is None or at_once < limits.concurrency)
            and (limits.rate is None or sum(at > self.now - limits.rate.interval for at in begun) < limits.rate.count)
            and (not limits.connect_interval or all(at <= self.now - limits.connect_interval for at in begun))
        )


TestPickupMachine = PickupMachine.TestCase
TestPickupMachine.settings = settings(max_examples=few_or(60), stateful_step_count=40, deadline=None)


def suspended(blocked: int) -> Iterator[ActiveMail]:
    return (mail(f"{n}-{m}", f"{n}.org", "blocked") for n, m in product(range(blocked), range(2)))


@pytest.mark.parametrize("blocked", [10, 1000])
def test_what_waits_is_not_looked_at_again_until_its_counter_clears(
    blocked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turns of a pick are as many with a thousand refused sub-queues as with ten."""
    policies = [CounterPolicy((JOB,), default=Threshold(concurrency=1)), CounterPolicy((DOMAIN,))]
    engine = engine_with(*suspended(blocked), policies=policies)
    all_picked(engine)
    turns, turn = list[SubQueue](), engine._turn

    def counted(queue: SubQueue, now: int) -> Picked | None:
        turns.append(queue)
        return turn(queue, now)

    monkeypatch.setattr(engine, "_turn", counted)

    for n in range(20):
        engine.add(mail(str(n), "free.org", f"job {n}"))
        picked = engine.pick(0)
        assert picked is not None
        engine.end(picked, 0)

    assert len(turns) == 20
