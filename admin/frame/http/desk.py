"""What the desks of servers have in common: at a desk a program asks over a network."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Final, Protocol

from mailmend.model.errors import MailmendError
from mailmend.model.ports import Clock

ASKED_EVERY: Final = timedelta(seconds=10)
ANSWER_SECONDS: Final = 5.0

_LOG: Final = logging.getLogger("mailmend.delivery")


class TooManyCalls(MailmendError):
    """As much is being answered as may be at once."""


class HealthStatus(IntEnum):
    """The state of something, from well to ill."""

    HEALTHY = 0
    DEGRADED = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class PartHealth:
    """The state of a part of a server.

    Attributes:
        cause: without addresses, because its reader has shown no token; "" where there is nothing to say.
    """

    name: str
    status: HealthStatus
    cause: str = ""


class MonitoredDesk(Protocol):
    """What every server tells probes and monitoring. Adapters: `DeliveryDesk`, `TaskDesk`."""

    def health(self) -> Sequence[PartHealth]: ...

    async def metrics(self) -> bytes: ...


@dataclass(slots=True, eq=False)
class WatchedParts:
    """Whether what a server is connected to answers: each is asked every few seconds, however often a probe comes.

    Attributes:
        asks: asks a part something small, by its name.
        silent: those that did not answer when they were asked last.
        log: of the server.
    """

    asks: Mapping[str, Callable[[], Awaitable[object]]]
    clock: Clock
    log: logging.Logger = _LOG
    silent: set[str] = field(default_factory=set)

    async def watch(self) -> None:
        """Ask them again and again, until it is cancelled."""
        while True:
            await asyncio.gather(*(self._ask(name) for name in self.asks))
            await self.clock.pause(ASKED_EVERY.total_seconds())

    def health(self) -> Iterator[PartHealth]:
        for name in self.asks:
            if name in self.silent:
                yield PartHealth(name, HealthStatus.DEGRADED, "it does not answer, or refuses; the log says which")
            else:
                yield PartHealth(name, HealthStatus.HEALTHY)

    async def _ask(self, name: str) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.asks[name]()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a part, the server goes on
            if name not in self.silent:
                self.log.warning("a part does not answer", extra={"part": name, "error": str(error) or "in time"})
            self.silent.add(name)
        else:
            if name in self.silent:
                self.log.info("a part answers again", extra={"part": name})
            self.silent.discard(name)
