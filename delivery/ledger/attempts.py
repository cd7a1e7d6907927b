"""The journal of attempts to deliver, in the ledger: what was tried with which server, and what came of it.

One partition holds all attempts of a mail, over all its passages through its queue. Rows expire at
an age that no mail reaches while it is still tried.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mailmend.delivery.mail.attempts import AttemptStage
from mailmend.delivery.mail.entries import EntryId
from mailmend.delivery.mail.journal import AttemptOutcome, JournalledAttempt
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.operations import Put, Read
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row
from mailmend.model.texts import cut, noted

_WORD_BYTES_MAX: Final = 255
"""The largest number of bytes of a name or status, which hooks may set too: nothing keeps an attempt out of its
journal."""

_FIELD_BYTES_MAX: Final = 1_024
"""The largest number of bytes of one value that policies count by: a sender may set it to any length."""


@dataclass(frozen=True, slots=True)
class LedgerAttempts:
    """The attempts of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(self, queue: QueueName, attempt: JournalledAttempt) -> None:
        """Keep it durably; what is known now is added to what was known before.

        Raises:
            CannotReach: the ledger does not answer; it may have it all the same.
        """
        await self._put(queue, attempt, _cells(attempt))

    async def put_end(self, queue: QueueName, attempt: JournalledAttempt) -> None:
        """Keep durably how an attempt ended that is kept already; raises what `put` does."""
        await self._put(queue, attempt, _end_cells(attempt))

    async def of(self, queue: QueueName, mail: EnqueueId, number: int | None = None) -> Sequence[JournalledAttempt]:
        """The attempts of a mail, by its first id, or of one of its recipients: by recipient, in their order."""
        key: tuple[object, ...] = (self.keyspace, queue, mail)
        if number is not None:
            key = (*key, number)
        return [_attempt(stored.row) for stored in await self.tables.read(Read(DELIVERY_ATTEMPT, key))]

    async def _put(self, queue: QueueName, attempt: JournalledAttempt, cells: Row) -> None:
        entry = attempt.entry
        key = DELIVERY_ATTEMPT.key_row((self.keyspace, queue, entry.mail, entry.number, attempt.id))
        await self.tables.write(Put(DELIVERY_ATTEMPT, {**key, **cells}))


def _cells(attempt: JournalledAttempt) -> Row:
    fields = dict[str, str]()
    for field, text in attempt.fields.items():
        if text:
            fields[field.value] = cut(text, _FIELD_BYTES_MAX)
    return {
        "mail": attempt.mail,
        "fields": json.dumps(fields),
        "sources": json.dumps(attempt.sources),
        "readyat": attempt.ready_at,
        "startedat": attempt.started_at,
        "host": noted(attempt.host, _WORD_BYTES_MAX),
        "bytes": attempt.content_bytes,
        "urgent": attempt.urgent,
        "server": noted(attempt.server, _WORD_BYTES_MAX),
        **_end_cells(attempt),
    }


def _end_cells(attempt: JournalledAttempt) -> Row:
    outcome = None
    if attempt.outcome:
        outcome = attempt.outcome.value
    stage = None
    if attempt.stage:
        stage = attempt.stage.value
    return {
        "endedat": attempt.ended_at,
        "outcome": outcome,
        "stage": stage,
        "status": noted(attempt.status, _WORD_BYTES_MAX) or None,
    }


def _attempt(row: Row) -> JournalledAttempt:
    """A row of which only the end is there, as its beginning has expired, is one too."""
    fields = json.loads(row.get("fields") or "{}")
    outcome = None
    if row.get("outcome"):
        outcome = AttemptOutcome(row["outcome"])
    stage = None
    if row.get("stage"):
        stage = AttemptStage(row["stage"])
    return JournalledAttempt(
        entry=EntryId(EnqueueId(row["firstmail"]), row["number"]),
        mail=EnqueueId(row.get("mail") or row["firstmail"]),
        id=row["attempt"],
        fields={field: fields[field.value] for field in PickupField if field.value in fields},
        sources=tuple(json.loads(row.get("sources") or "[]")),
        ready_at=row.get("readyat"),
        ended_at=row.get("endedat"),
        outcome=outcome,
        stage=stage,
        status=row.get("status") or "",
        host=row.get("host") or "",
        content_bytes=row.get("bytes") or 0,
        urgent=bool(row.get("urgent")),
        server=row.get("server") or "",
    )
