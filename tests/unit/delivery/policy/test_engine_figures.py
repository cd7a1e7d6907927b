"""What an engine tells of itself: its figures, its turns, and the places of mails."""

from collections import Counter
from collections.abc import Sequence

import pytest

from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold, pattern_of
from mailmend.delivery.policy.rates import DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.sub_queues import ActiveMail, PickupFigures, SubQueue

DOMAIN, TENANT = PickupField.RECIPIENT_DOMAIN, PickupField.TENANT_ID
A, B = "192.0.2.1", "192.0.2.2"
PER_DOMAIN = CounterPolicy((DOMAIN,))
ONE_A_DOMAIN = CounterPolicy((DOMAIN,), default=Threshold(concurrency=1))
ONE_AT_ONCE = CounterPolicy(default=Threshold(concurrency=1))


def mail(
    name: str, domain: str = "a.org", sources: Sequence[str] = (A,), *, urgent: bool = False, tenant: str = ""
) -> ActiveMail:
    return ActiveMail(name, {DOMAIN: domain, TENANT: tenant}, tuple(sources), urgent)


def engine_with(*mails: ActiveMail, policies: Sequence[CounterPolicy]) -> PickupEngine:
    engine = PickupEngine(policies, RateAlgorithm.SLIDING)
    for active in mails:
        engine.add(active)
    return engine


def begun(engine: PickupEngine, now: int = 0) -> Picked:
    """The next delivery, which there must be."""
    picked = engine.pick(now)
    assert picked is not None
    return picked


def test_figures_count_what_an_engine_has_done_and_how_it_stands() -> None:
    """Given three domains that take one mail at a time, of which two have a second mail."""
    domains = ["a.org", "b.org", "c.org", "a.org", "b.org"]
    engine = engine_with(*(mail(str(n), domain) for n, domain in enumerate(domains)), policies=[ONE_A_DOMAIN])
    assert engine.figures(0) == PickupFigures(0, 0, 0, ready=3, blocked=0, clear=3, refusing=0)

    first, _, third = begun(engine), begun(engine), begun(engine)
    assert engine.pick(0) is None
    assert engine.figures(0) == PickupFigures(3, 2, 0, ready=0, blocked=2, clear=0, refusing=3)

    engine.end(third, 0)
    assert engine.figures(0) == PickupFigures(3, 2, 0, ready=0, blocked=2, clear=0, refusing=2)

    engine.end(first, 0)
    assert engine.figures(0) == PickupFigures(3, 2, 1, ready=1, blocked=1, clear=1, refusing=1)


def test_a_counter_refuses_until_the_instant_at_which_its_rate_lets_another_begin() -> None:
    engine = engine_with(mail("1"), policies=[CounterPolicy(default=Threshold(rate=DeliveryRate(1, 60)))])
    begun(engine, 5)

    assert [(engine.figures(now).clear, engine.figures(now).refusing) for now in (64, 65)] == [(0, 1), (1, 0)]


def test_an_observer_hears_of_each_turn_with_its_delivery_and_its_time() -> None:
    turns = list[tuple[str, str | None, int]]()

    def seen(queue: SubQueue, picked: Picked | None, now: int) -> None:
        name = None
        if picked is not None:
            name = picked.mail.id
        turns.append((queue.tenant, name, now))

    engine = PickupEngine([ONE_AT_ONCE], RateAlgorithm.SLIDING, seen)
    engine.add(mail("1", tenant="x"))
    engine.add(mail("2", tenant="y"))

    begun(engine, 5)
    engine.pick(6)

    assert turns == [("x", "1", 5), ("y", None, 6)]


def test_an_engine_tells_by_what_it_counts() -> None:
    engine = PickupEngine([ONE_AT_ONCE, PER_DOMAIN], RateAlgorithm.FIXED_WINDOW)

    assert engine.policies == (ONE_AT_ONCE, PER_DOMAIN)
    assert engine.algorithm is RateAlgorithm.FIXED_WINDOW


def tenants_of(picked: Sequence[Picked]) -> Counter[str]:
    return Counter(delivery.mail.values[TENANT] for delivery in picked)


def turns_beside_another(engine: PickupEngine) -> Counter[str]:
    """The tenants of ten deliveries, one after the other, from when 20 mails of tenant y have come."""
    for number in range(20):
        engine.add(mail(f"y{number}", tenant="y"))
    found = list[Picked]()
    for _ in range(10):
        found.append(begun(engine))
        assert engine.pick(0) is None
        engine.end(found[-1], 0)
    return tenants_of(found)


def test_a_tenant_of_weight_three_takes_three_turns_for_each_turn_of_another() -> None:
    engine = engine_with(*(mail(f"{tenant}{n}", tenant=tenant) for n in range(9) for tenant in "xy"), policies=[])
    engine.weigh({"y": 3})

    assert tenants_of([begun(engine) for _ in range(8)]) == {"x": 2, "y": 6}

    engine.weigh({})
    assert tenants_of([begun(engine) for _ in range(6)]) == {"x": 3, "y": 3}


@pytest.mark.parametrize("weight", [1, 3])
def test_what_a_limit_leaves_room_for_goes_to_tenants_by_weight(weight: int) -> None:
    """Given one delivery at a time, for which the mails of both tenants wait in several sub-queues each."""
    mails = [mail(f"{tenant}{n}", f"{n % 4}.org", tenant=tenant) for n in range(30) for tenant in "xy"]
    engine = engine_with(*mails, policies=[ONE_AT_ONCE, PER_DOMAIN])
    engine.weigh({"y": weight})
    deliveries = list[Picked]()
    for _ in range(24):
        deliveries.append(begun(engine))
        assert engine.pick(0) is None
        engine.end(deliveries[-1], 0)

    turns = tenants_of(deliveries)
    assert abs(turns["y"] - weight * turns["x"]) <= weight + 1


def test_a_tenant_that_had_its_turn_alone_is_not_behind_those_that_come_later() -> None:
    """Given 20 deliveries of one tenant under a limit that no other waited for, both then take turns."""
    engine = engine_with(*(mail(f"x{n}", tenant="x") for n in range(40)), policies=[ONE_AT_ONCE])
    for _ in range(20):
        picked = begun(engine)
        assert engine.pick(0) is None
        engine.end(picked, 0)

    assert turns_beside_another(engine)["x"] in {4, 5, 6}


def test_a_tenant_that_found_a_limit_free_is_not_behind_those_that_come_later() -> None:
    """Given 20 deliveries of one tenant for which none had to wait, both then take turns."""
    engine = engine_with(*(mail(f"x{n}", tenant="x") for n in range(40)), policies=[ONE_AT_ONCE])
    first = begun(engine)
    assert engine.pick(0) is None, "from now on the limit remembers who took from it"
    engine.end(first, 0)
    for _ in range(20):
        engine.end(begun(engine), 0)

    assert turns_beside_another(engine)["x"] in {4, 5, 6}


def test_a_mail_without_a_tenant_waits_with_those_whose_tenant_is_empty() -> None:
    without = ActiveMail("1", {DOMAIN: "a.org"}, (A,))
    engine = engine_with(without, mail("2"), policies=[PER_DOMAIN])

    place = engine.place_of(without)

    assert place is not None
    assert (place.tenant, place) == ("", engine.place_of(mail("2")))


def test_a_mail_that_waits_has_a_place_and_another_like_it_has_none() -> None:
    normal, urgent = mail("1"), mail("2", urgent=True)
    engine = engine_with(normal, urgent, mail("3", "b.org"), policies=[PER_DOMAIN])

    place = engine.place_of(normal)
    assert place is not None
    assert engine.place_of(urgent) is place
    assert (list(place.urgent), list(place.normal)) == ([urgent], [normal])
    assert engine.place_of(mail("4")) is None
    assert engine.place_of(mail("5", "c.org")) is None
    assert engine.place_of(mail("6", tenant="x")) is None


def test_a_mail_that_is_removed_has_no_place_and_is_not_picked() -> None:
    """The other mails of its sub-queue stay, and its counters are forgotten with the last of them."""
    first, second = mail("1"), mail("2")
    engine = engine_with(first, second, policies=[ONE_A_DOMAIN])

    engine.remove(first, 0)
    assert (engine.place_of(first), engine.figures(0).ready, engine.figures(0).clear) == (None, 1, 1)

    engine.remove(second, 0)
    assert engine.figures(0) == PickupFigures(0, 0, 0, 0, 0, 0, 0)
    assert engine.pick(0) is None


def test_a_mail_that_is_removed_while_it_waits_for_a_limit_leaves_its_place_to_the_others() -> None:
    engine = engine_with(*(mail(name, f"{name}.org") for name in "abc"), policies=[ONE_AT_ONCE, PER_DOMAIN])
    first = begun(engine)
    assert engine.pick(0) is None

    engine.remove(mail("b", "b.org"), 0)
    assert engine.figures(0).blocked == 1

    engine.end(first, 0)
    assert begun(engine).mail.id == "c"


def test_a_delivery_that_goes_on_is_found_by_its_mail() -> None:
    engine = engine_with(*(mail(str(n)) for n in range(3)), policies=[])
    deliveries = {picked.mail.id: picked for picked in (begun(engine), begun(engine))}

    assert {name: engine.delivering(name) for name in "012"} == {**deliveries, "2": None}

    engine.end(deliveries["0"], 0)
    assert engine.delivering("0") is None


def test_the_next_address_of_a_mail_is_the_one_whose_turn_it_is_among_the_usable_ones() -> None:
    """By weight; addresses that no mail had before are all at their beginning."""
    waiting = mail("1", sources=(A, A, B))
    engine = engine_with(waiting, policies=[])
    assert engine.next_source(waiting, (A, B)) == A

    assert begun(engine).source == A

    assert engine.next_source(waiting, (A, B)) == B
    assert engine.next_source(waiting, (A,)) == A
    assert engine.next_source(waiting, ()) is None
    assert engine.next_source(mail("2", sources=(A, B, B)), (A, B)) == B


def test_asking_where_a_mail_would_wait_adds_neither_a_mail_nor_a_counter() -> None:
    engine = engine_with(policies=[ONE_A_DOMAIN])

    queue = engine.sub_queue(mail("1", tenant="x"), 0)

    assert (queue.tenant, list(queue.counters)) == ("x", [A])
    assert [entry.place for entry in queue.all_counters] == [(0, ("a.org",))]
    assert engine.figures(0) == PickupFigures(0, 0, 0, 0, 0, 0, 0)


def test_a_policy_that_comes_anew_counts_what_is_under_way_until_it_ends() -> None:
    engine = engine_with(*(mail(str(n)) for n in range(4)), policies=[])
    first, second = begun(engine), begun(engine)

    engine.reload([PER_DOMAIN, CounterPolicy(default=Threshold(concurrency=2))], 0)
    assert engine.pick(0) is None

    engine.end(first, 0)
    third = begun(engine)
    assert engine.pick(0) is None
    engine.end(second, 0)
    engine.end(third, 0)
    begun(engine)


ELSEWHERE = Suspension("elsewhere", {DOMAIN: (pattern_of(DOMAIN, "z.org"),)})


def test_a_suspension_of_other_mails_keeps_a_limit_from_no_mail_that_waits_for_it() -> None:
    """Given three domains that wait for one delivery at once, and a suspension between a wake and its turn."""
    engine = engine_with(*(mail(name, f"{name}.org") for name in "abc"), policies=[ONE_AT_ONCE, PER_DOMAIN])
    first = begun(engine)
    assert engine.pick(0) is None
    engine.end(first, 0)

    engine.suspend(ELSEWHERE, 0)

    found = [first.mail.id]
    while picked := engine.pick(0):
        found.append(picked.mail.id)
        assert engine.pick(0) is None
        engine.end(picked, 0)
    assert sorted(found) == ["a", "b", "c"]
    assert engine.figures(0) == PickupFigures(3, 3, 2, 0, 0, 0, 0)


def test_a_suspension_forgets_no_counter_that_is_used_and_keeps_none_that_is_not() -> None:
    engine = engine_with(mail("1"), mail("2"), policies=[ONE_A_DOMAIN])
    first = begun(engine)
    assert engine.pick(0) is None

    engine.suspend(ELSEWHERE, 0)
    assert engine.figures(0) == PickupFigures(1, 1, 0, ready=1, blocked=0, clear=0, refusing=1)
    assert engine.pick(0) is None

    engine.end(first, 0)
    engine.end(begun(engine), 0)
    assert (engine.figures(0).clear, engine.figures(0).refusing) == (0, 0)


def test_a_suspension_that_has_ended_is_forgotten_with_the_next_change() -> None:
    engine = engine_with(policies=[])
    engine.suspend(Suspension("short", ends_at=7), 0)
    engine.suspend(Suspension("long", ends_at=9), 0)

    engine.suspend(ELSEWHERE, 7)

    assert [engine.lift(name, 7) for name in ("short", "long", "elsewhere", "elsewhere")] == [False, True, True, False]


def test_a_limit_is_handed_on_to_another_tenant_while_the_one_that_it_woke_has_many_turns_to_take() -> None:
    """Given a tenant with 20 domains that are free, ahead of its domain that waited for the limit."""
    narrow = CounterPolicy((PickupField.JOB_ID,), default=Threshold(concurrency=1))

    def of_job(name: str, tenant: str, job: str) -> ActiveMail:
        return ActiveMail(name, {DOMAIN: f"{name}.org", TENANT: tenant, PickupField.JOB_ID: job})

    engine = engine_with(*(of_job(f"big{n}", "big", "narrow") for n in range(3)), policies=[narrow, PER_DOMAIN])
    first = begun(engine)
    assert engine.pick(0) is None
    engine.add(of_job("small", "small", "narrow"))
    assert engine.pick(0) is None
    for number in range(20):
        engine.add(of_job(f"free{number}", "big", f"job {number}"))

    engine.end(first, 0)

    found = [begun(engine).mail.id for _ in range(4)]
    assert "small" in found
    while picked := engine.pick(0):
        found.append(picked.mail.id)
    assert sorted(found) == sorted(["small", *(f"free{number}" for number in range(20))])
