"""Apply a plan that was approved: exactly what it says, each finding looked at again, and nothing else."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from admin.plan_files import PlanFile, plan_in
from admin.services.caller import Caller, ask_to_restore
from admin.services.examples import Examples
from admin.services.mending import MendingResult, both_of, unseen
from admin.services.runs import affected
from admin.settings import ConnectionSettings
from admin.wiring.cluster import EngineWanted, OpenCluster, open_cluster, owner_name, repair_tools
from model.catalog.ledger import KEEP
from model.catalog.mail import MESSAGES
from repair.clock import Timing
from repair.mending import runner
from repair.mending.engine import RepairSettings

PLAN_AGE_MAX = timedelta(days=1)
"""How old a plan may be, without `--max-age`."""

_APART_MICROS = 1_000
"""Between the Ts of a plan's runs: each has stamps of its own, and its undo some just above them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlanRequest:
    """Which plan is applied; what it may mend, it says itself.

    Attributes:
        rows_per_second: None: as fast as the plan says.
    """

    connection: ConnectionSettings
    plan: Path
    dry_run: bool = False
    max_age: timedelta = PLAN_AGE_MAX
    yes: bool = False
    no_writers: bool = False
    keep: timedelta = KEEP
    rows_per_second: int | None = None
    pace: str | None = None


def apply(request: ApplyPlanRequest, caller: Caller) -> MendingResult:
    """Mend what the plan names and is still as it was seen, as of the plan's T; a dry run only looks.

    Raises:
        PlanRefused: the plan is old, edited, or of another keyspace, cluster or format.
        UnsafeRequest: what may bring back deleted messages was not agreed to.
        LeaseHeld: another repair of the keyspace is at work.
    """
    examples = Examples()
    with plan_in(request.plan) as plan:
        head, policy = plan.head, plan.head.policy
        if policy.dangling == "restore" and not (request.yes or request.dry_run):
            ask_to_restore(caller)
        with open_cluster(request.connection) as opened:
            keyspace, bound = opened.mail.name, opened.bound((MESSAGES,), head.without)
            head.refuse_elsewhere(keyspace, opened.identity(bound.families))
            head.refuse_old(opened.clock.micros(), request.max_age)
            settings = RepairSettings(
                keyspace=keyspace,
                families=bound.whole(keyspace),
                delay_seconds=0.0,  # its suspects have waited, and were looked at twice
                timing=Timing(head.margin_seconds, policy.skew_seconds, no_writers=request.no_writers),
                dry_run=request.dry_run,
                policy=replace(policy, rows_per_second=request.rows_per_second or policy.rows_per_second),
                pressed=request.connection.is_pressed(request.pace),
                as_of=policy.as_of - _APART_MICROS * _runs_of(plan, opened, request.keep),
                owner=owner_name(),
                options={"plan": str(request.plan), "seal": plan.seal, "options": head.options},
            )
            keep = None if request.dry_run else request.keep
            wanted = EngineWanted("local", plan=plan)
            tools = repair_tools(opened, wanted, settings, caller.progress, keep=keep)
            summary = runner.repair(settings, tools, both_of(examples, caller))
            told = affected(examples, opened, caller)
    summary.command, summary.unseen = "apply", unseen(head.without, bound)
    return MendingResult(summary, examples.sorted(), head.options, request.plan, affected=told)


def _runs_of(plan: PlanFile, opened: OpenCluster, keep: timedelta) -> int:
    """How often the plan was applied before, whole or in part."""
    ledger = opened.existing_ledger(keep)
    runs = ledger.runs(opened.mail.name) if ledger else ()
    return sum(run.options.get("seal") == plan.seal for run in runs)
