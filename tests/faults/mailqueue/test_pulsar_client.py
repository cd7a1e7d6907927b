"""Pulsar's own client, whose threads are not Python's: it leaks nothing, and ends with its process, not it."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar.asyncio as pulsar_async
import pytest

from mailmend.mailqueue.blobs.object_storage import open_files
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.topics import TopicMessage
from mailmend.mailqueue.rules.places import Backlog
from mailmend.model.errors import BrokerUnreachable
from mailmend.repair.clock import SystemClock
from tests.support.patience import PATIENCE_SECONDS
from tests.support.pulsars import PulsarNamespace, RealPulsar
from tests.support.queues import enqueued
from tests.support.thorough import share

pytestmark = pytest.mark.pulsar

POLL_SECONDS = 0.05
FILES_KEPT_MAX = 10
"""A logger of the client's keeps the null device open for each thread, and each file of its source."""


@pytest.fixture
def namespace(pulsar: RealPulsar) -> Iterator[PulsarNamespace]:
    with pulsar.namespace() as found:
        yield found


def lines_of(program: "subprocess.Popen[str]", line: str = "") -> list[Any]:
    """What it says until it ends, in good order."""
    out, err = program.communicate(line, PATIENCE_SECONDS)
    assert program.returncode == 0, err
    assert "terminate called" not in err
    return [json.loads(one) for one in out.splitlines()]


def test_opening_and_closing_leaves_no_thread_and_no_file(namespace: PulsarNamespace) -> None:
    lines, ends = lines_of(namespace.program("opens_and_closes", share(50)))
    (threads_before, files_before), (threads, files) = lines
    assert threads <= threads_before
    assert files <= files_before + FILES_KEPT_MAX
    assert ends == "ends"


async def test_a_process_that_closes_nothing_ends_well(namespace: PulsarNamespace) -> None:
    """A message comes for an event loop that is closed; and the client is connecting when the interpreter ends."""
    program = namespace.program("leaves")
    assert program.stdout is not None
    assert json.loads(await asyncio.to_thread(program.stdout.readline)) == "waits"
    topics = PulsarTopics(namespace.settings, SystemClock())
    await topics.publish("left", TopicMessage("late"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await topics.backlog("left", "all") or Backlog()).unacked < 1:  # noqa: ASYNC110 - Pulsar tells nobody
            await asyncio.sleep(POLL_SECONDS)
    await topics.close()
    assert await asyncio.to_thread(lines_of, program, "\n") == ["ends"]


@pytest.mark.parametrize("tells", [True, False], ids=["the library tells", "the library forgets to tell"])
async def test_whoever_waits_for_a_message_hears_that_the_client_was_closed(
    namespace: PulsarNamespace, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    """Its threads end with it, and with them, now and then, the call that would tell."""
    if not tells:
        monkeypatch.setattr(pulsar_async.Consumer, "receive", lambda _: asyncio.Event().wait())
    topics = PulsarTopics(namespace.settings, SystemClock())
    async with topics.consume("waited", "all", 5) as deliveries:
        waiting = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0)
        await topics.close()
        with pytest.raises(BrokerUnreachable):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await waiting
    await topics.close()


async def test_what_a_killed_process_had_in_its_hands_goes_to_another(
    namespace: PulsarNamespace, tmp_path: Path
) -> None:
    blobs = open_files(tmp_path, SystemClock())
    async with namespace.process(blobs) as queue:
        await enqueued(queue, *map(str, range(4)))
        program = namespace.program("holds", tmp_path)
        assert program.stdout is not None
        held = json.loads(await asyncio.to_thread(program.stdout.readline))
        async with queue.dequeue() as mails:
            program.kill()
            await asyncio.to_thread(program.communicate)
            came = dict[str, bool]()
            while len(came) < 3:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    one = await anext(mails)
                came[one.mail.name] = one.redelivered
                await one.ack()
        assert set(held) <= set(came) <= {"0", "1", "2", "3"}
        assert all(came[name] for name in held)
        assert (await queue.size()).mails == 0
