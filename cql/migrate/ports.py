"""What owning a schema needs of the world beyond a server: rows of the ledger, a clock, a lease. Small ports.

Their adapters stand above this package (`repair.ledger.leases`, `repair.clock`) or beside it
(`cql.driver.session.Keyspace`), so no layer looks up.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from uuid import UUID

from model.operations import Applied, Conditional, Read, Seen, Write


class Rows(Protocol):
    """The tables of the ledger keyspace. Adapters: `cql.driver.session.Keyspace` and `cql.memory.MemoryTables`."""

    def read(self, read: Read) -> Sequence[Seen]:
        """The rows under the key, in clustering order."""
        ...

    def write(self, write: Write) -> None:
        """Carry out one write at QUORUM."""
        ...

    def attempt(self, write: Conditional) -> Applied:
        """Carry out one conditional write at SERIAL and QUORUM; `DoubtfulWrite` where its answer is lost."""
        ...


class Clock(Protocol):
    """Time as one process knows it. Adapters: `repair.clock.SystemClock` and the tests' virtual clock."""

    def micros(self) -> int:
        """Microseconds since 1970."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def new_uuid(self) -> UUID:
        """A version-1 UUID of now: its time is unique in this process."""
        ...


class Held(Protocol):
    """A lease in hand. Adapter: `repair.ledger.leases.Held`."""

    def check(self, seconds: float = 0.0) -> None:
        """Make sure that it is still ours, and will be for so long; raises `LeaseLost`."""
        ...


class Leasing(Protocol):
    """Where leases are taken. Adapter: `repair.ledger.leases.Leases`."""

    def held(self, name: str, purpose: str) -> AbstractContextManager[Held]:
        """The lease for as long as the body runs; raises `LeaseHeld`."""
        ...


class Nodes(Protocol):
    """The nodes of a cluster, as far as their schemas go. Adapter: `cql.migrate.nodes.SchemaNodes`."""

    def schema_versions(self) -> Mapping[str, UUID | None]:
        """The schema's version on every node that is up, by address; None where the node does not answer."""
        ...

    def nodes_down(self) -> Sequence[str]:
        """The addresses of the nodes that are known and not up."""
        ...
