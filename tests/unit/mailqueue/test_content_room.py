"""Room for contents: a bounded number of bytes is held, however many mails the broker hands out."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.every_queue import LOADS_MAX, ContentRoom


async def loaded(room: ContentRoom, size: int, held: list[int]) -> None:
    async with room.load():
        await asyncio.sleep(0)
        room.hold(size)
        held.append(size)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_contents_wait_until_others_are_let_go() -> None:
    """In their order; what is known of the last sizes says whether the next fits."""
    room, held = ContentRoom(1600), list[int]()
    loading = [asyncio.ensure_future(loaded(room, 400, held)) for _ in range(20)]
    await settle()
    first = room.held
    for _ in range(16):
        await settle()
        room.let_go(400)
    await asyncio.gather(*loading)

    assert len(held) == 20
    assert first <= LOADS_MAX * 400
    assert room.held == 4 * 400


async def test_a_content_that_is_larger_than_all_room_comes_alone() -> None:
    """Else it would never come."""
    room, held = ContentRoom(100), list[int]()
    await loaded(room, 1000, held)
    second = asyncio.ensure_future(loaded(room, 1000, held))
    await settle()
    alone = list(held)
    room.let_go(1000)
    await second

    assert (alone, held) == ([1000], [1000, 1000])


async def test_who_gives_up_waiting_takes_no_room() -> None:
    """Before its turn, and at the moment of it."""
    for is_admitted in (False, True):
        room, held = ContentRoom(100), list[int]()
        await loaded(room, 100, held)
        waiting = [asyncio.ensure_future(loaded(room, 100, held)) for _ in range(2)]
        await settle()
        if is_admitted:
            room.let_go(100)
        waiting[0].cancel()
        await settle()
        if not is_admitted:
            room.let_go(100)
        await waiting[1]

        assert held == [100, 100]


@given(st.lists(st.integers(0, 500), max_size=40))
def test_once_the_sizes_are_known_the_bound_holds(sizes: Sequence[int]) -> None:
    """After one of the largest has come, no more is held than the bound, and all come."""
    bound = 1000

    async def story() -> int:
        room, held, most = ContentRoom(bound), list[int](), 0
        await loaded(room, 500, held)
        room.let_go(500)
        loading = [asyncio.ensure_future(loaded(room, size, held)) for size in sizes]
        left = 1
        while not all(load.done() for load in loading):
            await settle()
            most = max(most, room.held)
            if left < len(held):
                room.let_go(held[left])
                left += 1
        return most

    assert asyncio.run(story()) <= bound


async def test_without_a_bound_nothing_waits() -> None:
    """As of commands, which hold what a person asked for."""
    room, held = ContentRoom(), list[int]()
    await asyncio.gather(*(loaded(room, 10**9, held) for _ in range(100)))

    assert len(held) == 100
