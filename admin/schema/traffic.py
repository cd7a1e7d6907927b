"""How much mail goes through a keyspace, measured by the queue's slices and the messages' creation times.

Reads only, and little: at most a few hundred slices are counted and some ten thousand keys read, in token order, which
is as good as a random sample. What cannot be read is None.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from mailmend.cql.ports import SchemaServer
from mailmend.cql.schema.advice.traffic import (
    Rates,
    births_of,
    busiest_queue,
    changes_per_message,
    rates_of_births,
    rates_of_slices,
    slice_gap,
)
from mailmend.mailqueue.rules.configuration import AGGREGATE, QueueConfiguration, configuration_of
from mailmend.mailqueue.rules.slices import SECOND
from mailmend.model.errors import AccessDenied, BadPayload
from mailmend.model.instants import MICROS
from mailmend.model.keyspace import Schema
from mailmend.model.names import keyspace_spelling
from mailmend.model.table import Row

ENQUEUED: Final = "enqueuedmailsv4"
BROWSE_START: Final = "browsestart"
EVENTS: Final = "eventstore"

PARTITIONS_MAX: Final = 100_000
"""The largest number of partition keys that are read: all are needed, as they are not ordered by time."""

SLICES_COUNTED_MAX: Final = 300
IDS_MAX: Final = 20_000
MAILBOXES_MAX: Final = 10_000
SLICE_SECONDS_DEFAULT: Final = 3_600
"""James's default, where neither a configuration nor two slices say otherwise."""


@dataclass(frozen=True, slots=True)
class QueueTraffic:
    """The queue's traffic, from its tables.

    Attributes:
        rates: the rates of its finished slices; None without a finished slice.
        settings: the queue's current settings, where James wrote them down.
        oldest_seconds: age of the oldest slice that may hold mail: at least the longest present stay.
    """

    queue: str
    rates: Rates | None
    settings: QueueConfiguration | None
    oldest_seconds: float | None
    mails_per_partition: float


@dataclass(frozen=True, slots=True)
class MessageTraffic:
    """How many messages are created, and how often a message changes after that."""

    rates: Rates | None
    changes: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads that may be refused: what these credentials may not read counts as absent, and a note says so."""

    server: SchemaServer
    notes: list[str] = field(default_factory=list)

    def rows(self, table: str, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The statement's rows; none where the credentials may not read the table."""
        try:
            return self.server.query(text, values)
        except AccessDenied:
            note = f"{table} may not be read with these credentials (GRANT SELECT ON TABLE {table} TO the role)."
            if note not in self.notes:
                self.notes.append(note)
            return ()


def queue_traffic(reading: Reading, keyspace: str, live: Schema, now_micros: int) -> QueueTraffic | None:
    """The queue's traffic; None where the keyspace has no queue tables or they are empty.

    Raises:
        CannotReach: the cluster does not answer.
    """
    if live.table(ENQUEUED) is None:
        return None
    name = keyspace_spelling(keyspace)
    now = now_micros // MICROS
    counts = _mails_by_partition(reading, name)
    mails = Counter[tuple[str, int]]()
    for (of_queue, start, _), count in counts.items():
        mails[of_queue, start] += count
    queue = busiest_queue(mails)
    if queue is None:
        return None
    settings = queue_settings(reading, name, live)
    window = settings.slicing.window // SECOND if settings else slice_gap(mails) or SLICE_SECONDS_DEFAULT
    oldest = _oldest_seconds(reading, name, queue, now) if live.table(BROWSE_START) else None
    rates = rates_of_slices(mails, queue, window, now)
    return QueueTraffic(queue, rates, settings, oldest, mails.total() / len(counts))


def message_traffic(
    reading: Reading, keyspace: str, live: Schema, now_micros: int, partitions: int | None
) -> MessageTraffic:
    """The message tables' traffic; `partitions` is the estimated number of all messages."""
    name = keyspace_spelling(keyspace)
    if live.table("imapuidtable") is None:
        return MessageTraffic(None, None)
    place = f"{name}.imapuidtable"
    ids = [row["messageid"] for row in reading.rows(place, f"SELECT messageid FROM {place} LIMIT {IDS_MAX}")]  # noqa: S608 - validated
    whole = len(ids) < IDS_MAX
    births = births_of(ids, now_micros)
    total = len(ids) if whole else max(partitions or 0, len(ids))
    believable = len(births) / len(ids) if ids else 0.0
    return MessageTraffic(rates_of_births(births, total * believable), _changes(reading, name, live))


def _mails_by_partition(reading: Reading, keyspace: str) -> dict[tuple[str, int, int], int]:
    """Mails by (queue, start of the slice, bucket), of the newest slices."""
    place = f"{keyspace}.{ENQUEUED}"
    keys = ("queuename", "timerangestart", "bucketid")
    partitions = reading.rows(place, f"SELECT DISTINCT {', '.join(keys)} FROM {place} LIMIT {PARTITIONS_MAX}")  # noqa: S608 - validated
    newest = sorted(partitions, key=lambda row: row["timerangestart"], reverse=True)[:SLICES_COUNTED_MAX]
    text = f"SELECT count(*) AS mails FROM {place} WHERE {' AND '.join(f'{key} = ?' for key in keys)}"  # noqa: S608 - validated
    mails = {}
    for row in newest:
        counted = reading.rows(place, text, [row[key] for key in keys])
        mails[str(row["queuename"]), _seconds(row["timerangestart"]), int(row["bucketid"])] = int(counted[0]["mails"])
    return mails


def queue_settings(reading: Reading, keyspace: str, live: Schema) -> QueueConfiguration | None:
    """The queue configuration by the last event that can be read; None without such an event."""
    if live.table(EVENTS) is None:
        return None
    place = f"{keyspace_spelling(keyspace)}.{EVENTS}"
    rows = reading.rows(place, f"SELECT event FROM {place} WHERE aggregateid = ?", (AGGREGATE,))  # noqa: S608 - validated
    for row in reversed(rows):
        with suppress(BadPayload):
            return configuration_of(row["event"] or "")
    return None


def _oldest_seconds(reading: Reading, keyspace: str, queue: str, now: int) -> float | None:
    place = f"{keyspace}.{BROWSE_START}"
    rows = reading.rows(place, f"SELECT browsestart FROM {place} WHERE queuename = ?", (queue,))  # noqa: S608 - validated
    started = rows[0]["browsestart"] if rows else None
    return float(max(0, now - _seconds(started))) if started else None


def _changes(reading: Reading, keyspace: str, live: Schema) -> float | None:
    """Both generators are keyed by mailbox, so LIMIT takes the same mailboxes from both."""
    if live.table("modseq") is None or live.table("messagecounter") is None:
        return None
    uids = _sum(reading, f"{keyspace}.messagecounter", "nextuid")
    modseqs = _sum(reading, f"{keyspace}.modseq", "nextmodseq")
    return changes_per_message(uids, modseqs) if modseqs else None


def _sum(reading: Reading, place: str, column: str) -> int:
    rows = reading.rows(place, f"SELECT {column} FROM {place} LIMIT {MAILBOXES_MAX}")  # noqa: S608 - validated
    return sum(row[column] or 0 for row in rows)


def _seconds(at: Any) -> int:
    assert isinstance(at, datetime)
    return int(at.timestamp())
