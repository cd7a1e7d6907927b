"""Delayed mails: moving them to those that wait when they are due, or at once; changing them in their place.

One process at a time moves, for it holds the lease. A copy is published first, which says whose place it takes, then
the delayed message is acknowledged. A process that dies in between leaves both: whoever holds the lease next finds the
copy, and acknowledges the delayed message; so does whoever settles the copy, before that (`mailqueue.pulsar.unacked`).
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from mailqueue.codec.admission import admissible
from mailqueue.concurrency import all_of, in_batches
from mailqueue.metrics import QueueCount
from mailqueue.pulsar.listing import FoundMail, acknowledged, found, is_deleted
from mailqueue.pulsar.messages import delayed_message, origin_of, story_of, waiting_message
from mailqueue.pulsar.names import (
    mover_lease,
    out_subscription,
    out_topic,
    scheduled_subscription,
    scheduled_topic,
)
from mailqueue.pulsar.parts import PulsarParts
from mailqueue.pulsar.topics import TopicMessage
from mailqueue.queue import Changed, Delays, MailChange, OnRemoved
from model.errors import LeaseHeld
from model.queue.mails import Listed, Whereabouts
from model.queue.places import MessagePlace

PATIENCE: Final = timedelta(seconds=30)
"""How long a flush or a change waits for another process that moves delayed mails."""

AT_ONCE: Final = 64
"""So many mails are published at once, then acknowledged together."""

_ASK_AGAIN_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Mover:
    """Moves the delayed mails of one queue."""

    parts: PulsarParts

    async def flush(self, *, dry_run: bool = False) -> Delays:
        return await self._moved(lambda _: True, patient=True, dry_run=dry_run)

    async def move_due(self, *, dry_run: bool = False) -> int:
        """How many were moved; 0 where another process does that."""
        now = self.parts.now
        moved = await self._moved(lambda one: _due_at(one) <= now, patient=False, dry_run=dry_run)
        return moved.count

    async def change(
        self,
        change: MailChange,
        on_change: OnRemoved | None,
        on_changed: Callable[[Listed], None] | None,
        *,
        dry_run: bool,
    ) -> Changed:
        count = 0
        known = await self.parts.deletions.look()
        async with (
            self._turn(patient=True, dry_run=dry_run) as (_, superseded),
            aclosing(found(self.parts, Whereabouts.DELAYED, known=known)) as mails,
        ):
            async for one in mails:
                to_be = None if one.message.place in superseded else change(one.listed)
                if to_be is None:
                    continue
                if not dry_run:
                    if on_change is not None:
                        await on_change(one.listed)
                    queued = replace(one.listed.queued, mail=admissible(to_be.mail))
                    due_at = max(to_be.due_at, self.parts.now)
                    await self._replaced(one, replace(one.listed, queued=queued, due_at=due_at))
                if on_changed is not None:
                    on_changed(one.listed)
                count += 1
        return Changed(count)

    async def _moved(self, meant: Callable[[FoundMail], bool], *, patient: bool, dry_run: bool) -> Delays:
        moved = Delays()
        async with self._turn(patient=patient, dry_run=dry_run) as (has_turn, superseded):
            if not has_turn:
                return moved
            known = await self.parts.deletions.look() if dry_run else None
            async with (
                aclosing(found(self.parts, Whereabouts.DELAYED, known=known)) as mails,
                aclosing(in_batches(mails, AT_ONCE)) as batches,
            ):
                async for batch in batches:
                    some = [one for one in batch if one.message.place not in superseded]
                    if not dry_run:
                        some = await self._undeleted(some)
                    some = [one for one in some if meant(one)]
                    if not dry_run:
                        await self._delivered(some)
                    moved += Delays.of([_due_at(one) for one in some])
        return moved

    async def _undeleted(self, some: Sequence[FoundMail]) -> list[FoundMail]:
        """Drop those that are deleted, by what is known now."""
        known, queue = await self.parts.deletions.known(), self.parts.queue
        deleted = [one for one in some if is_deleted(queue, one.message, one.listed, known)]
        if not deleted:
            return list(some)
        await acknowledged(self.parts, deleted)
        self.parts.counts.add(QueueCount.FILTERED, queue, len(deleted))
        places = {one.message.place for one in deleted}
        return [one for one in some if one.message.place not in places]

    async def _delivered(self, some: Sequence[FoundMail]) -> None:
        parts, topic = self.parts, out_topic(self.parts.queue)

        async def copy(one: FoundMail) -> None:
            story = story_of(one.listed, one.message.place)
            await parts.topics.publish(topic, waiting_message(one.listed, await parts.form(), story))

        if some:
            await all_of(some, copy, AT_ONCE)
            await self._acknowledged([one.message.place for one in some])
            parts.counts.add(QueueCount.DUE_MOVED, parts.queue, len(some))

    async def _replaced(self, one: FoundMail, to_be: Listed) -> None:
        message: TopicMessage = delayed_message(to_be, await self.parts.form(), story_of(to_be, one.message.place))
        await self.parts.topics.publish(scheduled_topic(self.parts.queue), message)
        await self._acknowledged([one.message.place])

    @asynccontextmanager
    async def _turn(self, *, patient: bool, dry_run: bool) -> AsyncGenerator[tuple[bool, frozenset[MessagePlace]]]:
        """The lease, and the delayed messages whose place another took: a dry run takes and changes nothing.

        Raises:
            LeaseHeld: others kept it for longer than a patient caller waits.
        """
        if dry_run:
            yield True, await self._superseded()
            return
        until = self.parts.now + PATIENCE
        while True:
            async with self.parts.topics.lease(mover_lease(self.parts.queue)) as held:
                if held or not patient:
                    superseded = await self._superseded() if held else frozenset[MessagePlace]()
                    await self._acknowledged(superseded)
                    yield held, superseded
                    return
            if self.parts.now > until:
                raise LeaseHeld(
                    f"another process keeps moving delayed mails of the queue {self.parts.queue!r}",
                    mend="Run the same again in a while.",
                )
            await self.parts.clock.pause(_ASK_AGAIN_SECONDS)

    async def _superseded(self) -> frozenset[MessagePlace]:
        """The delayed messages that are not acknowledged though another took their place: a mover was interrupted."""
        parts = self.parts
        scheduled = await parts.topics.backlog(scheduled_topic(parts.queue), scheduled_subscription(parts.queue))
        if not scheduled or not scheduled.count:
            return frozenset()
        places = set[MessagePlace]()
        for topic, subscription in (
            (out_topic(parts.queue), out_subscription(parts.queue)),
            (scheduled_topic(parts.queue), scheduled_subscription(parts.queue)),
        ):
            async with aclosing(parts.topics.unacked(topic, subscription)) as messages:
                places.update([origin async for one in messages if (origin := origin_of(one))])
        return frozenset(scheduled.held(places))

    async def _acknowledged(self, places: Sequence[MessagePlace] | frozenset[MessagePlace]) -> None:
        queue = self.parts.queue
        await self.parts.topics.acknowledge(scheduled_topic(queue), scheduled_subscription(queue), places)


def _due_at(one: FoundMail) -> datetime:
    return one.listed.due_at or one.listed.enqueued_at
