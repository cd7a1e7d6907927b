"""Mails that were taken out come back once each: what is there of them is seen, what failed is gone on with."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.comparison import LiveMail
from mailmend.mailqueue.queue import RemovedMail, RestoreResult
from mailmend.mailqueue.rabbitmq.changes import return_of
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.mails import MailBlobs, Whereabouts
from mailmend.model.catalog.mail_queue import DELETED_MAILS, DUE_MAILS, ENQUEUED_MAILS, OwnTables
from mailmend.model.errors import CannotReach, Delayed, MailmendError, PublishFailed, WrongUse
from mailmend.model.ids import BlobId, EnqueueId, QueueName, restored_id
from mailmend.model.operations import Scan
from tests.support.memory_broker import Fate
from tests.support.queues import CONTENT, QUEUE, TwinQueue, all_delivered, enqueued, listed, mail, names, twin_queue
from tests.support.striking import Refusing, reads_of, writes_of

WAS = EnqueueId(UUID(int=7, version=4))
HOUR = timedelta(hours=1)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
BLOBS = MailBlobs(BlobId("h"), BlobId("b"))

WAITS = LiveMail(NOON, NOON, BLOBS)
DELAYED = LiveMail(NOON, None, BLOBS)

uuids = st.uuids(version=4).map(EnqueueId)


@pytest.mark.parametrize(
    ("traces", "what"),
    [
        ({}, RestoreResult.PUT),
        ({"stays": True}, RestoreResult.STAYS),
        ({"back": WAITS}, RestoreResult.PUBLISH),
        ({"back": DELAYED}, RestoreResult.NOTHING),
        ({"back": WAITS, "stays": True}, RestoreResult.PUBLISH),
        ({"marked": True}, RestoreResult.NOTHING),
        ({"marked": True, "back": WAITS, "stays": True}, RestoreResult.NOTHING),
    ],
)
def test_what_brings_a_mail_back_follows_from_its_traces(traces: dict[str, Any], what: RestoreResult) -> None:
    assert return_of(**{"marked": False, "back": None, "stays": False, **traces}) is what


@given(was=uuids, other=uuids)
def test_the_new_id_follows_from_the_old_one(was: EnqueueId, other: EnqueueId) -> None:
    """The same each time, another for each mail, for each queue, and for a copy that is taken out once more."""
    outgoing = QueueName("outgoing")
    again = restored_id(restored_id(was, QUEUE), QUEUE)

    assert restored_id(was, QUEUE) == restored_id(EnqueueId(UUID(str(was))), QUEUE)
    assert (restored_id(was, QUEUE) == restored_id(other, QUEUE)) is (was == other)
    assert len({was, restored_id(was, QUEUE), restored_id(was, outgoing), again}) == 4


async def restored(queue: RabbitMailQueue, due_at: datetime | None = None) -> RestoreResult:
    return await (await queue.restoring([WAS])).restore(RemovedMail(WAS, mail("one"), CONTENT, due_at))


async def test_it_comes_back_whole(queue: RabbitMailQueue) -> None:
    """Under the id that follows from its old one, with its bytes, counted as any other."""
    assert await restored(queue) is RestoreResult.PUT
    (one,) = await listed(queue)
    assert one.queued.enqueue_id == restored_id(WAS, QUEUE)
    assert await queue.content(one) == CONTENT
    assert (await queue.size()).mails == 1
    assert await all_delivered(queue) == ["one"]


async def test_a_delayed_one_waits_for_its_time(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    due_at = twin.clock.now + HOUR
    assert await restored(queue, due_at) is RestoreResult.PUT
    assert await restored(queue, due_at) is RestoreResult.NOTHING
    assert [(one.whereabouts, one.due_at) for one in await listed(queue)] == [(Whereabouts.DELAYED, due_at)]
    assert twin.broker.ready(QUEUE) == []


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNCONFIRMED_KEPT, Fate.UNCONFIRMED_LOST, Fate.UNCONFIRMED_LATE])
async def test_a_publish_that_failed_is_gone_on_with(fate: Fate, twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """No mark hides the mail from the next try; whatever the broker kept, it comes once."""
    twin.broker.will(fate)
    with pytest.raises(PublishFailed):
        await restored(queue)

    assert await restored(queue) is RestoreResult.PUBLISH
    twin.broker.let_arrive()

    assert await names(queue) == ["one"]
    assert await all_delivered(queue) == ["one"]
    assert await restored(queue) is RestoreResult.NOTHING
    assert await names(queue) == []


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("due", [None, HOUR])
async def test_a_row_in_doubt_is_gone_on_with(
    twin: TwinQueue, queue: RabbitMailQueue, due: timedelta | None, *, done: bool
) -> None:
    due_at = twin.clock.now + due if due else None
    table = DUE_MAILS if due else ENQUEUED_MAILS
    refusing = Refusing(twin, tables=writes_of(table), done_all_the_same=done)
    with pytest.raises(CannotReach):
        await restored(queue, due_at)
    refusing.mend()

    await restored(queue, due_at)

    await queue.flush()
    assert await all_delivered(queue) == ["one"]
    assert await names(queue) == []


@pytest.mark.parametrize("table", [DELETED_MAILS, ENQUEUED_MAILS])
async def test_without_a_look_nothing_is_put(table: object, twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "other")
    before = set(twin.blobs.ids)
    Refusing(twin, tables=reads_of(table))  # type: ignore[arg-type]
    with pytest.raises(CannotReach):
        await restored(queue)
    assert set(twin.blobs.ids) == before


async def test_one_that_never_left_stays_as_it_is(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    (was,) = await enqueued(queue, "one")
    found = await queue.restoring([was])
    assert await found.restore(RemovedMail(was, mail("one"), CONTENT)) is RestoreResult.STAYS
    assert await all_delivered(queue) == ["one"]
    assert not twin.broker.published[1:]


@pytest.mark.parametrize(
    ("wrong", "error"), [(mail("one", recipients=("no address",)), WrongUse), (mail("one"), Delayed)]
)
async def test_what_cannot_come_back_leaves_nothing_behind(wrong: object, error: type[MailmendError]) -> None:
    """A mail that James could not read; a delay in a keyspace that knows none."""
    twin = twin_queue(own=OwnTables(due=False))
    due_at = twin.clock.now + HOUR if error is Delayed else None
    async with await twin.process() as queue:
        with pytest.raises(error):
            await (await queue.restoring([WAS])).restore(RemovedMail(WAS, wrong, CONTENT, due_at))  # type: ignore[arg-type]
        assert not twin.blobs.ids
        assert not list(twin.memory.scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names)))


async def test_nobody_to_bring_back_asks_nothing(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    Refusing(twin, tables=lambda _: True)
    await queue.restoring([])
