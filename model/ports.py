"""Every port of mailmend, declared once: what its parts need of the world; adapters and test twins stand elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from uuid import UUID

from model.errors import MailmendError
from model.operations import Applied, Conditional, Read, Scan, Seen, Write
from model.schema.table import Row


class Tables(Protocol):
    """The tables of one keyspace. Adapters: `cql.driver.session.Keyspace` (a cluster) and `cql.memory.MemoryTables`.

    Every method may raise `CannotReach` and its kinds; a conditional write or a count that gets no answer raises
    `DoubtfulWrite`. No adapter retries a conditional write or a count by itself.
    """

    def read(self, read: Read) -> Sequence[Seen]:
        """The rows under the key, in clustering order."""
        ...

    def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        """Many reads at once, a bounded number in flight; one answer or one error for each, in order."""
        ...

    def scan(self, scan: Scan) -> Iterator[Row]:
        """Every row, page by page, in token order."""
        ...

    def write(self, write: Write) -> None:
        """Carry out one write at QUORUM."""
        ...

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        """Many independent writes at once, a bounded number in flight; for each its error, or None, in order."""
        ...

    def attempt(self, write: Conditional) -> Applied:
        """Carry out one conditional write at SERIAL and QUORUM."""
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


class NodeClocks(Protocol):
    """The clocks of the servers, as far as they can be read."""

    def node_micros(self) -> Sequence[int]:
        """now() of every reachable node, in microseconds since 1970."""
        ...


class Blobs(Protocol):
    """Where message contents live. Adapters: files here, an object store later."""

    def put(self, data: bytes) -> str:
        """Keep the bytes durably and return their id; the same bytes may give the same id."""
        ...

    def get(self, blob_id: str) -> bytes:
        """The bytes under the id.

        Raises:
            KeyError: there are none.
        """
        ...


class Progress(Protocol):
    """Where long work tells how far it is. Adapters: a terminal, plain lines, nothing."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A new stage begins, of `total` steps if that is known."""
        ...

    def advance(self, steps: int, suspects: int = 0) -> None:
        """So many more rows (or keys) are done, so many more suspects found."""
        ...


class HeldLease(Protocol):
    """A lease in hand. Adapter: `repair.ledger.leases.Held`."""

    def check(self, seconds: float = 0.0) -> None:
        """Make sure that it is still ours, and will be for so long.

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


class SchemaNodes(Protocol):
    """The nodes of a cluster, as far as their schemas go. Adapter: `cql.driver.nodes.CassandraNodes`."""

    def schema_versions(self) -> Mapping[str, UUID | None]:
        """The schema's version on every node that is up, by address; None where the node does not answer."""
        ...

    def nodes_down(self) -> Sequence[str]:
        """The addresses of the nodes that are known and not up."""
        ...
