"""Migrations carried out: under a lease, with every node agreeing, each statement in the history before and after.

Whoever dies at any point of this leaves a history from which the next one goes on. The order of each statement: is the
lease ours for long enough; do the nodes agree; are we still the applier (a conditional write); what is about to be sent
is written down; it is sent; the nodes agree again; it is written down as done.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from cql.introspect import SchemaServer
from cql.migrate.agreement import Agreement
from cql.migrate.history import History
from cql.migrate.scripts import Script
from model.errors import CannotReach, MigrationFailed, WrongUse
from model.migrations.history import Entry, StatementEntry
from model.migrations.migration import Migration
from model.migrations.plan import MigrationPlan, Past, PlannedStatement, Way, created_by
from model.ports import Clock, HeldLease, Progress

STATEMENT_SECONDS = 30.0
"""How long one statement may take."""


@dataclass(slots=True)
class Done:
    """What was done so far.

    Attributes:
        created: tables, types, indexes and views that came of it, as reports name them.
        applied: migrations that came to their end.
        statements: those that were sent.
    """

    created: list[str] = field(default_factory=list)
    applied: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Applier:
    """One holding of the lease, and what it works with.

    Args:
        script: how each statement is spelled for this server and keyspace.
        statement_seconds: how long one statement may take; the lease must outlive it.
    """

    server: SchemaServer
    history: History
    held: HeldLease
    agreement: Agreement
    clock: Clock
    script: Script
    progress: Progress
    statement_seconds: float = STATEMENT_SECONDS
    done: Done = field(default_factory=Done)

    def carry_out(self, plan: MigrationPlan, past: Past) -> Done:
        """Run the plan.

        Raises:
            SchemaDisagreement: the nodes do not agree; named.
            LeaseLost: another may apply by now.
            MigrationFailed: the server refused a statement.
            CannotReach: a statement gave no answer.
        """
        claim = self.clock.new_uuid()
        if plan.baseline:
            self._stands()
            self.history.baseline(plan.baseline, claim, "there before the history began")
        for migration in plan.due:
            self._migrate(migration, plan.of(migration), claim, past.entry(migration.number))
        return self.done

    def send(self, cql: str, place: str) -> None:
        """Send a statement that no migration holds (a keyspace, a table that went missing), with the same care."""
        self.agreement.wait(f"before {place}")
        self._stands()
        self._sent(cql, place)
        self.agreement.wait(f"after {place}")

    def _migrate(
        self, migration: Migration, statements: Sequence[PlannedStatement], claim: UUID, standing: Entry | None
    ) -> None:
        self.progress.stage(str(migration.file), len(statements))
        self._stands()
        entry = self.history.begin(migration, claim, standing)
        for planned in statements:
            self.agreement.wait(f"before {planned.place}")
            self._stands()
            entry = self.history.advanced(entry, planned.position)
            self._settle(planned)
            self.progress.advance(1)
        self.history.ended(entry)
        self.done.applied.append(str(migration.file))

    def _settle(self, planned: PlannedStatement) -> None:
        """Bring one statement to its end."""
        if planned.way is Way.RECORD:
            self.history.done(planned.before or self._begun(planned))
            return
        begun = self._begun(planned)
        with self._told_in_history(begun, planned.place):
            self._sent(begun.cql, planned.place)
        self.agreement.wait(f"after {planned.place}")
        self.history.done(begun)
        created = created_by(planned.migration.statements[planned.position].statement)
        self.done.created += [created] if created else []

    def _begun(self, planned: PlannedStatement) -> StatementEntry:
        attempt = planned.attempt or self.clock.new_uuid()
        cql = self.script.sent(planned.migration, planned.position, attempt)
        author_text = planned.migration.cql(planned.position)
        return self.history.begun(planned.migration.number, planned.position, author_text, cql, attempt)

    def _sent(self, cql: str, place: str) -> None:
        try:
            self.server.execute_ddl(cql, self.statement_seconds, agreed=0)  # each node is asked afterwards
        except CannotReach as error:
            raise CannotReach(
                f"{place}: {error.what}",
                mend="It may have been carried out. Type the same command again: it looks whether it was, and goes on.",
            ) from error
        self.done.statements.append(cql)

    @contextmanager
    def _told_in_history(self, begun: StatementEntry, place: str) -> Iterator[None]:
        """A refusal is written down with the server's own words."""
        try:
            yield
        except WrongUse as error:
            self.history.failed(begun, error.what)
            raise MigrationFailed(
                f"{place}: {error.what}",
                mend="What was done before it stands. Mend the statement in the file (those before it must stay as "
                "they are), then type the same command again.",
            ) from error

    def _stands(self) -> None:
        self.held.check(self.statement_seconds)
