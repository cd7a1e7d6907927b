"""Each step of what is done to a queue over a real Pulsar: killed there, the process or the broker, nothing is lost."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.mailqueue.blobs.object_storage import open_files
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import open_queue
from mailmend.mailqueue.pulsar.settings import DEAD_SUBSCRIPTION, dead_topic
from mailmend.model.blobs import Blobs
from mailmend.model.errors import MailmendError
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.patience import PATIENCE_SECONDS
from tests.support.pulsars import OwnPulsar, PulsarNamespace, answered, throwaway_pulsar
from tests.support.queues import CONTENT, enqueued, mail
from tests.support.striking_topics import ACTS, DELAYED, PREPARED, StrikingTopics

pytestmark = [pytest.mark.pulsar, pytest.mark.thorough]

IDLE_SECONDS = 2.5
KILLED = -9
AT_ONCE = 3
REQUESTS_MIN = 2
"""So many requests, at least, each of the acts takes."""

Said = Sequence[Sequence[str]]
"""What somebody said before he was struck: what was begun, and what was acknowledged."""


@pytest.fixture(scope="module")
def pulsar() -> Iterator[OwnPulsar]:
    with throwaway_pulsar() as found:
        yield found


@pytest.fixture
def namespace(pulsar: OwnPulsar) -> Iterator[PulsarNamespace]:
    with pulsar.namespace() as found:
        yield found


async def prepared(topics: PulsarTopics, blobs: Blobs, name: QueueName) -> None:
    async with await open_queue(name, topics, blobs, SystemClock()) as queue:
        await enqueued(queue, *PREPARED)
        for late in DELAYED:
            await queue.enqueue(mail(late), CONTENT, delay=timedelta(hours=1))


async def left(topics: PulsarTopics, blobs: Blobs, name: QueueName) -> tuple[list[str], int]:
    """All that comes in the end, and how many are dead letters."""
    async with await open_queue(name, topics, blobs, SystemClock()) as queue:
        await answered(queue.flush, PATIENCE_SECONDS)
        found = list[str]()
        async with queue.dequeue() as mails:
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(IDLE_SECONDS):
                        one = await anext(mails)
                    found.append(one.mail.name)
                    await one.ack()
        async with aclosing(topics.unacked(dead_topic(name), DEAD_SUBSCRIPTION)) as dead:
            return found, len([one async for one in dead])


def nothing_is_lost_or_comes_back(act: str, said: Said, came: Sequence[str], dead: int) -> None:
    def of(word: str) -> set[str]:
        return {name for kind, *names in said if kind == word for name in names}

    times, there = Counter(came), {*PREPARED, *DELAYED}
    assert of("enqueued") <= set(came), "what was put in is lost"
    assert not of("deleted") & set(came), "what was deleted came"
    if act == "rejects":
        assert there - of("begun") <= set(came)
        assert len(there - set(came)) <= dead <= len(of("begun"))
    elif act in {"acks", "deletes"}:
        assert there - of("begun") <= set(came)
    else:
        assert there <= set(came)
    if act in {"flushes", "enqueues", "delays", "deletes"}:
        assert set(times.values()) <= {1}, f"something came twice: {times}"


@pytest.mark.parametrize("act", ACTS)
async def test_a_process_that_is_killed_before_each_request(
    namespace: PulsarNamespace, tmp_path: Path, act: str
) -> None:
    """Until it comes to its end: each of its requests is one before which it was killed."""
    topics = PulsarTopics(namespace.settings, SystemClock())
    blobs = open_files(tmp_path, SystemClock())

    async def ended(number: int) -> int:
        name = QueueName(f"{act}-{number}")
        await prepared(topics, blobs, name)
        program = namespace.program("strikes", f"{act}:{number}:{tmp_path}")
        out, err = await asyncio.to_thread(program.communicate, None, PATIENCE_SECONDS)
        assert program.returncode in {0, KILLED}, err
        came, dead = await left(topics, blobs, name)
        said = [line for line in map(json.loads, out.splitlines()) if isinstance(line, list)]
        nothing_is_lost_or_comes_back(act, said, came, dead)
        return program.returncode

    codes = list[int]()
    while 0 not in codes:
        codes += await asyncio.gather(*(ended(len(codes) + one) for one in range(AT_ONCE)))
    assert codes[:REQUESTS_MIN] == [KILLED] * REQUESTS_MIN
    assert codes == sorted(codes)
    await topics.close()


@pytest.mark.parametrize("number", [1, 3, 4, 5, 7])
async def test_a_broker_that_is_killed_before_a_request_of_each(
    pulsar: OwnPulsar, namespace: PulsarNamespace, number: int
) -> None:
    """All come to their n-th request, then the broker is killed, and then they ask."""
    clock = SystemClock()
    blobs = MemoryBlobs(clock)
    topics = PulsarTopics(namespace.settings, clock)
    names = {act: QueueName(f"{act}-{number}") for act in ACTS}
    await asyncio.gather(*(prepared(topics, blobs, one) for one in names.values()))
    said: dict[str, list[list[str]]] = {act: [] for act in ACTS}
    waiting, killed = {act: asyncio.Event() for act in ACTS}, asyncio.Event()

    async def acts(act: str) -> None:
        async def strike() -> None:
            waiting[act].set()
            await killed.wait()

        own = StrikingTopics(PulsarTopics(namespace.settings, clock), number, strike)
        try:
            async with await open_queue(names[act], own, blobs, clock) as queue:
                await ACTS[act](queue, said[act].append)
        except MailmendError:
            pass  # then it was not acknowledged
        finally:
            waiting[act].set()
            await own.close()

    acting = [asyncio.ensure_future(acts(act)) for act in ACTS]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(one.wait() for one in waiting.values()))
        await asyncio.to_thread(pulsar.run.kill)
        killed.set()
        await asyncio.to_thread(pulsar.run.up)
        await asyncio.gather(*acting)
    found = await asyncio.gather(*(left(topics, blobs, one) for one in names.values()))
    for act, (came, dead) in zip(names, found, strict=True):
        nothing_is_lost_or_comes_back(act, said[act], came, dead)
    await topics.close()
