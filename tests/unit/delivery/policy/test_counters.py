"""The counters of policies and suspensions: which of them count a mail, and what a reload leaves of them."""

from collections.abc import Sequence

from mailmend.delivery.policy.counters import PickupCounters, PolicyChanges
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold, pattern_of
from mailmend.delivery.policy.rates import LONG_AGO, SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.remembered import policy_names
from mailmend.delivery.policy.shares import NO_SHARE, WHOLE, ServerShare
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail

DOMAIN, LOCAL_IP, JOB = PickupField.RECIPIENT_DOMAIN, PickupField.LOCAL_IP, PickupField.JOB_ID
A, B = "192.0.2.1", "192.0.2.2"
MINUTE = 60 * SECOND
PER_DOMAIN = CounterPolicy((DOMAIN,), default=Threshold(rate=DeliveryRate(100, MINUTE)))
PER_JOB = CounterPolicy((JOB,), default=Threshold(rate=DeliveryRate(200, MINUTE)))
PER_ADDRESS = CounterPolicy((LOCAL_IP,), default=Threshold(concurrency=1))


def mail(*sources: str) -> ActiveMail:
    return ActiveMail("1", {DOMAIN: "a.org", JOB: "x"}, sources)


def counters(*policies: CounterPolicy, share: ServerShare | None = None) -> PickupCounters:
    return PickupCounters(policies, RateAlgorithm.SLIDING, share)


def resumed() -> ServerShare:
    """The whole of each limit, whose rates are kept."""
    share = ServerShare()
    share.resume(((LONG_AGO, WHOLE),), 1, {}, 0)
    return share


def places(found: PickupCounters, source: str, *sources: str) -> Sequence[object]:
    return [entry.place for entry in found.of(mail(source, *sources))[source]]


def test_a_mail_is_counted_by_each_policy_and_held_by_each_suspension_of_its_source() -> None:
    found = counters(PER_DOMAIN, PER_ADDRESS)
    found.suspend(Suspension("s", {LOCAL_IP: (pattern_of(LOCAL_IP, A),)}))

    assert places(found, A, B) == [(0, ("a.org",)), (1, (A,)), (-1, ("s",))]
    assert places(found, B, A) == [(0, ("a.org",)), (1, (B,))]


def test_mails_have_one_place_where_all_counts_them_alike() -> None:
    found = counters(PER_DOMAIN)
    before = found.place(mail(A))
    assert before == found.place(ActiveMail("2", {DOMAIN: "a.org", JOB: "y"}, (A,)))
    assert before != found.place(mail(B))

    found.suspend(Suspension("s", {LOCAL_IP: (pattern_of(LOCAL_IP, A),)}))

    assert found.place(mail(A)) != before
    assert found.place(mail(B)) == counters(PER_DOMAIN).place(mail(B))


def test_a_suspension_closes_until_its_end_and_is_forgotten_then() -> None:
    found = counters()
    found.suspend(Suspension("ends", ends_at=5))
    found.suspend(Suspension("stays"))
    assert [entry.closed_until for entry in found.of(mail(A))[A]] == [5, UNKNOWN]

    found.drop_ended(4)
    assert places(found, A) == [(-1, ("ends",)), (-1, ("stays",))]
    found.drop_ended(5)
    assert places(found, A) == [(-1, ("stays",))]

    assert (found.lift("stays"), found.lift("stays"), found.lift("ends")) == (True, False, False)


def test_behind_a_policy_that_stops_no_other_counts() -> None:
    stops = CounterPolicy((JOB,), default=Threshold(concurrency=1, stop=True))

    assert places(counters(PER_DOMAIN, stops, PER_ADDRESS), A) == [(0, ("a.org",)), (1, ("x",))]


def test_the_gate_counts_with_limits_that_servers_share_alone() -> None:
    own = CounterPolicy((DOMAIN,), default=Threshold(concurrency=1, cluster=False))
    share = ServerShare()

    assert counters(PER_DOMAIN, share=share).of(mail(A))[A][-1] is share.gate
    assert share.gate not in counters(own, share=share).of(mail(A))[A]


def test_a_reload_keeps_counts_in_their_new_places_with_their_new_limits() -> None:
    found = counters(PER_ADDRESS, PER_DOMAIN)
    kept = found.entry((1, ("a.org",)))
    kept.delivering = 3
    found.entry((0, (A,)))

    changes = found.replace([CounterPolicy((DOMAIN,), default=Threshold(7, DeliveryRate(5, MINUTE))), PER_JOB], 10)

    assert changes == PolicyChanges(kept=((1, 0),), new=(1,), dropped=(0,))
    assert changes.counts == {"kept": 1, "new": 1, "dropped": 1}
    assert found.entries == {(0, ("a.org",)): kept}
    assert (kept.place, kept.delivering, kept.threshold.concurrency) == ((0, ("a.org",)), 3, 7)
    assert [state.rate for state in kept.rates] == [DeliveryRate(5, MINUTE)]


def test_a_limit_that_comes_with_a_reload_counts_by_the_algorithm_of_the_engine() -> None:
    """What was under way before it is not counted."""
    found = counters(CounterPolicy((DOMAIN,)))
    entry = found.entry((0, ("a.org",)))

    found.replace([PER_DOMAIN], 10)

    assert [RateAlgorithm.of(state) for state in entry.rates] == [RateAlgorithm.SLIDING]
    assert entry.clear_at() <= 10


def test_two_policies_that_count_alike_stay_two() -> None:
    found = counters(PER_DOMAIN, PER_DOMAIN)

    assert found.replace([PER_DOMAIN], 0) == PolicyChanges(kept=((0, 0),), dropped=(1,))
    assert found.replace([PER_DOMAIN, PER_DOMAIN], 0) == PolicyChanges(kept=((0, 0),), new=(1,))


def test_rates_that_are_kept_have_the_names_of_the_policies_after_a_reload() -> None:
    found = counters(PER_DOMAIN, share=resumed())
    gone = found.entry((0, ("a.org",))).memory
    assert gone is not None

    found.replace([PER_JOB, PER_ADDRESS], 0)

    memory = found.entry((0, ("x",))).memory
    assert memory is not None
    assert memory.name == (policy_names([PER_JOB])[0], ("x",))
    assert gone.gone


def test_a_counter_is_written_where_it_is_there_with_the_memory_that_was_kept() -> None:
    found = counters(PER_DOMAIN, share=resumed())
    entry = found.entry((0, ("a.org",)))
    memory = entry.memory
    assert memory is not None
    assert found.written(memory) is entry

    found.forget(entry)

    assert memory.gone
    assert found.written(memory) is None
    found.entry((0, ("a.org",)))
    assert found.written(memory) is None


def test_forgetting_a_counter_leaves_its_successor() -> None:
    found = counters(PER_DOMAIN)
    first = found.entry((0, ("a.org",)))
    found.forget(first)
    second = found.entry((0, ("a.org",)))

    found.forget(first)

    assert found.entry((0, ("a.org",))) is second


def test_shared_limits_begin_anew_and_the_servers_own_do_not() -> None:
    own = CounterPolicy((JOB,), default=Threshold(concurrency=1, cluster=False))
    share = ServerShare()
    share.change(WHOLE, 0, spent=False)
    found = counters(PER_DOMAIN, own, share=share)
    shared, alone = found.entry((0, ("a.org",))), found.entry((1, ("x",)))
    state = shared.rates[0]
    share.change(NO_SHARE, 5, spent=False)

    assert list(found.limit_anew()) == [shared]
    assert shared.threshold == Threshold(0)
    assert state not in shared.rates
    assert alone.threshold == Threshold(1, cluster=False)
    assert list(counters(PER_DOMAIN).limit_anew()) == []


def test_a_server_that_shares_with_nobody_has_all_that_is_under_way_within_its_share() -> None:
    found = counters(PER_ADDRESS)
    entry = found.entry((0, (A,)))
    entry.delivering = 2

    assert found.fit([entry], NO_SHARE)
    assert not counters(PER_ADDRESS, share=ServerShare()).fit([entry], NO_SHARE)
