"""Recipients of a queue's mails on their way out: listed, shown, grouped."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from mailmend.admin.delivery.entry_selection import EntrySelection
from mailmend.admin.frame.caller import Caller
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.request import PAGE_MAILS, QueueAnswer, QueueRequest
from mailmend.delivery.mail.entries import EntryState
from mailmend.delivery.mail.envelopes import queued_entries
from mailmend.delivery.mail.queued import EntryField, EntryFilter, QueuedEntry
from mailmend.mailqueue.queue import MailQueue
from mailmend.mailqueue.rules.filters import EVERYTHING, MailFilter
from mailmend.mailqueue.rules.positions import ListingPosition
from mailmend.model.errors import AccessDenied, ExitCode

GROUPS_MAX: Final = 10_000
"""So many groups are counted; what belongs to a further one is counted together, with no values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesRequest(QueueRequest):
    """List the entries of so many mails."""

    selection: EntrySelection = field(default_factory=EntrySelection)
    limit: int = PAGE_MAILS
    after: ListingPosition | None = None


@dataclass(frozen=True, slots=True)
class EntriesPage:
    """Entries, in the order of their queue's listing.

    Attributes:
        at: the time of the listing.
        next: where the next page begins; None: this was the last one.
    """

    request: QueueRequest
    entries: tuple[QueuedEntry, ...]
    at: datetime
    next: ListingPosition | None = None
    exit: ExitCode = ExitCode.FINE


def list_entries(request: EntriesRequest, caller: Caller) -> EntriesPage:
    return with_queues(request.settings, partial(entries_page, request, caller), makes=False)


async def entries_page(request: EntriesRequest, caller: Caller, connections: QueueConnections) -> EntriesPage:
    now = connections.now
    found = list[QueuedEntry]()
    count = 0
    last = None
    where = request.selection.at(now)
    async with connections.open(dry_run=True) as queue, aclosing(queue.browse(EVERYTHING, request.after)) as mails:
        async for mail in mails:
            some = [entry for entry in queued_entries(mail, now) if where.matches(entry)]
            if some and count == request.limit:
                return EntriesPage(request, await with_intents(connections, caller, found), now, last)
            found += some
            count += bool(some)
            last = ListingPosition.of(mail) if some else last
    return EntriesPage(request, await with_intents(connections, caller, found), now)


async def with_intents(
    connections: QueueConnections, caller: Caller, found: Sequence[QueuedEntry]
) -> tuple[QueuedEntry, ...]:
    """The active ones with what is to follow their attempts."""
    queue = connections.settings.name
    now = connections.now
    mails = list(dict.fromkeys(entry.entry.id.mail for entry in found if entry.state is EntryState.ACTIVE))
    ledger = connections.existing_intents() if mails else None
    try:
        known = await ledger.of_all(queue, mails) if ledger and await ledger.are_there(queue) else {}
    except AccessDenied as error:
        caller.remark(f"What was ordered for after attempts is not shown: {error.what}")
        known = {}
    lasting = {name: change for name, change in known.items() if change.until is None or change.until > now}
    return tuple(
        replace(entry, after_attempt=lasting.get(entry.entry.id)) if entry.state is EntryState.ACTIVE else entry
        for entry in found
    )


@dataclass(slots=True)
class EntryGroup:
    """Entries that have the same values.

    Attributes:
        oldest_at: when the first of their mails was first seen.
        due_at: when the first of the deferred ones is tried again.
    """

    states: Counter[EntryState] = field(default_factory=Counter)
    oldest_at: datetime | None = None
    due_at: datetime | None = None

    def add(self, one: QueuedEntry) -> None:
        self.states[one.state] += 1
        self.oldest_at = min(one.mail.first_seen_at, self.oldest_at or one.mail.first_seen_at)
        if one.due_at:
            self.due_at = min(one.due_at, self.due_at or one.due_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEntriesRequest(QueueRequest):
    """Count entries by their values; by none: by domain."""

    selection: EntrySelection = field(default_factory=EntrySelection)
    by: tuple[EntryField, ...] = ()

    @property
    def fields(self) -> tuple[EntryField, ...]:
        return self.by or (EntryField.DOMAIN,)


Groups = Sequence[tuple[tuple[str, ...], EntryGroup]]
"""By the values of the request's fields, the largest first; no values: the rest."""


def group_entries(request: GroupEntriesRequest, caller: Caller) -> QueueAnswer[GroupEntriesRequest, Groups]:
    return with_queues(request.settings, partial(entries_grouped, request, caller), makes=False)


async def entries_grouped(
    request: GroupEntriesRequest, _: Caller, connections: QueueConnections
) -> QueueAnswer[GroupEntriesRequest, Groups]:
    groups = dict[tuple[str, ...], EntryGroup]()
    async with connections.open(dry_run=True) as queue:
        where = request.selection.at(connections.now)
        async for entry in matching(queue, where, EVERYTHING, connections.now):
            values = tuple(named.of(entry) for named in request.fields)
            key = values if values in groups or len(groups) < GROUPS_MAX else ()
            groups.setdefault(key, EntryGroup()).add(entry)
    ordered = sorted(groups.items(), key=lambda item: (-item[1].states.total(), item[0]))
    return QueueAnswer(request, ordered)


async def matching(
    queue: MailQueue, where: EntryFilter, mails_where: MailFilter, now: datetime
) -> AsyncGenerator[QueuedEntry]:
    """The entries of a listing that a filter chooses."""
    async with aclosing(queue.browse(mails_where)) as mails:
        async for mail in mails:
            for entry in queued_entries(mail, now):
                if where.matches(entry):
                    yield entry
