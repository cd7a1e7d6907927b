"""James's own table of schema versions: read, and written only when a person asks for it."""

from dataclasses import dataclass
from uuid import UUID

from model.catalog.generations import Generation
from model.catalog.james_tables import SCHEMA_VERSION
from model.errors import SchemaMismatch
from model.migrations.james_version import VersionStep, decide_version
from model.operations import Level, Put, Scan
from model.ports import Clock, Tables
from model.schema.keyspace import Schema


@dataclass(frozen=True, slots=True)
class VersionWritten:
    """What was written, or would be; `key` names the row, None where nothing was written."""

    step: VersionStep
    key: UUID | None = None

    def undo(self, keyspace: str) -> str:
        """The CQL that takes it back; "" where nothing was written."""
        table = f"{keyspace}.{SCHEMA_VERSION.name}"
        row = f"key = {self.key} AND value = {self.step.after}"
        return f"DELETE FROM {table} WHERE {row};" if self.key else ""  # noqa: S608 - shown to a person, never sent


def version_step(live: Schema, keyspace: str, rows: Tables, generation: Generation, wanted: int) -> VersionStep:
    """What writing the version would do; reads only.

    Raises:
        SchemaMismatch: the keyspace has no table of versions.
        WrongUse: no James of this generation knows such a version.
        UnsafeRequest: a greater one stands there, so nobody would read it.
    """
    if live.table(SCHEMA_VERSION.name) is None:
        raise SchemaMismatch(keyspace, (f"table {SCHEMA_VERSION.spelling}",))
    standing = rows.scan(Scan(SCHEMA_VERSION, ("value",), Level.QUORUM))
    return decide_version((row["value"] for row in standing), generation, wanted)


def write_version(rows: Tables, clock: Clock, step: VersionStep) -> VersionWritten:
    """Write a row of the version, as James itself does; nothing where it stands there already."""
    if not step.changes:
        return VersionWritten(step)
    key = clock.new_uuid()
    rows.write(Put(SCHEMA_VERSION, {"key": key, "value": step.after}))
    return VersionWritten(step, key)
