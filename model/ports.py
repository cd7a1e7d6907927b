"""What the parts of mailmend need of the world; adapters and test twins stand elsewhere.

A port whose values belong to a package above stands there, beside them (docs/adr/0037).
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from model.errors import MailmendError
from model.ids import BlobId, QueueName
from model.operations import Applied, Conditional, Read, Scan, Seen, Write
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
    """Time and chance as one process knows them. Adapters: `repair.clock.SystemClock` and the tests' virtual clock."""

    def micros(self) -> int:
        """Microseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
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
        """now() of every reachable node, in microseconds since 1970."""
        ...


class Lags(Protocol):
    """Where projections that lag behind are kept. Adapters: `repair.ledger.lags.LagJournal`, and a list in tests."""

    def journal(self, suspects: Sequence[Suspect], cause: str) -> None:
        """Keep the suspects durably.

        Raises:
            Unjournalled: neither the ledger nor the disk took them. The truth is written all the same.
        """
        ...


class Progress(Protocol):
    """Where long work reports its progress. Adapters: a terminal, plain lines, nothing."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A new stage begins, of `total` steps if that is known."""
        ...

    def advance(self, steps: int, suspects: int = 0) -> None:
        """`steps` more rows (or keys) are done, `suspects` more suspects were found."""
        ...


class Silent:
    """Shows nothing."""

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
    """What reading and changing a schema needs of a cluster. Adapter: `cql.driver.session.CassandraCluster`."""

    release_version: str

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows that a statement returns."""
        ...

    def execute_ddl(self, text: str, seconds: float = ..., agreed: float = ...) -> None:
        """Change the schema, and wait until the nodes agree on it; not at all with `agreed` 0."""
        ...

    def replication_of(self, keyspace: str) -> Mapping[str, str]:
        """The keyspace's replication options; raises `UnknownKeyspace`."""
        ...


class SchemaNodes(Protocol):
    """The nodes of a cluster, as far as their schemas go. Adapter: `cql.driver.nodes.CassandraNodes`."""

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
        """The level of the queue that it came from."""
        ...

    async def ack(self) -> None:
        """The message is processed."""
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

    A queue is James's own topology (facts on James's queue); the priorities beside the normal one are side queues of
    ours, whose names James does not list. Whatever is missing is declared at first use; what is there is looked at
    first, and left as it is.
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
        """Take messages, at most `prefetch` unacked of each level; None: of all ten, declared where missing.

        The iterator goes on over reconnections, with new deliveries. Leaving the context returns unacked messages.
        `on_lost` is called for every consumer (a level has one) that the broker took away or whose connection broke,
        and
        that is set up anew.
        """
        ...

    def dead_letters(self, queue: QueueName, prefetch: int) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """The same for the dead letter queue."""
        ...

    async def depth(self, queue: QueueName) -> Depth:
        """How many messages there are; some seconds old for `unacked`."""
        ...

    async def product(self) -> str:
        """Its name and version, as it tells whoever connects, such as `RabbitMQ 4.0.5`."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Blobs(Protocol):
    """Where the bytes of mails are. Adapters in `mailqueue.blobs`, and a twin in tests."""

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
    """A store of bytes under any id. Adapters in `mailqueue.blobs`, and a twin in tests.

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
        """As `remove`, for distinct ids; after an error some may be left."""
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


class StagingStore(Protocol):
    """Where files of staged rows are. Adapters in `repair.staging`; all of them raise `StateUnwritable`."""

    @property
    def place(self) -> str: ...

    def held(self) -> AbstractContextManager[None]:
        """For one run alone; raises `StagingRefused` where another is at work."""
        ...

    def names(self) -> Mapping[str, int]:
        """The bytes of each whole file, by its name."""
        ...

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, content: bytes) -> None:
        """The file is there whole, or as it was before."""
        ...

    def remove(self, names: Iterable[str]) -> None: ...

    def free_bytes(self) -> int | None:
        """How many more it takes; None where nobody knows."""
        ...


class Child(Protocol):
    """A command at work. Adapters: `admin.jobs.children.ChildProcess`, and a twin in tests."""

    def stop(self) -> None:
        """Ask it to end in good order, as SIGTERM does."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    async def wait(self) -> int:
        """Its exit code, once it has ended and everything that it wrote was read."""
        ...
