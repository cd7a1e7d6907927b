"""What each compaction costs on these very rows: their history is written again, settles, and is read.

What is written and read, in which order, and what the figures come to, is decided purely; then it
is carried out.

The copy is in a Cassandra of its own, in one keyspace for each choice, side by side. Time order
counts: additions and later changes of flags reach the disk in as many flushes as there are waves,
so SSTables form as they did. Then mailboxes are opened and messages looked up, in turn in every
keyspace, so that no choice gets the warmer machine.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.settings import LOOPBACK
from mailmend.admin.local import ClusterRequest, local_cluster
from mailmend.admin.local.cassandra_node import hosts_of
from mailmend.admin.local.processes import free_port
from mailmend.admin.local.server import throwaway_folder
from mailmend.admin.schema.measuring import CHANGED, FLAGS, NAMES, SampledMessage
from mailmend.cql.driver.contact import Contact
from mailmend.cql.render import Replication, keyspace_cql, table_cql
from mailmend.cql.row_statements import render
from mailmend.cql.schema.advice import ReadCost, TrialResult
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, CompactionChoice, compacted
from mailmend.model.operations import Change, Put, Read, Write
from mailmend.model.ports import Clock, Progress
from mailmend.model.table import Table

if TYPE_CHECKING:
    from mailmend.cql.driver.session import CassandraCluster, Keyspace

T = TypeVar("T")

TABLES: Final = (MESSAGE_ID, IMAP_UID)
"""What is copied. messageV3 is written once and looked up by id: one SSTable per read with any choice."""

SCALED: Final[Mapping[CompactionChoice, Mapping[str, str]]] = {
    CompactionChoice.TWCS: {},
    CompactionChoice.UNIFIED: {"target_sstable_size": "1MiB", "min_sstable_size": "0B"},
    CompactionChoice.LEVELED: {"sstable_size_in_mb": "1"},
}
"""A sample is small: with SSTables of full size it would all lie in one, and no level would ever form."""

ROWS_OPENED_MAX: Final = 40_000
MAILBOXES_MIN: Final = 20
"""How many rows all opened mailboxes may have together, and how many are opened however large they are."""

Event = tuple[int, int, bool]
"""When (microseconds since 1970), which message of the sample, and whether it is a change of an added one."""

_MAILBOX: Final = NAMES.index("mailboxid")
_UID: Final = NAMES.index("uid")
_MESSAGE: Final = NAMES.index("messageid")
_LAST: Final = 0.99


def trial_tables(choice: CompactionChoice) -> tuple[Table, ...]:
    tables = []
    for table in compacted(TABLES, choice):
        compaction = table.compaction
        if compaction:
            compaction = replace(compaction, options={**compaction.options, **SCALED[choice]})
        tables.append(replace(table, compaction=compaction))
    return tuple(tables)


def history_of(messages: Sequence[SampledMessage]) -> list[Event]:
    events = []
    for number, message in enumerate(messages):
        events.append((message.added_at, number, False))
        if message.changed_at is not None:
            events.append((message.changed_at, number, True))
    return sorted(events)


def waves_of(events: Sequence[Event], waves: int) -> list[Sequence[Event]]:
    count = min(waves, len(events))
    if not count:
        return []
    parts = []
    start = 0
    for number in range(1, count + 1):
        end = len(events) * number // count
        parts.append(events[start:end])
        start = end
    return parts


def writes_of(message: SampledMessage, *, changed: bool) -> tuple[Write, ...]:
    """What an addition, or the last change of flags, writes into both tables, with its original timestamp."""
    row = message.row
    if not changed:
        if message.changed_at is not None:
            row.update(_UNTOUCHED)
        return tuple(Put(table, row, at=message.added_at) for table in TABLES)
    flags = {}
    labels = {}
    for name in CHANGED:
        if name == "userflags":
            if row.get(name):
                labels[name] = row[name]
        elif name in row:
            flags[name] = row[name]
    return tuple(Change(table, table.key_of(row), assign=flags, add=labels, at=message.changed_at) for table in TABLES)


_UNTOUCHED: Final = {**dict.fromkeys(FLAGS, False), "userflags": None}
"""The flags of a message that is new: what they were before their last change is not known."""


def reads_of(messages: Sequence[SampledMessage], reads: int) -> tuple[list[Read], list[Read]]:
    """Mailboxes to open and messages to look up, spread over the whole sample; repeated where there are too few.

    Fewer large mailboxes are opened, as the time this process needs to read their rows is not to be measured.
    """
    mailboxes = list(dict.fromkeys(message.cells[_MAILBOX] for message in messages))
    ids = list(dict.fromkeys(message.cells[_MESSAGE] for message in messages))
    fitting = ROWS_OPENED_MAX * len(mailboxes) // max(1, len(messages))
    opened = spread(mailboxes, min(reads, max(MAILBOXES_MIN, fitting)))
    mailbox_reads = [Read(MESSAGE_ID, (mailbox,)) for mailbox in opened]
    message_reads = [Read(IMAP_UID, (message_id,)) for message_id in spread(ids, reads)]
    return mailbox_reads, message_reads


def spread(items: Sequence[T], count: int) -> list[T]:
    """`count` items at even distances; repeated where there are fewer."""
    if not items:
        return []
    if len(items) >= count:
        return [items[len(items) * number // count] for number in range(count)]
    return [items[number % len(items)] for number in range(count)]


def turned(items: Sequence[T], by: int) -> tuple[T, ...]:
    first = by % len(items)
    return (*items[first:], *items[:first])


def read_cost(sstables: Sequence[int], micros: Sequence[int]) -> ReadCost:
    mean = 0.0
    if sstables:
        mean = sum(sstables) / len(sstables)
    return ReadCost(
        reads=len(micros),
        sstables_mean=mean,
        sstables_max=max(sstables, default=0),
        p50_ms=percentile(micros, 0.5) / 1000,
        p99_ms=percentile(micros, _LAST) / 1000,
        traced=len(sstables),
    )


def percentile(figures: Sequence[int], share: float) -> float:
    if not figures:
        return 0.0
    ordered = sorted(figures)
    return float(ordered[max(0, math.ceil(share * len(ordered)) - 1)])


CHOICES: Final = tuple(CompactionChoice)

WAVES: Final = 40
"""Flushes of the whole history: enough for several levels of SSTables, and for two in each window of two years."""

READS: Final = 200
"""Mailboxes opened, and messages looked up, in each keyspace."""

ROUNDS: Final = 3
"""How often each is read; the best time counts, since what else this machine does only ever adds to it."""

SETTLE_SECONDS_MAX: Final = 120.0
TRACED_AT_ONCE: Final = 5
"""How many reads are traced at once: a node keeps at most a thousand steps of traces that wait to be written, and drops
the rest."""

TRACES_SECONDS_MAX: Final = 1.0
"""For how many seconds the traces of the reads are waited for; a busy node may drop some of them all the same."""

_TRACE_LOOK_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.25
_QUIET_LOOKS: Final = 4
_MIB: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class TrialNode:
    """The Cassandra that holds the copy, and the folder of its SSTables where that is known."""

    cluster: "CassandraCluster"
    sstables: Path | None = None

    def disk_bytes(self, keyspace: str) -> int:
        """Size of the keyspace on disk: of its files, or in whole MiB as the node reports it."""
        size = 0
        if self.sstables is not None:
            for file in (self.sstables / keyspace).glob("*/*-*-*"):
                if file.is_file():
                    size += file.stat().st_size
            return size
        for row in self.cluster.query("SELECT keyspace_name, mebibytes FROM system_views.disk_usage"):
            if row["keyspace_name"] == keyspace:
                size += row["mebibytes"] * _MIB
        return size

    def rewritten_bytes(self, keyspace: str) -> int:
        size = 0
        for row in self.cluster.query("SELECT keyspace_name, bytes_in FROM system.compaction_history"):
            if row["keyspace_name"] == keyspace:
                size += row["bytes_in"] or 0
        return size

    def compacting(self, keyspaces: frozenset[str]) -> bool:
        rows = self.cluster.query("SELECT keyspace_name FROM system_views.sstable_tasks")
        return any(row["keyspace_name"] in keyspaces for row in rows)


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial on a node; all of its keyspaces have one prefix."""

    node: TrialNode
    clock: Clock
    progress: Progress
    prefix: str = "trial"
    waves: int = WAVES
    reads: int = READS

    def run(self, messages: Sequence[SampledMessage]) -> tuple[TrialResult, ...]:
        """Create, replay, settle and read; the keyspaces are dropped at the end, whatever happens."""
        try:
            self._create()
            self._replay(messages)
            self._settle()
            return self._measure(messages)
        finally:
            self._drop()

    def keyspace_of(self, choice: CompactionChoice) -> str:
        return f"{self.prefix}_{choice.value}"

    def _create(self) -> None:
        self.progress.stage("creating the copy's tables", len(CHOICES) * len(TABLES))
        one_copy = Replication("SimpleStrategy", {"replication_factor": "1"})
        self._drop()
        for choice in CHOICES:
            name = self.keyspace_of(choice)
            self.node.cluster.execute_ddl(keyspace_cql(name, one_copy))
            for table in trial_tables(choice):
                self.node.cluster.execute_ddl(table_cql(name, table))
                self.progress.advance(1)

    def _drop(self) -> None:
        for choice in CHOICES:
            self.node.cluster.execute_ddl(f"DROP KEYSPACE IF EXISTS {self.keyspace_of(choice)}")

    def _replay(self, messages: Sequence[SampledMessage]) -> None:
        events = history_of(messages)
        self.progress.stage("replaying their history", len(events))
        places = self._places()
        for wave in waves_of(events, self.waves):
            writes: list[Write] = []
            for _, number, changed in wave:
                writes += writes_of(messages[number], changed=changed)
            for place in places.values():
                for error in place.write_all(writes):
                    if error is not None:
                        raise error
            self._flush()
            self.progress.advance(len(wave))

    def _flush(self) -> None:
        """Flush over CQL alone: a memtable that may grow a millisecond old at most is flushed at once."""
        for milliseconds in (1, 0):
            for choice in CHOICES:
                for table in TABLES:
                    self.node.cluster.execute_ddl(
                        f"ALTER TABLE {self.keyspace_of(choice)}.{table.name} "
                        f"WITH memtable_flush_period_in_ms = {milliseconds}"
                    )

    def _settle(self) -> None:
        self.progress.stage("letting compaction settle")
        names = frozenset(map(self.keyspace_of, CHOICES))
        deadline = self.clock.monotonic() + SETTLE_SECONDS_MAX
        quiet = 0
        while quiet < _QUIET_LOOKS and self.clock.monotonic() < deadline:
            self.clock.sleep(_LOOK_SECONDS)
            quiet += 1
            if self.node.compacting(names):
                quiet = 0

    def _measure(self, messages: Sequence[SampledMessage]) -> tuple[TrialResult, ...]:
        mailbox_reads, message_reads = reads_of(messages, self.reads)
        mailbox = self._costs(mailbox_reads)
        message = self._costs(message_reads)
        results = []
        for choice in CHOICES:
            keyspace = self.keyspace_of(choice)
            disk = self.node.disk_bytes(keyspace)
            rewritten = self.node.rewritten_bytes(keyspace)
            results.append(TrialResult(choice, mailbox[choice], message[choice], disk, rewritten))
        return tuple(results)

    def _costs(self, reads: Sequence[Read]) -> dict[CompactionChoice, ReadCost]:
        taken = self._timed(reads)
        self.progress.stage("tracing the same reads", len(reads) * len(CHOICES))
        costs = {}
        for choice in CHOICES:
            costs[choice] = read_cost(self._counted(choice, reads), taken[choice])
        return costs

    def _timed(self, reads: Sequence[Read]) -> dict[CompactionChoice, list[int]]:
        """Microseconds of each read in each keyspace; the keyspaces take turns, each round beginning with another."""
        table = "nothing"
        if reads:
            table = reads[0].table.spelling
        self.progress.stage(f"reading {table}", len(reads))
        places = self._places()
        taken: dict[CompactionChoice, list[int]] = defaultdict(list)
        for number, read in enumerate(reads):
            rounds = [self._round(places, read, number + again) for again in range(ROUNDS)]
            for choice in CHOICES:
                taken[choice].append(min(times[choice] for times in rounds))
            self.progress.advance(1)
        return taken

    def _round(self, places: "Mapping[CompactionChoice, Keyspace]", read: Read, by: int) -> dict[CompactionChoice, int]:
        times = {}
        for choice in turned(CHOICES, by):
            began = self.clock.micros()
            places[choice].read(read)
            times[choice] = self.clock.micros() - began
        return times

    def _counted(self, choice: CompactionChoice, reads: Sequence[Read]) -> list[int]:
        """SSTables that each read took rows from; the node writes its traces a moment after it answered."""
        from mailmend.cql.driver.nodes import sstables_of, traced  # noqa: PLC0415 - the driver may be missing where no trial runs

        name = self.keyspace_of(choice)
        cluster = self.node.cluster
        counted: list[int] = []
        for start in range(0, len(reads), TRACED_AT_ONCE):
            batch = reads[start : start + TRACED_AT_ONCE]
            waiting = [traced(cluster, render(name, read), read.key) for read in batch]
            deadline = self.clock.monotonic() + TRACES_SECONDS_MAX
            while waiting and self.clock.monotonic() < deadline:
                unwritten = []
                for trace in waiting:
                    sstables = sstables_of(cluster, trace)
                    if sstables is None:
                        unwritten.append(trace)
                    else:
                        counted.append(sstables)
                waiting = unwritten
                if waiting:
                    self.clock.sleep(_TRACE_LOOK_SECONDS)
            self.progress.advance(len(batch))
        return counted

    def _places(self) -> "dict[CompactionChoice, Keyspace]":
        places = {}
        for choice in CHOICES:
            places[choice] = self.node.cluster.keyspace(self.keyspace_of(choice))
        return places


HEAP_MIB: Final = 512
PREFIX: Final = "mailmend-trial-"
# Nothing of it must outlive a crash, and a node of a short life is up sooner with the first compiler only.
_SHORT_LIFE: Final = ClusterRequest(
    heap_mib=HEAP_MIB, properties={"cassandra.unsafesystem": "true"}, java_options=("-XX:TieredStopAtLevel=1",)
)


@contextmanager
def started_node(parent: Path | None = None) -> Iterator[TrialNode]:
    """Start a node below `parent` (the system's temporary folder when None); it ends with the block."""
    with throwaway_folder(PREFIX, parent) as folder:
        cluster = local_cluster(folder / "cluster")
        port = free_port(hosts_of(1))
        cluster.up(replace(_SHORT_LIFE, native_port=port))
        with _connected(LOOPBACK, port) as session:
            yield TrialNode(session, cluster.layout.node(1).data / "sstables")


@contextmanager
def given_node(host: str, port: int) -> Iterator[TrialNode]:
    """Use a Cassandra that runs already and may be written to."""
    with _connected(host, port) as session:
        yield TrialNode(session)


def _connected(host: str, port: int) -> Any:
    return import_or_name_extra("mailmend.cql.driver.session").connect(Contact(hosts=(host,), port=port))
