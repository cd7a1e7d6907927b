"""What `advise` reads of a live cluster: the traffic, and a sample of messages for the trial.

Nothing is written, and no read is traced. For the traffic at most a few hundred slices are counted
and some ten thousand keys read, in token order, which is as good as a random sample. What cannot be
read is None.

The sample is whole mailboxes, when each row was written, and no texts. Mailboxes come in token
order, which is as good as drawn by lot. Of a text only its length is kept: what the copy needs is
keys, flags, sizes and times.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.cql.introspect import SchemaServer
from mailmend.cql.schema.advice import (
    RECENT_SECONDS,
    Rates,
    births_of,
    busiest_queue,
    changes_per_message,
    rates_of_births,
    rates_of_slices,
    slice_gap,
)
from mailmend.cql.statistics import Statistics, read_statistics
from mailmend.mailqueue.rules.advice import Figure, FigureSource, Traffic, span
from mailmend.mailqueue.rules.configuration import AGGREGATE, QueueConfiguration, configuration_of
from mailmend.mailqueue.rules.slices import SECOND
from mailmend.model.catalog.mail import MESSAGE_ID
from mailmend.model.durations import DAY, HOUR
from mailmend.model.errors import AccessDenied, BadPayload, MailmendError, SchemaMismatch
from mailmend.model.ids import micros_of
from mailmend.model.instants import MICROS
from mailmend.model.keyspace import Schema
from mailmend.model.names import keyspace_spelling
from mailmend.model.operations import Level, Read, Scan, Seen
from mailmend.model.ports import Progress, Tables
from mailmend.model.table import Row, Table

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
    if settings:
        window = settings.slicing.window // SECOND
    else:
        window = slice_gap(mails) or SLICE_SECONDS_DEFAULT
    oldest = None
    if live.table(BROWSE_START):
        oldest = _oldest_seconds(reading, name, queue, now)
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
    rows = reading.rows(place, f"SELECT messageid FROM {place} LIMIT {IDS_MAX}")  # noqa: S608 - validated
    ids = [row["messageid"] for row in rows]
    births = births_of(ids, now_micros)
    total = len(ids)
    if total >= IDS_MAX:
        # The table has more messages than were read.
        total = max(partitions or 0, total)
    believable = 0.0
    if ids:
        believable = len(births) / len(ids)
    return MessageTraffic(rates_of_births(births, total * believable), _changes(reading, name, live))


def _mails_by_partition(reading: Reading, keyspace: str) -> dict[tuple[str, int, int], int]:
    """Mails by (queue, start of the slice, bucket), of the newest slices."""
    place = f"{keyspace}.{ENQUEUED}"
    keys = ("queuename", "timerangestart", "bucketid")
    partitions = reading.rows(place, f"SELECT DISTINCT {', '.join(keys)} FROM {place} LIMIT {PARTITIONS_MAX}")  # noqa: S608 - validated
    newest = sorted(partitions, key=lambda row: row["timerangestart"], reverse=True)[:SLICES_COUNTED_MAX]
    text = f"SELECT count(*) AS mails FROM {place} WHERE {' = ? AND '.join(keys)} = ?"  # noqa: S608 - validated
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
    if not rows or not rows[0]["browsestart"]:
        return None
    return float(max(0, now - _seconds(rows[0]["browsestart"])))


def _changes(reading: Reading, keyspace: str, live: Schema) -> float | None:
    """Both generators are keyed by mailbox, so LIMIT takes the same mailboxes from both."""
    if live.table("modseq") is None or live.table("messagecounter") is None:
        return None
    uids = _sum(reading, f"{keyspace}.messagecounter", "nextuid")
    modseqs = _sum(reading, f"{keyspace}.modseq", "nextmodseq")
    if not modseqs:
        return None
    return changes_per_message(uids, modseqs)


def _sum(reading: Reading, place: str, column: str) -> int:
    rows = reading.rows(place, f"SELECT {column} FROM {place} LIMIT {MAILBOXES_MAX}")  # noqa: S608 - validated
    return sum(row[column] or 0 for row in rows)


def _seconds(at: Any) -> int:
    assert isinstance(at, datetime)
    return int(at.timestamp())


WATCHED: Final = ("imapuidtable", "messageidtable", "messagev3", ENQUEUED, "deletedmailsv2")
"""The tables whose statistics are read, as far as they exist."""

MAILS_PER_SECOND: Final = 1.0
PEAK_TIMES: Final = 5
"""How much busier than the mean the busiest hour is, where only the mean is known."""

LONGEST_STAY_SECONDS: Final = 5 * DAY
"""How long mail servers commonly try to deliver a mail before they give up."""

ROW_BYTES: Final = 1_500
HINT_WINDOW_SECONDS: Final = 3 * HOUR
"""Cassandra's own default."""


@dataclass(frozen=True, slots=True)
class GivenTraffic:
    """What the person gave; None where nothing was given. Times in seconds."""

    mails_per_second: float | None = None
    peak_mails_per_second: float | None = None
    longest_stay_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A keyspace's traffic, as the cluster reports it.

    Attributes:
        traffic: every figure, from its best source.
        settings: the current settings of the queue; None where none were saved.
        notes: figures that could not be read.
    """

    traffic: Traffic
    queue: QueueTraffic | None
    messages: MessageTraffic
    settings: QueueConfiguration | None
    statistics: Statistics
    notes: tuple[str, ...]


def measure(place: OpenCluster, live: Schema, given: GivenTraffic, progress: Progress) -> Measured:
    name = place.mail.name
    now = place.clock.micros()
    refuse_other_keyspaces(name, live)
    progress.stage("asking the nodes")
    ask = partial(import_or_name_extra("mailmend.cql.driver.nodes").ask_every_node, place.cluster)
    statistics = read_statistics(ask, name, [table for table in WATCHED if live.table(table)])
    progress.stage("measuring the traffic")
    reading = Reading(place.cluster)
    queue = queue_traffic(reading, name, live, now)
    figures = statistics.tables.get("imapuidtable")
    partitions = None
    if figures:
        partitions = figures.partitions
    messages = message_traffic(reading, name, live, now, partitions)
    traffic = traffic_figures(given, queue, messages, statistics, place.cluster.replication_of(name))
    if queue:
        settings = queue.settings
    else:
        settings = queue_settings(reading, name, live)
    return Measured(traffic, queue, messages, settings, statistics, (*statistics.notes, *reading.notes))


def refuse_other_keyspaces(keyspace: str, live: Schema) -> None:
    """Refuse a keyspace without mail tables."""
    if not live.table(MESSAGE_ID.name) and not live.table(ENQUEUED):
        raise SchemaMismatch(keyspace, (f"table {MESSAGE_ID.spelling}",))


def traffic_figures(
    given: GivenTraffic,
    queue: QueueTraffic | None,
    messages: MessageTraffic,
    statistics: Statistics,
    replication: Mapping[str, str],
) -> Traffic:
    mean = _mean(given, queue, messages)
    return Traffic(
        mails_per_second=mean,
        peak_per_second=_peak(given, queue, messages, mean),
        longest_stay_seconds=_stay(given, queue),
        row_bytes=_row_bytes(queue, statistics),
        nodes=Figure(statistics.nodes_up, FigureSource.MEASURED, "nodes that are up"),
        copies=Figure(copies_of(replication), FigureSource.MEASURED, "the keyspace's replication"),
        hint_window_seconds=_hint_window(statistics),
    )


def copies_of(replication: Mapping[str, str]) -> int:
    copies = 0
    for name, value in replication.items():
        # A factor like 3/1 tells the transient replicas after the slash.
        factor, _, _ = value.partition("/")
        if name != "class" and factor.isdigit():
            copies += int(factor)
    return max(1, copies)


def _mean(given: GivenTraffic, queue: QueueTraffic | None, messages: MessageTraffic) -> Figure:
    if given.mails_per_second is not None:
        return Figure(given.mails_per_second, FigureSource.GIVEN, "--mails-per-second")
    if found := _measured(queue, messages):
        rates, how = found
        return Figure(rates.mean, FigureSource.MEASURED, how)
    return Figure(MAILS_PER_SECOND, FigureSource.ASSUMED, "nothing to measure; name it with --mails-per-second")


def _peak(given: GivenTraffic, queue: QueueTraffic | None, messages: MessageTraffic, mean: Figure) -> Figure:
    if given.peak_mails_per_second is not None:
        return Figure(max(mean.value, given.peak_mails_per_second), FigureSource.GIVEN, "--peak-mails-per-second")
    if given.mails_per_second is None and (found := _measured(queue, messages)):
        rates, how = found
        return Figure(max(rates.peak, rates.mean), FigureSource.MEASURED, f"{how}: the busiest stretch")
    return Figure(mean.value * PEAK_TIMES, FigureSource.ASSUMED, f"{PEAK_TIMES} times the mean")


def _measured(queue: QueueTraffic | None, messages: MessageTraffic) -> tuple[Rates, str] | None:
    if queue is not None and queue.rates is not None:
        return queue.rates, f"{queue.rates.looked_at:,} slices of queue {queue.queue!r}"
    if messages.rates is not None:
        return messages.rates, f"births of {messages.rates.looked_at:,} messages; {_stretch(messages.rates)}"
    return None


def _stretch(rates: Rates) -> str:
    """The period of the mean: a young keyspace has no week behind it."""
    if rates.history_seconds < RECENT_SECONDS:
        return f"all {span(max(HOUR, round(rates.history_seconds)))} that they span"
    return f"the newest {span(RECENT_SECONDS)}"


def _stay(given: GivenTraffic, queue: QueueTraffic | None) -> Figure:
    if given.longest_stay_seconds is not None:
        return Figure(given.longest_stay_seconds, FigureSource.GIVEN, "--longest-stay")
    oldest = None
    if queue:
        oldest = queue.oldest_seconds
    if oldest is not None and oldest > LONGEST_STAY_SECONDS:
        return Figure(oldest, FigureSource.MEASURED, "the browse start lies so far back")
    return Figure(
        LONGEST_STAY_SECONDS,
        FigureSource.ASSUMED,
        f"mail servers commonly give up after {span(LONGEST_STAY_SECONDS)}; name it with --longest-stay",
    )


def _row_bytes(queue: QueueTraffic | None, statistics: Statistics) -> Figure:
    figures = statistics.tables.get(ENQUEUED)
    if queue and figures and figures.mean_partition_bytes and queue.mails_per_partition:
        per_row = figures.mean_partition_bytes / queue.mails_per_partition
        return Figure(per_row, FigureSource.MEASURED, "the size estimates of enqueuedMailsV4")
    return Figure(ROW_BYTES, FigureSource.ASSUMED, "a mail with a few recipients and attributes")


def _hint_window(statistics: Statistics) -> Figure:
    if statistics.hint_window_seconds is not None:
        return Figure(statistics.hint_window_seconds, FigureSource.MEASURED, "max_hint_window of the nodes")
    return Figure(HINT_WINDOW_SECONDS, FigureSource.ASSUMED, "Cassandra's default")


SCANNED_PER_ROW: Final = 20
"""The search for mailboxes that fit is given up after this many keys for each row that is wanted."""

MAILBOXES_AT_ONCE: Final = 8
_1995: Final = 788_918_400_000_000
_RESTORED: Final = 10
"""Births spread over ten times as long as the writes: then those wrote a copy, not the mail as it came."""

_SETTLED: Final = 1 * MICROS
"""A cell written later than that after the row's first was written by a change, not by the addition itself."""

NAMES: Final = MESSAGE_ID.names
_MESSAGE: Final = NAMES.index("messageid")
FLAGS: Final = tuple(name for name in NAMES if name.startswith("flag"))
CHANGED: Final = (*FLAGS, "modseq", "userflags")
"""What a change of flags writes."""


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """One row of messageIdTable, its texts blanked: `cells` in the order of `NAMES`.

    Attributes:
        added_at: when the row was first written, in microseconds since 1970.
        changed_at: when its flags were last changed; None where they never were.
    """

    cells: tuple[Any, ...]
    added_at: int
    changed_at: int | None

    @property
    def row(self) -> dict[str, Any]:
        row = {}
        for name, cell in zip(NAMES, self.cells, strict=True):
            if cell is not None:
                row[name] = cell
        return row


@dataclass(frozen=True, slots=True)
class Sample:
    """The messages, and how they were drawn.

    Attributes:
        passed_over: mailboxes that were too large for what was left of the bound.
        by_birth: whether the write times are no evidence (all rows were written at once, by a restore or a migration),
            so that the births of the messages stand for them, and no change is known.
    """

    messages: Sequence[SampledMessage]
    mailboxes: int
    passed_over: int
    by_birth: bool = False

    @property
    def changed(self) -> int:
        return sum(message.changed_at is not None for message in self.messages)

    @property
    def history_seconds(self) -> float:
        times = []
        for message in self.messages:
            times.append(message.added_at)
            if message.changed_at is not None:
                times.append(message.changed_at)
        if not times:
            return 0.0
        return (max(times) - min(times)) / MICROS


def draw_sample(mail: Tables, live: Schema, rows: int, progress: Progress) -> Sample:
    """Whole mailboxes of at most `rows` messages together, with the write times of their rows."""
    table = live_table(live)
    progress.stage("choosing mailboxes", rows)
    chosen, passed_over = _chosen(_sizes(mail, table, rows * SCANNED_PER_ROW), rows, progress)
    progress.stage("reading their rows", sum(chosen.values()))
    messages: list[SampledMessage] = []
    mailboxes = list(chosen)
    for start in range(0, len(mailboxes), MAILBOXES_AT_ONCE):
        batch = mailboxes[start : start + MAILBOXES_AT_ONCE]
        reads = [Read(table, (id_,), Level.LOCAL_QUORUM, times=True) for id_ in batch]
        for answer in mail.read_all(reads):
            if isinstance(answer, MailmendError):
                raise answer
            messages.extend(map(sampled, answer))
            progress.advance(len(answer))
    return with_history(Sample(messages, len(mailboxes), passed_over))


def live_table(live: Schema) -> Table:
    found = live.table(MESSAGE_ID.name)
    if found is None:
        return MESSAGE_ID
    return MESSAGE_ID.with_columns(column for column in MESSAGE_ID.columns if column.name in found)


def sampled(seen: Seen) -> SampledMessage:
    cells = tuple(blanked(seen.row.get(name)) for name in NAMES)
    times = seen.written_at.values()
    if not times:
        return SampledMessage(cells, micros_of(seen.row["messageid"]), None)
    added = min(times)
    newest = max(times)
    if newest - added > _SETTLED:
        return SampledMessage(cells, added, newest)
    return SampledMessage(cells, added, None)


def blanked(value: Any) -> Any:
    """The value without its text: each character becomes an `x`; members of a set are numbered to stay distinct."""
    if isinstance(value, str):
        return "x" * len(value)
    if isinstance(value, frozenset):
        members = set()
        for number, text in enumerate(sorted(value)):
            members.add(str(number).ljust(len(text), "x"))
        return frozenset(members)
    return value


def with_history(sample: Sample) -> Sample:
    births = []
    reborn = []
    for message in sample.messages:
        message_id = message.cells[_MESSAGE]
        at = micros_of(message_id)
        if message_id.version == 1 and _1995 <= at <= message.added_at:
            births.append(at)
            reborn.append(replace(message, added_at=at, changed_at=None))
    if not births or (max(births) - min(births)) / MICROS < _RESTORED * max(1.0, sample.history_seconds):
        return sample
    return replace(sample, messages=reborn, by_birth=True)


def _sizes(mail: Tables, table: Table, scanned_max: int) -> Iterator[tuple[UUID, int]]:
    current: UUID | None = None
    size = 0
    for scanned, row in enumerate(mail.scan(Scan(table, ("mailboxid",)))):
        if scanned >= scanned_max:
            return
        if row["mailboxid"] != current:
            if current is not None:
                yield current, size
            current = row["mailboxid"]
            size = 0
        size += 1
    if current is not None:
        yield current, size


def _chosen(sizes: Iterable[tuple[UUID, int]], rows: int, progress: Progress) -> tuple[dict[UUID, int], int]:
    chosen: dict[UUID, int] = {}
    passed_over = total = 0
    for mailbox, size in sizes:
        if total + size > rows:
            passed_over += 1
            continue
        chosen[mailbox] = size
        total += size
        progress.advance(size)
        if total >= 0.9 * rows:
            break
    return chosen, passed_over
