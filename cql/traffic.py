"""How much mail goes through a keyspace, measured where it can be: the queue's slices, the births of messages.

Reads only, and little: at most a few hundred slices are counted and a few ten thousand keys read, in token order, which
is as good as drawn by lot. What cannot be read is None.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cql.introspect import SchemaServer
from model.advice import QueueSettings
from model.schema import Schema
from model.table import Row, identifier
from model.traffic import (
    Rates,
    births_of,
    busiest_queue,
    changes_per_message,
    rates_of_births,
    rates_of_slices,
    slice_gap,
)

ENQUEUED: Final = "enqueuedmailsv4"
BROWSE_START: Final = "browsestart"
EVENTS: Final = "eventstore"
CONFIGURED: Final = "CassandraMailQueueViewConfiguration"
"""The aggregate under which James keeps the queue's configuration as events."""

PARTITIONS_MAX: Final = 10_000
SLICES_COUNTED_MAX: Final = 300
IDS_MAX: Final = 20_000
MAILBOXES_MAX: Final = 10_000
SLICE_SECONDS_DEFAULT: Final = 3_600
"""James's own, where neither a configuration nor two slices say otherwise."""

_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class QueueTraffic:
    """What the queue's tables tell.

    Attributes:
        queue: the busiest one.
        rates: of its slices that are over; None where there is none.
        settings: what the queue is set to now, where James wrote it down.
        oldest_seconds: how long ago the slice began before which nothing waits: at least the present longest stay.
        mails_per_partition: on average.
    """

    queue: str
    rates: Rates | None
    settings: QueueSettings | None
    oldest_seconds: float | None
    mails_per_partition: float


@dataclass(frozen=True, slots=True)
class MessageTraffic:
    """What the message tables tell: births of messages, and how often a message changes after it was added."""

    rates: Rates | None
    changes: float | None


def queue_traffic(server: SchemaServer, keyspace: str, live: Schema, now_micros: int) -> QueueTraffic | None:
    """The queue's traffic; None where the keyspace has no queue tables, or nothing in them.

    Raises:
        CannotReach: the cluster does not answer, or does not let us read them.
    """
    if live.table(ENQUEUED) is None:
        return None
    name, now = identifier(keyspace, "keyspace name"), now_micros // _MICROS
    counts = _mails_by_partition(server, name)
    mails = Counter[tuple[str, int]]()
    for (of_queue, start, _), count in counts.items():
        mails[of_queue, start] += count
    queue = busiest_queue(mails)
    if queue is None:
        return None
    settings = _queue_settings(server, name) if live.table(EVENTS) else None
    window = settings.slice_seconds if settings else slice_gap(mails) or SLICE_SECONDS_DEFAULT
    oldest = _oldest_seconds(server, name, queue, now) if live.table(BROWSE_START) else None
    rates = rates_of_slices(mails, queue, window, now)
    return QueueTraffic(queue, rates, settings, oldest, mails.total() / len(counts))


def message_traffic(
    server: SchemaServer, keyspace: str, live: Schema, now_micros: int, partitions: int | None
) -> MessageTraffic:
    """The message tables' traffic; `partitions` estimates how many messages there are in all.

    Raises:
        CannotReach: the cluster does not answer, or does not let us read them.
    """
    name = identifier(keyspace, "keyspace name")
    if live.table("imapuidtable") is None:
        return MessageTraffic(None, None)
    ids = [row["messageid"] for row in server.query(f"SELECT messageid FROM {name}.imapuidtable LIMIT {IDS_MAX}")]  # noqa: S608 - validated
    whole = len(ids) < IDS_MAX
    births = births_of(ids, now_micros)
    total = len(ids) if whole else max(partitions or 0, len(ids))
    believable = len(births) / len(ids) if ids else 0.0
    return MessageTraffic(rates_of_births(births, total * believable), _changes(server, name, live))


def _mails_by_partition(server: SchemaServer, keyspace: str) -> dict[tuple[str, int, int], int]:
    """Mails by queue, start of the slice and bucket, of the newest slices."""
    place = f"{keyspace}.{ENQUEUED}"
    keys = ("queuename", "timerangestart", "bucketid")
    partitions = server.query(f"SELECT DISTINCT {', '.join(keys)} FROM {place} LIMIT {PARTITIONS_MAX}")  # noqa: S608 - validated
    newest = sorted(partitions, key=lambda row: row["timerangestart"], reverse=True)[:SLICES_COUNTED_MAX]
    text = f"SELECT count(*) AS mails FROM {place} WHERE {' AND '.join(f'{key} = ?' for key in keys)}"  # noqa: S608 - validated
    return {
        (str(row["queuename"]), _seconds(row["timerangestart"]), int(row["bucketid"])): int(
            server.query(text, [row[key] for key in keys])[0]["mails"]
        )
        for row in newest
    }


def _queue_settings(server: SchemaServer, keyspace: str) -> QueueSettings | None:
    text = f"SELECT event FROM {keyspace}.{EVENTS} WHERE aggregateid = ?"  # noqa: S608 - validated
    return settings_of(server.query(text, (CONFIGURED,)))


def settings_of(events: Sequence[Row]) -> QueueSettings | None:
    """What the last of James's configuration events says; None where there is none that can be read."""
    for row in reversed(events):
        try:
            event = json.loads(row["event"])
            return QueueSettings(round(float(event["sliceWindow"])), int(event["bucketCount"]))
        except (ValueError, KeyError, TypeError):
            continue
    return None


def _oldest_seconds(server: SchemaServer, keyspace: str, queue: str, now: int) -> float | None:
    text = f"SELECT browsestart FROM {keyspace}.{BROWSE_START} WHERE queuename = ?"  # noqa: S608 - validated
    rows = server.query(text, (queue,))
    started = rows[0]["browsestart"] if rows else None
    return float(max(0, now - _seconds(started))) if started else None


def _changes(server: SchemaServer, keyspace: str, live: Schema) -> float | None:
    """Both generators are keyed by mailbox, so the first so many mailboxes are the same in both."""
    if live.table("modseq") is None or live.table("messagecounter") is None:
        return None
    uids = _sum(server, f"SELECT nextuid AS given FROM {keyspace}.messagecounter LIMIT {MAILBOXES_MAX}")  # noqa: S608 - validated
    modseqs = _sum(server, f"SELECT nextmodseq AS given FROM {keyspace}.modseq LIMIT {MAILBOXES_MAX}")  # noqa: S608 - validated
    return changes_per_message(uids, modseqs)


def _sum(server: SchemaServer, text: str) -> int:
    return sum(row["given"] or 0 for row in server.query(text))


def _seconds(at: Any) -> int:
    assert isinstance(at, datetime)
    return int(at.timestamp())
