"""`mailmend apply`: exactly what an approved plan says, each finding looked at again, and nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mailmend.admin.frame.caller import Caller, ask_to_restore
from mailmend.admin.frame.cluster import OpenCluster, open_cluster, owner_name, repair_tools
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.examples import Examples
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.kinds import Duration, duration_text
from mailmend.admin.frame.options import FILE, PACE, ROWS_PER_SECOND, flag, option
from mailmend.admin.frame.plan_files import PlanFile, PlanKind, plan_in, spans_in
from mailmend.admin.frame.scan_options import DELAY, MARGIN, SKEW, ScanOptions
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.messages.bound_tables import BoundTables, mail_tables, tables_of_run
from mailmend.admin.messages.mending import CommandResult, unseen
from mailmend.admin.messages.options import COUNTERS_AT_ONCE, KEEP_OPTION, REPAIR_EXITS, RESULTS
from mailmend.admin.messages.runs import affected
from mailmend.admin.queue.options import STORES_TYPED, Needs, queue_settings
from mailmend.cql.introspect import live_schema
from mailmend.mailqueue.rules.blob_ids import AGE_MIN, BlobNaming
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.errors import PlanRefused, WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.operations import Level
from mailmend.model.table import Table
from mailmend.repair.clock import Timing
from mailmend.repair.ledger.runs import Run, RunKind
from mailmend.repair.mending import runner
from mailmend.repair.mending.engine import RUNS_APART_MICROS, RepairSettings

if TYPE_CHECKING:
    from mailmend.admin.messages.blobs_result import BlobsResult

PLAN_AGE_MAX = timedelta(days=1)
"""How old a plan may be, without `--max-age`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlanRequest:
    """Which plan is applied; what it may mend, it says itself.

    Attributes:
        settings: where; with the broker and the store of blobs that the plan names.
        rows_per_second: None: as fast as the plan says.
        typed: broker and store as they were typed, without secrets.
    """

    settings: QueueSettings
    plan: Path
    dry_run: bool = False
    max_age: timedelta = PLAN_AGE_MAX
    yes: bool = False
    no_writers: bool = False
    keep: timedelta = KEEP
    rows_per_second: int | None = None
    pace: str | None = None
    typed: str = ""


def apply(request: ApplyPlanRequest, caller: Caller) -> "CommandResult | BlobsResult":
    """Mend what the plan names and is still as it was seen, as of the plan's T; a dry run only looks.

    Raises:
        PlanRefused: the plan is old, edited, undone, or of another keyspace, cluster, broker, store or format.
        UnsafeRequest: what may bring back deleted messages was not agreed to.
        LeaseHeld: another repair of the keyspace is at work.
    """
    with plan_in(request.plan) as plan:
        head = plan.head
        if head.is_of_rows:
            if request.typed:
                of = head.kind.removeprefix("repair ")
                what = f"{request.typed} has no effect on a plan of {of}"
                raise WrongUse(what, mend="Leave it out.")
            return _rows(request, plan, caller)
        if request.no_writers or request.yes:
            raise WrongUse("--no-writers and --yes have no effect on a plan of queues or blobs", mend="Leave them out.")
        settings = request.settings
        broker = settings.broker or settings.pulsar
        for part, named in (("broker", broker), ("blobs", settings.blobs)):
            place = ""
            if named:
                place = named.place
            head.refuse_other(part, place)
        with open_cluster(settings.connection) as opened:
            if head.kind is PlanKind.QUEUES:
                _refuse(request, plan, opened, QUEUE_TABLES)
                return _queues(request, plan, caller, opened)
            _refuse(request, plan, opened, live_schema(opened.cluster, opened.mail.name).tables)
            return _blobs(request, plan, caller, opened)


def _refuse(request: ApplyPlanRequest, plan: PlanFile, opened: OpenCluster, tables: Iterable[Table]) -> None:
    plan.head.refuse_elsewhere(opened.mail.name, opened.identity(tables))
    plan.head.refuse_old(opened.clock.micros(), request.max_age)


def _tables_of(plan: PlanFile, opened: OpenCluster) -> BoundTables:
    """The tables of the plan: James's, or the tables of the declaration that the plan keeps.

    Raises:
        PlanRefused: it names a row that is in no table of its declaration.
    """
    tables = tables_of_run(opened, plan.head.declared, plan.file)
    if tables is None:
        return mail_tables(opened, (MESSAGES,), plan.head.without)
    for suspect in plan.suspects():
        projection = tables.scope.projections.get(suspect.projection)
        if projection is None or len(suspect.key) != len(projection.key):
            raise PlanRefused(
                f"{plan.file} names a row of {suspect.projection}, which it does not declare",
                mend=plan.head.anew,
            )
    return tables


def _rows(request: ApplyPlanRequest, plan: PlanFile, caller: Caller) -> CommandResult:
    head = plan.head
    policy = plan.head.repair_policy
    connection = request.settings.connection
    if policy.dangling == "restore" and not (request.yes or request.dry_run):
        ask_to_restore(caller)
    with open_cluster(connection) as opened:
        keyspace = opened.mail.name
        bound_tables = _tables_of(plan, opened)
        examples = Examples(caller, bound_tables.scope)
        bound = bound_tables.bound
        _refuse(request, plan, opened, (table for family in bound.families for table in family.tables))
        runs = _runs_of(plan, opened, request.keep)
        settings = RepairSettings(
            keyspace=keyspace,
            families=bound.whole(keyspace),
            kind=RunKind.APPLY,
            delay_seconds=0.0,  # its suspects have waited, and were looked at twice
            timing=Timing(head.margin_seconds, policy.skew_seconds, no_writers=request.no_writers),
            dry_run=request.dry_run,
            policy=replace(policy, rows_per_second=request.rows_per_second or policy.rows_per_second),
            pressed=connection.is_pressed(request.pace),
            as_of=policy.as_of - RUNS_APART_MICROS * len(runs),
            owner=owner_name(),
            options=plan.recorded,
        )
        keep: timedelta | None = request.keep
        if request.dry_run:
            keep = None
        tools = repair_tools(opened, settings, plan, caller.progress, keep=keep)
        summary = runner.repair(settings, tools, examples.take)
        whose = affected(examples, opened)
    summary.unseen = unseen(head.without, bound)
    return CommandResult(
        summary,
        examples.sorted(),
        plan=request.plan,
        options=head.options,
        affected=whose,
        scope=bound_tables.scope,
    )


def _runs_of(plan: PlanFile, opened: OpenCluster, keep: timedelta) -> list[Run]:
    """The runs that applied the plan before, whole or in part.

    Raises:
        PlanRefused: one of them was undone: what it wrote again would be hidden by what the undo removed.
    """
    ledger = opened.existing_ledger(keep)
    if ledger is None:
        return []
    every = ledger.runs(opened.mail.name)
    runs = [run for run in every if run.options.get("seal") == plan.seal]
    for run in runs:
        if undo := undo_of(run, every):
            raise PlanRefused(
                f"the plan was applied by run {run.id}, and that was undone by run {undo.id}",
                mend=f"To do it after all: mailmend undo {undo.id}, or make the plan anew.",
            )
    return runs


def undo_of(run: Run, every: Sequence[Run]) -> Run | None:
    """The run that undid a run, and was not undone itself."""
    for other in every:
        if other.undoes == run.id and not undo_of(other, every):
            return other
    return None


def _queues(request: ApplyPlanRequest, plan: PlanFile, caller: Caller, opened: OpenCluster) -> CommandResult:
    from mailmend.admin.queue.cleanup import CleanupRequest, repair_queues  # noqa: PLC0415 - only for such a plan

    policy = plan.head.policy
    spans = spans_in(policy)
    asked = CleanupRequest(
        settings=request.settings,
        scanning=_scanning_of(request, policy),
        margin=spans.get("margin", MARGIN),
        keep=request.keep,
        kind=RunKind.APPLY,
        dry_run=request.dry_run,
        approved=plan,
        marks=policy["marks"],
        marks_age=spans.get("marks_age"),
        no_blobs=policy["no_blobs"],
        typed=request.typed,
    )
    return repair_queues(asked, caller, opened)


def _blobs(request: ApplyPlanRequest, plan: PlanFile, caller: Caller, opened: OpenCluster) -> "BlobsResult":
    from mailmend.admin.messages.blob_sources import BlobsWanted  # noqa: PLC0415 - only for such a plan
    from mailmend.admin.messages.blobs import BlobsRequest, repair_blobs  # noqa: PLC0415 - only for such a plan

    policy = plan.head.policy
    settings = request.settings
    spans = spans_in(policy)
    assert settings.blobs is not None, "a plan of blobs names their store"
    wanted = BlobsWanted(
        store=settings.blobs,
        broker=settings.broker or settings.pulsar,
        typed=request.typed,
        family=policy["family"],
        no_broker=policy["no_broker"],
        only_broker=policy.get("only_broker", False),
        references=tuple(policy["references"]),
        references_file=tuple(map(Path, policy["references_file"])),
        queues=tuple(map(QueueName, policy["queues"])),
        oldest_message=spans.get("oldest_message"),
        min_age=spans.get("min_age", AGE_MIN),
        generation=spans.get("generation", BlobNaming().generation),
    )
    asked = BlobsRequest(
        connection=settings.connection,
        scanning=_scanning_of(request, policy),
        blobs=wanted,
        margin=spans.get("margin", MARGIN),
        keep=request.keep,
        dry_run=request.dry_run,
        approved=plan,
    )
    return repair_blobs(asked, caller, opened)


def _scanning_of(request: ApplyPlanRequest, policy: Mapping[str, Any]) -> ScanOptions:
    """How a plan of queues or blobs is looked at again: as the plan says, at the pace of the request."""
    spans = spans_in(policy)
    return ScanOptions(
        engine="local",
        rows_per_second=request.rows_per_second or policy["rows_per_second"],
        pace=request.pace,
        level=Level(policy["level"]),
        delay=spans.get("delay", DELAY),
        clock_skew=spans.get("clock_skew", SKEW),
    )


_LONGEST: Final = timedelta(days=30)


def _planned(part: str) -> Needs:
    """Broker and store are needed where the plan was made with them."""
    return lambda given: bool(imported("mailmend.admin.frame.plan_files:needs_of")(given["plan"], part))


APPLY: Final = Command(
    name="apply",
    summary="Do exactly what a plan says.",
    about="""PLAN is a file that `mailmend repair messages`, `repair queues` or `repair blobs` has written with --plan,
    and that an operator has approved. Each finding is looked at again; a finding that has changed since counts as
    MOVED, and is left. Nothing else is mended or removed. Everything is written as of the plan's own T, under a lease.
    After an interruption the same command goes on.

    A plan of messages needs no scan; before-images are kept, and `mailmend undo` takes back what was done. For a plan
    of queues their tables are read twice, as by `repair queues`: each removal is proved anew, marks included. For a
    plan of blobs all references are read once more. Name the same broker and the same store of blobs as for the plan.

    A plan is refused if it is older than --max-age, was edited or undone, is of another keyspace, cluster, broker or
    store, was made before these tables were altered, or has another format. The plan itself contains what may be
    mended.""",
    service="mailmend.admin.messages.apply:apply",
    present="mailmend.admin.messages.check:check_document",
    options=(
        click.Argument(["plan"], type=FILE, metavar="PLAN"),
        flag("--dry-run", "Write nothing: look again, and say what would be mended."),
        option(
            "--max-age",
            "Refuse a plan that was made longer ago than this.",
            type=Duration(_LONGEST, zero=False),
            default=duration_text(PLAN_AGE_MAX),
        ),
        flag("--yes", "Do not ask: do as a plan made with --dangling restore says."),
        COUNTERS_AT_ONCE,
        KEEP_OPTION,
        ROWS_PER_SECOND,
        PACE,
    ),
    shared=(queue_settings(broker=_planned("broker"), blobs=_planned("blobs"), named=False), STORES_TYPED),
    output=RESULTS,
    examples="""
        mailmend repair messages --plan plan.jsonl     write it; then have it approved
        mailmend apply plan.jsonl --dry-run            what of it would still be done
        mailmend apply plan.jsonl                      do it
        mailmend repair blobs --plan old.jsonl --blobs s3://mail --oldest-message 7d
        mailmend apply old.jsonl --blobs s3://mail     remove the blobs that it names
        mailmend undo RUN                              put it back""",
    exits=REPAIR_EXITS,
)
