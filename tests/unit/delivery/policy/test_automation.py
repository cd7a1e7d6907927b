"""Automatic rules: when replies of a class come too often for a sub-queue, by instants that are given."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy import automation
from mailmend.delivery.policy.automation import AutomaticCounters, AutomaticRule
from mailmend.delivery.policy.policy import PickupField, pattern_of
from mailmend.delivery.policy.rates import SECOND, DeliveryRate

DOMAIN, LOCAL_IP = PickupField.RECIPIENT_DOMAIN, PickupField.LOCAL_IP


def rule(count: int = 3, seconds: int = 60, *, name: str = "busy", domain: str = "/.*/") -> AutomaticRule:
    return AutomaticRule(
        name=name,
        classes=frozenset({"TooManyConnections"}),
        fields=(DOMAIN, LOCAL_IP),
        patterns={DOMAIN: (pattern_of(DOMAIN, domain),)},
        trigger=DeliveryRate(count, seconds * SECOND),
        threshold=None,
        lasts=timedelta(minutes=10),
    )


def triggered(counters: AutomaticCounters, at: int, domain: str = "a.example", of: str = "TooManyConnections") -> bool:
    values = {DOMAIN: domain, LOCAL_IP: "192.0.2.1"}
    found = list(counters.count(of, values, at * SECOND))
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
    assert [one.rule.name for one in counters.count("TooManyConnections", {DOMAIN: "a.example"}, SECOND)] == []
    values = {DOMAIN: "a.example", LOCAL_IP: "192.0.2.1"}
    assert [one.rule.name for one in counters.count("TooManyConnections", values, SECOND)] == ["busy"]


@pytest.mark.parametrize(("name", "most"), [("INSTANTS_MAX", 10), ("SUB_QUEUES_MAX", 5)])
def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    """The sub-queues that were silent for longest are forgotten; the last one still counts."""
    monkeypatch.setattr(automation, name, most)
    counters = AutomaticCounters([rule(4)])
    for number in range(100):
        for _ in range(3):
            triggered(counters, number // 50, f"{number}.example")
    assert counters.instants <= max(10, 3 * 5)
    assert not triggered(counters, 2, "0.example")
    assert triggered(counters, 2, "99.example")


def test_a_sub_queue_that_goes_on_refusing_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that were silent since go first."""
    monkeypatch.setattr(automation, "SUB_QUEUES_MAX", 2)
    counters = AutomaticCounters([rule(3)])
    for domain in ("a.example", "b.example", "a.example", "c.example"):
        assert not triggered(counters, 0, domain)
    assert triggered(counters, 0, "a.example")
