"""Processes that use Pulsar's client and end in some way.

`python -m tests.support.pulsar_stories STORY SERVICE ADMIN NAMESPACE WISH`
"""

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from mailmend.mailqueue.blobs.object_storage import open_files
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import open_queue
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.pulsar.topics import TopicMessage
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.patience import PATIENCE_SECONDS
from tests.support.striking_topics import ACTS, StrikingTopics

QUEUE = QueueName("spool")
POLL_SECONDS = 0.05
KEPT: list[Any] = []
"""What is not closed."""


def tell(what: object) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


async def opens_and_closes(settings: PulsarSettings, rounds: str) -> None:
    """Tell how many threads and files it has after five rounds, and after so many."""
    counts = list[Owned]()
    for number in range(int(rounds)):
        topics = PulsarTopics(settings, SystemClock())
        await topics.publish("rounds", TopicMessage(str(number)))
        async with topics.consume("rounds", "all", 5) as deliveries:
            await (await anext(deliveries)).ack()
        while [one async for one in topics.unacked("rounds", "all")]:
            pass  # the acknowledgement is on its way
        await topics.close()
        if number in {4, int(rounds) - 1}:
            counts.append(await settled(counts))
    tell(counts)


Owned = tuple[int, int]
"""The numbers of threads and of open files."""


async def settled(before: Sequence[Owned]) -> Owned:
    """Threads and open files, once what was closed is gone: the client's threads end behind its back.

    On a busy machine that takes its time: where more threads are there than before, they are waited for.
    """
    gc.collect()
    deadline = time.monotonic() + PATIENCE_SECONDS / 2
    found = [owned()]
    while len(found) < 3 or found[-1] < found[-2] or (before and found[-1][0] > before[0][0]):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.3)
        found.append(owned())
    return found[-1]


def owned() -> Owned:
    """Threads and open files of this process, without the threads of the event loop's pool.

    The pool is bounded, and grows when work comes before a thread that has just finished counts as idle: a busy
    machine has one thread more in it, which nothing of the client holds.
    """
    threads, files = (sum(1 for _ in Path("/proc/self", name).iterdir()) for name in ("task", "fd"))
    pooled = sum(thread.name.startswith("asyncio_") for thread in threading.enumerate())
    return threads - pooled, files


async def leaves(settings: PulsarSettings, _: str) -> None:
    """Its event loop is closed while it waits for a message."""
    topics = PulsarTopics(settings, SystemClock())
    context = topics.consume("left", "all", 5)
    KEPT.append((topics, context, await context.__aenter__()))
    tell("waits")


async def connects(settings: PulsarSettings) -> None:
    """It is left while it connects and publishes."""
    topics = PulsarTopics(settings, SystemClock())
    KEPT.append((topics, [asyncio.ensure_future(topics.publish("middle", TopicMessage("x"))) for _ in range(100)]))
    await asyncio.sleep(0.01)


async def holds(settings: PulsarSettings, folder: str) -> None:
    """Of four mails it acks one, and has two in its hands until it is killed."""
    clock = SystemClock()
    topics = PulsarTopics(settings, clock)
    queue = await open_queue(QUEUE, topics, open_files(Path(folder), clock), clock)
    async with queue.dequeue(prefetch=3) as mails:
        await (await anext(mails)).ack()
        held = [(await anext(mails)).mail.name for _ in range(2)]
        while (await queue.size()).mails > 3:  # noqa: ASYNC110 - the ack is on its way
            await asyncio.sleep(POLL_SECONDS)
        tell(held)
        await asyncio.Event().wait()


async def strikes(settings: PulsarSettings, wish: str) -> None:
    """It does something to a queue, and is killed before the n-th request of that."""
    act, number, folder = wish.split(":")

    async def strike() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    clock = SystemClock()
    topics = StrikingTopics(PulsarTopics(settings, clock), int(number), strike)
    blobs = open_files(Path(folder), clock)
    async with await open_queue(QueueName(f"{act}-{number}"), topics, blobs, clock) as queue:
        await ACTS[act](queue, tell)
    await topics.close()


STORIES: Mapping[str, Callable[[PulsarSettings, str], Coroutine[Any, Any, None]]] = {
    one.__name__: one for one in (opens_and_closes, leaves, holds, strikes)
}


def main() -> None:
    story, service, admin, namespace, wish = sys.argv[1:]
    settings = PulsarSettings(service, admin, namespace)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(STORIES[story](settings, wish))
    loop.close()  # nothing more: whoever closes in good order closes his topics
    if story == "leaves":
        sys.stdin.readline()  # by then a message was sent to it
        time.sleep(0.2)
        asyncio.run(connects(settings))
    tell("ends")


if __name__ == "__main__":
    main()
