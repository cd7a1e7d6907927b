"""What servers of deliveries keep of rates over a restart, in the ledger: a row for each, and one for each counter.

The row of a server is conditional: only the process that has claimed it changes it. Rows of
counters are plain writes with stamps of their own, which go up from write to write and from process
to process, whatever the clocks say: a write that arrives late changes nothing that was written
after it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from mailmend.delivery.policy.rates import LONG_AGO, SECOND
from mailmend.delivery.policy.remembered import CounterName, SavedRate
from mailmend.delivery.policy.servers import RememberedMembership, ServerName
from mailmend.delivery.policy.shares import LimitShare, ShareChanges
from mailmend.model.catalog.ledger import DELIVERY_LIFE, DELIVERY_RATE
from mailmend.model.errors import DoubtfulWrite, MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.operations import ChangeIf, Conditional, Level, Put, PutIfAbsent, Read
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row

_KEPT_INTERVALS: Final = 3
_KEPT_BESIDES: Final = 10 * 86_400
"""A row is kept for some intervals and days: what it says is over after one interval, unless its server writes anew."""

_TTL_MAX: Final = 10 * 365 * 86_400


@dataclass(frozen=True, slots=True)
class SavedRow:
    """A counter's row.

    Attributes:
        seen: when it was made, in microseconds of the wall clock.
        stamp: later rows of a counter have higher ones.
    """

    name: CounterName
    rate: SavedRate
    seen: int
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class LedgerRates:
    """The rates of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.

    Every method may raise `CannotReach`.
    """

    tables: AsyncTables
    keyspace: str

    async def remembered(self, queue: QueueName, server: ServerName) -> RememberedMembership | None:
        """What the last process of a server left; None: none did, or nothing that can be read."""
        seen = await self.tables.read(Read(DELIVERY_LIFE, (self.keyspace, queue, server), Level.SERIAL))
        if not seen:
            return None
        return _remembered(seen[0].row)

    async def change(
        self, queue: QueueName, server: ServerName, before: UUID | None, remembered: RememberedMembership
    ) -> bool:
        """Set a server's row while it equals the claim's row; None: while it is missing. False: it is another's."""
        key = (self.keyspace, queue, server)
        cells = _cells(remembered)
        write: Conditional = ChangeIf(DELIVERY_LIFE, key, {"claim": before}, cells)
        if before is None:
            write = PutIfAbsent(DELIVERY_LIFE, DELIVERY_LIFE.key_row(key) | cells)
        try:
            return (await self.tables.attempt(write)).applied
        except DoubtfulWrite:
            if await self.remembered(queue, server) == remembered:
                return True
            raise

    async def saved(self, queue: QueueName, server: ServerName, span: UUID) -> Sequence[SavedRow]:
        """All counters of a span.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: one of them is not as it was written.
        """
        seen = await self.tables.read(Read(DELIVERY_RATE, (self.keyspace, queue, server, span)))
        return [_saved(stored.row) for stored in seen]

    async def save(
        self, queue: QueueName, server: ServerName, span: UUID, rows: Sequence[SavedRow]
    ) -> list[MailmendError | None]:
        """Write some counters; for each, why it may not have been written."""
        return await self.tables.write_all([self._put((self.keyspace, queue, server, span), row) for row in rows])

    def _put(self, partition: tuple[Any, ...], one: SavedRow) -> Put:
        policy, key = one.name
        row = DELIVERY_RATE.key_row((*partition, policy, json.dumps(key)))
        cells = {"state": one.rate.encoded(), "seenmicros": one.seen}
        ttl = min(_KEPT_INTERVALS * (one.rate.rate.interval // SECOND + 1) + _KEPT_BESIDES, _TTL_MAX)
        return Put(DELIVERY_RATE, row | cells, at=one.stamp, ttl_seconds=ttl)


def _cells(remembered: RememberedMembership) -> dict[str, object]:
    changes = list[tuple[int | None, tuple[tuple[int, int], ...]]]()
    for at, share in remembered.changes:
        if at == LONG_AGO:
            changes.append((None, share.places))
        else:
            changes.append((at, share.places))
    return {
        "claim": remembered.claim,
        "span": remembered.span,
        "epoch": remembered.epoch,
        "changes": json.dumps(changes),
        "number": remembered.number,
        "stamp": remembered.stamp,
        "seenmicros": remembered.seen,
    }


def _remembered(row: Row) -> RememberedMembership:
    return RememberedMembership(
        claim=row["claim"],
        span=row["span"],
        epoch=row["epoch"],
        changes=_changes(row["changes"]),
        number=row["number"],
        stamp=row["stamp"],
        seen=row["seenmicros"],
    )


def _changes(text: str) -> ShareChanges:
    changes = list[tuple[int, LimitShare]]()
    for at, places in json.loads(text):
        share = LimitShare(tuple((number, count) for number, count in places))
        if at is None:
            changes.append((LONG_AGO, share))
        else:
            changes.append((at, share))
    return tuple(changes)


def _saved(row: Row) -> SavedRow:
    key = tuple(str(part) for part in json.loads(row["counter"]))
    return SavedRow((row["policy"], key), SavedRate.decoded(row["state"]), row["seenmicros"])
