"""The sweep: move the browse start, clean up to it, move the content start; and renew what stays.

The row is put with a stamp that lies before it was read: a consumer that takes the mail back at the
same time still wins, and nothing that is gone comes back. Tables without a time to live need none
of this.

Each step may be the last one of a process: the next sweep begins again at the content start, which
moves when all before it is clean. A row without a mark is never deleted: its mail is put back where
browsing sees it, and published again, first. Marks stay: they hide whatever the broker may deliver
yet.

A dry run looks as a sweep does, by the same rules, and writes, moves and publishes nothing. The
sweep itself may find something else, because mails come and go in between, and time passes.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.comparison import Swept
from mailmend.mailqueue.concurrency import in_order
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq.clean_slices import Cleaner
from mailmend.mailqueue.rabbitmq.view.known_queues import QueueState
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rabbitmq.view.slices import RememberedMarks, Slices, answered
from mailmend.mailqueue.rules.slices import (
    ROUNDS_PER_SLACK,
    Slicing,
    ageing_before,
    furthest_browse_start,
    live_slices,
    moved_back,
    next_browse_start,
    rows_lapsed_before,
    slack_of,
    slice_of,
    slices_between,
    slices_to_clean,
)
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.operations import Put, Read, Remove, Seen
from mailmend.model.table import Key
from mailmend.repair.clock import MARGIN_SECONDS


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
                async for rows, read_at in pages:
                    renewed += len(rows)
                    if not dry_run:
                        await self._put_again(rows, read_at)
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
        if not self._row_ttl:
            return iter(())
        before = self._ageing_before(now)
        live = live_slices(browse_start, now, slicing.window)
        return takewhile(lambda slice_start: slice_start < before, live)

    def _ageing_before(self, now: datetime) -> datetime:
        return ageing_before(now, self._row_ttl, self._mark_ttl)

    async def _ageing(
        self, queue: QueueName, slice_start: datetime, now: datetime, slicing: Slicing
    ) -> AsyncGenerator[tuple[list[Seen], int]]:
        """Pages of rows to be written again, each with an instant before it was read.

        The instant is by our own clock, in microseconds since 1970.
        """
        for bucket in range(slicing.buckets):
            async with aclosing(self._view.slices.pages((queue, slice_start, bucket), ("enqueueid",))) as pages:
                async for page in pages:
                    ids = [EnqueueId(row["enqueueid"]) for row in page]
                    marked = await self._view.marks.among(queue, ids)
                    unmarked = [enqueue_id for enqueue_id in ids if enqueue_id not in marked]
                    keys = [(queue, slice_start, bucket, enqueue_id) for enqueue_id in unmarked]
                    read_at = self._view.clock.micros()
                    yield await self._older_among(keys, self._ageing_before(now)), read_at

    async def _older_among(self, keys: Sequence[Key], before: datetime) -> list[Seen]:
        reads = [Read(ENQUEUED_MAILS, key, times=True) for key in keys]
        older: list[Seen] = []
        for answer in await answered(self._view.tables, self._view.retries, reads):
            older += [seen for seen in answer if _is_older(seen, before)]
        return older

    async def _put_again(self, rows: Sequence[Seen], read_at: int) -> None:
        for seen in rows:
            at = max(read_at - round(MARGIN_SECONDS * MICROS), (seen.newest or 0) + 1)
            await self._view.retries.write(self._view.tables, Put(ENQUEUED_MAILS, seen.row, at=at))
        ids = []
        keys = []
        for seen in rows:
            ids.append(seen.row["enqueueid"])
            keys.append(ENQUEUED_MAILS.key_of(seen.row))
        await self._drop_marked(ids, keys)

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


SLICES_AT_ONCE: Final = 4
"""In how many slices the first mail without a mark is looked for at once."""

_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the browse start was, and is (or belongs); None: nothing was ever enqueued.

    Attributes:
        back: whether another program had moved it back before.
        state: what was remembered of the queue before.
    """

    before: datetime | None
    after: datetime | None
    back: bool = False
    state: QueueState = field(default_factory=QueueState, compare=False)


class Sweeper:
    """Sweeps the queues of one keyspace; per process one pass of a queue at a time, any number of processes."""

    def __init__(self, view: QueueView, blobs: Blobs, broker: Broker) -> None:
        self._view = view
        self._marks = RememberedMarks(view.tables, view.retries)
        self._slices = Slices(view.tables, self._marks, view.retries)
        self._cleaner = Cleaner(view, self._slices, self._marks, blobs, broker)
        self._renewal = Renewal(view)
        self._first_live: dict[QueueName, Key] = {}
        self._turns: defaultdict[QueueName, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._passes: dict[QueueName, asyncio.Task[None]] = {}

    async def move(self, queue: QueueName, *, dry_run: bool = False) -> Moved:
        """Move the browse start as far as it may go."""
        async with self._turn(queue):
            return await self._moved(queue, await self._view.slicing(), dry_run=dry_run)

    async def sweep(self, queue: QueueName, *, dry_run: bool = False) -> Swept:
        """Move the browse start, clean up to it, renew ageing rows.

        Takes some seconds more where an unmarked row is found: that is read twice.
        """
        async with self._turn(queue):
            swept = await self._swept(queue, await self._view.slicing(), dry_run=dry_run)
        if not dry_run:
            self._count(queue, swept)
        return swept

    async def maybe(self, queue: QueueName) -> None:
        """Once in many calls start a sweep in the background; `close` cuts it short."""
        pace = (await self._view.configuration()).pace
        if self._view.clock.chance() * pace < 1 and queue not in self._passes and not self._turns[queue].locked():
            task = self._passes[queue] = asyncio.create_task(self._quietly(queue), name=f"sweep of {queue}")
            task.add_done_callback(lambda _: self._passes.pop(queue, None))

    async def close(self) -> None:
        """Cut short a running sweep: the next sweep completes it."""
        passes = list(self._passes.values())
        for task in passes:
            task.cancel()
        await asyncio.gather(*passes, return_exceptions=True)

    @asynccontextmanager
    async def _turn(self, queue: QueueName) -> AsyncGenerator[None]:
        """Serialises all passes of a queue in this process."""
        async with self._turns[queue]:
            try:
                yield
            finally:
                self._marks.forget(queue)

    async def _quietly(self, queue: QueueName) -> None:
        try:
            await self.sweep(queue)
        except MailmendError as error:
            fields = {"queue": queue, "error": error.what}
            _LOG.warning("a sweep was cut short, the next completes it", extra=fields)

    async def _swept(self, queue: QueueName, slicing: Slicing, *, dry_run: bool) -> Swept:
        view = self._view
        moved = await self._moved(queue, slicing, dry_run=dry_run)
        if moved.before is None or moved.after is None:
            return Swept()
        content = standing = await view.starts.content_start(queue)
        if content is None:
            content = moved.before
            if not dry_run:
                content = await view.starts.begin_content(queue, moved.before)
        starts = list(slices_to_clean(content, moved.before, moved.after, slicing.window))
        cleaned = await self._cleaner.clean(queue, starts, slicing, dry_run=dry_run)
        if dry_run:
            content = max(content, moved.after)
        else:
            content = await view.starts.advance_content_start(queue, content, moved.after)
            if content != standing:
                _LOG.info("content start moved", extra={"queue": queue, "before": standing, "after": content})
        renewed = await self._renewal.renew(queue, moved.after, slicing, dry_run=dry_run)
        orphan_marks = 0
        if not dry_run:
            await view.starts.remember(queue, swept=view.now)
            orphan_marks = view.orphan_marks(queue)
        return Swept(
            slices=len(starts),
            rows=cleaned.rows,
            blobs=cleaned.blobs,
            rescued=cleaned.rescued,
            renewed=renewed,
            orphan_marks=orphan_marks,
            moved_back=moved.back,
            browse_start=moved.after,
            content_start=content,
            browse_start_before=moved.before,
            content_start_before=standing,
            rescued_ids=cleaned.rescued_ids,
        )

    async def _moved(self, queue: QueueName, slicing: Slicing, *, dry_run: bool) -> Moved:
        found = await self._found(queue, slicing)
        if dry_run:
            return found
        return await self.advance(queue, found, slicing)

    async def advance(self, queue: QueueName, found: Moved, slicing: Slicing) -> Moved:
        """Move the browse start to where it was found to belong, unless the queue is cut in another way by now."""
        if found.before is None or found.after is None:
            return found
        if found.back:
            fields = {"queue": queue, "furthest": found.state.furthest_start, "found": found.before}
            _LOG.warning("somebody put the browse start back", extra=fields)
        await self._note_lapse(queue, found.before, found.state.swept_at, slicing)
        if await self._view.slicing() != slicing:  # there may be slices between those that were read
            return Moved(found.before, found.before, found.back)
        after = await self._view.starts.advance_browse_start(queue, found.before, found.after)
        await self._view.starts.remember(queue, furthest=after)
        self._view.starts_seen[queue] = after
        if after > found.before:
            _LOG.info("browse start moved", extra={"queue": queue, "before": found.before, "after": after})
            self._view.counts.add(QueueCount.BROWSE_START_MOVED, queue)
        return Moved(found.before, after, found.back)

    async def _note_lapse(
        self, queue: QueueName, before: datetime, swept_at: datetime | None, slicing: Slicing
    ) -> None:
        """Remember the slices where waiting rows may have expired, before the browse start passes them."""
        lapsed = self._renewal.lapsed_before(swept_at, slicing.window)
        if lapsed is None or before >= lapsed:
            return
        fields = {"queue": queue, "swept": swept_at, "lapsed_before": lapsed}
        _LOG.warning("nobody swept the queue: rows of mails that wait may have expired", extra=fields)
        await self._view.starts.remember(queue, lapsed=lapsed)

    async def _found(self, queue: QueueName, slicing: Slicing) -> Moved:
        """Where the browse start belongs as of now; writes nothing."""
        before = await self._view.browse_start(queue)
        if before is None:
            return Moved(None, None)
        now = self._view.now
        state = await self._view.starts.state(queue)
        first_live = await self._first_live_slice(queue, before, now, slicing)
        after = next_browse_start(before, first_live, now, slicing.window)
        return Moved(before, after, moved_back(before, state.furthest_start), state)

    async def _first_live_slice(
        self, queue: QueueName, start: datetime, now: datetime, slicing: Slicing
    ) -> datetime | None:
        """The first slice with an unmarked mail, of those up to which the start may move.

        The one found last time is checked first, so a mail that stays does not make each sweep expensive.
        """
        window = slicing.window
        first = slice_of(start, window)
        end = furthest_browse_start(now, window)
        known = self._first_live.pop(queue, None)
        if known is None or _slice_of(known) != first or not await self._is_live(known):
            known = await self._found_live(queue, first, end, slicing)
        if known is None:
            return None
        self._first_live[queue] = known
        return _slice_of(known)

    async def _found_live(self, queue: QueueName, first: datetime, end: datetime, slicing: Slicing) -> Key | None:
        async def look(slice_start: datetime) -> Key | None:
            return await self._slices.first_unmarked(queue, slice_start, slicing.buckets)

        async with aclosing(in_order(slices_between(first, end, slicing.window), look, SLICES_AT_ONCE)) as slices:
            async for _, key in slices:
                if key is not None:
                    return key
        return None

    async def _is_live(self, key: Key) -> bool:
        queue, _, _, enqueue_id = key
        there = await self._view.retries.call(lambda: self._view.tables.read(Read(ENQUEUED_MAILS, key)))
        return bool(there) and not await self._view.marks.there(queue, EnqueueId(enqueue_id))

    def _count(self, queue: QueueName, swept: Swept) -> None:
        counted = {
            QueueCount.SWEPT_SLICES: swept.slices,
            QueueCount.SWEPT_ROWS: swept.rows,
            QueueCount.SWEPT_BLOBS: swept.blobs,
            QueueCount.RESCUED: swept.rescued,
            QueueCount.RENEWED: swept.renewed,
            QueueCount.MOVED_BACK: int(swept.moved_back),
        }
        for count, number in counted.items():
            if number:
                self._view.counts.add(count, queue, number)


def _slice_of(row: Key) -> datetime:
    """The start of the slice in which a row of enqueuedMailsV4 is."""
    _, slice_start, *_ = row
    return slice_start  # type: ignore[no-any-return] # keys hold values of any type
