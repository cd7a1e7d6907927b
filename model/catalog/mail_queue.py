"""The tables of the distributed mail queue: James's four, byte-compatible, and three of our own.

Tables that mailmend creates have a time to live, because TimeWindowCompactionStrategy frees no space without one
(docs/design.md, "Lifetimes"); rows of tables that James created never expire.
`mailqueue.rules.advice` computes the times.
Source: James's `CassandraMailQueueView`, its ADR-31 and ADR-32; docs/adr/0016.
"""

from collections.abc import Mapping
from typing import Final

from mailmend.model.catalog.james_tables import LEVELED, SIZE_TIERED, cached
from mailmend.model.catalog.lifetimes import DAY, HOUR, gc_grace_for, lifetimes, window_compaction
from mailmend.model.table import Table, columns

LONGEST_STAY_SECONDS: Final = 7 * DAY
"""How long a mail may stay before its rows must be renewed, in seconds; the sweep renews them."""

SLICE_SECONDS: Final = HOUR
"""James's default slice window, in seconds. The tables' time windows are a multiple of it."""

HINT_WINDOW_SECONDS: Final = 3 * HOUR
"""How long nodes keep hints, in seconds: Cassandra's default."""

LIVES: Final = lifetimes(LONGEST_STAY_SECONDS, SLICE_SECONDS)
"""How long rows and marks live in tables that mailmend creates; `mailmend schema advise` computes better values."""

_GRACE: Final = {"gc_grace_seconds": str(gc_grace_for(HINT_WINDOW_SECONDS))}


def _expiring(seconds: int) -> Mapping[str, str]:
    """Options that let SSTables drop whole: everything expires, and no read writes old cells into a new window."""
    return {"default_time_to_live": str(seconds), **_GRACE, "read_repair": "'NONE'"}


_MAIL = columns(
    "",
    regular="enqueuedTime timestamp, name text, state text, headerBlobId text, bodyBlobId text, "
    "attributes frozen<map<text,blob>>, errorMessage text, sender text, recipients frozen<list<text>>, "
    "remoteHost text, remoteAddr text, lastUpdated timestamp, "
    "perRecipientSpecificHeaders frozen<list<tuple<text,text,text>>>",
)
"""What both the series of enqueued mails and the mails that are not due yet keep of a mail."""

ENQUEUED_MAILS = Table(
    "enqueuedMailsV4",
    (*columns("queueName text, timeRangeStart timestamp, bucketId int", "enqueueId uuid"), *_MAIL),
    comment="Every mail enqueued, by slice of time and bucket; never changed, gone with its slice",
    compaction=window_compaction(LIVES.window_seconds),
    options=_expiring(LIVES.ttl_seconds),
)
DELETED_MAILS = Table(
    "deletedMailsV2",
    columns("queueName text, enqueueId uuid"),
    comment="Marks: mails that are no longer in their queue; each outlives the row that it hides",
    compaction=window_compaction(LIVES.mark_window_seconds),
    options={**_expiring(LIVES.mark_ttl_seconds), "bloom_filter_fp_chance": str(LIVES.mark_bloom_chance)},
)
BROWSE_START = Table(
    "browseStart",
    columns("queueName text", regular="browseStart timestamp"),
    comment="Before it every mail of the queue is marked",
    compaction=SIZE_TIERED,
    options=cached(10),
)
CONTENT_START = Table(
    "contentStart",
    columns("queueName text", regular="contentStart timestamp"),
    comment="Before it every row of the queue is gone",
    compaction=SIZE_TIERED,
    options=cached(10),
)
DUE_MAILS = Table(
    "dueMails",
    (
        *columns("queueName text, dueSlice timestamp, bucketId int", "dueAt timestamp, enqueueId uuid", "attempts int"),
        *_MAIL,
    ),
    comment="Mails that are not to be delivered before their time; each moves to enqueuedMailsV4 when it is due",
    compaction=LEVELED,
    options=_GRACE,
)
"""Delayed mails. The slice 1970-01-01 of each queue holds no mails, as none is ever due then.

Its bucket 0 lists the queue's other partitions and the turns of their movers, its bucket 1 holds the turn of a flush
(`mailqueue.rabbitmq.view.due_mails`). Other readers of the table have to skip these rows and must not change them."""
SLICE_TALLIES = Table(
    "sliceTallies",
    columns(
        "queueName text, timeRangeStart timestamp",
        "writer uuid",
        "enqueued bigint, marked bigint, settled boolean, isForeign boolean",
    ),
    comment="How many mails of each slice each process has enqueued and marked: sums that may be written twice",
    compaction=window_compaction(LIVES.mark_window_seconds),
    options=_expiring(LIVES.mark_ttl_seconds),
)
QUEUE_STATE = Table(
    "queueState",
    columns(
        "queueName text",
        regular="furthestStart timestamp, dueStart timestamp, sweptAt timestamp, lapsedBefore timestamp",
    ),
    comment="How far each queue was seen to be swept, and when; where its mails that are not due begin",
    compaction=SIZE_TIERED,
    options=cached(10),
)

JAMES_QUEUE_TABLES = (ENQUEUED_MAILS, DELETED_MAILS, BROWSE_START, CONTENT_START)
OWN_QUEUE_TABLES = (DUE_MAILS, SLICE_TALLIES, QUEUE_STATE)
QUEUE_TABLES = (*JAMES_QUEUE_TABLES, *OWN_QUEUE_TABLES)
