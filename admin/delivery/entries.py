"""`mailmend delivery list` and `group`: recipients on their way out, and what shows them."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

import click

from mailmend.admin.delivery.answers import ENTRIES, GROUPS
from mailmend.admin.delivery.connections import existing_orders
from mailmend.admin.delivery.options import CRITERIA, READS_LEDGER, WHICH_RECIPIENTS, EntrySelection
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import option
from mailmend.admin.frame.values import printable, shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import QUEUE_ARGUMENT
from mailmend.admin.queue.request import PAGE_MAILS, QueueAnswer, QueueRequest, queue_document
from mailmend.delivery.mail.entries import (
    EntryAction,
    EntryChange,
    EntryField,
    EntryFilter,
    EntryId,
    EntryState,
    QueuedEntry,
)
from mailmend.delivery.mail.envelopes import queued_entries
from mailmend.mailqueue.queue import MailQueue
from mailmend.mailqueue.rules.health import days
from mailmend.mailqueue.rules.mails import EVERYTHING, NULL_SENDER, ListingPosition, MailFilter
from mailmend.model.catalog.ledger import DELIVERY_INTENT
from mailmend.model.errors import AccessDenied, ExitCode

GROUPS_MAX: Final = 10_000
"""At most this many groups are counted; what belongs to a further group is counted together, with no values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesRequest(QueueRequest):
    """List the entries of at most `limit` mails."""

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
            if some:
                last = ListingPosition.of(mail)
    return EntriesPage(request, await with_intents(connections, caller, found), now)


async def with_intents(
    connections: QueueConnections, caller: Caller, found: Sequence[QueuedEntry]
) -> tuple[QueuedEntry, ...]:
    """The active ones with what is to follow their attempts."""
    queue = connections.settings.name
    now = connections.now
    mails = list(dict.fromkeys(entry.entry.id.mail for entry in found if entry.state is EntryState.ACTIVE))
    orders = None
    if mails:
        orders = existing_orders(connections, DELIVERY_INTENT)
    known: Mapping[EntryId, EntryChange] = {}
    try:
        if orders and await orders.intents.are_there(queue):
            known = await orders.intents.of_all(queue, mails)
    except AccessDenied as error:
        caller.remark(f"Orders of active recipients are not shown: {error.what}")
    entries = list[QueuedEntry]()
    for entry in found:
        if entry.state is not EntryState.ACTIVE:
            entries.append(entry)
            continue
        change = known.get(entry.entry.id)
        if change and change.until is not None and change.until <= now:
            change = None
        entries.append(replace(entry, after_attempt=change))
    return tuple(entries)


@dataclass(slots=True)
class EntryGroup:
    """Entries that have the same values.

    Attributes:
        values: the values; None: these entries are of further groups, which are counted together.
        oldest_at: when the first of their mails was first seen.
        due_at: when the first of the deferred ones is tried again.
    """

    values: Mapping[EntryField, str] | None
    states: Counter[EntryState] = field(default_factory=Counter)
    oldest_at: datetime | None = None
    due_at: datetime | None = None

    @property
    def recipients(self) -> int:
        return self.states.total()

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


def group_entries(
    request: GroupEntriesRequest, caller: Caller
) -> QueueAnswer[GroupEntriesRequest, Sequence[EntryGroup]]:
    return with_queues(request.settings, partial(entries_grouped, request, caller), makes=False)


async def entries_grouped(
    request: GroupEntriesRequest, _: Caller, connections: QueueConnections
) -> QueueAnswer[GroupEntriesRequest, Sequence[EntryGroup]]:
    """The groups by the values of the request's fields, the largest first."""
    groups = dict[tuple[str, ...], EntryGroup]()
    async with connections.open(dry_run=True) as queue:
        where = request.selection.at(connections.now)
        async for entry in matching(queue, where, EVERYTHING, connections.now):
            values = tuple(named.of(entry) for named in request.fields)
            if values not in groups and len(groups) >= GROUPS_MAX:
                values = ()
            if values not in groups:
                named = None
                if values:
                    named = dict(zip(request.fields, values, strict=True))
                groups[values] = EntryGroup(named)
            groups[values].add(entry)
    ordered = sorted(groups.items(), key=lambda item: (-item[1].recipients, item[0]))
    return QueueAnswer(request, [group for _, group in ordered])


async def matching(
    queue: MailQueue, where: EntryFilter, mails_where: MailFilter, now: datetime
) -> AsyncGenerator[QueuedEntry]:
    """The entries of a listing that a filter chooses."""
    async with aclosing(queue.browse(mails_where)) as mails:
        async for mail in mails:
            for entry in queued_entries(mail, now):
                if where.matches(entry):
                    yield entry


_COLUMNS: Final = ("id", "recipient", "age", "state", "retries", "transport", "sender", "last reply, or why")


_WRAPPED: Final = frozenset({"recipient", "sender", "state", "last reply, or why"})
CHANGED_TEXTS: Final = {
    EntryAction.HOLD: "held",
    EntryAction.RELEASE: "released",
    EntryAction.RETRY: "to be tried at once",
    EntryAction.DEFER: "deferred",
    EntryAction.BOUNCE: "to be bounced",
    EntryAction.DELETE: "deleted",
}


def entries_document(page: EntriesPage) -> Document:
    json = ENTRIES.json(page)
    if not page.entries:
        return queue_document(page, json, ("There are no such recipients.",))
    body: list[Part] = [entries_grid(f"Recipients in {page.request.queue}", page.entries, page.at)]
    if page.next:
        body.append(f"There are more: --after {page.next.token}")
    return queue_document(page, json, body)


def groups_document(result: QueueAnswer[GroupEntriesRequest, Sequence[EntryGroup]]) -> Document:
    fields = result.request.fields
    json = GROUPS.json(result)
    if not result.found:
        return queue_document(result, json, ("There are no such recipients.",))
    by = [field.value for field in fields]
    rows = [_group_row(fields, group) for group in result.found]
    columns = (*by, "recipients", *(state.value for state in EntryState), "oldest", "next try")
    return queue_document(result, json, (Grid(f"Recipients in {result.request.queue}", columns, rows, frozenset(by)),))


def entries_grid(title: str, entries: Sequence[QueuedEntry], now: datetime) -> Grid:
    return Grid(title, _COLUMNS, [_entry_row(entry, now) for entry in entries], _WRAPPED)


def _entry_row(queued: QueuedEntry, now: datetime) -> tuple[str, ...]:
    entry = queued.entry
    mail = queued.mail
    state = queued.state.value
    if queued.due_at:
        state = f"{state}, {shown(queued.due_at)}"
    return (
        str(entry.id),
        printable(entry.recipient),
        days(now - mail.first_seen_at),
        state,
        f"{entry.refusals:,}",
        printable(EntryField.TRANSPORT.of(queued)),
        printable(mail.sender or NULL_SENDER),
        printable(_said(queued)),
    )


def _said(queued: QueuedEntry) -> str:
    order = queued.entry.order
    if queued.after_attempt:
        return f"ordered: {intent_text(queued.after_attempt)}"
    if order:
        return f"{CHANGED_TEXTS[order.action]} by {order.owner}: {order.reason}"
    if queued.reply_class:
        return f"{queued.reply_class}: {queued.entry.reply}"
    return queued.entry.reply


def intent_text(change: EntryChange) -> str:
    """What is ordered of an active recipient."""
    until = f" until {shown(change.until)}" if change.until else ""
    return f"{CHANGED_TEXTS[change.action]}{until}, by {change.owner}: {change.reason}"


def _group_row(by: Sequence[EntryField], group: EntryGroup) -> tuple[str, ...]:
    named = ["(others)", *[""] * (len(by) - 1)]
    if group.values:
        # A field that is named twice has two columns.
        named = [printable(group.values[field]) or "(none)" for field in by]
    return (
        *named,
        f"{group.recipients:,}",
        *(f"{group.states[state]:,}" for state in EntryState),
        _cell(group.oldest_at),
        _cell(group.due_at),
    )


def _cell(at: datetime | None) -> str:
    if at is None:
        return ""
    return shown(at)


LIST: Final = Command(
    name="list",
    summary="List recipients: which state each is in, until when, and what was answered.",
    about=f"""{CRITERIA} Read from the tables. Active ones wait for a policy, or are being delivered: only their server
    knows.""",
    service="mailmend.admin.delivery.entries:list_entries",
    present="mailmend.admin.delivery.entries:entries_document",
    paged=True,
    options=(
        QUEUE_ARGUMENT,
        option(
            "--limit",
            "Maximum number of mails: their recipients stay together.",
            type=click.IntRange(1, 100_000),
            default=PAGE_MAILS,
            metavar="N",
        ),
        option(
            "--after",
            "Continue after an earlier page: the token that its end names.",
            type=ParsedValue("position", lambda value: ListingPosition.parse(str(value))),
            metavar="TOKEN",
        ),
    ),
    shared=(WHICH_RECIPIENTS, READS_LEDGER),
    examples="""
        mailmend delivery list outgoing --domain example.org --retries 3-
        mailmend delivery list outgoing --in-state hold
        mailmend delivery list outgoing --reply '421 *' --older-than 1h --json""",
    exits="0 listed, 2 wrong use, 4 cannot reach.",
)


GROUP: Final = Command(
    name="group",
    summary="Count recipients by domain, or by what is named.",
    about=CRITERIA,
    service="mailmend.admin.delivery.entries:group_entries",
    present="mailmend.admin.delivery.entries:groups_document",
    paged=True,
    options=(
        QUEUE_ARGUMENT,
        option(
            "--by",
            "Field to count by; may be given again. [default: domain]",
            type=click.Choice(list(EntryField), case_sensitive=False),
            multiple=True,
            metavar="FIELD",
        ),
    ),
    shared=(WHICH_RECIPIENTS, READS_LEDGER),
    examples="""
        mailmend delivery group outgoing                                 which domains wait
        mailmend delivery group outgoing --by reply --domain example.org --in-state defer
        mailmend delivery group outgoing --by tenant --by transport""",
    exits="0 counted, 2 wrong use, 4 cannot reach.",
)
