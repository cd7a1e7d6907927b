"""A queue whose servers die, are wiped and come back; and one under traffic whose processes die: nothing is lost."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.model.errors import BlobsUnreachable, MailmendError
from tests.support.brokers import OwnBroker, eventually, throwaway_rabbitmq
from tests.support.object_stores import OwnS3, throwaway_s3
from tests.support.patience import PATIENCE_SECONDS
from tests.support.queue_faults import ledger_of, opened
from tests.support.queue_processes import (
    KILLED,
    LATER,
    QueueProcesses,
    dead_letters,
    delivered,
    ids_of,
    swept,
    until,
)
from tests.support.queues import CONTENT, listed, mail, parts_of
from tests.support.thorough import ALL

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]

MAILS = 300
AT_ONCE = 20


@pytest.fixture
def own_broker() -> Iterator[OwnBroker]:
    with throwaway_rabbitmq() as own:
        yield own


@pytest.fixture
def own_s3() -> Iterator[OwnS3]:
    with throwaway_s3() as own:
        yield own


def on_broker(processes: QueueProcesses, broker: OwnBroker) -> QueueProcesses:
    at = replace(processes.servers, broker_port=broker.port, vhost="/", management_port=broker.management_port)
    return replace(processes, servers=at)


def test_a_broker_that_dies_loses_nothing_that_was_acknowledged(
    processes: QueueProcesses, own_broker: OwnBroker
) -> None:
    """It is killed in the middle of traffic, and comes back."""
    processes = on_broker(processes, own_broker)

    # Given enqueuers and a consumer, when the broker is killed and comes back
    acknowledged, failed, came = traffic = (set[str](), set[str](), list[str]())
    asyncio.run(_killed_under_way(processes, own_broker, *traffic))

    # Then everything that was acknowledged has come, and nothing that was not came after its error was told
    assert len(acknowledged) + len(failed) == MAILS
    assert acknowledged
    assert acknowledged <= set(came)
    assert not set(came[came.index("the end") :]) & failed
    assert not processes.listed("killed")


@pytest.mark.thorough
def test_what_a_broker_forgot_that_was_wiped_is_published_again(
    processes: QueueProcesses, own_broker: OwnBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table brings all back; in `make test` the runbook of a lost RabbitMQ shows it."""
    processes = on_broker(processes, own_broker)

    # When a broker forgets all that waits
    names = [str(number) for number in range(200)]
    ids = set(map(str, processes.put_at_once("wiped", names)))
    own_broker.kill()
    own_broker.wipe()
    own_broker.start()
    # Then those that lack their message are named, and come once they are published again
    shell, drain = processes.shell(tmp_path, monkeypatch), ("--drain", "--yes", "--no-blobs")
    found = shell.reconciled("wiped", *drain, code=1)
    assert (found["findings"], set(found["drained"]["only_in_table"])) == ({"lacks_message": 200}, ids)
    mended = shell.reconciled("wiped", *drain, "--republish", "--older-than", "0s", code=0)
    assert (mended["mended"]["republished"], mended["left"]) == (200, {})
    assert sorted(processes.run("wiped", lambda queue: delivered(queue, ids))) == sorted(ids)


async def _killed_under_way(
    processes: QueueProcesses, broker: OwnBroker, acknowledged: set[str], failed: set[str], came: list[str]
) -> None:
    names = iter([str(number) for number in range(MAILS)])
    asked = asyncio.Event()

    async def enqueue(queue: RabbitMailQueue) -> None:
        for name in names:
            try:
                await queue.enqueue(mail(name), CONTENT)
            except MailmendError:
                failed.add(name)
                await asyncio.sleep(0.1)
            else:
                acknowledged.add(name)
            if len(acknowledged) >= MAILS // 3:
                asked.set()

    async def consume(queue: RabbitMailQueue) -> None:
        async with queue.dequeue(prefetch=10, priorities=[5]) as mails:
            async for one in mails:
                came.append(one.mail.name)
                await one.ack()
                if one.mail.name == "the end":
                    break

    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(opened(processes.servers, processes.keyspace, "killed")) for _ in range(2)
        ]
        async with asyncio.timeout(3 * PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(consume(other))
            enqueuing = [tasks.create_task(enqueue(one)) for _ in range(AT_ONCE)]
            await asked.wait()
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await asyncio.wait(enqueuing)
            while not acknowledged <= set(came):  # noqa: ASYNC110 - the consumer tells nobody
                await asyncio.sleep(0.05)
            await one.enqueue(mail("the end"), CONTENT)


def test_an_object_store_that_dies(
    processes: QueueProcesses, own_s3: OwnS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enqueues fail and leave nothing, consumers wait; back, all goes on. Lost bytes hurt no other mail."""
    processes = replace(
        processes,
        servers=replace(
            processes.servers, endpoint=own_s3.endpoint, access_key=own_s3.access_key, secret_key=own_s3.secret_key
        ),
    ).in_bucket(own_s3)
    ids = [str(one) for one in processes.put("bytes", *"abc")]

    async def without(queue: RabbitMailQueue) -> list[str]:
        with pytest.raises(BlobsUnreachable):
            await queue.enqueue(mail("failed"), CONTENT)
        assert (await parts_of(queue).broker.depth(queue.name)).ready == 3
        assert len(await listed(queue)) == 3
        async with asyncio.timeout(2 * PATIENCE_SECONDS), queue.dequeue(priorities=[5]) as mails:
            first = asyncio.ensure_future(anext(mails))

            async def held() -> bool:
                return not (await parts_of(queue).broker.depth(queue.name)).ready

            await until(held)
            assert not first.done()
            await asyncio.to_thread(own_s3.start)
            await first  # in hand and not settled: it comes again
        (lost,) = [one for one in await listed(queue) if one.queued.mail.name == "b"]
        await parts_of(queue).blobs.delete(lost.queued.blobs.body)
        return [one.queued.mail.name for one in await listed(queue)]

    own_s3.kill()
    assert sorted(processes.run("bytes", without)) == list("abc")

    found = processes.shell(tmp_path, monkeypatch).reconciled("bytes", code=1)
    assert (found["findings"], found["blobs"]["missing"]) == ({"blob_missing": 1}, [ids[1]])
    assert sorted(processes.run("bytes", lambda queue: delivered(queue, [ids[0], ids[2]]))) == sorted([ids[0], ids[2]])
    assert processes.run("bytes", dead_letters) == [ids[1]]


PROGRESS = 60

ACTORS = (*["keep_enqueuing"] * 3, *["keep_dequeuing"] * 3, "keep_sweeping", "keep_purging")


def test_traffic_whose_processes_die(
    processes: QueueProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """Each acknowledged mail came, was purged, or is listed; none came after its ack; what is left has a name."""
    chance, stop, ledgers = random.Random(5), tmp_path / "stop", list[Path]()

    def begun(story: str) -> int:
        name = f"{story}-{len(ledgers)}"
        pid, ledger = processes.begin(story, "traffic", stop=str(stop), name=name)
        ledgers.append(ledger)
        return pid

    def reported(what: str) -> list[str]:
        return [one for ledger in ledgers for one in ids_of(ledger_of(ledger), what)]

    kills = 20 if pytestconfig.getoption(ALL) else 3
    # Given enqueuers, dequeuers, a sweeper and a purger, of which one dies now and then
    living = [(story, begun(story)) for story in ACTORS]
    for kill in range(1, kills + 1):
        eventually(lambda kill=kill: len(reported("acked")) >= kill * PROGRESS, 60)  # type: ignore[misc]
        story, pid = living.pop(chance.randrange(len(living)))
        os.kill(pid, signal.SIGKILL)
        assert processes.wait(pid) == KILLED
        living.append((story, begun(story)))
    stop.touch()
    assert {processes.wait(pid) for _, pid in living} == {0}

    # Then what was acknowledged has come, was removed, or is listed
    enqueued, acked, purged = set(reported("enqueued")), set(reported("acked")), set(reported("purged"))
    left = processes.listed("traffic")
    assert not reported("failed")
    assert purged
    assert enqueued <= set(reported("handed")) | set(reported("removing")) | left
    assert not left & (acked | purged)

    # And comes, each that was acknowledged; of the others those whose message is lost are named and published again
    async def flushed(queue: RabbitMailQueue) -> list[str]:
        await queue.flush()
        return await delivered(queue, left & enqueued)

    came = set(processes.run("traffic", flushed))
    shell, rest = processes.shell(tmp_path, monkeypatch), processes.listed("traffic")
    drain = ("--drain", "--yes", "--no-blobs")
    assert set(shell.reconciled("traffic", *drain, code=1 if rest else 0)["drained"]["only_in_table"]) == rest
    shell.reconciled("traffic", *drain, "--republish", "--older-than", "0s", code=0)
    came |= set(processes.run("traffic", lambda queue: delivered(queue, rest)))
    assert left <= came
    assert not came & (acked | purged)
    assert not processes.listed("traffic")

    # And nothing refers to what killed processes left over
    processes.run("traffic", swept, ahead_seconds=LATER)
    shell.reconciled("traffic", code=0)
    over = len(processes.blobs())
    assert over <= 2 * kills
    assert processes.shell(tmp_path, monkeypatch, 0).unreferenced("traffic") == ({"TOO_YOUNG": over} if over else {})
