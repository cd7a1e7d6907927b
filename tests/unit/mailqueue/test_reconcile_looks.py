"""What is looked at, in which order: every column that may refer to a blob, delayed mails before and after others."""

import pytest

from mailqueue.maintenance.reconcile import LAST_LOOK_SECONDS, PATIENCE_SECONDS, drained, patience, references_in
from model.catalog.mail import SCHEMA
from model.queue.messages import Depth
from model.schema.keyspace import Schema
from model.schema.table import Column, Kind, Table
from tests.support.queues import QUEUE, TwinQueue, enqueued
from tests.support.schemas import served


def columns(schema: Schema) -> dict[str, tuple[str, ...]]:
    return {one.table.name: one.columns for one in references_in(schema)}


def test_every_table_that_names_blobs_is_read() -> None:
    """Mails in the queue, messages, attachments; the store itself refers to none."""
    found = columns(served(SCHEMA))

    assert set(found["enqueuedmailsv4"]) == {"headerblobid", "bodyblobid"}
    assert set(found["duemails"]) == {"headerblobid", "bodyblobid"}
    assert set(found["messagev3"]) == {"headercontent", "bodycontent"}
    assert found["attachmentv2"] == ("blobid",)
    assert not found.keys() & {"blobs", "blobparts", "mailbox"}


def test_a_table_that_is_not_known_here_counts_too() -> None:
    """James's mail repositories, say: better one reference too many than a lost mail."""
    repository = Table(
        "mailRepositoryContentV2",
        (
            Column("url", "text", Kind.PARTITION),
            Column("mailKey", "text", Kind.PARTITION),
            Column("headerBlobId", "text"),
            Column("bodyBlobId", "text"),
            Column("blobCount", "int"),
        ),
    )

    assert columns(Schema((), (repository,))) == {"mailrepositorycontentv2": ("headerblobid", "bodyblobid")}


def test_delayed_mails_are_read_on_both_sides_of_those_that_wait() -> None:
    """One that moves between two tables meanwhile is met in one of them."""
    order = [one.table.name for one in references_in(served(SCHEMA))]
    waiting = order.index("enqueuedmailsv4")

    assert order[waiting - 1] == order[waiting + 1] == "duemails"


@pytest.mark.parametrize(("ready", "dead", "unseen"), [(2, 1, 0), (0, 0, 0), (3, 1, 1), (2, 4, 3), (5, 3, 5)])
async def test_what_was_counted_and_never_came_is_reported(ready: int, dead: int, unseen: int, twin: TwinQueue) -> None:
    """Two messages and a dead letter come; whatever else was counted may refer to anything."""
    async with await twin.process() as queue:
        await enqueued(queue, "dead")
        async with queue.dequeue() as mails:
            await (await anext(mails)).reject()
        await enqueued(queue, "a", "b")

    found = await drained(twin.broker, twin.clock, QUEUE, Depth(ready, 0, 0, dead), most=9)

    assert (len(found.ids), len(found.dead), found.unseen) == (2, 1, unseen)
    assert found.mails == {}


@pytest.mark.parametrize(
    ("taken", "expected", "seconds"),
    [(0, 3, PATIENCE_SECONDS), (2, 3, PATIENCE_SECONDS), (3, 3, LAST_LOOK_SECONDS), (0, 0, LAST_LOOK_SECONDS)],
)
def test_a_drain_waits_for_what_was_counted(taken: int, expected: int, seconds: float) -> None:
    assert patience(taken, expected) == seconds
