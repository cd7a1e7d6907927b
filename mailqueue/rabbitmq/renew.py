"""Renewal: a mail that stays longer than its row would live is written again, so that its row never expires.

The row is put with a stamp that lies before it was read: a consumer that takes the mail back at the
same time still wins, and nothing that is gone comes back. Tables without a time to live need none
of this.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from mailmend.mailqueue.rabbitmq.view.marks import answered
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.mailqueue.rules.starts import ROUNDS_PER_SLACK, ageing_before, live_slices, rows_lapsed_before, slack_of
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.operations import Put, Read, Remove, Seen
from mailmend.model.table import Key
from mailmend.repair.clock import MARGIN_SECONDS


@dataclass(frozen=True, slots=True)
class AgeingPage:
    """Rows of mails that are to be written again.

    Attributes:
        read_at: an instant before they were read, by our own clock, in microseconds since 1970.
    """

    read_at: int
    rows: tuple[Seen, ...]


class Renewal:
    """Renews the mails of every queue of a keyspace."""

    def __init__(self, view: QueueView) -> None:
        self._view = view
        self._row_ttl = timedelta(seconds=view.own.row_ttl_seconds)
        self._mark_ttl = timedelta(seconds=view.own.mark_ttl_seconds)
        self._renewed_at: dict[QueueName, datetime] = {}

    async def renew(self, queue: QueueName, browse_start: datetime, slicing: Slicing, *, dry_run: bool = False) -> int:
        """Write every mail again whose row has less than half of the slack left; return how many."""
        now = self._view.now
        if not self._is_time(queue, now):
            return 0
        renewed = 0
        for slice_start in self._old_slices(browse_start, now, slicing):
            async with aclosing(self._ageing(queue, slice_start, now, slicing)) as pages:
                async for page in pages:
                    renewed += len(page.rows)
                    if not dry_run:
                        await self._put_again(page)
            if not dry_run:
                await self._view.tallies.renew(queue, slice_start)
        if not dry_run:
            self._renewed_at[queue] = now
        return renewed

    def lapsed_before(self, swept_at: datetime | None, window: timedelta) -> datetime | None:
        """Rows in slices before this may have expired unrenewed; None: in no slice."""
        return rows_lapsed_before(swept_at, self._view.now, self._row_ttl, self._mark_ttl, window)

    def _is_time(self, queue: QueueName, now: datetime) -> bool:
        last = self._renewed_at.get(queue)
        return last is None or now - last >= slack_of(self._row_ttl, self._mark_ttl) / ROUNDS_PER_SLACK

    def _old_slices(self, browse_start: datetime, now: datetime, slicing: Slicing) -> Iterator[datetime]:
        """The live slices that may hold rows to renew; none where rows never expire."""
        before = self._ageing_before(now)
        live = live_slices(browse_start, now, slicing.window) if self._row_ttl else ()
        return takewhile(lambda slice_start: slice_start < before, live)

    def _ageing_before(self, now: datetime) -> datetime:
        return ageing_before(now, self._row_ttl, self._mark_ttl)

    async def _ageing(
        self, queue: QueueName, slice_start: datetime, now: datetime, slicing: Slicing
    ) -> AsyncGenerator[AgeingPage]:
        for bucket in range(slicing.buckets):
            async with aclosing(self._view.slices.pages((queue, slice_start, bucket), ("enqueueid",))) as pages:
                async for page in pages:
                    ids = [EnqueueId(row["enqueueid"]) for row in page]
                    marked = await self._view.marks.among(queue, ids)
                    keys = [(queue, slice_start, bucket, enqueue_id) for enqueue_id in ids if enqueue_id not in marked]
                    yield await self._read(keys, self._ageing_before(now))

    async def _read(self, keys: Sequence[Key], before: datetime) -> AgeingPage:
        read_at = self._view.clock.micros()
        reads = [Read(ENQUEUED_MAILS, key, times=True) for key in keys]
        answers = await answered(self._view.tables, self._view.retries, reads)
        return AgeingPage(read_at, tuple(seen for answer in answers for seen in answer if _is_older(seen, before)))

    async def _put_again(self, page: AgeingPage) -> None:
        for seen in page.rows:
            at = max(page.read_at - round(MARGIN_SECONDS * MICROS), (seen.newest or 0) + 1)
            await self._view.retries.write(self._view.tables, Put(ENQUEUED_MAILS, seen.row, at=at))
        await self._drop_marked(
            [seen.row["enqueueid"] for seen in page.rows], [ENQUEUED_MAILS.key_of(row.row) for row in page.rows]
        )

    async def _drop_marked(self, ids: Sequence[EnqueueId], keys: Sequence[Key]) -> None:
        """A row whose mail was marked meanwhile must not outlive its mark."""
        if not keys:
            return
        (queue, *_), *_ = keys
        marked = await self._view.marks.among(queue, ids)
        for enqueue_id, key in zip(ids, keys, strict=True):
            if enqueue_id in marked:
                await self._view.retries.write(self._view.tables, Remove(ENQUEUED_MAILS, key))


def _is_older(seen: Seen, before: datetime) -> bool:
    return seen.newest is not None and instant_of(seen.newest) < before
