"""`mailmend delivery set` and `changes`: values of queued mails, and who set which.

What is held or deferred is set where it waits. An active recipient is left alone and counted: it is
held first, which reaches it, then set, then released (docs/adr/0085).
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

import click

from mailmend.admin.delivery.connections import existing_orders, made_orders
from mailmend.admin.delivery.options import (
    CRITERIA,
    HISTORY_SHOWN,
    OF_A_QUEUE,
    READS_LEDGER,
    WHICH_RECIPIENTS,
    EntrySelection,
)
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT
from mailmend.admin.queue.remove import LISTED_MAX
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer, QueueRequest
from mailmend.delivery.ledger.value_changes import LedgerValueChanges, ValueRecord
from mailmend.delivery.mail.entries import EntryFilter, EntryId
from mailmend.delivery.mail.set_values import (
    NAMES,
    RECIPIENT,
    SetEntry,
    ValueChange,
    entries_without,
    mail_with_values,
    normal_value,
    value_name,
)
from mailmend.mailqueue.queue import WAITING, ChangedMail, FailedMail, MailQueue
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.catalog.ledger import DELIVERY_ORDER_HISTORY
from mailmend.model.errors import ExitCode, MailmendError, WrongUse
from mailmend.model.ids import EnqueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class SetValuesRequest(DryRunRequest):
    """Set values of queued mails that are held or deferred.

    Attributes:
        everything: every recipient of the queue; then nothing is selected.
        values: names and texts, as an operator gives them.
        unset: names of values that are removed.
        undo: the id of a change that is put back; then nothing else is said.
        whole_mails: whether values of a mail are set where only some of its recipients are chosen.
    """

    selection: EntrySelection = field(default_factory=EntrySelection)
    everything: bool = False
    values: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    undo: UUID | None = None
    whole_mails: bool = False
    why: str = ""

    @property
    def selected(self) -> tuple[str, ...]:
        """The options that choose the recipients."""
        if self.undo:
            return ()
        return self.selection.words or ("--all",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListValueChangesRequest(QueueRequest):
    """List what was set in the last 30 days, at most `limit` changes."""

    limit: int = HISTORY_SHOWN


@dataclass(slots=True)
class SetValuesResult:
    """What became of the mails that were selected.

    Attributes:
        count: recipients whose values were set, or would be.
        mails: of how many mails.
        active: recipients that were selected, and that a server may have.
        left: mails that were left as they are, and why.
        listed: the first recipients that would be changed, in a dry run.
        failed: mails that could not be changed.
    """

    request: SetValuesRequest
    change: ValueChange
    count: int = 0
    mails: int = 0
    active: int = 0
    left: Sequence[FailedMail] = ()
    listed: list[SetEntry] = field(default_factory=list)
    failed: tuple[FailedMail, ...] = ()

    @property
    def exit(self) -> ExitCode:
        if self.failed or self.left:
            return ExitCode.PARTLY_FAILED
        return ExitCode.FINE


def set_values(request: SetValuesRequest, caller: Caller) -> SetValuesResult:
    """Set values of queued mails, each mail where it waits.

    Raises:
        WrongUse: nothing is selected or set, or no mail can have a value; the message says which.
        CannotReach: what was set stays set; the same again goes on.
    """
    return with_queues(request.settings, partial(values_set, request, caller))


async def values_set(
    request: SetValuesRequest,
    caller: Caller,
    connections: QueueConnections,
) -> SetValuesResult:
    _refuse_unsaid(request)
    now = connections.now
    change = ValueChange(
        id=connections.clock.new_uuid(),
        at=now,
        owner=caller.name or owner_name(),
        reason=request.why,
        values=_normal_values(request, now),
        whole_mails=request.whole_mails,
        undoes=request.undo,
    )
    result = SetValuesResult(request, change)
    record = ValueRecord(
        id=change.id,
        by=change.owner,
        reason=change.reason,
        values=change.values,
        selected=request.selected,
        undoes=change.undoes,
    )
    if not request.dry_run:
        await _keep(connections, caller, record)
    async with connections.open(dry_run=request.dry_run) as queue:
        caller.progress.stage(f"set {request.queue}")
        await _Setting(caller, result, connections.now).carried_out(queue)
    if not request.dry_run:
        counted = replace(record, recipients=result.count, mails=result.mails)
        await _keep(connections, caller, counted)
    return result


def _refuse_unsaid(request: SetValuesRequest) -> None:
    selects = request.selection != EntrySelection()
    sets = bool(request.values or request.unset)
    if request.undo:
        if selects or sets or request.everything or request.whole_mails:
            what = "an undo puts back all that the change set, and more is said"
            raise WrongUse(what, mend="Leave out everything but --undo, --why and --dry-run.")
        return
    if not sets:
        mend = f"Say it like --set transport=bulk. There are: {', '.join(NAMES)}."
        raise WrongUse("it is not said which value is set", mend=mend)
    if not selects and not request.everything:
        mend = "Say which, like --domain example.org; every recipient: mailmend delivery set --all"
        raise WrongUse("nothing is selected, so it would be every recipient", mend=mend)
    if selects and request.everything:
        what = "--all is every recipient, and others are selected"
        raise WrongUse(what, mend="Leave out the one or the other.")


def _normal_values(request: SetValuesRequest, now: datetime) -> Mapping[str, str | None]:
    found = dict[str, str | None]()
    for name, text in request.values:
        if name in found:
            raise WrongUse(f"{name} is set twice", mend="Leave one of them out.")
        found[value_name(name)] = normal_value(name, text, now)
    for name in request.unset:
        if name in found:
            raise WrongUse(f"{name} is removed, and set or removed again", mend="Leave one out.")
        if value_name(name) == RECIPIENT:
            mend = "To take a recipient off the queue: mailmend delivery delete."
            raise WrongUse("a recipient cannot be removed from its entry", mend=mend)
        found[name] = None
    return found


async def _keep(connections: QueueConnections, caller: Caller, record: ValueRecord) -> None:
    """Keep in the history what is done; it is done all the same where that fails."""
    try:
        orders = made_orders(connections)
        ledger = LedgerValueChanges(orders.tables, orders.keyspace)
        await ledger.put(connections.settings.name, record)
    except MailmendError as error:
        caller.remark(f"The change cannot be written into the history: {error.what}")


class _Setting:
    """One pass over a queue; what is active is counted before and behind it."""

    def __init__(self, caller: Caller, result: SetValuesResult, now: datetime) -> None:
        self._caller = caller
        self._result = result
        self._now = now
        self._where = EntryFilter()
        if not result.request.undo:
            self._where = result.request.selection.at(result.change.at)
        self._meant = dict[EnqueueId, Sequence[SetEntry]]()
        self._left = dict[EnqueueId, str]()
        self._active = set[EntryId]()

    async def carried_out(self, queue: MailQueue) -> None:
        result = self._result
        dry_run = result.request.dry_run
        await self._look_at_active(queue)
        changed = await queue.change(self._change, dry_run=dry_run, on_changed=self._note)
        await self._look_at_active(queue)
        result.active = len(self._active)
        result.failed = changed.failed
        result.left = [FailedMail(enqueue_id, why) for enqueue_id, why in self._left.items()]

    async def _look_at_active(self, queue: MailQueue) -> None:
        change = self._result.change
        async with aclosing(queue.browse(WAITING)) as mails:
            async for mail in mails:
                for entry in entries_without(mail, self._where, change, self._now):
                    self._active.add(entry.entry.id)

    def _change(self, mail: Listed) -> ChangedMail | None:
        enqueue_id = mail.queued.enqueue_id
        behind = mail_with_values(mail, self._where, self._result.change, self._now)
        # The mail may have been left before its turn came, and have changed since.
        self._left.pop(enqueue_id, None)
        if behind.why_left:
            self._left[enqueue_id] = behind.why_left
        if behind.mail is None:
            return None
        self._meant[enqueue_id] = behind.entries
        return behind.mail

    def _note(self, mail: Listed) -> None:
        result = self._result
        entries = self._meant.pop(mail.queued.enqueue_id, ())
        result.count += len(entries)
        result.mails += bool(entries)
        for entry in entries:
            self._active.discard(entry.queued.entry.id)
        if result.request.dry_run:
            result.listed += entries[: LISTED_MAX - len(result.listed)]
        self._caller.progress.advance(len(entries))


def list_value_changes(
    request: ListValueChangesRequest, caller: Caller
) -> QueueAnswer[ListValueChangesRequest, Sequence[ValueRecord]]:
    """What was set, newest first; reading it creates no ledger."""
    return with_queues(request.settings, partial(value_changes_listed, request, caller))


async def value_changes_listed(
    request: ListValueChangesRequest, _: Caller, connections: QueueConnections
) -> QueueAnswer[ListValueChangesRequest, Sequence[ValueRecord]]:
    orders = existing_orders(connections, DELIVERY_ORDER_HISTORY)
    if orders is None:
        return QueueAnswer(request, ())
    ledger = LedgerValueChanges(orders.tables, orders.keyspace)
    now = connections.clock.micros()
    return QueueAnswer(request, await ledger.records(request.queue, now, request.limit))


def _named_value(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there:
        raise WrongUse(f"{text!r} has no value", mend="Write it like transport=bulk.")
    return value_name(name), value


SET: Final = Command(
    name="set",
    summary="Set values of queued mails: transport, tenant, priority, recipient and others.",
    about=f"""{CRITERIA} The values are {", ".join(NAMES)}.
    An attribute is set as a text, a priority is 0 to 9, and an expiry is an instant or a stretch of
    time from now on.

    What is held or deferred is set at once. What is active is left alone, and counted: hold it
    first, which reaches it, give the same command again, and release it.

    A recipient belongs to one entry. Every other value belongs to the whole mail: it is set where
    all recipients of the mail that are left are chosen. Other mails are named and left as they are;
    with --whole-mails they are set too.

    Each mail remembers its values from before the last change, and `show` prints them. --undo puts
    them back where no later command has set values of the mail, and where its expiry from before is
    not over. `changes` lists who set what.""",
    service="mailmend.admin.delivery.set_values:set_values",
    present="mailmend.admin.delivery.set_values_document:set_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--all", "All of them: every recipient of the queue.", "everything"),
        option(
            "--set",
            "A value to set; may be given again.",
            "values",
            type=ParsedValue("value", lambda value: _named_value(str(value))),
            multiple=True,
            metavar="NAME=VALUE",
        ),
        option(
            "--unset",
            "Name of a value to remove; may be given again.",
            type=ParsedValue("name", lambda value: value_name(str(value))),
            multiple=True,
            metavar="NAME",
        ),
        option(
            "--undo",
            "Id of an earlier change: its mails get the values from before it.",
            type=click.UUID,
            metavar="ID",
        ),
        flag(
            "--whole-mails",
            "Set values of a mail also where only some of its recipients are chosen.",
        ),
        option("--why", "Reason: shown to operators, and recorded.", required=True, metavar="TEXT"),
        DRY_RUN,
    ),
    shared=(WHICH_RECIPIENTS, READS_LEDGER),
    examples="""
        mailmend delivery set outgoing --tenant acme --set transport=bulk --why 'slow' --dry-run
        mailmend delivery set outgoing --job spring --set priority=1 --unset grouping --why 'slow'
        mailmend delivery set outgoing --recipient bob@exmaple.org --why 'the customer asked' \\
            --set recipient=bob@example.org
        mailmend delivery set outgoing --undo 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002 --why 'wrong'""",
    exits="0 done, also where nothing was to be done; 2 wrong use; 3 some mails were left as they "
    "are, or could not be changed (each is named); 4 cannot reach: what was set stays set, and the "
    "same again goes on.",
)

CHANGES: Final = Command(
    name="changes",
    summary="List who set values of queued mails, of how many, when and why.",
    about="""What `set` did in the last 30 days, newest first. A change whose process was killed has
    no number of recipients: its mails are shown with the values that it set, and the same command
    again goes on.""",
    service="mailmend.admin.delivery.set_values:list_value_changes",
    present="mailmend.admin.delivery.set_values_document:value_changes_document",
    paged=True,
    options=(
        QUEUE_ARGUMENT,
        option(
            "--changes",
            "Maximum number of changes: the newest ones.",
            "limit",
            type=click.IntRange(1, 100_000),
            default=HISTORY_SHOWN,
            metavar="N",
        ),
    ),
    shared=(OF_A_QUEUE,),
    examples="""
        mailmend delivery changes outgoing
        mailmend delivery changes outgoing --json""",
    exits="0 done, also where nothing is listed; 2 wrong use, 4 the cluster cannot be reached.",
)
