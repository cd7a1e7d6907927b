"""A server in memory that understands CQL: what a real one would make of migrations, step by step, crash by crash.

Everything that can be interrupted passes a point (before and after each statement, each row of the ledger); at one of
them the applier is killed, as by SIGKILL: from then on nothing that it does has any effect, until it is revived.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from mailmend.cql.language.parser import parse
from mailmend.cql.memory import MemoryTables
from mailmend.cql.migrate.history import History
from mailmend.cql.migrate.migrator import Agreement, Migrator, RolloutResult
from mailmend.cql.migrate.rollout import RolloutRequest
from mailmend.cql.row_statements import Operation
from mailmend.cql.schema.migrations import Migration
from mailmend.cql.statements import CreateKeyspace, CreateTable, NamedStatement, WriteRows
from mailmend.model.errors import CannotReach, SchemaRefused, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import pairs_of
from mailmend.model.table import Row
from mailmend.repair.ledger.leases import Leases
from tests.support.clock import VirtualClock
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import served

VERSION = UUID(int=1)
OLD_VERSION = UUID(int=2)
KEYSPACE = "shop"


class Killed(BaseException):
    """The applier was killed; not an Exception, for nothing may catch it."""


class Killer:
    """Counts the points, and kills at one of them."""

    def __init__(self) -> None:
        self.passed = 0
        self.at: int | None = None
        self.dead = False

    def point(self) -> None:
        if self.dead:
            raise Killed
        self.passed += 1
        if self.passed == self.at:
            self.dead = True
            raise Killed

    def surround(self, _: Operation, carry_out: Callable[[], Any]) -> Any:
        """An operation of the ledger, with a point before it and one after it."""
        self.point()
        answer = carry_out()
        self.point()
        return answer

    def revive(self) -> None:
        self.dead, self.at = False, None


class MigrationServer(SchemaTwin):
    """A cluster of three nodes that carries out CQL. Implements `SchemaServer` and `SchemaNodes`."""

    def __init__(self, killer: Killer | None = None, **keyspaces: Schema) -> None:
        super().__init__("5.0.9", **keyspaces)
        self.killer = killer or Killer()
        self.versions: dict[str, UUID | None] = dict.fromkeys(("10.0.0.1", "10.0.0.2", "10.0.0.3"), VERSION)
        self.down: tuple[str, ...] = ()
        self.ids: dict[tuple[str, str], str] = {}
        self.rows: list[str] = []
        self.refuses: str | None = None
        self.silent_at: str | None = None
        self.lost_answer_at: str | None = None

    def execute_ddl(self, text: str, seconds: float = 30.0, agreed: float = 30.0) -> None:  # noqa: ARG002 - the port's
        """Carry it out as a server does: refuse what does not fit, never do half of it."""
        self.killer.point()
        if self.silent_at and self.silent_at in text:
            raise CannotReach("no answer came")
        if self.refuses and self.refuses in text:
            raise WrongUse(f"the server would not: {self.refuses}")
        self._carry_out(text)
        if self.lost_answer_at and self.lost_answer_at in text:
            raise CannotReach("no answer came")
        self.killer.point()

    def schema_versions(self) -> Mapping[str, UUID | None]:
        return {node: version for node, version in self.versions.items() if node not in self.down}

    def nodes_down(self) -> tuple[str, ...]:
        return self.down

    def _carry_out(self, text: str) -> None:
        (parsed,) = parse(text)
        statement = parsed.statement
        if isinstance(statement, CreateKeyspace):
            self.keyspaces.setdefault(statement.keyspace, Schema((), ()))
            self.replications.setdefault(statement.keyspace, pairs_of(statement.options["replication"]))
            return
        assert isinstance(statement, NamedStatement), f"{text} may not be sent"
        name = statement.name
        assert name.keyspace is not None, f"{text} names no keyspace"
        if isinstance(statement, WriteRows):
            self.rows.append(text)
            return
        if isinstance(statement, CreateTable):
            bare, table_id = _without_id(statement)
            self.ids.setdefault((name.keyspace, bare.table.name), table_id)
            statement = bare
        try:
            held = statement.apply(self.keyspaces[name.keyspace])
        except SchemaRefused as error:
            raise WrongUse(f"the server would not: {error.what}") from error
        self.carried_out.append(text)
        self.keyspaces[name.keyspace] = _as_served(held)

    def _rows(self, table: str, keyspace: str) -> Iterator[Row]:
        if table != "indexes" or keyspace not in self.keyspaces:
            yield from super()._rows(table, keyspace)
            return
        for one in self.keyspaces[keyspace].indexes:
            options = {"target": one.target, **({"class_name": one.using} if one.using else {})}
            yield {"index_name": one.spelling, "table_name": one.table.lower(), "options": options}


def _without_id(statement: CreateTable) -> tuple[CreateTable, str]:
    options = dict(statement.table.options)
    table_id = options.pop("id", "")
    return replace(statement, table=replace(statement.table, options=options)), table_id


def _as_served(schema: Schema) -> Schema:
    lower = served(schema, made_here=True)
    return replace(schema, types=lower.types, tables=lower.tables)


class Stage:
    """A server, a ledger, a clock, and appliers that come one after the other."""

    def __init__(self, **keyspaces: Schema) -> None:
        self.clock = VirtualClock()
        self.killer = Killer()
        self.server = MigrationServer(self.killer, **keyspaces)
        self.ledger = MemoryTables(self.clock.micros, self.killer.surround)
        self.reported: list[str] = []

    def migrator(self, name: str = "alice", *, require_all: bool = False, ledger: bool = True) -> Migrator:
        agreement = Agreement(self.server, self.clock, 5.0, require_all)
        leases = Leases(self.ledger, self.clock, name)
        history = self.history(name)
        return Migrator(
            self.server, self.clock, agreement, self, history if ledger else None, lambda _: history, lambda: leases
        )

    def history(self, name: str = "alice", keyspace: str = KEYSPACE) -> History:
        return History(self.ledger, self.clock, keyspace, name, "0.1.0")

    def apply(self, migrations: tuple[Migration, ...], name: str = "alice", **request: Any) -> RolloutResult:
        return self.migrator(name).roll_out(RolloutRequest(KEYSPACE, migrations, ours=False, **request))

    def stage(self, name: str, total: int | None = None) -> None:
        self.reported.append(f"{name} of {total}")

    def advance(self, steps: int, suspects: int = 0) -> None:
        """Count nothing."""
