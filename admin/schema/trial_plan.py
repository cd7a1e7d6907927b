"""What a trial of compactions writes and reads, in which order, and what its figures come to: decided here, purely.

The trial itself (`admin.schema.trial`) only carries it out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeVar

from mailmend.admin.schema.sampling import CHANGED, NAMES, SampledMessage
from mailmend.cql.schema.advice import ReadCost
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, CompactionChoice, compacted
from mailmend.model.operations import Change, Put, Read, Write
from mailmend.model.table import Table

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

_MAILBOX, _UID, _MESSAGE = (NAMES.index(name) for name in ("mailboxid", "uid", "messageid"))
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
    edges = [len(events) * number // count for number in range(count + 1)]
    return [events[start:end] for start, end in pairwise(edges)]


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


_UNTOUCHED: Final = {name: False for name in CHANGED if name.startswith("flag")} | {"userflags": None}
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
