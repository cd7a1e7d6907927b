"""What messages at the broker may refer to: nothing in empty queues, what dead letters say, else whatever."""

import pytest

from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.collection.broker_references import broker_references
from mailmend.model.errors import SourceUnread
from tests.support.queues import QUEUE, TwinQueue, enqueued


async def found(twin: TwinQueue, *, age_known: bool = False) -> set[str]:
    source = await broker_references(twin.broker, twin.clock, [QUEUE], age_known=age_known)
    return {one.blob_id for one in source.references()}


async def test_an_empty_queue_refers_to_nothing(twin: TwinQueue) -> None:
    assert await found(twin) == set()


async def test_messages_that_wait_may_refer_to_anything_unless_their_age_is_known(twin: TwinQueue) -> None:
    async with await twin.process() as queue:
        await enqueued(queue, "waits")

        with pytest.raises(SourceUnread, match=r"1 messages of .* wait"):
            await found(twin)
        assert await found(twin, age_known=True) == set()


async def test_dead_letters_are_read_whatever_their_age(twin: TwinQueue) -> None:
    async with await twin.process() as queue:
        await enqueued(queue, "dead")
        async with queue.dequeue() as mails:
            mail = await anext(mails)
            blobs = mail.queued.blobs
            await mail.reject()

        assert await found(twin) == {blobs.header, blobs.body}
        assert (await twin.broker.depth(QUEUE)).dead == 1


async def test_a_dead_letter_that_cannot_be_read_may_refer_to_anything(twin: TwinQueue) -> None:
    await twin.broker.publish(QUEUE, Message(b"no mail"))
    async with twin.broker.deliveries(QUEUE, 1) as deliveries:
        await (await anext(deliveries)).dead_letter()

    with pytest.raises(SourceUnread, match=r"of 1 dead letters of .*, 0 could be read"):
        await found(twin)
