"""When which delayed messages are due, in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.pulsar.moving import DelayedIndex
from mailmend.mailqueue.rules.places import UNPARTITIONED, MessagePlace


def place(entry: int) -> MessagePlace:
    return MessagePlace(UNPARTITIONED, 1, entry)


def test_what_is_due_comes_the_first_due_first_and_once() -> None:
    index = DelayedIndex()
    for entry, due_at in enumerate((30, 10, 20, 40)):
        index.add(place(entry), due_at)
    index.drop([place(2), place(9)])
    assert not index.has_due(9)
    assert index.has_due(10)
    assert index.take_due(30) == [place(1), place(0)]
    assert index.take_due(30) == []
    assert len(index) == 1


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from(("kept", "acknowledged"))), max_size=60))
def test_with_room_for_few_it_finds_each_at_its_time_once_it_is_built_anew(
    messages: list[tuple[int, str]],
) -> None:
    """Whatever its room: what is due and not acknowledged is taken at that time, and nothing twice."""
    left = {place(entry): due_at for entry, (due_at, _) in enumerate(messages)}
    acked = {place(entry) for entry, (_, what) in enumerate(messages) if what == "acknowledged"}
    index = built(left)
    for one in acked:
        index.drop([one])
        del left[one]
    for now in range(21):
        due = {one for one, due_at in left.items() if due_at <= now}
        taken = list[MessagePlace]()
        while index.has_due(now):
            some = [one for one in index.take_due(now) if one not in acked]
            taken += some
            for one in some:
                del left[one]
            if index.is_short(now):
                index = built(left)
        assert set(taken) == due
        assert len(taken) == len(due)
    assert not left


def built(left: dict[MessagePlace, int]) -> DelayedIndex:
    index = DelayedIndex(4)
    for one, due_at in left.items():
        index.add(one, due_at)
        assert len(index) <= 4
    return index
