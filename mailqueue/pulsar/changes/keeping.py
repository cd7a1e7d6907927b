"""What is delayed in a queue, as the one process knows that keeps it: read once, continued by what is new.

Who keeps it has a lease for as long as it does, so that others need not; what is moved does not
depend on that lease, only on the lease of the turn (`mailqueue.pulsar.changes.turns`). A look at a
time at which nothing is due costs two requests: how many partitions the delayed topic has, and for
each whether there is more.

The index is of messages, not of what is true of them: before anything is moved it is asked what is acknowledged, what
others moved, what is deleted. It may hold too much, never too little: where a broker began to serve the topic anew, and
so may have forgotten acknowledgements, or the subscription was set back, it is read again; so it is after any error.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Final, Self

from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.pulsar.broker.names import OWN_SUBSCRIPTION, keeper_lease, mover_lease
from mailmend.mailqueue.pulsar.broker.topics import Following
from mailmend.mailqueue.pulsar.changes.turns import HeldTurn, KnownMoves
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.pulsar.view.listing import backlog_of, place_of
from mailmend.mailqueue.rules.delayed_index import DelayedIndex
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.mailqueue.rules.places import Backlog, MessagePlace
from mailmend.mailqueue.rules.slices import millis_of

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
