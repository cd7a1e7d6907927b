"""Of each sub-queue a bounded number of mails is in hand, and each one has its first mail there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.backlogs import FIRST_MAILS, SubQueueName, Windows
from mailmend.model.errors import BadPayload

ROOM = 100
JAMMED = SubQueueName("", "jammed.example")
FREE = SubQueueName("", "free.example")
TEXTS = st.text(max_size=8)
NAMES = st.builds(SubQueueName, st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y", "z"]))


def filled(*names: SubQueueName, room: int = ROOM) -> Windows:
    """Windows that take every mail that they admit, of each of these sub-queues."""
    windows = Windows(room)
    for name in names:
        while windows.admits(name):
            windows.take(name)
    return windows


@given(TEXTS, TEXTS)
def test_a_name_is_the_same_after_its_table(tenant: str, rest: str) -> None:
    name = SubQueueName(tenant, rest)
    assert SubQueueName.of(name.text) == name


def test_a_name_can_be_read_by_people_in_its_table() -> None:
    assert SubQueueName("acmé", "a.example").text == '["acmé", "a.example"]'


@pytest.mark.parametrize("text", ["", "x", "[]", '["a"]', '["a", 1]', '["a", "b", "c"]', '{"a": 1, "b": 2}', "null"])
def test_another_text_is_no_name(text: str) -> None:
    with pytest.raises(BadPayload):
        SubQueueName.of(text)


def test_one_sub_queue_has_nine_sixteenths_of_the_room() -> None:
    assert filled(JAMMED).in_hand(JAMMED) == 57


def test_a_sub_queue_that_comes_later_has_room_beside_one_that_is_full() -> None:
    windows = filled(JAMMED, FREE)
    assert windows.in_hand(FREE) == 18


def test_a_sub_queue_has_its_first_mail_in_hand_however_full_the_room_is() -> None:
    others = [SubQueueName("", f"{number}.example") for number in range(ROOM)]
    windows = filled(JAMMED, *others)
    assert windows.admits(FREE)


def test_a_tenant_with_many_sub_queues_leaves_room_for_another_tenant() -> None:
    many = [SubQueueName("a", f"{number}.example") for number in range(20 * ROOM)]
    windows = filled(*many)
    assert windows.total < FIRST_MAILS * ROOM
    assert windows.admits(SubQueueName("b", "x"))


def test_a_mail_waits_behind_the_mails_of_its_backlog() -> None:
    windows = Windows(ROOM)
    windows.begin_backlog(JAMMED)
    assert not windows.admits(JAMMED)
    windows.end_backlog(JAMMED)
    assert windows.admits(JAMMED)


def test_a_backlog_is_asked_for_mails_once_half_of_the_share_has_left() -> None:
    windows = filled(JAMMED)
    windows.begin_backlog(JAMMED)
    wanted = []
    for _ in range(57):
        windows.leave(JAMMED)
        wanted.append(windows.wanted(JAMMED))
    assert wanted[:28] == [0] * 28
    assert wanted[28] == 29
    assert wanted[-1] == 57


def test_a_half_that_is_whole_suffices_to_ask() -> None:
    windows = filled(JAMMED, room=10)
    windows.begin_backlog(JAMMED)
    for _ in range(3):
        assert windows.wanted(JAMMED) == 0
        windows.leave(JAMMED)
    assert (windows.in_hand(JAMMED), windows.wanted(JAMMED)) == (3, 3)


def test_backlogs_take_turns() -> None:
    windows = Windows(ROOM)
    windows.begin_backlog(JAMMED)
    windows.begin_backlog(FREE)
    assert [windows.next_backlog() for _ in range(3)] == [JAMMED, FREE, JAMMED]
    assert Windows(ROOM).next_backlog() is None


@given(st.lists(st.tuples(st.sampled_from(["take", "leave", "begin", "end"]), NAMES), max_size=60), st.integers(1, 9))
def test_windows_are_bounded_and_come_back_to_nothing(steps: list[tuple[str, SubQueueName]], room: int) -> None:
    windows = Windows(room)
    in_hand = list[SubQueueName]()
    for step, name in steps:
        if step == "take" and windows.admits(name):
            windows.take(name)
            in_hand.append(name)
        if step == "leave" and name in in_hand:
            windows.leave(name)
            in_hand.remove(name)
        if step == "begin":
            windows.begin_backlog(name)
        if step == "end":
            windows.end_backlog(name)
        assert windows.in_hand(name) == in_hand.count(name)
        assert windows.in_hand(name) <= room
        assert windows.wanted(name) <= windows.space(name)
        assert windows.total == len(in_hand) <= FIRST_MAILS * room + len({one.tenant for one in in_hand})
    for name in in_hand:
        windows.leave(name)
    assert windows == Windows(room, _backlogs=windows._backlogs)
