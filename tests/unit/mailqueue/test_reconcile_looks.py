"""How long a queue's messages are waited for, and what its dead letters name."""

import pytest

from mailmend.mailqueue.rabbitmq.reconcile import LAST_LOOK_SECONDS, PATIENCE_SECONDS, dead_letters_named, patience
from tests.support.queues import QUEUE, TwinQueue, enqueued


@pytest.mark.parametrize("counted", [0, 1, 4])
async def test_dead_letters_are_named_however_many_were_counted(counted: int, twin: TwinQueue) -> None:
    async with await twin.process() as queue:
        await enqueued(queue, "dead")
        async with queue.dequeue() as mails:
            await (await anext(mails)).reject()

    found = await dead_letters_named(twin.broker, twin.clock, QUEUE, counted)

    assert (found.taken, len(found.ids), len(found.blobs), found.bad) == (1, 1, 2, 0)


@pytest.mark.parametrize(
    ("taken", "expected", "seconds"),
    [(0, 3, PATIENCE_SECONDS), (2, 3, PATIENCE_SECONDS), (3, 3, LAST_LOOK_SECONDS), (0, 0, LAST_LOOK_SECONDS)],
)
def test_a_drain_waits_for_what_was_counted(taken: int, expected: int, seconds: float) -> None:
    assert patience(taken, expected) == seconds
