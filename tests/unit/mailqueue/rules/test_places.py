"""Places of messages, and what a subscription has acknowledged of them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.places import (
    UNPARTITIONED,
    Backlog,
    MessagePlace,
    PartitionBacklog,
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
