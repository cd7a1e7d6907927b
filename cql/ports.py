"""Interfaces of a cluster's schema, and of the leases under which it is changed."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol
from uuid import UUID

from mailmend.model.table import Row


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


class SchemaServer(Protocol):
    """Reading and changing the schema of a cluster. Adapter: `cql.driver.session.CassandraCluster`."""

    release_version: str

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows that a statement returns."""
        ...

    def execute_ddl(self, text: str, seconds: float = ..., agreed: float = ...) -> None:
        """Change the schema within `seconds`; wait up to `agreed` seconds (0: not at all) until the nodes agree."""
        ...

    def replication_of(self, keyspace: str) -> Mapping[str, str]:
        """The keyspace's replication options; raises `UnknownKeyspace`."""
        ...


class SchemaNodes(Protocol):
    """The schema versions of a cluster's nodes. Adapter: `cql.driver.nodes.CassandraNodes`."""

    def schema_versions(self) -> Mapping[str, UUID | None]:
        """The schema's version on every node that is up, by address; None where the node does not answer."""
        ...

    def nodes_down(self) -> Sequence[str]:
        """The addresses of the nodes that are known and not up."""
        ...
