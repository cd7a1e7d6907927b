"""Putting a mail into a queue: its blobs, then its message, confirmed; after a failure its blobs go again.

Where a confirmation does not come, the mail may be there all the same: then its blobs stay, and the error says so.
"""

from datetime import datetime

from mailmend.mailqueue.blobs.stores import forget, put_content
from mailmend.mailqueue.codec.admission import admitted
from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.broker.messages import delayed_message, waiting_message
from mailmend.mailqueue.pulsar.broker.names import out_subscription, out_topic, scheduled_subscription, scheduled_topic
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.rules.mails import Listed, Mail, QueuedMail, Whereabouts
from mailmend.model.errors import MailmendError, PublishFailed
from mailmend.model.ids import EnqueueId


async def enqueue(
    parts: PulsarParts,
    mail: Mail,
    content: bytes,
    due_at: datetime | None,
    priority: int | None,
    *,
    known_as: EnqueueId | None = None,
    was_queued: bool = False,
) -> EnqueueId:
    mail = admitted(mail, priority, was_queued=was_queued)
    enqueue_id = known_as or EnqueueId(parts.clock.random_uuid())
    try:
        await put(parts, enqueue_id, mail, content, due_at)
    except BaseException:
        parts.counts.add(QueueCount.ENQUEUE_FAILED, parts.queue)
        raise
    parts.counts.add(QueueCount.ENQUEUED, parts.queue)
    return enqueue_id


async def put(parts: PulsarParts, enqueue_id: EnqueueId, mail: Mail, content: bytes, due_at: datetime | None) -> None:
    """Put a mail under an id that was chosen."""
    queued = QueuedMail(enqueue_id, mail, await put_content(parts.blobs, content))
    whereabouts = Whereabouts.DELAYED if due_at else Whereabouts.WAITING
    listed = Listed(queued, parts.now, whereabouts, due_at=due_at)
    try:
        await finished(_published(parts, listed))
    except PublishFailed as error:
        if error.doubtful:
            error.mend = f"The mail {enqueue_id} may be in the queue all the same: mailmend queue browse {parts.queue}"
            raise
        await finished(_forgotten(parts, queued, error))
        raise
    except MailmendError as error:
        await finished(_forgotten(parts, queued, error))
        raise


async def _published(parts: PulsarParts, listed: Listed) -> None:
    queue = parts.queue
    delayed = listed.whereabouts is Whereabouts.DELAYED
    if delayed:
        await parts.topics.create(scheduled_topic(queue), scheduled_subscription(queue))
    await parts.topics.create(out_topic(queue), out_subscription(queue))  # only that makes it a queue among all
    if delayed:
        await parts.topics.publish(scheduled_topic(queue), delayed_message(listed, await parts.form()))
    else:
        await parts.topics.publish(out_topic(queue), waiting_message(listed, await parts.form()))


async def _forgotten(parts: PulsarParts, queued: QueuedMail, error: MailmendError) -> None:
    try:
        await forget(parts.blobs, queued.blobs)
    except MailmendError as failure:
        error.mend = f"Blobs of the mail {queued.enqueue_id} are left without a reference ({failure.what})."
