"""Compares a live keyspace with the schema that it should have, and its migrations with its history.

The expected schema has one of two sources: our catalog, in the generation that the keyspace is nearest to; or, for
other people's migrations, what they make of an empty keyspace. In both cases the history is checked too: files that
were edited, migrations that were begun and not ended, changes since the keyspace was adopted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mailmend.cql.schema.difference import Aspect, Difference, differences, endangers, with_lifetimes
from mailmend.cql.schema.generations import Recognition, declared, recognise
from mailmend.cql.schema.migrations.history import (
    Baseline,
    Entry,
    HistoryDrift,
    LedgerRecord,
    MigrationState,
    Since,
    StatementState,
    changes_since,
    history_drift,
)
from mailmend.cql.schema.migrations.migration import Migration
from mailmend.cql.statements import Parsed, apply_all
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import Schema

_NOTED = (Aspect.DIFFERENT_OPTION, Aspect.UNEXPECTED_TABLE, Aspect.UNEXPECTED_TYPE)
"""What is no drift in a keyspace that held tables before its first migration."""


@dataclass(frozen=True, slots=True)
class SchemaComparison:
    """The differences between a live schema and the expected one.

    Attributes:
        recognition: the generation that it was compared with; None when it was compared with other migrations.
    """

    expected: Schema
    drift: tuple[Difference, ...]
    notes: tuple[Difference, ...]
    recognition: Recognition | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a keyspace.

    Attributes:
        tampering: how the folder differs from the history.
        running: migrations that were begun and have not ended.
        applied: the number of applied migrations, those recorded as there already included; None without a history.
    """

    against: SchemaComparison
    tampering: tuple[HistoryDrift, ...]
    running: tuple[Entry, ...]
    pending: tuple[str, ...]
    applied: int | None
    baseline: Baseline | None
    since: tuple[tuple[Since, str], ...]

    @property
    def agrees(self) -> bool:
        return not (self.against.drift or self.tampering or self.running)


def verify_ours(live: Schema, migrations: Sequence[Migration], record: LedgerRecord | None) -> Verification:
    """Compare a mail keyspace with the catalog, and its history with our own migrations."""
    found = recognise(live)
    expected = declared(found.generation, live, made_here=found.made_here)
    against = SchemaComparison(expected, found.drift, found.notes, found)
    return _verified(against, live, migrations, record)


def verify_migrations(live: Schema, migrations: Sequence[Migration], record: LedgerRecord | None) -> Verification:
    """Compare any keyspace with what was applied of a folder of migrations.

    Where the folder was tampered with, its migrations may contradict each other: then only the files are reported.
    """
    known = record or LedgerRecord()
    try:
        expected = expected_after(migrations, known)
    except SchemaRefused:
        if not history_drift(migrations, known.entries, known.statements):
            raise
        expected = live
    stated = differences(expected, live)
    older = any(entry.state is MigrationState.BASELINE for entry in known.entries)
    drift = []
    notes = []
    for difference in differences(with_lifetimes(expected, live), live):
        noted = difference not in stated or (older and difference.aspect in _NOTED)
        if noted and not endangers(difference):
            notes.append(difference)
        else:
            drift.append(difference)
    return _verified(SchemaComparison(expected, tuple(drift), tuple(notes)), live, migrations, record)


def expected_after(migrations: Sequence[Migration], record: LedgerRecord) -> Schema:
    """What the migrations that the history records as done make of an empty keyspace."""
    return apply_all(_done(migrations, record))


def _done(migrations: Sequence[Migration], record: LedgerRecord) -> Iterator[Parsed]:
    """The statements that were carried out; of an unfinished migration, those before the first that was not."""
    for migration in migrations:
        entry = record.entry(migration.number)
        if entry is None:
            continue
        for position, parsed in enumerate(migration.statements):
            begun = record.statement(migration.number, position)
            if entry.ended or (begun and begun.state is StatementState.DONE):
                yield parsed


def _verified(
    against: SchemaComparison, live: Schema, migrations: Sequence[Migration], record: LedgerRecord | None
) -> Verification:
    held = record or LedgerRecord()
    running = tuple(entry for entry in held.entries if not entry.ended)
    pending: tuple[str, ...] = ()
    applied = None
    if record is not None:
        known = {entry.number for entry in held.entries}
        pending = tuple(str(migration.file) for migration in migrations if migration.number not in known)
        applied = len(held.entries) - len(running)
    since: tuple[tuple[Since, str], ...] = ()
    if held.baseline is not None:
        since = changes_since(held.baseline, live)
    tampering = history_drift(migrations, held.entries, held.statements)
    return Verification(against, tampering, running, pending, applied, held.baseline, since)
