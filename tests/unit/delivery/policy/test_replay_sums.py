"""What a replay comes to: waits, delays, and sums of sums."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import (
    CounterKey,
    CounterPolicy,
    ExactValue,
    PickupField,
    Threshold,
    ThresholdCondition,
)
from mailmend.delivery.policy.replay_sums import DelayedValue, PolicyUse, ReplaySums, WaitSums, most_delayed
from mailmend.delivery.policy.replaying import CounterUse, LimitKind, RecordedAttempt, most_refusing
from tests.support.attempts import START, attempt

DOMAIN, TENANT = PickupField.RECIPIENT_DOMAIN, PickupField.TENANT_ID
LASTING, TOP = 700, 2


def sums_of(waits: list[int]) -> WaitSums:
    sums = WaitSums()
    for wait in waits:
        sums.count(0, wait, wait + 1)
    return sums


def replayed(*record: RecordedAttempt, limit: Threshold | None = None, **blocked: str) -> ReplaySums:
    """A record in which each domain has a limit of its own, and what is blocked never begins."""
    conditions = tuple(
        ThresholdCondition({PickupField(name): (ExactValue(value),)}, Threshold(concurrency=0))
        for name, value in blocked.items()
    )
    sums = ReplaySums()
    sums.replay(record, PickupPolicies((CounterPolicy((DOMAIN,), {}, conditions, limit),)), LASTING, TOP)
    return sums


class TestWaits:
    """Percentiles of waits."""

    @given(st.lists(st.integers(0, 10**7), min_size=1, max_size=50), st.sampled_from([1, 50, 95, 99, 100]))
    def test_a_percentile_is_exact_to_three_digits_and_never_too_small(self, waits: list[int], percent: int) -> None:
        exact = sorted(waits)[-(-len(waits) * percent // 100) - 1]
        found = sums_of(waits).percentile(percent)
        assert found is not None
        assert exact <= found <= min(max(waits), exact * 1.01)

    @given(st.lists(st.integers(0, 10**6)), st.lists(st.integers(0, 10**6)))
    def test_sums_of_two_parts_are_those_of_both_together(self, some: list[int], others: list[int]) -> None:
        added = sums_of(some)
        added.add(sums_of(others))
        assert added == sums_of(some + others)

    def test_a_percentile_of_many_waits_is_as_long_as_that_many_of_them(self) -> None:
        """Given the longest wait of 200, it is all that is above the 99th."""
        waits = sums_of([10] * 199 + [1_000])
        assert (waits.percentile(99), waits.percentile(100)) == (10, 1_000)
        assert sums_of([10] * 198 + [1_000] * 2).percentile(99) == 10
        assert sums_of([10] * 197 + [1_000] * 3).percentile(99) == 1_000

    def test_without_a_wait_there_is_no_percentile(self) -> None:
        assert WaitSums().percentile(50) is None


class TestDelays:
    """What begins later than recorded, and whose mails."""

    def test_later_is_what_begins_after_it_did(self) -> None:
        """A wait as long as it was, or shorter, is no delay; by the millisecond."""
        sums = replayed(
            attempt("a", 0, waited=100, lasted=1_000, recipientdomain="x"),
            attempt("b", 0, waited=1_000, lasted=1_000, recipientdomain="x"),
            attempt("c", 0, waited=1_999, lasted=1_000, recipientdomain="x"),
            limit=Threshold(concurrency=1),
        )
        assert sums.total == DelayedValue(attempts=3, delayed=1, never=0, later=1, latest=1)
        assert sums.simulated.waits == {0: 1, 1_000: 1, 2_000: 1}
        assert sums.recorded.waits == {100: 1, 1_000: 1, 2_000: 1}
        assert (sums.recorded.longest, sums.recorded.percentile(100)) == (1_999, 1_999)
        assert sums.recorded.last_ended == START + 1_999 + 1_000

    def test_drain_and_recorded_drain_end_with_their_last_end(self) -> None:
        """What has no end on record lasts as long as was said, in both."""
        sums = replayed(
            attempt("a", 0, waited=50, lasted=None, recipientdomain="x"),
            attempt("b", 10, lasted=100, recipientdomain="x"),
            limit=Threshold(concurrency=1),
        )
        assert (sums.first_ready, sums.without_end) == (START, 1)
        assert sums.recorded.last_ended == START + 50 + LASTING
        assert (sums.simulated.last_begun, sums.simulated.last_ended) == (START + LASTING, START + LASTING + 100)

    def test_attempts_without_an_end_are_counted(self) -> None:
        sums = replayed(*(attempt(name, lasted=lasted) for name, lasted in (("a", None), ("b", 5), ("c", None))))
        assert sums.without_end == 2

    def test_times_are_whole_milliseconds_rounded_down(self) -> None:
        """Given a limit that lets the second attempt begin within a millisecond."""
        sums = replayed(
            attempt("a", 0, lasted=10, recipientdomain="x"),
            attempt("b", 0, lasted=10, recipientdomain="x"),
            limit=Threshold(connect_interval=2_500_000),
        )
        assert (sums.simulated.last_begun, sums.simulated.last_ended) == (START + 2, START + 12)
        assert sums.total == DelayedValue(attempts=2, delayed=1, later=2, latest=2)

    def test_what_never_begins_is_counted_apart(self) -> None:
        """It has neither a wait nor an end, and is delayed."""
        sums = replayed(attempt("a", 0, recipientdomain="x"), attempt("b", 0, recipientdomain="y"), recipientdomain="x")
        assert sums.total == DelayedValue(attempts=2, delayed=1, never=1)
        assert (sums.simulated.begun, sums.recorded.begun) == (1, 2)

    def test_values_are_shown_field_by_field_the_most_delayed_first(self) -> None:
        """Those that never begin before those that begin latest; as many as are wanted, and only delayed ones."""
        values = {
            (TENANT, "t"): DelayedValue(1, 1, 0, 9, 9),
            (DOMAIN, "late"): DelayedValue(9, 9, 0, 900, 100),
            (DOMAIN, "never"): DelayedValue(5, 1, 1),
            (DOMAIN, "later"): DelayedValue(9, 1, 0, 901, 901),
            (DOMAIN, "fine"): DelayedValue(9),
        }
        assert list(most_delayed(values, 2)) == [(DOMAIN, "never"), (DOMAIN, "later"), (TENANT, "t")]
        assert most_delayed(values, 1) == {key: values[key] for key in [(DOMAIN, "never"), (TENANT, "t")]}
        assert len(most_delayed(values, 9)) == 4

    def test_values_that_are_delayed_equally_long_are_in_the_order_of_how_many_then_of_their_names(self) -> None:
        values = {
            (DOMAIN, "b"): DelayedValue(5, 1, 0, 10, 10),
            (DOMAIN, "a"): DelayedValue(5, 1, 0, 10, 10),
            (DOMAIN, "c"): DelayedValue(5, 2, 0, 10, 9),
        }
        assert list(most_delayed(values, 3)) == [(DOMAIN, "c"), (DOMAIN, "a"), (DOMAIN, "b")]

    def test_each_value_knows_its_own_attempts(self) -> None:
        sums = replayed(
            attempt("a", 0, lasted=1_000, recipientdomain="x", tenantid="t", jobid="j"),
            attempt("b", 0, lasted=1_000, recipientdomain="x", transportid="p"),
            attempt("c", 0, lasted=1_000, recipientdomain="y", tenantid="t"),
            limit=Threshold(concurrency=1),
        )
        late = DelayedValue(attempts=1, delayed=1, later=1_000, latest=1_000)
        assert sums.values == {
            (DOMAIN, "x"): DelayedValue(attempts=2, delayed=1, later=1_000, latest=1_000),
            (DOMAIN, "y"): DelayedValue(attempts=1),
            (TENANT, "t"): DelayedValue(attempts=2),
            (PickupField.TRANSPORT_ID, "p"): late,
        }

    def test_attempts_without_a_value_are_of_none(self) -> None:
        assert list(replayed(attempt("a", 0, recipientdomain="x")).values) == [(DOMAIN, "x")]


class TestSums:
    """Sums of several groups."""

    def test_of_many_counters_the_first_are_kept_and_each_policy_knows_all(self) -> None:
        """Whichever group they come from."""
        whole = ReplaySums()
        for number in range(20):
            record = [attempt(f"{number}.{one}", one, recipientdomain=f"d{number}") for one in range(number + 1)]
            whole.add(replayed(*record, limit=Threshold(concurrency=1)), TOP)
        assert {("d19",), ("d18",)} <= {key for _, key in whole.uses}
        assert len(whole.uses) <= 3 * TOP
        policy = whole.policies[0]
        assert (policy.counters, policy.refusing, policy.most) == (20, 19, 1)
        assert policy.held == sum(range(20))

    def test_counters_are_sorted_a_few_times_as_groups_are_added(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """So what a group costs does not grow with how many counters are wanted."""
        sorts = list[int]()

        def counted(uses: Mapping[tuple[int, CounterKey], CounterUse], top: int) -> list[CounterUse]:
            sorts.append(len(uses))
            return most_refusing(uses, top)

        monkeypatch.setattr("mailmend.delivery.policy.replay_sums.most_refusing", counted)
        whole, wanted = ReplaySums(), 10
        for number in range(100):
            record = [attempt(f"{number}.{one}", one, recipientdomain=f"d{number}") for one in range(number + 1)]
            whole.add(replayed(*record, limit=Threshold(concurrency=1)), wanted)

        assert len(sorts) < 10
        kept = [key for _, key in whole.uses]
        assert {(f"d{number}",) for number in range(90, 100)} <= set(kept)

    def test_a_suspension_that_holds_attempts_of_several_groups_holds_all_of_them(self) -> None:
        """However few counters are wanted, and whichever group is added first."""
        suspended = PickupPolicies(
            suspensions=(Suspension("suspends 1", {TENANT: (ExactValue("t"), ExactValue("u"))}),)
        )
        place = (-1, ("suspends 1",))
        whole = ReplaySums()
        for tenant, count in (("t", 2), ("u", 3), ("free", 4)):
            group = ReplaySums()
            group.replay([attempt(f"{tenant}{n}", tenantid=tenant) for n in range(count)], suspended, LASTING, 0)
            whole.add(group, 0)

        assert list(whole.uses) == [place]
        assert (whole.uses[place].held, whole.uses[place].never) == (5, 5)
        assert whole.policies == {}, "a suspension is no policy"
        assert whole.total.never == 5

    def test_delays_are_added_but_for_the_latest(self) -> None:
        found = DelayedValue(attempts=1, delayed=2, never=3, later=4, latest=9)
        found.add(DelayedValue(attempts=10, delayed=20, never=30, later=40, latest=8))
        assert found == DelayedValue(attempts=11, delayed=22, never=33, later=44, latest=9)
        found.add(DelayedValue(latest=10))
        assert found.latest == 10

    def test_what_became_of_a_policy_is_added_but_for_deliveries_at_once(self) -> None:
        found = PolicyUse(1, 2, Counter({LimitKind.RATE: 3}), held=4, most=9)
        found.add(PolicyUse(10, 20, Counter({LimitKind.RATE: 30}), held=40, most=8))
        assert found == PolicyUse(11, 22, Counter({LimitKind.RATE: 33}), held=44, most=9)
        found.add(PolicyUse(most=10))
        assert found.most == 10

    def test_sums_of_two_groups_that_nothing_limits_are_those_of_the_whole_record(self) -> None:
        first = [
            attempt("a", 5, waited=10, lasted=None, recipientdomain="x", tenantid="t"),
            attempt("b", 9, waited=2_000, recipientdomain="y", sources=("192.0.2.1",)),
        ]
        second = [
            attempt("c", 3, lasted=5, recipientdomain="x"),
            attempt("d", 4, lasted=None, recipientdomain="z", sources=("192.0.2.1",)),
        ]
        added = replayed(*first)
        added.add(replayed(*second), TOP)
        assert added == replayed(*sorted([*first, *second], key=lambda recorded: recorded.order))
        assert (added.first_ready, added.without_end, added.sources["192.0.2.1"]) == (START + 3, 2, 2)

        added.add(ReplaySums(), TOP)
        assert (added.first_ready, added.total.attempts) == (START + 3, 4)

    def test_of_a_replay_the_counters_that_held_most_are_kept(self) -> None:
        """As many as are wanted."""
        record = [
            attempt(f"{domain}{number}", 0, recipientdomain=domain)
            for domain, count in (("a", 2), ("b", 4), ("c", 3))
            for number in range(count)
        ]
        sums = replayed(*record, limit=Threshold(concurrency=1))
        assert {key: use.held for (_, key), use in sums.uses.items()} == {("b",): 3, ("c",): 2}
        policy = sums.policies[0]
        assert (policy.counters, policy.refusing, policy.held, policy.most) == (3, 3, 6, 1)
        assert policy.refusals == {LimitKind.CONCURRENCY: 6}
