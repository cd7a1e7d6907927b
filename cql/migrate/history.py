"""The history of one keyspace's schema in the ledger, and the adoption of a keyspace.

The rows of migrations are changed by conditional writes only, each on the claim of the applier that wrote last. So an
applier that was believed dead and comes back cannot write over its successor: its next write is refused, and it stops.

Adopting a keyspace that mailmend did not make writes rows of the ledger and nothing to the mail keyspace. After a kill
the same command continues: the baseline is written last and removed first, so a keyspace counts as adopted only when
all rows are there. James's schema version is written when a person asks for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from mailmend.cql.introspect import SchemaServer, live_schema
from mailmend.cql.schema.generations import Generation
from mailmend.cql.schema.migrations import (
    Baseline,
    Entry,
    FileName,
    LedgerRecord,
    Migration,
    MigrationState,
    Phase,
    StatementEntry,
    StatementState,
    Unlock,
    checksum_of,
    digests,
    file_names,
    remaining,
)
from mailmend.cql.schema.upgrades import Adoption, Standing, VersionStep, decide_adoption, decide_version
from mailmend.model.catalog.james_tables import SCHEMA_VERSION
from mailmend.model.catalog.ledger import (
    SCHEMA_BASELINE,
    SCHEMA_MIGRATION,
    SCHEMA_STATEMENT,
    SCHEMA_UNLOCK,
    KeyspaceLease,
)
from mailmend.model.errors import DoubtfulWrite, LeaseLost, SchemaMismatch, UnsafeRequest
from mailmend.model.ids import micros_of
from mailmend.model.instants import instant_of
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, ChangeIf, Conditional, Level, Put, PutIfAbsent, Read, RemoveIf, Scan
from mailmend.model.ports import Clock, Tables
from mailmend.model.table import Row
from mailmend.model.texts import keyspace_option


class HeldLease(Protocol):
    """A lease that this process holds. Adapter: `repair.ledger.leases.TakenLease`."""

    def check(self, seconds: float = 0.0) -> None:
        """Make sure that it is still ours, and will be for that many seconds.

        Raises:
            LeaseLost: it is not, or that cannot be known.
        """
        ...


class LeaseSource(Protocol):
    """Where leases are taken. Adapter: `repair.ledger.leases.Leases`."""

    def held(self, name: str, purpose: str) -> AbstractContextManager[HeldLease]:
        """The lease for as long as the body runs.

        Raises:
            LeaseHeld: another holds it.
        """
        ...


_OF_ENTRIES = {
    "checksum": "checksum",
    "chain": "chain",
    "statements": "statements",
    "claim": "claim",
    "owner": "owner",
    "note": "note",
    "donestatements": "done",
    "startedat": "started_at",
    "endedat": "ended_at",
    "toolversion": "version",
}
"""Fields by the columns that hold them as they are; the others are read and written one by one."""

_OF_STATEMENTS = {
    "number": "number",
    "position": "position",
    "checksum": "checksum",
    "attempt": "attempt",
    "cql": "cql",
    "error": "error",
    "startedat": "started_at",
    "endedat": "ended_at",
}
_OF_BASELINES = {
    "generation": "generation",
    "objects": "objects",
    "migrations": "migrations",
    "owner": "owner",
    "adoptedat": "adopted_at",
    "toolversion": "version",
}


def _cells(record: Entry | Baseline, fields: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a record as the cells of its row."""
    return {column: getattr(record, name) for column, name in fields.items()}


def _values(row: Row, fields: Mapping[str, str]) -> dict[str, Any]:
    """The cells of a row as the fields of its record."""
    return {name: row[column] for column, name in fields.items()}


@dataclass(frozen=True, slots=True)
class History:
    """The history of one keyspace. Conditional writes raise LeaseLost where another process has written meanwhile."""

    rows: Tables
    clock: Clock
    keyspace: str
    owner: str
    version: str

    def entries(self) -> tuple[Entry, ...]:
        """The applied and running migrations, by number."""
        rows = self._rows_of(Read(SCHEMA_MIGRATION, (self.keyspace,), Level.SERIAL))
        return tuple(map(_entry, rows))

    def statements(self, number: int) -> tuple[StatementEntry, ...]:
        """The begun statements of one migration, by position."""
        return tuple(map(_statement, self._rows_of(Read(SCHEMA_STATEMENT, (self.keyspace, number)))))

    def record(self) -> LedgerRecord:
        entries = self.entries()
        statements: list[StatementEntry] = []
        for entry in entries:
            if not entry.ended:
                statements.extend(self.statements(entry.number))
        return LedgerRecord(entries, tuple(statements), self.adoption())

    def unlocks(self) -> tuple[Unlock, ...]:
        """The leases that were ended by force, newest first."""
        return tuple(map(_unlock, self._rows_of(Read(SCHEMA_UNLOCK, (self.keyspace,)))))

    def begin(self, migration: Migration, claim: UUID, standing: Entry | None) -> Entry:
        """Record the migration as running under our claim; `standing` is what an earlier applier left of it."""
        entry = self._entry(migration, MigrationState.RUNNING, claim)
        if standing is not None:
            entry = replace(entry, done=standing.done, started_at=standing.started_at)
        if standing is None:
            return self._settled(PutIfAbsent(SCHEMA_MIGRATION, self._row(entry)), entry)
        return self._changed(standing, entry)

    def advanced(self, entry: Entry, done: int) -> Entry:
        """Record how many statements are done; a refusal means that we are no longer the applier."""
        return self._changed(entry, replace(entry, done=done))

    def ended(self, entry: Entry) -> Entry:
        """Record the migration as applied."""
        return self._changed(
            entry, replace(entry, state=MigrationState.APPLIED, done=entry.statements, ended_at=self._now())
        )

    def baseline(self, migrations: Iterable[Migration], claim: UUID, note: str) -> tuple[Entry, ...]:
        """Record migrations as there already, so that they are never run; `note` says what the keyspace is."""
        now = self._now()
        entries = []
        for migration in migrations:
            entry = self._entry(migration, MigrationState.BASELINE, claim)
            entries.append(replace(entry, started_at=now, ended_at=now, note=note))
        for entry in entries:
            self._settled(PutIfAbsent(SCHEMA_MIGRATION, self._row(entry)), entry)
        return tuple(entries)

    def adoption(self) -> Baseline | None:
        """The baseline at adoption; None where the keyspace was not adopted."""
        rows = self._rows_of(Read(SCHEMA_BASELINE, (self.keyspace,), Level.SERIAL))
        if not rows:
            return None
        return _baseline(rows[0])

    def put_adoption(self, baseline: Baseline) -> None:
        """Record the adoption."""
        cells = _cells(baseline, _OF_BASELINES)
        row = {"keyspacename": self.keyspace, "fingerprint": baseline.fingerprint, **cells}
        self._settle_adoption(PutIfAbsent(SCHEMA_BASELINE, row), baseline)

    def remove_adoption(self, baseline: Baseline) -> None:
        """Remove the baseline."""
        expected = {"fingerprint": baseline.fingerprint, "adoptedat": baseline.adopted_at}
        self._settle_adoption(RemoveIf(SCHEMA_BASELINE, (self.keyspace,), expected), None)

    def _rows_of(self, read: Read) -> list[Row]:
        return [seen.row for seen in self.rows.read(read)]

    def _settle_adoption(self, write: Conditional, wanted: Baseline | None) -> None:
        """Carry out a conditional write; where its answer is lost, a SERIAL read decides."""
        try:
            applied = self.rows.attempt(write).applied
        except DoubtfulWrite:
            applied = self.adoption() == wanted
        if not applied:
            raise LeaseLost(
                f"another process has written the baseline of {self.keyspace} meanwhile",
                mend=f"Compare it with the history: mailmend schema verify {keyspace_option(self.keyspace)}",
            )

    def begun(self, number: int, position: int, author_text: str, cql: str, attempt: UUID) -> StatementEntry:
        """Record that a statement is about to be sent; `author_text` is the file's text."""
        entry = StatementEntry(
            number, position, checksum_of(author_text), StatementState.BEGUN, attempt, self._now(), cql
        )
        row = {
            "keyspacename": self.keyspace,
            "number": number,
            "position": position,
            "checksum": entry.checksum,
            "state": entry.state.value,
            "attempt": attempt,
            "cql": cql,
            "startedat": entry.started_at,
            "endedat": None,  # forget what an earlier attempt met
            "error": None,
        }
        self.rows.write(Put(SCHEMA_STATEMENT, row, clear=True))
        return entry

    def done(self, entry: StatementEntry) -> StatementEntry:
        return self._settle(entry, StatementState.DONE, "")

    def failed(self, entry: StatementEntry, error: str) -> StatementEntry:
        return self._settle(entry, StatementState.FAILED, error)

    def unlocked(self, holder: str, reason: str) -> Unlock:
        at = self.clock.new_uuid()
        row = {"keyspacename": self.keyspace, "at": at, "holder": holder, "unlockedby": self.owner, "reason": reason}
        self.rows.write(Put(SCHEMA_UNLOCK, row))
        return Unlock(instant_of(micros_of(at)), holder, self.owner, reason)

    def _settle(self, entry: StatementEntry, state: StatementState, error: str) -> StatementEntry:
        settled = replace(entry, state=state, ended_at=self._now(), error=error)
        key = (self.keyspace, entry.number, entry.position)
        cells = {"state": state.value, "endedat": settled.ended_at, "error": error}
        self.rows.write(Change(SCHEMA_STATEMENT, key, assign=cells))
        return settled

    def _changed(self, standing: Entry, entry: Entry) -> Entry:
        row = self._row(entry)
        cells = {}
        for column in SCHEMA_MIGRATION.regular:
            cells[column.name] = row.get(column.name)
        write = ChangeIf(SCHEMA_MIGRATION, (self.keyspace, entry.number), {"claim": standing.claim}, assign=cells)
        return self._settled(write, entry, standing.claim)

    def _settled(self, write: Conditional, wanted: Entry, before: UUID | None = None) -> Entry:
        """Carry out a conditional write; where its answer is lost, a SERIAL read decides."""
        try:
            applied = self.rows.attempt(write).applied
        except DoubtfulWrite:
            standing = LedgerRecord(self.entries()).entry(wanted.number)
            if standing == wanted:
                return wanted
            if standing is None or standing.claim in {wanted.claim, before}:
                raise  # unchanged: the same command continues from there
            applied = False
        if applied:
            return wanted
        raise LeaseLost(
            f"another applier has written into the history of {self.keyspace} at number {wanted.number:04}",
            mend=f"See what it does with: mailmend schema history {keyspace_option(self.keyspace)}",
        )

    def _entry(self, migration: Migration, state: MigrationState, claim: UUID) -> Entry:
        count = len(migration.statements)
        now = self._now()
        return Entry(
            migration.file, migration.checksum, migration.chain, state, count, 0, self.owner, now, self.version, claim
        )

    def _row(self, entry: Entry) -> dict[str, Any]:
        return {
            "keyspacename": self.keyspace,
            "number": entry.number,
            "name": entry.file.name,
            "phase": entry.file.phase.value,
            "state": entry.state.value,
            **_cells(entry, _OF_ENTRIES),
        }

    def _now(self) -> datetime:
        return instant_of(self.clock.micros())


def _unlock(row: Row) -> Unlock:
    return Unlock(instant_of(micros_of(row["at"])), row["holder"], row["unlockedby"], row["reason"])


def _entry(row: Row) -> Entry:
    file = FileName(row["number"], Phase(row["phase"]), row["name"])
    state = MigrationState(row["state"])
    cells = _values(row, _OF_ENTRIES)
    return Entry(file=file, state=state, **{**cells, "note": row["note"] or ""})


def _statement(row: Row) -> StatementEntry:
    cells = _values(row, _OF_STATEMENTS)
    return StatementEntry(state=StatementState(row["state"]), **{**cells, "error": row["error"] or ""})


def _baseline(row: Row) -> Baseline:
    cells = _values(row, _OF_BASELINES)
    return Baseline(**{**cells, "objects": dict(row["objects"]), "migrations": tuple(row["migrations"] or ())})


def record_of(history: History | None) -> LedgerRecord:
    if history is None:
        return LedgerRecord()
    return history.record()


_ADOPTED = "adopted as "
"""How the note of an adoption's entries begins; entries of a keyspace that mailmend made have another note."""


def look_at(server: SchemaServer, keyspace: str, history: History | None) -> tuple[Adoption, Baseline | None]:
    """Plan an adoption; returns the plan and the current baseline. Reads only.

    Raises:
        UnknownKeyspace: no keyspace has that name.
    """
    server.replication_of(keyspace)
    record = record_of(history)
    return decide_adoption(live_schema(server, keyspace), record), record.baseline


def adopt(server: SchemaServer, history: History, leases: LeaseSource, migrations: Sequence[Migration]) -> Baseline:
    """Adopt the keyspace: its migrations count as done, and its schema's fingerprint is recorded.

    Raises:
        LeaseHeld: the schema of the keyspace is being changed.
        UnsafeRequest: the keyspace can no longer be adopted.
    """
    keyspace = history.keyspace
    with leases.held(KeyspaceLease.SCHEMA.of(keyspace), "schema adopt") as held:
        adoption, standing = look_at(server, keyspace, history)
        if standing is not None:
            return standing
        if adoption.standing is not Standing.ADOPTABLE:
            raise UnsafeRequest(
                f"{keyspace} has become {adoption.standing.value} meanwhile", mend="Type the same command again."
            )
        held.check()
        left = remaining(migrations, history.entries())
        generation = adoption.recognition.generation.name
        history.baseline(left, history.clock.new_uuid(), f"{_ADOPTED}{generation}")
        baseline = Baseline(
            generation,
            digests(live_schema(server, keyspace)),
            tuple(file_names(migrations)),
            instant_of(history.clock.micros()),
            history.owner,
            history.version,
        )
        history.put_adoption(baseline)
        return baseline


def forget(history: History, leases: LeaseSource) -> Baseline | None:
    """Undo an adoption; returns its baseline, or None when there was none.

    Raises:
        LeaseHeld: the schema of the keyspace is being changed.
        UnsafeRequest: migrations were applied since, and their history would be lost.
    """
    keyspace = history.keyspace
    with leases.held(KeyspaceLease.SCHEMA.of(keyspace), "schema adopt --forget") as held:
        entries = history.entries()
        baseline = history.adoption()
        applied = []
        for entry in entries:
            if entry.state is not MigrationState.BASELINE:
                applied.append(str(entry.file))
        if baseline is not None and applied:
            raise UnsafeRequest(
                f"{keyspace} was adopted, and then migrated: {', '.join(applied)}; forgetting would lose that history",
                mend=f"See it with: mailmend schema history {keyspace_option(keyspace)}",
            )
        held.check()
        if baseline is not None:
            history.remove_adoption(baseline)
        if applied:
            return baseline
        for entry in entries:
            if entry.note.startswith(_ADOPTED):
                history.rows.attempt(RemoveIf(SCHEMA_MIGRATION, (keyspace, entry.number), {"claim": entry.claim}))
        return baseline


@dataclass(frozen=True, slots=True)
class VersionWritten:
    """A write of James's schema version, done or planned; `key` is the row's key, None where nothing was written."""

    step: VersionStep
    key: UUID | None = None

    def undo(self, keyspace: str) -> str:
        """The CQL that removes the row; "" where nothing was written."""
        if not self.key:
            return ""
        table = f"{keyspace}.{SCHEMA_VERSION.name}"
        row = f"key = {self.key} AND value = {self.step.after}"
        return f"DELETE FROM {table} WHERE {row};"  # noqa: S608 - shown to a person, never sent


def version_step(live: Schema, keyspace: str, rows: Tables, generation: Generation, wanted: int) -> VersionStep:
    """Plan the write of James's schema version; reads only."""
    if live.table(SCHEMA_VERSION.name) is None:
        raise SchemaMismatch(keyspace, (f"table {SCHEMA_VERSION.spelling}",))
    standing = rows.scan(Scan(SCHEMA_VERSION, ("value",), Level.QUORUM))
    return decide_version((row["value"] for row in standing), generation, wanted)


def write_version(rows: Tables, clock: Clock, step: VersionStep) -> VersionWritten:
    """Write a row with the version, as James does; nothing where it is there already."""
    if not step.changes:
        return VersionWritten(step)
    key = clock.new_uuid()
    rows.write(Put(SCHEMA_VERSION, {"key": key, "value": step.after}))
    return VersionWritten(step, key)
