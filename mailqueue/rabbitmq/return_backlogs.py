"""Backlogs that no consumer takes mails from go back to the broker.

A consumer that keeps backlogs takes over what another one has left, within seconds. Where none is
there any more, as another kind of consumer works or another program, the mails would wait for ever:
so after a while they are published again. Each row goes after its message was confirmed; a crash
between the two publishes it twice, and the mark of the first copy drops the second.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final
from uuid import UUID

from mailmend.mailqueue.concurrency import all_of, in_batches
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.backlog_tables import BacklogMail, BacklogTables, Stretch
from mailmend.model.errors import raise_first

ABANDONED_AFTER: Final = timedelta(minutes=5)
"""How long a stretch has no owner before its mails go back: a server may begin anew."""

AT_ONCE: Final = 64
"""How many messages wait for their confirms."""


@dataclass(slots=True)
class BacklogReturn:
    """Publishes abandoned backlogs of one queue again. Any number of processes may.

    Attributes:
        since: by stretch, since when it was seen without an owner, in seconds of the monotonic
            clock.
    """

    parts: Parts
    tables: BacklogTables
    since: dict[UUID, float] = field(default_factory=dict)

    async def returned(self, abandoned_for: timedelta = ABANDONED_AFTER) -> int:
        """Publish again what was abandoned for that long; how many mails that were.

        Raises:
            CannotReach, PublishFailed: what was published stays published; the next call goes on.
        """
        now = self.parts.clock.monotonic()
        stretches, owners = await self.tables.stretches()
        left = [stretch for stretch in stretches if stretch.owner not in owners]
        self.since = {stretch.id: self.since.get(stretch.id, now) for stretch in left}
        count = 0
        for stretch in left:
            if now - self.since[stretch.id] >= abandoned_for.total_seconds():
                count += await self._returned(stretch)
        return count

    async def _returned(self, listed: Stretch) -> int:
        owner = self.parts.clock.random_uuid()
        await self.tables.show(owner)
        if not await self.tables.take_over(listed, owner):
            return 0
        stretch = replace(listed, owner=owner)
        count = 0
        place = stretch.gone_to
        mails = self.tables.mails(stretch, place)
        async with aclosing(mails), aclosing(in_batches(mails, AT_ONCE)) as batches:
            async for some in batches:
                await self._published(stretch, some)
                count += len(some)
                place = some[-1].place
                await self.tables.show(owner)
                await self.tables.note(stretch, {"gone_to": place, "gone": stretch.gone + count})
        await self.tables.end(stretch, place)
        await self.tables.leave(owner)
        return count

    async def _published(self, stretch: Stretch, some: Sequence[BacklogMail]) -> None:
        parts = self.parts

        async def publish(mail: BacklogMail) -> None:
            await parts.broker.publish(parts.queue, mail.again, mail.priority)

        await all_of(some, publish, AT_ONCE)
        raise_first(await self.tables.remove(stretch, [mail.place for mail in some]))
