"""What was applied to a keyspace, as values; and how a folder of migrations differs from its history.

A migration that was applied is never changed again: the history and the folder must be the same,
else the next keyspace differs from this one. Each difference names the file and says how to mend
it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from hashlib import sha256
from uuid import UUID

from mailmend.cql.schema.difference import index_text, view_text
from mailmend.cql.schema.migrations.migration import FileName, Migration, checksum_of, next_link
from mailmend.model.cql_types import normal_type
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.table import Column, Table


class MigrationState(Enum):
    """How far a migration is; the value is what the ledger holds."""

    RUNNING = "running"  # begun, not ended: its applier works, was killed, or met an error
    APPLIED = "applied"
    BASELINE = "baseline"  # it was never run here: what it makes was there already


class StatementState(Enum):
    """How far a statement is; the value is what the ledger holds."""

    BEGUN = "begun"  # sent, or about to be: whether it took effect is for the live schema to say
    DONE = "done"
    FAILED = "failed"  # the server refused it, and said why


@dataclass(frozen=True, slots=True)
class Entry:
    """A migration as the history of a keyspace holds it.

    Attributes:
        claim: the token of the lease under which the last write was made; a process with another token may not write.
        statements, done: the number of its statements, and how many of them, counted from the first, are done.
    """

    file: FileName
    checksum: str
    chain: str
    state: MigrationState
    statements: int
    done: int
    owner: str
    started_at: datetime
    version: str
    claim: UUID
    ended_at: datetime | None = None
    note: str = ""

    @property
    def number(self) -> int:
        """Its place in the order, from 1."""
        return self.file.number

    @property
    def ended(self) -> bool:
        return self.state is not MigrationState.RUNNING


@dataclass(frozen=True, slots=True)
class StatementEntry:
    """A statement of a migration as the history holds it.

    Attributes:
        position: its place in the file, from 0.
        attempt: a version-1 UUID, drawn before the first sending and kept for every repetition: the id of the table
            that it creates, and the write time of its rows.
    """

    number: int
    position: int
    checksum: str
    state: StatementState
    attempt: UUID
    started_at: datetime
    cql: str
    ended_at: datetime | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The record of an adoption: what the keyspace was at that time.

    Attributes:
        objects: the digest of each table, type, index and view, by kind and name.
    """

    generation: str
    objects: Mapping[str, str]
    migrations: tuple[str, ...]
    adopted_at: datetime
    owner: str
    version: str

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.objects)


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The history of a keyspace's schema, as the ledger holds it.

    Attributes:
        statements: the statements of migrations that have not ended.
        baseline: what the keyspace was when it was adopted; None where it was not.
    """

    entries: tuple[Entry, ...] = ()
    statements: tuple[StatementEntry, ...] = ()
    baseline: Baseline | None = None

    def entry(self, number: int) -> Entry | None:
        for entry in self.entries:
            if entry.number == number:
                return entry
        return None

    def statement(self, number: int, position: int) -> StatementEntry | None:
        for statement in self.statements:
            if (statement.number, statement.position) == (number, position):
                return statement
        return None


@dataclass(frozen=True, slots=True)
class Unlock:
    """A lease that a person ended by force: when, whose it was, who ended it, and why."""

    at: datetime
    holder: str
    by: str
    reason: str


class Tampering(Enum):
    """How a file of the folder differs from the history; the value is its name in reports."""

    EDITED = "edited migration"  # the same file, another text
    RENAMED = "renamed migration"  # the same number and text, another name or phase
    REPLACED = "replaced migration"  # the number belongs to quite another file
    MOVED = "moved migration"  # it is there, under another number
    MISSING = "missing migration"  # it was applied, and is not in the folder
    INSERTED = "inserted migration"  # it was not applied, though later ones were
    FORGED = "forged history"  # the history's own chain does not follow from its own entries


@dataclass(frozen=True, slots=True)
class HistoryDrift:
    """One difference between the folder and the history.

    Attributes:
        file: the file's name; for a file that is gone, the name that the history has.
    """

    kind: Tampering
    number: int
    file: str
    why: str
    mend: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.file}: {self.why}"


_PUT_BACK = "Put the text back that was applied (from version control); what has to change goes into a new migration."


def history_drift(
    migrations: Sequence[Migration], history: Sequence[Entry], begun: Sequence[StatementEntry] = ()
) -> tuple[HistoryDrift, ...]:
    """All differences between a folder and what was applied from it, by number.

    Args:
        migrations: the migrations of the folder, in order.
        history: what the ledger holds of the keyspace.
        begun: the statements of the migration that is running, if one is: what follows the last of them that may have
            taken effect may still be edited, or a statement that the server refused could never be mended.
    """
    files = {migration.number: migration for migration in migrations}
    entries = {entry.number: entry for entry in history}
    drift = []
    for number in range(1, max(entries, default=0) + 1):
        found = _between(files.get(number), entries.get(number), files, begun)
        if found:
            drift.append(found)
    return (*drift, *_forged(history))


def _between(
    file: Migration | None, entry: Entry | None, files: Mapping[int, Migration], begun: Sequence[StatementEntry]
) -> HistoryDrift | None:
    if entry is None:
        if file is None:
            return None
        return _inserted(file)
    if file is None or str(file.file) != str(entry.file):
        return _elsewhere(file, entry, files)
    if file.checksum == entry.checksum or (entry.state is MigrationState.RUNNING and _goes_on(file, begun)):
        return None
    why = f"its checksum is {file.checksum[:12]}, {entry.checksum[:12]} was applied on {entry.started_at:%Y-%m-%d}"
    return HistoryDrift(Tampering.EDITED, entry.number, str(file.file), why, _PUT_BACK)


def _goes_on(file: Migration, begun: Sequence[StatementEntry]) -> bool:
    """Whether the file still has every statement that may have taken effect, unchanged."""
    for entry in begun:
        if entry.number != file.number or entry.state is StatementState.FAILED:
            continue
        if entry.position >= len(file.statements) or checksum_of(file.cql(entry.position)) != entry.checksum:
            return False
    return True


def _inserted(file: Migration) -> HistoryDrift:
    why = "it was not applied, though later ones were"
    return HistoryDrift(
        Tampering.INSERTED,
        file.number,
        str(file.file),
        why,
        "Give it the next free number, after all that was applied.",
    )


def _elsewhere(file: Migration | None, entry: Entry, files: Mapping[int, Migration]) -> HistoryDrift:
    """What became of an applied file that is not at its number under its name."""
    if file is not None and file.checksum == entry.checksum:
        why = f"it was applied under the name {entry.file}"
        return HistoryDrift(Tampering.RENAMED, entry.number, str(file.file), why, f"Rename it back: {entry.file}")
    moved = next((migration for migration in files.values() if migration.checksum == entry.checksum), None)
    if moved is not None:
        why = f"it was applied as number {entry.number:04}"
        return HistoryDrift(Tampering.MOVED, entry.number, str(moved.file), why, f"Rename it back: {entry.file}")
    if file is not None:
        why = f"{entry.file} was applied under this number, with another text"
        mend = f"Put {entry.file} back (from version control), and give this one the next free number."
        return HistoryDrift(Tampering.REPLACED, entry.number, str(file.file), why, mend)
    why = f"it was applied on {entry.started_at:%Y-%m-%d} by {entry.owner}, and is not in the folder"
    mend = "Put the file back (from version control), or name the folder that holds it with --migrations."
    return HistoryDrift(Tampering.MISSING, entry.number, str(entry.file), why, mend)


def _forged(history: Sequence[Entry]) -> Iterator[HistoryDrift]:
    """Entries whose chain value does not follow from the entry before: the ledger was altered."""
    value = ""
    expected = 1
    for entry in sorted(history, key=lambda one: one.number):
        value = next_link(value, str(entry.file), entry.checksum)
        if entry.number != expected or entry.chain != value:
            why = "the chain of the ledger's own entries is broken here"
            mend = "Compare the table schema_migration of the ledger keyspace with version control and with backups."
            yield HistoryDrift(Tampering.FORGED, entry.number, str(entry.file), why, mend)
            return
        expected += 1


_DIGITS = 16


class Since(Enum):
    """How an object changed since the adoption; the value is its name in reports."""

    NEW = "new since adoption"
    CHANGED = "changed since adoption"
    GONE = "gone since adoption"


def changes_since(baseline: Baseline, live: Schema) -> tuple[tuple[Since, str], ...]:
    """What changed since the keyspace was adopted, with kind and name."""
    before = baseline.objects
    now = digests(live)
    changes = []
    for name in sorted({*before, *now}):
        since = _since(before.get(name), now.get(name))
        if since:
            changes.append((since, name))
    return tuple(changes)


def _since(before: str | None, now: str | None) -> Since | None:
    if before == now:
        return None
    if before is None:
        return Since.NEW
    if now is None:
        return Since.GONE
    return Since.CHANGED


def fingerprint_of(objects: Mapping[str, str]) -> str:
    return _digest("\n".join(f"{name} {objects[name]}" for name in sorted(objects)))


def digests(schema: Schema) -> dict[str, str]:
    """A digest of each object of a keyspace, by kind and name."""
    return {name: _digest(text) for name, text in _texts(schema)}


def _texts(schema: Schema) -> Iterator[tuple[str, str]]:
    for user_type in schema.types:
        fields = ", ".join(f"{name_of(name)} {normal_type(text)}" for name, text in user_type.fields)
        yield f"type {user_type.name}", fields
    for table in schema.tables:
        yield f"table {table.name}", _table_text(table)
    for index in schema.indexes:
        yield f"index {name_of(index.spelling)}", index_text(index)
    for view in schema.views:
        yield f"view {view.table.name}", view_text(view)


def _table_text(table: Table) -> str:
    """Key columns in key order, the others by name: servers list them in an order of their own."""
    rest = sorted(table.regular, key=lambda column: column.name)
    return "\n".join(map(_column_text, (*table.key, *rest)))


def _column_text(column: Column) -> str:
    text = f"{column.name} {normal_type(column.type)} {column.kind.value}"
    if column.descending:
        text += " desc"
    return text


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_DIGITS]
