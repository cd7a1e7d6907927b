"""Interfaces (ports) that several packages use: tables, clocks, lags, progress. Their adapters are in other packages.

A port that one package alone uses is declared in that package, with its values (docs/adr/0056).
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol
from uuid import UUID

from mailmend.model.errors import MailmendError
from mailmend.model.operations import Applied, Conditional, Read, Scan, Seen, Write
from mailmend.model.projections.findings import Suspect
from mailmend.model.table import Row


class Tables(Protocol):
    """The tables of one keyspace. Adapters: `cql.driver.session.Keyspace` (a cluster) and `cql.memory.MemoryTables`.

    Every method may raise `CannotReach` and its kinds; a conditional write or a count that gets no answer raises
    `DoubtfulWrite`. No adapter retries a conditional write or a count.
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


class AsyncTables(Protocol):
    """`Tables` for code in an event loop. Adapters: `AsyncKeyspace`, and `InTurn` over the memory twin (tests).

    Every method may raise `CannotReach` and its kinds; a conditional write that gets no answer raises `DoubtfulWrite`.
    """

    async def read(self, read: Read) -> Sequence[Seen]: ...

    async def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]: ...

    def scan(self, scan: Scan) -> AsyncIterator[Row]: ...

    async def write(self, write: Write) -> None: ...

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]: ...

    async def attempt(self, write: Conditional) -> Applied: ...


class Clock(Protocol):
    """Time and random numbers. Adapters: `repair.clock.SystemClock` and the tests' virtual clock."""

    def micros(self) -> int:
        """Microseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds since an unspecified moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; blocks the thread."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        ...

    def new_uuid(self) -> UUID:
        """A version-1 UUID of now: its time is unique in this process."""
        ...

    def random_uuid(self) -> UUID:
        """A random UUID."""
        ...

    def chance(self) -> float:
        """A random number from 0 up to, but not including, 1."""
        ...


class NodeClocks(Protocol):
    """The clocks of the servers, as far as they can be read."""

    def node_micros(self) -> Sequence[int]:
        """The clock of every reachable node (CQL's `now()`), in microseconds since 1970."""
        ...


class Lags(Protocol):
    """The journal of lags. Adapters: `repair.ledger.lags.LagJournal`, and a list in tests."""

    def journal(self, suspects: Sequence[Suspect], cause: str) -> None:
        """Keep the suspects durably.

        Raises:
            Unjournalled: neither the ledger nor the disk took them. The truth is written all the same.
        """
        ...


class Progress(Protocol):
    """The display of progress. Adapters: a terminal, plain lines, and `Silent`."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage of `total` steps; None: the number is not known."""
        ...

    def advance(self, steps: int, suspects: int = 0) -> None:
        """Report that `steps` more rows (or keys) are done and `suspects` more suspects were found."""
        ...


class Silent:
    """Progress that shows nothing."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage."""

    def advance(self, steps: int, suspects: int = 0) -> None:
        """Count."""
