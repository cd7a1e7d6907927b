"""Delayed mails: what is delayed, moving them to the waiting mails, changing them where they are.

Who keeps it has a lease for as long as it does, so that others need not; what is moved does not
depend on that lease, only on the lease of the turn (`mailqueue.pulsar.turns`). A look at a
time at which nothing is due costs two requests: how many partitions the delayed topic has, and for
each whether there is more.

The index is of messages, not of what is true of them: before anything is moved it is asked what is
acknowledged, what others moved, what is deleted. It may hold too much, never too little: where a
broker began to serve the topic anew, and so may have forgotten acknowledgements, or the
subscription was set back, it is read again; so it is after any error.

One process at a time moves, in its turn (`turns`); what is due one process knows, which keeps an
index (`keeping`). A copy says whose place it takes. It is published before the delayed message is
acknowledged; the consumer that settles the copy acknowledges that again before the copy
(`mailqueue.pulsar.dequeue`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, Self

from mailmend.mailqueue.concurrency import finished, in_batches
from mailmend.mailqueue.every_queue import patient_turn
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.parts import (
    FoundMail,
    PulsarParts,
    acknowledged,
    backlog_of,
    found,
    is_deleted,
    place_of,
)
from mailmend.mailqueue.pulsar.settings import OWN_SUBSCRIPTION, keeper_lease, mover_lease, out_topic, scheduled_topic
from mailmend.mailqueue.pulsar.topics import (
    Following,
    StoredMessage,
    as_it_is,
    delayed_message,
    listed_of,
    story_of,
    waiting_message,
)
from mailmend.mailqueue.pulsar.turns import HeldTurn, KnownMoves, left_over, turn
from mailmend.mailqueue.queue import AffectedMails, Delays, MailChange, OnRemoved
from mailmend.mailqueue.rules.mails import Listed, Whereabouts
from mailmend.mailqueue.rules.places import Backlog, MessagePlace
from mailmend.mailqueue.rules.slices import millis_of
from mailmend.model.errors import BadPayload

KEPT_MAX: Final = 50_000
"""The number of messages that are kept, at some 300 bytes each."""


class DelayedIndex:
    """Due times, in milliseconds since 1970, by place, in bounded memory.

    Of more than it may keep it knows those that are due first, and from when on it knows too
    little: by then it has to be built anew. Of n messages that none is added to, that is
    2 n / `KEPT_MAX` times.

    Attributes:
        short_from: from when on it does not know all that are due; None: it knows them all.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._due_at: dict[MessagePlace, int] = {}
        self._by_time: list[tuple[int, MessagePlace]] = []
        self.short_from: int | None = None

    def __len__(self) -> int:
        return len(self._due_at)

    def add(self, place: MessagePlace, due_at: int) -> None:
        if self.short_from is not None and due_at >= self.short_from:
            return
        self._due_at[place] = due_at
        heappush(self._by_time, (due_at, place))
        if len(self._due_at) > self._kept_max or len(self._by_time) > 2 * self._kept_max:
            self._cut()

    def drop(self, places: Iterable[MessagePlace]) -> None:
        """Forget some, of which it may know nothing."""
        for place in places:
            self._due_at.pop(place, None)

    def has_due(self, now: int) -> bool:
        """Whether some are due, or may be."""
        return self.is_short(now) or bool(self._by_time and self._by_time[0][0] <= now)

    def is_short(self, now: int) -> bool:
        """Whether more may be due than it knows."""
        return self.short_from is not None and self.short_from <= now

    def take_due(self, now: int) -> list[MessagePlace]:
        """Those that are due, the first one first; it forgets them."""
        found = list[MessagePlace]()
        while self._by_time and self._by_time[0][0] <= now:
            due_at, place = heappop(self._by_time)
            if self._due_at.get(place) == due_at:
                del self._due_at[place]
                found.append(place)
        return found

    def _cut(self) -> None:
        """Keep the half that is due first, if there are too many; forget what was dropped."""
        entries = sorted((due_at, place) for place, due_at in self._due_at.items())
        if len(entries) > self._kept_max:
            kept = entries[: self._kept_max // 2]
            self.short_from = entries[len(kept)][0]
            self._due_at = {place: due_at for due_at, place in kept}
            entries = kept
        self._by_time = entries
        heapify(self._by_time)


LOOKED_AGAIN_SECONDS: Final = 60.0
"""How long it is believed, without anything due, that no broker has forgotten anything."""


@dataclass(slots=True)
class KeptIndex:
    """The index of one queue, and what continues it.

    Attributes:
        base: what was acknowledged when that was looked at last.
    """

    parts: PulsarParts
    delayed: Following
    notes: Following
    base: Backlog
    index: DelayedIndex
    _open: AsyncExitStack
    _moves: KnownMoves = field(default_factory=KnownMoves)
    _looked_at: float = float("-inf")

    @classmethod
    async def begun(cls, parts: PulsarParts, index: DelayedIndex) -> Self | None:
        """Read what is delayed; None: another process keeps it."""
        topics = parts.topics
        queue = parts.queue
        topic, subscription = place_of(Whereabouts.DELAYED, queue)
        async with AsyncExitStack() as stack:
            if await stack.enter_async_context(topics.lease(keeper_lease(queue))) is None:
                return None
            notes = await topics.follow(mover_lease(queue), OWN_SUBSCRIPTION)
            stack.push_async_callback(notes.close)
            await topics.create(topic, subscription)
            base = await backlog_of(parts, Whereabouts.DELAYED)  # before it is read: what is forgotten later shows
            delayed = await topics.follow(topic, subscription)
            stack.push_async_callback(delayed.close)
            found = cls(parts, delayed, notes, base, index, stack.pop_all())
        try:
            await found.hear()
        except BaseException:
            await found.close()
            raise
        return found

    async def hear(self) -> None:
        """Learn of what was published to the delayed topic until now."""
        async with aclosing(self.delayed.each()) as messages:
            async for message in messages:
                self.index.add(message.place, message.event_at)

    @property
    def has_work(self) -> bool:
        """Whether something may be due, or it is time to look whether the index is still right."""
        return self.index.has_due(self._now) or self._is_to_look

    async def due(self, turn: HeldTurn) -> Sequence[MessagePlace] | None:
        """What is due and not acknowledged, the first due first; None: the index is to be read anew."""
        for message in await self.notes.news():
            self._moves.hear(message)
        moves = self._moves.take()
        self.index.drop(moves.moved)
        if moves.doubtful or self._is_to_look:
            self.index.drop((await turn.settled()).moved)
            self._looked_at = self.parts.clock.monotonic()
        there = await backlog_of(self.parts, Whereabouts.DELAYED)
        if not there.follows(self.base):
            return None
        self.base = there
        return there.held(self.index.take_due(self._now))

    @property
    def is_short(self) -> bool:
        """Whether the index does not know all that is due: it has no room for more."""
        return self.index.is_short(self._now)

    async def close(self) -> None:
        await finished(self._open.aclose())

    @property
    def _now(self) -> int:
        return millis_of(self.parts.now)

    @property
    def _is_to_look(self) -> bool:
        return self.parts.clock.monotonic() - self._looked_at >= LOOKED_AGAIN_SECONDS


PATIENCE: Final = timedelta(seconds=30)
"""How long a flush or a change waits for another process that moves delayed mails."""

AT_ONCE: Final = 200
"""The number of mails that are published at once, then acknowledged together."""

_ASK_AGAIN_SECONDS: Final = 0.2

_Copy = Callable[[], Coroutine[Any, Any, object]]


class Mover:
    """Moves the delayed mails of one queue."""

    def __init__(self, parts: PulsarParts) -> None:
        self._parts = parts
        self._keeping: KeptIndex | None = None
        self._one_round = asyncio.Lock()

    async def flush(self, *, dry_run: bool = False) -> Delays:
        return await self._every(lambda _: True, dry_run=dry_run)

    async def move_due(self, *, dry_run: bool = False) -> int:
        """How many were moved; 0 where another process does that."""
        if dry_run:
            now = self._parts.now
            return (await self._every(lambda one: _due_at(one) <= now, dry_run=True)).count
        async with self._one_round:
            try:
                return await self._rounds()
            except BaseException:
                await self._let_go()
                raise

    async def change(
        self,
        change: MailChange,
        on_change: OnRemoved | None,
        on_changed: Callable[[Listed], None] | None,
        *,
        dry_run: bool,
    ) -> AffectedMails:
        count = 0
        known = await self._parts.deletions.look()
        async with (
            self._patient_turn(dry_run=dry_run) as (held, gone),
            aclosing(found(self._parts, Whereabouts.DELAYED, known=known)) as mails,
        ):
            async for mail in mails:
                to_be = None
                if mail.message.place not in gone:
                    to_be = change(mail.listed)
                if to_be is None:
                    continue
                if held:
                    if on_change is not None:
                        await on_change(mail.listed)
                    queued = replace(mail.listed.queued, mail=to_be.mail)
                    due_at = max(to_be.due_at, self._parts.now)
                    copy = partial(self._again, mail, replace(mail.listed, queued=queued, due_at=due_at))
                    await held.replaced((mail.message.place,), (copy,))
                if on_changed is not None:
                    on_changed(mail.listed)
                count += 1
        return AffectedMails(count)

    async def close(self) -> None:
        async with self._one_round:
            await self._let_go()

    async def _every(self, meant: Callable[[FoundMail], bool], *, dry_run: bool) -> Delays:
        """All delayed mails that are meant, as the topic is read."""
        moved = Delays()
        async with self._patient_turn(dry_run=dry_run) as (held, gone):
            known = None
            if dry_run:
                known = await self._parts.deletions.look()
            async with (
                aclosing(found(self._parts, Whereabouts.DELAYED, known=known)) as mails,
                aclosing(in_batches(mails, AT_ONCE)) as batches,
            ):
                async for batch in batches:
                    some = [mail for mail in batch if mail.message.place not in gone and meant(mail)]
                    if held:
                        some = await self._moved(held, some)
                    moved += Delays.of([_due_at(mail) for mail in some])
        return moved

    async def _rounds(self) -> int:
        """Move what is due by the index, which is read again where it is too small, or no longer sure."""
        moved = 0
        while True:
            if self._keeping is None:
                self._keeping = await KeptIndex.begun(self._parts, DelayedIndex())
                if self._keeping is None:
                    return moved
            else:
                await self._keeping.hear()
            if not self._keeping.has_work:
                return moved
            async with turn(self._parts) as held:
                if held is None:
                    return moved
                places = await self._keeping.due(held)
                for begin in range(0, len(places or ()), AT_ONCE):
                    moved += await self._moved_from(held, (places or ())[begin : begin + AT_ONCE])
            if places is not None and not self._keeping.is_short:
                return moved
            await self._let_go()

    async def _moved_from(self, held: HeldTurn, places: Sequence[MessagePlace]) -> int:
        mails = list[FoundMail]()
        others = list[StoredMessage]()
        those = Backlog.of(places)
        async with aclosing(self._parts.topics.held(scheduled_topic(self._parts.queue), those)) as messages:
            async for message in messages:
                try:
                    mails.append(FoundMail(message, listed_of(message, Whereabouts.DELAYED)))
                except BadPayload:
                    others.append(message)
        return len(await self._moved(held, mails, others)) + len(others)

    async def _moved(
        self, held: HeldTurn, some: Sequence[FoundMail], others: Sequence[StoredMessage] = ()
    ) -> list[FoundMail]:
        """Move what is not deleted. What is not a mail moves as it is: its consumer makes it a dead letter."""
        left = await self._undeleted(some)
        copies: list[_Copy] = []
        places: list[MessagePlace] = []
        for mail in left:
            copies.append(partial(self._waiting, mail))
            places.append(mail.message.place)
        for message in others:
            copies.append(partial(self._as_it_is, message))
            places.append(message.place)
        await held.replaced(places, copies)
        if copies:
            self._parts.counts.add(QueueCount.DUE_MOVED, self._parts.queue, len(copies))
        return left

    async def _undeleted(self, some: Sequence[FoundMail]) -> list[FoundMail]:
        """Drop those that are deleted, by what is known now."""
        known = await self._parts.deletions.known()
        queue = self._parts.queue
        deleted = [mail for mail in some if is_deleted(queue, mail.message, mail.listed, known)]
        if not deleted:
            return list(some)
        await acknowledged(self._parts, deleted)
        self._parts.counts.add(QueueCount.FILTERED, queue, len(deleted))
        places = {mail.message.place for mail in deleted}
        return [mail for mail in some if mail.message.place not in places]

    async def _waiting(self, one: FoundMail) -> None:
        message = waiting_message(one.listed, await self._parts.form(), story_of(one.listed, one.message.place))
        await self._parts.topics.publish(out_topic(self._parts.queue), message)

    async def _as_it_is(self, message: StoredMessage) -> None:
        await self._parts.topics.publish(out_topic(self._parts.queue), as_it_is(message))

    async def _again(self, one: FoundMail, to_be: Listed) -> None:
        message = delayed_message(to_be, await self._parts.form(), story_of(to_be, one.message.place))
        await self._parts.topics.publish(scheduled_topic(self._parts.queue), message)

    @asynccontextmanager
    async def _patient_turn(self, *, dry_run: bool) -> AsyncGenerator[tuple[HeldTurn | None, frozenset[MessagePlace]]]:
        """A turn, and the delayed messages that are copied already; a dry run has none, and changes nothing.

        Raises:
            LeaseHeld: other processes had the lease for longer than a patient caller waits.
        """
        if dry_run:
            yield None, (await left_over(self._parts)).moved
            return
        taken = partial(turn, self._parts)
        again = "Run the same again in a while."
        async with patient_turn(
            self._parts, taken, again, patience=PATIENCE, ask_again_seconds=_ASK_AGAIN_SECONDS
        ) as held:
            yield held, (await held.settled()).moved

    async def _let_go(self) -> None:
        keeping = self._keeping
        self._keeping = None
        if keeping is not None:
            await keeping.close()


def _due_at(one: FoundMail) -> datetime:
    return one.listed.due_at or one.listed.enqueued_at
