"""Putting a mail into a queue: blobs, row, then a confirmed publish; after a failure each step is undone.

The caller hears of success only when the broker has confirmed the mail, or its row among the delayed ones is written;
of an error only when the mail is not delivered: nothing of it was published, or a mark hides what may have been. What
cannot even be undone is named in the error. Cancelled, it undoes as after an error. A mail whose id was chosen is not
undone: it may have been put before under that id, and a mark would hide that one too. The caller puts it again.
Source: James's ADR-31; docs/design.md, "Queue".
"""

import logging
from datetime import datetime
from typing import Final

from mailmend.mailqueue.blobs.stores import forget, put_content
from mailmend.mailqueue.codec import publish_mail
from mailmend.mailqueue.codec.admission import admitted
from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMails
from mailmend.mailqueue.rules.mails import Listed, Mail, QueuedMail, Whereabouts
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId

_LOG: Final = logging.getLogger("mailmend.queue")


async def enqueue(
    parts: Parts,
    mail: Mail,
    content: bytes,
    due_at: datetime | None,
    priority: int | None,
    *,
    known_as: EnqueueId | None = None,
    was_queued: bool = False,
) -> EnqueueId:
    due = None if due_at is None else parts.due_mails
    mail = admitted(mail, priority, was_queued=was_queued)
    enqueue_id = known_as or EnqueueId(parts.clock.random_uuid())
    again = known_as is not None
    try:
        queued = QueuedMail(enqueue_id, mail, await put_content(parts.blobs, content))
        if due is None or due_at is None:
            await _deliver(parts, queued, again=again)
        else:
            await _delay(parts, due, queued, due_at, again=again)
    except BaseException:
        parts.counts.add(QueueCount.ENQUEUE_FAILED, parts.queue)
        raise
    parts.counts.add(QueueCount.ENQUEUED, parts.queue)
    return enqueue_id


async def _deliver(parts: Parts, queued: QueuedMail, *, again: bool) -> None:
    placement = parts.view.rows.placement(parts.queue, queued)

    async def publish(slice_start: datetime) -> None:
        await publish_mail(parts.broker, parts.queue, queued, slice_start)

    try:
        await placement.settle(beside=publish)
    except BaseException as error:
        if not again:
            await finished(_undo(parts, queued, error, placement.slice_start))
        raise


async def _delay(parts: Parts, due: DueMails, queued: QueuedMail, due_at: datetime, *, again: bool) -> None:
    """A queue of delayed mails alone needs a browse start too: only that lists it among all queues."""
    listed = Listed(queued, parts.now, Whereabouts.DELAYED, due_at=due_at)
    try:
        if parts.queue not in parts.view.starts_seen:
            await parts.view.begun(parts.queue, parts.slicing.window)
        await due.put(parts.queue, listed, again=again)
    except BaseException as error:
        if not again:
            await finished(_undo(parts, queued, error, None))
        raise


async def _undo(parts: Parts, queued: QueuedMail, error: BaseException, slice_start: datetime | None) -> None:
    """Mark the mail, then delete its blobs; they stay while it may still be delivered."""
    try:
        await parts.view.mark(parts.queue, queued.enqueue_id, slice_start)
    except MailmendError as failure:
        _left(parts, error, queued, f"its row may still be listed, and its blobs are left ({failure.what})")
        return
    try:
        await forget(parts.blobs, queued.blobs)
    except MailmendError as failure:
        _left(parts, error, queued, f"its blobs are left without a reference ({failure.what})")


def _left(parts: Parts, error: BaseException, queued: QueuedMail, left: str) -> None:
    warning = f"The mail {queued.enqueue_id} was not undone in full: {left}."
    _LOG.warning(
        "a mail was not undone in full", extra={"queue": parts.queue, "mail": queued.enqueue_id, "error": left}
    )
    if isinstance(error, MailmendError):
        error.mend = f"{warning} See: mailmend queue reconcile --queue {parts.queue}"
