"""What a queue is made of, and what its operations answer."""

from dataclasses import dataclass, field

from mailqueue.background import BackgroundTasks
from mailqueue.maintenance.blob_cleanup import BlobCleanup
from mailqueue.maintenance.sweep import Sweeper
from mailqueue.metrics import NoCounts, QueueCounts
from mailqueue.rabbitmq.view.due_mails import DueMails
from mailqueue.rabbitmq.view.queue_view import QueueView
from mailqueue.rabbitmq.view.tallies import SliceTallies
from model.ids import EnqueueId
from model.ports import AsyncTables, Blobs, Broker, Clock
from model.queue.slices import Slicing


@dataclass(frozen=True, slots=True)
class Parts:
    """What the operations of one queue share.

    Attributes:
        afterwards: what nobody waits for.
        due: None where the keyspace has no table for delayed mails.
    """

    tables: AsyncTables
    broker: Broker
    blobs: Blobs
    clock: Clock
    slicing: Slicing
    view: QueueView
    sweeper: Sweeper
    tallies: SliceTallies
    afterwards: BackgroundTasks
    tidying: BlobCleanup
    due: DueMails | None = None
    counts: QueueCounts = field(default_factory=NoCounts)


@dataclass(frozen=True, slots=True)
class Unremoved:
    """A mail that could not be removed, and why; it is still in its queue, or nobody knows."""

    enqueue_id: EnqueueId
    why: str


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal came to.

    Attributes:
        count: mails that are no longer in the queue (or would not be, after a dry run); each counted once.
        failed: those that could not be removed.
    """

    count: int = 0
    failed: tuple[Unremoved, ...] = ()
