"""What is to be run on a keyspace, and whether a keyspace is as its migrations have made it. Pure.

Every pending statement is applied to the live schema as a value first, so that what the server would refuse is reported
with file and line before anything changes. A statement that was begun and not recorded as done is judged by its effect.

The expected schema has one of two sources: our catalog, in the generation that the keyspace is nearest to; or, for
other people's migrations, what they make of an empty keyspace. In both cases the history is checked too: files that
were edited, migrations that were begun and not ended, changes since the keyspace was adopted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from mailmend.cql.schema.difference import (
    Aspect,
    Difference,
    aspects_of,
    differences,
    endangers,
    with_lifetimes,
)
from mailmend.cql.schema.generations import Recognition, recognise
from mailmend.cql.schema.migrations import (
    Baseline,
    Entry,
    HistoryDrift,
    LedgerRecord,
    Migration,
    MigrationState,
    Phase,
    Since,
    StatementEntry,
    StatementState,
    changes_since,
    file_names,
    history_drift,
    remaining,
)
from mailmend.cql.schema.risk import Assessment, DroppedColumns, Risky
from mailmend.cql.statements import Effect, Parsed, Statement, apply_all
from mailmend.model.errors import BadMigration, HistoryMismatch, SchemaRefused, WrongUse
from mailmend.model.keyspace import EMPTY, Schema
from mailmend.model.texts import keyspace_option


class Way(Enum):
    """How an unfinished statement is finished; the value is its name in reports."""

    RUN = "run"
    AGAIN = "run again"  # it was begun, and left nothing
    RECORD = "record"  # its effect is there: only the history lacks it


@dataclass(frozen=True, slots=True)
class PlannedStatement:
    """A statement that is to be run, or written down as done."""

    migration: Migration
    position: int
    way: Way
    assessment: Assessment
    before: StatementEntry | None = None

    @property
    def statement(self) -> Statement:
        return self.migration.statements[self.position].statement

    @property
    def attempt(self) -> UUID | None:
        """The id that was drawn for the first sending, where the statement may have been carried out; else None."""
        if self.before is None or self.before.state is not StatementState.BEGUN:
            return None
        return self.before.attempt

    @property
    def place(self) -> str:
        return f"{self.migration.file}, line {self.migration.line(self.position)}"


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The migrations that are to be run.

    Attributes:
        baseline: migrations that are recorded as applied, because the keyspace already has what they make.
        due: migrations that are run to their end; an interrupted one may have no statement left to send.
        reached: all migrations that are applied once the plan was carried out, earlier ones included.
        left: pending migrations that the target leaves out.
        stopped: why these are left out; "" where none is.
    """

    baseline: tuple[Migration, ...]
    due: tuple[Migration, ...]
    statements: tuple[PlannedStatement, ...]
    reached: tuple[Migration, ...]
    left: tuple[Migration, ...]
    stopped: str
    expected: Schema = field(repr=False)

    @property
    def empty(self) -> bool:
        return not self.baseline and not self.due

    @property
    def risky(self) -> tuple[Risky, ...]:
        """The risks that a person must agree to: the risks of the statements that are sent."""
        risky = []
        for statement in self.statements:
            if statement.way is not Way.RECORD and statement.assessment.is_risky:
                risky.append((statement.place, statement.assessment))
        return tuple(risky)

    def of(self, migration: Migration) -> tuple[PlannedStatement, ...]:
        return tuple(statement for statement in self.statements if statement.migration.number == migration.number)


def decide(
    keyspace: str,
    migrations: Sequence[Migration],
    record: LedgerRecord,
    live: Schema,
    *,
    to: int | None = None,
    phase: Phase | None = None,
    takes_over: bool = False,
) -> MigrationPlan:
    """Plan what is to be run on a keyspace with the schema `live`.

    Args:
        keyspace: the keyspace.
        migrations: the migrations of the folder, in order.
        record: the history of the keyspace.
        live: its present schema.
        to: the number of the last migration to run; None is all.
        phase: only of this phase, up to the first pending one of the other.
        takes_over: whether what is there already, in a keyspace without history, counts as applied.

    Raises:
        HistoryMismatch: the folder holds other migrations than those that were applied.
        BadMigration: a pending statement would be refused, or names another keyspace.
        WrongUse: there is no migration of the number that is asked for.
    """
    refuse_tampering(keyspace, migrations, record)
    if to is not None and not 1 <= to <= len(migrations):
        raise WrongUse(f"there is no migration {to:04}", mend=f"The last of the folder is {migrations[-1].number:04}.")
    fresh = takes_over and not record.entries
    baseline: tuple[Migration, ...] = ()
    if fresh:
        baseline = _standing(migrations, live)
    ended: list[Migration | Entry] = [*baseline]
    for entry in record.entries:
        if entry.ended:
            ended.append(entry)
    pending = remaining(migrations, ended)
    due, stopped = _due(pending, to, phase)
    rehearsal = _Rehearsal(keyspace, record, live, live, _dropped_once(live), fresh)
    statements: list[PlannedStatement] = []
    for migration in due:
        statements.extend(rehearsal.planned(migration))
    left = pending[len(due) :]
    reached = remaining(migrations, left)
    return MigrationPlan(
        baseline, tuple(due), tuple(statements), tuple(reached), tuple(left), stopped, rehearsal.schema
    )


def refuse_tampering(keyspace: str, migrations: Sequence[Migration], record: LedgerRecord) -> None:
    """Refuse a folder that differs from what was applied.

    Raises:
        HistoryMismatch: it names each file that differs, and what to do with it.
    """
    drift = history_drift(migrations, record.entries, record.statements)
    if drift:
        mends = dict.fromkeys(difference.mend for difference in drift)
        raise HistoryMismatch(
            f"the migrations are not those that were applied to {keyspace}: " + "; ".join(map(str, drift)),
            mend=" ".join(mends) + f" See: mailmend schema history {keyspace_option(keyspace)}",
        )


def _dropped_once(live: Schema) -> DroppedColumns:
    dropped = set()
    for table in live.tables:
        for column in table.dropped:
            dropped.add((table.name, column.name))
    return frozenset(dropped)


def _standing(migrations: Sequence[Migration], live: Schema) -> tuple[Migration, ...]:
    """The longest start of the folder that explains what is there; it ends before what may not have run."""
    schema = EMPTY
    standing = 0
    for number, migration in enumerate(migrations, start=1):
        if any(parsed.statement.may_not_have_run(live) for parsed in migration.statements):
            break
        schema = apply_all(migration.statements, schema)
        if _holds(live, schema):
            standing = number
    return tuple(migrations[:standing])


_BESIDE = frozenset(
    {
        Aspect.DIFFERENT_OPTION,
        Aspect.UNEXPECTED_TABLE,
        Aspect.UNEXPECTED_TYPE,
        Aspect.UNEXPECTED_INDEX,
        Aspect.UNEXPECTED_VIEW,
    }
)
"""In what a keyspace may be otherwise than migrations have made it, and have been made by them all the same."""


def _holds(live: Schema, made: Schema) -> bool:
    return aspects_of(differences(made, live)) <= _BESIDE


def _due(pending: Sequence[Migration], to: int | None, phase: Phase | None) -> tuple[list[Migration], str]:
    """The pending migrations that the target asks for, and why the others are left."""
    due: list[Migration] = []
    for migration in pending:
        if to is not None and migration.number > to:
            return due, f"{migration.file} and what follows come after --to {to:04}"
        if phase is not None and migration.file.phase is not phase:
            return due, (
                f"{migration.file} comes first: it is of the phase {migration.file.phase.value!r}, "
                f"and migrations are applied in the order of their numbers"
            )
        due.append(migration)
    return due, ""


@dataclass(slots=True)
class _Rehearsal:
    """The live schema as a value, to which the pending statements are applied one by one."""

    keyspace: str
    record: LedgerRecord
    live: Schema
    schema: Schema
    dropped: DroppedColumns
    fresh: bool

    def planned(self, migration: Migration) -> Iterator[PlannedStatement]:
        for position in range(len(migration.statements)):
            before = self.record.statement(migration.number, position)
            if before is None or before.state is not StatementState.DONE:
                yield self._planned(migration, position, before)

    def _planned(self, migration: Migration, position: int, before: StatementEntry | None) -> PlannedStatement:
        statement = migration.statements[position].statement
        planned = PlannedStatement(migration, position, Way.RUN, statement.assess(self.live, self.dropped), before)
        why = statement.refusal_in_migration(self.keyspace)
        if why:
            raise BadMigration(f"{planned.place}: {why}")
        way = self._way(planned)
        if way is not Way.RECORD:
            self.schema = self._folded(planned)
            self.dropped |= statement.drops()
        return PlannedStatement(migration, position, way, planned.assessment, before)

    def _way(self, planned: PlannedStatement) -> Way:
        begun = planned.before is not None and planned.before.state is StatementState.BEGUN
        if not begun and not self.fresh:
            return Way.RUN
        match planned.statement.took_effect(self.schema):
            case Effect.APPLIED:
                return Way.RECORD
            case Effect.NOT_APPLIED:
                if begun:
                    return Way.AGAIN
                return Way.RUN
            case Effect.DIFFERENT:
                raise BadMigration(
                    f"{planned.place}: what the statement names is in {self.keyspace} already, and is different",
                    mend=f"See how with: mailmend schema verify {keyspace_option(self.keyspace)}",
                )

    def _folded(self, planned: PlannedStatement) -> Schema:
        try:
            return planned.statement.apply(self.schema)
        except SchemaRefused as error:
            raise BadMigration(
                f"{planned.place}: the server would refuse it: {error.what}",
                mend=f"{error.mend} Nothing of this plan was run.".strip(),
            ) from error


def declared_by(migrations: Sequence[Migration]) -> Schema:
    """The schema that the migrations make of an empty keyspace."""
    return apply_all(statements_of(migrations))


def statements_of(migrations: Iterable[Migration]) -> Iterator[Parsed]:
    """All statements of the migrations, in the order in which they run."""
    for migration in migrations:
        yield from migration.statements


_NOTED = (Aspect.DIFFERENT_OPTION, Aspect.UNEXPECTED_TABLE, Aspect.UNEXPECTED_TYPE)
"""What is no drift in a keyspace that held tables before its first migration."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a keyspace.

    Attributes:
        drift, notes: the differences from the expected schema; notes are no drift.
        recognition: the generation that it was compared with; None when it was compared with other migrations.
        tampering: how the folder differs from the history.
        running: migrations that were begun and have not ended.
        applied: the number of applied migrations, those recorded as there already included; None without a history.
    """

    drift: tuple[Difference, ...]
    notes: tuple[Difference, ...]
    recognition: Recognition | None
    tampering: tuple[HistoryDrift, ...]
    running: tuple[Entry, ...]
    pending: tuple[str, ...]
    applied: int | None
    baseline: Baseline | None
    since: tuple[tuple[Since, str], ...]

    @property
    def agrees(self) -> bool:
        return not (self.drift or self.tampering or self.running)


def verify_ours(live: Schema, migrations: Sequence[Migration], record: LedgerRecord | None) -> Verification:
    """Compare a mail keyspace with the catalog, and its history with our own migrations."""
    found = recognise(live)
    return _verified(live, migrations, record, drift=found.drift, notes=found.notes, recognition=found)


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
    return _verified(live, migrations, record, drift=tuple(drift), notes=tuple(notes))


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
    live: Schema,
    migrations: Sequence[Migration],
    record: LedgerRecord | None,
    *,
    drift: tuple[Difference, ...],
    notes: tuple[Difference, ...],
    recognition: Recognition | None = None,
) -> Verification:
    held = record or LedgerRecord()
    running = []
    for entry in held.entries:
        if not entry.ended:
            running.append(entry)
    pending: tuple[str, ...] = ()
    applied = None
    if record is not None:
        pending = tuple(file_names(remaining(migrations, held.entries)))
        applied = len(held.entries) - len(running)
    since: tuple[tuple[Since, str], ...] = ()
    if held.baseline is not None:
        since = changes_since(held.baseline, live)
    tampering = history_drift(migrations, held.entries, held.statements)
    return Verification(drift, notes, recognition, tampering, tuple(running), pending, applied, held.baseline, since)
