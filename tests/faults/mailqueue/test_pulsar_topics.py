"""Topics of a real Pulsar as admins have them: full, partitioned, unloaded, removed; nothing is lost, or left behind.

Each hazard of James's queue over Pulsar that twins cannot show is shown to be absent here.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest

from mailmend.mailqueue.metrics import judged
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue, queue_names
from mailmend.mailqueue.pulsar.settings import (
    dead_topic,
    filter_scheduled_topic,
    filter_topic,
    out_subscription,
    out_topic,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.topics import TopicMessage, pulsar_payload_of
from mailmend.mailqueue.queue import Dequeued
from mailmend.mailqueue.rules.health import HealthProblem
from mailmend.mailqueue.rules.mails import MailFilter
from mailmend.model.errors import PublishFailed, WrongUse
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.patience import PATIENCE_SECONDS
from tests.support.pulsar_stories import QUEUE
from tests.support.pulsars import PulsarNamespace, RealPulsar
from tests.support.queues import CONTENT, enqueued, listed, mail, names
from tests.support.thorough import first_of

pytestmark = pytest.mark.pulsar

IDLE_SECONDS = 1.5
OUT = out_topic(QUEUE)


class HastyClock(SystemClock):
    """What is done every half minute is done all the time."""

    async def pause(self, seconds: float) -> None:
        await super().pause(seconds if seconds < 5 else 0.3)


@pytest.fixture
def namespace(pulsar: RealPulsar) -> Iterator[PulsarNamespace]:
    with pulsar.namespace() as found:
        yield found


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs(SystemClock())


@pytest.fixture
async def queue(namespace: PulsarNamespace, blobs: MemoryBlobs) -> AsyncIterator[PulsarMailQueue]:
    async with namespace.process(blobs) as found:
        yield found


async def taken(mails: AsyncIterator[Dequeued], most: int | None = None) -> list[str]:
    """So many, or all that come until nothing has come for a while; each is acked."""
    found = list[str]()
    while most is None or len(found) < most:
        try:
            async with asyncio.timeout(IDLE_SECONDS if most is None else PATIENCE_SECONDS):
                one = await anext(mails)
        except TimeoutError:
            assert most is None, f"only {found} came"
            return found
        found.append(one.mail.name)
        await one.ack()
    return found


async def soon(ask: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := await ask()) != wanted:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)


async def goes_in(queue: PulsarMailQueue, name: str) -> bool:
    try:
        await enqueued(queue, name)
    except PublishFailed:
        return False
    return True


async def asked(namespace: PulsarNamespace, method: str, topic: str, verb: str = "", body: object = None) -> Any:
    return await asyncio.to_thread(namespace.topic, method, topic, verb, body)


@pytest.mark.parametrize("policy", first_of(["producer_exception", "producer_request_hold"]))
async def test_a_full_backlog_refuses_a_mail_in_words_and_takes_the_next_once_there_is_room(
    namespace: PulsarNamespace, queue: PulsarMailQueue, blobs: MemoryBlobs, policy: str
) -> None:
    """A mail whose publishing the broker cut short may be there; all others are there, or not, as was said."""
    await enqueued(queue, "before")
    await asyncio.to_thread(namespace.quota, policy)
    went_in, doubtful, refusal = ["before"], list[str](), None
    deadline = time.monotonic() + PATIENCE_SECONDS
    while refusal is None:
        assert time.monotonic() < deadline, "it was never refused"
        kept, name = blobs.store.ids, f"mail-{len(went_in) + len(doubtful)}"
        try:
            await enqueued(queue, name)
        except PublishFailed as error:
            if error.doubtful:
                doubtful.append(name)
                continue
            refusal = error
            assert blobs.store.ids == kept
        else:
            went_in.append(name)

    assert f"takes no message for persistent://{namespace.name}/{OUT}: its backlog quota is exceeded" in refusal.what
    assert namespace.settings.service in refusal.what
    assert "get-backlog-quotas" in (refusal.mend or "")

    async with queue.dequeue() as mails:
        (first,) = await taken(mails, 1)  # what is full lets mails out, and deletes them
        assert first == "before"
        await asyncio.to_thread(namespace.quota, None)
        await soon(lambda: goes_in(queue, "after"), wanted=True)
        came = await taken(mails)
    assert set(went_in[1:]) | {"after"} <= set(came) <= set(went_in) | set(doubtful) | {"after"}


@pytest.mark.thorough
async def test_partitioned_topics_are_one_queue_and_partitions_may_be_added(
    namespace: PulsarNamespace, blobs: MemoryBlobs
) -> None:
    """A process that consumes already takes from them, counts and deletes what is in them, and hears of deletions."""
    topics = (OUT, scheduled_topic(QUEUE), filter_topic(QUEUE), filter_scheduled_topic(QUEUE))
    for topic in topics:
        await asked(namespace, "PUT", topic, "/partitions", 2)
    clock = HastyClock()
    async with namespace.process(blobs, clock) as old, old.dequeue() as mails:
        await enqueued(old, *map(str, range(6)))
        for number in range(2):
            await old.enqueue(mail(f"delayed-{number}"), CONTENT, delay=timedelta(hours=1))
        deleted = [(await old.delete(MailFilter(name=name))).count for name in ("1", "delayed-1")]
        assert deleted == [1, 1]
        assert set(await names(old)) == {"0", "2", "3", "4", "5", "delayed-0"}
        assert (await old.size()).mails == 5
        assert (await old.flush()).count == 1
        assert sorted(await taken(mails)) == ["0", "2", "3", "4", "5", "delayed-0"]

        for topic in topics:
            await asked(namespace, "POST", topic, "/partitions", 4)
        async with namespace.process(blobs) as new:
            await enqueued(new, *(f"new-{number}" for number in range(8)))
            for name in ("new-0", "new-1", "new-2"):
                assert (await new.delete(MailFilter(name=name))).count == 1
            assert set(await taken(mails)) == {f"new-{number}" for number in range(3, 8)}
            await enqueued(new, *(f"last-{number}" for number in range(8)))
        assert ((await old.size()).mails, (await old.purge()).count) == (8, 8)
        assert await names(old) == []


async def test_a_topic_that_is_unloaded_loses_and_repeats_nothing(
    namespace: PulsarNamespace, queue: PulsarMailQueue
) -> None:
    """It goes to another broker, or comes back to this one, while mails are put in, held, listed and deleted."""
    await enqueued(queue, *map(str, range(6)))
    async with queue.dequeue(prefetch=2) as mails:
        async with asyncio.timeout(PATIENCE_SECONDS):
            held = await anext(mails)
        for topic in (OUT, filter_topic(QUEUE)):
            await asked(namespace, "PUT", topic, "/unload")
        await enqueued(queue, "6", "7")
        assert (await queue.delete(MailFilter(name="5"))).count == 1
        await held.ack()
        came = await taken(mails)
    assert sorted([held.mail.name, *came]) == ["0", "1", "2", "3", "4", "6", "7"]
    assert (await queue.size()).mails == 0


async def test_a_topic_that_an_admin_removed_is_there_again_with_its_subscription(
    namespace: PulsarNamespace, blobs: MemoryBlobs
) -> None:
    """James's clear removes both topics; what is put in later by who knew them must wait for a consumer."""

    class LaterClock(SystemClock):
        ahead = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.ahead

    clock = LaterClock()
    async with namespace.process(blobs, clock) as queue:
        await enqueued(queue, "gone")
        await asked(namespace, "DELETE", OUT, "?force=true")
        clock.ahead = 61.0
        await enqueued(queue, "here")
        assert await asked(namespace, "GET", OUT, "/subscriptions") == [out_subscription(QUEUE)]
        async with queue.dequeue() as mails:
            assert await taken(mails, 1) == ["here"]


async def test_a_listing_that_is_cut_short_leaves_no_reader_behind(
    namespace: PulsarNamespace, queue: PulsarMailQueue
) -> None:
    """Nor does one that ends, a size, or a delete."""
    await enqueued(queue, *map(str, range(5)))
    async with aclosing(queue.browse()) as found:
        assert (await anext(found)).queued.mail.name == "0"
    assert await names(queue) == ["0", "1", "2", "3", "4"]
    await queue.delete(MailFilter(name="3"))
    await queue.size()

    async def consumers() -> dict[str, int]:
        stats = await asked(namespace, "GET", OUT, "/stats")
        return {name: len(one["consumers"]) for name, one in stats["subscriptions"].items()}

    await soon(consumers, {out_subscription(QUEUE): 0})


async def test_what_was_acked_is_listed_no_more(queue: PulsarMailQueue) -> None:
    """James's browse goes back to it. Here every second is acked, so that the broker keeps the topic from its start."""
    await enqueued(queue, *map(str, range(6)))
    async with queue.dequeue(prefetch=6) as mails:
        async with asyncio.timeout(PATIENCE_SECONDS):
            held = [await anext(mails) for _ in range(6)]
        for one in held[1::2]:
            await one.ack()
        await soon(lambda: names(queue), [one.mail.name for one in held[::2]])
        assert (await queue.size()).mails == 3


async def test_a_queue_is_listed_by_its_own_name_whatever_that_looks_like(
    namespace: PulsarNamespace, blobs: MemoryBlobs
) -> None:
    """Partitions of another are listed as that one."""
    topics = PulsarTopics(namespace.settings, SystemClock())
    await asked(namespace, "PUT", out_topic(QueueName("parts")), "/partitions", 2)
    for name in ("a-partition-b", "parts"):
        async with await open_queue(QueueName(name), topics, blobs, SystemClock()) as queue:
            await enqueued(queue, "0")
            assert await names(queue) == ["0"]
    assert await queue_names(topics) == ["a-partition-b", "parts"]
    await topics.close()


async def test_a_mail_without_its_bytes_is_a_dead_letter_and_holds_up_nobody(
    namespace: PulsarNamespace, queue: PulsarMailQueue, blobs: MemoryBlobs
) -> None:
    await enqueued(queue, "lost")
    for one in blobs.store.ids:
        await blobs.lose(one)
    await enqueued(queue, "whole")
    async with queue.dequeue(prefetch=1) as mails:
        assert await taken(mails, 1) == ["whole"]

    async def dead_and_left() -> tuple[int, int]:
        dead = await asked(namespace, "GET", dead_topic(QUEUE), "/internalStats")
        return (dead or {}).get("numberOfEntries", 0), (await queue.size()).mails

    await soon(dead_and_left, (1, 0))


async def test_a_consumer_that_ends_settles_nothing_that_it_held(queue: PulsarMailQueue) -> None:
    """James's nacks all of it, and its policy makes dead letters of them; others wait for it."""
    await enqueued(queue, *map(str, range(4)))
    for _ in range(3):
        async with queue.dequeue(prefetch=4) as mails, asyncio.timeout(PATIENCE_SECONDS):
            held = [await anext(mails) for _ in range(4)]
        assert sorted(one.mail.name for one in held) == ["0", "1", "2", "3"]
    assert (await queue.size()).mails == 4


async def test_a_mail_without_a_remote_address_comes_and_one_that_is_refused_ends_no_enqueueing(
    namespace: PulsarNamespace, queue: PulsarMailQueue
) -> None:
    await enqueued(queue, "template")
    (template,) = await listed(queue)
    fields = json.loads(pulsar_payload_of(template.queued))
    topics = PulsarTopics(namespace.settings, SystemClock())
    message = TopicMessage(json.dumps({**fields, "name": "nowhere", "remoteAddr": None, "remoteHost": None}))
    await topics.publish(OUT, message)
    await topics.close()
    with pytest.raises(WrongUse):
        await queue.enqueue(mail("refused", recipients=("no address",)), CONTENT)
    await enqueued(queue, "somewhere")
    async with queue.dequeue(prefetch=1) as mails:
        assert await taken(mails, 3) == ["template", "nowhere", "somewhere"]


async def test_health_names_the_policies_that_drop_mail_and_where(
    namespace: PulsarNamespace, queue: PulsarMailQueue
) -> None:
    await enqueued(queue, "one")
    await queue.enqueue(mail("later"), CONTENT, delay=timedelta(hours=1))
    before = [one.trouble for one in judged(await queue.figures())]

    for path, policy in (
        ("messageTTL", 7200),
        ("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}),
        ("subscriptionExpirationTime", 5),
        ("backlogQuota?backlogQuotaType=message_age", {"limitTime": 60, "policy": "consumer_backlog_eviction"}),
        ("delayedDelivery", {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 3_600_000}),
    ):
        await asyncio.to_thread(namespace.admin, "POST", f"namespaces/{namespace.name}/{path}", policy)
    await asyncio.to_thread(namespace.topic, "POST", OUT, "/messageTTL?messageTTL=60")

    async def found() -> set[tuple[HealthProblem, str]]:
        reasons = judged(await queue.figures())
        return {(one.trouble, one.what.rpartition(": ")[2]) for one in reasons if "namespaces" in one.mend}

    both, later = f"{OUT}, {scheduled_topic(QUEUE)}", scheduled_topic(QUEUE)
    await soon(
        found,
        {
            (HealthProblem.MESSAGES_EXPIRE, OUT),
            (HealthProblem.MESSAGES_EXPIRE, later),
            (HealthProblem.KEPT_FOR_EVER, both),
            (HealthProblem.SUBSCRIPTION_EXPIRES, both),
            (HealthProblem.BACKLOG_DROPPED, both),
            (HealthProblem.DELAYS_CUT, later),
        },
    )
    assert before == [HealthProblem.NO_CONSUMER]


async def test_two_that_delete_at_once_delete_everything_once(
    namespace: PulsarNamespace, queue: PulsarMailQueue, blobs: MemoryBlobs
) -> None:
    """A third has some of the mails in its hands already."""
    await enqueued(queue, *map(str, range(20)))
    async with namespace.process(blobs) as other, namespace.process(blobs) as taker, taker.dequeue(prefetch=5) as mails:
        async with asyncio.timeout(PATIENCE_SECONDS):
            first = await anext(mails)
        counts = [one.count for one in await asyncio.gather(queue.purge(), other.purge())]
        assert sum(counts) >= 20
        await first.ack()
        assert await taken(mails) == []
    assert (await queue.size()).mails == 0
