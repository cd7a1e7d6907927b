"""A shell on two queues in memory: one over RabbitMQ with its tables, one over Pulsar, with one blob store."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mailmend.admin.queue import connections as queues
from mailmend.admin.queue.kept_mails import MoveJournalFile
from mailmend.mailqueue.pulsar import adapter
from mailmend.mailqueue.pulsar.mail_queue import open_queue
from mailmend.mailqueue.queue import MailQueue
from mailmend.mailqueue.rules.mails import Listed
from tests.support.clock import VirtualClock
from tests.support.commands import Ended
from tests.support.memory_topics import MemoryTopics
from tests.support.mortal_commands import mortal
from tests.support.queue_commands import SPOOL, QueueShell, queue_shell
from tests.support.queue_wires import Side
from tests.support.queue_world import Died, Fortune
from tests.support.queues import listed
from tests.support.skewed import SkewedClock
from tests.support.topic_wires import WiredTopics

T = TypeVar("T")

PULSAR = "pulsar://127.0.0.1"
RABBITMQ = "amqp://127.0.0.1"


@dataclass
class TwoQueues:
    """A shell whose commands reach both queues.

    Attributes:
        rabbit: the shell of the queue over RabbitMQ.
        topics: the broker of the other.
    """

    rabbit: QueueShell
    topics: MemoryTopics

    def move(self, *arguments: str, back: bool = False, dies_before: int | None = None) -> Ended | None:
        """Move from RabbitMQ to Pulsar, or back; None where that process was killed before that step."""
        ends = ("--broker", PULSAR, "--to-broker", RABBITMQ) if back else ("--to-broker", PULSAR)
        words = ("move", *ends, *arguments, "--wait", "1s", "--json")
        if dies_before is None:
            return self.rabbit(*words)
        with mortal(self.rabbit, life := Fortune().dies_before(dies_before)), mortal_move(self, life):
            try:
                return self.rabbit(*words)
            except Died:
                return None

    def on(self, story: Callable[[MailQueue], Awaitable[T]], *, pulsar: bool) -> T:
        """What a story comes to in a process of its own that has one of the queues open."""
        return self._on_pulsar(story) if pulsar else self.rabbit.on_queue(story)

    def listed(self, *, pulsar: bool) -> list[Listed]:
        return self.on(listed, pulsar=pulsar)

    def _on_pulsar(self, story: Callable[[MailQueue], Awaitable[T]]) -> T:
        async def answer() -> T:
            async with await open_queue(SPOOL, self.topics, self.rabbit.blobs, self.rabbit.clock) as queue:
                return await story(queue)

        return asyncio.run(answer())


def two_queues(monkeypatch: pytest.MonkeyPatch, home: Path) -> TwoQueues:
    rabbit = queue_shell(monkeypatch, home)
    topics = MemoryTopics(rabbit.clock)
    monkeypatch.setattr(adapter, "PulsarTopics", lambda *_: topics)
    monkeypatch.setattr(queues, "SystemClock", lambda: rabbit.clock)
    return TwoQueues(rabbit, topics)


@contextmanager
def mortal_move(shell: TwoQueues, life: Fortune) -> Iterator[None]:
    """Whatever a move does at the broker of topics, or writes down, is a step of that life."""
    clock: SkewedClock[VirtualClock] = SkewedClock(shell.rabbit.clock, timedelta(0))
    write = MoveJournalFile._write

    def written(journal: MoveJournalFile, *arguments: Any) -> None:
        """Half of it is on the disk where the process dies."""
        dead = life.dead
        try:
            life.meets(Side.BLOBS, "journal")
        except Died:
            if not dead:
                whole = "".join(journal._pending).encode()
                with journal.path.open("ab") as file:
                    file.write(whole[: len(whole) * 2 // 3])
            raise
        write(journal, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "PulsarTopics", lambda *_: WiredTopics(shell.topics, life, clock))
        patch.setattr(MoveJournalFile, "_write", written)
        yield
