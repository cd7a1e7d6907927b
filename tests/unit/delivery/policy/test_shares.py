"""Parts of shared limits: together always the limit, each by its place and the counter's turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import LONG_AGO, SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.remembered import SavedRate, policy_names
from mailmend.delivery.policy.shares import NO_SHARE, WHOLE, LimitShare, ServerShare, shared, turn_of
from mailmend.delivery.policy.sub_queues import UNKNOWN, CounterEntry

POLICY = CounterPolicy(
    (PickupField.RECIPIENT_DOMAIN,),
    default=Threshold(7, DeliveryRate(10, 60 * SECOND), connect_interval=4, stop=True),
)
SECOND_OF_THREE = LimitShare(((1, 3),))


@given(limit=st.integers(0, 50), count=st.integers(1, 9), turn=st.integers(0, 2**32 - 1))
def test_all_parts_are_the_limit_and_equal_but_for_one(limit: int, count: int, turn: int) -> None:
    parts = [LimitShare(((number, count),)).of(limit, turn) for number in range(count)]
    assert sum(parts) == limit
    assert max(parts) - min(parts) <= 1


def test_what_is_left_over_goes_to_the_server_whose_turn_it_is_and_to_those_behind_it() -> None:
    assert [LimitShare(((number, 4),)).of(6, 1) for number in range(4)] == [1, 2, 2, 1]


def test_of_several_places_the_least_part_counts_and_of_none_none() -> None:
    both = LimitShare(((0, 2),)).least(LimitShare(((2, 5),)))
    assert (both.places, both.of(10, 0), both.servers) == (((0, 2), (2, 5)), 2, 5)
    assert WHOLE.least(WHOLE) == WHOLE
    assert (WHOLE.least(NO_SHARE), NO_SHARE.least(WHOLE)) == (NO_SHARE, NO_SHARE)
    assert (NO_SHARE.of(10, 3), NO_SHARE.servers) == (0, 0)
    assert (WHOLE.of(10, 3), WHOLE.servers) == (10, 1)


def test_the_turn_of_a_counter_is_the_same_in_every_process_and_release() -> None:
    """Else two servers could both take what is left over."""
    both = CounterPolicy((PickupField.JOB_ID, PickupField.RECIPIENT_DOMAIN))
    found = [turn_of(POLICY, ("one.example",)), turn_of(both, ("", "one.example")), turn_of(both, ("\udce4", "é"))]
    assert found == [17947751, 267785691, 228113219]


def test_a_servers_own_limits_are_its_parts_and_its_connections_as_many_times_further_apart() -> None:
    assert POLICY.default
    own = Threshold(3, DeliveryRate(4, 60 * SECOND), connect_interval=12, stop=True)
    assert shared(POLICY.default, SECOND_OF_THREE, 1) == own
    assert shared(Threshold(connect_interval=4), SECOND_OF_THREE, 1) == Threshold(connect_interval=12)
    assert shared(Threshold(1), SECOND_OF_THREE, 1) == Threshold(1)


@pytest.mark.parametrize(
    ("whole", "share", "turn"),
    [
        (POLICY.default, NO_SHARE, 0),
        (Threshold(connect_interval=4, stop=True), NO_SHARE, 0),
        (Threshold(5, DeliveryRate(1, SECOND), stop=True), SECOND_OF_THREE, 0),
    ],
    ids=["no part", "no part of connections", "no part of the rate"],
)
def test_without_a_part_none_begins(whole: Threshold, share: LimitShare, turn: int) -> None:
    assert shared(whole, share, turn) == Threshold(0, stop=True)


@pytest.mark.parametrize("whole", [Threshold(0), Threshold(3, cluster=False), Threshold()])
def test_what_is_not_shared_is_left_as_it_is(whole: Threshold) -> None:
    assert shared(whole, NO_SHARE, 0) is whole


def test_the_gate_is_open_until_the_instant_that_was_named() -> None:
    share = ServerShare()
    assert share.gate.clear_at() == UNKNOWN
    share.hold_until(10, 5)
    assert share.gate.clear_at() == LONG_AGO
    share.check(9)
    assert share.gate.clear_at() == LONG_AGO
    share.check(10)
    assert share.gate.clear_at() == UNKNOWN
    share.hold_until(10, 10)
    assert share.gate.clear_at() == UNKNOWN


def test_changes_are_counted_and_remembered_as_far_as_they_matter() -> None:
    """What is not spent is as if it had always been so; before the oldest that is remembered there is no part."""
    share = ServerShare()
    assert (share.now, share.number, share.changes) == (NO_SHARE, 0, ((LONG_AGO, NO_SHARE),))
    share.change(WHOLE, 5, spent=False)
    share.change(SECOND_OF_THREE, 7, spent=True)
    assert (share.now, share.number) == (SECOND_OF_THREE, 2)
    assert share.changes == ((LONG_AGO, WHOLE), (7, SECOND_OF_THREE))
    for at in range(8, 108):
        share.change(WHOLE if at % 2 else SECOND_OF_THREE, at, spent=True)
    assert share.number == 102
    assert share.changes[0] == (LONG_AGO, NO_SHARE)
    assert [at for at, _ in share.changes[1:]] == list(range(108 - len(share.changes) + 1, 108))
    assert 16 < len(share.changes) < 40


def entry_of(share: ServerShare, policy: CounterPolicy = POLICY) -> CounterEntry:
    share.know([policy])
    entry = CounterEntry((0, ("one.example",)))
    share.limit_new(entry, policy, RateAlgorithm.SLIDING)
    return entry


def test_a_counter_that_comes_later_has_what_was_gained_spent_when_it_came() -> None:
    share = ServerShare()
    share.change(LimitShare(((0, 2),)), 5, spent=False)
    share.change(WHOLE, 7, spent=True)
    entry = entry_of(share)
    assert (entry.threshold, entry.shared, entry.elsewhere, entry.memory) == (POLICY.default, True, False, None)
    for _ in range(5):
        assert entry.clear_at() <= 8
        entry.rates[0].begin(8)
        entry.rates = entry.rates[:1]
    assert entry.clear_at() == 7 + 60 * SECOND


def test_a_limit_of_which_others_have_all_is_elsewhere() -> None:
    share, policy = ServerShare(), CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(1))
    turn = turn_of(policy, ("one.example",))
    share.change(LimitShare((((turn + 1) % 2, 2),)), 0, spent=False)
    entry = entry_of(share, policy)
    assert (entry.threshold, entry.elsewhere) == (Threshold(0), True)
    share.change(LimitShare(((turn % 2, 2),)), 1, spent=True)
    share.limit(entry, policy, RateAlgorithm.SLIDING, 1)
    assert (entry.threshold, entry.elsewhere) == (Threshold(1), False)
    share.change(NO_SHARE, 2, spent=True)
    closed = entry_of(share, CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(0)))
    assert (closed.shared, closed.elsewhere) == (False, False), "nobody has a part of it"


@pytest.mark.parametrize(("delivering", "fits"), [(3, True), (4, False)])
def test_what_is_under_way_fits_in_a_share_that_is_as_large(delivering: int, *, fits: bool) -> None:
    share, half = ServerShare(), LimitShare(((0, 2),))
    entry = entry_of(share)
    turn = turn_of(POLICY, ("one.example",))
    entry.delivering = delivering + half.of(7, turn) - 3
    assert share.fits(entry, POLICY, half) is fits
    for other in (Threshold(1, cluster=False), Threshold(rate=DeliveryRate(1, SECOND)), None):
        assert share.fits(entry, CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=other), half)


def test_only_long_shared_rates_are_kept_and_only_where_any_are() -> None:
    short = CounterPolicy(POLICY.fields, default=Threshold(rate=DeliveryRate(10, 60 * SECOND - 1)))
    own = CounterPolicy(POLICY.fields, default=Threshold(rate=DeliveryRate(10, 60 * SECOND), cluster=False))
    share = ServerShare()
    share.resume(((LONG_AGO, WHOLE),), 0, {}, 1)
    kept = entry_of(share).memory
    assert kept
    assert kept.name == (policy_names([POLICY])[0], ("one.example",))
    assert entry_of(share, short).memory is None
    assert entry_of(share, own).memory is None


MINUTE = 60 * SECOND
TEN = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(rate=DeliveryRate(10, MINUTE)))
TEN_NAMED = (policy_names([TEN])[0], ("one.example",))


def resumed(saved: SavedRate) -> CounterEntry:
    """The counter of a server that goes on at the instant 0, of which an earlier process left this row."""
    share = ServerShare()
    share.resume(((LONG_AGO, WHOLE),), 1, {TEN_NAMED: saved}, 0)
    return entry_of(share, TEN)


def begun_at(entry: CounterEntry, now: int) -> int:
    """How many the rate lets begin then."""
    (rate,) = entry.rates
    count = 0
    while rate.next_at() <= now:
        rate.begin(now)
        count += 1
    return count


def test_a_rate_goes_on_where_its_row_left_it_with_what_may_have_begun_since() -> None:
    row = SavedRate(RateAlgorithm.SLIDING, DeliveryRate(10, MINUTE), spent=((LONG_AGO, 0), (-5, 4)), ahead=2, number=1)
    entry = resumed(row)

    assert begun_at(entry, 0) == 4
    assert begun_at(entry, MINUTE - 6) == 0
    assert begun_at(entry, MINUTE - 5) == 4


@pytest.mark.parametrize(
    "row",
    [
        SavedRate(RateAlgorithm.TOKEN_BUCKET, DeliveryRate(10, MINUTE), spent=(), ahead=0, number=1),
        SavedRate(RateAlgorithm.SLIDING, DeliveryRate(10, MINUTE), spent=(), ahead=0, number=0),
    ],
    ids=["of another algorithm", "of a share that is forgotten"],
)
def test_a_row_that_cannot_be_followed_counts_as_all_spent_when_the_server_goes_on(row: SavedRate) -> None:
    entry = resumed(row)

    assert begun_at(entry, MINUTE - 1) == 0
    assert begun_at(entry, MINUTE) == 10


def test_a_rate_that_grew_since_its_row_has_gained_what_is_spent_already() -> None:
    row = SavedRate(RateAlgorithm.SLIDING, DeliveryRate(3, MINUTE), spent=((LONG_AGO, 0),), ahead=0, number=1)
    entry = resumed(row)

    assert begun_at(entry, 0) == 3
    assert begun_at(entry, MINUTE) == 10
