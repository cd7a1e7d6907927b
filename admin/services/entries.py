"""Recipients of a queue's mails on their way out: listed, shown, grouped; held, released, retried, deferred, ended.

Only what is held or deferred is changed: an active one is with a server, or on its way to one.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from admin.services.caller import Caller
from admin.services.queue.remove import LISTED_MAX
from admin.services.queue.removed_mails import RemovedMailsFile, removed_mails_path
from admin.services.queue.request import PAGE_MAILS, DryRunRequest, QueueAnswer, QueueRequest, confirm
from admin.wiring.cluster import owner_name, state_folder
from admin.wiring.queues import QueueConnections, with_queues
from delivery.envelopes import changed_mail, part_of_mail, queued_entries
from mailqueue.queue import WAITING, ChangedMail, MailQueue, Unremoved
from model.delivery.entries import EntryState
from model.delivery.queued import EntryAction, EntryChange, EntryField, EntryFilter, QueuedEntry
from model.errors import ExitCode, WrongUse
from model.ids import EnqueueId
from model.queue.filters import EVERYTHING, MailFilter
from model.queue.mails import Listed, Whereabouts
from model.queue.positions import ListingPosition

GROUPS_MAX: Final = 10_000
"""So many groups are counted; what belongs to a further one is counted together, with no values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySelection:
    """Which entries, relative to the time of the request; by default all. `retries`: at least, and at most, so many."""

    ids: tuple[str, ...] = ()
    texts: Mapping[EntryField, tuple[str, ...]] = field(default_factory=dict)
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    states: tuple[EntryState, ...] = ()
    retries: tuple[int, int | None] = (0, None)
    older_than: timedelta | None = None
    newer_than: timedelta | None = None

    def at(self, now: datetime) -> EntryFilter:
        return EntryFilter(
            ids=frozenset(self.ids),
            texts=self.texts,
            attributes=self.attributes,
            states=frozenset(self.states),
            refusals_min=self.retries[0],
            refusals_max=self.retries[1],
            older_than_at=now - self.older_than if self.older_than else None,
            newer_than_at=now - self.newer_than if self.newer_than else None,
        )


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


def list_entries(request: EntriesRequest, _: Caller) -> EntriesPage:
    async def listed(connections: QueueConnections) -> EntriesPage:
        now, found, count, last = connections.now, list[QueuedEntry](), 0, None
        where = request.selection.at(now)
        async with connections.open(dry_run=True) as queue, aclosing(queue.browse(EVERYTHING, request.after)) as mails:
            async for mail in mails:
                some = [one for one in queued_entries(mail, now) if where.matches(one)]
                if some and count == request.limit:
                    return EntriesPage(request, tuple(found), now, last)
                found += some
                count += bool(some)
                last = ListingPosition.of(mail) if some else last
        return EntriesPage(request, tuple(found), now)

    return with_queues(request.settings, listed, makes=False)


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


def group_entries(request: GroupEntriesRequest, _: Caller) -> QueueAnswer[GroupEntriesRequest, Groups]:
    async def grouped(connections: QueueConnections) -> QueueAnswer[GroupEntriesRequest, Groups]:
        groups = dict[tuple[str, ...], EntryGroup]()
        async with connections.open(dry_run=True) as queue:
            where = request.selection.at(connections.now)
            async for one in matching(queue, where, EVERYTHING, connections.now):
                values = tuple(named.of(one) for named in request.fields)
                key = values if values in groups or len(groups) < GROUPS_MAX else ()
                groups.setdefault(key, EntryGroup()).add(one)
        ordered = sorted(groups.items(), key=lambda item: (-item[1].states.total(), item[0]))
        return QueueAnswer(request, ordered)

    return with_queues(request.settings, grouped, makes=False)


async def matching(
    queue: MailQueue, where: EntryFilter, mails_where: MailFilter, now: datetime
) -> AsyncGenerator[QueuedEntry]:
    """The entries of a listing that a filter chooses."""
    async with aclosing(queue.browse(mails_where)) as mails:
        async for mail in mails:
            for one in queued_entries(mail, now):
                if where.matches(one):
                    yield one


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEntriesRequest(DryRunRequest):
    """Change entries that are held or deferred.

    Attributes:
        everything: every entry of the queue; then nothing is selected.
        why: for those who find them so, and for the sender of one that is bounced.
        lasts: of DEFER: how long.
        no_keep: of what is bounced or deleted no copy is kept.
        yes: whether a person has agreed to that already.
    """

    selection: EntrySelection = field(default_factory=EntrySelection)
    everything: bool = False
    why: str = ""
    lasts: timedelta | None = None
    no_keep: bool = False
    yes: bool = False


@dataclass(slots=True)
class ChangedEntries:
    """What became of the entries that were selected.

    Attributes:
        count: entries that were changed, or would be.
        mails: of how many mails.
        active: entries that were selected, and left alone as a server may have them.
        listed: the first of those that would be changed, in a dry run.
        kept: the file of what was bounced or deleted; None without one.
        without_content: how many are kept without bytes, which were missing already.
    """

    request: ChangeEntriesRequest
    change: EntryChange
    count: int = 0
    mails: int = 0
    active: int = 0
    listed: list[QueuedEntry] = field(default_factory=list)
    failed: tuple[Unremoved, ...] = ()
    kept: Path | None = None
    without_content: int = 0

    @property
    def exit(self) -> ExitCode:
        return ExitCode.PARTLY_FAILED if self.failed else ExitCode.FINE


def hold(request: ChangeEntriesRequest, caller: Caller) -> ChangedEntries:
    """Hold entries until somebody releases them; they do not expire."""
    return _changed(EntryAction.HOLD, request, caller)


def release(request: ChangeEntriesRequest, caller: Caller) -> ChangedEntries:
    """Let held entries be tried at once."""
    return _changed(EntryAction.RELEASE, request, caller)


def retry(request: ChangeEntriesRequest, caller: Caller) -> ChangedEntries:
    """Let deferred entries be tried at once."""
    return _changed(EntryAction.RETRY, request, caller)


def defer(request: ChangeEntriesRequest, caller: Caller) -> ChangedEntries:
    """Let deferred entries be tried later, or earlier, than their schedule says."""
    return _changed(EntryAction.DEFER, request, caller)


def bounce(request: ChangeEntriesRequest, caller: Caller) -> ChangedEntries:
    """Give entries up, and have a server tell their senders; a copy is kept.

    Raises:
        UnsafeRequest: no person agreed.
    """
    return _changed(EntryAction.BOUNCE, request, caller)


def delete(request: ChangeEntriesRequest, caller: Caller) -> ChangedEntries:
    """Remove entries, and tell nobody; a copy is kept.

    Raises:
        UnsafeRequest: no person agreed.
    """
    return _changed(EntryAction.DELETE, request, caller)


def _changed(action: EntryAction, request: ChangeEntriesRequest, caller: Caller) -> ChangedEntries:
    if request.selection == EntrySelection() and not request.everything:
        mend = f"Say which, like --domain example.org; every one: mailmend delivery {action.value} --all"
        raise WrongUse("nothing is selected, so it would be every recipient", mend=mend)
    if request.selection != EntrySelection() and request.everything:
        raise WrongUse("--all is every recipient, and others are selected", mend="Leave out the one or the other.")

    async def changed(connections: QueueConnections) -> ChangedEntries:
        now = connections.now
        until = now + request.lasts if request.lasts else None
        change = EntryChange(action=action, at=now, owner=owner_name(), reason=request.why, until=until)

        def one_pass() -> _Changing:
            return _Changing(connections, caller, ChangedEntries(request, change))

        async with connections.open(dry_run=request.dry_run) as queue:
            if action.is_final and not request.dry_run and not request.yes:
                count = (await one_pass().carried_out(queue, dry_run=True)).count
                forgotten = ", without keeping them" if request.no_keep else ""
                what = f"{action.value.capitalize()} {count:,} recipients of {request.queue}{forgotten}"
                confirm(f"{what}?", caller, yes=False)
            caller.progress.stage(f"{action.value} {request.queue}")
            result = await one_pass().carried_out(queue, dry_run=request.dry_run)
            async for one in matching(queue, request.selection.at(now), WAITING, now):
                result.active += one.state is EntryState.ACTIVE
        return result

    return with_queues(request.settings, changed)


class _Changing:
    """One pass over a queue: what is delayed is changed; mails without a recipient left are removed behind it."""

    def __init__(self, connections: QueueConnections, caller: Caller, result: ChangedEntries) -> None:
        request, change = result.request, result.change
        self._connections, self._caller, self._result = connections, caller, result
        self._where = request.selection.at(change.at)
        path = removed_mails_path(state_folder("queue"), request.queue, change.at, change.action.value)
        self._file = RemovedMailsFile(path, request.queue)
        self._keeps = change.action.is_final and not request.no_keep
        self._meant = dict[EnqueueId, Sequence[QueuedEntry]]()
        self._whole = dict[EnqueueId, Sequence[QueuedEntry]]()

    async def carried_out(self, queue: MailQueue, *, dry_run: bool) -> ChangedEntries:
        result, keep = self._result, self._keep if self._keeps else None

        def changed_one(mail: Listed) -> None:
            self._note(mail.queued.enqueue_id, self._meant)

        try:
            changed = await queue.change(self._change, dry_run=dry_run, on_change=keep, on_changed=changed_one)
            removed = await self._removed(queue, dry_run=dry_run)
        finally:
            result.kept = self._file.path if self._file.count else None
            if result.kept:
                self._caller.remark(f"Kept in {result.kept}")
        result.failed = (*changed.failed, *removed)
        return result

    def _change(self, mail: Listed) -> ChangedMail | None:
        change = self._result.change
        chosen, behind = changed_mail(mail, self._where, change, change.at)
        if chosen:
            meant = self._whole if behind is None else self._meant
            meant[mail.queued.enqueue_id] = chosen
        return behind

    async def _removed(self, queue: MailQueue, *, dry_run: bool) -> Sequence[Unremoved]:
        """Mails all of whose recipients are deleted."""
        if not self._whole:
            return ()
        where = MailFilter(enqueue_ids=frozenset(self._whole), whereabouts=Whereabouts.DELAYED)

        found = list[EnqueueId]()

        async def removing(mail: Listed) -> None:
            if self._keeps and not dry_run:
                await self._keep(mail)
            found.append(mail.queued.enqueue_id)

        failed = (await queue.delete(where, dry_run=dry_run, on_removed=removing)).failed
        left = {one.enqueue_id for one in failed}
        for enqueue_id in found:
            if enqueue_id not in left:
                self._note(enqueue_id, self._whole)
        return failed

    async def _keep(self, mail: Listed) -> None:
        enqueue_id = mail.queued.enqueue_id
        chosen = self._whole.get(enqueue_id) or self._meant[enqueue_id]
        content = (await self._connections.content_of(mail)).content
        self._result.without_content += content is None
        await self._file.keep(part_of_mail(mail, chosen), content)

    def _note(self, enqueue_id: EnqueueId, meant: dict[EnqueueId, Sequence[QueuedEntry]]) -> None:
        chosen = meant.pop(enqueue_id, [])
        self._result.count += len(chosen)
        self._result.mails += bool(chosen)
        if self._result.request.dry_run:
            self._result.listed += chosen[: LISTED_MAX - len(self._result.listed)]
        self._caller.progress.advance(len(chosen))
