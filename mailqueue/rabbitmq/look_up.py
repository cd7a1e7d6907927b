"""Looking a delivery up: its mark first, then its bytes, and beside them its row, where a missing one says anything.

The mark comes first because the bytes of a marked mail may be gone: a mail that an operator deleted is dropped, and no
alarm is raised over what it lacks. Most deliveries need no third look-up; the others have it while their bytes are on
the way.
"""

import asyncio
import logging
from functools import partial
from typing import Final

from mailqueue.blobs.contents import content_of
from mailqueue.rabbitmq.codec import queued_of, slice_of_message
from mailqueue.rabbitmq.missing_row import MissingRows, RowState
from mailqueue.rabbitmq.parts import Parts
from mailqueue.rabbitmq.verdicts import Blob, Sight
from mailqueue.rabbitmq.view.mark_lookups import MarkLookups
from model.errors import BadPayload, BlobMissing, MailmendError
from model.ids import QueueName
from model.ports import Delivery
from model.queue.mails import MailBlobs, QueuedMail

_LOG: Final = logging.getLogger("mailmend.queue")


class Looking:
    """Looks up the deliveries of one consumer."""

    def __init__(self, queue: QueueName, parts: Parts) -> None:
        self.queue, self.parts, view = queue, parts, parts.view
        self._rowless = MissingRows(queue, parts)
        self._marks = MarkLookups(partial(view.marked, queue), partial(view.marked_among, queue))

    async def close(self) -> None:
        """Stop asking."""
        await self._marks.close()

    def read(self, delivery: Delivery) -> Sight:
        """The delivery's mail, not looked up yet."""
        try:
            return Sight(queued_of(delivery.message.body))
        except BadPayload as error:
            return Sight(None, silence=error.what)

    async def sight(self, queued: QueuedMail, delivery: Delivery) -> Sight:
        """What is to be seen of it. Never raises but when cancelled: what did not answer is part of the sight."""
        try:
            return await self._sight(queued, delivery)
        except MailmendError as error:
            return Sight(queued, silence=error.what)
        except Exception as error:  # noqa: BLE001 - no single mail ends the stream
            _LOG.exception("queue %s: mail %s could not be looked up", self.queue, queued.enqueue_id)
            return Sight(queued, silence=type(error).__name__)

    async def _sight(self, queued: QueuedMail, delivery: Delivery) -> Sight:
        if await self.marked(queued):
            return Sight(queued, marked=True)
        content, row = await asyncio.gather(self._content(queued.blobs), self._row(queued, delivery))
        if content is None:
            return Sight(queued, await self.marked(queued), row, Blob.MISSING)
        return Sight(queued, row=row, blob=Blob.LOADED, content=content)

    async def marked(self, queued: QueuedMail) -> bool:
        """Whether the mail is marked by now."""
        return await self._marks.marked(queued.enqueue_id)

    async def _content(self, blobs: MailBlobs) -> bytes | None:
        try:
            return await content_of(self.parts.blobs, blobs)
        except (BlobMissing, BadPayload):  # what is no id of a blob names none
            return None

    async def _row(self, queued: QueuedMail, delivery: Delivery) -> RowState:
        """That of a dead letter was taken away, and nothing follows from that."""
        if delivery.dead_lettered:
            return RowState.EXPECTED
        return await self._rowless.look(queued, slice_of_message(delivery.message))
