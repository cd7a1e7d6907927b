"""Tidying: bytes that are done with go, together under load; what fails there fails nobody."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from mailqueue import background as tidying
from mailqueue.background import BackgroundTasks, BlobCleanup
from model.errors import BlobsUnreachable
from model.ids import BlobId
from model.queue.mails import MailBlobs
from tests.support.clock import VirtualClock
from tests.support.queues import CONTENT, TwinQueue, enqueued, mail, until


class Deleting:
    """Blobs that only delete, when the gate is open.

    Attributes:
        requests: how many each was asked to delete.
    """

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.deleted: list[BlobId] = []
        self.gate = asyncio.Event()
        self.silent = False

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        """Delete them."""
        self.requests.append(len(blob_ids))
        await self.gate.wait()
        if self.silent:
            raise BlobsUnreachable("no answer")
        self.deleted += blob_ids


def kept(number: int) -> MailBlobs:
    """A mail's blobs."""
    return MailBlobs(BlobId(f"h{number}"), BlobId(f"b{number}"))


def tidying_over(blobs: Any, sweeps: list[int], afterwards: BackgroundTasks) -> BlobCleanup:
    """Whose sweeps are counted."""

    async def maybe_sweep() -> None:
        sweeps.append(1)

    return BlobCleanup(blobs, maybe_sweep, afterwards, VirtualClock())


async def test_what_comes_meanwhile_goes_together() -> None:
    """One request for the first, one for all that came while it was under way; a chance of a sweep for each mail."""
    blobs, sweeps, afterwards = Deleting(), list[int](), BackgroundTasks()
    tidier = tidying_over(blobs, sweeps, afterwards)
    await tidier.add(kept(0), dequeued=True)
    await until(lambda: len(blobs.requests) == 1)
    for number in range(1, 10):
        await tidier.add(kept(number), dequeued=number % 2 == 0)
    blobs.gate.set()
    await afterwards.close()
    assert blobs.requests == [2, 18]
    assert len(set(blobs.deleted)) == 20
    assert len(sweeps) == 5


async def test_the_first_waits_a_moment_for_others() -> None:
    """A consumer that acks one mail after the other has many of them forgotten by one request."""
    blobs, afterwards = Deleting(), BackgroundTasks()
    tidier = tidying_over(blobs, [], afterwards)
    blobs.gate.set()
    for number in range(5):
        await tidier.add(kept(number), dequeued=False)
        await asyncio.sleep(0)
    await afterwards.close()
    assert blobs.requests == [10]


async def test_consumers_wait_for_a_store_that_is_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more waits than there is room for."""
    monkeypatch.setattr(tidying, "WAITING_MAX", 3)
    monkeypatch.setattr(tidying, "TOGETHER_MAX", 2)
    blobs, afterwards = Deleting(), BackgroundTasks()
    tidier = tidying_over(blobs, [], afterwards)
    await tidier.add(kept(0), dequeued=False)
    await until(lambda: len(blobs.requests) == 1)
    adding = [asyncio.ensure_future(tidier.add(kept(number), dequeued=False)) for number in range(1, 9)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert sum(one.done() for one in adding) == 3
    blobs.gate.set()
    await asyncio.gather(*adding)
    await afterwards.close()
    assert len(set(blobs.deleted)) == 18
    assert max(blobs.requests) <= 4


async def test_a_store_that_does_not_answer_fails_nobody() -> None:
    """What it keeps is left to the sweep; the next mails are tried again."""
    blobs, sweeps, afterwards = Deleting(), list[int](), BackgroundTasks()
    tidier = tidying_over(blobs, sweeps, afterwards)
    blobs.gate.set()
    blobs.silent = True
    await tidier.add(kept(0), dequeued=True)
    await afterwards.close()
    assert len(sweeps) == 1
    blobs.silent = False
    await tidier.add(kept(1), dequeued=True)
    await afterwards.close()
    assert blobs.deleted == ["h1", "b1"]


async def test_a_busy_queue_leaves_no_bytes(twin: TwinQueue) -> None:
    """Closed, it has forgotten those of every mail that was acked."""
    async with await twin.process() as queue:
        await enqueued(queue, *(f"{number}" for number in range(50)))
        await queue.enqueue(mail("kept"), CONTENT, priority=0)
        async with queue.dequeue(prefetch=20, priorities=[5]) as mails, asyncio.TaskGroup() as tasks:
            for _ in range(50):
                tasks.create_task((await anext(mails)).ack())
    assert len(twin.blobs.ids) == 2
