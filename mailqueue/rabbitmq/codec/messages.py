"""A mail's message for the broker: James's body, what headers of ours say beside it, and how it is published."""

from datetime import datetime, timedelta
from typing import Final

from mailqueue.rabbitmq.codec.attributes import priority_of
from mailqueue.rabbitmq.codec.payload import payload_of
from model.ids import QueueName
from model.ports import Broker
from model.queue.mails import QueuedMail
from model.queue.messages import ATTEMPTS_HEADER, SLICE_HEADER, Message
from model.queue.slices import EPOCH

_MILLI: Final = timedelta(milliseconds=1)


def message_of(queued: QueuedMail, slice_start: datetime | None, attempts: int = 0) -> Message:
    """The message of a mail, with the headers of ours that are known."""
    headers: dict[str, int | str] = {}
    if slice_start is not None:
        headers[SLICE_HEADER] = (slice_start - EPOCH) // _MILLI
    if attempts:
        headers[ATTEMPTS_HEADER] = attempts
    return Message(payload_of(queued), headers)


def slice_of_message(message: Message) -> datetime | None:
    """The start of the slice of the mail's row, where one of ours has published it."""
    millis = message.headers.get(SLICE_HEADER)
    if not isinstance(millis, int):
        return None
    try:
        return EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return None


def attempts_of(message: Message) -> int:
    """How often the mail was tried before."""
    attempts = message.headers.get(ATTEMPTS_HEADER)
    return attempts if isinstance(attempts, int) and attempts > 0 else 0


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
