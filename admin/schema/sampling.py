"""A sample of the user's own messages for the trial: whole mailboxes, when each row was written, and no texts.

Mailboxes come in token order, which is as good as drawn by lot. Of a text only its length is kept: what the copy needs
is keys, flags, sizes and times.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from mailmend.model.catalog.mail import MESSAGE_ID
from mailmend.model.errors import MailmendError
from mailmend.model.ids import micros_of
from mailmend.model.instants import MICROS
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Level, Read, Scan, Seen
from mailmend.model.ports import Progress, Tables
from mailmend.model.table import Table

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
CHANGED: Final = (*(name for name in NAMES if name.startswith("flag")), "modseq", "userflags")
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
