"""Where blobs are referred to: every column that may name one, delayed mails before and after others."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.collection.references import table_references
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.catalog.mail_queue import DELETED_MAILS, DUE_MAILS, ENQUEUED_MAILS
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put
from mailmend.model.table import Column, Kind, Table
from tests.support.schemas import served


def columns(schema: Schema) -> dict[str, tuple[str, ...]]:
    return {one.table.name: one.columns for one in table_references(schema, MemoryTables(lambda: 0))}


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
    order = [one.table.name for one in table_references(served(SCHEMA), MemoryTables(lambda: 0))]
    waiting = order.index("enqueuedmailsv4")

    assert order[waiting - 1] == order[waiting + 1] == "duemails"


@pytest.mark.parametrize("table", [ENQUEUED_MAILS, DUE_MAILS])
def test_a_marked_mail_does_not_need_its_blobs(table: Table) -> None:
    """They went on purpose; the row is still to go, the delayed one of a retry too whose process was killed."""
    tables, marked, waits = MemoryTables(lambda: 0), UUID(int=1), UUID(int=2)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    key = {"queuename": "out", "timerangestart": noon, "dueslice": noon, "dueat": noon, "bucketid": 0}
    for one in (marked, waits):
        row = {name: cell for name, cell in key.items() if name in {column.name for column in table.columns}}
        tables.write(Put(table, {**row, "enqueueid": one, "bodyblobid": f"blob{one.int}"}))
    tables.write(Put(DELETED_MAILS, {"queuename": "out", "enqueueid": marked}))

    (source,) = table_references(Schema((), (table,)), tables)[:1]

    assert {one.blob_id: one.needed for one in source.references()} == {"blob1": False, "blob2": True}
