"""What the mails of a real Pulsar refer to: all of them, or it is said what cannot be read."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from mailmend.mailqueue.collection.broker_references import topic_references
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import open_queue
from mailmend.mailqueue.pulsar.parts import QueueTopics
from mailmend.mailqueue.pulsar.settings import out_subscription, out_topic
from mailmend.model.errors import BrokerUnreachable, SourceUnread, WrongUse
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.mail_queues import until
from tests.support.memory_blobs import MemoryBlobs
from tests.support.pulsars import RealPulsar
from tests.support.queues import CONTENT, enqueued, mail

pytestmark = pytest.mark.pulsar

HOUR = timedelta(hours=1)
PLAIN, CUT = QueueName("plain"), QueueName("cut")
CLOCK = SystemClock()


async def has_left(topics: PulsarTopics, name: QueueName, count: int) -> bool:
    """Whether the broker counts so many mails that wait or are in hand."""
    backlog = await topics.backlog(out_topic(name), out_subscription(name))
    return backlog is not None and backlog.count == count


async def test_every_mail_of_a_namespace_counts_or_nothing_does(pulsar: RealPulsar, tmp_path: Path) -> None:
    """In topics of one partition and of three: what waits, is delayed, in hand, to be tried again, or rejected."""
    blobs = MemoryBlobs(CLOCK)
    with pulsar.namespace() as namespace:
        topics = PulsarTopics(namespace.settings, CLOCK)
    namespace.topic("PUT", out_topic(CUT), "/partitions", 3)
    dead, done = set[str](), set[str]()
    for name in (PLAIN, CUT):
        async with await open_queue(name, topics, blobs, CLOCK) as queue:
            await enqueued(queue, *"abcdef")
            await queue.enqueue(mail("delayed"), CONTENT, delay=HOUR)
            async with queue.dequeue(4) as mails:
                _held, acked, retried, rejected = [await anext(mails) for _ in range(4)]
                done |= {acked.queued.blobs.header, acked.queued.blobs.body}
                dead |= {rejected.queued.blobs.header, rejected.queued.blobs.body}
                await acked.ack()
                await retried.retry(HOUR)
                await rejected.reject()
                await until(partial(has_left, topics, name, 3), CLOCK)  # the client sends acknowledgements in a while
                found = await topic_references(topics, CLOCK, tmp_path, (name,))
                needed = {one.blob_id: one.needed for one in found.references()}

    assert {one for one, is_needed in needed.items() if is_needed} == blobs.ids - dead - done
    assert {one for one, is_needed in needed.items() if not is_needed} == dead

    for name in (PLAIN, CUT):
        side = QueueTopics(name, topics, CLOCK)
        seen, named = await side.look()
        assert (len(seen.live), len(seen.delayed), seen.bad) == (3, 2, ())
        lost = next(iter(seen.delayed))
        await blobs.store.remove(named[lost].blobs.body)
        assert await side.missing_among(blobs, named) == {lost}

    await topics.close()  # a producer would make it anew
    namespace.topic("DELETE", f"{out_topic(CUT)}-partition-1", "?force=true")
    with pytest.raises(SourceUnread, match="lacks its partition 1"):
        await topic_references(topics, CLOCK, tmp_path)
    with pytest.raises(BrokerUnreachable, match="lacks its partition 1"):
        await QueueTopics(CUT, topics, CLOCK).look()
    namespace.topic("DELETE", f"{out_topic(CUT)}-partition-0", "?force=true")
    namespace.topic("DELETE", f"{out_topic(CUT)}-partition-2", "?force=true")
    with pytest.raises(SourceUnread, match="is listed, and not there"):
        await topic_references(topics, CLOCK, tmp_path)

    nowhere = PulsarTopics(replace(pulsar.settings, namespace="public/nowhere"), CLOCK)
    with pytest.raises(WrongUse, match="has no namespace public/nowhere"):
        await topic_references(nowhere, CLOCK, tmp_path)
