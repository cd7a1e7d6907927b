"""The journal of attempts to deliver, in the ledger: what was tried with which server, and what came of it.

One partition holds all attempts of a mail, over all its passages through its queue. Rows expire at
an age that no mail reaches while it is still tried.

A replay reads the attempts of a whole queue. This process holds them all; Spark's way, in `spark_repair.attempts`,
holds only those that wait at once.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Final

from mailmend.delivery.mail.attempts import AttemptOutcome, AttemptStage, JournalledAttempt
from mailmend.delivery.mail.entries import EntryId
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import recorded_values
from mailmend.delivery.policy.replay_sums import ReplaySums
from mailmend.delivery.policy.replaying import RecordedAttempt, sources_of, values_of
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.mailqueue.rules.slices import millis_of
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.errors import WrongUse
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.operations import Level, Put, Read, Scan
from mailmend.model.ports import AsyncTables, Progress, Tables
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
        await self.tables.write(Put(DELIVERY_ATTEMPT, {**key, **cells}, joinable=True))


def _cells(attempt: JournalledAttempt) -> Row:
    fields = dict[str, str]()
    for counted_field, text in attempt.fields.items():
        if text:
            fields[counted_field.value] = cut(text, _FIELD_BYTES_MAX)
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
        fields=recorded_values(fields),
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


COLUMNS: Final = (
    "keyspacename",
    "queuename",
    "firstmail",
    "number",
    "attempt",
    "fields",
    "sources",
    "readyat",
    "startedat",
    "endedat",
    "urgent",
)
ATTEMPTS_MAX: Final = 1_000_000
"""How many attempts this process holds; some 400 bytes each."""

_REPORTED_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class AttemptsWanted:
    """Which attempts are replayed: the attempts of a queue that were ready in a stretch of time.

    Attributes:
        since, until: None: as far as there are any.
    """

    keyspace: str
    queue: QueueName
    since: datetime | None = None
    until: datetime | None = None


@dataclass(slots=True)
class LocalAttempts:
    """Attempts in this process, sorted. Implements `delivery.policy.replay_sums.AttemptRecord`."""

    held: list[RecordedAttempt] = field(default_factory=list)
    incomplete: int = 0

    @property
    def attempts(self) -> int:
        return len(self.held)

    @property
    def lasting(self) -> int | None:
        known = list[int]()
        for attempt in self.held:
            lasted = attempt.lasted
            if lasted is not None:
                known.append(lasted)
        if not known:
            return None
        return int(median(known))

    def replay(self, said: PickupPolicies, top: int) -> ReplaySums:
        sums = ReplaySums()
        sums.replay(self.held, said, self.lasting or 0, top)
        return sums

    def close(self) -> None:
        self.held = []


def read_attempts(
    ledger: Tables, wanted: AttemptsWanted, level: Level, progress: Progress, most: int = ATTEMPTS_MAX
) -> LocalAttempts:
    """Read the whole table, of which only the wanted rows are kept.

    Raises:
        WrongUse: there are more than this process should hold.
    """
    progress.stage("read the attempts")
    found = LocalAttempts()
    for number, row in enumerate(ledger.scan(Scan(DELIVERY_ATTEMPT, COLUMNS, level)), 1):
        if number % _REPORTED_ROWS == 0:
            progress.advance(_REPORTED_ROWS)
        if (row["keyspacename"], row["queuename"]) != (wanted.keyspace, wanted.queue):
            continue
        if row["readyat"] is None or row["startedat"] is None:
            found.incomplete += 1
        elif _is_within(row["readyat"], wanted):
            found.held.append(attempt_of(row))
        if len(found.held) > most:
            mend = "Take --engine spark, or fewer of them with --since and --until."
            raise WrongUse(f"there are more than {most:,} attempts, too many for this process alone", mend=mend)
    progress.stage("replay")
    found.held.sort(key=lambda one: one.order)
    return found


def _is_within(at: datetime, wanted: AttemptsWanted) -> bool:
    return (wanted.since is None or at >= wanted.since) and (wanted.until is None or at < wanted.until)


def attempt_of(row: Row) -> RecordedAttempt:
    """An attempt from its row."""
    name = f"{row['firstmail']}:{row['number']}:{row['attempt']}"
    mail = ActiveMail(name, values_of(row["fields"]), sources_of(row["sources"]), bool(row["urgent"]))
    ended_at = None
    if row["endedat"] is not None:
        ended_at = millis_of(row["endedat"])
    return RecordedAttempt(mail, millis_of(row["readyat"]), millis_of(row["startedat"]), ended_at)
