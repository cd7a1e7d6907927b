"""Entries of counters whose thresholds are exceeded: which, since when, until when, and how many mails wait."""

from collections.abc import Iterable

import pytest

from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.explaining import exceeded_entries
from mailmend.delivery.policy.policy import CounterKey, CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail

DOMAIN, TENANT, LOCAL_IP = PickupField.RECIPIENT_DOMAIN, PickupField.TENANT_ID, PickupField.LOCAL_IP
A, B = "192.0.2.1", "192.0.2.2"
TWO_BY_DOMAIN = CounterPolicy((DOMAIN,), default=Threshold(2))


def mails(domain: str, count: int, sources: tuple[str, ...] = (A,), tenant: str = "") -> Iterable[ActiveMail]:
    for number in range(count):
        yield ActiveMail(f"{domain}{tenant}{number}", {DOMAIN: domain, TENANT: tenant}, sources)


def engine_of(*policies: CounterPolicy) -> PickupEngine:
    return PickupEngine(policies, RateAlgorithm.SLIDING)


def added(engine: PickupEngine, some: Iterable[ActiveMail]) -> None:
    for mail in some:
        engine.add(mail)


def test_an_entry_is_exceeded_from_the_begin_of_its_last_delivery_until_one_ends() -> None:
    engine = engine_of(TWO_BY_DOMAIN)
    added(engine, mails("a.org", 5))
    assert not exceeded_entries(engine, 7)
    first = engine.pick(7)
    assert first is not None
    assert not exceeded_entries(engine, 8)
    engine.pick(9)
    (entry,) = exceeded_entries(engine, 20)
    assert (entry.share.key, entry.share.delivering, entry.share.threshold) == (("a.org",), 2, Threshold(2))
    assert (entry.since, entry.share.clear_at, entry.waiting) == (9, UNKNOWN, 3)
    engine.end(first, 21)
    assert not exceeded_entries(engine, 22)


def test_an_exceeded_rate_names_the_end() -> None:
    engine = engine_of(CounterPolicy(default=Threshold(rate=DeliveryRate(1, 60))))
    added(engine, mails("a.org", 2))
    engine.pick(5)
    (entry,) = exceeded_entries(engine, 6)
    assert (entry.since, entry.share.clear_at, entry.share.rate_at, entry.waiting) == (5, 65, 65, 1)
    assert not exceeded_entries(engine, 65)


def test_the_entries_for_which_most_mails_wait_come_first() -> None:
    """Of several tenants together; an entry without a mail that waits is exceeded all the same."""
    engine = engine_of(TWO_BY_DOMAIN)
    for domain, tenant, count in (("a.org", "", 2), ("b.org", "x", 3), ("b.org", "y", 2), ("c.org", "", 3)):
        added(engine, mails(domain, count, tenant=tenant))
    while engine.pick(1):
        pass
    found = [(entry.share.key, entry.waiting) for entry in exceeded_entries(engine, 1)]
    assert found == [(("b.org",), 3), (("c.org",), 1), (("a.org",), 0)]


def test_entries_that_are_not_asked_for_are_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has more of them than anybody reads, and delivers meanwhile."""
    explained = list[int]()
    condition = CounterPolicy.condition

    def counted(policy: CounterPolicy, key: CounterKey) -> int | None:
        explained.append(1)
        return condition(policy, key)

    engine = engine_of(TWO_BY_DOMAIN)
    for number in range(9):
        added(engine, mails(f"{number}.org", 3))
    while engine.pick(1):
        pass
    monkeypatch.setattr(CounterPolicy, "condition", counted)
    found = exceeded_entries(engine, 1)
    assert (len(found), len(found[:2]), len(explained)) == (9, 2, 2)


def test_a_mail_with_several_addresses_waits_for_each_of_them_that_is_exceeded() -> None:
    engine = engine_of(CounterPolicy((LOCAL_IP,), default=Threshold(1)))
    added(engine, mails("a.org", 3, (A, B)))
    engine.pick(1)
    (entry,) = exceeded_entries(engine, 1)
    assert (entry.share.key, entry.waiting) == ((A,), 2)
    engine.pick(2)
    assert [(entry.share.key, entry.waiting) for entry in exceeded_entries(engine, 2)] == [((A,), 1), ((B,), 1)]


def test_a_lower_limit_is_exceeded_since_it_was_set() -> None:
    """Given two deliveries that began under a limit of two."""
    engine = engine_of(TWO_BY_DOMAIN)
    added(engine, mails("a.org", 3))
    picked = engine.pick(1)
    assert picked is not None
    engine.pick(2)
    engine.end(picked, 3)
    engine.reload([CounterPolicy((DOMAIN,), default=Threshold(1))], 4)
    (entry,) = exceeded_entries(engine, 5)
    assert (entry.since, entry.share.delivering, entry.waiting) == (4, 1, 1)


def test_a_limit_of_none_at_once_is_exceeded_since_no_known_time() -> None:
    engine = engine_of(CounterPolicy(default=Threshold(0)))
    added(engine, mails("a.org", 1))
    (entry,) = exceeded_entries(engine, 5)
    assert (entry.since, entry.waiting) == (None, 1)
