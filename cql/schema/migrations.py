"""Migrations as values, what was applied to a keyspace, and how both differ. Pure.

A migration is a file of hand-written CQL, `NNNN_{pre|post}_name.cql`. Its head says why it is there, what it does and
how it is undone. Its checksum is over its text; the chain runs over names and checksums in order, so that a file that
was edited, removed or put in between shows in every chain value after it.

A migration that was applied is never changed again: the history and the folder must be the same,
else the next keyspace differs from this one. Each difference names the file and says how to mend
it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from hashlib import sha256
from typing import TypeVar
from uuid import UUID

from mailmend.cql.schema.difference import index_text, view_text
from mailmend.cql.statements import Parsed
from mailmend.model.cql_types import normal_type
from mailmend.model.errors import BadMigration
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.table import Column, Table

NUMBER_MAX = 9999
_FILE_NAME = re.compile(r"(\d{4})_(pre|post)_([a-z0-9]+(?:_[a-z0-9]+)*)\.cql")
_COMMENT = re.compile(r"--[ \t]?(.*)")
_PARTS = ("Why", "Effect", "Undo")
_FORM = "NNNN_pre_what_it_does.cql or NNNN_post_what_it_does.cql, such as 0007_pre_add_labels.cql"


class Phase(Enum):
    """Whether a migration runs before (pre) or after (post) the release of the software that uses the tables."""

    PRE = "pre"  # before the new software is rolled out: it adds, so that old and new software both work
    POST = "post"  # after the old software is gone: it may take away


@dataclass(frozen=True, slots=True)
class FileName:
    """What a migration's file name says."""

    number: int
    phase: Phase
    name: str

    def __str__(self) -> str:
        return f"{self.number:04}_{self.phase.value}_{self.name}.cql"


@dataclass(frozen=True, slots=True)
class Head:
    """What the comment at the top of a migration says."""

    why: str
    effect: str
    undo: str


@dataclass(frozen=True, slots=True)
class Migration:
    r"""One migration.

    Attributes:
        text: the file's, with its line ends made `\n`.
        chain: the chain's value at this place of its folder; "" for a file outside a folder.
    """

    file: FileName
    text: str
    head: Head
    statements: tuple[Parsed, ...]
    chain: str = ""
    checksum: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checksum", checksum_of(self.text))

    @property
    def number(self) -> int:
        """The migration's number, from 1, in the order of the folder."""
        return self.file.number

    def cql(self, position: int) -> str:
        """The statement at that position (from 0) as written, without the semicolon."""
        span = self.statements[position].span
        return self.text[span.start : span.end]

    def line(self, position: int) -> int:
        """The line of the file on which that statement begins, from 1."""
        return self.text.count("\n", 0, self.statements[position].span.start) + 1


def normalised(text: str) -> str:
    r"""The text with its line ends made `\n`, so that a checkout on Windows has the same checksum."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def checksum_of(text: str) -> str:
    """SHA-256 of a text in UTF-8, in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def file_name(text: str) -> FileName:
    """Parse the name of a migration file.

    Raises:
        BadMigration: it is not the name of a migration.
    """
    found = _FILE_NAME.fullmatch(text)
    if not found:
        raise BadMigration(f"{text!r} is not the name of a migration", mend=f"Name it {_FORM}.")
    if int(found[1]) == 0:
        raise BadMigration(f"{text!r} has the number 0000", mend="Migrations are numbered from 0001.")
    return FileName(int(found[1]), Phase(found[2]), found[3])


def head_of(name: str, text: str) -> Head:
    """Parse the comment at the top of a migration.

    Raises:
        BadMigration: one of its three parts is missing or empty; the message says how they are written.
    """
    found = dict(_parts(text))
    parts = []
    missing = []
    for part in _PARTS:
        sentence = " ".join(found.get(part, ())).strip()
        parts.append(sentence)
        if not sentence:
            missing.append(part)
    if missing:
        raise BadMigration(
            f"{name} does not say at its top: {', '.join(missing)}",
            mend="Open the file with three comments, each over as many lines as it needs: "
            "'-- Why: ...', '-- Effect: ...', '-- Undo: ...'.",
        )
    return Head(*parts)


def _parts(text: str) -> Iterator[tuple[str, list[str]]]:
    current: list[str] | None = None
    for line in text.lstrip().splitlines():
        comment = _COMMENT.fullmatch(line.strip())
        if not comment:
            return
        said = comment[1].strip()
        opened = _part_opened(said)
        if opened:
            current = [said[len(opened) + 1 :].strip()]
            yield opened, current
        elif current is not None:
            current.append(said)


def _part_opened(said: str) -> str | None:
    """The part of the head that a line of the comment begins; None where the line goes on with one."""
    for part in _PARTS:
        if said.lower().startswith(f"{part.lower()}:"):
            return part
    return None


def in_order(migrations: Iterable[Migration]) -> tuple[Migration, ...]:
    """The migrations of one folder sorted by number, each with its chain value.

    Raises:
        BadMigration: a number is there twice, or missing.
    """
    found = sorted(migrations, key=lambda one: (one.number, str(one.file)))
    for place, migration in enumerate(found, start=1):
        if place > 1 and found[place - 2].number == migration.number:
            raise BadMigration(
                f"number {migration.number:04} is there twice: {found[place - 2].file} and {migration.file}",
                mend="Give the one that was applied nowhere yet the next free number.",
            )
        if migration.number != place:
            raise BadMigration(
                f"number {place:04} is missing: {migration.file} comes where it should stand",
                mend="Numbers follow on each other from 0001. Put the missing file back, or number the new one anew.",
            )
    return tuple(_chained(found))


def _chained(migrations: Sequence[Migration]) -> Iterator[Migration]:
    value = ""
    for migration in migrations:
        value = next_link(value, str(migration.file), migration.checksum)
        yield replace(migration, chain=value)


def next_link(previous: str, name: str, checksum: str) -> str:
    """The next chain value: it covers everything up to and including this file."""
    return sha256(f"{previous}\n{name}\n{checksum}\n".encode()).hexdigest()


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


Numbered = TypeVar("Numbered", bound=Migration | Entry)


def file_names(migrations: Iterable[Migration | Entry]) -> list[str]:
    return [str(migration.file) for migration in migrations]


def _by_number(migrations: Iterable[Numbered]) -> dict[int, Numbered]:
    return {migration.number: migration for migration in migrations}


def remaining(migrations: Iterable[Migration], others: Iterable[Migration | Entry]) -> list[Migration]:
    """The migrations whose numbers the others do not have, in their order."""
    numbers = _by_number(others)
    return [migration for migration in migrations if migration.number not in numbers]


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
    files = _by_number(migrations)
    entries = _by_number(history)
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
    moved = _with_checksum(entry.checksum, files.values())
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


def _with_checksum(checksum: str, migrations: Iterable[Migration]) -> Migration | None:
    for migration in migrations:
        if migration.checksum == checksum:
            return migration
    return None


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
