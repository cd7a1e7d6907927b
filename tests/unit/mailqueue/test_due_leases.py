"""Whose turn it is to move a slice of delayed mails, or to flush: one holder, renewed in time, outlived by time."""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from mailqueue.maintenance.move_due import TTL_SECONDS, DueLease, DueLeases
from mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailqueue.rabbitmq.view.due_mails import DuePartition
from model.catalog.mail_queue import DUE_MAILS
from model.errors import DoubtfulWrite, LeaseHeld
from model.operations import ChangeIf
from tests.support.queues import HOUR, QUEUE, TwinQueue, all_delivered, delayed
from tests.support.striking import Strike, of


@pytest.mark.parametrize(("delay", "of_another_flush"), [(HOUR / 2, False), (9 * HOUR, True)])
async def test_a_flush_waits_for_the_lease_of_the_dead(
    delay: timedelta, of_another_flush: bool, twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Of a mover or of another flush: it ends by time; one that lives and never lets go is told of."""

    async def turn(leases: DueLeases) -> AbstractAsyncContextManager[DueLease | None]:
        last = [one async for one in twin.due().partitions(QUEUE)][-1]
        return leases.turn_of_flush() if of_another_flush else leases.turn(last)

    await delayed(queue, {"a": delay})
    dead = await turn(DueLeases(twin.tables, twin.clock, QUEUE))
    assert await dead.__aenter__()
    begun = twin.clock.now
    assert await queue.flush() == 1
    assert timedelta(seconds=TTL_SECONDS - 1) < twin.clock.now - begun < timedelta(seconds=TTL_SECONDS + 5)
    await delayed(queue, {"b": delay})
    async with await turn(DueLeases(twin.tables, twin.clock, QUEUE, ttl_seconds=3600)) as lease:
        assert lease
        with pytest.raises(LeaseHeld, match="mailmend queue flush --queue spool"):
            await queue.flush()
    assert len([one async for one in twin.due().partitions(QUEUE)]) == 1, (
        "what carries the lease of a flush is no partition"
    )


async def test_a_flush_has_one_lease_for_all_that_no_round_looks_at(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """However many slices: two conditional writes, and two more for each slice that begins within the hour."""
    await delayed(queue, {f"{number}": number * HOUR for number in range(2, 40)})
    await delayed(queue, {"soon": HOUR / 2})
    leases = twin.memory.surround = Strike(of(ChangeIf, DUE_MAILS))
    assert await queue.flush() == 39
    assert len(leases.struck) == 4
    assert sorted(await all_delivered(queue)) == sorted(["soon", *map(str, range(2, 40))])


async def a_partition(twin: TwinQueue, queue: RabbitMailQueue) -> tuple[DueLeases, DuePartition]:
    await delayed(queue, {"a": HOUR})
    (partition,) = [one async for one in twin.due().partitions(QUEUE)]
    return DueLeases(twin.tables, twin.clock, QUEUE), partition


async def test_a_lease_has_one_holder_until_it_is_given_back(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    leases, partition = await a_partition(twin, queue)
    async with leases.turn(partition) as mine:
        assert mine
        async with leases.turn(partition) as yours:
            assert yours is None
    async with leases.turn(partition) as again:
        assert again


async def test_a_lease_is_renewed_in_time_and_known_to_be_lost(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Half its life is kept as it is; what another holds by now cannot be kept."""
    leases, partition = await a_partition(twin, queue)
    async with leases.turn(partition) as lease:
        assert lease
        first = lease.until
        assert await leases.keep(lease)
        assert lease.until == first
        twin.clock.advance(TTL_SECONDS / 2)
        assert await leases.keep(lease)
        assert lease.until > first
        twin.clock.advance(TTL_SECONDS + 1)
        async with leases.turn(partition) as other:
            assert other, "it has expired"
            assert not await leases.keep(lease)


@pytest.mark.parametrize("applied", [False, True])
async def test_a_doubtful_lease_is_settled_by_reading(applied: bool, twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The answer to the conditional write was lost: the row tells whose turn it is."""
    leases, partition = await a_partition(twin, queue)
    taking = of(ChangeIf)
    twin.memory.surround = Strike(lambda one: taking(one) and one.assign.get("name"), DoubtfulWrite("no"), applied)
    async with leases.turn(partition) as lease:
        assert bool(lease) is applied
