"""A queue as James 3.8.1 filled it: its messages, its rows and its blobs, as values of ours and as they were written.

`put_james_queue(tables)` is all that most tests need: the view of the queue `spool` with 24 mails, ten of them marked.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from mailmend.cql.rows import decode
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import JAMES_QUEUE_TABLES
from mailmend.model.ids import BlobId, QueueName
from mailmend.model.operations import Put
from mailmend.model.ports import Tables
from mailmend.model.table import Row, Table

FOLDER: Final = Path(__file__).parents[1] / "data" / "james-queue"
SPOOL: Final = QueueName("spool")


@dataclass(frozen=True, slots=True)
class JamesMessage:
    """A message as the broker held it; `properties` beside its body."""

    body: bytes
    properties: Mapping[str, Any]


@cache
def james_messages() -> tuple[JamesMessage, ...]:
    """The 24 messages, before anything was dequeued."""
    return tuple(JamesMessage(line.pop("body").encode(), line) for line in _lines("messages.jsonl"))


@cache
def james_enqueued() -> tuple[Mapping[str, Any], ...]:
    """The 24 mails as they were handed to James, field by field."""
    return tuple(_lines("enqueued.jsonl"))


def james_queue_rows(table: Table) -> tuple[Row, ...]:
    """The rows of one of the queue's tables, or of eventStore; every column is there."""
    return tuple(
        {column.name: decode(column.type, line[column.name]) for column in table.columns}
        for line in _lines(f"tables/{table.name}.jsonl.gz")
    )


@cache
def james_blobs() -> Mapping[BlobId, bytes]:
    """The bytes of headers and bodies, by id; James kept each of them in one chunk."""
    return {BlobId(line["id"]): bytes.fromhex(line["data"][2:]) for line in _lines("tables/blobparts.jsonl.gz")}


def put_james_queue(tables: Tables) -> None:
    """Write the view and its configuration into tables that exist."""
    for table in (*JAMES_QUEUE_TABLES, EVENT_STORE):
        for row in james_queue_rows(table):
            tables.write(Put(table, {name: cell for name, cell in row.items() if cell is not None}))


def _lines(name: str) -> list[dict[str, Any]]:
    file = FOLDER / name
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [json.loads(line) for line in text.decode().splitlines()]
