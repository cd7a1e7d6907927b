"""A mail's message for the broker: James's body, our headers, and its publishing."""

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
    headers: dict[str, int | str] = {}
    if slice_start is not None:
        headers[SLICE_HEADER] = (slice_start - EPOCH) // _MILLI
    if attempts:
        headers[ATTEMPTS_HEADER] = attempts
    return Message(payload_of(queued), headers)


def slice_of_message(message: Message) -> datetime | None:
    """The start of the slice of the mail's row; None where James published it."""
    millis = message.headers.get(SLICE_HEADER)
    if not isinstance(millis, int):
        return None
    try:
        return EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return None


def attempts_of(message: Message) -> int:
    attempts = message.headers.get(ATTEMPTS_HEADER)
    return attempts if isinstance(attempts, int) and attempts > 0 else 0


async def publish_mail(
    broker: Broker, queue: QueueName, queued: QueuedMail, slice_start: datetime | None, attempts: int = 0
) -> None:
    await broker.publish(queue, message_of(queued, slice_start, attempts), priority_of(queued.mail))
