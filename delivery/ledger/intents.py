"""What is to follow once an attempt has ended, in the ledger: ordered of recipients that were active then.

Each mail has a partition of its own, which is read where its attempts end. So that it is not read before each attempt
as well, a row under the nil id says whether anything was ordered in the last time; it outlives all others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from mailmend.delivery.mail.entries import EntryId
from mailmend.delivery.mail.queued import EntryAction, EntryChange
from mailmend.model.catalog.ledger import DELIVERY_INTENT
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import micros_at
from mailmend.model.operations import Put, Read, Remove
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row
from mailmend.model.texts import noted
from mailmend.repair.ledger.expiring import put_order, put_orders

KEPT_FOR: Final = timedelta(days=1)
"""How long a change waits for the end of an attempt."""

_TOGETHER: Final = 500
_ANY: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class LedgerIntents:
    """The changes that wait for the end of an attempt, of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(self, queue: QueueName, changes: Mapping[EntryId, EntryChange], now: datetime) -> None:
        """Order a change of each entry, in place of the change that was ordered before; `now` is the time of the call.

        Raises:
            CannotReach: the ledger does not answer; some may be ordered.
            Outweighed: some are not in force: removals by a clock more than a day ahead hide them.
        """
        if not changes:
            return
        seconds = round(KEPT_FOR.total_seconds())
        latest = max(change.at for change in changes.values())
        there = DELIVERY_INTENT.key_row((self.keyspace, queue, _ANY, 0)) | {"madeat": latest}
        await put_order(self.tables, Put(DELIVERY_INTENT, there, ttl_seconds=2 * seconds), micros_at(now))
        entries = sorted(changes, key=lambda entry: (entry.mail.bytes, entry.number))
        for place in range(0, len(entries), _TOGETHER):
            puts = list[Put]()
            for entry in entries[place : place + _TOGETHER]:
                row = self._row(queue, entry, changes[entry])
                puts.append(Put(DELIVERY_INTENT, row, clear=True, ttl_seconds=seconds))
            await put_orders(self.tables, puts, micros_at(now))

    async def are_there(self, queue: QueueName) -> bool:
        """Whether something was ordered that may be there still."""
        return bool(await self.tables.read(Read(DELIVERY_INTENT, (self.keyspace, queue, _ANY))))

    async def of(self, queue: QueueName, mail: EnqueueId) -> Mapping[int, EntryChange]:
        """What is ordered of a mail's entries, by their numbers."""
        return _changes([stored.row for stored in await self.tables.read(self._read(queue, mail))])

    async def of_all(self, queue: QueueName, mails: Sequence[EnqueueId]) -> Mapping[EntryId, EntryChange]:
        """What is ordered of these mails' entries."""
        found = await self.tables.read_all([self._read(queue, enqueue_id) for enqueue_id in mails])
        changes = dict[EntryId, EntryChange]()
        for mail, seen in zip(mails, found, strict=True):
            if isinstance(seen, MailmendError):
                raise seen
            for number, change in _changes([stored.row for stored in seen]).items():
                changes[EntryId(mail, number)] = change
        return changes

    async def remove(self, queue: QueueName, mail: EnqueueId, numbers: Iterable[int]) -> None:
        """Remove what is ordered of these entries, also where another host's clock is ahead.

        A removal carries the stamp of what it removes, so that it hides no later order, whatever the clocks say.
        """
        chosen = frozenset(numbers)
        read = Read(DELIVERY_INTENT, (self.keyspace, queue, mail), times=True)
        removals = list[Remove]()
        for seen in await self.tables.read(read):
            if seen.row["number"] in chosen:
                removals.append(Remove(DELIVERY_INTENT, DELIVERY_INTENT.key_of(seen.row), at=seen.newest))
        _raise_first(await self.tables.write_all(removals))

    def _row(self, queue: QueueName, entry: EntryId, change: EntryChange) -> Row:
        return DELIVERY_INTENT.key_row((self.keyspace, queue, entry.mail, entry.number)) | {
            "action": change.action.value,
            "owner": noted(change.owner),
            "reason": noted(change.reason),
            "madeat": change.at,
            "untilat": change.until,
        }

    def _read(self, queue: QueueName, mail: EnqueueId) -> Read:
        return Read(DELIVERY_INTENT, (self.keyspace, queue, mail))


def _changes(rows: Iterable[Row]) -> Mapping[int, EntryChange]:
    """Orders with an unknown action come from a later version: they are left to it."""
    known = {action.value: action for action in EntryAction}
    changes = dict[int, EntryChange]()
    for row in rows:
        if row.get("action") not in known:
            continue
        changes[row["number"]] = EntryChange(
            action=known[row["action"]],
            at=row["madeat"],
            owner=row.get("owner") or "",
            reason=row.get("reason") or "",
            until=row.get("untilat"),
        )
    return changes


def _raise_first(errors: Iterable[MailmendError | None]) -> None:
    for error in errors:
        if error:
            raise error
