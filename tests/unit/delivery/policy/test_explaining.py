"""What a file of policies means for one mail, as the engine would treat it."""

from datetime import UTC, datetime
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.explaining import (
    NextSource,
    PolicyShare,
    SourceExplanation,
    as_in_file,
    explain_by,
    explain_mail,
    explain_quotas,
    next_source,
)
from mailmend.delivery.policy.orders import Order, OrderKind, PlacedCondition, Suspension
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    FieldGroup,
    PickupField,
    Threshold,
    ThresholdCondition,
    pattern_of,
)
from mailmend.delivery.policy.quotas import QueuedAmount, QueueQuota, QuotaCount, QuotaLimit
from mailmend.delivery.policy.rates import SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.shares import WHOLE, LimitShare, ServerShare, turn_of
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail
from mailmend.model.ids import QueueName

DOMAIN, LOCAL_IP, MX = PickupField.RECIPIENT_DOMAIN, PickupField.LOCAL_IP, PickupField.REMOTE_MX
FIRST, SECOND_ONE = "192.0.2.1", "192.0.2.2"
TWO, FIVE = Threshold(2, DeliveryRate(3)), Threshold(5)

GOOGLE = FieldGroup("google", (pattern_of(MX, "*.google.com"),))
PER_SERVER = CounterPolicy(
    (LOCAL_IP, MX),
    {MX: (GOOGLE,)},
    (
        ThresholdCondition({MX: (pattern_of(MX, "mx.a.org"),)}, Threshold(1)),
        ThresholdCondition({MX: (pattern_of(MX, "#google"),)}, TWO),
    ),
    FIVE,
)


def suspension(name: str, field: PickupField, text: str) -> Suspension:
    return Suspension(name, {field: (pattern_of(field, text),)})


def test_a_mail_is_counted_by_each_policy_under_its_key() -> None:
    """With the group in place of its value, and the condition that holds, or the default, or nothing."""
    unlimited = CounterPolicy((DOMAIN,))
    file = PickupPolicies((PER_SERVER, unlimited))
    (google,) = explain_mail(file, ActiveMail("1", {MX: "mx1.google.com", DOMAIN: "a.org"}, (FIRST,)))
    assert google == SourceExplanation(
        FIRST,
        (
            PolicyShare(0, (FIRST, "#google"), 1, TWO),
            PolicyShare(1, ("a.org",), None, Threshold()),
        ),
        (),
    )
    (other,) = explain_mail(file, ActiveMail("1", {MX: "mx.b.org"}))
    assert other.shares[0] == PolicyShare(0, ("", "mx.b.org"), None, FIVE)


def test_a_policy_that_stops_is_the_last_that_is_consulted() -> None:
    """Later ones have no share in the mail."""
    stopping = CounterPolicy(default=Threshold(stop=True))
    (found,) = explain_mail(PickupPolicies((PER_SERVER, stopping, PER_SERVER)), ActiveMail("1", {}))
    assert [one.policy for one in found.shares] == [0, 1]


def test_suspensions_leave_the_addresses_that_they_do_not_name() -> None:
    """Each address has its own; one without an address holds the mail from everywhere."""
    by_address, other = suspension("s", LOCAL_IP, FIRST), suspension("t", DOMAIN, "b.org")
    file = PickupPolicies(suspensions=(other, by_address))
    one, two = explain_mail(file, ActiveMail("1", {DOMAIN: "a.org"}, (FIRST, SECOND_ONE, FIRST)))
    assert (one.source, one.suspensions, one.is_left) == (FIRST, ("s",), False)
    assert (two.source, two.suspensions, two.is_left) == (SECOND_ONE, (), True)
    one, two = explain_mail(file, ActiveMail("1", {DOMAIN: "b.org"}, (FIRST, SECOND_ONE)))
    assert [(each.suspensions, each.is_left) for each in (one, two)] == [(("t", "s"), False), (("t",), False)]


def test_a_limit_of_none_holds_a_mail_back() -> None:
    """From the address that is counted so; others are left."""
    none = ThresholdCondition({LOCAL_IP: (pattern_of(LOCAL_IP, FIRST),)}, Threshold(0))
    file = PickupPolicies((CounterPolicy((LOCAL_IP,), conditions=(none,), default=FIVE),), RateAlgorithm.SLIDING)
    one, two = explain_mail(file, ActiveMail("1", {}, (FIRST, SECOND_ONE)))
    assert [(each.shares[0].refuses, each.is_left) for each in (one, two)] == [(True, False), (False, True)]


texts = st.sampled_from(["", "a", "b.a", "*.a", "/b/"])
limits = st.sampled_from(
    [Threshold(0), Threshold(1), Threshold(), Threshold(2, stop=True), Threshold(rate=DeliveryRate(1))]
)
conditions = st.builds(
    lambda text, then: ThresholdCondition({DOMAIN: (pattern_of(DOMAIN, text),)}, then), texts, limits
)
policies = st.builds(
    lambda some, default: CounterPolicy((DOMAIN,), conditions=tuple(some), default=default),
    st.lists(conditions, max_size=3),
    st.one_of(st.none(), limits),
)
suspensions = st.lists(st.tuples(st.sampled_from([FIRST, SECOND_ONE, "192.0.2.0/24"]), texts), max_size=2)


@given(st.lists(policies, max_size=3), suspensions)
def test_a_mail_goes_from_an_address_that_is_left_or_waits(
    some: list[CounterPolicy], held: list[tuple[str, str]]
) -> None:
    """An engine with the same policies and suspensions picks it at once from exactly those."""
    made = [
        Suspension(str(number), {LOCAL_IP: (pattern_of(LOCAL_IP, source),), DOMAIN: (pattern_of(DOMAIN, text),)})
        for number, (source, text) in enumerate(held)
    ]
    file = PickupPolicies(tuple(some), suspensions=tuple(made))
    for domain, source in product(("", "a", "b.a"), (FIRST, SECOND_ONE)):
        mail = ActiveMail("1", {DOMAIN: domain}, (source,))
        engine = PickupEngine(some)
        for one in made:
            engine.suspend(one, 0)
        engine.add(mail)
        (found,) = explain_mail(file, mail)
        assert found.is_left == (engine.pick(0) is not None)
        assert found.is_left == (not found.suspensions and not any(one.refuses for one in found.shares))


def test_asking_an_engine_leaves_it_as_it_was() -> None:
    """The mail waits nowhere, and counters that nobody uses are forgotten."""
    engine = PickupEngine([PER_SERVER])
    queue = engine.sub_queue(ActiveMail("1", {MX: "mx.b.org"}, (FIRST,)), 0)
    assert [entry.place for entry in queue.all_counters] == [(0, (FIRST, "mx.b.org"))]
    assert engine.pick(0) is None
    assert not engine._counters.entries


def test_what_is_being_delivered_counts_for_who_asks() -> None:
    """With when its rate and the interval of its connections let another begin, and how many must end first."""
    limits = Threshold(2, DeliveryRate(1, 10 * SECOND), 3 * SECOND)
    engine = PickupEngine([CounterPolicy((DOMAIN,), default=limits)], RateAlgorithm.SLIDING)
    for name in ("1", "2"):
        engine.add(ActiveMail(name, {DOMAIN: "a.org"}))
    assert engine.pick(0)

    ((share,), *_) = (one.shares for one in explain_by(engine, ActiveMail("3", {DOMAIN: "a.org"}), SECOND))
    assert (share.delivering, share.clear_at, share.rate_at, share.connect_at) == (
        1,
        10 * SECOND,
        10 * SECOND,
        3 * SECOND,
    )
    (found,) = explain_by(engine, ActiveMail("3", {DOMAIN: "a.org"}), SECOND)
    assert found.clear_at == 10 * SECOND
    assert engine.pick(10 * SECOND)
    ((share,), *_) = (one.shares for one in explain_by(engine, ActiveMail("3", {DOMAIN: "a.org"}), 30 * SECOND))
    assert (share.delivering, share.clear_at, share.rate_at) == (2, UNKNOWN, None)


@given(st.lists(policies, max_size=3), suspensions, st.lists(st.sampled_from(["", "a", "b.a"]), max_size=8))
def test_who_asks_hears_what_comes_and_changes_nothing(
    some: list[CounterPolicy], held: list[tuple[str, str]], domains: list[str]
) -> None:
    """A mail that is picked goes from where it was told to go from; none is picked where no address was left.

    The picks are those of an engine that nobody asks.
    """
    asked, other = PickupEngine(some), PickupEngine(some)
    made = [
        Suspension(str(number), {LOCAL_IP: (pattern_of(LOCAL_IP, source),), DOMAIN: (pattern_of(DOMAIN, text),)})
        for number, (source, text) in enumerate(held)
    ]
    waiting = {}
    for engine in (asked, other):
        for one in made:
            engine.suspend(one, 0)
        for number, domain in enumerate(domains):
            mail = waiting[str(number)] = ActiveMail(str(number), {DOMAIN: domain}, (FIRST, SECOND_ONE))
            engine.add(mail)
    picked = True
    while picked:
        left = {
            name: [one.source for one in explain_by(asked, mail, 0) if one.is_left] for name, mail in waiting.items()
        }
        goes = {name: next_source(asked, mail, explain_by(asked, mail, 0)) for name, mail in waiting.items()}
        assert all(asked.place_of(mail) for mail in waiting.values())
        begun, same = asked.pick(0), other.pick(0)
        picked = begun is not None
        assert (begun and (begun.mail, begun.source)) == (same and (same.mail, same.source))
        if begun is None:
            assert not any(left.values())
        else:
            assert goes[begun.mail.id] == NextSource(begun.source)
            assert asked.delivering(begun.mail.id) is begun
            assert asked.place_of(waiting.pop(begun.mail.id)) is None


def explained(limits: Threshold, now: int) -> PolicyShare:
    """What one policy means at an instant for a mail, after a delivery that began at 0."""
    engine = PickupEngine([CounterPolicy(default=limits)], RateAlgorithm.SLIDING)
    engine.add(ActiveMail("1", {}))
    assert engine.pick(0)
    (found,) = explain_by(engine, ActiveMail("2", {}), now)
    return found.shares[0]


@pytest.mark.parametrize(("now", "later"), [(9, 10), (10, None), (11, None)])
def test_a_limit_refuses_until_the_instant_from_which_another_may_begin(now: int, later: int | None) -> None:
    by_rate = explained(Threshold(rate=DeliveryRate(1, 10)), now=now)
    assert (by_rate.clear_at, by_rate.rate_at, by_rate.connect_at, by_rate.refuses) == (later, later, None, now < 10)

    by_connections = explained(Threshold(connect_interval=10), now=now)
    assert (by_connections.clear_at, by_connections.rate_at, by_connections.connect_at) == (later, None, later)


def test_limits_that_servers_share_are_explained_with_whether_this_server_may_begin_anything() -> None:
    """Another policy, of this server alone, asks for no share."""
    engine = PickupEngine([CounterPolicy((DOMAIN,), default=FIVE)], share=ServerShare())
    engine.have(WHOLE, 0, spent=False)
    mail = ActiveMail("1", {DOMAIN: "a.org"})
    (closed,) = explain_by(engine, mail, 0)
    assert (closed.has_share, closed.is_left, closed.clear_at) == (False, False, UNKNOWN)
    assert [(share.policy, share.shared, share.elsewhere) for share in closed.shares] == [(0, True, False)]

    engine.hold_until(100, 0)

    (opened,) = explain_by(engine, mail, 0)
    assert (opened.has_share, opened.is_left) == (True, True)

    alone = PickupEngine([CounterPolicy((DOMAIN,), default=Threshold(5, cluster=False))], share=ServerShare())
    (own,) = explain_by(alone, mail, 0)
    assert (own.has_share, own.is_left, own.shares[0].shared) == (True, True, False)


def test_a_limit_of_which_other_servers_have_all_is_explained() -> None:
    policy = CounterPolicy((DOMAIN,), default=Threshold(1))
    turn = turn_of(policy, ("a.org",))
    engine = PickupEngine([policy], share=ServerShare())
    engine.have(LimitShare((((turn + 1) % 2, 2),)), 0, spent=False)
    engine.hold_until(100, 0)

    (found,) = explain_by(engine, ActiveMail("1", {DOMAIN: "a.org"}), 0)

    assert (found.shares[0].elsewhere, found.shares[0].threshold, found.has_share) == (True, Threshold(0), True)


def from_sources(**clear_at: int | None) -> list[SourceExplanation]:
    return [SourceExplanation(source, (), (), at) for source, at in clear_at.items()]


@pytest.mark.parametrize(
    ("sources", "goes"),
    [
        (from_sources(a=None, b=None), NextSource("a")),
        (from_sources(b=None), NextSource("b")),
        (from_sources(a=5, b=None), NextSource("b")),
        (from_sources(a=9, b=5), NextSource("b", 5)),
        (from_sources(a=5, b=9), NextSource("a", 5)),
        (from_sources(a=5, b=5), NextSource("a", 5)),
        (from_sources(a=UNKNOWN, b=5), NextSource("b", 5)),
        (from_sources(a=UNKNOWN, b=UNKNOWN), None),
        ([], None),
    ],
)
def test_a_mail_goes_from_a_free_address_or_from_the_first_that_is_known_to_be_free(
    sources: list[SourceExplanation], goes: NextSource | None
) -> None:
    assert next_source(PickupEngine([]), ActiveMail("1", {}, ("a", "b")), sources) == goes


def order(number: int) -> Order:
    return Order(
        kind=OrderKind.CONDITION,
        id=UUID(int=number),
        queue=QueueName("spool"),
        values={},
        owner="ann",
        reason="a test",
        made_at=datetime(2026, 5, 1, tzinfo=UTC),
    )


def test_conditions_have_the_numbers_that_they_have_in_the_file_or_name_their_order() -> None:
    """Given a condition that is placed before the conditions of two policies, and another in one of them."""
    both, one = PlacedCondition(order(1), policies=(0, 1)), PlacedCondition(order(2), policies=(0,))
    at_run_time = [(0, 0), (0, 1), (0, 2), (0, None), (1, 0), (1, 1), (2, 0), (2, 3)]
    shares = tuple(PolicyShare(policy, (), condition, TWO) for policy, condition in at_run_time)

    (found,) = as_in_file([SourceExplanation("a", shares, ("s",), 5)], [both, one])

    assert (found.source, found.suspensions, found.clear_at) == ("a", ("s",), 5)
    assert [(share.policy, share.condition, share.set_by) for share in found.shares] == [
        (0, None, both.order),
        (0, None, one.order),
        (0, 0, None),
        (0, None, None),
        (1, None, both.order),
        (1, 0, None),
        (2, 0, None),
        (2, 3, None),
    ]


BIG = ThresholdCondition({DOMAIN: (pattern_of(DOMAIN, "big.org"),)}, QuotaLimit(9))
QUOTAS = (
    QueueQuota((DOMAIN,), conditions=(BIG,), default=QuotaLimit(3, 100), name="domain"),
    QueueQuota(name="everything"),
)


def test_a_mail_is_counted_by_each_quota_with_what_is_in_the_queue() -> None:
    """What the count did not find is nothing."""
    count = QuotaCount(QUOTAS, {("domain", ("big.org",)): QueuedAmount(5, 50)})
    big, everything = explain_quotas(QUOTAS, {DOMAIN: "big.org"}, count)
    assert (big.quota, big.key, big.condition, big.limit) == (0, ("big.org",), 0, QuotaLimit(9))
    assert big.used == QueuedAmount(5, 50)
    assert (everything.quota, everything.key, everything.condition, everything.limit) == (1, (), None, None)
    assert everything.used == QueuedAmount()

    other, _ = explain_quotas(QUOTAS, {DOMAIN: "b.org"}, count)
    assert (other.condition, other.limit, other.used) == (None, QuotaLimit(3, 100), QueuedAmount())


def test_without_a_count_nothing_is_known_to_be_in_the_queue() -> None:
    assert [(share.used, share.refuses) for share in explain_quotas(QUOTAS, {DOMAIN: "a.org"})] == [(None, False)] * 2


@pytest.mark.parametrize(
    ("used", "refuses"),
    [
        (QueuedAmount(0, 0), False),
        (QueuedAmount(2, 99), False),
        (QueuedAmount(3, 0), True),
        (QueuedAmount(0, 100), True),
    ],
)
def test_a_quota_refuses_where_it_has_no_room_for_one_more_mail_of_one_byte(
    used: QueuedAmount, *, refuses: bool
) -> None:
    count = QuotaCount(QUOTAS, {("domain", ("a.org",)): used, ("everything", ()): QueuedAmount(10**9, 10**9)})

    assert [share.refuses for share in explain_quotas(QUOTAS, {DOMAIN: "a.org"}, count)] == [refuses, False]
