"""What people hold back, as the ledger has it for all servers of a queue: read again and again, and told the engine."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from mailqueue.background import paused
from model.errors import MailmendError
from model.ids import QueueName
from model.instants import MICROS, instant_of
from model.pickup.engine import PickupEngine
from model.pickup.suspensions import MadeSuspension
from model.ports import Clock
from repair.ledger.suspensions import LedgerSuspensions

_LOG: Final = logging.getLogger("mailmend.delivery")

_MICRO: Final = timedelta(microseconds=1)
_MICRO_NANOS: Final = 1_000


@dataclass(slots=True, kw_only=True, eq=False)
class SharedSuspensions:
    """Has the engine of one server hold back what people hold back for its queue; limits are left alone.

    Attributes:
        every: how long after a reading the next one begins.
        wake: called when others may be picked than before.
        holding: those that the engine knows, by id; each ends by the engine's own clock.
        read_micros: when the ledger was last read, in microseconds since 1970; None: never.
    """

    queue: QueueName
    ledger: LedgerSuspensions
    engine: PickupEngine
    clock: Clock
    every: timedelta
    wake: Callable[[], None]
    holding: Mapping[UUID, MadeSuspension] = field(default_factory=dict)
    read_micros: int | None = None
    _failing: bool = False

    async def read(self) -> None:
        """Let the engine hold back what the ledger says now; what cannot be read or understood changes nothing.

        Raises:
            CannotReach: the ledger does not answer.
            WrongUse: something in it is not understood.
        """
        found = {one.id: one for one in await self.ledger.of(self.queue)}
        new = [one for name, one in found.items() if self.holding.get(name) != one]
        suspensions = [one.suspension(self._ends_at(one)) for one in new]
        now = self._nanos()
        gone = [one for name, one in self.holding.items() if name not in found]
        for one in gone:
            self.engine.lift(str(one.id), now)
            _LOG.info("a suspension is over", extra={"suspension": str(one.id)})
        for one, suspension in zip(new, suspensions, strict=True):
            self.engine.suspend(suspension, now)
            shown = {"suspension": str(one.id), "owner": one.owner, "why": one.reason, "ends_at": str(one.ends_at)}
            _LOG.info("mails are suspended", extra=shown)
        self.holding, self.read_micros = found, self.clock.micros()
        if new or gone:
            self.wake()

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Read until a stop signal; after an error all stays as it was, and it is read again at the next turn."""
        while not stop.is_set():
            await paused(self.clock, self.every, stop)
            if stop.is_set():
                return
            try:
                await self.read()
            except Exception as error:  # noqa: BLE001 - deliveries go on whatever the ledger holds
                self._say_once(error)
            else:
                if self._failing:
                    _LOG.info("suspensions can be read again")
                self._failing = False

    def _say_once(self, error: Exception) -> None:
        if not self._failing:
            trace = None if isinstance(error, MailmendError) else error
            _LOG.warning("suspensions stay as they were", extra={"error": str(error)}, exc_info=trace)
        self._failing = True

    def _nanos(self) -> int:
        return round(self.clock.monotonic() * MICROS) * _MICRO_NANOS

    def _ends_at(self, made: MadeSuspension) -> int | None:
        """By the engine's clock, which never goes back, however ours is set."""
        if made.ends_at is None:
            return None
        left = (made.ends_at - instant_of(self.clock.micros())) // _MICRO
        return self._nanos() + left * _MICRO_NANOS

    @property
    def count(self) -> int:
        """How many hold now."""
        now = instant_of(self.clock.micros())
        return sum(not one.has_ended(now) for one in self.holding.values())
