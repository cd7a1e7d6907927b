"""`mailmend queue flush`, `republish` and `redrive`: delayed, lost or dead mails come again."""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, Final

import click

from mailmend.admin.delivery.connections import existing_attempts
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.values import NOTHING_WRITTEN, plain, shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import DRY_RUN, FILTERS, MAIL_FILTERS, QUEUE_ARGUMENT, ids_max, queue_settings, unless
from mailmend.admin.queue.request import DryRunRequest, MailSelection, QueueAnswer, queue_document
from mailmend.delivery.ledger.attempts import LedgerAttempts
from mailmend.delivery.mail.envelopes import first_id, lacking_mail
from mailmend.mailqueue.comparison import Redriven
from mailmend.mailqueue.queue import IDS_MAX, Delays, LackingMail, all_lack_it
from mailmend.mailqueue.rules.mails import Mail, QueuedMail
from mailmend.model.errors import CannotReach, ExitCode
from mailmend.model.ids import QueueName

REPUBLISH_OLDER_THAN: Final = timedelta(hours=1)


def flush(request: DryRunRequest, _: Caller) -> QueueAnswer[DryRunRequest, Delays]:
    """Make every delayed mail due now."""

    async def flushed(connections: QueueConnections) -> QueueAnswer[DryRunRequest, Delays]:
        async with connections.open(dry_run=request.dry_run) as queue:
            return QueueAnswer(request, await queue.flush(dry_run=request.dry_run))

    return with_queues(request.settings, flushed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepublishRequest(DryRunRequest):
    """Publish again the mails that wait longer than the selection's age; one hour by default."""

    selection: MailSelection = field(default_factory=MailSelection)


def republish(request: RepublishRequest, _: Caller) -> QueueAnswer[RepublishRequest, int]:
    """Publish again what the broker may have lost, under the same ids; returns how many mails."""

    async def republished(connections: QueueConnections) -> QueueAnswer[RepublishRequest, int]:
        older_than = request.selection.older_than or REPUBLISH_OLDER_THAN
        async with connections.open_tabled(dry_run=request.dry_run) as queue:
            wanted = request.selection.at(connections.now)
            return QueueAnswer(request, await queue.republish(older_than, wanted, dry_run=request.dry_run))

    return with_queues(request.settings, republished)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest(DryRunRequest):
    """Put dead letters back into their queue."""

    selection: MailSelection = field(default_factory=MailSelection)
    limit: int | None = None
    ids_max: int = IDS_MAX
    all_recipients: bool = False


def redrive(request: RedriveRequest, caller: Caller) -> QueueAnswer[RedriveRequest, Redriven]:
    """Put dead letters back under their ids; those deleted meanwhile are dropped.

    Recipients that have their mail, by the journal of attempts, are left out.
    """

    async def redriven(connections: QueueConnections) -> QueueAnswer[RedriveRequest, Redriven]:
        async with connections.open(dry_run=request.dry_run) as queue:
            lacking: LackingMail = all_lack_it
            if not request.all_recipients:
                lacking = _by_journal(connections, queue.name, caller)
            found = await queue.redrive(
                request.limit,
                request.selection.at(connections.now),
                dry_run=request.dry_run,
                ids_max=request.ids_max,
                lacking=lacking,
            )
        if found.unreadable:
            return QueueAnswer(request, found, ExitCode.DRIFT)
        return QueueAnswer(request, found)

    return with_queues(request.settings, redriven)


def _by_journal(connections: QueueConnections, queue: QueueName, caller: Caller) -> LackingMail:
    """Which recipients lack a mail, as far as the journal of attempts knows.

    A queue over topics may have no Cassandra, and then has no journal: that is said, and all recipients get the mail.
    """

    @cache
    def journal() -> LedgerAttempts | None:
        try:
            return existing_attempts(connections)
        except CannotReach as error:
            if connections.settings.pulsar is None:
                raise
            caller.remark(f"Recipients that have their mail may get it again: no journal can be read. {error.what}")
            return None

    async def lacking(queued: QueuedMail) -> Mail | None:
        known = journal()
        if known is None:
            return queued.mail
        return lacking_mail(queued, await known.of(queue, first_id(queued)), connections.now)

    return lacking


def flush_document(result: QueueAnswer[DryRunRequest, Delays]) -> Document:
    request = result.request
    delays = result.found
    json: dict[str, Any] = {
        "dry_run": request.dry_run,
        "flushed": delays.count,
        "delayed": None,
        "earliest_due_at": None,
        "latest_due_at": None,
    }
    line = f"{delays.count:,} delayed mails of {request.queue} are due now."
    if request.dry_run:
        times = {"earliest_due_at": delays.earliest_at, "latest_due_at": delays.latest_at}
        json |= {"flushed": 0, "delayed": delays.count, **times}
        line = f"{NOTHING_WRITTEN} {delays.count:,} delayed mails of {request.queue} would be due now."
        if delays.earliest_at and delays.latest_at:
            line += f" The first of them is due at {shown(delays.earliest_at)}, the last at {shown(delays.latest_at)}."
    return queue_document(result, json, (line,))


def republish_document(result: QueueAnswer[RepublishRequest, int]) -> Document:
    request = result.request
    count = result.found
    json: dict[str, Any] = {"dry_run": request.dry_run, "republished": count, "would_republish": None}
    line = f"Published {count:,} mails of {request.queue} again."
    if request.dry_run:
        json |= {"republished": 0, "would_republish": count}
        line = f"Nothing was published. {count:,} mails of {request.queue} would be."
    return queue_document(result, json, (line,))


def redrive_document(result: QueueAnswer[RedriveRequest, Redriven]) -> Document:
    counts = result.found
    dry_run = result.request.dry_run
    queue = result.request.queue
    line = f"{counts.redriven:,} dead letters are back into {queue}."
    are = "are"
    were = "were"
    if dry_run:
        line = f"{counts.redriven:,} dead letters would go back into {queue}."
        are = "would be"
        were = "would be"
    lines = [line]
    if counts.dropped:
        lines.append(f"{counts.dropped:,} were deleted meanwhile, and {are} dropped.")
    if counts.delivered:
        lines.append(f"{counts.delivered:,} {are} dropped: every recipient has the mail.")
    if counts.recipients_skipped:
        lines.append(
            f"{counts.recipients_skipped:,} recipients {were} left out: the journal of attempts knows that they have "
            "their mail."
        )
    if counts.unreadable:
        lines.append(f"{counts.unreadable:,} cannot be read; they stay in the dead letter queue.")
    return queue_document(result, {"dry_run": dry_run, **plain(counts)}, lines)


_UNLESS_DRY_RUN: Final = queue_settings(broker=unless("dry_run"), blobs=unless("dry_run"))


FLUSH: Final = Command(
    name="flush",
    summary="Let every delayed mail be due now.",
    about="""Mails to be tried again, and mails put for later. Each keeps its id. There is no way back: to wait again a
    mail has to be retried.""",
    service="mailmend.admin.queue.redrive:flush",
    present="mailmend.admin.queue.redrive:flush_document",
    options=(QUEUE_ARGUMENT, DRY_RUN),
    shared=(_UNLESS_DRY_RUN,),
    examples="""
        mailmend queue flush outgoing --dry-run        how many wait for their time, and until when
        mailmend queue flush outgoing                  the other side is back: try everything now""",
    exits="0 done (or nothing was delayed), 2 wrong use, 3 another process kept moving delayed mails, 4 cannot reach "
    "(what was moved stays moved, the same command goes on).",
)


REPUBLISH: Final = Command(
    name="republish",
    summary="Publish again what was not processed.",
    about="""Use it for a broker that was lost or restored from an old state. Every mail that waits for longer than
    --older-than (an hour, unless another age is given) is published again. Each mail keeps its id: if the broker
    still has its message, the copy that comes second finds the mark of the first and is dropped. Two consumers may
    have both copies at once, so name an age that no mail reaches while all is well.""",
    service="mailmend.admin.queue.redrive:republish",
    present="mailmend.admin.queue.redrive:republish_document",
    options=(QUEUE_ARGUMENT, DRY_RUN),
    shared=(FILTERS, _UNLESS_DRY_RUN),
    examples="""
        mailmend queue republish --dry-run
        mailmend queue republish --older-than 1h           as James's republishing of what was not processed
        mailmend queue reconcile --drain --republish       exactly those whose message is lost""",
    exits="0 done (or nothing matched), 2 wrong use, 3 the broker refused one: what was published stays so, 4 cannot "
    "reach.",
)

REDRIVE: Final = Command(
    name="redrive",
    summary="Put dead letters back into their queue.",
    about="""A dead letter is a mail that its consumer rejected, or that came back too often, or that had lost its
    bytes. Mend the cause first, or the mail becomes a dead letter again. The mails keep their ids; a mail that was
    deleted meanwhile is dropped, and its bytes with it. Recipients that have their mail, by the journal of `delivery
    serve`, are left out and counted; --all-recipients delivers to them again. RabbitMQ's dead letters cannot be
    searched: a dry run holds all of them unacked for a moment, and conditions hold the dead letters that they leave
    out. All are given back.""",
    service="mailmend.admin.queue.redrive:redrive",
    present="mailmend.admin.queue.redrive:redrive_document",
    options=(
        QUEUE_ARGUMENT,
        option("--limit", "Maximum number of mails.", type=click.IntRange(min=1), metavar="N"),
        ids_max("How many mails of the queue are held in memory, about half a KiB each; more is refused."),
        flag("--all-recipients", "Also those recipients that have their mail by the journal of attempts."),
        DRY_RUN,
    ),
    shared=(MAIL_FILTERS, queue_settings(broker=unless(), blobs=unless())),
    examples="""
        mailmend queue redrive --dry-run              how many there are, and how many of them were deleted meanwhile
        mailmend queue redrive --limit 10             the first ten, to see whether they fare better now
        mailmend queue redrive --recipient '*@example.com'    their server is back""",
    exits="0 done (or there is no dead letter), 1 some cannot be read, and stay where they are; 2 wrong use, 3 another "
    "process does the same, or the broker refused one; 4 cannot reach: "
    "what is back stays back, the same command goes on. After a kill too: a mail may come twice then, none is lost.",
)
