"""What one process knows of how much is in a queue, and what it lets in by that."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from mailmend.delivery.policy.policy import FieldGroup, PickupField, ThresholdCondition, pattern_of
from mailmend.delivery.policy.quotas import (
    CountedMail,
    QueuedAmount,
    QueueQuota,
    QuotaCount,
    QuotaLimit,
    QuotaUsage,
    rest_seconds,
)
from tests.support.thorough import few_or

TENANT, DOMAIN = PickupField.TENANT_ID, PickupField.RECIPIENT_DOMAIN
PER_TENANT = QueueQuota((TENANT,), default=QuotaLimit(3, 100), name="tenant")
PER_DOMAIN = QueueQuota((DOMAIN,), default=QuotaLimit(messages=2), name="domain")


def mail(tenant: str, *domains: str, size: int = 0) -> CountedMail:
    return CountedMail(tuple({TENANT: tenant, DOMAIN: one} for one in domains or ("a.org",)), size)


def counted(*quotas: QueueQuota, mails: tuple[CountedMail, ...] = ()) -> QuotaUsage:
    """Usage by a count that found these mails."""
    usage = QuotaUsage(quotas)
    count = usage.begin_count()
    for one in mails:
        count.add(one)
    usage.end_count(count)
    return usage


def put(usage: QuotaUsage, *mails: CountedMail) -> None:
    with usage.putting(mails):
        pass


@pytest.mark.parametrize(
    ("size", "is_refused"), [(0, False), (40, False), (41, True)], ids=["none", "as much as is left", "more"]
)
def test_a_mail_that_would_exceed_a_quota_is_refused(size: int, *, is_refused: bool) -> None:
    """In bytes as in mails; what is another's key is its own."""
    usage = counted(PER_TENANT, mails=(mail("acme", size=60), mail("other", size=100)))
    assert (usage.refusal([mail("acme", size=size)]) is PER_TENANT) == is_refused
    assert usage.refused["tenant"] == is_refused


def test_a_mail_counts_once_for_each_domain_of_its_recipients() -> None:
    """However many of one key it has: two domains of a group are one."""
    grouped = replace(PER_DOMAIN, groups={DOMAIN: (FieldGroup("g", (pattern_of(DOMAIN, "*.g.org"),)),)})
    usage = counted(grouped, mails=(mail("acme", "x.g.org", "y.g.org", "a.org"),))
    assert [usage.used(grouped, (key,)).messages for key in ("#g", "a.org", "x.g.org")] == [1, 1, 0]
    assert usage.refusal([mail("acme", "z.g.org"), mail("acme", "b.org")]) is None
    assert usage.refusal([mail("acme", "z.g.org"), mail("acme", "x.g.org")]) is grouped


def test_the_first_condition_that_holds_sets_the_limit() -> None:
    """All of it, in place of the default."""
    big = ThresholdCondition({TENANT: (pattern_of(TENANT, "big"),)}, QuotaLimit(messages=5))
    usage = counted(replace(PER_TENANT, conditions=(big,)), mails=(mail("big", size=1000),))
    assert usage.refusal([mail("big")] * 4) is None
    assert usage.refusal([mail("big")] * 5)
    assert usage.refusal([mail("small")] * 4)
    unlimited = counted(replace(PER_TENANT, default=None), mails=(mail("small"),))
    assert unlimited.refusal([mail("small")] * 4) is None


def test_a_quota_by_a_field_that_is_not_known_yet_is_not_asked() -> None:
    usage = counted(PER_TENANT, PER_DOMAIN, mails=(mail("acme", "a.org"), mail("acme", "a.org"), mail("acme", "b.org")))
    assert usage.refusal([mail("acme", "c.org")], [DOMAIN]) is None
    assert usage.refusal([mail("acme", "a.org")], [DOMAIN]) is PER_DOMAIN
    assert usage.refusal([mail("acme", "c.org")], [DOMAIN, TENANT]) is PER_TENANT


def test_what_was_put_counts_until_a_count_that_began_later_has_ended() -> None:
    """Whether it came to the queue or not, and whether it has left again."""
    usage = counted(PER_TENANT)
    put(usage, mail("acme", size=1))
    early = usage.begin_count()
    put(usage, mail("acme", size=2))
    usage.end_count(early)
    assert usage.used(PER_TENANT, ("acme",)) == QueuedAmount(1, 2)
    usage.end_count(usage.begin_count())
    assert usage.used(PER_TENANT, ("acme",)) == QueuedAmount()


def test_what_is_being_put_as_a_count_begins_counts_on_top_of_it() -> None:
    """The count may have passed its place already."""
    usage = counted(PER_TENANT)
    with usage.putting([mail("acme")]):
        count = usage.begin_count()
    usage.end_count(count)
    assert usage.used(PER_TENANT, ("acme",)).messages == 1


def test_after_a_count_that_failed_all_is_as_it_was() -> None:
    usage = counted(PER_TENANT, mails=(mail("acme"),))
    put(usage, mail("acme"))
    usage.begin_count().add(mail("acme"))
    put(usage, mail("acme"))
    usage.end_count(None)
    assert usage.used(PER_TENANT, ("acme",)).messages == 3


@pytest.mark.parametrize(
    ("found", "puts", "is_short"), [(0, 1, False), (0, 2, True), (1, 1, True), (2, 0, False), (3, 0, False)]
)
def test_a_count_is_wanted_soon_once_half_of_what_it_left_is_taken(found: int, puts: int, *, is_short: bool) -> None:
    """Not where it only found much: the next one would find the same."""
    usage = counted(PER_TENANT, mails=(mail("acme"),) * found)
    put(usage, *[mail("acme") for _ in range(puts)])
    assert usage.is_short == is_short


def test_a_refusal_asks_for_a_count_too() -> None:
    """Until one has ended."""
    usage = counted(PER_TENANT, mails=(mail("acme"),) * 3)
    assert usage.refusal([mail("acme")])
    assert usage.refusal([mail("acme")])
    assert (usage.is_short, usage.refused["tenant"]) == (True, 2)
    usage.end_count(usage.begin_count())
    assert not usage.is_short


def test_how_full_a_quota_is_its_fullest_key_says() -> None:
    """In mails or bytes, whatever is more; a limit of 0 is full with the first, and none is never full."""
    assert [one.share(QueuedAmount(9, 9)) for one in (QuotaLimit(), QuotaLimit(0))] == [0.0, 1.0]
    assert QuotaLimit(0).share(QueuedAmount()) == 0.0
    closed = QueueQuota((DOMAIN,), default=QuotaLimit(messages=0), name="closed")
    usage = counted(PER_TENANT, PER_DOMAIN, closed, mails=(mail("acme", size=80), mail("other", "b.org")))
    assert usage.fullest == {"tenant": 0.8, "domain": 0.5, "closed": 1.0}
    put(usage, mail("other", "b.org", size=90))
    assert usage.fullest == {"tenant": 0.9, "domain": 1.0, "closed": 1.0}
    put(usage, mail("third", "c.org", size=1))
    assert usage.fullest == {"tenant": 0.9, "domain": 1.0, "closed": 1.0}, "a key that has used less changes nothing"
    usage.end_count(usage.begin_count())
    assert usage.fullest == {"tenant": 0.0, "domain": 0.0, "closed": 0.0}


def test_before_a_count_a_quota_is_as_full_as_what_was_put_makes_it() -> None:
    """A mail without a noted size has no bytes."""
    usage = QuotaUsage((replace(PER_TENANT, default=QuotaLimit(10, 2)),))
    assert usage.fullest == {}
    put(usage, CountedMail(({TENANT: "acme"},)))
    assert usage.fullest == {"tenant": 0.1}


def test_quotas_that_count_alike_keep_what_was_counted() -> None:
    """Under another name and limit too; a new one refuses nothing until it is counted."""
    usage = counted(PER_TENANT, mails=(mail("acme"),))
    put(usage, mail("acme"))
    stricter = replace(PER_TENANT, name="stricter", default=QuotaLimit(2))
    closed = replace(PER_DOMAIN, default=QuotaLimit(0))
    usage.reload((closed, stricter))
    assert usage.used(stricter, ("acme",)).messages == 2
    assert (usage.refusal([mail("acme")]), usage.is_new, usage.fullest["stricter"]) == (stricter, True, 1.0)
    assert usage.refusal([mail("other")]) is None
    usage.reload((replace(closed, name="renamed"), stricter))
    assert usage.refusal([mail("other")]) is None
    closed = usage.quotas[0]
    usage.end_count(usage.begin_count())
    assert (usage.refusal([mail("other")]), usage.is_new) == (closed, False)


def test_a_count_that_began_under_other_quotas_is_no_count() -> None:
    """The same ones again are no others."""
    usage = counted(PER_TENANT)
    count = usage.begin_count()
    count.add(mail("acme"))
    usage.reload((PER_TENANT,))
    usage.end_count(count)
    assert usage.used(PER_TENANT, ("acme",)).messages == 1
    count = usage.begin_count()
    usage.reload((replace(PER_TENANT, name="other"),))
    usage.end_count(count)
    assert usage.used(usage.quotas[0], ("acme",)).messages == 1


def test_before_the_first_count_nothing_is_known() -> None:
    """But where there were no quotas there was nothing to know."""
    usage = QuotaUsage((PER_TENANT,))
    usage.reload((PER_DOMAIN,))
    assert (usage.is_counted, usage.is_short) == (False, False)
    usage.end_count(None)
    assert not usage.is_counted
    usage.end_count(usage.begin_count())
    assert usage.is_counted
    none = QuotaUsage()
    none.reload((PER_DOMAIN,))
    assert none.is_counted


@pytest.mark.parametrize(
    ("took", "soon", "rest"), [(0.0, False, 10.0), (0.0, True, 1.0), (1.0, True, 9.0), (2.0, False, 18.0)]
)
def test_counting_takes_a_tenth_of_the_time_at_most(took: float, rest: float, *, soon: bool) -> None:
    assert rest_seconds(took, soon=soon) == rest


class QuotaLaw(RuleBasedStateMachine):
    """One process that puts mails, counts and reloads, over a queue that it alone fills and that drains as it likes.

    What is in the queue never exceeds a quota, whatever a count sees of mails that come or go while it runs.
    """

    puts = Bundle("puts")

    def __init__(self) -> None:
        super().__init__()
        self.quotas: tuple[QueueQuota, ...] = (PER_TENANT, PER_DOMAIN)
        self.usage = counted(*self.quotas)
        self.there = list[CountedMail]()
        self.count: QuotaCount | None = None
        self.at_begin = list[CountedMail]()
        self.appeared = list[CountedMail]()

    @rule(
        target=puts,
        tenant=st.sampled_from("ab"),
        domains=st.sets(st.sampled_from(["x.org", "y.org"]), min_size=1),
        size=st.integers(0, 60),
    )
    def begin_put(self, tenant: str, domains: set[str], size: int) -> tuple[CountedMail, ExitStack] | None:
        one, under_way = mail(tenant, *sorted(domains), size=size), ExitStack()
        if self.usage.refusal([one]):
            return None
        under_way.enter_context(self.usage.putting([one]))
        return one, under_way

    @rule(one=consumes(puts), arrives=st.booleans())
    def end_put(self, one: tuple[CountedMail, ExitStack] | None, *, arrives: bool) -> None:
        if one:
            if arrives:
                self.there.append(one[0])
                self.appeared.append(one[0])
            one[1].close()

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.there.pop(data.draw(st.integers(0, len(self.there) - 1)))

    @precondition(lambda self: self.count is None)
    @rule()
    def begin_count(self) -> None:
        self.count, self.at_begin, self.appeared = self.usage.begin_count(), list(self.there), []

    @precondition(lambda self: self.count is not None)
    @rule(data=st.data())
    def end_count(self, data: st.DataObject) -> None:
        """It sees all that was there throughout, and of the rest what chance says."""
        assert self.count is not None
        stayed = [one for one in self.at_begin if any(one is other for other in self.there)]
        others = [one for one in [*self.at_begin, *self.appeared] if not any(one is other for other in stayed)]
        for one in [*stayed, *(one for one in others if data.draw(st.booleans()))]:
            self.count.add(one)
        self.usage.end_count(self.count)
        self.count = None

    @precondition(lambda self: self.count is not None)
    @rule()
    def fail_count(self) -> None:
        self.usage.end_count(None)
        self.count = None

    @rule(names=st.permutations(["one", "two"]))
    def rename(self, names: list[str]) -> None:
        self.quotas = tuple(replace(one, name=name) for one, name in zip(self.quotas, names, strict=True))
        self.usage.reload(self.quotas)

    @invariant()
    def nothing_is_exceeded(self) -> None:
        really = QuotaCount(self.quotas)
        for one in self.there:
            really.add(one)
        for quota in self.quotas:
            for (name, key), amount in really.found.items():
                limit = quota.threshold(key) if name == quota.name else None
                assert limit is None or limit.allows(amount), (quota.name, key, amount)


TestQuotaLaw = QuotaLaw.TestCase
TestQuotaLaw.settings = settings(max_examples=few_or(60), stateful_step_count=40, deadline=None)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9))
def test_half_of_what_is_left_is_less_than_all_of_it(limit: int, found: int, puts: int) -> None:
    """A count is wanted before anything is refused for what came since, or as it is."""
    quota = replace(PER_TENANT, default=QuotaLimit(messages=limit))
    usage = counted(quota, mails=(mail("acme"),) * found)
    for _ in range(puts):
        if usage.refusal([mail("acme")]):
            assert usage.is_short
            return
        put(usage, mail("acme"))
