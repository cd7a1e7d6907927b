"""Renewal: a mail that stays longer than its row would live is put again as it is, so that none expires out of sight.

The row is put with a stamp that lies before it was read: whoever takes the mail back at the same time still wins, and
nothing that is gone comes back. Tables without a time to live need none of this.
"""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

from mailqueue.ports import Tables
from mailqueue.view.marks import answered
from mailqueue.view.queue_view import QueueView
from model.catalog_queue import ENQUEUED_MAILS
from model.ids import EnqueueId, QueueName
from model.instants import MICROS, instant_of
from model.operations import Put, Read, Remove, Seen
from model.slices import Slicing
from model.starts import ROUNDS_PER_SLACK, ageing_before, live_slices, rows_lapsed_before, slack_of
from model.table import Key
from repair.clock import MARGIN_SECONDS


class Renewal:
    """Renews the mails of every queue of a keyspace."""

    def __init__(self, tables: Tables, view: QueueView) -> None:
        self._tables, self._view = tables, view
        self._row_ttl = timedelta(seconds=view.ground.own.row_ttl_seconds)
        self._mark_ttl = timedelta(seconds=view.ground.own.mark_ttl_seconds)
        self._renewed_at: dict[QueueName, datetime] = {}

    async def renew(self, queue: QueueName, browse_start: datetime, slicing: Slicing) -> int:
        """Put every mail again whose row has less than half of the slack left; how many.

        Raises:
            MailmendError: whatever did not answer; what was not renewed is by the next.
        """
        now = self._view.ground.now
        if not self._row_ttl or not self._is_time(queue, now):
            return 0
        before, renewed = ageing_before(now, self._row_ttl, self._mark_ttl), 0
        for slice_start in live_slices(browse_start, now, slicing.window):
            if slice_start >= before:
                break
            for bucket in range(slicing.buckets):
                renewed += await self._renewed((queue, slice_start, bucket), before)
            await self._view.ground.tallies.renew(queue, slice_start)
        self._renewed_at[queue] = now
        return renewed

    def lapsed_before(self, swept_at: datetime | None, window: timedelta) -> datetime | None:
        """Before which slice rows may have expired that should have been renewed; None: nowhere."""
        return rows_lapsed_before(swept_at, self._view.ground.now, self._row_ttl, self._mark_ttl, window)

    def _is_time(self, queue: QueueName, now: datetime) -> bool:
        last = self._renewed_at.get(queue)
        return last is None or now - last >= slack_of(self._row_ttl, self._mark_ttl) / ROUNDS_PER_SLACK

    async def _renewed(self, partition: tuple[QueueName, datetime, int], before: datetime) -> int:
        """The number of rows of a partition that were put again."""
        renewed = 0
        async with aclosing(self._view.slices.pages(partition, ("enqueueid",))) as pages:
            async for page in pages:
                ids = [EnqueueId(row["enqueueid"]) for row in page]
                marked = await self._view.marked_among(partition[0], ids)
                renewed += await self._put_again([(*partition, one) for one in ids if one not in marked], before)
        return renewed

    async def _put_again(self, keys: Sequence[Key], before: datetime) -> int:
        read_at = self._view.ground.clock.micros()
        reads = [Read(ENQUEUED_MAILS, key, times=True) for key in keys]
        answers = await answered(self._tables, self._view.ground.retries, reads)
        old = [seen for answer in answers for seen in answer if _is_older(seen, before)]
        for seen in old:
            at = max(read_at - round(MARGIN_SECONDS * MICROS), (seen.newest or 0) + 1)
            await self._view.ground.retries.write(self._tables, Put(ENQUEUED_MAILS, seen.row, at=at))
        await self._drop_marked(
            [seen.row["enqueueid"] for seen in old], [ENQUEUED_MAILS.key_of(one.row) for one in old]
        )
        return len(old)

    async def _drop_marked(self, ids: Sequence[EnqueueId], keys: Sequence[Key]) -> None:
        """One that was marked meanwhile must not outlive its mark."""
        marked = await self._view.marked_among(keys[0][0], ids) if keys else set()
        for one, key in zip(ids, keys, strict=True):
            if one in marked:
                await self._view.ground.retries.write(self._tables, Remove(ENQUEUED_MAILS, key))


def _is_older(seen: Seen, before: datetime) -> bool:
    return seen.newest is not None and instant_of(seen.newest) < before
