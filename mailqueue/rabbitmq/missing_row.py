"""Whether the mail of a delivery has lost its row, and what follows from that.

A mail that waits has a row: it is put before the mail is delivered, and goes when the mail has left the queue. So a
delivery with neither row nor mark is of a mail that left, once its mark may have expired: it must not come back. Rows
are asked for where that can be, of slices that were swept, and of mails older than marks live; all others deliver on
their missing mark alone.

Rows expire too, and only sweeps renew them. Where nobody swept for so long that rows of waiting mails may have expired
(`queueState.lapsedBefore`), a missing row says nothing: such a mail is neither delivered nor dropped.
"""

from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from mailqueue.rabbitmq.parts import Parts
from model.ids import QueueName
from model.instants import instant_of
from model.queue.mails import QueuedMail
from model.queue.slices import EPOCH
from model.queue.starts import gone_before, mark_may_have_expired
from repair.clock import SKEW_SECONDS

SECOND_LOOK_SECONDS: Final = 10.0
"""After how long the row of a mail that James has published is looked for again: James puts it beside the publish."""

_SKEW: Final = timedelta(seconds=SKEW_SECONDS)


class RowState(Enum):
    """What is known of the row of a delivery's mail."""

    EXPECTED = "expected"  # it is there, or nothing would follow if it were not
    GONE = "gone"  # the mail has left the queue
    LAPSED = "lapsed"  # the mail has left the queue, or its row expired while nobody swept


class MissingRows:
    """Looks for the rows of one queue's deliveries."""

    def __init__(self, queue: QueueName, parts: Parts) -> None:
        self.queue, self.parts = queue, parts
        self._mark_ttl = timedelta(seconds=parts.view.ground.own.mark_ttl_seconds)

    async def look(self, queued: QueuedMail, slice_start: datetime | None) -> RowState:
        """What is known of the row of a mail that is not marked.

        Args:
            queued: the mail.
            slice_start: that its delivery names; None: James has published it.

        Raises:
            MailmendError: the tables did not answer.
        """
        since = (queued.mail.last_updated or EPOCH) if slice_start is None else slice_start
        old = mark_may_have_expired(since, self._now, self._mark_ttl)
        if slice_start is None:
            lost = old and await self._is_nowhere(queued)
        elif await self._is_over(slice_start, old=old):
            lost = not await self.parts.view.has_row(self.queue, slice_start, queued)
        else:
            lost = False
        return await self._lost(since) if lost else RowState.EXPECTED

    async def _lost(self, since: datetime) -> RowState:
        lapsed = (await self.parts.view.state(self.queue)).lapsed_before
        return RowState.LAPSED if lapsed is not None and since < lapsed else RowState.GONE

    async def _is_over(self, slice_start: datetime, *, old: bool) -> bool:
        """Whether a missing row would say anything. A slice that has not ended is not before the browse start."""
        if slice_start + self.parts.slicing.window > self._now + _SKEW:
            return False
        return old or gone_before(slice_start, await self.parts.view.browse_start(self.queue))

    async def _is_nowhere(self, queued: QueuedMail) -> bool:
        """Whether no slice in sight holds the row of a mail whose message names none: looked for twice."""
        if await self.parts.view.slice_with(self.queue, queued) is not None:
            return False
        await self.parts.clock.pause(SECOND_LOOK_SECONDS)
        return await self.parts.view.slice_with(self.queue, queued) is None

    @property
    def _now(self) -> datetime:
        return instant_of(self.parts.clock.micros())
