"""How long findings have been left: what of them is known again, and since when."""

import random

from hypothesis import given
from hypothesis import strategies as st

from mailmend.repair.decisions.left_sample import LEFT_SAMPLE, SAMPLED, LeftSample, first_seen, oldest

KEYS = st.sets(st.integers(0, 2_000), max_size=600)


def sample(keys: set[int] | range) -> LeftSample:
    found = LeftSample()
    for key in keys:
        found.add("AMEND", "messageIdTable", (key,))
    return found


@given(KEYS, st.randoms(use_true_random=False))
def test_a_sample_does_not_depend_on_the_order_and_holds_no_more_than_it_may(
    keys: set[int], chance: random.Random
) -> None:
    shuffled = list(keys)
    chance.shuffle(shuffled)
    other = LeftSample()
    for key in [*shuffled, *shuffled[:5]]:
        other.add("AMEND", "messageIdTable", (key,))

    assert other.keys == sample(keys).keys
    assert len(other.keys.get("AMEND", [])) == min(SAMPLED, len(keys))


def test_a_finding_has_the_same_hash_in_every_release() -> None:
    """16 hexadecimal digits: the ledger keeps them from run to run, under one name."""
    assert sample({7}).keys == {"AMEND": ["11643d8012ea13c6"]}
    assert LEFT_SAMPLE == "left_sample"


def test_a_sample_holds_the_two_hundred_smallest_hashes_in_order() -> None:
    hashes = sorted(sample({key}).keys["AMEND"][0] for key in range(300))

    assert sample(range(300)).keys == {"AMEND": hashes[:200]}


def test_verdicts_and_projections_are_sampled_apart() -> None:
    found = LeftSample()
    for verdict, projection in (("AMEND", "firstUnseen"), ("AMEND", "messageIdTable"), ("LEAK", "messageV3")):
        found.add(verdict, projection, (1,))

    assert {verdict: len(hashes) for verdict, hashes in found.keys.items()} == {"AMEND": 2, "LEAK": 1}


@given(KEYS, KEYS)
def test_what_is_merged_is_the_sample_of_all(some: set[int], others: set[int]) -> None:
    before = sample(some).keys

    assert sample(some).merged(sample(others)).keys == sample(some | others).keys
    assert sample(some).keys == before


@given(KEYS, st.sets(st.integers(0, 2_000), max_size=50))
def test_of_many_the_same_are_known_again(keys: set[int], mended: set[int]) -> None:
    """What is mended makes room, and nothing that stays leaves the sample."""
    first, second = (set(sample(some).keys.get("AMEND", [])) for some in (keys, keys - mended))

    assert first & set(sample(set(range(2_001)) - mended).keys["AMEND"]) <= second
    assert len(first - second) <= len(mended)


@given(st.lists(st.sets(st.sampled_from("abcd")), min_size=1, max_size=8))
def test_a_finding_is_as_old_as_the_runs_in_a_row_that_left_it(runs: list[set[str]]) -> None:
    seen: dict[str, dict[str, float]] = {}
    for at, left in enumerate(runs):
        found = LeftSample()
        for one in left:
            found.add("AMEND", "messageIdTable", one)
        seen = {
            verdict: dict(times)
            for verdict, times in first_seen(["AMEND"] if left else [], found.keys, seen, at).items()
        }

    in_a_row = {one: next(i for i in range(len(runs)) if all(one in run for run in runs[i:])) for one in runs[-1]}
    assert oldest(seen) == ({"AMEND": min(in_a_row.values())} if in_a_row else {})


def test_where_a_run_does_not_say_which_it_left_the_verdict_counts() -> None:
    seen = first_seen(["COLLECT"], {}, first_seen(["COLLECT"], {}, {}, 1.0), 2.0)

    assert seen == {"COLLECT": {"": 1.0}}
    assert oldest(seen) == {"COLLECT": 1.0}


def test_a_finding_that_comes_new_is_as_old_as_its_run_and_the_oldest_counts() -> None:
    seen = first_seen(["AMEND"], {"AMEND": ["a", "b"]}, {"AMEND": {"a": 1.0, "gone": 0.5}}, 2.0)

    assert seen == {"AMEND": {"a": 1.0, "b": 2.0}}
    assert oldest(seen) == {"AMEND": 1.0}
