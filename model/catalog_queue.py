"""The tables of the distributed mail queue: James's four, byte-compatible, and three of our own beside them.

Ours carry a time to live, because without one TimeWindowCompactionStrategy gives nothing back (DESIGN section 4
"TimeWindowCompactionStrategy"); the reckoning is `model.advice`'s. Source: facts on James's queue, ADR-31, ADR-32.
"""

from model.catalog_beside import SIZE_TIERED, cached
from model.table import Column, Compaction, Kind, Table

_P, _C = Kind.PARTITION, Kind.CLUSTERING

_MAIL = (
    Column("enqueuedTime", "timestamp"),
    Column("name", "text"),
    Column("state", "text"),
    Column("headerBlobId", "text"),
    Column("bodyBlobId", "text"),
    Column("attributes", "frozen<map<text, blob>>"),
    Column("errorMessage", "text"),
    Column("sender", "text"),
    Column("recipients", "frozen<list<text>>"),
    Column("remoteHost", "text"),
    Column("remoteAddr", "text"),
    Column("lastUpdated", "timestamp"),
    Column("perRecipientSpecificHeaders", "frozen<list<tuple<text, text, text>>>"),
)
"""What both the series of enqueued mails and the mails that are not due yet keep of a mail."""

ENQUEUED_MAILS = Table(
    "enqueuedMailsV4",
    (
        Column("queueName", "text", _P),
        Column("timeRangeStart", "timestamp", _P),
        Column("bucketId", "int", _P),
        Column("enqueueId", "uuid", _C),
        *_MAIL,
    ),
    comment="Every mail enqueued, by slice of time and bucket; never changed, gone with its slice",
    compaction=Compaction(
        "TimeWindowCompactionStrategy", {"compaction_window_unit": "HOURS", "compaction_window_size": "1"}
    ),
)
DELETED_MAILS = Table(
    "deletedMailsV2",
    (Column("queueName", "text", _P), Column("enqueueId", "uuid", _P)),
    comment="Marks: mails that are no longer in their queue",
    compaction=Compaction("TimeWindowCompactionStrategy"),
)
BROWSE_START = Table(
    "browseStart",
    (Column("queueName", "text", _P), Column("browseStart", "timestamp")),
    comment="Before it every mail of the queue is marked",
    compaction=SIZE_TIERED,
    options=cached(10),
)
CONTENT_START = Table(
    "contentStart",
    (Column("queueName", "text", _P), Column("contentStart", "timestamp")),
    comment="Before it every row of the queue is gone",
    compaction=SIZE_TIERED,
    options=cached(10),
)
DUE_MAILS = Table(
    "dueMails",
    (
        Column("queueName", "text", _P),
        Column("dueSlice", "timestamp", _P),
        Column("bucketId", "int", _P),
        Column("dueAt", "timestamp", _C),
        Column("enqueueId", "uuid", _C),
        Column("attempts", "int"),
        *_MAIL,
    ),
    comment="Mails that are not to be delivered before their time; each moves to enqueuedMailsV4 when it is due",
)
SLICE_TALLIES = Table(
    "sliceTallies",
    (
        Column("queueName", "text", _P),
        Column("timeRangeStart", "timestamp", _P),
        Column("writer", "uuid", _C),
        Column("enqueued", "bigint"),
        Column("marked", "bigint"),
        Column("settled", "boolean"),
        Column("isForeign", "boolean"),
    ),
    comment="How many mails of each slice each process has enqueued and marked: sums that may be written twice",
)
QUEUE_STATE = Table(
    "queueState",
    (
        Column("queueName", "text", _P),
        Column("furthestStart", "timestamp"),
        Column("dueStart", "timestamp"),
        Column("sweptAt", "timestamp"),
    ),
    comment="How far each queue was seen to be swept, and when; where its mails that are not due begin",
    compaction=SIZE_TIERED,
    options=cached(10),
)

JAMES_QUEUE_TABLES = (ENQUEUED_MAILS, DELETED_MAILS, BROWSE_START, CONTENT_START)
OWN_QUEUE_TABLES = (DUE_MAILS, SLICE_TALLIES, QUEUE_STATE)
QUEUE_TABLES = (*JAMES_QUEUE_TABLES, *OWN_QUEUE_TABLES)
