"""Dead letters go back into their queue: by their rows where those are, else with rows of their own; marked ones go.

A dead letter is acked only when its mail has a message again, so a crash leaves it twice, never nowhere; the second
copy is dropped by the mark of the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mailqueue.codec import priority_of, queued_of
from mailqueue.mail_queue import MailQueue
from mailqueue.ports import Delivery
from mailqueue.reconciling.comparing import DRAIN_MAX, IDS_MAX, refuse_too_many
from mailqueue.reconciling.looks import next_within, patience
from mailqueue.serving.enqueueing import message_of
from model.errors import BadPayload
from model.ids import EnqueueId
from model.mail_filters import Where
from model.mails import QueuedMail, Whereabouts

AT_ONCE: Final = 500
"""How many dead letters are in hand at once; so many that cannot be read end a redrive, for none comes behind them."""

_WAITING: Final = Where(whereabouts=Whereabouts.WAITING)


@dataclass(slots=True)
class Redriven:
    """What became of the dead letters, or would.

    Attributes:
        redriven: those that are in the queue again.
        dropped: those whose mails were marked meanwhile.
        unreadable: those that tell of no mail; they stay where they are.
    """

    redriven: int = 0
    dropped: int = 0
    unreadable: int = 0

    @property
    def seen(self) -> int:
        """All that were looked at."""
        return self.redriven + self.dropped + self.unreadable


async def redrive(queue: MailQueue, limit: int | None = None, *, dry_run: bool = False) -> Redriven:
    """Put dead letters back into their queue.

    A dry run holds all of them to its end, or each would come again.

    Raises:
        BrokerUnreachable, CannotReach: a side does not answer; what is back stays back.
    """
    done, rows = Redriven(), await _slices(queue)
    expected = (await queue.parts.broker.depth(queue.name)).dead
    async with queue.parts.broker.dead_letters(queue.name, DRAIN_MAX if dry_run else AT_ONCE) as letters:
        while limit is None or done.seen < limit:
            letter = await next_within(letters, queue.parts.clock, patience(done.seen, expected))
            if letter is None:
                break
            await _redriven(queue, letter, rows, done, dry_run=dry_run)
    return done


async def _redriven(
    queue: MailQueue, letter: Delivery, rows: Mapping[EnqueueId, datetime | None], done: Redriven, *, dry_run: bool
) -> None:
    try:
        queued = queued_of(letter.message.body)
    except BadPayload:
        done.unreadable += 1  # it stays in hand, and goes back when all is done
        return
    marked = await queue.parts.view.marked(queue.name, queued.enqueue_id)
    if not dry_run:
        if not marked:
            await _published(queue, queued, rows.get(queued.enqueue_id))
        await letter.ack()
    done.dropped += marked
    done.redriven += not marked


async def _published(queue: MailQueue, queued: QueuedMail, slice_start: datetime | None) -> None:
    slice_start = slice_start or await queue.parts.view.place(queue.name, queued)
    await queue.parts.broker.publish(queue.name, message_of(queued, slice_start), priority_of(queued.mail))


async def _slices(queue: MailQueue) -> dict[EnqueueId, datetime | None]:
    """Where rows are: James leaves those of the mails that it rejects."""
    found: dict[EnqueueId, datetime | None] = {}
    async for listed in queue.browse(_WAITING):
        refuse_too_many(len(found) + 1, f"mails in {queue.name}", IDS_MAX)
        found[listed.queued.enqueue_id] = listed.slice_start
    return found
