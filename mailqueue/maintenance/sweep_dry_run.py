"""What a sweep would do if it began now: the same looks and the same rules, and nothing is written, moved or published.

Whatever happens between the look and the sweep may change it: a mail that is finished, one that comes, the time.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Final

from mailqueue.concurrency import all_of
from mailqueue.maintenance.browse_start import Aim, Aiming
from mailqueue.maintenance.clean_slices import PARTITIONS_AT_ONCE, SECOND_LOOK_SECONDS, Cleaned, Partition, Passed
from mailqueue.maintenance.renew import Renewal
from mailqueue.maintenance.sweep import Moved, Swept
from mailqueue.rabbitmq.view.marks import RememberedMarks
from mailqueue.rabbitmq.view.queue_view import QueueView
from mailqueue.rabbitmq.view.slices import Slices
from model.ids import EnqueueId, QueueName
from model.ports import AsyncTables
from model.queue.slices import Slicing
from model.queue.starts import slices_to_clean

NAMED_MAX: Final = 100
"""How many of the mails that would be put back are named; all are counted."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a sweep would do.

    Attributes:
        swept: what it would answer.
        browse_start, content_start: as they are now; None where nobody has set them.
        rescued: the first of the mails without a mark that it would put back.
    """

    swept: Swept = field(default_factory=Swept)
    browse_start: datetime | None = None
    content_start: datetime | None = None
    rescued: tuple[EnqueueId, ...] = ()


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look at partitions found, and the first mails without a mark among it."""

    found: Cleaned = field(default_factory=Cleaned)
    unmarked: tuple[EnqueueId, ...] = ()

    def __add__(self, other: "_Look") -> "_Look":
        return _Look(self.found + other.found, (self.unmarked + other.unmarked)[:NAMED_MAX])


class Foreseeing:
    """Foresees the sweeps of the queues of one keyspace, as a process finds them that has just started.

    Args:
        tables: the keyspace.
        view: its queues; what nobody has configured is taken as James has it.
    """

    def __init__(self, tables: AsyncTables, view: QueueView) -> None:
        marks = RememberedMarks(tables, view.ground.retries)
        slices = Slices(tables, marks, view.ground.retries)
        self._view, self._aiming, self._passed = view, Aiming(tables, view, slices), Passed(slices, marks)
        self._renewal = Renewal(tables, view)

    async def move(self, queue: QueueName) -> Moved:
        """What moving the browse start alone would come to.

        Raises:
            MailmendError: whatever did not answer.
        """
        aim = await self._aiming.aim(queue, await self._view.ground.slicing())
        return Moved(aim.before, aim.after, aim.back) if aim else Moved(None, None)

    async def sweep(self, queue: QueueName) -> Foreseen:
        """What a sweep would come to.

        Where there is something to be put back it takes some seconds, as a sweep does, to look at that twice.

        Raises:
            MailmendError: whatever did not answer.
        """
        slicing = await self._view.ground.slicing()
        aim = await self._aiming.aim(queue, slicing)
        return await self._foreseen(queue, aim, slicing) if aim else Foreseen()

    async def _foreseen(self, queue: QueueName, aim: Aim, slicing: Slicing) -> Foreseen:
        standing = await self._view.ground.starts.content_start(queue)
        content = standing or aim.before
        starts = list(slices_to_clean(content, aim.before, aim.after, slicing.window))
        first, second = await self._looks(
            [(queue, start, bucket) for start in starts for bucket in range(slicing.buckets)]
        )
        swept = Swept(
            slices=len(starts),
            rows=first.found.rows,
            blobs=first.found.blobs,
            rescued=second.found.suspects,
            renewed=await self._renewal.foreseen(queue, aim.after, slicing),
            moved_back=aim.back,
            browse_start=aim.after,
            content_start=max(content, aim.after),
        )
        return Foreseen(swept, aim.before, standing, second.unmarked)

    async def _looks(self, partitions: Sequence[Partition]) -> tuple[_Look, _Look]:
        """At all of them; some seconds later at those in which something is not marked."""
        looks = await all_of(partitions, self._look, PARTITIONS_AT_ONCE)
        suspicious = [place for place, one in zip(partitions, looks, strict=True) if one.found.suspects]
        if suspicious:
            await self._view.ground.clock.pause(SECOND_LOOK_SECONDS)
        again = await all_of(suspicious, self._look, PARTITIONS_AT_ONCE)
        return reduce(_Look.__add__, looks, _Look()), reduce(_Look.__add__, again, _Look())

    async def _look(self, partition: Partition) -> _Look:
        look = _Look()
        async with aclosing(self._passed.pages(partition)) as pages:
            async for page in pages:
                look += _Look(page.found, page.unmarked)
        return look
