"""Taking in mails of another queue, each once: their ids tell which of them came.

A mark: the mail came, and has left since. A row: it is there, but it is unknown whether its publish
was confirmed, so it is published again, and the mark of the first copy drops the second. Neither:
it never came.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mailmend.mailqueue.arrivals import RestoreResult
from mailmend.mailqueue.blobs.stores import put_content
from mailmend.mailqueue.codec import publish_mail
from mailmend.mailqueue.comparison import LiveMail
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.restore import listed_among, put, return_of
from mailmend.mailqueue.rules.mails import Listed, MailBlobs
from mailmend.model.ids import EnqueueId


@dataclass(frozen=True, slots=True)
class QueueArrivals:
    """Implements `mailqueue.arrivals.Arrivals`.

    Attributes:
        there: the doubtful mails that the queue shows.
    """

    parts: Parts
    there: Mapping[EnqueueId, LiveMail]

    async def had(self, ids: Collection[EnqueueId]) -> frozenset[EnqueueId]:
        return frozenset(await self.parts.view.marks.among(self.parts.queue, list(ids)))

    async def keep(self, content: bytes) -> MailBlobs:
        return await put_content(self.parts.blobs, content)

    async def put(self, listed: Listed, *, again: bool = False) -> None:
        parts = self.parts
        queued = listed.queued
        back = None
        result = RestoreResult.PUT
        if again:
            back = self.there.get(queued.enqueue_id)
            marked = await parts.view.marks.there(parts.queue, queued.enqueue_id)
            result = return_of(marked=marked, back=back, stays=False)
        if result is RestoreResult.PUT:
            await put(parts, listed)
        elif result is RestoreResult.PUBLISH and back is not None:
            await publish_mail(parts.broker, parts.queue, queued, back.slice_start, listed.attempts)

    async def end(self) -> None:
        """Nothing is kept in addition to the mails."""


async def arrivals(parts: Parts, doubtful: Collection[EnqueueId]) -> QueueArrivals:
    return QueueArrivals(parts, await listed_among(parts, frozenset(doubtful)))
