"""Check and repair of all queues of a keyspace: what the online sweep has not reached, and marks that never expire."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from admin.nodetool import NODETOOL
from admin.services import mending
from admin.services.caller import Caller
from admin.services.mending import CheckRequest, MendingResult
from admin.services.queue.garbage_collection import GarbageCollection, agreed, collector_for
from admin.settings import QUEUE_DEFAULT, QueueSettings
from admin.wiring.cluster import EngineWanted, chosen_engine, owner_name, queue_scanner
from admin.wiring.queues import QueueConnections, with_queues
from mailqueue.maintenance.cleanup import CleanedQueue, CleanupSettings, QueueCleanup
from mailqueue.maintenance.sweep import Sweeper
from model.catalog.ledger import KEEP
from model.catalog.mail_queue import DELETED_MAILS
from model.errors import ExitCode, WrongUse, came_of_interruption
from model.ids import QueueName
from model.instants import MICROS
from model.operations import Level
from model.queue.cleanup import MarksRule, QueueDrift
from repair.clock import MARGIN_SECONDS, SKEW_SECONDS, Timing, take_as_of
from repair.ledger.runs import RunState
from repair.mending.engine import DELAY_SECONDS

COMMAND = "repair queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupRequest:
    """How all queues of a keyspace are looked at, and what may be removed; the names are those of the options."""

    settings: QueueSettings
    engine: str = "auto"
    master: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    rows_per_second: int | None = None
    level: Level = Level.LOCAL_QUORUM
    delay: timedelta = timedelta(seconds=DELAY_SECONDS)
    clock_skew: timedelta = timedelta(seconds=SKEW_SECONDS)
    margin: timedelta = timedelta(seconds=MARGIN_SECONDS)
    keep: timedelta = KEEP
    dry_run: bool = False
    marks: str = MarksRule.KEEP.value
    marks_age: timedelta | None = None
    no_blobs: bool = False
    garbagecollect: bool = False
    nodetool: str = NODETOOL
    yes: bool = False

    @property
    def engine_wanted(self) -> EngineWanted:
        return EngineWanted(self.engine, self.master, dict(self.spark_conf))


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What was found of every queue, and done about it; `run` is None where nothing could be written.

    `garbage` is None where no garbage was to be collected.
    """

    keyspace: str
    queues: tuple[CleanedQueue, ...] = ()
    run: UUID | None = None
    seconds: float = 0.0
    exit: ExitCode = ExitCode.FINE
    left: Counter[QueueDrift] = field(default_factory=Counter)
    garbage: GarbageCollection | None = None


def check(request: CheckRequest, caller: Caller) -> MendingResult | CleanupResult:
    """What `mailmend check` looks at: messages, or all queues."""
    if request.what != "queues":
        return mending.check(request, caller)
    settings = QueueSettings(request.connection, QueueName(QUEUE_DEFAULT))
    names = ("engine", "master", "spark_conf", "rows_per_second", "level", "delay", "clock_skew")
    looks = {name: getattr(request, name) for name in names}
    return repair_queues(CleanupRequest(settings=settings, dry_run=True, **looks), caller)


def repair_queues(request: CleanupRequest, caller: Caller) -> CleanupResult:
    """Look twice, remove what nobody needs; with `dry_run`, or as a check, only look.

    Raises:
        WrongUse: marks are to be removed by age, and no age is named, or the other way round.
        LeaseHeld: another cleanup of the keyspace is at work.
    """
    rule = MarksRule(request.marks)
    if (rule is MarksRule.OLD) != (request.marks_age is not None):
        raise WrongUse(
            "--marks old and --marks-age belong together",
            mend="Name an age that no message at the broker has reached, its dead letters too: --marks-age 30d.",
        )

    async def both(connections: QueueConnections) -> CleanupResult:
        collector = collector_for(request.nodetool, connections) if request.garbagecollect else None
        if collector is None:
            if request.garbagecollect:
                caller.remark("No garbage is collected: rows and marks expire here, and their SSTables go whole.")
            return await cleaned(connections)
        cost = await agreed(collector, connections, caller, dry_run=request.dry_run, yes=request.yes)
        result = await cleaned(connections)
        if not request.dry_run:
            cost = await collector.collect(cost, lambda node: caller.progress.stage(f"garbage collection on {node}"))
        ended = ExitCode.PARTLY_FAILED if cost.failed else result.exit
        return replace(result, garbage=cost, exit=ended)

    async def cleaned(connections: QueueConnections) -> CleanupResult:
        opened, view = connections.cluster, connections.view
        timing = Timing(request.margin.total_seconds(), request.clock_skew.total_seconds())
        as_of = take_as_of(opened.clock, opened.cluster, timing)
        settings = CleanupSettings(as_of, request.delay.total_seconds(), rule, request.marks_age or timedelta())
        blobs = None if request.dry_run or request.no_blobs else connections.blobs
        began = opened.clock.micros()
        engine = chosen_engine(opened, request.engine_wanted, DELETED_MAILS)
        if request.engine == "auto":
            caller.remark(f"Engine: {engine.name} ({engine.why}).")
        wanted = replace(request.engine_wanted, name=engine.name)
        with queue_scanner(opened, wanted, request.level, request.rows_per_second) as scanner:
            cleanup = QueueCleanup(view, scanner, caller.progress, blobs, connections.broker)
            if request.dry_run:
                result = result_of(opened.mail.name, await cleanup.run(settings), wrote=False)
            else:
                sweeper = Sweeper(view, connections.blobs, connections.broker)
                result = await _recorded(request, connections, as_of, lambda: cleanup.run(settings, sweeper))
        return replace(result, seconds=(opened.clock.micros() - began) / MICROS)

    return with_queues(request.settings, both)


async def _recorded(
    request: CleanupRequest, connections: QueueConnections, as_of: int, run: Callable[[], Any]
) -> CleanupResult:
    """Run under a lease, with its sums in the ledger."""
    opened = connections.cluster
    ledger, name = opened.ledger(request.keep), opened.mail.name
    options = {"marks": request.marks, "marks_age": str(request.marks_age or ""), "engine": request.engine}
    with opened.leases().held(f"{COMMAND} {name}", COMMAND):
        started = ledger.start(name, COMMAND, as_of, options, owner=owner_name())
        try:
            result = result_of(name, await run(), wrote=True)
        except BaseException as error:
            state = RunState.INTERRUPTED if came_of_interruption(error) else RunState.FAILED
            ledger.finish(started, {}, state)
            raise
        result = replace(result, run=started.id)
        ledger.finish(started, summary_of(result))
    return result


def result_of(keyspace: str, queues: list[CleanedQueue], *, wrote: bool) -> CleanupResult:
    """The totals: 3 where something could not be done, 1 where drift is left; marks without a row only take room."""
    left: Counter[QueueDrift] = Counter()
    for one in queues:
        left.update(one.left if wrote else one.found)
    failed = any(one.failed for one in queues)
    drift = ExitCode.DRIFT if +left - Counter({QueueDrift.ORPHAN_MARK: left.total()}) else ExitCode.FINE
    return CleanupResult(keyspace, tuple(queues), exit=ExitCode.PARTLY_FAILED if failed else drift, left=+left)


def summary_of(result: CleanupResult) -> dict[str, Any]:
    """The sums as the ledger keeps them; `fixed` and `left` as for messages."""
    fixed: Counter[str] = Counter()
    for one in result.queues:
        fixed.update({QueueDrift.OVER.value: one.rows, "MARK": one.marks})
    return {
        "fixed": dict(+fixed),
        "left": {kind.value: number for kind, number in result.left.items()},
        "queues": {one.queue: {"rows": one.rows, "blobs": one.blobs, "marks": one.marks} for one in result.queues},
        "exit": int(result.exit),
    }
