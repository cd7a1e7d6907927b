"""How a mail goes to the broker: its message, naming its slice, at its priority; first, again, or driven back."""

from datetime import datetime

from mailqueue.rabbitmq.codec import message_of, priority_of
from model.ids import QueueName
from model.ports import Broker
from model.queue.mails import QueuedMail


async def publish_mail(
    broker: Broker, queue: QueueName, queued: QueuedMail, slice_start: datetime | None, attempts: int = 0
) -> None:
    """Publish the mail, and wait until the broker has confirmed it.

    Args:
        broker: where.
        queue: the mail's.
        queued: the mail.
        slice_start: of the slice in which its row lies; None: not known.
        attempts: how often it was tried before.

    Raises:
        BrokerUnreachable, PublishFailed: it is not in the queue, or that is in doubt.
    """
    await broker.publish(queue, message_of(queued, slice_start, attempts), priority_of(queued.mail))
