"""Interfaces (ports) to databases, brokers, stores and clocks. Adapters and test doubles are in other packages.

A port whose values belong to a higher package is declared in that package (docs/adr/0037).
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID

from model.delivery.attempts import BeforeContent, DeliveryAttempt, NextHop, RecipientResult, at_once
from model.errors import MailmendError
from model.ids import BlobId, QueueName
from model.operations import Applied, Conditional, Read, Scan, Seen, Write
from model.pickup.policies import PickupPolicies
from model.pickup.replay_sums import ReplaySums
from model.projections.findings import Suspect
from model.queue.mails import PRIORITY_NORMAL
from model.queue.messages import BlobKind, Depth, Message, StoredBlob
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


TimeAfter = Callable[[datetime], datetime]
"""The time that comes next after the given one."""


class Timers(Protocol):
    """Times of a running event loop, from the beginning to the end of its context."""

    def set(self, times: Mapping[str, TimeAfter], wake: Callable[[], None]) -> None:
        """Have `wake` called at these times from now on, and at those that were set before no more."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


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


class Delivery(Protocol):
    """A delivered message, to be acked, requeued or dead-lettered: exactly one of them, once.

    Each of the three raises `BrokerUnreachable` when the connection that brought the message is gone: the broker then
    delivers it again, to some consumer.
    """

    @property
    def message(self) -> Message:
        """Body and headers; header values of other types than int and text are left out."""
        ...

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        ...

    @property
    def dead_lettered(self) -> bool:
        """Whether it was ever in a dead letter queue (it carries `x-death`)."""
        ...

    @property
    def priority(self) -> int:
        """The priority, 0 to 9, of the queue that it came from."""
        ...

    async def ack(self) -> None:
        """Acknowledge the message: it was processed."""
        ...

    async def requeue(self) -> None:
        """Return it to its queue, at once."""
        ...

    async def dead_letter(self) -> None:
        """Move it to the dead letter queue."""
        ...


def unheard() -> None:
    """Do nothing: nobody listens."""


class Broker(Protocol):
    """The message broker. Adapters: `RabbitBroker`, and a twin in tests.

    A queue has James's own topology (facts on James's queue). Each priority except the normal one has a side queue of
    ours, whose name James does not list. Missing exchanges and queues are declared at first use; existing ones are
    checked and never changed.
    """

    async def publish(self, queue: QueueName, message: Message, priority: int = PRIORITY_NORMAL) -> None:
        """Publish, and return when the broker has confirmed that it keeps the message.

        Raises:
            PublishFailed: it was refused, returned, or not confirmed in time (`doubtful`).
            BrokerUnreachable: nobody answers.
            TopologyMismatch: the queue is there in a form that cannot be used.
        """
        ...

    def deliveries(
        self,
        queue: QueueName,
        prefetch: int,
        priorities: Collection[int] | None = None,
        on_lost: Callable[[], None] = unheard,
    ) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Take messages, at most `prefetch` unacked of each priority.

        With `priorities` None messages of all ten priorities are taken, and missing side queues are declared.

        The iterator goes on over reconnections, with new deliveries. Leaving the context returns unacked messages.
        `on_lost` is called for every consumer (a level has one) that the broker took away or whose connection broke,
        and
        that is set up anew.
        """
        ...

    def dead_letters(self, queue: QueueName, prefetch: int) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Take messages of the dead letter queue, at most `prefetch` unacked."""
        ...

    async def depth(self, queue: QueueName) -> Depth:
        """The number of messages in the queue; `unacked` may be some seconds old."""
        ...

    async def product(self) -> str:
        """Its name and version, as it tells whoever connects, such as `RabbitMQ 4.0.5`."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Blobs(Protocol):
    """The bytes of mails. Adapters are in `mailqueue.blobs`, a twin in tests."""

    async def put(self, data: bytes, kind: BlobKind) -> BlobId:
        """Keep the bytes durably and return their id.

        Raises:
            BlobsUnreachable: the store does not answer, or takes nothing.
        """
        ...

    async def get(self, blob_id: BlobId) -> bytes:
        """The bytes under the id.

        Raises:
            BlobMissing: there are none.
            BlobsUnreachable: the store does not answer.
        """
        ...

    async def delete(self, blob_id: BlobId) -> None:
        """Delete the bytes, if there are any. Deduplicated blobs are left alone: others may refer to them.

        Raises:
            BlobsUnreachable: the store does not answer.
        """
        ...

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        """Delete the bytes of many, as `delete` does, in as few requests as the store can.

        Raises:
            BlobsUnreachable: the store does not answer; some may be left.
            BadPayload: some are no ids; all the others are forgotten.
        """
        ...

    async def exists(self, blob_id: BlobId) -> bool:
        """Whether there are bytes under the id."""
        ...


class BlobStore(Protocol):
    """A store of bytes under any id. Adapters are in `mailqueue.blobs`, a twin in tests.

    Every method may raise `BlobsUnreachable`.
    """

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        """Keep the bytes durably, all or nothing, in place of what is there."""
        ...

    async def get(self, blob_id: BlobId) -> bytes:
        """The bytes; `BlobMissing` where there are none."""
        ...

    async def remove(self, blob_id: BlobId) -> None:
        """Delete the bytes, even if others refer to them; none there is fine."""
        ...

    async def remove_all(self, blob_ids: Sequence[BlobId]) -> None:
        """Delete the bytes of many distinct ids, as `remove` does; after an error some may be left."""
        ...

    async def exists(self, blob_id: BlobId) -> bool:
        """Whether there are bytes."""
        ...

    async def stored_at(self, blob_id: BlobId) -> datetime | None:
        """When the bytes were stored last, by the store's clock; None where there are none."""
        ...

    def scan(self) -> AsyncIterator[StoredBlob]:
        """Every blob, page by page, in no order."""
        ...


class NextHops(Protocol):
    """Which servers take mail for a domain. Adapters: `delivery.dns.DnsNextHops`, and a table in tests."""

    async def of(self, domain: str) -> Sequence[NextHop]:
        """The servers, at least one, in the order in which they are to be tried.

        Raises:
            NoNextHop: there is none, or that cannot be known now; its reply says which.
        """
        ...


class MailRelay(Protocol):
    """Attempts to deliver. Adapters: `delivery.smtp.SmtpRelay`, and a twin in tests."""

    async def deliver(
        self, attempt: DeliveryAttempt, content: bytes, before_content: BeforeContent = at_once
    ) -> Sequence[RecipientResult]:
        """Hand one mail to one server; one result for each recipient, in order. Raises what `before_content` does."""
        ...

    async def close(self) -> None:
        """End the connections that are kept open."""
        ...


class AttemptRecord(Protocol):
    """Recorded attempts of a queue. Adapters: `LocalAttempts` of `repair.scanners`, `SparkAttempts` of `spark_repair`.

    Attributes:
        attempts: how many there are.
        incomplete: rows that lack when they were ready or began, as their time to live ends; they are left out.
        lasting: the median duration in milliseconds, which those have of which no end is known; None: none is known.
    """

    @property
    def attempts(self) -> int: ...

    @property
    def incomplete(self) -> int: ...

    @property
    def lasting(self) -> int | None: ...

    def replay(self, said: PickupPolicies, top: int) -> ReplaySums:
        """What becomes of them under these policies, with the `top` counters and values of each field.

        Raises:
            WrongUse: more would wait at once than there is room for.
        """
        ...

    def close(self) -> None: ...


class StagingStore(Protocol):
    """A store of files of staged rows. Adapters are in `repair.staging`; every method may raise `StateUnwritable`."""

    @property
    def place(self) -> str: ...

    def held(self) -> AbstractContextManager[None]:
        """Hold the store for one run while the body runs; raises `StagingRefused` where another run holds it."""
        ...

    def names(self) -> Mapping[str, int]:
        """The size in bytes of each complete file, by its name."""
        ...

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file: afterwards it is complete, or as it was before."""
        ...

    def remove(self, names: Iterable[str]) -> None: ...

    def free_bytes(self) -> int | None:
        """The free space in bytes; None where it is not known."""
        ...


class Child(Protocol):
    """A running command. Adapters: `admin.jobs.children.ChildProcess`, and a twin in tests."""

    def stop(self) -> None:
        """Ask the command to end in an orderly way, as SIGTERM does."""
        ...

    def kill(self) -> None:
        """Kill the command."""
        ...

    async def wait(self) -> int:
        """Wait until the command has ended and all its output was read; returns its exit code."""
        ...
