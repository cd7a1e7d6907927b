"""The backlogs of one consumer: some mails of each sub-queue are in hand, the others in a table.

*Kept*: a mail beyond the window of its sub-queue is put into its backlog by its message alone;
nothing is looked up, and its content is not read. Then it is acked at the broker. Mails that come
together are put together.

*Anchored*: a mail in hand that waits for long is put into the backlog too, and stays in hand. So
mails that wait take no part of the broker's prefetch, and the mails behind them come.

*Fetched*: as mails of a sub-queue leave, the next ones of its backlog are taken in hand, the oldest
first. They are looked up like any delivery. Their rows stay until they are settled, so whatever
ends the process, no mail is lost.

The order of writes makes each step safe. The row comes before the broker's ack: a crash between the
two leaves a second copy, which the mark of the first drops. A row goes after what settles its mail,
as the broker's ack does.
Source: docs/adr/0081.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Final
from uuid import UUID

from mailmend.mailqueue.broker import Delivery, Message
from mailmend.mailqueue.concurrency import Gathered
from mailmend.mailqueue.every_queue import Takings
from mailmend.mailqueue.queue import SubQueueOf
from mailmend.mailqueue.rabbitmq.own_stretch import OwnStretch
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.backlog_tables import (
    SEEN_FOR,
    BacklogMail,
    BacklogTables,
    Stretch,
)
from mailmend.mailqueue.rules.backlogs import SubQueueName, Windows
from mailmend.mailqueue.rules.mails import QueuedMail
from mailmend.model.durations import LOOK_AGAIN
from mailmend.model.errors import AccessDenied, BrokerUnreachable, CannotReach, MailmendError

TOGETHER_MAX: Final = 100
"""The number of mails that one request puts into a stretch, or removes from it."""

SHOWN_EVERY: Final = SEEN_FOR / 5
"""The pause between two signs that this process is there."""

SURE_FOR: Final = SEEN_FOR * 2 / 3
"""How long after its last sign a process counts on its stretches: others see the sign for longer."""

TENDED_EVERY: Final = SEEN_FOR / 4
"""The pause between two looks at the list of stretches."""

RESTS_SECONDS: Final = 10.0
"""The pause before a dead letter that the broker did not take is tried again."""

KEPT_EMPTY_FOR: Final = timedelta(minutes=1)
"""How long a stretch without rows stays listed: its sub-queue may need it again."""

_LOG: Final = logging.getLogger("mailmend.queue")


class StretchLost(CannotReach):
    """Another process has taken a stretch over while this one wrote there."""


class BacklogDelivery:
    """A message of a backlog in hand. Implements `mailqueue.broker.Delivery`."""

    def __init__(
        self,
        backlogs: "ConsumerBacklogs",
        stretch: OwnStretch,
        mail: BacklogMail,
    ) -> None:
        self._backlogs = backlogs
        self._stretch = stretch
        self._mail = mail
        self.message = mail.message
        self.redelivered = mail.redelivered
        self.dead_lettered = mail.dead_lettered
        self.priority = mail.priority

    async def ack(self) -> None:
        await self._backlogs.remove(self._stretch, self._mail.place)

    async def requeue(self) -> None:
        self._backlogs.give_back(self._stretch, self._mail.place)

    async def dead_letter(self) -> None:
        """Where the broker does not take it, it is fetched again after a pause."""
        try:
            await self._backlogs.bury(self._mail.buried)
        except MailmendError as error:
            await self._backlogs.rest()
            await self.requeue()
            raise BrokerUnreachable(error.what, mend="It is tried again.") from error
        await self.ack()


@dataclass(frozen=True, slots=True)
class _ToKeep:
    """A delivery that a backlog is to keep; `in_hand` where the consumer has its mail."""

    delivery: Delivery
    in_hand: bool


class ConsumerBacklogs:
    """Takes deliveries of a consumer, puts the others into backlogs, and fetches them.

    Args:
        parts: of the queue.
        tables: the queue's backlogs.
        sub_queue_of: names the sub-queue of a mail.
        room: for how many mails the consumer has room.
        take: takes a mail that was fetched.
    """

    def __init__(
        self,
        parts: Parts,
        tables: BacklogTables,
        sub_queue_of: SubQueueOf,
        room: int,
        take: Callable[[Delivery, SubQueueName], None],
    ) -> None:
        self._parts = parts
        self._tables = tables
        self._sub_queue_of = sub_queue_of
        self._windows = Windows(room)
        self._take = take
        self._owner = parts.clock.random_uuid()
        self._shown_at: float | None = None
        self._is_refused = False
        self._stretches: dict[SubQueueName, dict[UUID, OwnStretch]] = {}
        self._keeping: dict[SubQueueName, Gathered[_ToKeep, BacklogDelivery]] = {}
        self._removing: dict[OwnStretch, Gathered[int, None]] = {}
        self._doubtful: set[UUID] = set()
        self._fetching: set[SubQueueName] = set()
        self._fetches = Takings(parts.queue)
        self._is_closed = False

    # Mails come

    def sub_queue_of(self, queued: QueuedMail) -> SubQueueName:
        """The sub-queue of a mail."""
        return self._sub_queue_of(queued)

    async def admits(self, name: SubQueueName, delivery: Delivery) -> bool:
        """Whether a delivery of the broker is taken in hand; else it is in its backlog by now.

        Raises:
            CannotReach: it could not be put there; the broker has it still.
        """
        if self._is_refused or self._windows.admits(name):
            self._windows.take(name)
            return True
        self._windows.begin_backlog(name)
        try:
            await self.keep(name, delivery)
        finally:
            self._refill(name)
        return False

    async def keep(
        self,
        name: SubQueueName,
        delivery: Delivery,
        *,
        in_hand: bool = False,
    ) -> BacklogDelivery:
        """Have the backlog keep a delivery, and ack it at its broker; the delivery of the backlog.

        Raises:
            CannotReach: it could not be put there; the broker has it still.
        """
        if self._is_closed or not self._is_there:
            raise CannotReach("backlogs cannot be written for now", mend="It is tried again.")
        keeping = self._keeping.get(name)
        if keeping is None:
            keeping = Gathered(partial(self._kept, name), TOGETHER_MAX)
            self._keeping[name] = keeping
        kept = await keeping.add(_ToKeep(delivery, in_hand))
        with suppress(CannotReach):  # the broker delivers a copy, which the mark of the mail drops
            await delivery.ack()
        return kept

    async def _kept(self, name: SubQueueName, some: Sequence[_ToKeep]) -> list[BacklogDelivery]:
        stretch = await self._open_stretch(name)
        mails = []
        for to_keep in some:
            delivery = to_keep.delivery
            mail = BacklogMail(
                stretch.next_place(self._parts.clock.micros()),
                delivery.message,
                delivery.priority,
                delivery.redelivered or to_keep.in_hand,
                delivery.dead_lettered,
            )
            mails.append(mail)
        places = [mail.place for mail in mails]
        stretch.put += len(mails)
        try:
            await self._note(stretch)
            if not await self._tables.put(stretch.listed, mails):
                self._lose(stretch)
                raise StretchLost(f"another process has a backlog of {name.text} by now")
        except MailmendError:
            stretch.gone += (await self._tables.remove(stretch.listed, places)).count(None)
            raise
        stretch.last_put = places[-1]
        for to_keep, place in zip(some, places, strict=True):
            if to_keep.in_hand:
                stretch.in_hand.add(place)
        return [BacklogDelivery(self, stretch, mail) for mail in mails]

    async def _open_stretch(self, name: SubQueueName) -> OwnStretch:
        """The stretch of the sub-queue that this process writes."""
        for stretch in self._stretches.get(name, {}).values():
            if stretch.is_ours:
                return stretch
        listed = await self._tables.begin(name, self._owner)
        stretch = OwnStretch(listed, is_ours=True, place=0, last_put=0, fetched_to=0)
        self._own(stretch)
        return stretch

    # Mails are fetched

    def leave(self, name: SubQueueName) -> None:
        """A mail of the sub-queue is in hand no more: fetch others."""
        self._windows.leave(name)
        self._refill(name)
        other = self._windows.next_backlog()
        if other is not None:
            self._refill(other)

    def _refill(self, name: SubQueueName) -> None:
        if self._is_closed or name in self._fetching or not self._windows.wanted(name):
            return
        self._fetching.add(name)
        self._fetches.begin(self._fetch(name))

    async def _fetch(self, name: SubQueueName) -> None:
        failures = 0
        try:
            while wanted := self._windows.wanted(name):
                try:
                    found = await self._fetched(name, wanted)
                except MailmendError as error:
                    failures += 1
                    fields = {"queue": self._parts.queue, "backlog": name.text, "error": error.what}
                    _LOG.warning("a backlog cannot be read", extra=fields)
                    await self._parts.clock.pause(LOOK_AGAIN.wait(failures).total_seconds())
                    continue
                if not found and self._ends(name):
                    return
        finally:
            self._fetching.discard(name)

    async def _fetched(self, name: SubQueueName, wanted: int) -> int:
        """Take the next mails in hand; how many. They count as in hand while they are read."""
        found = list[BacklogDelivery]()
        for _ in range(wanted):
            self._windows.take(name)
        try:
            if not self._is_there:
                raise CannotReach("this process has shown no sign for too long")
            found = await self._next(name, wanted)
        finally:
            for _ in range(wanted - len(found)):
                self._windows.leave(name)
        for delivery in found:
            self._take(delivery, name)
        return len(found)

    async def _next(self, name: SubQueueName, wanted: int) -> list[BacklogDelivery]:
        """The oldest mails of the backlog that are not in hand, at most that many."""
        found = list[BacklogDelivery]()
        for stretch in list(self._stretches.get(name, {}).values()):
            while not stretch.is_read and len(found) < wanted:
                limit = wanted - len(found)
                end = stretch.last_put
                after = stretch.fetched_to
                try:
                    reading = self._tables.mails(stretch.listed, after, limit)
                    mails = [mail async for mail in reading]
                except MailmendError:
                    if found:
                        return found
                    raise
                if stretch.fetched_to < after:  # a mail was given back meanwhile: it comes first
                    continue
                for mail in stretch.fetched(mails, end, limit):
                    found.append(BacklogDelivery(self, stretch, mail))
        return found

    def _ends(self, name: SubQueueName) -> bool:
        """Whether nothing can be fetched for now: the backlog is empty, or is being written."""
        stretches = self._stretches.get(name, {}).values()
        if not all(stretch.is_read for stretch in stretches):
            return False
        keeping = self._keeping.get(name)
        if keeping is None or keeping.is_idle:
            self._windows.end_backlog(name)
        return True

    # Mails leave

    async def remove(self, stretch: OwnStretch, place: int) -> None:
        """Remove the row of a mail that is settled; what cannot be removed now goes later."""
        if not self._has(stretch):
            await self._removed(stretch, [place])
            return
        removing = self._removing.get(stretch)
        if removing is None:
            removing = Gathered(partial(self._removed, stretch), TOGETHER_MAX)
            self._removing[stretch] = removing
        await removing.add(place)

    def give_back(self, stretch: OwnStretch, place: int) -> None:
        """Have a mail fetched once more, when there is room."""
        stretch.give_back(place)
        name = stretch.listed.name
        if self._has(stretch):
            self._windows.begin_backlog(name)
            self._refill(name)

    async def bury(self, message: Message) -> None:
        """Publish a message to the dead letters."""
        await self._parts.broker.bury(self._parts.queue, message)

    async def rest(self) -> None:
        """Wait as long as before another try."""
        await self._parts.clock.pause(RESTS_SECONDS)

    async def _removed(self, stretch: OwnStretch, places: Sequence[int]) -> list[None]:
        errors = await self._tables.remove(stretch.listed, places)
        for place, error in zip(places, errors, strict=True):
            if error is None:
                stretch.in_hand.discard(place)
                stretch.had.discard(place)
                stretch.left.discard(place)
                stretch.gone += 1
            else:
                stretch.left.add(place)
        return [None] * len(places)

    # Other processes

    async def show(self) -> None:
        """Show that this process is there, so that no other takes its stretches over.

        Raises:
            CannotReach: the tables do not answer.
        """
        began_at = self._parts.clock.monotonic()
        try:
            await self._tables.show(self._owner)
        except AccessDenied as error:
            if not self._is_refused:
                fields = {"queue": self._parts.queue, "error": error.what}
                _LOG.error("no backlogs are kept: the role may not write them", extra=fields)
            self._is_refused = True
            raise
        self._is_refused = False
        self._shown_at = began_at

    @property
    def _is_there(self) -> bool:
        """Whether other processes know surely that this one is there."""
        if self._shown_at is None:
            return False
        return self._parts.clock.monotonic() - self._shown_at < SURE_FOR.total_seconds()

    async def tend(self) -> None:
        """Take over what others have left, tidy the own stretches, and ask each backlog for mails.

        Raises:
            CannotReach: the tables do not answer; the next call tries again.
        """
        stretches, owners = await self._tables.stretches()
        for listed in stretches:
            own = self._stretches.get(listed.name, {}).get(listed.id)
            if own is not None and listed.owner != self._owner:
                self._lose(own)
            elif own is None and (listed.owner not in owners or listed.id in self._doubtful):
                await self._take_over(listed)
        now = self._parts.clock.monotonic()
        for own in self._all:
            await self._tidied(own, now)
        for name, keeping in list(self._keeping.items()):
            if keeping.is_idle and name not in self._stretches:
                del self._keeping[name]
        for name in self._windows.backlogs:
            self._refill(name)

    @property
    def sizes(self) -> Mapping[SubQueueName, int]:
        """How many mails wait in the stretches that this process owns, at most; nothing is read."""
        sizes = Counter[SubQueueName]()
        for own in self._all:
            if own.waiting:
                sizes[own.listed.name] += own.waiting
        return sizes

    async def close(self) -> None:
        """Leave all backlogs to other processes; nothing of them is in hand any more."""
        self._is_closed = True
        await self._fetches.cancel()
        for keeping in list(self._keeping.values()):
            await keeping.close()
        for removing in list(self._removing.values()):
            await removing.close()
        try:
            for own in self._all:
                await self._note(own)
            await self._tables.leave(self._owner)
        except MailmendError as error:
            fields = {"queue": self._parts.queue, "error": error.what}
            _LOG.warning("backlogs are left to others only after a while", extra=fields)

    async def _take_over(self, listed: Stretch) -> None:
        self._doubtful.add(listed.id)
        is_taken = await self._tables.take_over(listed, self._owner)
        self._doubtful.discard(listed.id)
        if not is_taken:
            return
        fields = {"queue": self._parts.queue, "backlog": listed.text}
        _LOG.info("a backlog is taken over", extra=fields)
        own = OwnStretch(
            replace(listed, owner=self._owner),
            is_ours=False,
            place=listed.gone_to,
            last_put=None,
            fetched_to=listed.gone_to,
            put=listed.put,
            gone=listed.gone,
        )
        self._own(own)
        self._windows.begin_backlog(listed.name)
        self._refill(listed.name)

    async def _tidied(self, own: OwnStretch, now: float) -> None:
        """Remove rows that are left, note how far it is, and end it once it is not needed."""
        if own.left:
            await self._removed(own, list(own.left))
        keeping = self._keeping.get(own.listed.name)
        is_written = own.is_ours and keeping is not None and not keeping.is_idle
        if not own.is_empty or is_written:
            own.empty_since = None
        elif own.empty_since is None:
            own.empty_since = now
        elif own.empty_since + KEPT_EMPTY_FOR.total_seconds() <= now:
            self._lose(own)
            await self._tables.end(own.listed, own.place)
            return
        await self._note(own)

    async def _note(self, own: OwnStretch) -> None:
        changed = {}
        for name, value in own.figures.items():
            if own.noted.get(name) != value:
                changed[name] = value
        if changed:
            await self._tables.note(own.listed, changed)
            own.noted.update(changed)

    @property
    def _all(self) -> list[OwnStretch]:
        return list(chain.from_iterable(some.values() for some in self._stretches.values()))

    def _has(self, own: OwnStretch) -> bool:
        return own.listed.id in self._stretches.get(own.listed.name, {})

    def _own(self, own: OwnStretch) -> None:
        self._stretches.setdefault(own.listed.name, {})[own.listed.id] = own

    def _lose(self, own: OwnStretch) -> None:
        """Take nothing from it any more."""
        name = own.listed.name
        stretches = self._stretches.get(name, {})
        stretches.pop(own.listed.id, None)
        if not stretches:
            self._stretches.pop(name, None)
        self._removing.pop(own, None)
