"""What the operations of one queue share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.concurrency import BackgroundTasks, BlobCleanup
from mailmend.mailqueue.metrics import QueueCounts
from mailmend.mailqueue.queue import no_due_mails
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMails
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.blobs import Blobs
from mailmend.model.ids import QueueName
from mailmend.model.instants import instant_of
from mailmend.model.ports import AsyncTables, Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """One queue's tables, broker, blobs and clock, and what is built of them.

    Attributes:
        maybe_sweep: begins a sweep once in a number of calls.
    """

    queue: QueueName
    tables: AsyncTables
    broker: Broker
    blobs: Blobs
    clock: Clock
    slicing: Slicing
    view: QueueView
    background: BackgroundTasks
    blob_cleanup: BlobCleanup
    maybe_sweep: Callable[[], Awaitable[None]]
    counts: QueueCounts

    @property
    def now(self) -> datetime:
        return instant_of(self.clock.micros())

    @property
    def due_mails(self) -> DueMails:
        """The delayed mails.

        Raises:
            Delayed: the keyspace has no table for them.
        """
        if self.view.due is None:
            raise no_due_mails()
        return self.view.due
