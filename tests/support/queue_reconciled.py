"""Queues in memory whose sides went apart, and what `mailmend queue reconcile` says of them."""

import asyncio
from typing import Any

from mailqueue.blobs.stores import NamedBlobs
from mailqueue.ports import BlobKind
from model.catalog_queue import ENQUEUED_MAILS
from model.ids import BlobId, EnqueueId
from model.operations import Scan
from tests.support.queue_commands import KEYSPACE, QueueShell


def settled(queue: QueueShell, *names: str) -> list[EnqueueId]:
    """Mails that have been in the queue for two hours."""
    mails = queue.put(*names)
    queue.pass_time(hours=2)
    return mails


def found(queue: QueueShell, *arguments: str, code: int = 1) -> dict[str, Any]:
    """What a comparison comes to."""
    ended = queue("reconcile", *arguments, "--json")
    assert ended.code == code, ended.err
    return ended.json


def row_of(queue: QueueShell, enqueue_id: EnqueueId) -> dict[str, Any]:
    """A mail's row."""
    rows = queue.cluster.keyspace(KEYSPACE).scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names))
    (row,) = (dict(row) for row in rows if row["enqueueid"] == enqueue_id)
    return row


def stray_blob(queue: QueueShell, content: bytes = b"stray", blobs: NamedBlobs | None = None) -> BlobId:
    """A blob that nothing refers to."""
    return asyncio.run((blobs or queue.blobs).put(content, BlobKind.BODY))
