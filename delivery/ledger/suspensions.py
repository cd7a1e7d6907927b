"""Suspensions of deliveries in the ledger: what people hold back, for every server of a queue."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mailmend.delivery.ledger.unread_rows import UnreadRow, json_in, named_texts_in
from mailmend.delivery.policy.suspensions import MadeSuspension
from mailmend.model.catalog.ledger import DELIVERY_SUSPENSION
from mailmend.model.ids import QueueName
from mailmend.model.instants import micros_at
from mailmend.model.operations import Put, Read
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row
from mailmend.model.texts import noted
from mailmend.repair.ledger.expiring import kept_seconds, put_order, remove_order


@dataclass(frozen=True, slots=True)
class LedgerSuspensions:
    """The suspensions of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(self, made: MadeSuspension, now: datetime) -> None:
        """Keep it durably until its end; `now` is the time of the call.

        Raises:
            Outweighed: it is not in force: a removal by a clock that is ahead hides it.
        """
        key = DELIVERY_SUSPENSION.key_row((self.keyspace, made.queue, made.id))
        row = {**key, **suspension_cells(made)}
        put = Put(DELIVERY_SUSPENSION, row, clear=True, ttl_seconds=kept_seconds(made.ends_at, now))
        await put_order(self.tables, put, micros_at(now))

    async def of(self, queue: QueueName) -> Sequence[MadeSuspension]:
        """All that hold, in the order in which they were made; for a moment also some that have ended."""
        seen = await self.tables.read(Read(DELIVERY_SUSPENSION, (self.keyspace, queue)))
        return [suspension_of(stored.row) for stored in seen]

    async def find(self, queue: QueueName, suspension_id: UUID) -> MadeSuspension | None:
        seen = await self.tables.read(Read(DELIVERY_SUSPENSION, (self.keyspace, queue, suspension_id)))
        return suspension_of(seen[0].row) if seen else None

    async def remove(self, made: MadeSuspension, now: datetime) -> None:
        """Remove it, also where another host's clock is ahead; `now` is the time of the call.

        Raises:
            Outweighed: it is still in force.
        """
        await remove_order(self.tables, DELIVERY_SUSPENSION, (self.keyspace, made.queue, made.id), micros_at(now))


def suspension_cells(made: MadeSuspension) -> Row:
    """All but its key."""
    return {
        "fields": json.dumps({name: list(texts) for name, texts in made.values.items()}),
        "owner": noted(made.owner),
        "reason": noted(made.reason),
        "endsat": made.ends_at,
    }


def suspension_of(row: Row) -> MadeSuspension:
    """The suspension that a row keeps. Where it does not tell which mails, it holds every mail, and `damage` says why.

    A mail that waits can still go, and a mail that went cannot come back.
    """
    values: Mapping[str, tuple[str, ...]] = {}
    damage = ""
    try:
        values = named_texts_in(json_in(row, "fields"), "fields")
    except UnreadRow as error:
        damage = str(error)
    return MadeSuspension(
        id=row["suspension"],
        queue=QueueName(row["queuename"]),
        values=values,
        owner=row.get("owner") or "",
        reason=row.get("reason") or "",
        ends_at=row.get("endsat"),
        damage=damage,
    )
