"""Maintenance of a queue: sweep it, flush delayed mails, publish again, redrive dead letters."""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.request import DryRunRequest, MailSelection, QueueAnswer
from mailmend.delivery.ledger.attempts import LedgerAttempts
from mailmend.delivery.mail.envelopes import first_id, lacking_mail
from mailmend.mailqueue.queue import IDS_MAX, Delays, LackingMail, all_lack_it
from mailmend.mailqueue.rabbitmq.sweep import Moved
from mailmend.mailqueue.rules.mails import Mail, QueuedMail
from mailmend.mailqueue.upkeep import Redriven, Swept
from mailmend.model.errors import CannotReach, ExitCode
from mailmend.model.ids import QueueName

REPUBLISH_OLDER_THAN: Final = timedelta(hours=1)

Sweep = Swept | Moved
"""The result of a sweep, or of moving the browse start alone; of a dry run, what either would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(DryRunRequest):
    """Sweep one queue, or only move its browse start."""

    move_only: bool = False


def sweep(request: SweepRequest, caller: Caller) -> QueueAnswer[SweepRequest, Sweep]:
    """Move the browse start to the first mail, clean up before it, renew mails that would expire."""

    async def swept(connections: QueueConnections) -> QueueAnswer[SweepRequest, Sweep]:
        async with connections.open_tabled(dry_run=request.dry_run) as queue:
            found: Sweep = await (queue.move_browse_start if request.move_only else queue.sweep)(
                dry_run=request.dry_run
            )
        if isinstance(found, Swept) and (remark := connections.marks_stay):
            caller.remark(remark)
        return QueueAnswer(request, found, ExitCode.DRIFT if was_moved_back(found) else ExitCode.FINE)

    return with_queues(request.settings, swept)


def was_moved_back(found: Sweep) -> bool:
    match found:
        case Moved():
            return found.back
        case Swept():
            return found.moved_back


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
            found = await queue.redrive(
                request.limit,
                request.selection.at(connections.now),
                dry_run=request.dry_run,
                ids_max=request.ids_max,
                lacking=all_lack_it if request.all_recipients else _by_journal(connections, queue.name, caller),
            )
            return QueueAnswer(request, found, ExitCode.DRIFT if found.unreadable else ExitCode.FINE)

    return with_queues(request.settings, redriven)


def _by_journal(connections: QueueConnections, queue: QueueName, caller: Caller) -> LackingMail:
    """Which recipients lack a mail, as far as the journal of attempts knows.

    A queue over topics may have no Cassandra, and then has no journal: that is said, and everybody is delivered to.
    """

    @cache
    def journal() -> LedgerAttempts | None:
        try:
            return connections.existing_attempts()
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
