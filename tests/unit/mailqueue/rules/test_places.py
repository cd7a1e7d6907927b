"""Places of messages, and what a subscription has acknowledged of them."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.places import (
    BEFORE_ALL,
    UNPARTITIONED,
    Backlog,
    MessagePlace,
    PartitionBacklog,
    TopicPlace,
    position_of,
    stretches_of,
)
from mailmend.model.errors import BadPayload

PARTITION = PartitionBacklog((5, 1), stretches_of("[(5:3..5:5],(5:7..6:2]]"), (6, 9), count=7)


def test_a_place_is_written_as_pulsar_and_james_do() -> None:
    assert str(MessagePlace(UNPARTITIONED, 14, 26)) == "14:26:-1"
    assert MessagePlace.parse("14:26:-1") == MessagePlace(UNPARTITIONED, 14, 26)


@given(st.integers(-1, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(-1, 2**63 - 1))
@example(10**9, 0, 0)
@example(2**31 - 1, 2**63 - 1, 2**63 - 1)
def test_every_place_is_read_back(partition: int, ledger: int, entry: int) -> None:
    place = MessagePlace(partition, ledger, entry)
    assert MessagePlace.parse(str(place)) == place


@pytest.mark.parametrize("text", ["", "1:2", "1:2:3:4", "a:b:c", "1:2:x", " 1:2:3", "-1:2:3"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadPayload):
        MessagePlace.parse(text)


def test_what_is_acknowledged_is_read_from_the_admin_api() -> None:
    assert position_of("5:-1") == (5, -1)
    assert stretches_of("[]") == ()
    assert stretches_of("[(5:1..5:2],(5:3..7:0]]") == (((5, 1), (5, 2)), ((5, 3), (7, 0)))


@pytest.mark.parametrize(
    ("position", "held"),
    [((5, 1), False), ((5, 2), True), ((5, 3), True), ((5, 4), False), ((5, 5), False), ((5, 6), True)],
)
def test_stretches_begin_behind_their_first_position(position: tuple[int, int], held: bool) -> None:
    assert PARTITION.holds(position) is held


def test_a_stretch_may_go_over_ledgers() -> None:
    assert PARTITION.acked_until((5, 99)) == (6, 2)
    assert PARTITION.acked_until((6, 0)) == (6, 2)
    assert PARTITION.holds((6, 3))
    assert PARTITION.acked_until((4, 0)) is None


def test_a_backlog_is_that_of_all_partitions() -> None:
    backlog = Backlog({0: PARTITION, 1: PartitionBacklog((1, 0), (), (1, 4), 4, unacked=2, consumers=3)})
    assert (backlog.count, backlog.unacked, backlog.consumers) == (11, 2, 3)
    places = [MessagePlace(0, 5, 4), MessagePlace(1, 1, 4), MessagePlace(2, 1, 4)]
    assert backlog.held(places) == places[1:2]
    assert Backlog().count == Backlog().consumers == 0


def test_pulsars_earliest_message_id_is_before_the_first_message_of_a_partition() -> None:
    assert position_of("-1:-1") == BEFORE_ALL
    assert PartitionBacklog(BEFORE_ALL, (), (0, 0), count=1).holds((0, 0))


def test_places_stand_by_topic_partition_ledger_and_entry() -> None:
    places = [MessagePlace(0, 9, 9), MessagePlace(1, 2, 9), MessagePlace(1, 10, 0), MessagePlace(1, 10, 1)]
    in_topics = [TopicPlace("a", places[3]), *(TopicPlace("b", place) for place in places)]

    assert sorted(set(places)) == places
    assert sorted(set(in_topics)) == in_topics


def test_a_partition_of_which_nothing_was_counted_counts_nothing() -> None:
    """Given only positions, every figure of the backlog is zero and no partition is missing."""
    backlog = Backlog({0: PartitionBacklog((5, 1), (), (6, 9))})

    figures = (backlog.count, backlog.unacked, backlog.consumers, backlog.added, backlog.consumed, backlog.stretches)
    assert figures == (0, 0, 0, 0, 0, 0)
    assert backlog.partitions[0].writes_to == 0
    assert backlog.missing == ()


def test_traffic_is_summed_over_partitions_and_stretches_are_those_of_the_worst_one() -> None:
    """A broker limits the stretches of each partition by itself."""
    quiet = PartitionBacklog((1, 0), stretches_of("[(1:2..1:3]]"), (1, 4), added=30, consumed=28)
    backlog = Backlog({0: replace(PARTITION, added=400, consumed=300), 1: quiet})

    assert (backlog.added, backlog.consumed, backlog.stretches) == (430, 328, 2)
    assert (Backlog().added, Backlog().consumed, Backlog().stretches) == (0, 0, 0)


@pytest.mark.parametrize(
    ("count", "added", "consumed", "least"), [(7, 400, 394, 6), (5, 400, 394, 5), (0, 400, 394, 0), (7, 400, 393, 7)]
)
def test_of_two_counts_that_traffic_moves_apart_the_smaller_one_is_sure(
    count: int, added: int, consumed: int, least: int
) -> None:
    assert replace(PARTITION, count=count, added=added, consumed=consumed).count_at_least == least


@pytest.mark.parametrize(
    ("acked_to", "count", "done_to"),
    [((5, 1), 1, (5, 1)), ((5, 1), 0, (6, 9)), ((7, -1), 0, (7, -1)), ((7, -1), 1, (7, -1))],
)
def test_a_partition_is_done_to_its_end_only_where_nothing_is_left(
    acked_to: tuple[int, int], count: int, done_to: tuple[int, int]
) -> None:
    assert replace(PARTITION, acked_to=acked_to, count=count).done_to == done_to


@pytest.mark.parametrize(
    ("later", "follows"),
    [
        (PARTITION, True),
        (replace(PARTITION, acked_to=(5, 2)), True),
        (replace(PARTITION, acked_to=(5, 0)), False),
        (replace(PARTITION, writes_to=7), False),
        (replace(PARTITION, writes_to=7, acked_to=(5, 2)), False),
    ],
    ids=["the same", "more is acknowledged", "it was set back", "another broker", "another broker, and more"],
)
def test_acknowledgements_are_sure_to_stand_only_under_the_same_broker_and_without_a_setback(
    later: PartitionBacklog, follows: bool
) -> None:
    """One partition of two is enough to make all of it doubtful."""
    before = Backlog({0: PARTITION, 1: PARTITION})

    assert Backlog({0: PARTITION, 1: later}).follows(before) is follows
    assert Backlog({0: later, 1: PARTITION}).follows(before) is follows


def test_a_partition_that_was_not_there_before_makes_acknowledgements_doubtful() -> None:
    two = Backlog({0: PARTITION, 1: PARTITION})
    one = Backlog({0: PARTITION})

    assert not two.follows(one)
    assert one.follows(two)
    assert Backlog().follows(two)


def test_a_cut_between_two_looks_holds_what_was_left_at_the_first_and_what_came_until_the_second() -> None:
    """The later look tells the end of each partition; it does not take back what was left before."""
    first = Backlog({0: PARTITION, 1: replace(PARTITION, count=2)}, missing=(2,))
    second = Backlog({0: PartitionBacklog((8, 0), (), (8, 3)), 1: PartitionBacklog((6, 9), (), (6, 9))})

    cut = first.until(second)

    assert cut == Backlog({0: replace(PARTITION, last=(8, 3)), 1: replace(PARTITION, count=2)}, missing=(2,))


def test_a_backlog_of_some_messages_has_gaps_only_between_messages_that_do_not_touch() -> None:
    """In whichever order they are named, and each once."""
    partition = [MessagePlace(0, 6, 0), MessagePlace(0, 5, 3), MessagePlace(0, 5, 2), MessagePlace(0, 6, 0)]

    backlog = Backlog.of([*partition, MessagePlace(3, 1, 0)])

    assert backlog == Backlog(
        {0: PartitionBacklog((5, 1), (((5, 3), (6, -1)),), (6, 0), 3), 3: PartitionBacklog((1, -1), (), (1, 0), 1)}
    )


@given(st.sets(st.tuples(st.integers(-1, 2), st.integers(1, 3), st.integers(0, 6))))
def test_a_backlog_of_some_messages_holds_these_alone(places: set[tuple[int, int, int]]) -> None:
    wanted = {MessagePlace(*one) for one in places}
    backlog = Backlog.of(wanted)
    for partition in range(-1, 3):
        for ledger in range(1, 4):
            for entry in range(7):
                one = MessagePlace(partition, ledger, entry)
                known = backlog.partitions.get(partition)
                assert (known is not None and one.position <= known.last and known.holds(one.position)) == (
                    one in wanted
                )
    assert backlog.count == len(wanted)
