"""Runs, listed and shown from the ledger; nothing is written."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.examples import Affected, Example, Examples
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.catalog.mail import PROJECTIONS
from mailmend.model.errors import MailmendError
from mailmend.model.instants import MICROS
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.decisions.recheck import reason_of
from mailmend.repair.ledger.runs import Run
from mailmend.repair.mending.undo import USED_SINCE


@dataclass(frozen=True, slots=True)
class RunsResult:
    """The runs, newest first."""

    keyspace: str
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run, a few of its findings, and in whose mailboxes they are."""

    run: Run
    examples: tuple[Example, ...]
    affected: Affected


def list_runs(connection: ConnectionSettings, since: timedelta = KEEP, *, everything: bool = False) -> RunsResult:
    """The runs in the ledger that are not older than `since`; `everything`: of every keyspace."""
    with open_cluster(connection) as opened:
        ledger = opened.existing_ledger(since)
        runs = ledger.runs(None if everything else connection.keyspace) if ledger else []
    return RunsResult(connection.keyspace, tuple(runs))


def _explainer(run: Run) -> Callable[[Finding], Finding]:
    """Adds the reason to what a run left after it had recorded it: the rest is in its summary."""
    policy = RepairPolicy(run.id, run.as_of)
    now = round((run.ended_at or run.started_at).timestamp() * MICROS)

    def explained(finding: Finding) -> Finding:
        projection = PROJECTIONS.get(finding.suspect.projection)
        if finding.result is None or projection is None:
            return finding
        if run.undoes is not None and finding.result is Verdict.MOVED:
            return replace(finding, reason=USED_SINCE)
        return replace(finding, reason=reason_of(finding, policy, now, projection))

    return explained


def show_run(connection: ConnectionSettings, run: UUID, caller: Caller) -> RunResult:
    """One run; each of its findings goes to the caller.

    Raises:
        UnknownRun: no such run is kept.
    """
    examples = Examples()
    with open_cluster(connection) as opened:
        ledger = opened.known_ledger(run)
        found = ledger.get(run)
        for outcome in map(_explainer(found), ledger.findings(found.id)):
            examples.add(outcome)
            caller.finding(outcome)
        affected = examples.affected(lambda: opened.cluster.keyspace(found.keyspace), caller)
    return RunResult(found, examples.sorted(), affected)


def affected(examples: Examples, opened: OpenCluster, caller: Caller) -> Affected | None:
    """Whose mail the findings are in, and the runs of the ledger; None where no report is written."""
    if not caller.report:
        return None
    runs: tuple[Run, ...] = ()
    try:
        ledger = opened.existing_ledger()
        runs = tuple(ledger.runs(opened.mail.name)) if ledger else ()
    except MailmendError as error:
        caller.remark(f"The runs before are not known: {error.what}.")
    return replace(examples.affected(lambda: opened.mail, caller), runs=runs)
