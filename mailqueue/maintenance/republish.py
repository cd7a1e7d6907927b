"""Publishing again what the broker may have lost: a mail whose row waits for longer than it should.

The same id again: where the broker still holds the first message, whichever comes second finds the mark of the first.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mailqueue.concurrency import in_batches
from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.broker.mails import publish_mail
from mailqueue.rabbitmq.parts import Parts
from model.ids import QueueName
from model.instants import instant_of
from model.queue.filters import MailFilter
from model.queue.mails import Listed

AT_ONCE: Final = 64
"""How many publishes wait for their confirms."""


@dataclass(frozen=True, slots=True)
class Republishing:
    """Publishes mails of one queue again."""

    queue: QueueName
    parts: Parts

    async def republish(self, older_than: timedelta, where: MailFilter, *, dry_run: bool) -> int:
        """Publish what waits for longer than that; how many were (or would be) published.

        Raises:
            BrokerUnreachable, PublishFailed: the broker took no more; what was published stays so.
        """
        before, count = instant_of(self.parts.clock.micros()) - older_than, 0
        waiting = self.parts.view.browse(self.queue, where, include_delayed=False)
        async with aclosing(in_batches(waiting, AT_ONCE)) as batches:
            async for some in batches:
                old = [listed for listed in some if listed.enqueued_at < before]
                if not dry_run:
                    await self._published(old)
                count += len(old)
        return count

    async def _published(self, some: Sequence[Listed]) -> None:
        """All of them side by side; the first error, once all have come to an end."""
        outcomes = await asyncio.gather(*map(self._one, some), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _one(self, listed: Listed) -> None:
        await publish_mail(self.parts.broker, self.queue, listed.queued, listed.slice_start, listed.attempts)
        self.parts.counts.add(QueueCount.REPUBLISHED, self.queue)
