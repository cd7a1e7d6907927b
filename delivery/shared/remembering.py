"""A server's rates over its restarts: taken up with its membership, and written before anything begins under them.

See `delivery.policy.remembered`. What cannot be read, or was another process's meanwhile, counts as
spent.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from mailmend.delivery.ledger.servers import LedgerRates, SavedRow
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.rates import LONG_AGO
from mailmend.delivery.policy.remembered import CounterMemory, Instants, KeptRates, saved_rate
from mailmend.delivery.policy.shares import (
    NO_SHARE,
    LimitShare,
    Members,
    Membership,
    RememberedMembership,
    ServerName,
    ShareChanges,
)
from mailmend.mailqueue.concurrency import paused
from mailmend.model.errors import CannotReach, MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.ports import Clock
from mailmend.repair.ledger.leases import EXPIRY_SLACK

_LOG: Final = logging.getLogger("mailmend.delivery")

ROUND_MAX: Final = 64
"""Counters that are written at once."""

ENDING_MAX: Final = 4096
"""Counters that are written as the server ends; of others, what they may have begun counts as spent."""

LOOK_EVERY: Final = timedelta(seconds=1)
STAMPS_APART: Final = 2**36
"""How many rows one process may write before its stamps reach the stamps of the next."""

_SLACK: Final = EXPIRY_SLACK // timedelta(microseconds=1)
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(slots=True, kw_only=True, eq=False)
class RememberedRates:
    """Keeps the rates of one server.

    Attributes:
        nanos: the clock of the engine, in nanoseconds.
        remembered: as the ledger has it; None: nothing is taken up yet, or the server is another
            process's.
    """

    queue: QueueName
    ledger: LedgerRates
    engine: PickupEngine
    clock: Clock
    nanos: Callable[[], int]
    wake: Callable[[], None]
    remembered: RememberedMembership | None = None
    _name: ServerName | None = None
    _has_counted: bool = False
    _offset: int | None = None
    _stamp: int = 0
    _failing: bool = False
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self) -> None:
        """Write soon what must be written before more may begin, if anything must."""
        if (kept := self.engine.share.kept) and kept.unsaved:
            self._woken.set()

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Write what is to be written, until a stop signal; where the ledger does not answer, try again."""
        while not stop.is_set():
            self._woken.clear()
            try:
                while await self.save():
                    pass
            except Exception:  # noqa: BLE001 - what has no such rates goes on whatever the ledger holds
                _LOG.exception("rates cannot be kept")
                self._failing = True
            if self._failing:
                await paused(self.clock, LOOK_EVERY, stop)
            else:
                await paused(self.clock, LOOK_EVERY, stop, self._woken)

    async def take_up(self, membership: Membership, members: Members, known: int | None) -> int | None:
        """Claim what the last process of this server left, once for each membership.

        Args:
            membership: of this process.
            members: the list of now.
            known: the epoch that this process went by last; 0: there was no list; None: it does not
                know.

        Returns:
            The epoch that it may be said to have gone by; None: all counts as spent.

        Raises:
            CannotReach: unknown yet.
        """
        if self.remembered and (self.remembered.claim, self._name) == (membership.claim, membership.name):
            return known
        found = await self.ledger.remembered(self.queue, membership.name)
        rows = list[SavedRow]()
        is_ours = bool(
            self.remembered and found and self._name == membership.name and found.claim == self.remembered.claim
        )
        goes_on = is_ours
        if found and not self._has_counted and found.goes_on(members, membership.name):
            try:
                rows = list(await self.ledger.saved(self.queue, membership.name, found.span))
                goes_on = True
            except _UNREADABLE:
                _LOG.warning("what began before cannot be read, and counts as spent", exc_info=True)
        now = self.nanos()
        if found:
            self._not_before(max((found.seen, *(row.seen for row in rows))), now)
        if not goes_on:
            self._begin_anew(now)
            if known != 0 or found:
                known = None
        elif found and not is_ours:
            saved = {row.name: row.rate.moved(self._to_clock(now)) for row in rows}
            self.engine.resume(_moved(found.changes, self._to_clock(now)), found.number, saved, now)
            known = found.epoch
        before = None
        span = membership.claim
        stamp = self.clock.micros()
        if found:
            before = found.claim
            span = found.span if goes_on else span
            stamp = max(stamp, found.stamp + STAMPS_APART)
        if not await self._change(membership, before, span, stamp, known or members.epoch):
            raise CannotReach("another process of this server has just begun to count")
        self._has_counted = True
        self._stamp = stamp
        return known

    async def note(self, membership: Membership, members: Members) -> None:
        """Write by which list of members and share the server goes now."""
        remembered = self.remembered
        if remembered and (remembered.epoch, remembered.number) != (members.epoch, self.engine.share.number):
            if not await self._change(membership, remembered.claim, remembered.span, remembered.stamp, members.epoch):
                self.remembered = None
            self._woken.set()

    async def save(self, most: int = ROUND_MAX) -> bool:
        """Write counters that are to be written; whether another round at once will find more."""
        kept = self.engine.share.kept
        if kept is None:
            return False
        due = kept.due(self.nanos(), most)
        return await self._write(due, self.nanos()) and bool(kept.due(self.nanos(), 1))

    async def end(self) -> None:
        """Write all counters, because nothing more begins; a counter that is not written counts as fully used."""
        kept = self.engine.share.kept
        now = self.nanos()
        if kept is None:
            return
        for memory in kept.living.values():
            memory.ahead = 0
        saved = [memory for memory in kept.living.values() if memory.saved >= 0]
        left = [*saved, *kept.closing.values()][:ENDING_MAX]
        try:
            while left and await self._write(left[:ROUND_MAX], now, ends=True):
                left = left[ROUND_MAX:]
        except MailmendError as error:
            _LOG.warning("what may have begun counts as spent", extra={"error": error.what})
        self.remembered = None

    async def _write(self, memories: Sequence[CounterMemory], now: int, *, ends: bool = False) -> bool:
        """Write some counters, and let more begin under them; whether all were written."""
        remembered = self.remembered
        number = self.engine.share.number
        if not memories or remembered is None or self._name is None or remembered.number != number:
            return False
        rows = list[SavedRow]()
        begun = [memory.begun for memory in memories]
        for memory in memories:
            ahead = 0
            if not ends:
                ahead = memory.may_begin
            memory.ahead = min(memory.ahead, ahead)
            self._stamp += 1
            rate = saved_rate(memory, ahead, number).moved(self._to_wall(now))
            rows.append(SavedRow(memory.name, rate, self._wall(now), self._stamp))
        answers = await self.ledger.save(self.queue, self._name, remembered.span, rows)
        if self.remembered is None or self.remembered.claim != remembered.claim:
            return False
        for memory, row, many, failed in zip(memories, rows, begun, answers, strict=True):
            if failed is None:
                memory.is_written(row.rate, many, now)
                self.engine.is_saved(memory, self.nanos())
        self._failing = any(answers)
        if not all(answers):
            self.wake()
        return not self._failing

    async def _change(self, membership: Membership, before: UUID | None, span: UUID, stamp: int, epoch: int) -> bool:
        """Say how this process goes on counting."""
        now = self.nanos()
        share = self.engine.share
        remembered = RememberedMembership(
            claim=membership.claim,
            span=span,
            epoch=epoch,
            changes=_moved(share.changes, self._to_wall(now)),
            number=share.number,
            stamp=stamp,
            seen=self._wall(now),
        )
        if not await self.ledger.change(self.queue, membership.name, before, remembered):
            return False
        self.remembered = remembered
        self._name = membership.name
        return True

    def _begin_anew(self, now: int) -> None:
        """Count all as spent, whatever this or another process has begun."""
        self.engine.have(NO_SHARE, now)
        self.engine.share.kept = KeptRates()

    # The clocks

    def _wall(self, now: int) -> int:
        """The wall clock at an instant of ours, in microseconds; it is never set back."""
        offset = self.clock.micros() - self.nanos() // 1000
        if self._offset is not None:
            offset = max(self._offset, offset)
        self._offset = offset
        return now // 1000 + offset

    def _not_before(self, micros: int, now: int) -> None:
        """The wall clock was there once already."""
        self._offset = self._wall(now) - now // 1000
        self._offset = max(self._offset, micros - now // 1000)

    def _to_wall(self, now: int) -> Instants:
        offset = self._wall(now) - now // 1000
        return lambda at: at // 1000 + offset

    def _to_clock(self, now: int) -> Instants:
        wall = self._wall(now)
        return lambda at: now - max(0, wall - at - _SLACK) * 1000


def _moved(changes: ShareChanges, instants: Instants) -> ShareChanges:
    moved = list[tuple[int, LimitShare]]()
    for at, share in changes:
        if at == LONG_AGO:
            moved.append((at, share))
        else:
            moved.append((instants(at), share))
    return tuple(moved)
