"""Automatic rules: when replies of a class come too often for a sub-queue, by instants that are given."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy import automation
from mailmend.delivery.policy.automation import AutomaticCounters, AutomaticRule, CountedPlaces
from mailmend.delivery.policy.policy import PickupField, pattern_of
from mailmend.delivery.policy.rates import SECOND, DeliveryRate

DOMAIN, LOCAL_IP = PickupField.RECIPIENT_DOMAIN, PickupField.LOCAL_IP
JOB, TENANT = PickupField.JOB_ID, PickupField.TENANT_ID
NO_PATTERNS: dict[PickupField, str] = {}
ATTEMPT = {DOMAIN: "a.example", LOCAL_IP: "192.0.2.1"}


def rule(
    count: int = 3,
    seconds: int = 60,
    *,
    name: str = "busy",
    domain: str = "/.*/",
    fields: tuple[PickupField, ...] = (DOMAIN, LOCAL_IP),
    patterns: Mapping[PickupField, str] = NO_PATTERNS,
) -> AutomaticRule:
    patterns = {DOMAIN: domain, **patterns}
    return AutomaticRule(
        name=name,
        classes=frozenset({"TooManyConnections"}),
        fields=fields,
        patterns={named: (pattern_of(named, text),) for named, text in patterns.items()},
        trigger=DeliveryRate(count, seconds * SECOND),
        threshold=None,
        lasts=timedelta(minutes=10),
    )


def triggered(counters: AutomaticCounters, at: int, domain: str = "a.example", of: str = "TooManyConnections") -> bool:
    values = {DOMAIN: domain, LOCAL_IP: "192.0.2.1"}
    found = list(counters.count(of, values, at * SECOND, set()))
    assert all(one.key == (domain, "192.0.2.1") for one in found)
    return bool(found)


@given(st.lists(st.integers(0, 40), max_size=40), st.integers(1, 5), st.integers(1, 60))
def test_a_rule_is_triggered_by_the_last_of_its_replies_within_its_time(
    waits: list[int], count: int, seconds: int
) -> None:
    """Then its count begins anew: compared with a list of all instants."""
    counters = AutomaticCounters([rule(count, seconds)])
    since = list[int]()
    now = 0
    for wait in waits:
        now += wait
        since.append(now)
        within = [at for at in since if at > now - seconds]
        assert triggered(counters, now) is (len(within) == count)
        if len(within) == count:
            since.clear()


def test_sub_queues_are_counted_apart() -> None:
    counters = AutomaticCounters([rule(2)])
    assert [triggered(counters, 0, domain) for domain in ("a.example", "b.example", "a.example")] == [
        False,
        False,
        True,
    ]


def test_other_classes_and_other_values_do_not_count() -> None:
    counters = AutomaticCounters([rule(1, domain="*.example")])
    assert not triggered(counters, 0, of="RateLimited")
    assert not triggered(counters, 0, "a.org")
    assert triggered(counters, 0)


def test_a_rule_that_is_as_it_was_counts_on_after_a_reload() -> None:
    """Another one begins anew, and so does one that was changed."""
    counters = AutomaticCounters([rule(2), rule(2, name="other")])
    triggered(counters, 0)
    counters.use([rule(2), rule(2, 90, name="other")])
    assert counted(counters, {DOMAIN: "a.example"}) == []
    assert counted(counters, ATTEMPT) == ["busy"]


def counted(counters: AutomaticCounters, values: Mapping[PickupField, str]) -> list[str]:
    """The rules that one more reply triggers."""
    return [one.rule.name for one in counters.count("TooManyConnections", values, SECOND, set())]


def test_a_pass_of_a_recipient_counts_once_for_a_rule_and_a_sub_queue() -> None:
    """However many servers it tries; another pass counts again, and so does another sub-queue."""
    rules = [rule(2, fields=(DOMAIN,)), rule(2, name="each", fields=(LOCAL_IP,))]
    counters = AutomaticCounters(rules)
    places: CountedPlaces = set()
    found = list[str]()
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        values = {**ATTEMPT, LOCAL_IP: address}
        found += [one.rule.name for one in counters.count("TooManyConnections", values, SECOND, places)]
    assert (found, counters.instants) == ([], 3)
    assert counted(counters, ATTEMPT) == ["busy", "each"]


@pytest.mark.parametrize("fields", [(JOB,), (LOCAL_IP,), (JOB, TENANT, LOCAL_IP)])
def test_mails_without_any_value_are_no_sub_queue(fields: tuple[PickupField, ...]) -> None:
    """They may be all mails of the queue; `if` may ask for them."""
    attempt = {**ATTEMPT, LOCAL_IP: ""}
    assert counted(AutomaticCounters([rule(1, fields=fields)]), attempt) == []
    some = AutomaticCounters([rule(1, fields=(*fields, DOMAIN)), rule(1, name="tenant", fields=(TENANT,))])
    assert counted(some, {**attempt, TENANT: "acme"}) == ["busy", "tenant"]
    asks_for_them = dict.fromkeys(fields, "")
    assert counted(AutomaticCounters([rule(1, fields=fields, patterns=asks_for_them)]), attempt) == ["busy"]


@pytest.mark.parametrize(
    "needs_server", [rule(1, fields=(DOMAIN, LOCAL_IP)), rule(1, fields=(DOMAIN,), patterns={LOCAL_IP: "/.*/"})]
)
def test_an_attempt_without_a_server_is_not_counted_by_values_of_servers(needs_server: AutomaticRule) -> None:
    """An order of the empty address would match no mail, and would take a place."""
    counters = AutomaticCounters([needs_server, rule(1, name="domain", fields=(DOMAIN, JOB))])
    assert counted(counters, {DOMAIN: "a.example"}) == ["domain"]


@pytest.mark.parametrize(("name", "most", "left"), [("INSTANTS_MAX", 10, 10), ("SUB_QUEUES_MAX", 5, 15)])
def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch, name: str, most: int, left: int) -> None:
    """The sub-queues that were silent for longest are forgotten; the last one still counts."""
    monkeypatch.setattr(automation, name, most)
    counters = AutomaticCounters([rule(4)])
    for number in range(100):
        for _ in range(3):
            triggered(counters, number // 50, f"{number}.example")
            assert counters.instants <= left
    assert counters.instants > left - 3
    assert not triggered(counters, 2, "0.example")
    assert triggered(counters, 2, "99.example")


def test_a_sub_queue_that_goes_on_refusing_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that were silent since go first."""
    monkeypatch.setattr(automation, "SUB_QUEUES_MAX", 2)
    counters = AutomaticCounters([rule(3)])
    for domain in ("a.example", "b.example", "a.example", "c.example"):
        assert not triggered(counters, 0, domain)
    assert triggered(counters, 0, "a.example")
