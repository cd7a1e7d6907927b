"""Maintenance of a queue: sweep it, flush delayed mails, publish again, redrive dead letters."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from admin.services.caller import Caller
from admin.services.queue.request import MailSelection, QueueRequest
from admin.wiring_queue import QueueConnections, with_queues
from mailqueue.maintenance.comparison import IDS_MAX
from mailqueue.maintenance.redrive import Redriven
from mailqueue.maintenance.redrive import redrive as redrive_queue
from mailqueue.maintenance.sweep import Moved, Swept
from mailqueue.maintenance.sweep_dry_run import Foreseeing, Foreseen
from mailqueue.rabbitmq.view.delays import Delays, delays
from model.errors import ExitCode

REPUBLISH_OLDER_THAN: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(QueueRequest):
    """Sweep one queue, or only move its browse start."""

    move_only: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep or a move did, or would do in a dry run."""

    request: SweepRequest
    outcome: Swept | Moved | Foreseen

    @property
    def moved_back(self) -> bool:
        """Whether another program had moved the browse start back."""
        match self.outcome:
            case Moved():
                return self.outcome.back
            case Swept():
                return self.outcome.moved_back
            case Foreseen():
                return self.outcome.swept.moved_back

    @property
    def exit(self) -> ExitCode:
        """A browse start that was moved back is drift."""
        return ExitCode.DRIFT if self.moved_back else ExitCode.FINE


def sweep(request: SweepRequest, _: Caller) -> SweepResult:
    """Move the browse start to the first mail, clean up before it, renew mails that would expire."""

    async def swept(connections: QueueConnections) -> SweepResult:
        if request.dry_run:
            looking = Foreseeing(connections.tables, connections.view)
            return SweepResult(request, await (looking.move if request.move_only else looking.sweep)(request.queue))
        async with connections.open() as queue:
            sweeper = queue.parts.sweeper
            return SweepResult(request, await (sweeper.move if request.move_only else sweeper.sweep)(request.queue))

    return with_queues(request.settings, swept)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRequest(QueueRequest):
    """Deliver every delayed mail of one queue now."""

    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class FlushResult:
    """The delayed mails; when they are due is known after a dry run only."""

    request: FlushRequest
    delays: Delays


def flush(request: FlushRequest, _: Caller) -> FlushResult:
    """Make every delayed mail due now."""

    async def flushed(connections: QueueConnections) -> FlushResult:
        if request.dry_run:
            return FlushResult(request, await delays(connections.view, request.queue))
        async with connections.open() as queue:
            return FlushResult(request, Delays(await queue.flush()))

    return with_queues(request.settings, flushed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepublishRequest(QueueRequest):
    """Publish mails again that wait for longer than the selection's age, one hour unless it names another."""

    selection: MailSelection = field(default_factory=MailSelection)
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class RepublishResult:
    """How many mails were published again, or would be."""

    request: RepublishRequest
    count: int


def republish(request: RepublishRequest, _: Caller) -> RepublishResult:
    """Publish again what the broker may have lost; each mail keeps its id."""

    async def republished(connections: QueueConnections) -> RepublishResult:
        older_than = request.selection.older_than or REPUBLISH_OLDER_THAN
        async with connections.open(dry_run=request.dry_run) as queue:
            wanted = request.selection.at(connections.now)
            return RepublishResult(request, await queue.republish(older_than, wanted, dry_run=request.dry_run))

    return with_queues(request.settings, republished)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest(QueueRequest):
    """Put dead letters back into their queue.

    Attributes:
        limit: at most so many; None: all.
        ids_max: how many mails of the queue may be held in memory, about half a KiB each.
    """

    limit: int | None = None
    ids_max: int = IDS_MAX
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """What became of the dead letters, or would."""

    request: RedriveRequest
    counts: Redriven

    @property
    def exit(self) -> ExitCode:
        """Dead letters that cannot be read stay where they are."""
        return ExitCode.DRIFT if self.counts.unreadable else ExitCode.FINE


def redrive(request: RedriveRequest, _: Caller) -> RedriveResult:
    """Put dead letters back under their ids; those that were deleted meanwhile are dropped."""

    async def redriven(connections: QueueConnections) -> RedriveResult:
        async with connections.open(dry_run=request.dry_run) as queue:
            counts = await redrive_queue(queue, request.limit, dry_run=request.dry_run, ids_max=request.ids_max)
            return RedriveResult(request, counts)

    return with_queues(request.settings, redriven)
