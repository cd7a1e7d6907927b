"""Envelopes of megabytes, on a real Cassandra, RabbitMQ and object store: they go in and out again, or are refused."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.mailqueue.blobs.object_storage import open_files
from mailmend.mailqueue.codec import attribute
from mailmend.mailqueue.queue import MailQueue
from mailmend.mailqueue.rabbitmq.broker.adapter import RabbitBroker
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Host
from mailmend.mailqueue.rabbitmq.mail_queue import open_queue
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.errors import WrongUse
from mailmend.repair.clock import SystemClock
from tests.support.checkout import CHECKOUT
from tests.support.real_queue import LETTER, RealQueue, until

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store, pytest.mark.thorough]

MIB = 2**20
MANY = tuple(f"{number:05}{'a' * 50}@{'b' * 50}.example.org" for number in range(50_000))


@asynccontextmanager
async def opened(queue: RealQueue, folder: Path) -> AsyncIterator[MailQueue]:
    """The queue as a program has it that uses the library."""
    clock, host = SystemClock(), Host(queue.broker.host, queue.broker.port)
    broker = RabbitBroker(BrokerSettings((host,), queue.vhost), clock)
    blobs = open_files(folder / "blobs", clock)
    try:
        async with await open_queue(queue.name, AsyncKeyspace(queue.keyspace), broker, blobs, clock) as process:
            yield process
    finally:
        await broker.close()


def large(size_mib: float) -> Mail:
    """A mail whose attribute has that many MiB."""
    return Mail("large", ("bob@example.org",), attributes={"large": attribute("x" * int(size_mib * MIB))})


def test_a_command_with_50_000_long_recipients_puts_each_of_them_once(queue: RealQueue, tmp_path: Path) -> None:
    """Given one that is killed when some of the mails that it makes are in the queue, of which one is delivered."""
    letter, members, out = tmp_path / "letter.eml", tmp_path / "members.txt", tmp_path / "out"
    letter.write_bytes(LETTER)
    members.write_text("\n".join(MANY))
    typed = ("enqueue", str(letter), "--recipients-file", str(members), "--idempotency-key", "letter-1", "--json")
    environment = {**queue.line.environment, "HOME": str(queue.line.home), "PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-m", "mailmend", "queue", *typed]

    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, cwd=CHECKOUT) as first:
        until(lambda: queue("size", "--json").json["mails"] >= 2)
        first.kill()
    taken = queue("dequeue", "--dir", str(out), "--limit", "1", "--wait", "20s", "--json")
    again = queue(*typed)
    left = queue("dequeue", "--dir", str(out), "--wait", "3s", "--json")

    assert (taken.json["acked"], again.code, left.code) == (1, 0, 0), again.err
    assert len(again.json["enqueued"][0]["ids"]) == 10
    recipients = [recipient for file in out.glob("*.json") for recipient in json.loads(file.read_text())["recipients"]]
    assert tuple(sorted(recipients)) == MANY


@pytest.mark.parametrize("delay", [None, timedelta(hours=1)])
async def test_an_envelope_that_has_no_room_is_refused_for_good(
    queue: RealQueue, tmp_path: Path, delay: timedelta | None
) -> None:
    """New mails at the door, those that the queue had before by Cassandra; nothing of either is in the queue."""
    async with opened(queue, tmp_path) as process:
        for size_mib in (4.5, 17):
            with pytest.raises(WrongUse, match=r"no queue takes more than 4,194,304"):
                await process.enqueue(large(size_mib), LETTER, delay=delay)
        with pytest.raises(WrongUse, match="exceeds allowed maximum"):
            await process.enqueue(large(17), LETTER, delay=delay, was_queued=True)

        assert [mail async for mail in process.browse()] == []


async def test_an_envelope_that_has_room_goes_in_and_out(queue: RealQueue, tmp_path: Path) -> None:
    """New mails up to the limit, and larger ones that the queue had before."""
    async with opened(queue, tmp_path) as process:
        await process.enqueue(large(3.9), LETTER)
        await process.enqueue(large(6), LETTER, was_queued=True)

        sizes = []
        async with process.dequeue() as mails:
            for _ in range(2):
                mail = await anext(mails)
                sizes.append(len(mail.mail.attributes["large"]))
                await mail.ack()

    assert sorted(sizes) == [len(large(size_mib).attributes["large"]) for size_mib in (3.9, 6)]
