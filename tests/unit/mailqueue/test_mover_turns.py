"""Whose turn it is to move a slice of delayed mails, or to flush: one holder, renewed in time, outlived by time."""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rabbitmq.move_due import TTL_SECONDS, MoverTurn, MoverTurns
from mailmend.mailqueue.rabbitmq.view.due_mails import DuePartition
from mailmend.model.catalog.mail_queue import DUE_MAILS
from mailmend.model.errors import DoubtfulWrite, LeaseHeld
from mailmend.model.operations import ChangeIf
from tests.support.queues import HOUR, QUEUE, TwinQueue, all_delivered, delayed
from tests.support.striking import Strike, of


@pytest.mark.parametrize(("delay", "of_another_flush"), [(HOUR / 2, False), (9 * HOUR, True)])
async def test_a_flush_waits_for_the_turn_of_the_dead(
    delay: timedelta, of_another_flush: bool, twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Of a mover or of another flush: it ends by time; one that lives and never lets go is told of."""

    async def turn(turns: MoverTurns) -> AbstractAsyncContextManager[MoverTurn | None]:
        last = [one async for one in twin.due().partitions(QUEUE)][-1]
        return turns.of_flush() if of_another_flush else turns.at_partition(last)

    await delayed(queue, {"a": delay})
    dead = await turn(MoverTurns(twin.tables, twin.clock, QUEUE))
    assert await dead.__aenter__()
    begun = twin.clock.now
    assert (await queue.flush()).count == 1
    assert timedelta(seconds=TTL_SECONDS - 1) < twin.clock.now - begun < timedelta(seconds=TTL_SECONDS + 5)
    await delayed(queue, {"b": delay})
    async with await turn(MoverTurns(twin.tables, twin.clock, QUEUE, ttl_seconds=3600)) as mine:
        assert mine
        with pytest.raises(LeaseHeld, match="mailmend queue flush --queue spool"):
            await queue.flush()
    assert len([one async for one in twin.due().partitions(QUEUE)]) == 1, (
        "what carries the turn of a flush is no partition"
    )


async def test_a_flush_has_one_turn_for_all_that_no_round_looks_at(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """However many slices: two conditional writes, and two more for each slice that begins within the hour."""
    await delayed(queue, {f"{number}": number * HOUR for number in range(2, 40)})
    await delayed(queue, {"soon": HOUR / 2})
    writes = twin.memory.surround = Strike(of(ChangeIf, DUE_MAILS))
    assert (await queue.flush()).count == 39
    assert len(writes.struck) == 4
    assert sorted(await all_delivered(queue)) == sorted(["soon", *map(str, range(2, 40))])


async def a_partition(twin: TwinQueue, queue: RabbitMailQueue) -> tuple[MoverTurns, DuePartition]:
    await delayed(queue, {"a": HOUR})
    (partition,) = [one async for one in twin.due().partitions(QUEUE)]
    return MoverTurns(twin.tables, twin.clock, QUEUE), partition


async def test_a_turn_has_one_holder_until_it_is_given_back(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    turns, partition = await a_partition(twin, queue)
    async with turns.at_partition(partition) as mine:
        assert mine
        async with turns.at_partition(partition) as yours:
            assert yours is None
    async with turns.at_partition(partition) as again:
        assert again


async def test_a_turn_is_renewed_in_time_and_known_to_be_lost(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Half its life is kept as it is; what another holds by now cannot be kept."""
    turns, partition = await a_partition(twin, queue)
    async with turns.at_partition(partition) as mine:
        assert mine
        first = mine.until
        assert await turns.keep(mine)
        assert mine.until == first
        twin.clock.advance(TTL_SECONDS / 2)
        assert await turns.keep(mine)
        assert mine.until > first
        twin.clock.advance(TTL_SECONDS + 1)
        async with turns.at_partition(partition) as other:
            assert other, "it has expired"
            assert not await turns.keep(mine)


@pytest.mark.parametrize("applied", [False, True])
async def test_a_doubtful_turn_is_settled_by_reading(applied: bool, twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The answer to the conditional write was lost: the row tells whose turn it is."""
    turns, partition = await a_partition(twin, queue)
    taking = of(ChangeIf)
    twin.memory.surround = Strike(lambda one: taking(one) and one.assign.get("name"), DoubtfulWrite("no"), applied)
    async with turns.at_partition(partition) as mine:
        assert bool(mine) is applied
