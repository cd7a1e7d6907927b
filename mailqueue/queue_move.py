"""Moves the mails of a queue into one over another broker, each once, though the mover be killed at any step.

A mail is taken as any consumer takes it, or removed from the delayed ones. Its bytes are stored for
the target, it is written into a journal, leaves the source, is put at the target, and is done. A
mover that goes on has each mail that is not done leave the source again and, if the target never
had it, puts it there: between source and target a mail is in the journal alone.

The bytes are stored again, for each passage through a queue owns those that it names: a consumer
that meets a copy of a mail that has left deletes them, James too. Blobs with deduplicated ids are
not deleted: they stay where both queues have one store.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Protocol

from mailmend.mailqueue.admission import admissible
from mailmend.mailqueue.concurrency import all_of, ended, next_until
from mailmend.mailqueue.queue import DELAYED, Arrivals, Dequeued, FailedMail, MaintainedQueue
from mailmend.mailqueue.rules.blob_ids import is_deduplicated
from mailmend.mailqueue.rules.mails import Listed, MailFilter, QueuedMail
from mailmend.model.errors import BadPayload, BlobMissing, CannotReach, WrongUse
from mailmend.model.ids import EnqueueId, QueueName, moved_id
from mailmend.model.ports import Clock

AT_ONCE: Final = 32
"""How many mails are on their way at once."""

TOGETHER_MAX: Final = 5_000
"""The number of delayed mails that leave the source together: that takes a listing of all of them."""


@dataclass(frozen=True, slots=True)
class MovingMail:
    """A mail on its way.

    Attributes:
        was: its id at the source.
        listed: as it is to be at the target: the same id, unless the target had that before.
    """

    was: EnqueueId
    listed: Listed


class MoveJournal(Protocol):
    """What one move has done so far, on a disk.

    Attributes:
        move: names the move.
        left: mails that were taken and are not done.
        known: the ids at the source of all mails that were taken.
    """

    move: str

    @property
    def left(self) -> Mapping[EnqueueId, MovingMail]: ...

    @property
    def known(self) -> Collection[EnqueueId]: ...

    async def take(self, mail: MovingMail) -> None:
        """On return it is on the disk; from then on it is moved, whatever happens.

        Raises:
            StateUnwritable: the disk refused it.
        """
        ...

    def done(self, was: EnqueueId) -> None:
        """It is at the target. Where that is lost, the mail is looked for there."""
        ...


@dataclass(slots=True)
class QueueMove:
    """One move, in one process.

    Attributes:
        to: the queue at the target, whose mails `arrivals` takes in.
        shares_store: whether both queues have their bytes in one store.
        on_moved: called for each mail that is done.
        waiting, delayed, resumed: how many were moved.
        renamed: mails that have another id now, by their old one.
        stay: mails that cannot be moved, by their ids at the source.
    """

    source: MaintainedQueue
    to: QueueName
    arrivals: Arrivals
    journal: MoveJournal
    clock: Clock
    shares_store: bool = False
    on_moved: Callable[[int], None] = lambda _: None
    waiting: int = 0
    delayed: int = 0
    resumed: int = 0
    renamed: dict[EnqueueId, EnqueueId] = field(default_factory=dict)
    stay: dict[EnqueueId, FailedMail] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many mails were moved."""
        return self.waiting + self.delayed + self.resumed

    async def resume(self) -> None:
        """Finish what an interrupted move has taken."""
        left = list(self.journal.left.values())
        if left:
            await self._removed(left)
            await all_of(left, lambda one: self._put(one, again=True), AT_ONCE)
            self.resumed += len(left)

    async def move_delayed(self) -> None:
        """Move every delayed mail, many at a time: all of them leave the source, then all are put."""
        while taken := await self._delayed_taken():
            await self._removed(taken)
            await all_of(taken, self._put, AT_ONCE)
            self.delayed += len(taken)

    async def move_waiting(self, wait: timedelta, stop: asyncio.Event) -> None:
        """Move what waits, as a consumer gets it, until nothing came for so long, or the event is set.

        Raises:
            MailmendError: the first that a mail met; no further mail was taken, and those under way are done with.
        """
        working = set[asyncio.Task[None]]()
        failures = list[BaseException]()

        def done(task: asyncio.Task[None]) -> None:
            working.discard(task)
            if error := task.exception():
                failures.append(error)

        await self.source.return_backlogs()
        async with self.source.dequeue(AT_ONCE) as mails:
            while not failures and (mail := await next_until(mails, stop, self.clock.pause(wait.total_seconds()))):
                working.add(task := asyncio.ensure_future(self._handed_over(mail)))
                task.add_done_callback(done)
            await ended(tuple(working))
        if failures:
            raise failures[0]

    async def _delayed_taken(self) -> list[MovingMail]:
        found = list[Listed]()
        async for listed in self.source.browse(DELAYED):
            if listed.queued.enqueue_id not in self.stay:
                found.append(listed)
            if len(found) == TOGETHER_MAX:
                break

        async def taken(listed: Listed) -> MovingMail | None:
            if known := self.journal.left.get(listed.queued.enqueue_id):
                return known
            mail = await self._movable(listed, None)
            if mail:
                await self.journal.take(mail)
            return mail

        mails = await all_of(found, taken, AT_ONCE)
        return [mail for mail in mails if mail]

    async def _handed_over(self, mail: Dequeued) -> None:
        """Move a mail that was taken; one that was moved before leaves again: its broker forgot that it left."""
        if mail.enqueue_id in self.journal.known:
            await mail.leave()
            return
        moving = await self._movable(await mail.listed(), mail.content)
        if moving:
            await self.journal.take(moving)
            await mail.leave()
            await self._put(moving)
            self.waiting += 1

    async def _movable(self, listed: Listed, content: bytes | None) -> MovingMail | None:
        """The mail as it is to be at the target, its bytes stored there; None where that cannot be."""
        was = listed.queued.enqueue_id
        try:
            mail = admissible(listed.queued.mail)
            blobs = listed.queued.blobs
            if not (self.shares_store and is_deduplicated(blobs.header) and is_deduplicated(blobs.body)):
                if content is None:
                    content = await self.source.content(listed)
                blobs = await self.arrivals.keep(content)
        except (BadPayload, BlobMissing, WrongUse) as error:
            self.stay[was] = FailedMail(was, error.what)
            return None
        to_be = was
        if await self.arrivals.had((was,)):
            to_be = moved_id(was, self.to)
        if to_be != was:
            self.renamed[was] = to_be
        return MovingMail(was, replace(listed, queued=QueuedMail(to_be, mail, blobs), slice_start=None, place=None))

    async def _removed(self, some: Sequence[MovingMail]) -> None:
        """Have them leave the source, if they have not yet.

        Raises:
            CannotReach: some are still there; the same move again goes on with them.
        """
        ids = frozenset(mail.was for mail in some)
        removed = await self.source.delete(MailFilter(enqueue_ids=ids))
        if removed.failed:
            raise CannotReach(
                f"{len(removed.failed):,} mails did not leave the queue {self.source.name!r}: {removed.failed[0].why}",
                mend="They are in the journal of the move: the same command goes on with them.",
            )

    async def _put(self, mail: MovingMail, *, again: bool = False) -> None:
        await self.arrivals.put(mail.listed, again=again)
        self.journal.done(mail.was)
        self.on_moved(1)
