"""What is kept of rates: rows as they are read again, and which counters are to be written when."""

from itertools import pairwise

import pytest

from mailmend.delivery.policy.policy import CounterPolicy, ExactValue, FieldGroup, PickupField
from mailmend.delivery.policy.rates import LONG_AGO, SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.remembered import CounterMemory, KeptRates, SavedRate, policy_names, saved_rate

RATE = DeliveryRate(200, 100 * SECOND)
"""Four may begin before the next row; of what is not urgent a row is due after two seconds."""

SLIDING = RateAlgorithm.SLIDING


def row(ahead: int = 4, *spent: tuple[int, int], rate: DeliveryRate = RATE) -> SavedRate:
    return SavedRate(SLIDING, rate, spent, ahead, 3)


@pytest.fixture
def kept() -> KeptRates:
    return KeptRates()


def memory(kept: KeptRates, domain: str = "one", rate: DeliveryRate = RATE) -> CounterMemory:
    return kept.memory(None, ("policy", (domain,)), (0, (domain,)), SLIDING.state(rate))


def written(kept: KeptRates, domain: str = "one", now: int = 10) -> CounterMemory:
    one = memory(kept, domain)
    one.is_written(saved_rate(one, one.may_begin, 3), one.begun, now)
    return one


def test_a_row_is_read_as_it_was_written() -> None:
    """Also by other releases; and moved to another clock, where what was long ago stays so."""
    one = row(4, (LONG_AGO, 2), (50, 1))
    text = '{"algorithm":"sliding","rate":[200,100000000000],"spent":[[null,2],[50,1]],"ahead":4,"number":3}'
    assert one.encoded() == text
    assert SavedRate.decoded(text) == one
    assert one.moved(lambda at: at + 7) == row(4, (LONG_AGO, 2), (57, 1))


def test_what_may_have_begun_after_a_row_counts_as_begun_as_far_as_the_rate_allows() -> None:
    few = DeliveryRate(3, 100 * SECOND)
    assert row(2, (LONG_AGO, 0), (50, 1), rate=few).state(60).next_at() == 50 + 100 * SECOND, "all three are spent"
    assert row(1, (LONG_AGO, 0), (50, 1), rate=few).state(60).next_at() <= 60
    full = row(4, (LONG_AGO, 0), (50, 2), rate=few).state(60)
    assert sum(many for _, many in full.spent()) == 3, "more could not have begun"
    again = row(4, (LONG_AGO, 0), (50, 3), rate=few).state(50 + 100 * SECOND)
    assert again.next_at() > 50 + 100 * SECOND, "what has its turn at that very instant may have begun"


def test_nothing_begins_before_the_first_row_and_then_as_many_as_it_says(kept: KeptRates) -> None:
    one = memory(kept)
    assert (one.ahead, one.begun, one.saved, one.most, one.may_begin) == (0, 0, -1, 4, 4)
    assert kept.due(0, 9) == [one]
    one.is_written(row(), 0, 10)
    assert (one.ahead, one.saved, one.saved_at, kept.due(10 + 50 * SECOND, 9)) == (4, 0, 10, [])


def test_what_began_while_a_row_was_written_is_ahead_of_it(kept: KeptRates) -> None:
    one = written(kept)
    one.begin()
    begun = one.begun
    one.begin()
    one.is_written(row(), begun, 20)
    assert (one.begun, one.saved, one.ahead) == (2, 1, 3)
    assert list(kept.changed) == [one], "the second is in no row"


def test_a_row_is_due_at_once_where_half_is_left_and_else_after_a_while(kept: KeptRates) -> None:
    one, other = written(kept), written(kept, "two", now=SECOND)
    one.begin()
    other.begin()
    assert kept.due(10 + 2 * SECOND - 1, 9) == []
    assert kept.due(10 + 2 * SECOND, 9) == [one]
    assert kept.due(3 * SECOND, 9) == [one, other]
    other.begin()
    assert (other.ahead, kept.due(3 * SECOND, 9), kept.due(20, 9)) == (2, [other, one], [other])
    other.is_written(row(), 2, 20)
    one.is_written(row(), 1, 20)
    assert kept.due(50 * SECOND, 9) == []
    assert not kept.changed


def test_first_come_those_under_which_least_may_begin(kept: KeptRates) -> None:
    some = [written(kept, domain) for domain in "abc"]
    for one, times in zip(some, (2, 4, 3), strict=True):
        for _ in range(times):
            one.begin()
    assert [one.name[1][0] for one in kept.due(20, 9)] == ["b", "c", "a"]
    assert [one.name[1][0] for one in kept.due(20, 2)] == ["b", "c"]
    assert all(one.ahead <= other.ahead for one, other in pairwise(kept.due(20, 9)))


def test_of_a_counter_that_is_gone_the_row_says_so(kept: KeptRates) -> None:
    """Where there is one; and written again until it lets none begin."""
    one, never = written(kept), memory(kept, "two")
    one.begin()
    one.begin()
    never.forget()
    assert (kept.living, kept.closing, kept.due(20, 9)) == ({one.name: one}, {}, [one])
    one.forget()
    assert (kept.living, kept.closing, kept.unsaved, kept.changed) == ({}, {one.name: one}, {}, {})
    assert (one.may_begin, kept.due(20, 9)) == (0, [one])
    one.is_written(row(4), 2, 30)
    assert kept.closing == {one.name: one}, "that row was made before it went"
    one.is_written(row(0), 2, 40)
    assert (kept.closing, one.ahead) == ({}, 2)


def test_a_counter_that_went_before_its_first_row_was_there_is_closed_then(kept: KeptRates) -> None:
    one = memory(kept)
    one.forget()
    assert kept.closing == {}
    one.is_written(row(4), 0, 10)
    assert kept.closing == {one.name: one}


def test_a_counter_that_comes_again_has_the_row_of_the_one_before(kept: KeptRates) -> None:
    """What is said of the one before then changes nothing."""
    before = written(kept)
    before.begin()
    before.forget()
    one = memory(kept)
    assert (kept.closing, kept.living, kept.due(20, 9)) == ({}, {one.name: one}, [one])
    before.is_written(row(4), 1, 20)
    assert (kept.closing, kept.living) == ({}, {one.name: one})
    before.forget()
    assert kept.living == {one.name: one}


def test_a_rate_that_changed_is_written_before_anything_begins_under_it(kept: KeptRates) -> None:
    one, other = written(kept), DeliveryRate(20, 100 * SECOND)
    assert kept.memory(one, one.name, (4, ("one",)), SLIDING.state(RATE)) is one
    assert (one.place, one.ahead, kept.due(20, 9)) == ((4, ("one",)), 4, [])
    changed = kept.memory(one, one.name, one.place, SLIDING.state(other))
    assert (changed is one, one.most, one.ahead, one.rate, kept.due(20, 9)) == (True, 1, 0, other, [one])
    one.is_written(row(), 0, 20)
    assert (one.ahead, kept.due(20, 9)) == (0, [one]), "that row was of the rate before"


def test_what_another_process_kept_is_not_gone_on_with(kept: KeptRates) -> None:
    one, anew = written(kept), KeptRates()
    found = anew.memory(one, one.name, one.place, one.state)
    assert (found is one, found.ahead, anew.living) == (False, 0, {one.name: found})
    assert (found.state, found.place) == (one.state, one.place)


def test_policies_have_the_same_names_in_every_process_and_release() -> None:
    """By what they count by, whatever their limits and their order; those that count alike have numbers."""
    fields = (PickupField.RECIPIENT_DOMAIN, PickupField.JOB_ID)
    groups = {PickupField.JOB_ID: (FieldGroup("bulk", (ExactValue("a"),)),)}
    some = [CounterPolicy(fields), CounterPolicy(fields[::-1]), CounterPolicy(fields, groups), CounterPolicy(fields)]
    names = policy_names(some)
    assert names == ("aeaec588d5c0d336-0", "bcb91018737498e0-0", "6390e9fc3e3a2f06-0", "aeaec588d5c0d336-1")
    assert policy_names(some[1:]) == (*names[1:3], names[0])
