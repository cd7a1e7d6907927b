"""Adopts a keyspace that mailmend did not make, and forgets it again; writes James's schema version when asked to.

Adopting writes rows of the ledger and nothing to the mail keyspace. After a kill the same command continues: the
baseline is written last and removed first, so a keyspace counts as adopted only when all rows are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mailmend.cql.introspect import live_schema
from mailmend.cql.migrate.history import History, record_of
from mailmend.cql.ports import LeaseSource, SchemaServer
from mailmend.cql.schema.generations import Generation
from mailmend.cql.schema.migrations.adoption import Adoption, Standing, VersionStep, decide_adoption, decide_version
from mailmend.cql.schema.migrations.history import Baseline, MigrationState, digests
from mailmend.cql.schema.migrations.migration import Migration
from mailmend.model.catalog.james_tables import SCHEMA_VERSION
from mailmend.model.catalog.ledger import SCHEMA_MIGRATION, KeyspaceLease
from mailmend.model.errors import SchemaMismatch, UnsafeRequest
from mailmend.model.instants import instant_of
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Level, Put, RemoveIf, Scan
from mailmend.model.ports import Clock, Tables
from mailmend.model.texts import keyspace_option

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
        known = {entry.number for entry in history.entries()}
        left = [migration for migration in migrations if migration.number not in known]
        generation = adoption.recognition.generation.name
        history.baseline(left, history.clock.new_uuid(), f"{_ADOPTED}{generation}")
        baseline = Baseline(
            generation,
            digests(live_schema(server, keyspace)),
            tuple(str(migration.file) for migration in migrations),
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
        applied = [str(entry.file) for entry in entries if entry.state is not MigrationState.BASELINE]
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
