"""Mails that were taken out of a queue go back into it, each once, however often that is begun again.

The id of the new passage follows from that of the old one, so a restore that was killed at any step is seen by the next
one. What is marked came back and has left since. What is delayed is back. What waits is back too, but nobody knows
whether its publish was confirmed: it is published again, for its second copy is dropped by the mark of the first. And
what is listed under its old id never left: whoever took it out was killed before that.

What fails here is not undone: a mark would hide the mail from the next try.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from mailqueue.blobs.contents import put_content
from mailqueue.maintenance.comparison import LiveMail
from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.broker.mails import publish_mail
from mailqueue.rabbitmq.codec.admission import admissible
from mailqueue.rabbitmq.enqueue import needs_due_mails
from mailqueue.rabbitmq.mail_queue import MailQueue
from model.ids import EnqueueId, restored_id
from model.instants import instant_of
from model.queue.filters import MailFilter
from model.queue.mails import LOOKS, Listed, Mail, QueuedMail, Whereabouts


class RestoreResult(Enum):
    """What brings a mail back."""

    PUT = "put"  # all of it: nothing is there
    PUBLISH = "publish"  # a message, for its row is there
    NOTHING = "nothing"  # it is back, or was and has left since
    STAYS = "stays"  # it never left


@dataclass(frozen=True, slots=True)
class Traces:
    """What is to be seen of a mail.

    Attributes:
        marked: whether its new passage is over.
        back: its new passage, as it is listed.
        stays: whether its old passage is listed.
    """

    marked: bool = False
    back: LiveMail | None = None
    stays: bool = False


def return_of(traces: Traces) -> RestoreResult:
    """What brings such a mail back. What its new passage shows outweighs the old one."""
    if traces.marked:
        return RestoreResult.NOTHING
    if traces.back is not None:
        return RestoreResult.NOTHING if traces.back.slice_start is None else RestoreResult.PUBLISH
    return RestoreResult.STAYS if traces.stays else RestoreResult.PUT


@dataclass(frozen=True, slots=True)
class RemovedMail:
    """A mail that was taken out.

    Attributes:
        was: its id before.
        due_at: when it comes, if not at once.
    """

    was: EnqueueId
    mail: Mail
    content: bytes
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Restoring:
    """Brings mails back into one queue.

    Attributes:
        listed: what the queue shows of them, under old and new ids.
    """

    queue: MailQueue
    listed: Mapping[EnqueueId, LiveMail]

    async def restore(self, leaver: RemovedMail) -> RestoreResult:
        """Bring a mail back; what that took.

        Raises:
            WrongUse: James could not read such a mail; nothing was put anywhere.
            Delayed: it is delayed, and delays are not possible here.
            CannotReach, PublishFailed: some of it may be there; the same again goes on from that.
        """
        traces = await self._traces(leaver.was)
        what = return_of(traces)
        if what is RestoreResult.PUT:
            await self._put(leaver)
        elif what is RestoreResult.PUBLISH and traces.back is not None:
            await self._published(self._passage(leaver, traces.back), traces.back.slice_start)
        return what

    async def _traces(self, was: EnqueueId) -> Traces:
        new = restored_id(was, self.queue.name)
        marked = await self.queue.parts.view.marked(self.queue.name, new)
        return Traces(marked, self.listed.get(new), was in self.listed)

    async def _put(self, leaver: RemovedMail) -> None:
        parts, name = self.queue.parts, self.queue.name
        due = None if leaver.due_at is None else needs_due_mails(parts.due)
        mail, now = admissible(leaver.mail), instant_of(parts.clock.micros())
        queued = QueuedMail(restored_id(leaver.was, name), mail, await put_content(parts.blobs, leaver.content))
        if due is None:
            await parts.view.placement(name, queued, now).settle(beside=lambda at: self._published(queued, at))
        else:
            await parts.view.ground.begun(name, parts.slicing.window)
            await due.put(name, Listed(queued, now, Whereabouts.DELAYED, due_at=leaver.due_at), again=True)
        parts.counts.add(QueueCount.ENQUEUED, name)

    def _passage(self, leaver: RemovedMail, back: LiveMail) -> QueuedMail:
        return QueuedMail(restored_id(leaver.was, self.queue.name), leaver.mail, back.blobs)

    async def _published(self, queued: QueuedMail, slice_start: datetime | None) -> None:
        await publish_mail(self.queue.parts.broker, self.queue.name, queued, slice_start)


async def restoring(queue: MailQueue, leavers: Collection[EnqueueId]) -> Restoring:
    """Look for the mails in the queue, before they are brought back: one listing for all.

    Args:
        queue: that they were in.
        leavers: their old ids.

    Raises:
        CannotReach: the tables do not answer.
    """
    wanted = frozenset(leavers).union(restored_id(one, queue.name) for one in leavers)
    if not wanted:
        return Restoring(queue, {})
    found = dict[EnqueueId, LiveMail]()
    for whereabouts in LOOKS:
        async for one in queue.browse(MailFilter(enqueue_ids=wanted, whereabouts=whereabouts)):
            found[one.queued.enqueue_id] = LiveMail.of(one)
    return Restoring(queue, found)
