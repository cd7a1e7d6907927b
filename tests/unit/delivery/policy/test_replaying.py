"""Recorded attempts again under other policies: what begins when, and what held it back."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import (
    NO_GROUPS,
    CounterPolicy,
    ExactValue,
    FieldGroup,
    PickupField,
    Threshold,
    ThresholdCondition,
)
from mailmend.delivery.policy.rates import SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.replay_sums import ReplaySums, most_delayed
from mailmend.delivery.policy.replaying import (
    MILLI,
    AttemptReplay,
    BegunAttempt,
    CounterUse,
    LimitKind,
    RecordedAttempt,
    groups_of,
    most_refusing,
    tells_sources,
    with_concurrency,
)
from mailmend.model.errors import WrongUse
from tests.support.attempts import START, attempt

FIELDS = (PickupField.RECIPIENT_DOMAIN, PickupField.TENANT_ID, PickupField.LOCAL_IP)
VALUES = {PickupField.RECIPIENT_DOMAIN: "abc", PickupField.TENANT_ID: "xyz", PickupField.LOCAL_IP: "12"}
GROUPS = {
    PickupField.RECIPIENT_DOMAIN: FieldGroup("ab", (ExactValue("a"), ExactValue("b"))),
    PickupField.TENANT_ID: FieldGroup("xy", (ExactValue("x"), ExactValue("y"))),
}
LASTING = 500
TOP = 1_000

values = st.sampled_from
thresholds = st.builds(
    Threshold,
    concurrency=st.none() | st.integers(0, 3),
    rate=st.none() | st.builds(DeliveryRate, st.integers(1, 4), st.integers(1, 3).map(lambda one: one * SECOND)),
    connect_interval=st.none() | st.integers(1, SECOND),
)


@st.composite
def policies(draw: st.DrawFn) -> CounterPolicy:
    fields = tuple(draw(st.lists(values(FIELDS), unique=True)))
    groups = {one: (GROUPS[one],) for one in fields if one in GROUPS and draw(st.booleans())} or NO_GROUPS
    conditions = tuple(
        ThresholdCondition({one: (ExactValue(draw(values(VALUES[one]))),)}, draw(thresholds))
        for one in fields
        if draw(st.booleans())
    )
    return CounterPolicy(fields, groups, conditions, draw(st.none() | thresholds))


said = st.builds(
    PickupPolicies,
    st.lists(policies(), max_size=3).map(tuple),
    st.just(RateAlgorithm.SLIDING),
    st.lists(
        st.builds(
            Suspension,
            st.just("suspends 1"),
            st.dictionaries(values(FIELDS), st.just((ExactValue("a"), ExactValue("1"))), min_size=1, max_size=1),
        ),
        max_size=1,
    ).map(tuple),
    weights=st.dictionaries(values(VALUES[PickupField.TENANT_ID]), st.integers(1, 3)),
)


@st.composite
def records(draw: st.DrawFn) -> list[RecordedAttempt]:
    """Attempts of a few seconds, of values that are few, sorted."""
    shape = st.tuples(
        st.integers(0, 5_000),
        st.integers(0, 2_000),
        st.none() | st.integers(1, 3_000),
        values([("1",), ("2",), ("1", "2"), ("1", "1", "2")]),
        st.booleans(),
        values(VALUES[PickupField.RECIPIENT_DOMAIN]),
        values(VALUES[PickupField.TENANT_ID]),
    )
    found = [
        attempt(
            f"{number}",
            ready,
            waited=waited,
            lasted=lasted,
            sources=sources,
            urgent=urgent,
            recipientdomain=domain,
            tenantid=tenant,
        )
        for number, (ready, waited, lasted, sources, urgent, domain, tenant) in enumerate(
            draw(st.lists(shape, max_size=30))
        )
    ]
    return sorted(found, key=lambda one: one.order)


def replayed(record: Iterable[RecordedAttempt], file: PickupPolicies) -> tuple[list[BegunAttempt], AttemptReplay]:
    replay = AttemptReplay(file, LASTING)
    return list(replay.begun(record)), replay


def under(*policies: CounterPolicy) -> PickupPolicies:
    return PickupPolicies(policies)


def seconds_of(begun: Sequence[BegunAttempt]) -> dict[str, float]:
    """When each begins, in seconds after the start."""
    return {one.recorded.mail.id: (one.at - START * MILLI) / SECOND for one in begun}


class TestWhatBegins:
    """The order and the times of attempts under other policies."""

    @given(records(), said)
    def test_each_attempt_begins_once_or_never_and_lasts_as_long_as_it_did(
        self, record: list[RecordedAttempt], file: PickupPolicies
    ) -> None:
        """Never before it is ready; where no end is known, as long as was said."""
        begun, replay = replayed(record, file)
        names = [one.recorded.mail.id for one in begun] + [one.mail.id for one in replay.left]
        assert sorted(names) == sorted(one.mail.id for one in record)
        for one in begun:
            assert one.at >= one.recorded.ready_at * MILLI
            lasted = one.recorded.lasted
            assert one.ends_at - one.at == (LASTING if lasted is None else lasted) * MILLI
        assert [one.at for one in begun] == sorted(one.at for one in begun)

    @given(records())
    def test_without_policies_everything_begins_when_it_is_ready(self, record: list[RecordedAttempt]) -> None:
        begun, replay = replayed(record, PickupPolicies())
        assert all(one.at == one.recorded.ready_at * MILLI for one in begun)
        assert not replay.left
        assert not replay.uses

    @given(records(), said)
    def test_no_limit_is_ever_exceeded(self, record: list[RecordedAttempt], file: PickupPolicies) -> None:
        """By a count of its own: deliveries at once, in any interval, and between two connections."""
        begun, _ = replayed(record, file)
        for policy in file.policies:
            counted = defaultdict[tuple[str, ...], list[BegunAttempt]](list)
            for one in begun:
                counted[policy.key({**one.recorded.mail.values, PickupField.LOCAL_IP: one.source})].append(one)
            for key, some in counted.items():
                limits = policy.threshold(key) or Threshold()
                if limits.concurrency is not None:
                    assert at_once(some) <= limits.concurrency
                if rate := limits.rate:
                    starts = [one.at for one in some]
                    assert all(b - a >= rate.interval for a, b in zip(starts, starts[rate.count :], strict=False))
                if gap := limits.connect_interval:
                    assert all(b.at - a.at >= gap for a, b in pairwise(some))
        held = [one for one in file.suspensions for begin in begun if one.holds(values_with_source(begin))]
        assert not held

    @given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 3_000)), max_size=30), st.integers(1, 4))
    def test_more_at_once_lets_no_attempt_of_one_kind_begin_later(
        self, spans: list[tuple[int, int]], most: int
    ) -> None:
        """Of attempts that are counted alike, first come first served; of others that is no law."""
        found = [attempt(str(number), ready, lasted=lasted) for number, (ready, lasted) in enumerate(spans)]
        record = sorted(found, key=lambda one: one.order)
        fewer, more = (
            {one.recorded.mail.id: one.at for one in replayed(record, with_concurrency(PickupPolicies(), limit))[0]}
            for limit in (most, most + 1)
        )
        assert all(more[name] <= at for name, at in fewer.items())

    def test_what_is_refused_begins_when_another_ends(self) -> None:
        record = [
            attempt(name, ready, lasted=1_000) for name, ready in (("a", 0), ("b", 100), ("c", 200), ("d", 2_000))
        ]
        begun, replay = replayed(record, under(CounterPolicy(default=Threshold(concurrency=2))))
        assert seconds_of(begun) == {"a": 0, "b": 0.1, "c": 1, "d": 2}
        (use,) = replay.uses.values()
        assert (use.held, use.refused_for, use.most) == (1, 0.8 * SECOND, 2)
        assert use.refusals == {LimitKind.CONCURRENCY: 1}

    def test_what_is_refused_by_a_rate_begins_when_that_allows_it(self) -> None:
        record = [attempt(str(number), 0, lasted=0) for number in range(4)]
        begun, replay = replayed(record, under(CounterPolicy(default=Threshold(rate=DeliveryRate(2)))))
        assert seconds_of(begun) == {"0": 0, "1": 0.5, "2": 1, "3": 1.5}
        (use,) = replay.uses.values()
        assert (use.held, use.refused_for, use.refusals) == (3, 1.5 * SECOND, {LimitKind.RATE: 3})

    def test_what_ends_at_the_same_time_ends_in_the_order_in_which_it_began(self) -> None:
        """So those that waited for it begin in that order, whichever came first."""
        record = [
            attempt("a1", 0, lasted=1_000, recipientdomain="a"),
            attempt("b1", 0, lasted=1_000, recipientdomain="b"),
            attempt("b2", 100, recipientdomain="b"),
            attempt("a2", 200, recipientdomain="a"),
        ]
        each = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=1))
        begun, _ = replayed(record, under(each))
        assert [attempt.recorded.mail.id for attempt in begun] == ["a1", "b1", "a2", "b2"]

    def test_a_record_is_read_as_it_is_needed(self) -> None:
        """In memory are those that wait or are under way, however long the record is."""
        taken = Counter[str]()

        def record() -> Iterable[RecordedAttempt]:
            for number in range(1_000):
                taken["read"] += 1
                yield attempt(str(number), number * 10_000)

        begun = AttemptReplay(PickupPolicies()).begun(record())
        next(begun)
        assert taken["read"] <= 2

    def test_more_than_there_is_room_for_is_refused(self) -> None:
        blocked = under(CounterPolicy(default=Threshold(concurrency=0)))
        record = [attempt(str(number), number) for number in range(11)]
        assert not list(AttemptReplay(blocked, waiting_max=11).begun(record))
        with pytest.raises(WrongUse, match="more than 10 attempts"):
            list(AttemptReplay(blocked, waiting_max=10).begun(record))


class TestWhatHoldsBack:
    """What is told of limits."""

    @given(records(), said)
    def test_whoever_waits_is_held_by_a_limit(self, record: list[RecordedAttempt], file: PickupPolicies) -> None:
        """And by none who does not wait; as much as was held for ever never begins."""
        begun, replay = replayed(record, file)
        waited = sum(one.at > one.recorded.ready_at * MILLI for one in begun) + len(replay.left)
        uses = replay.uses.values()
        assert sum(use.held for use in uses) >= waited
        assert all(use.held <= waited for use in uses)
        assert max((use.never for use in uses), default=0) <= len(replay.left) <= sum(use.never for use in uses)
        assert all(bool(use.held) <= bool(use.refusals) or use.place[0] < 0 for use in uses)

    @given(records(), said)
    def test_a_counter_tells_how_many_it_counted_at_once(
        self, record: list[RecordedAttempt], file: PickupPolicies
    ) -> None:
        begun, replay = replayed(record, file)
        for (number, key), use in replay.uses.items():
            if number >= 0:
                policy = file.policies[number]
                some = [one for one in begun if policy.key(values_with_source(one)) == key]
                assert use.most == at_once(some)

    def test_a_refusal_is_of_the_limit_that_was_reached_at_its_turn(self) -> None:
        """A count that is full before an interval that has not passed; both are one refusal, until both let it go."""
        limits = Threshold(concurrency=1, connect_interval=3 * SECOND)
        record = [attempt("a", 0, lasted=1_000), attempt("b", 0), attempt("c", 5_000), attempt("d", 5_500)]
        begun, replay = replayed(record, under(CounterPolicy(default=limits)))
        assert seconds_of(begun) == {"a": 0, "b": 3, "c": 6, "d": 9}
        (use,) = replay.uses.values()
        assert use.refusals == {LimitKind.CONCURRENCY: 2, LimitKind.CONNECT_INTERVAL: 1}
        assert (use.held, use.refused_for) == (3, (3 + 1 + 3) * SECOND)

    def test_what_waits_for_a_limit_for_no_time_is_not_held_by_it(self) -> None:
        """Given two that another limit held, of which the first ends as it begins."""
        each_domain = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=1))
        each_tenant = CounterPolicy((PickupField.TENANT_ID,), default=Threshold(concurrency=1))
        record = [
            attempt("before", 0, lasted=1_000, recipientdomain="a", tenantid="x"),
            attempt("first", 100, lasted=0, recipientdomain="b", tenantid="x"),
            attempt("second", 100, lasted=0, recipientdomain="b", tenantid="x"),
        ]
        begun, replay = replayed(record, under(each_domain, each_tenant))
        assert seconds_of(begun) == {"before": 0, "first": 1, "second": 1}
        assert {key: use.held for (_, key), use in replay.uses.items()} == {("a",): 0, ("b",): 0, ("x",): 2}

    def test_what_never_begins_is_held_by_what_lets_none_through(self) -> None:
        """A suspension, and a limit of none; what passes both is not held up by them."""
        blocked = ThresholdCondition({PickupField.TENANT_ID: (ExactValue("x"),)}, Threshold(concurrency=0))
        suspension = Suspension("suspends 1", {PickupField.RECIPIENT_DOMAIN: (ExactValue("a"),)})
        file = PickupPolicies(
            (CounterPolicy((PickupField.TENANT_ID,), conditions=(blocked,)),), suspensions=(suspension,)
        )
        record = [
            attempt("suspended", 0, recipientdomain="a", tenantid="y"),
            attempt("blocked", 0, recipientdomain="b", tenantid="x"),
            attempt("free", 0, recipientdomain="b", tenantid="y"),
        ]
        begun, replay = replayed(record, file)
        assert [one.recorded.mail.id for one in begun] == ["free"]
        assert {place: (use.held, use.never) for place, use in replay.uses.items()} == {
            (-1, ("suspends 1",)): (1, 1),
            (0, ("x",)): (1, 1),
        }

    def test_suspensions_are_all_kept_and_of_counters_the_first(self) -> None:
        """Those that hold most, then those that count most at once."""
        uses: dict[tuple[int, tuple[str, ...]], CounterUse] = {
            place: CounterUse(place, held=held, most=most)
            for place, held, most in [
                ((-1, ("s",)), 1, 0),
                ((0, ("a",)), 0, 9),
                ((0, ("b",)), 2, 1),
                ((0, ("c",)), 0, 8),
            ]
        }
        assert [use.place[1] for use in most_refusing(uses, 2)] == [("s",), ("b",), ("a",)]

    def test_those_that_hold_equally_many_are_in_the_order_of_how_long_then_how_many_at_once_then_their_place(
        self,
    ) -> None:
        """So the same record is always told in the same order."""
        uses: dict[tuple[int, tuple[str, ...]], CounterUse] = {
            place: CounterUse(place, held=1, refused_for=refused_for, most=most)
            for place, refused_for, most in [
                ((1, ("last",)), 5, 1),
                ((0, ("fourth",)), 5, 1),
                ((0, ("third",)), 5, 2),
                ((0, ("second",)), 6, 0),
                ((0, ("first",)), 7, 0),
            ]
        }
        ordered = most_refusing(uses, 5)
        assert [use.place[1] for use in ordered] == [("first",), ("second",), ("third",), ("fourth",), ("last",)]

    def test_what_became_of_a_counter_in_two_parts_of_a_record_is_added(self) -> None:
        """But for deliveries at once: the parts ran beside each other, and the larger number is the one that counts."""
        place = (0, ("a",))
        rate, concurrency = LimitKind.RATE, LimitKind.CONCURRENCY
        use = CounterUse(place, Counter({rate: 1}), held=2, never=3, refused_for=5, most=7)
        use.add(CounterUse(place, Counter({rate: 10, concurrency: 4}), held=20, never=30, refused_for=50, most=6))
        assert use == CounterUse(place, Counter({rate: 11, concurrency: 4}), held=22, never=33, refused_for=55, most=7)
        use.add(CounterUse(place, most=8))
        assert use.most == 8

    def test_a_counter_refuses_for_as_long_as_anything_waits_for_it(self) -> None:
        """From the first that waits to the last that goes on; a suspension counts no time."""
        counter, suspension = CounterUse((0, ("a",))), CounterUse((-1, ("suspends 1",)))
        for use in (counter, suspension):
            use.wait(10)
            use.wait(12)
            use.go_on(15)
            use.go_on(19)
            use.wait(30)
            use.go_on(31)
        assert (counter.refused_for, suspension.refused_for) == (10, 0)


class TestGroups:
    """A record that falls apart, replayed group by group."""

    @given(records(), said)
    def test_group_by_group_comes_to_the_same_as_all_at_once(
        self, record: list[RecordedAttempt], file: PickupPolicies
    ) -> None:
        """But for the addresses where nothing tells them apart."""
        grouping = groups_of(file, several_sources=any(len(set(one.mail.sources)) > 1 for one in record))

        def group(one: RecordedAttempt) -> tuple[str, ...]:
            return grouping.key(one.mail.values)

        whole, apart = ReplaySums(), ReplaySums()
        whole.replay(record, file, LASTING, TOP)
        for _, some in groupby(sorted(record, key=lambda one: (group(one), one.order)), key=group):
            sums = ReplaySums()
            sums.replay(some, file, LASTING, TOP)
            apart.add(sums, TOP)
        assert shown(apart) == shown(whole)
        assert apart.sources == whole.sources or not tells_sources(file)

    @given(st.permutations(list(range(20))), said)
    def test_the_order_in_which_a_record_is_found_changes_nothing(self, order: list[int], file: PickupPolicies) -> None:
        """Also of attempts that were ready at the same time."""
        record = [attempt(str(number), number // 5, recipientdomain="abc"[number % 3]) for number in range(20)]
        found = sorted((record[number] for number in order), key=lambda one: one.order)
        first, second = replayed(sorted(record, key=lambda one: one.order), file), replayed(found, file)
        assert first == second


def shown(sums: ReplaySums) -> tuple[object, ...]:
    return (
        sums.total,
        sums.without_end,
        sums.first_ready,
        sums.recorded,
        sums.simulated,
        sums.policies,
        most_refusing(sums.uses, TOP),
        most_delayed(sums.values, TOP),
    )


def values_with_source(one: BegunAttempt) -> dict[PickupField, str]:
    return {**one.recorded.mail.values, PickupField.LOCAL_IP: one.source}


def at_once(some: Sequence[BegunAttempt]) -> int:
    """The largest number under way at one instant; what ends then has ended."""
    changes = [change for one in some for change in ((one.at, 1), (one.ends_at, -1))]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
