"""A mover's turn: messages of delayed mails give way to copies, each once, even if a process is killed at any step.

A broker that is killed forgets acknowledgements, and a mover that is killed leaves copies in
addition to delayed messages. So the process with the lease notes on its topic which messages it is
about to copy, before the first copy is published, and that all are copied, before they are
acknowledged. What is noted as moved is never moved again: what of it comes back is acknowledged
again. What was begun and not noted as moved is looked for among the copies. A mover that has lost
its lease cannot note anything, and so begins nothing.

A note expires when its messages are acknowledged, and the broker has surely written that. It writes
single acknowledgements with the rest, up to a number of stretches of them; where there are as many,
no note expires.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any, Final

from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.pulsar.parts import PulsarParts, backlog_of, place_of
from mailmend.mailqueue.pulsar.settings import OWN_SUBSCRIPTION, mover_lease
from mailmend.mailqueue.pulsar.topics import StoredMessage, TopicLease, TopicMessage, origin_of
from mailmend.mailqueue.rules.deletions import WRITTEN
from mailmend.mailqueue.rules.james_json import json_text, object_in
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.mailqueue.rules.places import MessagePlace
from mailmend.model.errors import BadPayload

STRETCHES_MAX: Final = 5_000
"""The number of acknowledged stretches up to which the broker has surely written them all: half of
its own default (`managedLedgerMaxUnackedRangesToPersist`)."""

NOTED_TOGETHER: Final = 5_000
"""The number of places in one note."""

_LOG: Final = logging.getLogger("mailmend.queue")


class MoveStep(Enum):
    """How far copies of messages are."""

    BEGUN = "begun"
    MOVED = "moved"


@dataclass(slots=True)
class KnownMoves:
    """What notes say.

    Attributes:
        moved: these messages are copied.
        doubtful: these may be: a mover was killed, or failed.
    """

    moved: set[MessagePlace] = field(default_factory=set)
    doubtful: set[MessagePlace] = field(default_factory=set)

    def hear(self, note: StoredMessage) -> None:
        """In their order: a process that notes that copies are there has looked for all that were begun before."""
        try:
            begun, moved = _places_in(note.payload)
        except BadPayload as error:
            _LOG.warning("a note of a mover cannot be read", extra={"place": str(note.place), "error": error.what})
            return
        if moved is not None:
            self.moved |= moved
            self.doubtful.clear()
        self.doubtful |= begun

    def take(self) -> "KnownMoves":
        """What was heard since the last time, and all that is doubtful."""
        taken = KnownMoves(self.moved, set(self.doubtful))
        self.moved = set()
        return taken


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What earlier movers left.

    Attributes:
        found: begun, and gone or copied.
        back: moved, and there again.
        expired: notes that are no longer needed.
        has_doubts: whether anything was begun and not noted as moved.
    """

    found: frozenset[MessagePlace] = frozenset()
    back: frozenset[MessagePlace] = frozenset()
    expired: tuple[MessagePlace, ...] = ()
    has_doubts: bool = False

    @property
    def moved(self) -> frozenset[MessagePlace]:
        return self.found | self.back


async def left_over(parts: PulsarParts) -> LeftOver:
    """Look at what earlier movers left, and change nothing."""
    known = KnownMoves()
    written = list[tuple[MessagePlace, frozenset[MessagePlace]]]()
    async with aclosing(parts.topics.unacked(mover_lease(parts.queue), OWN_SUBSCRIPTION)) as notes:
        async for note in notes:
            known.hear(note)
            if parts.now - note.published_at >= WRITTEN:
                written.append((note.place, _all_in(note.payload)))
    copied = set[MessagePlace]()
    if known.doubtful:
        copied = await _copied(parts, known.doubtful)
    # After the look at copies, for whoever acks one acknowledges its origin first.
    there = await backlog_of(parts, Whereabouts.DELAYED)
    found = frozenset(place for place in known.doubtful if place in copied or not there.holds(place))
    back = frozenset(there.held(known.moved))
    stretches = sum(len(partition.acked) for partition in there.partitions.values())
    expired: list[MessagePlace] = []
    if stretches <= STRETCHES_MAX:
        expired = [place for place, places in written if not there.held(places)]
    return LeftOver(found, back, tuple(expired), bool(known.doubtful))


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """The lease of a queue's mover, while it is held."""

    parts: PulsarParts
    lease: TopicLease

    async def settled(self) -> LeftOver:
        """Put in order what earlier movers left."""
        left = await left_over(self.parts)
        if left.has_doubts or left.back:
            await self._note(MoveStep.MOVED, sorted(left.moved))
            await self._acknowledge(left.moved)
        await self.parts.topics.acknowledge(mover_lease(self.parts.queue), OWN_SUBSCRIPTION, left.expired)
        return left

    async def replaced(
        self, places: Sequence[MessagePlace], copies: Sequence[Callable[[], Coroutine[Any, Any, object]]]
    ) -> None:
        """Publish the copies that replace delayed messages; once begun, it ends before a cancelled caller does.

        Raises:
            MailmendError: some may be copied; the next turn finds out which.
        """
        if places:
            await finished(self._replaced(places, copies))

    async def _replaced(
        self, places: Sequence[MessagePlace], copies: Sequence[Callable[[], Coroutine[Any, Any, object]]]
    ) -> None:
        await self._note(MoveStep.BEGUN, places)
        for outcome in await asyncio.gather(*(copy() for copy in copies), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        await self._note(MoveStep.MOVED, places)
        await self._acknowledge(places)

    async def _note(self, step: MoveStep, places: Sequence[MessagePlace]) -> None:
        left = iter(places)
        while some := tuple(islice(left, NOTED_TOGETHER)):
            await self.lease.publish(note(step, some))
        if not places:
            await self.lease.publish(note(step, ()))

    async def _acknowledge(self, places: Collection[MessagePlace]) -> None:
        await self.parts.topics.acknowledge(*place_of(Whereabouts.DELAYED, self.parts.queue), places)


@asynccontextmanager
async def turn(parts: PulsarParts) -> AsyncGenerator[HeldTurn | None]:
    """With a turn, a process alone moves delayed mails of the queue; None: another process has the turn."""
    await parts.topics.create(mover_lease(parts.queue), OWN_SUBSCRIPTION)
    async with parts.topics.lease(mover_lease(parts.queue)) as lease:
        if lease:
            yield HeldTurn(parts, lease)
        else:
            yield None


def note(step: MoveStep, places: Sequence[MessagePlace]) -> TopicMessage:
    return TopicMessage(json_text({step.value: [str(place) for place in places]}))


async def _copied(parts: PulsarParts, doubtful: Collection[MessagePlace]) -> set[MessagePlace]:
    """Which of them have a copy that is not acknowledged."""
    found = set[MessagePlace]()
    for whereabouts in Whereabouts:
        async with aclosing(parts.topics.unacked(*place_of(whereabouts, parts.queue))) as messages:
            async for message in messages:
                origin = origin_of(message)
                if origin and origin in doubtful:
                    found.add(origin)
    return found


def _places_in(payload: bytes) -> tuple[frozenset[MessagePlace], frozenset[MessagePlace] | None]:
    """Those that are begun, and those that are moved."""
    fields = object_in(payload, "the note of a mover")
    begun = fields.get(MoveStep.BEGUN.value)
    moved = fields.get(MoveStep.MOVED.value)
    begun_places = _places(begun or [])
    if moved is None:
        return begun_places, None
    return begun_places, _places(moved)


def _places(found: Any) -> frozenset[MessagePlace]:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise BadPayload("the places in a mover's note are no list of texts")
    return frozenset(map(MessagePlace.parse, found))


def _all_in(payload: bytes) -> frozenset[MessagePlace]:
    try:
        begun, moved = _places_in(payload)
    except BadPayload:
        return frozenset()
    return begun | (moved or frozenset())
