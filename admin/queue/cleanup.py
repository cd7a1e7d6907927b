"""Look at all queues of a keyspace, and clean away what no sweep has reached, and marks that never expire."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import starmap
from pathlib import Path

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import (
    OpenCluster,
    chosen_engine,
    owner_name,
    queue_scanner,
    throttle_of,
)
from mailmend.admin.frame.event_loop import run_async
from mailmend.admin.frame.examples import Examples
from mailmend.admin.frame.nodetool import NODETOOL
from mailmend.admin.frame.plan_files import (
    PlanFile,
    PlanHead,
    PlanKind,
    PlanWriter,
    how_to_look,
    plan_wanted,
    seconds_of,
)
from mailmend.admin.frame.scan_options import MARGIN, OF_EVERY_SCAN, ScanOptions
from mailmend.admin.frame.settings import QUEUE_DEFAULT, BlobsSettings, QueueSettings
from mailmend.admin.messages.mending import CheckedTopics, CheckRequest, CommandResult, given
from mailmend.admin.queue import openers
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.garbage_collection import agreed, collector_for
from mailmend.mailqueue.cleanup.cleaning import CleanupSettings, PlannedCleanup, QueueCleanup, planned_of
from mailmend.mailqueue.cleanup.scan import Mark
from mailmend.mailqueue.cleanup.writes import MENDED, CleanedQueue, FindingsRecord
from mailmend.mailqueue.collection.broker_references import topic_references, without_blobs
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.rabbitmq.sweep import Sweeper
from mailmend.mailqueue.rules.cleanup import MarksRule, QueuePlace
from mailmend.model.catalog.ledger import KEEP, KeyspaceLease
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS, QUEUE_TABLES
from mailmend.model.durations import format_duration
from mailmend.model.errors import ExitCode, WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict, Why
from mailmend.repair.clock import Timing, take_as_of
from mailmend.repair.joins.records import Workshop
from mailmend.repair.ledger.runs import Ledger, RunKind
from mailmend.repair.mending.engine import RepairResult
from mailmend.repair.mending.limits import Pace, PacedAsyncTables
from mailmend.repair.mending.runner import close_killed, recorded
from mailmend.repair.mending.throttle import Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupRequest:
    """How all queues of a keyspace are looked at, and what may be removed; the names are the options' names.

    Attributes:
        plan: a file that what would be removed is written to, instead of removing it.
        approved: a plan that is applied: nothing else is removed.
        typed: store and broker as they were typed, without secrets.
    """

    settings: QueueSettings
    scanning: ScanOptions
    margin: timedelta = MARGIN
    keep: timedelta = KEEP
    kind: RunKind = RunKind.QUEUES
    dry_run: bool = False
    plan: Path | None = None
    approved: PlanFile | None = None
    no_recheck: bool = False
    marks: str = MarksRule.KEEP.value
    marks_age: timedelta | None = None
    no_blobs: bool = False
    garbagecollect: bool = False
    nodetool: str = NODETOOL
    yes: bool = False
    typed: str = ""

    @property
    def only_looks(self) -> bool:
        return self.dry_run or self.plan is not None


def find_in_queues(request: CheckRequest, caller: Caller, opened: OpenCluster) -> CommandResult:
    """Look at the queues of the tables, and at the mails of Pulsar's topics where one is named.

    Raises:
        SourceUnread: a topic cannot be read whole.
    """
    store = request.blobs
    assert store is None or isinstance(store, BlobsSettings), "blobs are wanted by `check blobs` alone"
    if request.pulsar is None:
        return _checked_tables(request, store, caller, opened)
    result = CommandResult(RepairResult(opened.mail.name, RunKind.CHECK), queues=())
    if opened.has_queues:
        result = _checked_tables(request, store, caller, opened)
    if store is None:
        unseen = "Whether mails of Pulsar's topics have their blobs was not looked at: no store is known (--blobs)."
        result.summary.unseen = " ".join(filter(None, (result.summary.unseen, unseen)))
        return result
    caller.progress.stage("blobs of Pulsar's topics")
    topics = run_async(_checked_topics(request, request.pulsar, store, opened))
    for topic, place, mail in topics.without_blobs:
        result.summary.count(Finding(Suspect(topic, (place, mail), Verdict.BLOBS_GONE), Verdict.BLOBS_GONE))
    result.summary.exit = max(result.summary.exit, result.summary.exit_code)
    return replace(result, topics=topics)


async def _checked_topics(
    request: CheckRequest, pulsar: PulsarSettings, store: BlobsSettings, opened: OpenCluster
) -> CheckedTopics:
    clock = opened.clock
    topics = openers.topics_behind(pulsar, clock)
    blobs = openers.blobs_behind(store, openers.tables_of(opened.mail), clock, makes=False)
    seconds = 0.0
    if not request.no_recheck:
        seconds = request.delay.total_seconds()
    try:
        with Workshop() as workshop:
            mails, found = await without_blobs(
                lambda: topic_references(topics, clock, workshop.path), blobs, lambda: clock.pause(seconds)
            )
    finally:
        await topics.close()
    lacking = list[tuple[str, str, str]]()
    for line in found:
        topic, place, mail = line.rsplit(" ", 2)
        lacking.append((topic, place, mail))
    return CheckedTopics(topics.namespace, mails, tuple(lacking))


def _checked_tables(
    request: CheckRequest, store: BlobsSettings | None, caller: Caller, opened: OpenCluster
) -> CommandResult:
    settings = QueueSettings(request.connection, QueueName(QUEUE_DEFAULT), None, store)
    cleanup = CleanupRequest(
        settings=settings,
        scanning=request,
        kind=RunKind.CHECK,
        dry_run=True,
        no_recheck=request.no_recheck,
    )
    return repair_queues(cleanup, caller, opened)


def repair_queues(request: CleanupRequest, caller: Caller, opened: OpenCluster | None = None) -> CommandResult:
    """Look twice and remove what no queue needs; with `dry_run`, or as a check, only look.

    Without `opened`, the command connects.

    Raises:
        WrongUse: marks are to be removed by age, and no age is named, or the other way round.
        LeaseHeld: another cleanup of the keyspace is at work.
    """
    if (request.marks == MarksRule.OLD.value) != (request.marks_age is not None):
        raise WrongUse(
            "--marks old and --marks-age belong together",
            mend="Name an age that no message at the broker has reached, its dead letters too: --marks-age 30d.",
        )

    async def both(connections: QueueConnections) -> CommandResult:
        if not request.garbagecollect:
            return await _cleaned(request, connections, caller)
        collector = collector_for(request.nodetool, connections)
        if collector is None:
            caller.remark("No garbage is collected: rows and marks expire here, and their SSTables go whole.")
            return await _cleaned(request, connections, caller)
        cost = await agreed(collector, connections, caller, dry_run=request.only_looks, yes=request.yes)
        result = await _cleaned(request, connections, caller)
        if not request.only_looks:
            cost = await collector.collect(cost, lambda node: caller.progress.stage(f"garbage collection on {node}"))
        if cost.failed:
            result.summary.exit = ExitCode.PARTLY_FAILED
        return replace(result, garbage=cost)

    return with_queues(request.settings, both, opened, makes=False)


def _as_of(request: CleanupRequest, opened: OpenCluster) -> int:
    """T: what is written later is left alone. The T of an approved plan is not passed."""
    skew = request.scanning.clock_skew.total_seconds()
    if request.kind is RunKind.CHECK:
        # A check dates nothing, so no margin has to cover the skew.
        timing = Timing(0, skew, no_writers=True)
    else:
        timing = Timing(request.margin.total_seconds(), skew)
    as_of = take_as_of(opened.clock, opened.cluster, timing)
    if request.approved:
        return min(as_of, request.approved.head.as_of)
    return as_of


def _cleanup_settings(request: CleanupRequest, as_of: int) -> CleanupSettings:
    planned = None
    if request.approved:
        planned = _planned_in(request.approved)
    return CleanupSettings(
        as_of,
        request.scanning.delay.total_seconds(),
        MarksRule(request.marks),
        request.marks_age or timedelta(),
        recheck=not request.no_recheck,
        planned=planned,
    )


async def _cleaned(request: CleanupRequest, connections: QueueConnections, caller: Caller) -> CommandResult:
    opened = connections.cluster
    scan = request.scanning
    as_of = _as_of(request, opened)
    began = opened.clock.monotonic()
    engine = chosen_engine(opened, scan, caller.remark, (DELETED_MAILS,))
    settings = _cleanup_settings(request, as_of)
    result = RepairResult(opened.mail.name, request.kind, engine=engine)
    examples = Examples(caller)
    timed = ENQUEUED_MAILS if request.settings.connection.is_pressed(scan.pace) else None
    ledger = None
    if not request.only_looks:
        ledger = opened.ledger(request.keep)
    throttle = throttle_of(opened, scan.rows_per_second, timed, scan.level, ledger)
    pace = Pace(scan.rows_per_second, opened.clock, throttle)
    view = connections.view_over(PacedAsyncTables(connections.tables, pace))
    scanner = queue_scanner(opened, engine, scan.level, pace)
    blobs = None
    if request.settings.blobs:
        blobs = connections.blobs
    parts = (view, scanner, caller.progress, blobs, connections.broker)
    if ledger is None:
        with plan_wanted(request.plan, lambda: _head_of(request, opened, as_of)) as plan:
            if plan is None:
                queues = await QueueCleanup(*parts).run(settings)
            else:
                queues = await QueueCleanup(*parts, on_mark=_adder(plan)).run(settings)
                _add_to(plan, queues)
        _sum_up(result, queues, examples.take)
    else:
        with _recorded(request, opened, ledger, result, as_of=as_of, throttle=throttle) as record:
            sweeper = Sweeper(view, connections.blobs, connections.broker)
            queues = await QueueCleanup(*parts).run(settings, sweeper, record)
            _sum_up(result, queues, examples.take)
    if not request.approved and blobs is None and any(queue.judged.scanned.waiting for queue in queues):
        why = "--no-blobs" if request.no_blobs else "no store is known (--blobs)"
        result.unseen = f"Whether mails that wait have their blobs was not looked at: {why}."
    if throttle:
        result.pace = throttle.as_json()
    result.seconds = {"queues": opened.clock.monotonic() - began}
    options, file = _plan_of(request)
    return CommandResult(
        result,
        examples.sorted(),
        plan=file,
        options=options,
        queues=tuple(queues),
        stores=request.typed,
    )


def _plan_of(request: CleanupRequest) -> tuple[str, Path | None]:
    """The plan that was applied or written: its options, and its file."""
    if request.approved:
        return request.approved.head.options, request.approved.file
    if request.plan:
        return _typed_again(request), request.plan
    return "", None


def _typed_again(request: CleanupRequest) -> str:
    of_scan = given(request.scanning, OF_EVERY_SCAN)
    return " ".join(filter(None, (request.typed, of_scan, given(request))))


def _adder(plan: PlanWriter) -> Callable[[Mark], None]:
    def add(mark: Mark) -> None:
        plan.add_line(DELETED_MAILS.spelling, Verdict.ORPHAN_MARK.value, {"mark": [mark.queue, str(mark.mail)]})

    return add


def _add_to(plan: PlanWriter, queues: Sequence[CleanedQueue]) -> None:
    for queue in queues:
        for found in queue.are(*MENDED):
            plan.add_seen(found, planned_of(found, queue.judged))


def _planned_in(plan: PlanFile) -> PlannedCleanup:
    suspects = {QueuePlace(suspect.verdict, suspect.key): suspect for suspect in plan.suspects()}
    return PlannedCleanup(
        suspects,
        lambda: starmap(Mark, plan.marks()),
    )


def _head_of(request: CleanupRequest, opened: OpenCluster, as_of: int) -> PlanHead:
    settings = request.settings
    policy = {
        **how_to_look(request.scanning, request.margin, as_of),
        **seconds_of(marks_age=request.marks_age),
        "marks": request.marks,
        "no_blobs": request.no_blobs,
        "broker": "",
        "blobs": "",
    }
    if settings.broker:
        policy["broker"] = settings.broker.place
    if settings.blobs:
        policy["blobs"] = settings.blobs.place
    tables = opened.identity(QUEUE_TABLES)
    options = _typed_again(request)
    return PlanHead(kind=PlanKind.QUEUES, keyspace=opened.mail.name, tables=tables, options=options, policy=policy)


@contextmanager
def _recorded(
    request: CleanupRequest,
    opened: OpenCluster,
    ledger: Ledger,
    result: RepairResult,
    *,
    as_of: int,
    throttle: Throttle | None,
) -> Iterator[FindingsRecord]:
    """A run under a lease, in the ledger: the choices, then the findings, then the sums."""
    name = opened.mail.name
    options = {"marks": request.marks, "marks_age": "", "engine": request.scanning.engine}
    if request.marks_age:
        options["marks_age"] = format_duration(request.marks_age)
    if result.engine:
        options["engine"] = result.engine.name
    if request.approved:
        options |= request.approved.recorded
    command = RunKind.QUEUES.value
    with opened.leases().held(KeyspaceLease.QUEUES.of(name), command):
        close_killed(ledger, name, command, opened.mail)
        run = ledger.start(name, command, as_of, options, owner=owner_name())
        result.run = run.id
        if throttle:
            throttle.hear_of(run.id)
        with recorded(ledger, run, result, opened.mail, ()):
            yield FindingsRecord(as_of, ledger, run.id)


def _sum_up(result: RepairResult, queues: Sequence[CleanedQueue], take: Callable[[Finding], None]) -> None:
    scanned = [queue.judged.scanned for queue in queues]
    result.scanned = {
        ENQUEUED_MAILS.spelling: sum(queue.rows for queue in scanned),
        DELETED_MAILS.spelling: sum(queue.marks for queue in scanned),
    }
    for queue in queues:
        result.suspects += queue.suspects
        if queue.marks_moved:
            result.moved += queue.marks_moved
            result.reasons.setdefault(Verdict.MOVED, Counter())[Why.OTHER_THAN_PLANNED] += queue.marks_moved
        for found in queue.findings.values():
            result.count(found)
            take(found)
    result.exit = result.exit_code
