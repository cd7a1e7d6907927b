"""Tenants take turns by weight, when mails are ready and when they wait for the same limit."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.delivery.policy.sub_queues import ActiveMail, PickupFigures, SubQueue
from mailmend.delivery.policy.turns import WEIGHT_MAX, WHOLE_TURN, SourcePool, TenantTurn, TenantTurns

DOMAIN, TENANT = PickupField.RECIPIENT_DOMAIN, PickupField.TENANT_ID
PER_DOMAIN = CounterPolicy((DOMAIN,))
ONE_A_DOMAIN = CounterPolicy((DOMAIN,), default=Threshold(concurrency=1))
ONE_AT_ONCE = CounterPolicy(default=Threshold(concurrency=1))


def mails(tenant: str, count: int, domains: int = 1) -> list[ActiveMail]:
    named = {TENANT: tenant} if tenant else {}
    return [ActiveMail(f"{tenant}{n}", {DOMAIN: f"{tenant}{n % domains}.org", **named}) for n in range(count)]


def engine_with(
    some: Iterable[ActiveMail], *policies: CounterPolicy, weights: Mapping[str, int] | None = None
) -> PickupEngine:
    engine = PickupEngine(policies, RateAlgorithm.SLIDING)
    engine.weigh(weights or {})
    for one in some:
        engine.add(one)
    return engine


def tenants_of(engine: PickupEngine, picks: int) -> list[str]:
    """Whose mails are picked, where each delivery ends before the next begins."""
    found = list[str]()
    for _ in range(picks):
        if picked := engine.pick(0):
            found.append(picked.mail.values.get(TENANT, ""))
            engine.end(picked, 0)
    return found


@pytest.mark.parametrize("policy", [PER_DOMAIN, ONE_AT_ONCE, CounterPolicy()])
def test_a_tenant_of_many_mails_takes_no_more_turns_than_one_of_few(policy: CounterPolicy) -> None:
    """However many sub-queues they are in, and where no policy tells the tenants apart; none is a tenant too."""
    engine = engine_with([*mails("big", 1000, 500), *mails("small", 10), *mails("", 10)], policy, PER_DOMAIN)

    assert Counter(tenants_of(engine, 30)) == {"big": 10, "small": 10, "": 10}
    assert set(tenants_of(engine, 30)) == {"big"}, "what the others leave is its own"


def test_those_that_wait_for_one_limit_are_let_through_by_tenant() -> None:
    """Given a limit that a thousand domains of one tenant wait for, another tenant's only one is never far behind."""
    engine = engine_with([*mails("big", 1000, 500), *mails("small", 10)], ONE_AT_ONCE, PER_DOMAIN)
    begun, found = engine.pick(0), list[str]()
    while begun and len(found) < 20:
        assert engine.pick(0) is None
        engine.end(begun, 0)
        begun = engine.pick(0)
        assert begun
        found.append(begun.mail.values[TENANT])

    assert Counter(found[:18]) == {"big": 9, "small": 9}


def test_weights_are_spread_evenly() -> None:
    engine = engine_with([*mails("acme", 40, 7), *mails("b", 9), *mails("c", 9)], PER_DOMAIN, weights={"acme": 3})
    order = tenants_of(engine, 25)

    assert Counter(order[:25]) == {"acme": 15, "b": 5, "c": 5}
    assert all(Counter(order[at : at + 5])["acme"] in {2, 3, 4} for at in range(20))


def test_weights_that_are_read_again_hold_from_then_on() -> None:
    engine = engine_with([*mails("a", 100), *mails("b", 100)], PER_DOMAIN)
    assert Counter(tenants_of(engine, 10)) == {"a": 5, "b": 5}

    engine.weigh({"b": 4})
    assert Counter(tenants_of(engine, 50)) == {"a": 10, "b": 40}
    engine.weigh({})
    assert Counter(tenants_of(engine, 50)) in ({"a": n, "b": 50 - n} for n in (24, 25, 26))


def test_a_tenant_that_comes_back_neither_makes_up_for_its_absence_nor_goes_ahead() -> None:
    """One mail at a time is as good as many."""
    engine = engine_with(mails("many", 40), PER_DOMAIN)
    assert tenants_of(engine, 10) == ["many"] * 10
    found = list[str]()
    for one in mails("rare", 10):
        engine.add(one)
        found += tenants_of(engine, 2)

    assert Counter(found) == {"many": 10, "rare": 10}


def test_a_tenant_whose_mails_are_all_refused_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a thousand domains that are full, each pick of another tenant is one turn."""
    engine = engine_with(mails("jammed", 2000, 1000), ONE_A_DOMAIN)
    while engine.pick(0):
        pass
    turns, turn = list[SubQueue](), engine._turn

    def counted(queue: SubQueue, now: int) -> Picked | None:
        turns.append(queue)
        return turn(queue, now)

    monkeypatch.setattr(engine, "_turn", counted)
    for one in mails("other", 30):
        engine.add(one)
    assert tenants_of(engine, 30) == ["other"] * 30
    assert len(turns) == 30
    assert [one.tenant for one in turns] == ["other"] * 30


def test_room_is_not_kept_for_a_tenant_that_has_many_other_turns_to_take() -> None:
    """Given a shared limit that wakes a tenant of a thousand ready domains, another tenant gets what is left of it."""
    narrow = CounterPolicy((PickupField.TRANSPORT_ID,), default=Threshold(concurrency=2))

    def shared(tenant: str, number: int) -> ActiveMail:
        values = {DOMAIN: f"s{number % 3}.org", PickupField.TRANSPORT_ID: "narrow", TENANT: tenant}
        return ActiveMail(f"{tenant} narrow {number}", values)

    free = [
        ActiveMail(f"free {n}", {DOMAIN: f"f{n}.org", PickupField.TRANSPORT_ID: f"t{n}", TENANT: "big"})
        for n in range(1000)
    ]
    engine = engine_with([shared("big", n) for n in range(9)], narrow, PER_DOMAIN)
    begun = [engine.pick(0), engine.pick(0)]
    assert engine.pick(0) is None
    for number in range(5):
        engine.add(shared("small", number))
    assert engine.pick(0) is None
    for one in free:
        engine.add(one)
    for picked in begun:
        assert picked
        engine.end(picked, 0)

    picks = [engine.pick(0) for _ in range(5)]
    assert "small" in {one.mail.values[TENANT] for one in picks if one}


def test_a_wake_of_which_the_mail_is_removed_is_handed_on_to_another_tenant() -> None:
    engine = engine_with([*mails("a", 1), *mails("b", 1), *mails("c", 1)], ONE_AT_ONCE)
    begun = engine.pick(0)
    assert begun
    assert engine.pick(0) is None
    engine.end(begun, 0)
    engine.remove(mails("b", 1)[0], 0)

    assert tenants_of(engine, 2) == ["c"]


def test_the_engine_tells_what_it_has_done_and_how_it_stands() -> None:
    """Given two mails for each of two domains that take one at a time."""
    engine = engine_with(mails("a", 4, 2), ONE_A_DOMAIN)
    assert engine.figures(0) == PickupFigures(0, 0, 0, ready=2, blocked=0, clear=2, refusing=0)
    begun = [engine.pick(0), engine.pick(0), engine.pick(0)]
    assert begun[0]
    assert begun[2] is None
    assert engine.figures(0) == PickupFigures(2, 2, 0, ready=0, blocked=2, clear=0, refusing=2)

    engine.end(begun[0], 0)

    assert engine.figures(0) == PickupFigures(2, 2, 1, ready=1, blocked=1, clear=1, refusing=1)


@example(  # the second tenant was away while the first had three turns, and has its missed turns after them
    weights=[3, 4],
    moves=[(0, True), (1, True), (3, False), *[(0, True)] * 3, *[(1, True)] * 5],
)
@given(
    weights=st.lists(st.integers(1, 100), min_size=2, max_size=5),
    moves=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=200),
)
def test_of_two_tenants_that_always_have_something_neither_is_a_turn_of_each_ahead(
    weights: Sequence[int], moves: Sequence[tuple[int, bool]]
) -> None:
    """In any stretch of turns, by weight, however tenants come and go meanwhile.

    A tenant that was away makes up for a whole turn at most.
    """
    turns, present = TenantTurns[str](), set[int]()
    was_away = set[int]()
    ahead = {pair: [Fraction()] for pair in combinations(range(len(weights)), 2)}
    for which, comes in moves:
        tenant = which % len(weights)
        if comes and tenant not in present:
            present.add(tenant)
            turns.add(str(tenant), "x")
        elif not comes and tenant in present and which >= len(weights):
            present.remove(tenant)
            was_away.add(tenant)
            turns.discard(str(tenant), "x")
        turn = turns.begin()
        assert (turn is None) == (not present)
        if turn is None:
            continue
        had = int(turn.tenant)
        assert had in present
        turns.end(turn, WHOLE_TURN // weights[had])
        for (one, two), stretch in ahead.items():
            if {one, two} <= present:
                stretch.append(stretch[-1] + Fraction((had == one) - (had == two), weights[had]))
                missed = int(not was_away.isdisjoint((one, two)))
                assert max(stretch) - min(stretch) <= Fraction(1, weights[one]) + Fraction(1, weights[two]) + missed
            else:
                stretch[:] = [Fraction()]


@given(
    weights=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    domains=st.lists(st.integers(1, 30), min_size=3, max_size=3),
    at_once=st.integers(1, 3),
    ends=st.lists(st.integers(1, 3), min_size=20, max_size=20),
)
def test_a_shared_limit_is_shared_by_weight(
    weights: Sequence[int], domains: Sequence[int], at_once: int, ends: Sequence[int]
) -> None:
    """However many sub-queues of each wait for it, and however many deliveries end before the next is picked."""
    policy = CounterPolicy(default=Threshold(concurrency=at_once))
    named = {str(number): weight for number, weight in enumerate(weights)}
    some = [one for name, count in zip(named, domains, strict=False) for one in mails(name, 100, count)]
    engine = engine_with(some, policy, PER_DOMAIN, weights=named)
    delivering, turns = list[Picked](), Counter[str]()
    for count in ends:
        while picked := engine.pick(0):
            delivering.append(picked)
            turns[picked.mail.values[TENANT]] += 1
        assert len(delivering) == at_once
        for ending in delivering[:count]:
            engine.end(ending, 0)
        del delivering[:count]
        for one, two in combinations(named, 2):
            apart = abs(Fraction(turns[one], named[one]) - Fraction(turns[two], named[two]))
            assert apart <= 2 * (Fraction(1, named[one]) + Fraction(1, named[two]))


def test_a_tenant_of_one_domain_has_its_weight_under_a_limit_that_all_share() -> None:
    """Its only sub-queue has its turn in one place while others are woken in another."""
    named = {"heavy": 3, "b": 1, "c": 1}
    some = [*mails("heavy", 400), *mails("b", 200, 3), *mails("c", 200, 5)]
    engine = engine_with(some, CounterPolicy(default=Threshold(concurrency=2)), PER_DOMAIN, weights=named)

    turns = Counter[str]()
    for _ in range(250):
        both = [engine.pick(0), engine.pick(0)]
        assert engine.pick(0) is None
        for picked in filter(None, both):
            turns[picked.mail.values[TENANT]] += 1
            engine.end(picked, 0)

    assert abs(turns["heavy"] - 300) < 4
    assert abs(turns["b"] - 100) < 3


def test_a_tenant_that_was_away_for_long_makes_up_for_one_turn_at_most() -> None:
    turns = turns_of("stays", "left")
    order_of(turns, 2, WHOLE_TURN)
    turns.discard("left", "x")
    order_of(turns, 9, WHOLE_TURN)

    turns.add("left", "y")

    assert Counter(order_of(turns, 8, WHOLE_TURN))["left"] in {4, 5}


def test_tenants_that_have_nothing_are_forgotten() -> None:
    """Ten thousand that come and go without a turn leave no more than a few behind, as do those that had one."""
    turns = TenantTurns[str]()
    turns.add("stays", "x")
    for number in range(10_000):
        turns.add(f"no turn {number}", "x")
        turns.discard(f"no turn {number}", "x")
    assert len(list(turns)) < 50
    for number in range(10_000):
        turns.add(f"{number}", "x")
        for _ in range(2):
            turn = turns.begin()
            assert turn
            turn.things.clear()
            turns.end(turn, WHOLE_TURN)
            if turn.tenant == "stays":
                turns.add("stays", "x")
    assert len(list(turns)) < 50


def test_each_weight_divides_a_whole_turn() -> None:
    """So nothing is ever rounded."""
    assert WEIGHT_MAX == 100
    assert [weight for weight in range(1, 101) if WHOLE_TURN % weight] == []


def test_no_shorter_turn_would_be_divided_by_each_weight() -> None:
    """So times stay as small as they can be."""
    parts = [part for part in range(2, 200) if WHOLE_TURN % part == 0]
    assert parts
    for part in parts:
        shorter = WHOLE_TURN // part
        assert [weight for weight in range(1, 101) if shorter % weight] != []


def test_addresses_of_little_weight_come_evenly_among_the_others() -> None:
    pool = SourcePool(["a", "b", "a", "c", "a"])

    assert [pool.choose(["a", "b", "c"]) for _ in range(10)] == ["a", "b", "a", "c", "a"] * 2


def test_an_address_that_could_not_be_used_has_no_turns_to_make_up_for() -> None:
    """What would be chosen is told before, and telling it changes nothing."""
    pool = SourcePool(["a", "b"])
    assert [pool.choose(["a"]) for _ in range(5)] == ["a"] * 5

    found = list[str]()
    for _ in range(4):
        following = pool.next_of(["a", "b"])
        assert pool.next_of(["a", "b"]) == following
        found.append(pool.choose(["a", "b"]))
        assert found[-1] == following

    assert found == ["a", "b", "a", "b"]


def turns_of(*tenants: str) -> TenantTurns[str]:
    turns = TenantTurns[str]()
    for tenant in tenants:
        turns.add(tenant, "x")
    return turns


def begun(turns: TenantTurns[str]) -> TenantTurn[str]:
    """The next turn, which there must be."""
    turn = turns.begin()
    assert turn is not None
    return turn


def order_of(turns: TenantTurns[str], count: int, spent: int = 10) -> list[str]:
    """Whose turns come next, where each spends as much."""
    found = list[str]()
    for _ in range(count):
        turn = begun(turns)
        found.append(turn.tenant)
        turns.end(turn, spent)
    return found


def test_of_tenants_that_are_due_at_the_same_time_the_one_that_has_waited_longest_is_first() -> None:
    assert order_of(turns_of("a", "b", "c"), 9) == ["a", "b", "c"] * 3


def test_a_turn_that_has_begun_is_the_only_one_of_its_tenant() -> None:
    """Whatever comes for it meanwhile; where nothing was spent the next turn is due at once."""
    turns = turns_of("a")
    turn = begun(turns)
    turns.add("a", "y")
    assert (turns.any_due(), turns.begin()) == (False, None)
    assert list(turns) == [("a", 2)]

    turns.add("b", "x")
    turns.end(turn)
    assert order_of(turns, 2) == ["b", "a"]


def test_a_tenant_that_spent_without_a_turn_is_behind_those_that_did_not() -> None:
    turns = turns_of("a", "b")
    turns.spend("a", 15, alone=False)

    assert order_of(turns, 4) == ["b", "b", "a", "b"]


def test_what_is_spent_while_no_other_tenant_wants_any_puts_nobody_behind() -> None:
    """Given three deliveries of a tenant, a tenant that comes then is one turn ahead; three where it had to wait."""
    alone, wanted = TenantTurns[str](), TenantTurns[str]()
    for _ in range(3):
        alone.spend("a", 10, alone=True)
        wanted.spend("a", 10, alone=False)
    for turns in (alone, wanted):
        for tenant in "ba":
            turns.add(tenant, "x")

    assert order_of(alone, 4) == ["b", "a", "b", "a"]
    assert order_of(wanted, 4) == ["b", "b", "b", "a"]


def test_time_never_goes_back_for_a_tenant_whose_turn_is_overdue() -> None:
    """Given one that spends in a turn that was due long ago, one that comes anew is not ahead of the others."""
    turns = turns_of("a", "b")
    first, overdue = begun(turns), begun(turns)
    turns.end(first, 10)
    assert order_of(turns, 2) == ["a", "a"]

    turns.spend("b", 5, alone=True)
    turns.add("c", "x")
    turns.end(overdue)

    assert order_of(turns, 4) == ["b", "b", "c", "b"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_after_a_clearance_a_tenant_has_turns_again_and_is_behind_as_before(*, goes_on: bool) -> None:
    turns = turns_of("a", "b")
    order_of(turns, 2)
    turn = begun(turns)
    assert turn.tenant == "a"
    turns.end(turn, 10)
    if goes_on:
        begun(turns)

    turns.clear()
    assert [found for found in turns if found[1]] == []
    assert turns.begin() is None
    for tenant in "abc":
        turns.add(tenant, "x")

    assert sorted(order_of(turns, 2)) == ["b", "c"]
    assert order_of(turns, 1) == ["a"]


def test_a_thing_that_is_discarded_leaves_its_tenant_the_others() -> None:
    turns = turns_of("a")
    turns.add("a", "y")

    turns.discard("a", "x")
    assert list(begun(turns).things) == ["y"]

    other = turns_of("a", "b")
    other.discard("a", "x")
    assert order_of(other, 2) == ["b", "b"]
    other.add("a", "z")
    assert "a" in order_of(other, 2)


def test_a_tenant_without_anything_is_forgotten_with_its_turn_unless_it_is_ahead_of_the_others() -> None:
    turns = turns_of("a", "b")
    turns.discard("a", "x")
    assert [tenant for tenant, _ in turns] == ["a", "b"]

    turn = begun(turns)
    assert turn.tenant == "b"
    assert [tenant for tenant, _ in turns] == ["b"]
    turn.things.clear()

    turns.end(turn, 10)
    assert [tenant for tenant, _ in turns] == ["b"], "its next turn is due later than the turn of one who comes anew"
    turns.add("c", "x")
    assert order_of(turns, 2) == ["c", "c"]


def test_a_tenant_that_comes_back_before_its_next_turn_is_due_has_that_turn_when_it_is() -> None:
    """Given one that spent and then had nothing left, it is passed over until then, and not for ever."""
    turns = turns_of("a")
    turns.spend("a", 15, alone=False)
    turns.discard("a", "x")
    assert not turns.any_due()
    assert list(turns) == [("a", 0)]

    turns.add("a", "y")
    turns.add("b", "x")
    assert order_of(turns, 4) == ["b", "b", "a", "b"]


@pytest.mark.parametrize(("stay", "known_most"), [(1, 16), (100, 200)])
def test_no_more_tenants_are_known_than_twice_as_many_as_stay(stay: int, known_most: int) -> None:
    """Or a few where few stay, whoever comes and goes meanwhile."""
    turns = turns_of(*(f"stays {number}" for number in range(stay)))
    known = list[int]()
    for number in range(1_000):
        turns.add(str(number), "x")
        turns.discard(str(number), "x")
        known.append(len(list(turns)))

    assert max(known) <= known_most


def test_many_tenants_that_stay_are_swept_a_few_times_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what a new tenant costs does not grow with how many there are."""
    sweeps, sweep = list[int](), TenantTurns._sweep

    def counted(turns: TenantTurns[str]) -> None:
        sweeps.append(len(list(turns)))
        sweep(turns)

    monkeypatch.setattr(TenantTurns, "_sweep", counted)

    turns = turns_of(*map(str, range(1_000)))

    assert len(list(turns)) == 1_000
    assert len(sweeps) < 10
