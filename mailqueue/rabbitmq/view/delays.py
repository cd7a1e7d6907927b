"""What moving delayed mails would come to, read from their listing; nothing is moved."""

from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from mailqueue.rabbitmq.view.queue_view import QueueView
from model.ids import QueueName
from model.queue.filters import MailFilter
from model.queue.mails import Whereabouts

_DELAYED = MailFilter(whereabouts=Whereabouts.DELAYED)


@dataclass(frozen=True, slots=True)
class Delays:
    """Delayed mails: how many, and when the first and the last of them are due; None where there are none."""

    count: int = 0
    earliest_at: datetime | None = None
    latest_at: datetime | None = None


async def delays(view: QueueView, queue: QueueName, until: datetime | None = None) -> Delays:
    """The delayed mails of a queue; none where the keyspace has no table for them.

    One that cannot be read is left out, for it is not moved either.

    Args:
        view: the queues.
        queue: whose.
        until: those alone that are due by then; None: all, as a flush moves them.

    Raises:
        CannotReach: the tables did not answer.
    """
    count, earliest, latest = 0, None, None
    async with aclosing(view.browse(queue, _DELAYED)) as mails:
        async for listed in mails:
            if until is not None and listed.due_at is not None and listed.due_at > until:
                break
            count, earliest, latest = count + 1, earliest or listed.due_at, listed.due_at
    return Delays(count, earliest, latest)
