"""Who set values of queued mails, why, and of how many: rows of the history of orders.

A row is written before the first mail is changed, and again with the counts behind the last one. A
row without counts is of a command that did not end. Rows expire after 30 days.

Source: docs/adr/0085.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from mailmend.model.catalog.ledger import DELIVERY_ORDER_HISTORY, day_of, days_back
from mailmend.model.ids import QueueName, micros_of
from mailmend.model.instants import instant_of
from mailmend.model.operations import Put, Scan
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row
from mailmend.model.texts import noted

_KIND: Final = "values"
_SET: Final = "set"
_UNDONE: Final = "undone"
_SELECTED_BYTES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRecord:
    """One command that set values of queued mails.

    Attributes:
        id: of the change, a version-1 UUID.
        values: by name; None: the value was removed.
        selected: the options that chose the recipients.
        undoes: the id of the change that was put back.
        recipients, mails: how many were changed; None: the command did not end.
    """

    id: UUID
    by: str
    reason: str = ""
    values: Mapping[str, str | None] = field(default_factory=dict)
    selected: Sequence[str] = ()
    undoes: UUID | None = None
    recipients: int | None = None
    mails: int | None = None

    @property
    def at(self) -> datetime:
        return instant_of(micros_of(self.id))


@dataclass(frozen=True, slots=True)
class LedgerValueChanges:
    """The records of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(self, queue: QueueName, record: ValueRecord) -> None:
        """Keep what is done, in place of what was kept of the same change.

        Raises:
            MailmendError: the ledger does not answer, or has no such table.
        """
        key = (self.keyspace, queue, _KIND, day_of(record.id), record.id)
        event = _SET
        if record.undoes:
            event = _UNDONE
        counts = None
        if record.recipients is not None:
            counts = {"recipients": record.recipients, "mails": record.mails}
        selected = list(record.selected)
        if len(json.dumps(selected)) > _SELECTED_BYTES_MAX:
            selected = ["..."]
        row = {
            "event": event,
            "changedby": noted(record.by),
            "orderid": record.undoes or record.id,
            "fields": json.dumps(record.values),
            "matches": json.dumps(selected),
            "limits": json.dumps(counts),
            "owner": noted(record.by),
            "reason": noted(record.reason),
        }
        table = DELIVERY_ORDER_HISTORY
        await self.tables.write(Put(table, table.key_row(key) | row))

    async def records(self, queue: QueueName, now_micros: int, limit: int) -> Sequence[ValueRecord]:
        """What was set last, newest first; a row that cannot be read has no values."""
        found = list[ValueRecord]()
        for day in days_back(now_micros):
            under = (self.keyspace, queue, _KIND, day)
            names = DELIVERY_ORDER_HISTORY.names
            scan = Scan(DELIVERY_ORDER_HISTORY, names, under=under, limit=limit - len(found))
            async for row in self.tables.scan(scan):
                found.append(_record_of(row))
            if len(found) >= limit:
                break
        return found


def _record_of(row: Row) -> ValueRecord:
    counts = _object_in(row, "limits")
    undoes = None
    if row.get("event") == _UNDONE:
        undoes = row.get("orderid")
    values = dict[str, str | None]()
    for name, text in _object_in(row, "fields").items():
        values[str(name)] = None
        if text is not None:
            values[str(name)] = str(text)
    return ValueRecord(
        id=row["at"],
        by=row.get("changedby") or "",
        reason=row.get("reason") or "",
        values=values,
        selected=tuple(map(str, _json_of(row, "matches", list))),
        undoes=undoes,
        recipients=_count_of(counts, "recipients"),
        mails=_count_of(counts, "mails"),
    )


def _object_in(row: Row, column: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _json_of(row, column, dict)
    return found


def _json_of(row: Row, column: str, kind: type[Any]) -> Any:
    """The JSON of a column; an empty value of that kind where it holds something else."""
    try:
        found = json.loads(row.get(column) or "")
    except (ValueError, RecursionError):
        return kind()
    if not isinstance(found, kind):
        return kind()
    return found


def _count_of(counts: Mapping[str, Any], name: str) -> int | None:
    found = counts.get(name)
    if isinstance(found, int):
        return found
    return None
