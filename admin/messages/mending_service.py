"""Check, repair and undo: drift found, mended after a second look, and put back."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mailmend.admin.frame.caller import Caller, ask_to_restore
from mailmend.admin.frame.cluster import (
    EngineWanted,
    OpenCluster,
    chosen_engine,
    lag_tools,
    open_cluster,
    owner_name,
    repair_tools,
    undo_tools,
)
from mailmend.admin.frame.examples import Affected, Example, Examples, both_of
from mailmend.admin.frame.plan_files import head_of, plan_into
from mailmend.admin.frame.settings import ConnectionSettings, plain, typed_as
from mailmend.admin.messages.runs import affected
from mailmend.admin.messages.staging import ended, staged
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.catalog.mail import FAMILIES, MESSAGES
from mailmend.model.errors import UnsafeRequest, WrongUse
from mailmend.model.ids import MailboxId, MessageId, RunId
from mailmend.model.operations import Level
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import RepairPolicy
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.repair.binding import Bound
from mailmend.repair.clock import MARGIN_SECONDS, SKEW_SECONDS, STAMP_AGE_SECONDS, Timing, take_as_of
from mailmend.repair.mending import lag_repair, runner
from mailmend.repair.mending.engine import DELAY_SECONDS, RepairSettings
from mailmend.repair.mending.generators import Generators
from mailmend.repair.mending.limits import Pace
from mailmend.repair.mending.runner import RepairResult
from mailmend.repair.mending.undo import UndoSettings, undoable
from mailmend.repair.mending.undo import undo as undo_run
from mailmend.repair.scanners.lookup import Target, TargetMailboxes, TargetMessages, mailboxes_of, refuse_unknown

if TYPE_CHECKING:
    from mailmend.admin.messages.blob_sources import BlobsWanted
    from mailmend.admin.queue.cleanup import CleanupRequest
    from mailmend.admin.queue.garbage_collection import GarbageCollection
    from mailmend.mailqueue.cleanup.writes import CleanedQueue  # its libraries come with an extra of their own

DELAY = timedelta(seconds=DELAY_SECONDS)
SKEW = timedelta(seconds=SKEW_SECONDS)
MARGIN = timedelta(seconds=MARGIN_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """How a keyspace is scanned: what check and repair have in common.

    Attributes:
        engine: "auto", "spark" or "local".
        pace: "auto" (slow down while the cluster suffers), "full", or None: auto in a job.
        torn: "report" or "accept".
        without: columns and tables that are neither compared nor written.
        delay: between the scan and the second look.
        clock_skew: the greatest difference between any two clocks.
    """

    connection: ConnectionSettings
    engine: str = "auto"
    master: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    rows_per_second: int | None = None
    pace: str | None = None
    level: Level = Level.LOCAL_QUORUM
    torn: str = "report"
    without: tuple[str, ...] = ()
    delay: timedelta = DELAY
    clock_skew: timedelta = SKEW
    no_writers: bool = False
    staging: str | None = None

    @property
    def engine_wanted(self) -> EngineWanted:
        return EngineWanted(self.engine, self.master, dict(self.spark_conf))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest(ScanRequest):
    """`what` is "messages", "queues", "blobs" or "all" (the paths of mailboxes too).

    Attributes:
        blobs: where the contents of mails in queues are; None: not looked at. Of blobs: a `BlobsWanted`.
        pulsar: whose topics' mails are looked at too, as `PulsarSettings`; None: there is none.
    """

    what: str = "all"
    no_recheck: bool = False
    blobs: Any = None
    pulsar: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest(ScanRequest):
    """What may be mended, and where; the names are those of the options.

    Attributes:
        plan: a file that what would be mended is written to, instead of mending it.
    """

    dry_run: bool = False
    plan: Path | None = None
    only: tuple[frozenset[Verdict], ...] = ()
    max_fixes: int | None = None
    orphans: str = "report"
    dangling: str = "withdraw"
    leaks: str = "report"
    beat_ahead: bool = False
    yes: bool = False
    margin: timedelta = MARGIN
    keep: timedelta = KEEP
    message: tuple[UUID, ...] = ()
    mailbox: tuple[UUID, ...] = ()
    user: tuple[str, ...] = ()
    scan: bool = False

    @property
    def verdicts(self) -> frozenset[Verdict]:
        return frozenset[Verdict]().union(*self.only) or MENDABLE

    @property
    def only_looks(self) -> bool:
        return self.dry_run or self.plan is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagsRequest:
    """How journalled lags are mended."""

    connection: ConnectionSettings
    dry_run: bool = False
    without: tuple[str, ...] = ()
    delay: timedelta = DELAY
    clock_skew: timedelta = SKEW
    margin: timedelta = MARGIN
    no_writers: bool = False
    keep: timedelta = KEEP
    rows_per_second: int | None = None
    pace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRequest:
    """Which run is undone."""

    connection: ConnectionSettings
    run: UUID
    dry_run: bool = False
    no_writers: bool = False


@dataclass(frozen=True, slots=True)
class MendingResult:
    """The totals of a check, a repair or an undo, and a few of the findings.

    Attributes:
        options: what a person gave besides the connection, as a command line.
        plan: the file of a plan that was made, or applied; None where there is none.
        stores: broker and store as they were typed, where applying the plan needs them again.
        queues: each mail queue; None where they were not looked at.
        topics: the mails of Pulsar's topics; None where they were not looked at.
        garbage: what a garbage collection of their tables costs, or came to; None where none was asked for.
        affected: in whose mailboxes the findings are; None where no report tells it.
    """

    summary: RepairResult
    examples: tuple[Example, ...] = ()
    options: str = ""
    plan: Path | None = None
    queues: "tuple[CleanedQueue, ...] | None" = None
    garbage: "GarbageCollection | None" = None
    affected: Affected | None = None
    stores: str = ""
    topics: "CheckedTopics | None" = None


@dataclass(frozen=True, slots=True)
class CheckedTopics:
    """The mails of a namespace of Pulsar's, beside their blobs.

    Attributes:
        without_blobs: topic, place and id of each mail whose bytes are gone.
    """

    namespace: str
    mails: int
    without_blobs: tuple[tuple[str, str, str], ...]


def check(
    request: CheckRequest, caller: Caller, opened: OpenCluster, meanwhile: Callable[[], object] | None = None
) -> MendingResult:
    """Find drift, without writing anything; `meanwhile` is called once, where lags are waited for."""
    examples = Examples()
    skew = request.clock_skew.total_seconds()
    bound = opened.bound((MESSAGES,) if request.what == "messages" else FAMILIES, request.without)
    settings = RepairSettings(
        keyspace=opened.mail.name,
        families=bound.families,
        missing_columns=bound.missing_columns,
        missing_tables=bound.missing_tables,
        level=request.level,
        delay_seconds=request.delay.total_seconds(),
        timing=Timing(0, skew, no_writers=True),
        recheck=not request.no_recheck,
        pressed=request.connection.is_pressed(request.pace),
        policy=RepairPolicy(accept_torn=request.torn == "accept", rows_per_second=request.rows_per_second),
    )
    # Nothing is written, so any margin that covers the skew will do for the two looks at counters.
    counters = Timing(skew + STAMP_AGE_SECONDS + 1, skew, no_writers=request.no_writers)
    engine = chosen_engine(opened, request.engine_wanted, caller.remark)
    with staged(request.staging, opened, settings, caller) as (settings, area):
        wanted = replace(request.engine_wanted.chosen(engine), staging=area)
        tools = repair_tools(opened, wanted, settings, caller.progress, timing=counters)
        summary = runner.check(settings, replace(tools, meanwhile=meanwhile), both_of(examples, caller))
        ended(summary, area)
    summary.unseen = unseen(request.without, bound)
    summary.engine = engine
    return MendingResult(summary, examples.sorted(), given(request), affected=affected(examples, opened, caller))


def repair(request: RepairRequest, caller: Caller) -> MendingResult:
    """Mend drift after a second look, as of a moment before the scan; a dry run only looks, a plan is written down.

    Raises:
        UnsafeRequest: what may bring back deleted messages was not agreed to.
        FixLimit: more is due than `max_fixes` allows; nothing was written.
        LeaseHeld: another repair of the keyspace is at work.
    """
    _refuse_unasked_restore(request, caller)
    examples = Examples()
    with open_cluster(request.connection) as opened:
        target = target_of(opened, request)
        bound = opened.bound((MESSAGES,), request.without)
        settings = _settings_of(request, bound.whole(opened.mail.name), opened.mail.name, target)
        if isinstance(target, TargetMessages):
            refuse_unknown(Pace(request.rows_per_second, opened.clock).over(opened.mail), settings.families[0], target)
        engine = None if target else chosen_engine(opened, request.engine_wanted, caller.remark)
        wanted = replace(request.engine_wanted, target=target)
        if engine:
            wanted = wanted.chosen(engine)
            settings = replace(settings, options={**settings.options, "engine": engine.name})
        keep = None if request.only_looks else request.keep
        typed = replace(request, user=("NAME",) * len(request.user)) if caller.anonymous else request
        if request.plan:
            settings = replace(settings, as_of=take_as_of(opened.clock, opened.cluster, settings.timing))
        with staged(None if target else request.staging, opened, settings, caller) as (settings, area):
            tools = repair_tools(opened, replace(wanted, staging=area), settings, caller.progress, keep=keep)
            if request.plan is None:
                go_on = None if request.dry_run else caller.ask
                summary = runner.repair(settings, replace(tools, go_on=go_on), both_of(examples, caller))
            else:
                tables = opened.identity(table for family in settings.families for table in family.tables)
                head = head_of(settings, tables, given(typed), request.without)
                with plan_into(request.plan, head) as plan:
                    summary = runner.repair(settings, tools, both_of(examples, caller, plan.add))
            ended(summary, area)
        if summary.run and summary.generators:
            _raise_generators(summary, opened, settings.families)
        whose = affected(examples, opened, caller)
    of_target = target.unseen(summary.gaps) if target else None
    summary.unseen = unseen(request.without, bound, of_target)
    summary.engine = engine
    return MendingResult(summary, examples.sorted(), given(typed), request.plan, affected=whose)


def _raise_generators(summary: RepairResult, opened: OpenCluster, families: Sequence[Family]) -> None:
    """Raise the generators that are behind the messages: they only ever grow, so this needs no undo."""
    (family,) = (one for one in families if one.counts)
    generators = Generators(opened.mail, family, opened.clock, opened.mail.name)
    summary.generators = [generators.raised(generator) for generator in summary.generators]
    summary.exit = int(summary.exit_code)


def repair_lags(request: LagsRequest, caller: Caller) -> MendingResult:
    examples = Examples()
    with open_cluster(request.connection) as opened:
        bound = opened.bound((MESSAGES,), request.without)
        settings = RepairSettings(
            keyspace=opened.mail.name,
            families=bound.whole(opened.mail.name),
            delay_seconds=request.delay.total_seconds(),
            timing=_timing(request),
            dry_run=request.dry_run,
            policy=RepairPolicy(rows_per_second=request.rows_per_second),
            pressed=request.connection.is_pressed(request.pace),
            owner=owner_name(),
            options={"lags": True, "delay": plain(request.delay), "margin": plain(request.margin)},
        )
        journal, tools = lag_tools(opened, settings, caller.progress, request.keep)
        summary = lag_repair.repair_lags(journal, opened.mail, settings, tools, both_of(examples, caller))
        whose = affected(examples, opened, caller)
    summary.unseen = unseen(request.without, bound)
    return MendingResult(summary, examples.sorted(), given(request), affected=whose)


def undo(request: UndoRequest, caller: Caller) -> MendingResult:
    """Restore the rows that a run changed, where nobody has changed them since.

    Raises:
        UnknownRun: no such run is kept.
    """
    examples = Examples()
    with open_cluster(request.connection) as opened:
        undoable(opened.known_ledger(request.run), request.run, opened.mail.name)
        families = opened.bound((MESSAGES,)).whole(opened.mail.name, may_leave_out=False)
        settings = UndoSettings(
            RunId(request.run),
            opened.mail.name,
            families,
            dry_run=request.dry_run,
            owner=owner_name(),
            options={"run": str(request.run), "no_writers": request.no_writers},
        )
        tools = undo_tools(opened, families, caller.progress, no_writers=request.no_writers)
        summary = undo_run(settings, tools, both_of(examples, caller))
        whose = affected(examples, opened, caller)
    return MendingResult(summary, examples.sorted(), affected=whose)


def unseen(without: Sequence[str], bound: Bound, of_target: str | None = None) -> str | None:
    """What was not looked at, in a sentence or two; None where everything was."""
    left = f"Neither compared nor written: {', '.join(without)}." if without else None
    lost = f"Not looked at: {', '.join(bound.unseen)}." if bound.unseen else None
    return " ".join(filter(None, (of_target, left, lost))) or None


def target_of(opened: OpenCluster, request: RepairRequest) -> Target | None:
    if request.scan and not (request.message or request.mailbox or request.user):
        raise WrongUse(
            "--scan goes with --message, --mailbox or --user", mend="Without them everything is scanned anyway."
        )
    of_users = [mailbox for user in request.user for mailbox in mailboxes_of(opened.mail, user)]
    everywhere = tuple(dict.fromkeys([*map(MailboxId, request.mailbox), *of_users]))
    if request.message:
        return TargetMessages(tuple(map(MessageId, request.message)), everywhere, request.scan)
    return TargetMailboxes(everywhere, scan=request.scan) if everywhere else None


def _timing(request: RepairRequest | LagsRequest) -> Timing:
    return Timing(request.margin.total_seconds(), request.clock_skew.total_seconds(), no_writers=request.no_writers)


def _settings_of(
    request: RepairRequest, families: tuple[Family, ...], keyspace: str, target: Target | None
) -> RepairSettings:
    all_truths = request.scan or not isinstance(target, TargetMailboxes)
    return RepairSettings(
        keyspace=keyspace,
        families=families,
        level=request.level,
        delay_seconds=request.delay.total_seconds(),
        timing=_timing(request),
        dry_run=request.dry_run,
        policy=RepairPolicy(
            only=request.verdicts,
            **{name: getattr(request, name) for name in _OF_POLICY},
            accept_torn=request.torn == "accept",
            all_truths=all_truths,
        ),
        pressed=request.connection.is_pressed(request.pace),
        max_fixes=request.max_fixes,
        owner=owner_name(),
        options=_recorded_options(request, target),
    )


_OF_POLICY = ("orphans", "dangling", "leaks", "beat_ahead", "rows_per_second")
_NOT_RECORDED = frozenset({"connection", "master", "spark_conf", "user"})


def _recorded_options(request: RepairRequest, target: Target | None) -> Mapping[str, Any]:
    """The request as the ledger keeps it, under the names of the options; users by their mailboxes' ids."""
    given = {field.name: getattr(request, field.name) for field in fields(request) if field.name not in _NOT_RECORDED}
    if request.only:
        given["only"] = sorted(verdict.value for verdict in request.verdicts)
    if request.user and target:
        given["mailbox"] = target.mailboxes if isinstance(target, TargetMessages) else target.ids
    return {name: plain(value) for name, value in given.items() if value not in (None, False, ())}


_NOT_REPEATED = frozenset(
    {
        *("connection", "what", "dry_run", "plan", "no_recheck", "blobs", "store", "broker", "typed", "missing"),
        *("settings", "approved", "command"),
    }
)


def given(request: "ScanRequest | LagsRequest | BlobsWanted | CleanupRequest") -> str:
    """The options that differ from their defaults, as words to be typed again with a repair."""
    left = _NOT_REPEATED | ({"no_writers"} if isinstance(request, CheckRequest) else set())
    typed = (
        f"--{field.name.replace('_', '-')} {shlex.quote(text) if text else ''}".strip()
        for field in fields(request)
        if field.name not in left and getattr(request, field.name) != field.default
        for text in typed_as(getattr(request, field.name))
    )
    return " ".join(typed)


def _refuse_unasked_restore(request: RepairRequest, caller: Caller) -> None:
    """A row of truth is restored whole or not at all, so not without a column; and only where a person agrees."""
    if request.dangling == "restore" and request.without:
        raise UnsafeRequest("--dangling restore does not go with --without", mend="First add the missing column.")
    if request.dangling == "restore" and not (request.yes or request.only_looks):
        ask_to_restore(caller)
