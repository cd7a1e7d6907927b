"""A whole cluster in memory that every command reaches: schemas as a server tells them, tables as the twin keeps them.

What the command line promises can so be tested in milliseconds, with a clock that stands still until it is told to go.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest

from mailmend.admin.frame import cluster as wiring_cluster
from mailmend.admin.queue import openers
from mailmend.cql.driver import nodes as driver_nodes
from mailmend.cql.driver import session
from mailmend.cql.memory import MemoryTables
from mailmend.cql.schema.generations import AUGUST_2026
from mailmend.model.catalog.mail import IMAP_UID
from mailmend.model.catalog.mail_queue import DELETED_MAILS
from mailmend.model.errors import UnknownKeyspace
from mailmend.model.keyspace import Schema
from mailmend.model.sizes import TableSize
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import served


class NamedTables(MemoryTables):
    """The tables of one keyspace, which know its name."""

    def __init__(self, name: str, clock: VirtualClock) -> None:
        super().__init__(clock.micros)
        self.name = name


class ClusterTwin(SchemaTwin):
    """A server with rows. Stands in for `cql.driver.session.CassandraCluster`."""

    def __init__(self, clock: VirtualClock, **keyspaces: Schema) -> None:
        super().__init__("5.0.9", **keyspaces)
        self.clock = clock
        self.nodes_ahead_micros = 0
        self.rows_recorded = 0
        self.compactions: int | None = None
        self.hosts_down: list[str] = []
        self._tables: dict[str, NamedTables] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def keyspace(self, name: str) -> NamedTables:
        if name not in self.keyspaces:
            raise UnknownKeyspace(name)
        return self._tables.setdefault(name, NamedTables(name, self.clock))

    def sizes(self, _: object, keyspace: str) -> dict[str, TableSize]:
        """What the nodes tell of the size of the truth, and of the queues' marks; nothing of other tables."""
        assert keyspace in self.keyspaces
        return {name: TableSize(self.rows_recorded, None, None, 1, 1) for name in (IMAP_UID.name, DELETED_MAILS.name)}

    @property
    def metadata(self) -> Self:
        """Of the driver: it knows the hosts."""
        return self

    def nodes_up(self) -> list[Any]:
        return []

    def all_hosts(self) -> Sequence[Any]:
        return [SimpleNamespace(address=address) for address in self.hosts_down]

    def node_micros(self) -> list[int]:
        return [self.clock.micros() + self.nodes_ahead_micros]


def cluster_in_memory(monkeypatch: pytest.MonkeyPatch, keyspace: str = "mail") -> ClusterTwin:
    """A cluster with a mail keyspace of James, in place of any that a command would connect to."""
    clock = VirtualClock()
    twin = ClusterTwin(clock, **{keyspace: served(AUGUST_2026.schema)})
    monkeypatch.setattr(session, "connect", lambda _contact: twin)
    monkeypatch.setattr(driver_nodes, "CassandraNodes", lambda _cluster: twin)
    monkeypatch.setattr(driver_nodes, "sizes_in", twin.sizes)
    monkeypatch.setattr(driver_nodes, "pending_compactions", lambda _cluster: twin.compactions)
    monkeypatch.setattr(wiring_cluster, "SystemClock", lambda: clock)
    monkeypatch.setattr(openers, "tables_of", InTurn)
    return twin
