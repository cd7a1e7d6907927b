"""Where blobs are referred to: every column that may name one, delayed mails before and after others."""

from cql.memory import MemoryTables
from mailqueue.maintenance.blob_references import table_references
from model.catalog.mail import SCHEMA
from model.schema.keyspace import Schema
from model.schema.table import Column, Kind, Table
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
