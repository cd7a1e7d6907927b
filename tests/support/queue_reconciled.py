"""Queues in memory whose sides went apart, and what `mailmend queue reconcile` says of them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from mailmend.cql.row_statements import Operation
from mailmend.mailqueue.codec import message_of
from mailmend.mailqueue.codec import row_of as codec_row
from mailmend.mailqueue.rules.mails import PRIORITY_NORMAL
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.blobs import BlobKind
from mailmend.model.catalog.mail_queue import DUE_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import BlobId, EnqueueId
from mailmend.model.operations import Put, Remove, Scan
from tests.support.queue_commands import KEYSPACE, QueueShell


def settled(queue: QueueShell, *names: str) -> list[EnqueueId]:
    """Mails that have been in the queue for two hours."""
    mails = queue.put(*names)
    queue.pass_time(hours=2)
    return mails


def found(queue: QueueShell, *arguments: str, code: int = 1) -> dict[str, Any]:
    ended = queue("reconcile", *arguments, "--json")
    assert ended.code == code, ended.err
    return ended.json


def row_of(queue: QueueShell, enqueue_id: EnqueueId) -> dict[str, Any]:
    rows = queue.cluster.keyspace(KEYSPACE).scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names))
    (row,) = (dict(row) for row in rows if row["enqueueid"] == enqueue_id)
    return row


def stray_blob(queue: QueueShell) -> BlobId:
    return asyncio.run(queue.blobs.put(b"stray", BlobKind.BODY))


class Moving:
    """Before one of the looks at delayed mails, all of them move into the queue.

    Args:
        left: how many looks come before that.
    """

    def __init__(self, queue: QueueShell, left: int) -> None:
        self._queue, self._left = queue, left
        self._mails = queue.listed()
        self.done = False

    def __call__(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, Scan) and operation.table.name == DUE_MAILS.name and not self.done:
            self._left -= 1
            if self._left < 0:
                self.done = True
                self._move()
        return carry_out()

    def _move(self) -> None:
        name, tables = self._queue.name, self._queue.cluster.keyspace(KEYSPACE)
        slice_start = slice_of(self._queue.now, timedelta(hours=1))
        for one in self._mails:
            tables.write(Put(ENQUEUED_MAILS, codec_row(name, slice_start, 0, one.enqueued_at, one.queued)))
            self._queue.broker._keep(name, message_of(one.queued, slice_start), PRIORITY_NORMAL)
        for row in list(tables.scan(Scan(DUE_MAILS, DUE_MAILS.names))):
            tables.write(Remove(DUE_MAILS, DUE_MAILS.key_of(row), at=self._queue.clock.micros() + 1))
