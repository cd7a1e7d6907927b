"""Recipients on their way out: held, released, retried, deferred, bounced, deleted.

What is held or deferred is changed in its queue. An active one is with a server, or on its way to
one: the change is ordered of it, and its server carries the order out before an attempt. Where an
attempt is under way, the recipient is left alone, unless it is ordered for after the attempt.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from mailmend.admin.delivery.active_entries import ActiveEntries, LeftEntry
from mailmend.admin.delivery.answers import CHANGED_ENTRIES, ENTRY, LEFT_ENTRY
from mailmend.admin.delivery.entries import CHANGED_TEXTS, entries_grid
from mailmend.admin.delivery.options import CRITERIA, READS_LEDGER, WHICH_RECIPIENTS, EntrySelection
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name, state_folder
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Part
from mailmend.admin.frame.kinds import Duration
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.values import NOTHING_WRITTEN, printable, shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.kept_mails import RemovedMailsFile, removed_mails_path
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT, YES, queue_settings, unless
from mailmend.admin.queue.remove import LISTED_MAX
from mailmend.admin.queue.request import DryRunRequest, confirm, queue_document
from mailmend.delivery.mail.entries import (
    EntryAction,
    EntryChange,
    EntryState,
    QueuedEntry,
)
from mailmend.delivery.mail.envelopes import changed_mail, part_of_mail, queued_entries
from mailmend.mailqueue.queue import WAITING, ChangedMail, FailedMail, MailQueue
from mailmend.mailqueue.rules.mails import DELAY_MAX, Listed, MailFilter, Whereabouts
from mailmend.model.errors import ExitCode, WrongUse
from mailmend.model.ids import EnqueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEntriesRequest(DryRunRequest):
    """Change entries that are held or deferred.

    Attributes:
        everything: every entry of the queue; then nothing is selected.
        why: for those who find them so, and for the sender of one that is bounced.
        lasts: of DEFER: how long.
        after_attempt: whether it is to follow an attempt that is under way.
        no_keep: of what is bounced or deleted no copy is kept.
        yes: whether a person has agreed to that already.
    """

    selection: EntrySelection = field(default_factory=EntrySelection)
    everything: bool = False
    why: str = ""
    lasts: timedelta | None = None
    after_attempt: bool = False
    no_keep: bool = False
    yes: bool = False


@dataclass(slots=True)
class ChangedEntries:
    """What became of the entries that were selected.

    Attributes:
        count: entries that were changed, or would be.
        mails: of how many mails.
        active: entries that were selected, and that a server may have.
        ordered: of how many of them it was ordered, or would be, and no server has answered.
        left: entries that were left alone, as their attempts were under way.
        listed: the first entries that would be changed, in a dry run.
        kept: the file of what was bounced or deleted; None without one.
        without_content: how many are kept without bytes, which were missing already.
    """

    request: ChangeEntriesRequest
    change: EntryChange
    count: int = 0
    mails: int = 0
    active: int = 0
    ordered: int = 0
    left: Sequence[LeftEntry] = ()
    listed: list[QueuedEntry] = field(default_factory=list)
    failed: tuple[FailedMail, ...] = ()
    kept: Path | None = None
    without_content: int = 0

    @property
    def exit(self) -> ExitCode:
        if self.failed:
            return ExitCode.PARTLY_FAILED
        return ExitCode.FINE


def hold(request: ChangeEntriesRequest, caller: Caller) -> ChangedEntries:
    """Hold entries until an operator releases them; they do not expire."""
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
    """Remove entries without a report; a copy is kept.

    Raises:
        UnsafeRequest: no person agreed.
    """
    return _changed(EntryAction.DELETE, request, caller)


def _changed(action: EntryAction, request: ChangeEntriesRequest, caller: Caller) -> ChangedEntries:
    return with_queues(request.settings, partial(entries_changed, action, request, caller))


async def entries_changed(
    action: EntryAction, request: ChangeEntriesRequest, caller: Caller, connections: QueueConnections
) -> ChangedEntries:
    """Carry an action out.

    Raises:
        WrongUse: nothing is selected, or everything and some.
        UnsafeRequest: entries would be ended, and no person agreed; the message says how many.
    """
    _refuse_unselected(action, request)
    now = connections.now
    until = None
    if request.lasts:
        until = now + request.lasts
    owner = caller.name or owner_name()
    change = EntryChange(action=action, at=now, owner=owner, reason=request.why, until=until)

    def one_pass() -> _Changing:
        return _Changing(connections, caller, ChangedEntries(request, change))

    async with connections.open(dry_run=request.dry_run) as queue:
        if action.is_final and not request.dry_run and not request.yes:
            seen = await one_pass().carried_out(queue, dry_run=True)
            what = f"{action.value.capitalize()} {seen.count:,} recipients of {request.queue}"
            if seen.ordered:
                what += f", and {seen.ordered:,} active ones"
            if request.after_attempt and seen.ordered:
                what += ", if need be after their attempts"
            if request.no_keep:
                what += ", without keeping them"
            confirm(f"{what}?", caller, yes=False)
        caller.progress.stage(f"{action.value} {request.queue}")
        return await one_pass().carried_out(queue, dry_run=request.dry_run)


def _refuse_unselected(action: EntryAction, request: ChangeEntriesRequest) -> None:
    if request.selection == EntrySelection() and not request.everything:
        mend = f"Say which, like --domain example.org; every one: mailmend delivery {action.value} --all"
        raise WrongUse("nothing is selected, so it would be every recipient", mend=mend)
    if request.selection != EntrySelection() and request.everything:
        raise WrongUse("--all is every recipient, and others are selected", mend="Leave out the one or the other.")


class _Changing:
    """One pass over a queue: what is delayed is changed; mails without a recipient left are removed behind it.

    What is active is looked at before and behind that, so that nothing escapes by becoming the one or the other.
    """

    def __init__(self, connections: QueueConnections, caller: Caller, result: ChangedEntries) -> None:
        request = result.request
        change = result.change
        self._connections = connections
        self._caller = caller
        self._result = result
        self._where = request.selection.at(change.at)
        path = removed_mails_path(state_folder("queue"), request.queue, change.at, change.action.value)
        self._file = RemovedMailsFile(path, request.queue)
        self._keeps = change.action.is_final and not request.no_keep
        self._meant = dict[EnqueueId, Sequence[QueuedEntry]]()
        self._whole = dict[EnqueueId, Sequence[QueuedEntry]]()
        after_attempt = request.after_attempt
        self._active = ActiveEntries(connections, caller, change, after_attempt=after_attempt)

    async def carried_out(self, queue: MailQueue, *, dry_run: bool) -> ChangedEntries:
        result = self._result
        keep = self._keep if self._keeps else None

        def changed_one(mail: Listed) -> None:
            self._note(mail.queued.enqueue_id, self._meant)

        try:
            await self._look_at_active(queue, dry_run=dry_run)
            changed = await queue.change(self._change, dry_run=dry_run, on_change=keep, on_changed=changed_one)
            removed = await self._removed(queue, dry_run=dry_run)
            await self._look_at_active(queue, dry_run=dry_run)
        finally:
            result.kept = None
            if self._file.count:
                result.kept = self._file.path
                self._caller.remark(f"Kept in {result.kept}")
        result.failed = (*changed.failed, *removed)
        result.ordered = self._active.count
        if not dry_run:
            await self._hear_servers()
        return result

    async def _look_at_active(self, queue: MailQueue, *, dry_run: bool) -> None:
        """Count what is active, and order the change of it; what will end is kept before."""
        result = self._result
        result.active = 0
        async with aclosing(queue.browse(WAITING)) as mails:
            async for mail in mails:
                active = []
                for entry in queued_entries(mail, result.change.at):
                    if entry.state is EntryState.ACTIVE and self._where.matches(entry):
                        active.append(entry)
                result.active += len(active)
                chosen = await self._active.choose(active)
                if not chosen:
                    continue
                if self._keeps and not dry_run:
                    await self._keep_part(mail, self._active.as_ordered(chosen))
                await self._active.order(chosen, dry_run=dry_run)
        await self._active.flush(dry_run=dry_run)

    async def _hear_servers(self) -> None:
        """Count what servers have carried out at once, and name what they left alone."""
        result = self._result
        answers = await self._active.answers()
        result.ordered = answers.unanswered
        result.left = answers.left
        result.count += len(answers.heeded)
        result.mails += len({entry.mail for entry in answers.heeded})

    def _change(self, mail: Listed) -> ChangedMail | None:
        change = self._result.change
        chosen, behind = changed_mail(mail, self._where, change, change.at)
        if not chosen:
            return behind
        if behind is None:
            # No recipient is left: the mail is removed.
            self._whole[mail.queued.enqueue_id] = chosen
        else:
            self._meant[mail.queued.enqueue_id] = chosen
        return behind

    async def _removed(self, queue: MailQueue, *, dry_run: bool) -> Sequence[FailedMail]:
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
        left = {unremoved.enqueue_id for unremoved in failed}
        for enqueue_id in found:
            if enqueue_id not in left:
                self._note(enqueue_id, self._whole)
        return failed

    async def _keep(self, mail: Listed) -> None:
        enqueue_id = mail.queued.enqueue_id
        await self._keep_part(mail, self._whole.get(enqueue_id) or self._meant[enqueue_id])

    async def _keep_part(self, mail: Listed, chosen: Sequence[QueuedEntry]) -> None:
        content = (await self._connections.content_of(mail)).content
        self._result.without_content += content is None
        await self._file.keep(part_of_mail(mail, chosen), content)

    def _note(self, enqueue_id: EnqueueId, meant: dict[EnqueueId, Sequence[QueuedEntry]]) -> None:
        chosen = meant.pop(enqueue_id, [])
        self._active.forget(chosen)
        self._result.count += len(chosen)
        self._result.mails += bool(chosen)
        if self._result.request.dry_run:
            self._result.listed += chosen[: LISTED_MAX - len(self._result.listed)]
        self._caller.progress.advance(len(chosen))


def changed_document(result: ChangedEntries) -> Document:
    request = result.request
    change = result.change
    what = CHANGED_TEXTS[change.action]
    if change.until:
        what += f" until {shown(change.until)}"
    count = f"{result.count:,} recipients of {result.mails:,} mails in {request.queue}"
    body: list[Part] = []
    if request.dry_run:
        if result.listed:
            body.append(entries_grid(f"Would be {what}", result.listed, change.at))
        body.append(f"{NOTHING_WRITTEN} Would be {what}: {count}.")
    else:
        body.append(f"{count}: {what}.")
    if result.ordered:
        body.append(_ordered_text(result, what))
    if result.left:
        body.append(_left_text(result))
    if result.kept:
        body.append(f"To put them back: mailmend queue restore {result.kept}")
    hints = [f"not changed: {unremoved.enqueue_id}: {unremoved.why}" for unremoved in result.failed]
    return queue_document(result, CHANGED_ENTRIES.json(result, **_counts(result)), body, hints)


def _ordered_text(result: ChangedEntries, what: str) -> str:
    """What is to become of active recipients."""
    will = "will be"
    if result.request.dry_run:
        will = "would be"
    when = "before their next attempts; not those whose attempts are under way"
    if result.request.after_attempt:
        when = "before their next attempts, or after attempts that are under way and fail"
    return f"{result.ordered:,} more are active, and {will} {what} {when}."


def _left_text(result: ChangedEntries) -> str:
    shown = [f"{left.id} {printable(left.recipient)}" for left in result.left[:_LEFT_SHOWN]]
    if len(result.left) > _LEFT_SHOWN:
        shown.append("...")
    names = ", ".join(shown)
    about = f"{len(result.left):,} were left alone, as their attempts were under way: {names}."
    if result.change.action in {EntryAction.RELEASE, EntryAction.RETRY}:
        return about
    return f"{about} The same with --after-attempt changes those that are not delivered."


def _counts(result: ChangedEntries) -> dict[str, Any]:
    """What was changed, or in a dry run would be."""
    follow = 0
    if result.request.after_attempt:
        follow = result.ordered
    left = [LEFT_ENTRY.json(entry) for entry in result.left[:LISTED_MAX]]
    if not result.request.dry_run:
        return {
            "changed": result.count,
            "would_change": None,
            "ordered": result.ordered,
            "would_order": None,
            "after_attempt": follow,
            "would_follow_attempt": None,
            "left": len(result.left),
            "left_entries": left,
            "entries": None,
        }
    return {
        "changed": 0,
        "would_change": result.count,
        "ordered": 0,
        "would_order": result.ordered,
        "after_attempt": 0,
        "would_follow_attempt": follow,
        "left": 0,
        "left_entries": left,
        "entries": [ENTRY.json(entry) for entry in result.listed],
    }


_LEFT_SHOWN: Final = 10
_CHANGE_ABOUT: Final = f"""{CRITERIA} What is held or deferred is changed at once. Of what is
    active, the change is ordered: a server that has the recipient waiting carries the order out
    within seconds, otherwise the server that takes its mail next, before any attempt. Only a
    recipient whose attempt is under way is left alone, and named. The command waits some seconds
    for the answers of servers."""
_TAKEN_BACK: Final = f"""{CRITERIA} What is active is tried anyway, so it is left alone.
    Where such a change was ordered of an active recipient, the order is taken back."""
_AFTER_ABOUT: Final = """With --after-attempt the change is also ordered for recipients whose
    attempts are under way: if the attempt does not deliver a recipient, the server changes the
    recipient instead of trying again; a recipient that was delivered stays delivered. An order
    holds for a week. `list` shows the order. A later command on the same recipient replaces it.
    With --json, `changed` is the number of recipients that were changed now, `ordered` the number
    of active ones that wait for a server, `left` the number that was left alone."""
_ALL: Final = flag("--all", "All of them: every recipient of the queue.", "everything")
_WHY: Final = option("--why", "Reason: shown to operators who find the mails so.", required=True, metavar="TEXT")
_AFTER_ATTEMPT: Final = flag("--after-attempt", "Order the change also for after attempts that are under way.")
_NO_KEEP: Final = flag("--no-keep", "Do not keep the removed mails in a file.")
_CHANGED: Final = "mailmend.admin.delivery.entry_changes:changed_document"
_EXITS: Final = (
    "0 done, also where nothing was to be done; 2 wrong use; 3 some could not be changed (each is named); 4 cannot "
    "reach: what was changed stays changed, and the same again goes on."
)


_ENDS: Final = queue_settings(blobs=unless("dry_run"), ledger=True)


HOLD: Final = Command(
    name="hold",
    summary="Hold recipients until they are released; they do not expire.",
    about=f"""{_CHANGE_ABOUT} Mails that come later are not held: for those, `mailmend suspend`.

    {_AFTER_ABOUT}""",
    service="mailmend.admin.delivery.entry_changes:hold",
    present=_CHANGED,
    options=(QUEUE_ARGUMENT, _ALL, _WHY, _AFTER_ATTEMPT, DRY_RUN),
    shared=(WHICH_RECIPIENTS, READS_LEDGER),
    examples="""
        mailmend delivery hold outgoing --tenant acme --why 'looks like spam; ticket 12' --dry-run
        mailmend delivery hold outgoing --sender-domain example.org --why 'ticket 12'
        mailmend delivery hold outgoing --job spring --why 'ticket 12' --after-attempt         active ones too""",
    exits=_EXITS,
)

RELEASE: Final = Command(
    name="release",
    summary="Let held recipients be tried at once.",
    about=_TAKEN_BACK,
    service="mailmend.admin.delivery.entry_changes:release",
    present=_CHANGED,
    options=(QUEUE_ARGUMENT, _ALL, DRY_RUN),
    shared=(WHICH_RECIPIENTS, READS_LEDGER),
    examples="""
        mailmend delivery release outgoing --tenant acme
        mailmend delivery release outgoing --id 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002:3""",
    exits=_EXITS,
)

RETRY: Final = Command(
    name="retry",
    summary="Let deferred recipients be tried at once.",
    about=f"{_TAKEN_BACK} What is held stays so.",
    service="mailmend.admin.delivery.entry_changes:retry",
    present=_CHANGED,
    options=(QUEUE_ARGUMENT, _ALL, DRY_RUN),
    shared=(WHICH_RECIPIENTS, READS_LEDGER),
    examples="""
        mailmend delivery retry outgoing --domain example.org           they say that they are back""",
    exits=_EXITS,
)

DEFER: Final = Command(
    name="defer",
    summary="Let recipients be tried at a later time, or earlier, than their schedule says.",
    about=f"""{_CHANGE_ABOUT} What is held stays so. One that is too old by then is given up then; one whose mail names
    its own expiry is deferred no longer than that.

    {_AFTER_ABOUT}""",
    service="mailmend.admin.delivery.entry_changes:defer",
    present=_CHANGED,
    options=(
        QUEUE_ARGUMENT,
        _ALL,
        option("--for", "How long: from now.", "lasts", type=Duration(DELAY_MAX, zero=False), required=True),
        _AFTER_ATTEMPT,
        DRY_RUN,
    ),
    shared=(WHICH_RECIPIENTS, READS_LEDGER),
    examples="""
        mailmend delivery defer outgoing --domain example.org --for 2h""",
    exits=_EXITS,
)

BOUNCE: Final = Command(
    name="bounce",
    summary="Give recipients up, and tell their senders; asks, and keeps a copy.",
    about=f"""{_CHANGE_ABOUT} The next server that is free makes the reports, with --why as the reason: until then
    `list` shows them. `mailmend queue restore` puts back what is in the copy.

    {_AFTER_ABOUT} The copy has all of these recipients, also the delivered ones.""",
    service="mailmend.admin.delivery.entry_changes:bounce",
    present=_CHANGED,
    options=(
        QUEUE_ARGUMENT,
        _ALL,
        option("--why", "Reason: the sender reads it.", required=True, metavar="TEXT"),
        _AFTER_ATTEMPT,
        DRY_RUN,
        YES,
        _NO_KEEP,
    ),
    shared=(WHICH_RECIPIENTS, _ENDS),
    examples="""
        mailmend delivery bounce outgoing --domain exmaple.org --why 'there is no such domain' --dry-run""",
    exits=_EXITS,
)

DELETE: Final = Command(
    name="delete",
    summary="Remove recipients without a report; asks, and keeps a copy.",
    about=f"""{_CHANGE_ABOUT} `mailmend queue restore` puts back what is in the copy.

    {_AFTER_ABOUT} The copy has all of these recipients, also the delivered ones.""",
    service="mailmend.admin.delivery.entry_changes:delete",
    present=_CHANGED,
    options=(QUEUE_ARGUMENT, _ALL, _AFTER_ATTEMPT, DRY_RUN, YES, _NO_KEEP),
    shared=(WHICH_RECIPIENTS, _ENDS),
    examples="""
        mailmend delivery delete outgoing --job 2026-11-newsletter --dry-run
        mailmend delivery delete outgoing --in-state hold --tenant acme --yes""",
    exits=_EXITS,
)
