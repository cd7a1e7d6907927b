"""Changes that commands order of active recipients, in the ledger until a server has answered.

A server that has the recipient in hand, or is the next to take its mail, carries the change out
before an attempt. Where an attempt is under way, what is ordered for after the attempt waits for
its end, and anything else is left undone.

Each mail has a partition of its own. It is read where an attempt of the mail ends. So that it is
not read before each attempt as well, a row under the nil id says whether anything was ordered in
the last time, and when; it outlives all others. The column `action` has the stage in front of the
action: the table is older than the stages.

Source: docs/adr/0082.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final
from uuid import UUID

from mailmend.delivery.mail.entries import EntryAction, EntryChange, EntryId
from mailmend.model.catalog.ledger import DELIVERY_INTENT
from mailmend.model.errors import raise_first
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import micros_at
from mailmend.model.operations import Put, Read, Remove, Seen, Write
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row
from mailmend.model.texts import noted
from mailmend.repair.ledger.expiring import found_in, put_order, put_orders

KEPT_FOR: Final = timedelta(days=7)
"""How long a change waits for a server: longer than a mail is tried by default."""

ANSWERS_KEPT_FOR: Final = timedelta(minutes=10)
"""How long a command finds out that a recipient was left alone."""

_TOGETHER: Final = 500
_ANY: Final = UUID(int=0)


class IntentStage(Enum):
    """How far a change is; the value is in front of the action."""

    AFTER_ATTEMPT = ""  # in force, also behind an attempt that is under way
    ORDERED = "ordered"  # in force, unless an attempt is under way
    HEEDED = "heeded"  # a server has carried it out, and the mail has not left that server yet
    LEFT = "left"  # void: an attempt was under way, or was the last one

    @property
    def is_in_force(self) -> bool:
        return self is not IntentStage.LEFT


@dataclass(frozen=True, slots=True)
class EntryIntent:
    """A change of one entry, and how far it is."""

    change: EntryChange
    stage: IntentStage


FoundIntents = Mapping[EntryId, EntryIntent]
IntentRows = Sequence[tuple[EntryId, Seen]]


@dataclass(frozen=True, slots=True)
class LedgerIntents:
    """The changes that wait for servers, of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(
        self,
        queue: QueueName,
        changes: Mapping[EntryId, EntryChange],
        now: datetime,
        stage: IntentStage = IntentStage.AFTER_ATTEMPT,
    ) -> None:
        """Order a change of each entry, in place of the one before; `now` is the time of the call.

        Raises:
            CannotReach: the ledger does not answer; some may be ordered.
            Outweighed: some are not in force: removals by a clock more than a day ahead hide them.
        """
        if not changes:
            return
        await self._put_latest(queue, now)
        entries = sorted(changes, key=lambda entry: (entry.mail.bytes, entry.number))
        for place in range(0, len(entries), _TOGETHER):
            puts = list[Put]()
            for entry in entries[place : place + _TOGETHER]:
                row = self._row(queue, entry, EntryIntent(changes[entry], stage))
                puts.append(Put(DELIVERY_INTENT, row, clear=True, ttl_seconds=_seconds(KEPT_FOR)))
            await put_orders(self.tables, puts, micros_at(now))
        # Servers look at the mails in hand when this row changes. A look that came before the
        # rows of the entries is not the last one.
        await self._put_latest(queue, now)

    async def latest(self, queue: QueueName) -> int | None:
        """A number that changes with each order; None where nothing was ordered of late."""
        seen = await self.tables.read(self._read(queue, _ANY, times=True))
        if not seen:
            return None
        return seen[0].newest

    async def are_there(self, queue: QueueName) -> bool:
        """Whether something was ordered that may be there still."""
        return await self.latest(queue) is not None

    async def of(self, queue: QueueName, mail: EnqueueId) -> Mapping[int, EntryChange]:
        """The changes of a mail's entries that are in force, by their numbers."""
        found = await self.of_all(queue, [mail])
        return {entry.number: change for entry, change in found.items()}

    async def of_all(self, queue: QueueName, mails: Sequence[EnqueueId]) -> Mapping[EntryId, EntryChange]:
        """The changes in force, of all entries of these mails."""
        found = await self.find(queue, mails)
        return {entry: intent.change for entry, intent in found.items() if intent.stage.is_in_force}

    async def find(self, queue: QueueName, mails: Sequence[EnqueueId]) -> FoundIntents:
        """Each order of these mails, and how far it is."""
        intents = dict[EntryId, EntryIntent]()
        for entry, seen in await self._rows(queue, mails):
            if intent := _intent_of(seen.row):
                intents[entry] = intent
        return intents

    async def answer(self, queue: QueueName, answers: Mapping[EntryId, IntentStage]) -> None:
        """Say what became of orders; the ones for after attempts, which want no answer, are removed.

        An answer has the stamp after the order that it answers, so that it hides no later order.
        """
        writes = list[Write]()
        for entry, seen in await self._rows_of(queue, answers):
            writes += self._answered(queue, entry, seen, answers[entry])
        raise_first(await self.tables.write_all(writes))

    async def remove(self, queue: QueueName, entries: Collection[EntryId]) -> None:
        """Remove the orders for these entries, also where another host's clock is ahead.

        A removal carries the stamp of what it removes, so that it hides no later order.
        """
        rows = await self._rows_of(queue, entries)
        raise_first(await self.tables.write_all([_removed(seen) for _, seen in rows]))

    async def _rows_of(self, queue: QueueName, entries: Collection[EntryId]) -> IntentRows:
        """The rows of these entries, with their times."""
        mails = list(dict.fromkeys(entry.mail for entry in entries))
        rows = await self._rows(queue, mails, times=True)
        return [(entry, seen) for entry, seen in rows if entry in entries]

    async def _rows(self, queue: QueueName, mails: Sequence[EnqueueId], *, times: bool = False) -> IntentRows:
        """The rows of all entries of these mails, some mails at once."""
        rows = list[tuple[EntryId, Seen]]()
        for place in range(0, len(mails), _TOGETHER):
            some = mails[place : place + _TOGETHER]
            reads = [self._read(queue, mail, times=times) for mail in some]
            for mail, answer in zip(some, await self.tables.read_all(reads), strict=True):
                rows += [(EntryId(mail, seen.row["number"]), seen) for seen in found_in(answer)]
        return rows

    async def _put_latest(self, queue: QueueName, now: datetime) -> None:
        row = DELIVERY_INTENT.key_row((self.keyspace, queue, _ANY, 0)) | {"madeat": now}
        put = Put(DELIVERY_INTENT, row, ttl_seconds=_seconds(2 * KEPT_FOR))
        await put_order(self.tables, put, micros_at(now))

    def _answered(self, queue: QueueName, entry: EntryId, seen: Seen, stage: IntentStage) -> Sequence[Write]:
        intent = _intent_of(seen.row)
        if intent is None or seen.newest is None or intent.stage is stage:
            return ()
        if intent.stage is IntentStage.AFTER_ATTEMPT:
            # No command waits for an answer. The order stays until the mail has left its server.
            if stage is IntentStage.LEFT:
                return (_removed(seen),)
            return ()
        kept_for = KEPT_FOR
        if stage is IntentStage.LEFT:
            kept_for = ANSWERS_KEPT_FOR
        row = self._row(queue, entry, EntryIntent(intent.change, stage))
        seconds = _seconds(kept_for)
        return (Put(DELIVERY_INTENT, row, clear=True, ttl_seconds=seconds, at=seen.newest + 1),)

    def _row(self, queue: QueueName, entry: EntryId, intent: EntryIntent) -> Row:
        change = intent.change
        return DELIVERY_INTENT.key_row((self.keyspace, queue, entry.mail, entry.number)) | {
            "action": f"{intent.stage.value} {change.action.value}".strip(),
            "owner": noted(change.owner),
            "reason": noted(change.reason),
            "madeat": change.at,
            "untilat": change.until,
        }

    def _read(self, queue: QueueName, mail: UUID, *, times: bool = False) -> Read:
        return Read(DELIVERY_INTENT, (self.keyspace, queue, mail), times=times)


def _intent_of(row: Row) -> EntryIntent | None:
    """None where a later version wrote it: it is left to that version."""
    stage, _, action = (row.get("action") or "").rpartition(" ")
    try:
        known = EntryAction(action)
        how_far = IntentStage(stage)
    except ValueError:
        return None
    if row.get("madeat") is None:
        return None
    change = EntryChange(
        action=known,
        at=row["madeat"],
        owner=row.get("owner") or "",
        reason=row.get("reason") or "",
        until=row.get("untilat"),
    )
    return EntryIntent(change, how_far)


def _removed(seen: Seen) -> Remove:
    return Remove(DELIVERY_INTENT, DELIVERY_INTENT.key_of(seen.row), at=seen.newest)


def _seconds(span: timedelta) -> int:
    return round(span.total_seconds())
