"""Move the mails of a queue into one over another broker: from RabbitMQ to Pulsar, or back."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import state_folder
from mailmend.admin.frame.event_loop import stop_signal
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.queue.connections import QueueConnections, topics_of, with_queues
from mailmend.admin.queue.move_journal import MoveJournalFile, created, unfinished
from mailmend.admin.queue.request import DryRunRequest
from mailmend.mailqueue.queue import MailQueue, no_due_mails
from mailmend.mailqueue.queue_move import QueueMove, Unmoved
from mailmend.mailqueue.rules.size import Size
from mailmend.model.errors import ExitCode, UnsafeRequest
from mailmend.model.ids import EnqueueId
from mailmend.model.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest(DryRunRequest):
    """Move every mail of a queue.

    Attributes:
        to: the queue that takes them in.
        wait: end when no mail came for so long.
        force: in spite of consumers at the source.
    """

    to: QueueSettings
    wait: timedelta = timedelta(seconds=5)
    force: bool = False

    @property
    def ends(self) -> Mapping[str, str]:
        """The two queues, as the journal names them."""
        return {"source": _place_of(self.settings), "target": _place_of(self.to)}


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What was moved, or would be.

    Attributes:
        before: the source as it was; after a dry run, what would be moved.
        left: how many mails the source shows at the end, one by one; None of a dry run.
        resumed: mails that an interrupted move had taken: moved now, or in a dry run to be moved.
        renamed: mails that have another id now, by their old one.
        stay: mails that could not be moved.
        dead: dead letters at the source, which stay there; None where the broker does not say.
        journal: the file with what was moved; None where nothing was.
    """

    request: MoveRequest
    before: Size
    left: int | None = None
    waiting: int = 0
    delayed: int = 0
    resumed: int = 0
    renamed: Mapping[EnqueueId, EnqueueId] = field(default_factory=dict)
    stay: tuple[Unmoved, ...] = ()
    dead: int | None = None
    consumers: int = 0
    journal: Path | None = None

    @property
    def exit(self) -> ExitCode:
        if self.stay:
            return ExitCode.PARTLY_FAILED
        return ExitCode.DRIFT if self.left else ExitCode.FINE


def move(request: MoveRequest, caller: Caller) -> MoveResult:
    """Move all mails; a move that was interrupted goes on.

    Raises:
        UnsafeRequest: the source has consumers, or another process moves.
        Delayed: no mail can be delayed at the target.
        CannotReach: what is moved stays so; the same command goes on.
    """

    async def moved(source: QueueConnections, target: QueueConnections) -> MoveResult:
        async with source.open(dry_run=request.dry_run) as queue, target.open(dry_run=request.dry_run) as into:
            if not target.can_delay:
                raise no_due_mails()
            figures = await queue.figures()
            depth = figures.depth
            before = await queue.size()
            result = MoveResult(
                request, before, dead=depth.dead if depth else None, consumers=depth.consumers if depth else 0
            )
            if request.dry_run:
                return replace(result, resumed=_taken_before(request))
            if result.consumers and not request.force:
                raise UnsafeRequest(
                    f"{result.consumers:,} consumers take mails from the queue {queue.name!r}",
                    mend="Stop them first, or say --force: see mailmend queue move --help",
                )
            with MoveJournalFile(_journal_of(request, source.now)) as journal:
                caller.remark(f"Journal: {journal.path}")
                caller.progress.stage(f"move {queue.name}", before.mails + before.delayed + len(journal.left))
                one = await _carried_out(request, caller, (queue, into), source.clock, journal)
                return replace(
                    result,
                    left=len([mail async for mail in queue.browse()]),
                    waiting=one.waiting,
                    delayed=one.delayed,
                    resumed=one.resumed,
                    renamed=one.renamed,
                    stay=tuple(one.stay.values()),
                    journal=journal.path,
                )

    return _with_both(request.settings, request.to, moved, makes=not request.dry_run)


def _with_both(
    source: QueueSettings,
    target: QueueSettings,
    carry_out: Callable[[QueueConnections, QueueConnections], Awaitable[MoveResult]],
    *,
    makes: bool,
) -> MoveResult:
    """Connect to two queues, one of which is over Pulsar and the other is not."""
    tabled, over_topics = (target, source) if source.pulsar else (source, target)

    async def connected(tables: QueueConnections) -> MoveResult:
        assert over_topics.pulsar, "one of the queues is over Pulsar"
        async with topics_of(over_topics, over_topics.pulsar, tables.clock, makes=makes) as topics:
            return await (carry_out(topics, tables) if source.pulsar else carry_out(tables, topics))

    return with_queues(tabled, connected, makes=makes)


async def _carried_out(
    request: MoveRequest, caller: Caller, queues: tuple[MailQueue, MailQueue], clock: Clock, journal: MoveJournalFile
) -> QueueMove:
    """Move until a round finds nothing more, or a person stops it: then the journal stays, and it can go on."""
    source, target = queues
    doubtful = [mail.listed.queued.enqueue_id for mail in journal.left.values()]
    arrivals = await target.arrivals(journal.move, doubtful)
    shares_store = request.settings.blobs == request.to.blobs
    one = QueueMove(source, target.name, arrivals, journal, clock, shares_store, caller.progress.advance)
    with stop_signal() as stop:
        await one.resume()
        found = -1
        while one.count > found and not stop.is_set():
            found = one.count
            await one.move_delayed()
            await one.move_waiting(request.wait, stop)
        if not stop.is_set():
            await arrivals.end()
            journal.finish()
    return one


def _journal_of(request: MoveRequest, now: datetime) -> Path:
    folder = state_folder("queue")
    return unfinished(folder, request.queue, request.ends) or created(folder, request.queue, request.ends, now)


def _taken_before(request: MoveRequest) -> int:
    """How many mails an interrupted move has taken and not put."""
    path = unfinished(state_folder("queue"), request.queue, request.ends)
    if path is None:
        return 0
    with MoveJournalFile(path) as journal:
        return len(journal.left)


def _place_of(settings: QueueSettings) -> str:
    """A queue's name and where it is, without secrets."""
    if settings.pulsar:
        return f"{settings.name} at {settings.pulsar.place}"
    broker = settings.broker
    hosts = ", ".join(f"{host.name}:{host.port}" for host in broker.hosts) if broker else ""
    return f"{settings.name} at {hosts}, {broker.vhost if broker else ''}, keyspace {settings.connection.keyspace}"
