"""What repairing needs of the world: three small ports, each with a memory twin behind the same conformance suite."""

from collections.abc import Iterator, Sequence
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
