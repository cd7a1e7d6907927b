"""What the operations of one queue share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.every_queue import QueueParts
from mailmend.mailqueue.queue import no_due_mails
from mailmend.mailqueue.rabbitmq.view.backlog_tables import BacklogTables
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMails
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.ports import AsyncTables


@dataclass(frozen=True, slots=True)
class Parts(QueueParts):
    """One queue's tables, broker, blobs and clock, and what is built of them.

    Attributes:
        maybe_sweep: begins a sweep once in a number of calls.
        backlogs: None: the keyspace has no tables for them.
    """

    tables: AsyncTables
    broker: Broker
    slicing: Slicing
    view: QueueView
    maybe_sweep: Callable[[], Awaitable[None]]
    backlogs: BacklogTables | None = None

    @property
    def due_mails(self) -> DueMails:
        """The delayed mails.

        Raises:
            Delayed: the keyspace has no table for them.
        """
        if self.view.due is None:
            raise no_due_mails()
        return self.view.due
