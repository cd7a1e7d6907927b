"""`mailmend delivery show`: what a queue holds of one mail on its way out, and what was tried."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

import click

from mailmend.admin.delivery.answers import SHOWN_ENTRIES
from mailmend.admin.delivery.connections import existing_attempts, policy_file, reply_classes
from mailmend.admin.delivery.entries import entries_grid, matching, with_intents
from mailmend.admin.delivery.options import READS_LEDGER
from mailmend.admin.delivery.value_texts import note_text
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.values import printable, shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import QUEUE_ARGUMENT
from mailmend.admin.queue.request import QueueRequest, queue_document
from mailmend.delivery.mail.attempts import AttemptOutcome, JournalledAttempt
from mailmend.delivery.mail.entries import EntryFilter, QueuedEntry
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.reply_classes import UNCATEGORISED, ClassifiedReply, ReplyClasses
from mailmend.mailqueue.rules.mails import EVERYTHING, NULL_SENDER
from mailmend.model.errors import AccessDenied, ExitCode, MissingExtra, NotThere
from mailmend.model.ids import EnqueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowEntryRequest(QueueRequest):
    """Show a mail's entries, or one.

    Attributes:
        id: one of the mail, or `mail:number`.
        policies: a policy file whose classes of replies count; None: the shipped classes.
        classes: the same, as a server has them.
    """

    id: str
    policies: Path | None = None
    classes: ReplyClasses | None = None


@dataclass(frozen=True, slots=True)
class ShownEntries:
    """All that is known of a mail's entries, or of one.

    Attributes:
        entries: those that are in the queue.
        attempts: what the journal has of them, by recipient, in their order; also for recipients that have left.
    """

    request: ShowEntryRequest
    entries: tuple[QueuedEntry, ...]
    attempts: tuple[JournalledAttempt, ...]
    at: datetime
    exit: ExitCode = ExitCode.FINE


def show_entry(request: ShowEntryRequest, caller: Caller) -> ShownEntries:
    """Everything that the queue holds of it, and what was tried.

    Raises:
        NotThere: no mail has that id.
    """
    return with_queues(request.settings, partial(entry_shown, request, caller), makes=False)


async def entry_shown(request: ShowEntryRequest, caller: Caller, connections: QueueConnections) -> ShownEntries:
    now = connections.now
    classes = request.classes or _classes(request.policies)
    where = EntryFilter(ids=frozenset((request.id,)))
    async with connections.open(dry_run=True) as queue:
        found = [entry async for entry in matching(queue, where, EVERYTHING, now)]
    first_id = _first_id(request.id)
    if found:
        first_id = found[0].mail.id
    attempts: Sequence[JournalledAttempt] = ()
    try:
        journal = existing_attempts(connections)
        if journal and first_id:
            attempts = await journal.of(request.queue, first_id, _number(request.id))
    except AccessDenied as error:
        caller.remark(f"Earlier attempts cannot be shown: {error.what}")
    if not found and not attempts:
        raise NotThere(
            f"{request.queue} has no {request.id}: it has left the queue, or was never there",
            mend=f"See what is there with: mailmend delivery list {request.queue}",
        )
    known = await with_intents(connections, caller, found)
    entries = tuple(_classed(classes, entry) for entry in known)
    tried = tuple(_classed_attempt(classes, attempt) for attempt in attempts)
    return ShownEntries(request, entries, tried, now)


def _classes(policies: Path | None) -> ReplyClasses:
    """The classes of a file, or the shipped ones; none where mailmend[delivery] is missing."""
    if policies:
        return reply_classes(policy_file(policies).said.classes)
    try:
        return reply_classes()
    except MissingExtra:
        return ReplyClasses()


def _classed(classes: ReplyClasses, entry: QueuedEntry) -> QueuedEntry:
    if not entry.entry.reply or not classes.rules:
        return entry
    return replace(entry, reply_class=classes.of(ClassifiedReply.parse(entry.entry.reply)))


def _classed_attempt(classes: ReplyClasses, attempt: JournalledAttempt) -> JournalledAttempt:
    """With the class of its status, if that gives one: the journal has no words of servers."""
    if attempt.outcome is AttemptOutcome.DELIVERED or not attempt.status:
        return attempt
    found = classes.of(ClassifiedReply("", attempt.status, ""))
    if found == UNCATEGORISED:
        return attempt
    return replace(attempt, reply_class=found)


def _first_id(text: str) -> EnqueueId | None:
    try:
        return EnqueueId(UUID(text.partition(":")[0]))
    except ValueError:
        return None


def _number(text: str) -> int | None:
    number = text.partition(":")[2]
    if not number.isdecimal():
        return None
    return int(number)


_ATTEMPT_COLUMNS: Final = (
    *("recipient", "began", "took", "server", "from", "stage"),
    *("status", "class", "outcome", "tried by"),
)


def entry_document(found: ShownEntries) -> Document:
    body = list[Part]()
    if not found.entries:
        body.append(f"{found.request.queue} has no {found.request.id} any more.")
    else:
        first = found.entries[0]
        body += [
            f"Mail {first.mail.id}, from {printable(first.mail.sender or NULL_SENDER)}",
            f"first seen {shown(first.mail.first_seen_at)}, now in the queue as {first.enqueue_id}",
            *(f"{printable(name)}: {printable(text)}" for name, text in sorted(first.attributes.items())),
        ]
        if first.values_note:
            body.append(note_text(first.values_note))
        body.append(entries_grid("Its recipients", found.entries, found.at))
    if found.attempts:
        rows = [_attempt_row(attempt) for attempt in found.attempts]
        body.append(Grid("What was tried", _ATTEMPT_COLUMNS, rows, frozenset({"server", "tried by"})))
    return queue_document(found, SHOWN_ENTRIES.json(found), body)


def _attempt_row(attempt: JournalledAttempt) -> tuple[str, ...]:
    took = ""
    if attempt.ended_at:
        took = f"{(attempt.ended_at - attempt.started_at).total_seconds():.1f} s"
    server = attempt.host
    address = attempt.fields.get(PickupField.REMOTE_IP, "")
    if address not in {"", attempt.host}:
        server = f"{attempt.host} [{address}]"
    return (
        f"{attempt.entry.number}",
        shown(attempt.started_at),
        took,
        printable(server),
        printable(attempt.fields.get(PickupField.LOCAL_IP, "")),
        attempt.stage.value if attempt.stage else "",
        printable(attempt.status),
        attempt.reply_class,
        attempt.outcome.value if attempt.outcome else "not known",
        printable(attempt.server),
    )


SHOW: Final = Command(
    name="show",
    summary="Show all that is known of one mail's recipients, or of one: also what was tried.",
    about="""What was tried is kept for a week: with which server, from which address, how far it came, its status. A
    mail that has left the queue is known by the id that it had first. The last reply is shown with
    its class. An attempt has a class where its status alone gives one, because the journal keeps no
    words of servers.""",
    service="mailmend.admin.delivery.show:show_entry",
    present="mailmend.admin.delivery.show:entry_document",
    paged=True,
    options=(
        QUEUE_ARGUMENT,
        click.Argument(["id"], metavar="ID"),
        option(
            "--policies",
            "Policies in YAML: its classes of replies count. [default: the shipped classes]",
            type=FILE,
            metavar="FILE",
        ),
    ),
    shared=(READS_LEDGER,),
    examples="""
        mailmend delivery show outgoing 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002
        mailmend delivery show outgoing 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002:3
        mailmend delivery show outgoing 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002 --json""",
    exits="0 shown, 2 wrong use or no such mail, 4 cannot reach.",
)
