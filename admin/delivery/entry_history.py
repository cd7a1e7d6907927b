"""One mail on its way out: what its queue holds of it, and what was tried."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from mailmend.admin.delivery.entries_service import matching, with_intents
from mailmend.admin.frame.caller import Caller
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.request import QueueRequest
from mailmend.delivery.mail.journal import JournalledAttempt
from mailmend.delivery.mail.queued import EntryFilter, QueuedEntry
from mailmend.mailqueue.rules.filters import EVERYTHING
from mailmend.model.errors import AccessDenied, ExitCode, NotThere
from mailmend.model.ids import EnqueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowEntryRequest(QueueRequest):
    """Show a mail's entries, or one; `id` is one of the mail, or `mail:number`."""

    id: str


@dataclass(frozen=True, slots=True)
class ShownEntries:
    """All that is known of a mail's entries, or of one.

    Attributes:
        entries: those that are in the queue.
        attempts: what the journal has of them: by recipient, in their order; of those that have left the queue too.
    """

    request: ShowEntryRequest
    entries: tuple[QueuedEntry, ...]
    attempts: tuple[JournalledAttempt, ...]
    at: datetime
    exit: ExitCode = ExitCode.FINE


def show_entry(request: ShowEntryRequest, caller: Caller) -> ShownEntries:
    """Everything that the queue holds of it, and what was tried.

    Raises:
        NotThere: there is none of that id.
    """
    return with_queues(request.settings, partial(entry_shown, request, caller), makes=False)


async def entry_shown(request: ShowEntryRequest, caller: Caller, connections: QueueConnections) -> ShownEntries:
    now = connections.now
    where = EntryFilter(ids=frozenset((request.id,)))
    async with connections.open(dry_run=True) as queue:
        found = [entry async for entry in matching(queue, where, EVERYTHING, now)]
    named = found[0].mail.id if found else _first_id(request.id)
    attempts: Sequence[JournalledAttempt] = ()
    try:
        journal = connections.existing_attempts()
        attempts = await journal.of(request.queue, named, _number(request.id)) if journal and named else ()
    except AccessDenied as error:
        caller.remark(f"What was tried cannot be said: {error.what}")
    if not found and not attempts:
        raise NotThere(
            f"{request.queue} has no {request.id}: it has left the queue, or was never there",
            mend=f"See what is there with: mailmend delivery list {request.queue}",
        )
    return ShownEntries(request, await with_intents(connections, caller, found), tuple(attempts), now)


def _first_id(text: str) -> EnqueueId | None:
    try:
        return EnqueueId(UUID(text.partition(":")[0]))
    except ValueError:
        return None


def _number(text: str) -> int | None:
    number = text.partition(":")[2]
    return int(number) if number.isdecimal() else None
