"""Leases on partitions of delayed mails: one mover at a time, so that no mail is published by two.

A flush has one lease for all slices that no round of a mover looks at yet: a conditional write costs as much as all
else that is done for a mail, and those of one partition take turns.

The lease is two cells in the partition's row of the list, set by a conditional write with a time to live, taken only
while there is something to move, and given back at once. Its rules are those of `repair.ledger.leases`: a heartbeat
rewrites
both cells, a doubtful answer is settled by a SERIAL read, a killed holder frees it by time alone. It is courtesy: two
movers that both believe in it deliver a mail twice, and lose none.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from mailqueue.rabbitmq.view.due_mails import DuePartition, flush_entry
from model.catalog.mail_queue import DUE_MAILS
from model.errors import DoubtfulWrite, MailmendError
from model.ids import QueueName
from model.instants import instant_of
from model.operations import ChangeIf, Level, Read
from model.ports import AsyncTables, Clock
from model.schema.table import Key
from repair.clock import SKEW_SECONDS

TTL_SECONDS: Final = 30
"""How long a lease outlives its last heartbeat."""

_SLACK: Final = timedelta(seconds=1 + SKEW_SECONDS)
"""Servers expire by whole seconds and by clocks of their own."""


@dataclass(slots=True)
class DueLease:
    """A partition's lease, taken by this process.

    Attributes:
        until: when it ends, unless it is renewed.
        renewal: held by the one caller that renews; the others wait.
    """

    key: Key
    token: UUID
    until: datetime
    renewal: asyncio.Lock = field(default_factory=asyncio.Lock)


class DueLeases:
    """The leases of one queue's partitions.

    Args:
        ttl_seconds: how long a lease outlives its last heartbeat.
    """

    def __init__(self, tables: AsyncTables, clock: Clock, queue: QueueName, ttl_seconds: int = TTL_SECONDS) -> None:
        self._tables, self._clock, self._queue, self._ttl_seconds = tables, clock, queue, ttl_seconds

    def turn(self, partition: DuePartition) -> "AbstractAsyncContextManager[DueLease | None]":
        """The partition's lease for as long as the body runs; None while another process holds it."""
        return self._turn(partition.entry(self._queue))

    def turn_of_flush(self) -> "AbstractAsyncContextManager[DueLease | None]":
        """One lease for all partitions that no round reads; None while another flush holds it."""
        return self._turn(flush_entry(self._queue))

    @asynccontextmanager
    async def _turn(self, key: Key) -> "AsyncIterator[DueLease | None]":
        lease = DueLease(key, self._clock.random_uuid(), self._expiry())
        if not await self._set(lease, expected=None):
            yield None
            return
        try:
            yield lease
        finally:
            await self._free(lease)

    async def keep(self, lease: DueLease) -> bool:
        """Renew a lease that ends soon; whether it is still ours."""
        async with lease.renewal:
            if lease.until - self._now() > timedelta(seconds=self._ttl_seconds / 2) + _SLACK:
                return True
            until = self._expiry()
            kept = await self._set(lease, expected=str(lease.token))
            lease.until = until if kept else lease.until
            return kept

    def is_sure(self, lease: DueLease) -> bool:
        """Whether nobody else can have held the lease until now."""
        return lease.until > self._now() + _SLACK

    async def _set(self, lease: DueLease, expected: str | None) -> bool:
        cells = {"name": str(lease.token), "lastupdated": self._expiry()}
        change = ChangeIf(DUE_MAILS, lease.key, {"name": expected}, assign=cells, ttl_seconds=self._ttl_seconds)
        try:
            return (await self._tables.attempt(change)).applied
        except DoubtfulWrite:
            seen = await self._tables.read(Read(DUE_MAILS, lease.key, Level.SERIAL))
            return bool(seen) and seen[0].row["name"] == str(lease.token)

    async def _free(self, lease: DueLease) -> None:
        """Where this fails, or the lease is lost, its time to live frees it."""
        freed = {"name": None, "lastupdated": None}
        try:
            await self._tables.attempt(ChangeIf(DUE_MAILS, lease.key, {"name": str(lease.token)}, assign=freed))
        except MailmendError:
            return

    def _expiry(self) -> datetime:
        return self._now() + timedelta(seconds=self._ttl_seconds)

    def _now(self) -> datetime:
        return instant_of(self._clock.micros())
