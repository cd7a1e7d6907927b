"""Orders: suspensions and conditions as people write them, and conditions beside the policies of a file."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.covering import pattern_text
from mailmend.delivery.policy.orders import Order, OrderKind, condition_id, new_order, normal_scope, with_conditions
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    FieldGroup,
    PickupField,
    Threshold,
    ThresholdCondition,
    pattern_of,
)
from mailmend.delivery.policy.rates import SLIDING_COUNT_MAX, DeliveryRate, RateAlgorithm
from mailmend.model.errors import WrongUse
from mailmend.model.ids import micros_of
from mailmend.model.instants import instant_of
from tests.support.orders import OUTGOING, condition, suspension

DOMAIN, LOCAL_IP, JOB = PickupField.RECIPIENT_DOMAIN, PickupField.LOCAL_IP, PickupField.JOB_ID
ID = UUID("6e0ab5e0-8d1c-11f0-9a5e-0242ac120002")
START = datetime(2026, 9, 1, tzinfo=UTC)
BUCKET = RateAlgorithm.TOKEN_BUCKET
BIG = FieldGroup("big", (pattern_of(DOMAIN, "a.org"), pattern_of(DOMAIN, "*.b.org")))
FILE = CounterPolicy(
    (DOMAIN, LOCAL_IP),
    {DOMAIN: (BIG,)},
    (ThresholdCondition({DOMAIN: (pattern_of(DOMAIN, "#big"),)}, Threshold(7)),),
    Threshold(9),
)


def held(**values: tuple[str, ...]) -> Order:
    return suspension(ID, values)


def made(
    values: dict[str, tuple[str, ...]], threshold: Threshold, fields: str = "localip,recipientdomain", after: int = 0
) -> Order:
    return condition(START + timedelta(seconds=after), values, threshold, fields=fields)


def test_each_field_must_match_and_one_of_its_values() -> None:
    """In the spellings of a policy file."""
    one = held(recipientdomain=("A.org.", "*.b.org"), localip=("192.0.2.0/28",)).suspension(None)
    assert one.id == str(ID)
    assert one.holds({DOMAIN: "a.org", LOCAL_IP: "192.0.2.3"})
    assert one.holds({DOMAIN: "x.b.org", LOCAL_IP: "192.0.2.3"})
    assert not one.holds({DOMAIN: "b.org", LOCAL_IP: "192.0.2.3"})
    assert not one.holds({DOMAIN: "a.org", LOCAL_IP: "192.0.2.99"})


@pytest.mark.parametrize("text", ["/^(?!news)/", r"/(a)\1/", "/a++/"])
def test_a_field_that_cannot_be_read_matches_every_mail(text: str) -> None:
    """An older version took such expressions. What is to be held must not go: the readable fields alone decide."""
    kept = held(recipientdomain=("a.org", text), jobid=("spring",))

    one = kept.suspension(None)

    assert one.holds({DOMAIN: "a.org", PickupField.JOB_ID: "spring"})
    assert one.holds({DOMAIN: "b.org", PickupField.JOB_ID: "spring"})
    assert not one.holds({DOMAIN: "a.org", PickupField.JOB_ID: "autumn"})
    (why,) = kept.unread
    assert text.strip("/") in why


def test_a_field_of_a_later_version_matches_every_mail() -> None:
    kept = held(weather=("rain",))
    assert kept.suspension(None).holds({DOMAIN: "a.org"})
    assert "'weather' is no field" in kept.unread[0]


def test_a_suspension_that_can_be_read_has_nothing_unread() -> None:
    assert held(recipientdomain=("a.org", "/^mx/")).unread == ()


def test_no_field_is_every_mail() -> None:
    assert held().suspension(None).holds({})


def limit_of(policy: CounterPolicy, domain: str, source: str = "192.0.2.1") -> Threshold | None:
    return policy.threshold(policy.key({DOMAIN: domain, LOCAL_IP: source}))


def test_the_earliest_is_tested_first_and_all_before_those_of_the_file() -> None:
    """Whatever order they are read in; the file's own hold for the rest."""
    late, early = made({}, Threshold(1), after=2), made({"recipientdomain": ("c.org",)}, Threshold(2), after=1)
    (merged,), placed = with_conditions([FILE], [late, early], BUCKET)
    assert [one.order for one in placed] == [early, late]
    assert (limit_of(merged, "c.org"), limit_of(merged, "d.org")) == (Threshold(2), Threshold(1))
    (merged,), _ = with_conditions([FILE], [early], BUCKET)
    assert (limit_of(merged, "d.org"), limit_of(merged, "a.org")) == (Threshold(9), Threshold(7))


def test_what_people_set_is_tested_before_what_hooks_set() -> None:
    """Though it is later; it is another condition, so neither takes the other's place."""
    hooks, people = made({}, Threshold(1), after=1), made({}, Threshold(2), after=2)
    hooks = replace(hooks, owner="hook backoff", id=condition_id(OUTGOING, hooks.fields, {}, "hook backoff"))
    (merged,), placed = with_conditions([FILE], [hooks, people], BUCKET)
    assert [one.order for one in placed] == [people, hooks]
    assert limit_of(merged, "c.org") == Threshold(2)
    assert hooks.id != people.id


def test_its_limits_replace_those_of_the_file_whole() -> None:
    """Nothing comes from the default: no limit, said so, is an exemption, and 0 lets none begin."""
    free, shut = made({"recipientdomain": ("c.org",)}, Threshold()), made({"localip": ("::1",)}, Threshold(0))
    (merged,), _ = with_conditions([FILE], [free, shut], BUCKET)
    assert limit_of(merged, "c.org") == Threshold()
    assert limit_of(merged, "d.org", "::1") == Threshold(0)


@pytest.mark.parametrize("text", ["A.org", "x.b.org", "*.b.org", "*.c.b.org", "#big"])
def test_what_is_counted_as_a_group_means_the_group_and_it_is_said(text: str) -> None:
    """For the group as a whole, and for no other domain."""
    (merged,), (placed,) = with_conditions([FILE], [made({"recipientdomain": (text,)}, Threshold(1))], BUCKET)
    assert [limit_of(merged, name) for name in ("a.org", "y.b.org", "z.org")] == [
        Threshold(1),
        Threshold(1),
        Threshold(9),
    ]
    spelled = pattern_text(pattern_of(DOMAIN, text))
    assert placed.groups == ({} if text == "#big" else {spelled: "#big"})


def test_what_has_no_counter_is_parked_until_a_policy_counts_by_exactly_its_fields() -> None:
    """More fields, or fewer, are another counter; the order of the fields is none."""
    some = [made({}, Threshold(1), fields) for fields in ("recipientdomain", "", "jobid,localip,recipientdomain")]
    policies, placed = with_conditions([FILE], some, BUCKET)
    assert policies == (FILE,)
    assert {one.parked for one in placed} == {
        "no policy counts by exactly recipientdomain",
        "no policy counts by exactly no field",
        "no policy counts by exactly jobid, localip, recipientdomain",
    }
    (_, by_domain, everything), placed = with_conditions(
        [FILE, CounterPolicy((DOMAIN,)), CounterPolicy()], some, BUCKET
    )
    assert [bool(one.parked) for one in placed].count(True) == 1
    assert limit_of(by_domain, "a.org") == limit_of(everything, "a.org") == Threshold(1)


def test_it_is_of_each_policy_with_its_fields_and_of_none_without_its_group() -> None:
    """A group that no policy has is no counter either."""
    plain = CounterPolicy((LOCAL_IP, DOMAIN))
    grouped, of_all = made({"recipientdomain": ("#big",)}, Threshold(1)), made({}, Threshold(2))
    _, (one, other) = with_conditions([plain, FILE], [grouped, of_all], BUCKET)
    assert {one.order.id: one.policies, other.order.id: other.policies} == {grouped.id: (1,), of_all.id: (0, 1)}
    _, (parked,) = with_conditions([plain], [grouped], BUCKET)
    assert parked.parked == "the policy has no group #big of recipientdomain"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"values": {"recipientdomain": ("/^(?!news)/",)}}, "look"),
        ({"values": {"weather": ("rain",)}}, "'weather' is no field"),
        ({"fields": ("weather",)}, "'weather' is no field"),
    ],
)
def test_a_condition_that_cannot_be_read_is_parked_and_the_others_set_limits(change: dict[str, Any], why: str) -> None:
    """An expression that an older version took, or a field of a later one."""
    unread = replace(made({"recipientdomain": ("a.org",)}, Threshold(1)), **change)
    read = made({"recipientdomain": ("x.org",)}, Threshold(2), after=1)

    (merged,), (parked, placed) = with_conditions([FILE], [unread, read], BUCKET)

    assert parked.parked.startswith("it cannot be read: ")
    assert why in parked.parked
    assert (placed.policies, placed.parked) == ((0,), "")
    assert [one.threshold for one in merged.conditions] == [Threshold(2), Threshold(7)]


def test_a_rate_that_the_servers_way_to_count_cannot_keep_is_parked() -> None:
    """A sliding one remembers only so many."""
    one = made({}, Threshold(rate=DeliveryRate(SLIDING_COUNT_MAX + 1)))
    for algorithm in RateAlgorithm:
        _, (placed,) = with_conditions([FILE], [one], algorithm)
        assert bool(placed.parked) is (algorithm is RateAlgorithm.SLIDING)


@pytest.mark.parametrize(
    ("kind", "fields", "values", "said"),
    [
        (OrderKind.SUSPENSION, (), {"weather": ("rain",)}, "'weather' is no field"),
        (OrderKind.SUSPENSION, (), {"localip": ("example.org",)}, "is no address"),
        (OrderKind.SUSPENSION, (), {"remoteip": ("192.0.2.1/24",)}, "is no network"),
        (OrderKind.SUSPENSION, (), {"recipientdomain": ("#big",)}, "names a group or a list"),
        (OrderKind.SUSPENSION, (), {"recipientdomain": ("@big",)}, "names a group or a list"),
        (OrderKind.CONDITION, ("weather",), {}, "'weather' is no field"),
        (OrderKind.CONDITION, ("jobid",), {"weather": ("rain",)}, "'weather' is no field"),
        (OrderKind.CONDITION, ("jobid",), {"localip": ("::1",)}, "does not count by localip"),
        (OrderKind.CONDITION, (), {"localip": ("::1",)}, "does not count by localip"),
        (OrderKind.CONDITION, ("localip",), {"localip": ("nowhere",)}, "is no address"),
        (OrderKind.CONDITION, ("jobid",), {"jobid": ("@big",)}, "names a list"),
    ],
)
def test_what_is_no_order_is_refused(
    kind: OrderKind, fields: tuple[str, ...], values: dict[str, tuple[str, ...]], said: str
) -> None:
    with pytest.raises(WrongUse, match=said):
        normal_scope(kind, values, fields)


def test_a_new_suspension_is_made_at_the_time_of_its_id_and_keeps_the_order_of_its_values() -> None:
    """The id of a condition follows from its fields and values, and the condition is made now."""
    values = {"recipientdomain": ("b.org", "A.org.", "b.org")}
    scopes = {kind: normal_scope(kind, values, ("recipientdomain",)) for kind in OrderKind}
    orders = {
        kind: new_order(kind, OUTGOING, scope, owner="ann", reason="x", now=START, lasts=None, new_id=ID)
        for kind, scope in scopes.items()
    }
    suspended, limited = orders[OrderKind.SUSPENSION], orders[OrderKind.CONDITION]
    assert (suspended.id, suspended.made_at) == (ID, instant_of(micros_of(ID)))
    assert suspended.values == {"recipientdomain": ("b.org", "a.org")}
    assert limited.values == {"recipientdomain": ("a.org", "b.org")}
    assert (limited.id, limited.made_at) == (condition_id(OUTGOING, limited.fields, limited.values), START)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (suspension(ID, {"jobid": ("a", "b")}), suspension(ID, {"jobid": ("b", "a")}), True),
        (suspension(ID, {"jobid": ("a", "b")}), suspension(ID, {"jobid": ("a",)}), False),
        (suspension(ID, {}), suspension(ID, {}), True),
        (suspension(ID, {}), condition(START, {}, fields=""), False),
        (condition(START, {}), condition(START, {}, Threshold(5)), True),
        (condition(START, {}), condition(START, {}, fields="jobid"), False),
        (replace(condition(START, {}), has_scope=False), condition(START, {}), False),
    ],
)
def test_orders_of_the_same_mails_are_known(one: Order, other: Order, *, is_same: bool) -> None:
    """In whatever order their values are named. A condition that does not tell its mails is like no other one."""
    assert one.has_scope_of(other) is is_same


_TEXTS = {
    "recipientdomain": st.sampled_from(["a.org", "A.ORG.", "*.b.org", "/x+/", "#big", "b\u00fccher.de", ""]),
    "localip": st.sampled_from(["::1", "::ffff:192.0.2.1", "192.0.2.1", "192.0.2.0/24", "/^192/", ""]),
    "jobid": st.sampled_from(["a", "A", "*.a", "192.0.2.0/24", "/"]),
}


@given(st.fixed_dictionaries({}, optional={name: st.lists(one, min_size=1).map(tuple) for name, one in _TEXTS.items()}))
def test_a_spelling_that_was_made_normal_is_so_and_means_the_same(values: dict[str, tuple[str, ...]]) -> None:
    """Each text's pattern is among those of the normal texts, and they have no other."""
    names, normal = normal_scope(OrderKind.CONDITION, values, sorted(_TEXTS, reverse=True))
    assert normal_scope(OrderKind.CONDITION, normal, names) == (names, normal)
    for name, texts in values.items():
        named = PickupField(name)
        assert {pattern_of(named, one) for one in texts} == {pattern_of(named, one) for one in normal[name]}
    assert condition_id(OUTGOING, names, normal) == condition_id(
        OUTGOING, names, dict(sorted(normal.items(), reverse=True))
    )
