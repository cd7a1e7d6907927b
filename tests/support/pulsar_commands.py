"""`mailmend queue` as a person types it, on a queue over topics in memory, and time turned by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from mailmend.admin.queue import connections, openers
from mailmend.mailqueue.pulsar.deletions import JamesFilter, filter_text, filter_topics
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue
from mailmend.mailqueue.pulsar.topics import TopicMessage
from mailmend.mailqueue.rules.deletions import FilterKind
from mailmend.model.ids import QueueName
from tests.support.clock import VirtualClock
from tests.support.commands import CommandLine, Ended, command_line
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_topics import MemoryTopics
from tests.support.queues import CONTENT, mail

T = TypeVar("T")

SPOOL = QueueName("spool")


@dataclass
class PulsarShell:
    """A shell, and the queue over topics that its commands work on."""

    line: CommandLine
    clock: VirtualClock
    topics: MemoryTopics
    blobs: MemoryBlobs

    def __call__(self, *arguments: str, **environment: str) -> Ended:
        return self.line("queue", *arguments, **environment)

    def doctor(self, *arguments: str) -> Mapping[str, Mapping[str, str]]:
        """Each part as the doctor finds it."""
        return {one["part"]: one for one in self.line("doctor", "--json", *arguments).json["parts"]}

    def on_queue(self, story: Callable[[PulsarMailQueue], Awaitable[T]]) -> T:
        """What a story comes to in a process of its own that has the queue open."""

        async def answer() -> T:
            async with await open_queue(SPOOL, self.topics, self.blobs, self.clock) as queue:
                return await story(queue)

        return asyncio.run(answer())

    def put(self, *names: str, delay: timedelta | None = None) -> None:
        async def story(opened: PulsarMailQueue) -> None:
            for name in names:
                await opened.enqueue(mail(name), CONTENT, delay=delay)

        self.on_queue(story)

    def publish(self, topic: str, payload: str) -> None:
        asyncio.run(self.topics.publish(topic, TopicMessage(payload)))

    def james_deletes(self, name: str) -> None:
        """As James does it: on both topics, with a number of its own."""
        for topic in filter_topics(SPOOL):
            self.publish(topic, filter_text(JamesFilter(FilterKind.NAME, name, 3)))

    def reject(self, count: int) -> None:
        """The first mails become dead letters."""

        async def story(opened: PulsarMailQueue) -> None:
            async with opened.dequeue(count) as mails:
                for _ in range(count):
                    await (await anext(mails)).reject()

        self.on_queue(story)


def pulsar_shell(monkeypatch: pytest.MonkeyPatch, home: Path) -> PulsarShell:
    """A shell on an empty queue in memory, in place of any server that a command would connect to."""
    clock = VirtualClock()
    topics, blobs = MemoryTopics(clock), MemoryBlobs(clock)
    monkeypatch.setattr(connections, "SystemClock", lambda: clock)
    monkeypatch.setattr(openers, "topics_behind", lambda _settings, _clock: topics)
    monkeypatch.setattr(openers, "blobs_behind", lambda *_, **__: blobs)
    sides = {"MAILMEND_BROKER": "pulsar://127.0.0.1", "MAILMEND_BLOBS": f"file://{home}/blobs"}
    return PulsarShell(command_line(home, None, **sides), clock, topics, blobs)
