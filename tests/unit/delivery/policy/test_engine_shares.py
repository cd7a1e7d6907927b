"""What an engine lets begin under limits that servers share, by the share that it has and for as long as it may."""

from collections.abc import Sequence

import pytest

from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold, ThresholdCondition, pattern_of
from mailmend.delivery.policy.rates import LONG_AGO, SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.remembered import saved_rate
from mailmend.delivery.policy.shares import WHOLE, LimitShare, ServerShare, turn_of
from mailmend.delivery.policy.sub_queues import ActiveMail

DOMAIN, LOCAL_IP, TENANT = PickupField.RECIPIENT_DOMAIN, PickupField.LOCAL_IP, PickupField.TENANT_ID
HALF = LimitShare(((0, 2),))
FOUR = CounterPolicy((DOMAIN,), default=Threshold(concurrency=4))
FOUR_OF_ITS_OWN = CounterPolicy((DOMAIN,), default=Threshold(concurrency=4, cluster=False))


def mail(name: str, domain: str = "a.org", sources: Sequence[str] = ("",), *, urgent: bool = False) -> ActiveMail:
    return ActiveMail(name, {DOMAIN: domain}, tuple(sources), urgent)


def engine_with(*mails: ActiveMail, policies: Sequence[CounterPolicy]) -> PickupEngine:
    engine = PickupEngine(policies, RateAlgorithm.SLIDING, share=ServerShare())
    for active in mails:
        engine.add(active)
    return engine


def holding(share: LimitShare, *mails: ActiveMail, policies: Sequence[CounterPolicy]) -> PickupEngine:
    """An engine that has had this share all the time, and may begin deliveries until the instant 1,000."""
    engine = engine_with(*mails, policies=policies)
    engine.have(share, 0, spent=False)
    engine.hold_until(1_000, 0)
    return engine


def all_picked(engine: PickupEngine, now: int = 0) -> list[Picked]:
    return list(iter(lambda: engine.pick(now), None))


def five(domain: str = "a.org") -> list[ActiveMail]:
    return [mail(f"{domain} {number}", domain) for number in range(5)]


def test_nothing_begins_under_a_shared_limit_before_the_engine_has_a_share_and_may_begin() -> None:
    """Either of them alone is too little; then as many begin as the share is of the limit."""
    engine = engine_with(*five(), policies=[FOUR])
    assert engine.pick(0) is None

    engine.have(HALF, 0)
    assert engine.pick(0) is None

    engine.hold_until(100, 0)
    assert len(all_picked(engine, 99)) == 2


def test_limits_of_the_server_alone_need_no_share() -> None:
    engine = engine_with(*five(), policies=[FOUR_OF_ITS_OWN])

    assert len(all_picked(engine)) == 4


def test_nothing_begins_under_a_shared_limit_from_the_instant_at_which_the_time_is_over() -> None:
    """What waits begins once there is more time."""
    engine = holding(WHOLE, *five(), policies=[FOUR])
    for picked in all_picked(engine, 999):
        engine.end(picked, 999)
    assert engine.pick(1_000) is None

    engine.hold_until(2_000, 1_000)

    assert len(all_picked(engine, 1_000)) == 1


def test_a_mail_that_waits_nowhere_is_admitted_while_there_is_time() -> None:
    engine = holding(WHOLE, policies=[FOUR])

    assert engine.admit(mail("1"), 999)
    assert engine.admit(mail("2"), 1_000) is None


def test_a_share_that_grows_lets_what_waits_begin_at_once() -> None:
    engine = holding(HALF, *five(), policies=[FOUR])
    assert len(all_picked(engine)) == 2

    engine.have(WHOLE, 1)

    assert len(all_picked(engine, 1)) == 2


@pytest.mark.parametrize(("options", "begun"), [({}, 0), ({"spent": True}, 0), ({"spent": False}, 2)])
def test_what_a_share_gains_of_a_rate_counts_as_spent_unless_the_caller_says_otherwise(
    options: dict[str, bool], begun: int
) -> None:
    """Given half of 4 deliveries in 100 nanoseconds, of which the gain counts at the instant of the change."""
    policy = CounterPolicy((DOMAIN,), default=Threshold(rate=DeliveryRate(4, 100)))
    engine = holding(HALF, *five(), policies=[policy])
    assert len(all_picked(engine)) == 2

    engine.have(WHOLE, 10, **options)

    assert len(all_picked(engine, 10)) == begun
    assert len(all_picked(engine, 99)) == 0
    assert len(all_picked(engine, 100)) == min(2, 3 - begun)


def test_the_same_share_again_is_no_change() -> None:
    engine = engine_with(policies=[FOUR])
    engine.have(HALF, 0)

    engine.have(HALF, 5)

    assert (engine.share.number, engine.share.now) == (1, HALF)


def test_what_is_under_way_fits_in_a_share_where_each_counter_does() -> None:
    """Deliveries under limits of the server alone need no share."""
    engine = holding(WHOLE, *five("a.org"), *five("b.org"), policies=[FOUR])
    deliveries = all_picked(engine)
    assert len(deliveries) == 8
    assert engine.fits(WHOLE)
    of_a = [picked for picked in deliveries if picked.mail.values[DOMAIN] == "a.org"]
    of_b = [picked for picked in deliveries if picked.mail.values[DOMAIN] == "b.org"]

    for picked in (*of_a, of_b[0]):
        engine.end(picked, 0)
        assert not engine.fits(HALF)
    engine.end(of_b[1], 0)
    assert engine.fits(HALF)

    alone = engine_with(*five(), policies=[FOUR_OF_ITS_OWN])
    assert len(all_picked(alone)) == 4
    assert alone.fits(HALF)


def test_a_delivery_is_shared_while_a_shared_limit_counts_it() -> None:
    """Of two policies one has a limit that servers share, for one domain only."""
    four = ThresholdCondition({DOMAIN: (pattern_of(DOMAIN, "a.org"),)}, Threshold(concurrency=4))
    policies = [CounterPolicy(default=Threshold(9, cluster=False)), CounterPolicy((DOMAIN,), conditions=(four,))]
    engine = holding(WHOLE, mail("shared"), mail("not shared", "b.org"), policies=policies)
    deliveries = {picked.mail.id: picked for picked in all_picked(engine)}
    assert {name: engine.is_shared(picked) for name, picked in deliveries.items()} == {
        "shared": True,
        "not shared": False,
    }

    engine.end(deliveries["shared"], 0)

    assert not engine.is_shared(deliveries["shared"])


def values_of_server(policy: CounterPolicy, server: int, values: Sequence[str]) -> list[str]:
    """The values of which the only delivery at once belongs to this one of two servers."""
    return [value for value in values if LimitShare(((server, 2),)).of(1, turn_of(policy, (value,)))]


def test_mails_that_only_other_servers_may_send_are_those_of_limits_without_a_part_here() -> None:
    """Urgent ones before others of the same sub-queue; what has a part here is left out."""
    policy = CounterPolicy((DOMAIN,), default=Threshold(concurrency=1))
    domains = [f"{number}.org" for number in range(40)]
    first, second = values_of_server(policy, 1, domains)[:2]
    ours = values_of_server(policy, 0, domains)[0]
    engine = holding(
        HALF,
        mail("normal", first),
        mail("urgent", first, urgent=True),
        mail("ours", ours),
        mail("second", second),
        mail("second urgent", second, urgent=True),
        policies=[policy],
    )

    found = [active.id for active in engine.elsewhere()]

    assert found == ["urgent", "normal", "second urgent", "second"]
    assert [picked.mail.id for picked in all_picked(engine)] == ["ours"]


def test_a_mail_with_an_address_that_has_a_part_here_is_not_left_to_other_servers() -> None:
    policy = CounterPolicy((LOCAL_IP,), default=Threshold(concurrency=1))
    addresses = [f"192.0.2.{number}" for number in range(1, 40)]
    ours, theirs = (values_of_server(policy, server, addresses)[0] for server in (0, 1))
    engine = holding(
        HALF, mail("both", sources=(theirs, ours)), mail("theirs", sources=(theirs,)), policies=[FOUR, policy]
    )

    assert [active.id for active in engine.elsewhere()] == ["theirs"]


def test_an_engine_goes_on_with_the_share_that_an_earlier_process_had() -> None:
    """What waits under it begins as soon as there is time."""
    engine = engine_with(*five(), policies=[FOUR])
    assert engine.pick(0) is None

    engine.resume(((LONG_AGO, HALF),), 7, {}, 5)
    assert (engine.share.now, engine.share.number) == (HALF, 7)
    assert engine.pick(5) is None
    engine.hold_until(100, 5)

    assert len(all_picked(engine, 5)) == 2


def test_under_a_rate_that_is_kept_as_many_begin_as_the_row_allows() -> None:
    """Given 100 a minute, of which a fiftieth may begin before the next row."""
    policy = CounterPolicy((DOMAIN,), default=Threshold(rate=DeliveryRate(100, 60 * SECOND)))
    engine = engine_with(*five(), policies=[policy])
    engine.resume(((LONG_AGO, WHOLE),), 1, {}, 0)
    engine.hold_until(1_000, 0)
    assert engine.pick(0) is None
    kept = engine.share.kept
    assert kept is not None
    (memory,) = kept.due(0, 9)

    memory.is_written(saved_rate(memory, memory.may_begin, 1), memory.begun, 0)
    engine.is_saved(memory, 0)
    assert len(all_picked(engine)) == 2

    engine.reload([], 0)
    before = engine.figures(0)
    engine.is_saved(memory, 0)
    assert engine.figures(0) == before
