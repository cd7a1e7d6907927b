"""What every message broker does: the twin, and a real RabbitMQ with classic and with quorum queues."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from operator import methodcaller

import pytest

from mailmend.mailqueue.broker import ATTEMPTS_HEADER, SLICE_HEADER, Broker, Depth, Message
from mailmend.mailqueue.rabbitmq.broker.settings import Form, QueueForm
from mailmend.mailqueue.rules.mails import PRIORITIES, PRIORITY_NORMAL
from mailmend.model.errors import BrokerUnreachable, WrongUse
from mailmend.model.ids import QueueName
from tests.support.broker_scenes import Scene, memory_scene, rabbit_scene, soon, taken

SPOOL = QueueName("spool")
ONE = Message(b'{"enqueueId":"1"}', {SLICE_HEADER: 1_790_000_000_000, ATTEMPTS_HEADER: 2, "x-ours": "\u00fc"})
HIGHEST, LOWEST = max(PRIORITIES), min(PRIORITIES)

_RABBIT = pytest.mark.broker


@pytest.fixture(
    params=[
        "memory",
        pytest.param("quorum", marks=_RABBIT),
        pytest.param("classic", marks=[_RABBIT, pytest.mark.thorough]),
    ]
)
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with _scene(request, None) as scene:
        yield scene


@pytest.fixture(params=["memory", pytest.param("quorum", marks=_RABBIT)])
async def limited(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with _scene(request, 2) as scene:
        yield scene


def _scene(request: pytest.FixtureRequest, limit: int | None) -> AbstractAsyncContextManager[Scene]:
    if request.param == "memory":
        return memory_scene(limit)
    form = QueueForm(Form(request.param), delivery_limit=limit)
    return rabbit_scene(request.getfixturevalue("rabbitmq"), request.getfixturevalue("vhost"), form)


def message(number: int) -> Message:
    return Message(b"%d" % number)


async def publish(broker: Broker, count: int, priority: int = PRIORITY_NORMAL) -> None:
    for number in range(count):
        await broker.publish(SPOOL, message(number), priority)


async def all_in_hand(broker: Broker) -> None:
    async def nothing_waits() -> bool:
        return (await broker.depth(SPOOL)).ready == 0

    await soon(nothing_waits)


async def wait_for(broker: Broker, *, ready: int, dead: int = 0) -> Depth:
    async def counted() -> Depth | None:
        depth = await broker.depth(SPOOL)
        return depth if (depth.ready, depth.dead) == (ready, dead) else None

    found = await soon(counted)
    assert found is not None
    return found


async def test_it_tells_its_name_and_version(scene: Scene) -> None:
    assert len((await scene.client().product()).split()) > 1


# Delivering


async def test_what_is_published_is_delivered_with_our_headers_and_no_others(scene: Scene) -> None:
    """Body and own headers come as they went; James's and the library's are not among them."""
    broker = scene.client()
    await broker.publish(SPOOL, ONE)

    async with broker.deliveries(SPOOL, 5) as deliveries:
        (found,) = await taken(deliveries, 1)

        assert (found.message.body, dict(found.message.headers)) == (ONE.body, dict(ONE.headers))
        assert (found.redelivered, found.dead_lettered, found.priority) == (False, False, PRIORITY_NORMAL)
        await found.ack()


@pytest.mark.parametrize("body", [b"", b"\x00\xff" * 3, b"x" * 300_000], ids=["none", "no text", "of several frames"])
async def test_a_body_is_any_bytes(body: bytes, scene: Scene) -> None:
    await scene.client().publish(SPOOL, Message(body))

    async with scene.client().deliveries(SPOOL, 1) as deliveries:
        assert (await taken(deliveries, 1))[0].message == Message(body)


async def test_messages_come_in_the_order_of_their_publishing(scene: Scene) -> None:
    broker = scene.client()
    await publish(broker, 20)

    async with broker.deliveries(SPOOL, 7) as deliveries:
        found = []
        for _ in range(20):
            (one,) = await taken(deliveries, 1)
            found.append(int(one.message.body))
            await one.ack()

    assert found == list(range(20))


async def test_a_consumer_waits_for_what_is_published_later(scene: Scene) -> None:
    broker = scene.client()
    async with broker.deliveries(SPOOL, 5) as deliveries:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(deliveries), 0.01)
        waiting = asyncio.create_task(taken(deliveries, 1))
        await broker.publish(SPOOL, ONE)
        assert (await waiting)[0].message == ONE


async def test_many_publish_at_once(scene: Scene) -> None:
    broker, other = scene.client(), scene.client()
    async with asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task((broker, other)[number % 2].publish(SPOOL, message(number)))

    async with broker.deliveries(SPOOL, 64) as deliveries:
        assert {int(one.message.body) for one in await taken(deliveries, 64)} == set(range(64))


# Settling


async def test_what_is_acked_is_gone(scene: Scene) -> None:
    broker = scene.client()
    await publish(broker, 2)
    async with broker.deliveries(SPOOL, 5) as deliveries:
        first, _ = await taken(deliveries, 2)
        await first.ack()

    await wait_for(broker, ready=1)
    async with broker.deliveries(SPOOL, 5) as deliveries:
        assert [one.message for one in await taken(deliveries, 1)] == [message(1)]


async def test_what_is_requeued_comes_again(scene: Scene) -> None:
    broker = scene.client()
    await broker.publish(SPOOL, ONE)
    async with broker.deliveries(SPOOL, 5) as deliveries:
        (first,) = await taken(deliveries, 1)
        await first.requeue()
        (second,) = await taken(deliveries, 1)

        assert (second.message, second.redelivered, second.dead_lettered) == (ONE, True, False)
        await second.ack()
    await wait_for(broker, ready=0)


async def test_a_delivery_is_settled_once(scene: Scene) -> None:
    broker = scene.client()
    await broker.publish(SPOOL, ONE)
    async with broker.deliveries(SPOOL, 5) as deliveries:
        (found,) = await taken(deliveries, 1)
        await found.ack()
        with pytest.raises(AssertionError, match="once"):
            await found.requeue()


@pytest.mark.parametrize("priority", [PRIORITY_NORMAL, HIGHEST])
async def test_a_dead_letter_waits_beside_the_queue(priority: int, scene: Scene) -> None:
    """Those of all levels come together, with what they were published with, and tell where they died."""
    broker = scene.client()
    await broker.publish(SPOOL, ONE, priority)
    async with broker.deliveries(SPOOL, 5, [priority]) as deliveries:
        (found,) = await taken(deliveries, 1)
        await found.dead_letter()
    await wait_for(broker, ready=0, dead=1)

    async with broker.dead_letters(SPOOL, 5) as letters:
        (dead,) = await taken(letters, 1)
        assert (dead.message, dead.dead_lettered, dead.redelivered) == (ONE, True, False)
        assert dead.priority == priority
        await dead.ack()
    await wait_for(broker, ready=0, dead=0)


async def test_a_dead_letter_that_is_requeued_stays_one(scene: Scene) -> None:
    broker = scene.client()
    await dead_letter(broker)
    async with broker.dead_letters(SPOOL, 5) as letters:
        await (await taken(letters, 1))[0].requeue()
        (again,) = await taken(letters, 1)
        assert (again.redelivered, again.dead_lettered) == (True, True)
    await wait_for(broker, ready=0, dead=1)


async def test_a_dead_letter_cannot_die_again(scene: Scene) -> None:
    """Dead-lettered once more it is gone: James's dead letter queue has no other behind it."""
    broker = scene.client()
    await dead_letter(broker)
    async with broker.dead_letters(SPOOL, 5) as letters:
        await (await taken(letters, 1))[0].dead_letter()
    await wait_for(broker, ready=0, dead=0)


async def test_dead_letters_of_a_queue_that_nobody_used(scene: Scene) -> None:
    broker = scene.client()
    async with broker.dead_letters(SPOOL, 5) as letters:
        await dead_letter(broker)
        assert (await taken(letters, 1))[0].message == ONE


async def test_what_comes_back_too_often_is_dead_lettered(limited: Scene) -> None:
    broker = limited.client()
    await broker.publish(SPOOL, ONE)
    async with broker.deliveries(SPOOL, 5) as deliveries:
        for _ in range(3):
            await (await taken(deliveries, 1))[0].requeue()
        await wait_for(broker, ready=0, dead=1)
    async with broker.dead_letters(SPOOL, 5) as letters:
        assert (await taken(letters, 1))[0].dead_lettered


# Prefetch, levels, several consumers


async def test_no_more_than_the_prefetch_is_unacked(scene: Scene) -> None:
    broker = scene.client()
    await publish(broker, 10)
    async with broker.deliveries(SPOOL, 3) as deliveries:
        first, *_ = await taken(deliveries, 3)
        next_one = asyncio.create_task(taken(deliveries, 1))
        await wait_for(broker, ready=7)
        assert not next_one.done()

        await first.ack()
        assert (await next_one)[0].message == message(3)


async def test_the_prefetch_is_of_each_level(scene: Scene) -> None:
    broker = scene.client()
    for level in (LOWEST, PRIORITY_NORMAL, HIGHEST):
        await publish(broker, 4, level)
    async with broker.deliveries(SPOOL, 2) as deliveries:
        found = await taken(deliveries, 6)
        assert Counter(one.priority for one in found) == {LOWEST: 2, PRIORITY_NORMAL: 2, HIGHEST: 2}
        await wait_for(broker, ready=6)


async def test_levels_have_turns_by_weight(scene: Scene) -> None:
    """Of what is in hand the highest level has ten turns for each one of the lowest, and the lowest has its one."""
    broker = scene.client()
    await publish(broker, 20, LOWEST)
    await publish(broker, 20, HIGHEST)

    async def drained() -> bool:
        async with broker.deliveries(SPOOL, 20, [LOWEST, HIGHEST]) as deliveries:
            await all_in_hand(broker)  # as the broker sees it: some may be on their way
            found = Counter(one.priority for one in await taken(deliveries, 11))
        await wait_for(broker, ready=40)
        return found == {HIGHEST: 10, LOWEST: 1}

    await soon(drained)


async def test_only_the_levels_that_were_asked_for_are_taken(scene: Scene) -> None:
    broker = scene.client()
    await publish(broker, 1)
    await publish(broker, 1, HIGHEST)
    async with broker.deliveries(SPOOL, 5, [HIGHEST]) as deliveries:
        assert (await taken(deliveries, 1))[0].priority == HIGHEST
        assert (await broker.depth(SPOOL)).ready == 1


async def test_a_level_that_is_used_for_the_first_time_reaches_who_waits(scene: Scene) -> None:
    async with scene.client().deliveries(SPOOL, 5) as deliveries:
        await publish(scene.client(), 1, HIGHEST)
        assert (await taken(deliveries, 1))[0].priority == HIGHEST


async def test_two_consumers_share(scene: Scene) -> None:
    mine, theirs = scene.client(), scene.client()
    async with mine.deliveries(SPOOL, 2) as first, theirs.deliveries(SPOOL, 2) as second:
        await publish(mine, 4)
        found = [await taken(first, 2), await taken(second, 2)]
    assert sorted(int(one.message.body) for side in found for one in side) == [0, 1, 2, 3]


async def test_leaving_gives_back_what_is_unacked(scene: Scene) -> None:
    """What was handed out, and what was not yet, comes to the next consumer, marked as redelivered."""
    broker = scene.client()
    await publish(broker, 3)
    async with broker.deliveries(SPOOL, 5) as deliveries:
        await taken(deliveries, 1)
        await all_in_hand(broker)
    await wait_for(broker, ready=3)

    async with scene.client().deliveries(SPOOL, 5) as deliveries:
        found = await taken(deliveries, 3)
        assert {int(one.message.body) for one in found} == {0, 1, 2}
        assert next(one for one in found if one.message == message(0)).redelivered


async def test_queues_are_apart(scene: Scene) -> None:
    broker, outgoing = scene.client(), QueueName("outgoing")
    await broker.publish(SPOOL, ONE)
    await broker.publish(outgoing, message(7))
    async with broker.deliveries(outgoing, 5) as deliveries:
        assert (await taken(deliveries, 1))[0].message == message(7)
        await wait_for(broker, ready=1)


# Depth


async def test_the_depth_of_a_queue_that_nobody_used_is_none(scene: Scene) -> None:
    depth = await scene.client().depth(SPOOL)
    assert (depth.ready, depth.consumers, depth.dead) == (0, 0, 0)


async def test_the_depth_counts_all_levels_and_dead_letters_apart(scene: Scene) -> None:
    broker = scene.client()
    await dead_letter(broker)
    await publish(broker, 2)
    await publish(broker, 3, HIGHEST)
    await wait_for(broker, ready=5, dead=1)

    async with broker.deliveries(SPOOL, 1) as deliveries:
        await taken(deliveries, 2)
        assert (await wait_for(broker, ready=3, dead=1)).consumers == 1


# Bad days


@pytest.mark.parametrize("settling", ["ack", "requeue", "dead_letter"])
async def test_what_a_lost_connection_brought_cannot_be_settled(settling: str, scene: Scene) -> None:
    broker = scene.client()
    await broker.publish(SPOOL, ONE)
    async with broker.deliveries(SPOOL, 5) as deliveries:
        (found,) = await taken(deliveries, 1)
        scene.cut()
        (again,) = await taken(deliveries, 1)
        assert (again.message, again.redelivered) == (ONE, True)

        with pytest.raises(BrokerUnreachable, match="gone"):
            await methodcaller(settling)(found)
        await again.ack()
    await wait_for(broker, ready=0)


async def test_consumers_that_were_lost_are_reported_and_those_that_leave_are_not(scene: Scene) -> None:
    """One for each level that was consumed, each time; neither leaving nor closing is a loss."""
    broker, lost = scene.client(), list[str]()
    await broker.publish(SPOOL, ONE)
    async with broker.deliveries(SPOOL, 5, [PRIORITY_NORMAL], lambda: lost.append("left")):
        pass
    async with broker.deliveries(SPOOL, 5, [PRIORITY_NORMAL], lambda: lost.append("cut")) as deliveries:
        for times in (1, 2):
            await taken(deliveries, 1)
            scene.cut()
            await soon(partial(_comes_to, lost, times))
        await (await taken(deliveries, 1))[0].ack()
        await broker.close()
    assert lost == ["cut", "cut"]


async def test_what_was_not_handed_out_when_the_connection_was_lost_comes_once(scene: Scene) -> None:
    broker = scene.client()
    await publish(broker, 5)
    async with broker.deliveries(SPOOL, 5) as deliveries:
        await taken(deliveries, 1)
        await all_in_hand(broker)
        scene.cut()
        await wait_for(broker, ready=0)
        found: list[int] = []
        while len(found) < 5:
            (one,) = await taken(deliveries, 1)
            try:
                await one.ack()
            except BrokerUnreachable:  # it was on its way out when the connection went
                continue
            found.append(int(one.message.body))
        assert sorted(found) == list(range(5))
    await wait_for(broker, ready=0)


async def test_publishing_goes_on_after_the_connection_was_lost(scene: Scene) -> None:
    broker = scene.client()
    await broker.publish(SPOOL, message(0))
    scene.cut()
    await asyncio.sleep(0.05)  # a publish into a connection whose end is not known yet is doubtful
    await broker.publish(SPOOL, message(1))
    await wait_for(broker, ready=2)


async def test_closing_gives_back_what_is_unacked(scene: Scene) -> None:
    """Nothing can be settled any more, the context ends without an error, and closing twice is once."""
    broker = scene.client()
    await broker.publish(SPOOL, ONE)
    async with broker.deliveries(SPOOL, 5) as deliveries:
        (found,) = await taken(deliveries, 1)
        await broker.close()
        with pytest.raises(BrokerUnreachable):
            await found.ack()
    await broker.close()

    async with scene.client().deliveries(SPOOL, 5) as deliveries:
        (again,) = await taken(deliveries, 1)
        assert (again.message, again.redelivered) == (ONE, True)


async def test_a_broker_that_was_never_asked_can_be_closed(scene: Scene) -> None:
    other = scene.client()

    await scene.client().close()

    await other.publish(SPOOL, ONE)
    assert (await wait_for(other, ready=1)).ready == 1


# Wrong use


@pytest.mark.parametrize("priority", [-1, 10])
async def test_there_is_no_such_priority(priority: int, scene: Scene) -> None:
    broker = scene.client()
    with pytest.raises(WrongUse, match="0 to 9"):
        await broker.publish(SPOOL, ONE, priority)
    with pytest.raises(WrongUse, match="0 to 9"):
        async with broker.deliveries(SPOOL, 5, [priority]):
            pass


async def test_a_prefetch_of_none_takes_nothing(scene: Scene) -> None:
    broker = scene.client()
    for take in (broker.deliveries, broker.dead_letters):
        with pytest.raises(WrongUse, match="prefetch"):
            async with take(SPOOL, 0):
                pass


async def _comes_to(found: list[str], count: int) -> bool:
    return len(found) == count


async def dead_letter(broker: Broker) -> None:
    await broker.publish(SPOOL, ONE)
    async with broker.deliveries(SPOOL, 1, [PRIORITY_NORMAL]) as deliveries:
        await (await taken(deliveries, 1))[0].dead_letter()
