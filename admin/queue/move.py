"""`mailmend queue move`: mails into a queue over another broker, from RabbitMQ to Pulsar, or back."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import state_folder
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.event_loop import stop_signal
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import CONNECTION, FILE, connection_of, flag, option
from mailmend.admin.frame.settings import QueueSettings, is_pulsar, parse_blobs, parse_management
from mailmend.admin.frame.values import NOTHING_WRITTEN, plain
from mailmend.admin.queue.broker_options import target_of
from mailmend.admin.queue.connections import QueueConnections, topics_of, with_queues
from mailmend.admin.queue.kept_mails import MoveJournalFile, created, unfinished
from mailmend.admin.queue.options import (
    DRY_RUN,
    QUEUE_ARGUMENT,
    QUEUE_NAME,
    blobs_of,
    james_of,
    local_service,
    queue_settings,
    unless,
)
from mailmend.admin.queue.request import DryRunRequest, queue_document
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.queue import FailedMail, MaintainedQueue, no_due_mails
from mailmend.mailqueue.queue_move import QueueMove
from mailmend.mailqueue.rules.size import Size, SizeKind
from mailmend.model.errors import ExitCode, UnsafeRequest, WrongUse
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
    stay: tuple[FailedMail, ...] = ()
    dead: int | None = None
    consumers: int = 0
    journal: Path | None = None

    @property
    def exit(self) -> ExitCode:
        if self.stay:
            return ExitCode.PARTLY_FAILED
        if self.left:
            return ExitCode.DRIFT
        return ExitCode.FINE


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
            depth = (await queue.figures()).depth
            before = await queue.size()
            result = MoveResult(request, before)
            if depth:
                result = replace(result, dead=depth.dead, consumers=depth.consumers)
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
                done = await _carried_out(request, caller, (queue, into), source.clock, journal)
                return replace(
                    result,
                    left=len([mail async for mail in queue.browse()]),
                    waiting=done.waiting,
                    delayed=done.delayed,
                    resumed=done.resumed,
                    renamed=done.renamed,
                    stay=tuple(done.stay.values()),
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
    if source.pulsar:
        from_pulsar = source.pulsar

        async def out_of_pulsar(tables: QueueConnections) -> MoveResult:
            async with topics_of(source, from_pulsar, tables.clock, makes=makes) as topics:
                return await carry_out(topics, tables)

        return with_queues(target, out_of_pulsar, makes=makes)

    async def into_pulsar(tables: QueueConnections) -> MoveResult:
        assert target.pulsar, "one of the queues is over Pulsar"
        async with topics_of(target, target.pulsar, tables.clock, makes=makes) as topics:
            return await carry_out(tables, topics)

    return with_queues(source, into_pulsar, makes=makes)


async def _carried_out(
    request: MoveRequest,
    caller: Caller,
    queues: tuple[MaintainedQueue, MaintainedQueue],
    clock: Clock,
    journal: MoveJournalFile,
) -> QueueMove:
    """Move until a round finds nothing more, or a person stops it: then the journal stays, and it can go on."""
    source, target = queues
    doubtful = [mail.listed.queued.enqueue_id for mail in journal.left.values()]
    arrivals = await target.arrivals(journal.move, doubtful)
    shares_store = request.settings.blobs == request.to.blobs
    moving = QueueMove(source, target.name, arrivals, journal, clock, shares_store, caller.progress.advance)
    with stop_signal() as stop:
        await moving.resume()
        found = -1
        while moving.count > found and not stop.is_set():
            found = moving.count
            await moving.move_delayed()
            await moving.move_waiting(request.wait, stop)
        if not stop.is_set():
            await arrivals.end()
            journal.finish()
    return moving


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
    hosts = ""
    vhost = ""
    if settings.broker:
        hosts = ", ".join(f"{host.name}:{host.port}" for host in settings.broker.hosts)
        vhost = settings.broker.vhost
    return f"{settings.name} at {hosts}, {vhost}, keyspace {settings.connection.keyspace}"


def move_document(result: MoveResult) -> Document:
    request = result.request
    before = result.before
    json = {
        "dry_run": request.dry_run,
        **request.ends,
        "before": plain(before),
        "moved": {"waiting": result.waiting, "delayed": result.delayed},
        "resumed": result.resumed,
        "renamed": {str(was): str(now) for was, now in result.renamed.items()},
        "failed": [{"id": str(failed.enqueue_id), "why": failed.why} for failed in result.stay],
        "left": result.left,
        "dead_letters": result.dead,
        "consumers": result.consumers,
        "journal": result.journal,
    }
    if request.dry_run:
        about = "" if before.kind is SizeKind.EXACT else "about "
        counted = f"{about}{before.mails:,} mails that wait and {before.delayed:,} delayed ones"
        lines = [f"{NOTHING_WRITTEN} To be moved: {counted}, to {request.ends['target']}."]
        if result.resumed:
            lines.append(f"An interrupted move has taken {result.resumed:,} more; it would go on with them first.")
        if result.consumers:
            lines.append(f"{result.consumers:,} consumers are at the source: stop them first.")
        return queue_document(result, json, lines)
    lines = [f"Moved {result.waiting:,} mails that waited and {result.delayed:,} delayed ones of {request.queue}."]
    if result.resumed:
        lines.append(f"{result.resumed:,} more had been taken by an interrupted move.")
    if result.renamed:
        lines.append(f"{len(result.renamed):,} have another id now, for that queue had them before: see --json.")
    if result.left:
        lines.append(f"{result.left:,} are left at the source. See: mailmend queue browse {request.queue}")
    if result.dead:
        lines.append(f"{result.dead:,} dead letters stay at the source. See: mailmend queue redrive --dry-run")
    failures = [f"not moved: {failed.enqueue_id}: {failed.why}" for failed in result.stay]
    return queue_document(result, json, lines, failures)


WAIT_MAX: Final = timedelta(days=1)

_TARGET: Final = (
    option(
        "--to-broker",
        "Where the mails go: pulsar://... of a queue over RabbitMQ, amqp://... of one over Pulsar, as in --broker. "
        "Password: MAILMEND_TO_PASSWORD.",
        required=True,
        metavar="URL",
    ),
    option("--to-queue", "Name of the queue there. [default: the same]", type=QUEUE_NAME, metavar="NAME"),
    option(
        "--to-blobs",
        "Blob store there, with the keys of --blobs. [default: the same]",
        type=ParsedValue("blobs", lambda value: parse_blobs(str(value))),
        metavar="URL",
    ),
    option("--to-password-file", "A file whose first line is the password there.", type=FILE, metavar="FILE"),
    option(
        "--to-management",
        "HTTP API of the broker there, as in --broker-management.",
        type=ParsedValue("management", lambda value: parse_management(str(value))),
        metavar="URL",
    ),
    option("--to-tls-ca", "Certificate of the authority that signed that broker's.", type=FILE, metavar="FILE"),
)


def _target(own: Values, _others: Values, context: click.Context) -> QueueSettings:
    """The queue that takes the mails in: over the other kind of broker than the source."""
    given = {**context.params, **own}
    over_pulsar = is_pulsar(own["to_broker"])
    if over_pulsar == is_pulsar(given["broker"] or ""):
        raise WrongUse(
            "a queue moves between RabbitMQ and Pulsar, and both brokers are of one kind",
            mend="Name one with amqp:// or amqps://, the other with pulsar:// or pulsar+ssl://.",
        )
    connection = connection_of(given, context, asks=False) if over_pulsar else CONNECTION.build(given, {}, context)
    broker = target_of(given, context)
    name = own["to_queue"] or given["queue_named"] or given["queue"]
    blobs = blobs_of({**given, "blobs": own["to_blobs"] or given["blobs"]}, context, local_service)
    if isinstance(broker, PulsarSettings):
        return QueueSettings(connection, name, blobs=blobs, pulsar=broker, james=james_of(given))
    return QueueSettings(connection, name, broker, blobs)


MOVE: Final = Command(
    name="move",
    summary="Move a queue from RabbitMQ to Pulsar, or back.",
    about="""Every mail is moved, also mails that are put at the source meanwhile: waiting mails as a consumer would
    get them, delayed mails with their time. Each mail keeps its envelope, attributes, attempts, last error, time of
    enqueueing and id. A mail that comes back to a queue which had it before gets another id, which follows from the
    old one.

    Killed at any step, the same command goes on: what was taken is in a journal in ~/.local/share/mailmend/queue, and
    is moved once. So go on with it on the same machine, as the same user. Consumers may work at the target meanwhile.
    Consumers at the source are refused, for a mail that one of them finishes while a move is interrupted may come
    twice; --force lets them be.

    It ends when no mail came for --wait. Dead letters stay, and so do mails whose message the broker has lost: what is
    left is counted. Bytes are stored anew for the target; where blob ids are deduplicated and both queues have one
    store, they stay.""",
    service="mailmend.admin.queue.move:move",
    present="mailmend.admin.queue.move:move_document",
    options=(
        QUEUE_ARGUMENT,
        option("--wait", "End when no mail came for this long.", type=Duration(WAIT_MAX), default="5s"),
        flag("--force", "Go on in spite of consumers. At the source they are refused without it."),
        DRY_RUN,
    ),
    shared=(Shared("to", {"Target": _TARGET}, _target), queue_settings(broker=unless(), blobs=unless())),
    examples="""
        mailmend queue move outgoing --to-broker pulsar://pulsar.example.org --dry-run     how many; writes nothing
        mailmend queue move outgoing --to-broker pulsar://pulsar.example.org               from RabbitMQ
        mailmend queue move outgoing --broker pulsar://pulsar.example.org --to-broker amqp://rabbit   and back""",
    exits="0 the source is empty but for dead letters (or it was a dry run), 1 mails are left there; 2 wrong use, or "
    "the source has consumers; 3 some cannot be moved (each is named); 4 cannot reach: what is moved stays so, the "
    "same command goes on.",
)
