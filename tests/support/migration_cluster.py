"""A whole cluster in memory that understands CQL, which every command of `mailmend schema` reaches.

It keeps what was asked of it apart: what only read, and what would have left a trace. So a test can say of a dry run
that it wrote nothing, and of a refusal that it came before anything was done.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import pytest

from mailmend.admin.frame import cluster as wiring_cluster
from mailmend.cql.driver import nodes as driver_nodes
from mailmend.cql.driver import session
from mailmend.cql.driver.contact import Contact
from mailmend.cql.row_statements import Operation
from mailmend.model.errors import AccessDenied, UnknownKeyspace
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Read, Scan
from mailmend.model.sizes import TableSize
from mailmend.model.table import Row
from mailmend.repair.ledger.leases import Leases
from tests.support.clock import VirtualClock
from tests.support.cluster_twin import NamedTables
from tests.support.migration_twin import MigrationServer


class MigrationCluster(MigrationServer):
    """A server that understands CQL, with rows. Stands in for `cql.driver.session.CassandraCluster`.

    Attributes:
        writes: what was written to any table, or tried to be.
        contacts: with what it was connected to, in order.
        sized: the keyspaces whose sizes somebody asked for.
        fails: raised by whoever connects.
        roles, permissions: what it lists of a role.
    """

    def __init__(self, clock: VirtualClock, **keyspaces: Schema) -> None:
        super().__init__(None, **keyspaces)
        self.clock = clock
        self.tables: dict[str, NamedTables] = {}
        self.writes: list[Operation] = []
        self.contacts: list[Contact] = []
        self.sized: list[str] = []
        self.fails: Exception | None = None
        self.roles: dict[str, Sequence[Row]] = {}
        self.permissions: dict[str, Sequence[Row]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def keyspace(self, name: str) -> NamedTables:
        if name not in self.keyspaces:
            raise UnknownKeyspace(name)
        if name not in self.tables:
            self.tables[name] = NamedTables(name, self.clock)
            self.tables[name].surround = self._noted
        return self.tables[name]

    @property
    def untouched(self) -> bool:
        """Whether nothing was written so far: no statement, no row, no keyspace."""
        return not (self.carried_out or self.writes or self.rows)

    def held_by(self, owner: str, keyspace: str = "shop", ledger: str = "mailmend") -> Leases:
        """Somebody takes the lease of schema changes, and has it from now on."""
        leases = Leases(self.keyspace(ledger), self.clock, owner)
        leases.acquire(f"schema {keyspace}", "schema apply")
        return leases

    def forget(self) -> None:
        self.carried_out.clear()
        self.writes.clear()
        self.rows.clear()
        self.sized.clear()

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows of one of the server's own tables; of those that a plain role may not read, none."""
        if text.startswith("LIST ROLES"):
            return self.roles.get(text.rsplit(maxsplit=1)[-1], ())
        if text.startswith("LIST ALL PERMISSIONS"):
            return self.permissions.get(text.rsplit(maxsplit=1)[-1], ())
        if "scylla_local" in text:
            return ()
        if "system_views" in text:
            raise AccessDenied("the role may not read system_views.settings")
        return super().query(text, values)

    def connected(self, contact: Contact) -> Self:
        self.contacts.append(contact)
        if self.fails:
            raise self.fails
        return self

    def sizes(self, _: object, keyspace: str) -> dict[str, TableSize]:
        self.sized.append(keyspace)
        return {"orders": TableSize(1_000, 4_096, None, 3, 3)}

    def _noted(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if not isinstance(operation, Read | Scan):
            self.writes.append(operation)
        return carry_out()


def migration_cluster(monkeypatch: pytest.MonkeyPatch, **keyspaces: Schema) -> MigrationCluster:
    clock = VirtualClock()
    twin = MigrationCluster(clock, **keyspaces)
    monkeypatch.setattr(session, "connect", twin.connected)
    monkeypatch.setattr(driver_nodes, "CassandraNodes", lambda _cluster: twin)
    monkeypatch.setattr(driver_nodes, "sizes_in", twin.sizes)
    monkeypatch.setattr(wiring_cluster, "SystemClock", lambda: clock)
    return twin
