"""Looking a delivery up: its mark first, then its bytes, and its row where a missing row has a meaning.

The mark comes first because the bytes of a marked mail may be gone: a mail that an operator deleted is dropped, and no
alarm is raised over what it lacks.

A mail that waits has a row: it is put before the mail is delivered, and goes when the mail has left the queue. So a
delivery with neither row nor mark is of a mail that left, once its mark may have expired: it must not come back. Rows
are asked for where that can be, of slices that were swept, and of mails older than marks live; all others deliver on
their missing mark alone. Rows expire too, and only sweeps renew them. Where nobody swept for so long that rows of
waiting mails may have expired (`queueState.lapsedBefore`), a missing row says nothing: such a mail is neither
delivered nor dropped.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from mailqueue.blobs.contents import content_of
from mailqueue.rabbitmq.codec import slice_of_message
from mailqueue.rabbitmq.parts import Parts
from mailqueue.rabbitmq.verdicts import LookedUp, RowState
from mailqueue.rabbitmq.view.marks import MarkLookups
from model.errors import BadPayload, BlobMissing, MailmendError
from model.ports import Delivery
from model.queue.mails import MailBlobs, QueuedMail
from model.queue.slices import EPOCH
from model.queue.starts import gone_before, mark_may_have_expired
from repair.clock import SKEW_SECONDS

SECOND_LOOK_SECONDS: Final = 10.0
"""After how long the row of a mail that James has published is looked for again: James puts it beside the publish."""

_SKEW: Final = timedelta(seconds=SKEW_SECONDS)

_LOG: Final = logging.getLogger("mailmend.queue")


class DeliveryLookup:
    """Looks up the deliveries of one consumer."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._queue, self._view = parts, parts.queue, parts.view
        marks = parts.view.marks
        self._marks = MarkLookups(partial(marks.there, parts.queue), partial(marks.among, parts.queue))

    async def close(self) -> None:
        await self._marks.close()

    async def look(self, queued: QueuedMail, delivery: Delivery) -> LookedUp:
        """What is found of the mail. Raises only when cancelled: a missing answer is part of the result."""
        try:
            return await self._look(queued, delivery)
        except MailmendError as error:
            return LookedUp(queued, silence=error.what)
        except Exception as error:  # noqa: BLE001 - no single mail ends the stream
            _LOG.exception("queue %s: mail %s could not be looked up", self._queue, queued.enqueue_id)
            return LookedUp(queued, silence=type(error).__name__)

    async def marked(self, queued: QueuedMail) -> bool:
        return await self._marks.marked(queued.enqueue_id)

    async def _look(self, queued: QueuedMail, delivery: Delivery) -> LookedUp:
        if await self.marked(queued):
            return LookedUp(queued, marked=True)
        content, row = await asyncio.gather(self._content(queued.blobs), self._row(queued, delivery))
        marked = await self.marked(queued) if content is None else False
        return LookedUp(queued, marked, row, content)

    async def _content(self, blobs: MailBlobs) -> bytes | None:
        try:
            return await content_of(self._parts.blobs, blobs)
        except (BlobMissing, BadPayload):  # what is no id of a blob names none
            return None

    async def _row(self, queued: QueuedMail, delivery: Delivery) -> RowState:
        """A dead letter's row was removed, so a missing one means nothing."""
        if delivery.dead_lettered:
            return RowState.EXPECTED
        slice_start = slice_of_message(delivery.message)
        since = (queued.mail.last_updated or EPOCH) if slice_start is None else slice_start
        if not await self._is_missing(queued, slice_start, since):
            return RowState.EXPECTED
        lapsed = (await self._view.starts.state(self._queue)).lapsed_before
        return RowState.LAPSED if lapsed is not None and since < lapsed else RowState.GONE

    async def _is_missing(self, queued: QueuedMail, slice_start: datetime | None, since: datetime) -> bool:
        """Whether the row is missing, and that means the mail has left.

        Args:
            queued: the mail, which is not marked.
            slice_start: that its delivery names; None: James has published it.
            since: when it was last changed, or its slice began.
        """
        old = mark_may_have_expired(since, self._parts.now, timedelta(seconds=self._view.own.mark_ttl_seconds))
        if slice_start is None:
            return old and await self._is_nowhere(queued)
        if await self._is_over(slice_start, old=old):
            return not await self._view.rows.has_row(self._queue, slice_start, queued)
        return False

    async def _is_over(self, slice_start: datetime, *, old: bool) -> bool:
        """Whether a missing row has a meaning. A slice that has not ended is not before the browse start."""
        if slice_start + self._parts.slicing.window > self._parts.now + _SKEW:
            return False
        return old or gone_before(slice_start, await self._view.browse_start(self._queue))

    async def _is_nowhere(self, queued: QueuedMail) -> bool:
        """Whether no live slice holds the row of a mail whose message names none: reads twice."""
        if await self._view.rows.slice_with(self._queue, queued) is not None:
            return False
        await self._parts.clock.pause(SECOND_LOOK_SECONDS)
        return await self._view.rows.slice_with(self._queue, queued) is None
