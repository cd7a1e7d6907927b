"""The tables of the distributed mail queue: James's four, byte-compatible, and five of our own.

Tables that mailmend creates have a time to live, because TimeWindowCompactionStrategy frees no
space without one (docs/design.md, "Lifetimes"); rows of tables that James created never expire. The
catalog and the advice on a queue's settings (`mailqueue.rules.advice`) both compute the times here,
so they cannot disagree.

James's four tables must be in a live keyspace, in James's form. Each of our own may be
missing, as in an adopted keyspace of James: the queue then works without what the table is for
(docs/adr/0016). Source: James's `CassandraMailQueueView`, its ADR-31 and ADR-32; docs/adr/0016.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mailmend.model.catalog.james_tables import LEVELED, SIZE_TIERED, cached
from mailmend.model.cql_types import normal_type
from mailmend.model.durations import DAY, HOUR, MINUTE
from mailmend.model.errors import SchemaMismatch
from mailmend.model.keyspace import Schema
from mailmend.model.names import text_of
from mailmend.model.table import Column, Compaction, Table, columns, spellings
from mailmend.model.texts import keyspace_option

WINDOWS: Final = (20, 24, 30)
"""How many time windows the time to live should span: the least, the ideal and the largest number."""

SLACK_SECONDS_MIN: Final = 3 * DAY
"""The least slack: rows survive a weekend without any sweep. In seconds."""

GC_GRACE_SECONDS_MIN: Final = DAY


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long a queue's rows and marks live, and the length of their time windows; all times in seconds.

    Attributes:
        slack_seconds: how much longer rows live than any mail stays, and marks than rows.
        mark_ttl_seconds, mark_window_seconds: the same of deletedMailsV2, whose marks outlive the rows that they hide.
    """

    slack_seconds: int
    ttl_seconds: int
    window_seconds: int
    mark_ttl_seconds: int
    mark_window_seconds: int
    mark_bloom_chance: float


def lifetimes(stay_seconds: int, slice_seconds: int) -> Lifetimes:
    """How long rows and marks must live if no mail stays longer than `stay_seconds`; windows are whole slices.

    The advice and the catalog both call this, so they cannot disagree.
    """
    slack = _slack(stay_seconds)
    ttl, window = windows_over(stay_seconds + slack, slice_seconds)
    mark_ttl, mark_window = windows_over(ttl + slack, slice_seconds)
    chance = _bloom_chance(_sstables(mark_ttl, mark_window))
    return Lifetimes(slack, ttl, window, mark_ttl, mark_window, chance)


def gc_grace_for(hint_window_seconds: float) -> int:
    """`gc_grace_seconds` of tables in which everything expires."""
    return max(GC_GRACE_SECONDS_MIN, math.ceil(hint_window_seconds))


def _slack(stay_seconds: int) -> int:
    return max(SLACK_SECONDS_MIN, stay_seconds // 2)


def windows_over(seconds: int, slice_seconds: int) -> tuple[int, int]:
    """A time to live of at least that many seconds, and a time window that fits into it 20 to 30 times.

    The window is a whole number of slices and of minutes. Where the slice is longer than a sixtieth of the time, the
    time to live grows until 20 windows fit.
    """
    least, ideal, most = WINDOWS
    unit = math.lcm(slice_seconds, MINUTE)
    window = unit * max(1, round(seconds / ideal / unit))
    if seconds > window * most:
        window += unit
    return window * max(least, math.ceil(seconds / window)), window


def window_compaction(seconds: int) -> Compaction:
    """TWCS with a window of that length (whole minutes), in the largest unit that fits."""
    unit, name = _window_unit(seconds)
    options = {"compaction_window_unit": name, "compaction_window_size": str(max(1, seconds // unit))}
    return Compaction("TimeWindowCompactionStrategy", options)


def _window_unit(seconds: int) -> tuple[int, str]:
    for unit, name in _WINDOW_UNITS:
        if seconds % unit == 0:
            return unit, name
    return _WINDOW_UNITS[-1]


OPEN_WINDOW_SSTABLES: Final = 4
"""The number of SSTables that the present time window may hold before they are merged."""

BLOOM_CHANCES: Final = (0.01, 0.001, 0.0001)

FALSE_READS_MAX: Final = 0.05
"""The mean number of SSTables that looking up an absent mark may open without need (bloom filter errors)."""

_WINDOW_UNITS: Final = ((DAY, "DAYS"), (HOUR, "HOURS"), (MINUTE, "MINUTES"))


def _sstables(ttl: int, window: int) -> int:
    return ttl // window + OPEN_WINDOW_SSTABLES


def _bloom_chance(sstables: int) -> float:
    for chance in BLOOM_CHANCES:
        if sstables * chance <= FALSE_READS_MAX:
            return chance
    return BLOOM_CHANCES[-1]


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

BACKLOGS = Table(
    "backlogs",
    columns(
        "queueName text",
        "subQueue text, stretch uuid",
        "owner uuid, goneTo bigint, put bigint, gone bigint",
    ),
    comment="The stretches of backlogMails, the process that owns each, and which are there",
    compaction=LEVELED,
    options=_GRACE,
)
BACKLOG_MAILS = Table(
    "backlogMails",
    (
        *columns("queueName text, stretch uuid", "place bigint", "body blob"),
        *columns("", regular="timeRangeStart timestamp, attempts int, priority int"),
        *columns("", regular="redelivered boolean, deadLettered boolean"),
    ),
    comment="Messages of mails that wait in a sub-queue: the broker has them no longer",
    compaction=LEVELED,
    options=_GRACE,
)

JAMES_QUEUE_TABLES = (ENQUEUED_MAILS, DELETED_MAILS, BROWSE_START, CONTENT_START)
OWN_QUEUE_TABLES = (DUE_MAILS, SLICE_TALLIES, QUEUE_STATE, BACKLOGS, BACKLOG_MAILS)
QUEUE_TABLES = (*JAMES_QUEUE_TABLES, *OWN_QUEUE_TABLES)


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Which of our own queue tables a live keyspace has, and how long the rows of James's tables live.

    Attributes:
        due: whether mails can be delayed (`dueMails`).
        tallies: whether mails are counted as they are enqueued and dequeued (`sliceTallies`).
        state: whether the progress of the sweeps is stored (`queueState`).
        backlogs: whether mails of a sub-queue that does not move wait there (`backlogs`,
            `backlogMails`).
        row_ttl_seconds: how long a row of enqueuedMailsV4 lives; 0: for ever, as in tables that James created.
        mark_ttl_seconds: how long a mark of deletedMailsV2 lives; 0: for ever.
        shared: whether another program, which keeps no tallies, may enqueue here: James, in a keyspace that it created.
    """

    due: bool = True
    tallies: bool = True
    state: bool = True
    backlogs: bool = True
    row_ttl_seconds: int = 0
    mark_ttl_seconds: int = 0
    shared: bool = False

    @property
    def marks_expire(self) -> bool:
        return self.mark_ttl_seconds > 0

    @property
    def marks_outlive_rows(self) -> bool:
        """Whether every mark outlives its row; if not, deleted mails can show up again."""
        return not self.mark_ttl_seconds or 0 < self.row_ttl_seconds < self.mark_ttl_seconds


def queue_tables_of(live: Schema, keyspace: str) -> OwnTables:
    """The queue's tables in the live keyspace; `keyspace` is its name, for the error message.

    Raises:
        SchemaMismatch: one of James's four tables is missing, or any of ours is there in another
            form.
    """
    lacking = (*_missing(JAMES_QUEUE_TABLES, live), *_otherwise((*JAMES_QUEUE_TABLES, *OWN_QUEUE_TABLES), live))
    if lacking:
        raise SchemaMismatch(keyspace, lacking, mend=_mend(keyspace, live))
    row_ttl_seconds = time_to_live(live.table(ENQUEUED_MAILS.name))
    return OwnTables(
        due=live.table(DUE_MAILS.name) is not None,
        tallies=live.table(SLICE_TALLIES.name) is not None,
        state=live.table(QUEUE_STATE.name) is not None,
        backlogs=all(live.table(table.name) is not None for table in (BACKLOGS, BACKLOG_MAILS)),
        row_ttl_seconds=row_ttl_seconds,
        mark_ttl_seconds=time_to_live(live.table(DELETED_MAILS.name)),
        shared=not row_ttl_seconds,
    )


def time_to_live(table: Table | None) -> int:
    """Default time to live of the table in seconds; 0: rows never expire."""
    if table is None:
        return 0
    return int(text_of(table.options.get("default_time_to_live", "0")))


def _mend(keyspace: str, live: Schema) -> str:
    if any(_missing(JAMES_QUEUE_TABLES, live)):
        return (
            f"Create them with: mailmend schema apply {keyspace_option(keyspace)}; "
            "where James made the keyspace, with: "
            f"mailmend schema apply --optional mail-queue {keyspace_option(keyspace)}"
        )
    return f"See what differs with: mailmend schema verify {keyspace_option(keyspace)}"


def _missing(tables: Iterable[Table], live: Schema) -> Iterator[str]:
    for table in tables:
        if live.table(table.name) is None:
            yield table.spelling


def _otherwise(tables: Iterable[Table], live: Schema) -> Iterator[str]:
    for table in tables:
        found = live.table(table.name)
        if found is None:
            continue
        if found.key_names != table.key_names or found.partition_names != table.partition_names:
            key = spellings(table.key)
            yield f"{table.spelling} with the key ({key})"
            continue
        for column in table.columns:
            if column.name not in found or _type(found.column(column.name)) != _type(column):
                yield f"{table.spelling}.{column.spelling} of type {column.type}"


def _type(column: Column) -> str:
    return normal_type(column.type)
