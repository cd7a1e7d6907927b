"""What `mailmend delivery` shows of recipients."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from mailmend.admin.delivery.entries_service import EntriesPage, EntryGroup, GroupEntriesRequest, Groups
from mailmend.admin.delivery.entry_changes import ChangedEntries
from mailmend.admin.delivery.entry_history import ShownEntries
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import NOTHING_WRITTEN, plain, printable, shown
from mailmend.admin.queue.request import QueueAnswer
from mailmend.admin.queue.values import queue_document
from mailmend.delivery.mail.entries import EntryOrder, EntryState
from mailmend.delivery.mail.journal import JournalledAttempt
from mailmend.delivery.mail.queued import EntryAction, EntryChange, EntryField, QueuedEntry
from mailmend.delivery.policy.policy import PickupField
from mailmend.mailqueue.rules.filters import NULL_SENDER
from mailmend.mailqueue.rules.health import days

_COLUMNS: Final = ("id", "recipient", "age", "state", "retries", "transport", "sender", "last reply, or why")
_ATTEMPT_COLUMNS: Final = ("recipient", "began", "took", "server", "from", "stage", "status", "outcome", "tried by")
_WRAPPED: Final = frozenset({"recipient", "sender", "state", "last reply, or why"})
_BEHIND: Final = {
    EntryAction.HOLD: "held",
    EntryAction.RELEASE: "released",
    EntryAction.RETRY: "to be tried at once",
    EntryAction.DEFER: "deferred",
    EntryAction.BOUNCE: "to be bounced",
    EntryAction.DELETE: "deleted",
}


def entries_document(page: EntriesPage) -> Document:
    json = {"entries": [_entry_json(entry) for entry in page.entries], "next": page.next.token if page.next else None}
    if not page.entries:
        return queue_document(page, json, ("There are none.",))
    body: list[Part] = [_grid(f"Recipients in {page.request.queue}", page.entries, page.at)]
    if page.next:
        body.append(f"There are more: --after {page.next.token}")
    return queue_document(page, json, body)


def entry_document(found: ShownEntries) -> Document:
    json = {
        "entries": [_entry_json(entry) for entry in found.entries],
        "attempts": [_attempt_json(attempt) for attempt in found.attempts],
    }
    body = list[Part]()
    if not found.entries:
        body.append(f"{found.request.queue} has no {found.request.id} any more.")
    else:
        first = found.entries[0]
        body += [
            f"Mail {first.mail.id}, from {printable(first.mail.sender or NULL_SENDER)}",
            f"first seen {shown(first.mail.first_seen_at)}, now in the queue as {first.enqueue_id}",
            *(f"{printable(name)}: {printable(text)}" for name, text in sorted(first.attributes.items())),
            _grid("Its recipients", found.entries, found.at),
        ]
    if found.attempts:
        rows = [_attempt_row(attempt) for attempt in found.attempts]
        body.append(Grid("What was tried", _ATTEMPT_COLUMNS, rows, frozenset({"server", "tried by"})))
    return queue_document(found, json, body)


def groups_document(result: QueueAnswer[GroupEntriesRequest, Groups]) -> Document:
    by = [field.value for field in result.request.fields]
    groups = result.found
    json = {"by": by, "groups": [_group_json(by, values, group) for values, group in groups]}
    if not groups:
        return queue_document(result, json, ("There are none.",))
    rows = [_group_row(len(by), values, group) for values, group in groups]
    columns = (*by, "recipients", *(state.value for state in EntryState), "oldest", "next try")
    return queue_document(result, json, (Grid(f"Recipients in {result.request.queue}", columns, rows, frozenset(by)),))


def changed_document(result: ChangedEntries) -> Document:
    request = result.request
    change = result.change
    json = {
        "dry_run": request.dry_run,
        "changed": 0 if request.dry_run else result.count,
        "would_change": result.count if request.dry_run else None,
        "mails": result.mails,
        "active": result.active,
        "after_attempt": 0 if request.dry_run else result.ordered,
        "would_follow_attempt": result.ordered if request.dry_run else None,
        "until": change.until,
        "failed": [{"id": unremoved.enqueue_id, "why": unremoved.why} for unremoved in result.failed],
        "kept": result.kept,
        "kept_without_content": result.without_content,
        "entries": [_entry_json(entry) for entry in result.listed] if request.dry_run else None,
    }
    what = _BEHIND[change.action] + (f" until {shown(change.until)}" if change.until else "")
    count = f"{result.count:,} recipients of {result.mails:,} mails in {request.queue}"
    body: list[Part] = []
    if request.dry_run and result.listed:
        body.append(_grid(f"Would be {what}", result.listed, change.at))
    body.append(f"{NOTHING_WRITTEN} Would be {what}: {count}." if request.dry_run else f"{count}: {what}.")
    if result.ordered:
        will = "would be" if request.dry_run else "will be, within a day,"
        body.append(f"{result.ordered:,} are active: who is not delivered by the attempt {will} {what}.")
    elif result.active:
        body.append(f"{result.active:,} are active: with a server, or on their way to one. They were left alone.")
    if result.kept:
        body.append(f"To put them back: mailmend queue restore {result.kept}")
    return queue_document(
        result, json, body, [f"not changed: {unremoved.enqueue_id}: {unremoved.why}" for unremoved in result.failed]
    )


def _grid(title: str, entries: Sequence[QueuedEntry], now: datetime) -> Grid:
    rows = [
        (
            str(entry.entry.id),
            printable(entry.entry.recipient),
            days(now - entry.mail.first_seen_at),
            f"{entry.state.value}, {shown(entry.due_at)}" if entry.due_at else entry.state.value,
            f"{entry.entry.refusals:,}",
            printable(EntryField.TRANSPORT.of(entry)),
            printable(entry.mail.sender or NULL_SENDER),
            printable(_said(entry)),
        )
        for entry in entries
    ]
    return Grid(title, _COLUMNS, rows, _WRAPPED)


def _said(one: QueuedEntry) -> str:
    order = one.entry.order
    if one.after_attempt:
        return intent_text(one.after_attempt)
    return f"{_BEHIND[EntryAction(order.kind.value)]} by {order.owner}: {order.reason}" if order else one.entry.reply


def intent_text(change: EntryChange) -> str:
    """What is to follow an attempt."""
    until = f" until {shown(change.until)}" if change.until else ""
    return f"{_BEHIND[change.action]}{until} after this attempt, by {change.owner}: {change.reason}"


def intent_json(change: EntryChange | None) -> dict[str, Any] | None:
    """The same for programs; null is nothing."""
    if change is None:
        return None
    own = {"kind": change.action, "owner": change.owner, "why": change.reason}
    found: dict[str, Any] = plain({**own, "at": change.at, "until": change.until})
    return found


def _entry_json(one: QueuedEntry) -> dict[str, Any]:
    entry = one.entry
    mail = one.mail
    found: dict[str, Any] = plain(
        {
            "id": str(entry.id),
            "mail": mail.id,
            "enqueue_id": one.enqueue_id,
            "recipient": entry.recipient,
            "sender": mail.sender,
            "state": one.state,
            "due_at": one.due_at,
            "retries": entry.refusals,
            "reply": entry.reply or None,
            "host": entry.host or None,
            "fields": {named.value: text for named, text in mail.fields.items()},
            "attributes": one.attributes,
            "first_seen_at": mail.first_seen_at,
            "expires_at": mail.expires_at,
            "order": order_json(entry.order),
            "after_attempt": intent_json(one.after_attempt),
        }
    )
    return found


def _attempt_row(one: JournalledAttempt) -> tuple[str, ...]:
    address = one.fields.get(PickupField.REMOTE_IP, "")
    return (
        f"{one.entry.number}",
        shown(one.started_at),
        f"{(one.ended_at - one.started_at).total_seconds():.1f} s" if one.ended_at else "",
        printable(one.host if address in {"", one.host} else f"{one.host} [{address}]"),
        printable(one.fields.get(PickupField.LOCAL_IP, "")),
        one.stage.value if one.stage else "",
        printable(one.status),
        one.outcome.value if one.outcome else "not known",
        printable(one.server),
    )


def _attempt_json(one: JournalledAttempt) -> dict[str, Any]:
    found: dict[str, Any] = plain(
        {
            "first_mail": one.entry.mail,
            "number": one.entry.number,
            "attempt": one.id,
            "mail": one.mail,
            "fields": {named.value: text for named, text in one.fields.items()},
            "sources": one.sources,
            "ready_at": one.ready_at,
            "started_at": one.started_at,
            "ended_at": one.ended_at,
            "outcome": one.outcome,
            "stage": one.stage,
            "status": one.status or None,
            "host": one.host,
            "bytes": one.content_bytes,
            "urgent": one.urgent,
            "server": one.server,
        }
    )
    return found


def order_json(order: EntryOrder | None) -> dict[str, Any] | None:
    found: dict[str, Any] | None = plain(
        order and {"kind": order.kind, "owner": order.owner, "why": order.reason, "at": order.at}
    )
    return found


def _group_json(by: Sequence[str], values: Sequence[str], group: EntryGroup) -> dict[str, Any]:
    return {
        "values": dict(zip(by, values, strict=True)) if values else None,
        "recipients": group.states.total(),
        **{state.value: group.states[state] for state in EntryState},
        **plain({"oldest_at": group.oldest_at, "due_at": group.due_at}),
    }


def _group_row(count: int, values: Sequence[str], group: EntryGroup) -> tuple[str, ...]:
    named = [printable(text) or "(none)" for text in values] or ["(others)", *[""] * (count - 1)]
    return (
        *named,
        f"{group.states.total():,}",
        *(f"{group.states[state]:,}" for state in EntryState),
        shown(group.oldest_at) if group.oldest_at else "",
        shown(group.due_at) if group.due_at else "",
    )
