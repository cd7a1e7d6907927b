"""What a file of policies means for one mail, as the engine would treat it."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.explaining import (
    NextSource,
    PolicyShare,
    SourceExplanation,
    explain_by,
    explain_mail,
    next_source,
)
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    FieldGroup,
    PickupField,
    Threshold,
    ThresholdCondition,
    pattern_of,
)
from mailmend.delivery.policy.rates import SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail

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
