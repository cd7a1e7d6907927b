"""Publishes again what the broker may have lost: mails whose rows wait longer than they should.

The id stays the same: if the broker still has the first message, the second to arrive finds the mark of the first.
"""

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from mailqueue.concurrency import in_batches
from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.codec.messages import publish_mail
from mailqueue.rabbitmq.parts import Parts
from model.queue.filters import MailFilter
from model.queue.mails import Listed

AT_ONCE: Final = 64
"""How many publishes wait for their confirms."""


async def republish(parts: Parts, older_than: timedelta, where: MailFilter, *, dry_run: bool) -> int:
    """Publish what waits for longer than that; how many were (or would be) published.

    Raises:
        BrokerUnreachable, PublishFailed: the broker took no more; what was published stays so.
    """

    async def publish(listed: Listed) -> None:
        await publish_mail(parts.broker, parts.queue, listed.queued, listed.slice_start, listed.attempts)
        parts.counts.add(QueueCount.REPUBLISHED, parts.queue)

    before, count = parts.now - older_than, 0
    waiting = parts.view.browse(parts.queue, where, include_delayed=False)
    async with aclosing(in_batches(waiting, AT_ONCE)) as batches:
        async for some in batches:
            old = [listed for listed in some if listed.enqueued_at < before]
            outcomes = [] if dry_run else await asyncio.gather(*map(publish, old), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            count += len(old)
    return count
