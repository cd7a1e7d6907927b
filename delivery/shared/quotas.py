"""Quotas of a queue, kept by one process: it counts the queue again and again, and refuses what would exceed one.

A count reads the listing of the queue, and no bytes of mails.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from mailmend.delivery.mail.envelopes import counted_mail
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.quotas import QUOTA_FIELDS, CountedMail, QueueQuota, QuotaUsage, rest_seconds
from mailmend.mailqueue.concurrency import paused
from mailmend.mailqueue.queue import MailQueue
from mailmend.model.errors import MailmendError
from mailmend.model.ports import Clock

_IDLE: Final = timedelta(hours=1)
_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(slots=True, kw_only=True, eq=False)
class QueueQuotas:
    """What the quotas of a queue leave room for; one event loop uses it.

    Attributes:
        counted_micros: when the last count that succeeded began, in microseconds since 1970; None: there was none.
    """

    queue: MailQueue
    clock: Clock
    usage: QuotaUsage = field(default_factory=QuotaUsage)
    counted_micros: int | None = None
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _failing: bool = False

    def limit(self, quotas: tuple[QueueQuota, ...]) -> None:
        """Let these hold from now on; as `QuotaUsage.reload`."""
        self.usage.reload(quotas)
        self._wanted.set()

    @property
    def are_unknown(self) -> bool:
        """Whether there are any, and nothing was counted yet."""
        return bool(self.usage.quotas) and not self.usage.is_counted

    def refusal(self, mails: Iterable[CountedMail], fields: Iterable[PickupField] = QUOTA_FIELDS) -> QueueQuota | None:
        """As `QuotaUsage.refusal`; the next count then begins soon."""
        found = self.usage.refusal(mails, fields)
        if self.usage.is_short:
            self._wanted.set()
        return found

    async def count(self) -> None:
        """Count the queue once.

        Raises:
            CannotReach: it cannot be listed; what was known stays known.
        """
        began = self.clock.micros()
        count = self.usage.begin_count()
        try:
            async for listed in self.queue.browse():
                count.add(counted_mail(listed.queued.mail))
        except BaseException:
            self.usage.end_count(None)
            raise
        self.usage.end_count(count)
        self.counted_micros = began

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Count until a stop signal; after an error all stays as it was, and it is counted again at the next turn."""
        while not stop.is_set():
            took = 0.0
            if self.usage.quotas:
                began = self.clock.monotonic()
                await self._counted()
                took = self.clock.monotonic() - began
            await self._rest(took, stop)

    async def _counted(self) -> None:
        try:
            await self.count()
        except Exception as error:  # noqa: BLE001 - mails are taken whatever the listing says
            if not self._failing:
                trace: Exception | None = error
                if isinstance(error, MailmendError):
                    trace = None
                _LOG.warning("quotas stay as they were counted", extra={"error": str(error)}, exc_info=trace)
            self._failing = True
        else:
            if self._failing:
                _LOG.info("quotas can be counted again")
            self._failing = False

    async def _rest(self, took: float, stop: asyncio.Event) -> None:
        ended = self.clock.monotonic()
        while not stop.is_set():
            self._wanted.clear()
            rest = rest_seconds(took, soon=not self._failing and (self.usage.is_short or self.usage.is_new))
            left = _IDLE.total_seconds()
            if self.usage.quotas:
                left = ended + rest - self.clock.monotonic()
            if left <= 0:
                return
            await paused(self.clock, timedelta(seconds=left), stop, self._wanted)
