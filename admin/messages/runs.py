"""`mailmend runs` and `undo`: the runs of the ledger are listed, shown and undone.

`mailmend runs trend` shows how findings change over the runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster, owner_name
from mailmend.admin.frame.command import JSON, Command, CommandGroup
from mailmend.admin.frame.document import Document, Grid, Part, by_time, by_verdict
from mailmend.admin.frame.examples import Affected, Example, Examples
from mailmend.admin.frame.kinds import KEEP as KEEP_KIND
from mailmend.admin.frame.kinds import duration_text
from mailmend.admin.frame.options import ANONYMOUS, CONNECTION, FILE, FINDINGS, REPORT, flag, option
from mailmend.admin.frame.run_scopes import MAIL, RunScope
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.verdict_texts import steps_grid, steps_lines
from mailmend.admin.messages.affected_document import affected_json, findings_parts, mailboxes_part
from mailmend.admin.messages.bound_tables import mail_tables, scope_kept, tables_of_run
from mailmend.admin.messages.mending import CommandResult
from mailmend.admin.messages.options import COUNTERS_AT_ONCE, RESULTS, RUN_ARGUMENT
from mailmend.admin.messages.trend import (
    NO_RUN,
    PUT_BACK,
    by_name,
    list_grid,
    run_json,
    sample_text,
    share_text,
    shares_in,
    trend,
)
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.errors import MailmendError
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.verdicts import Verdict, Why
from mailmend.model.texts import keyspace_option
from mailmend.repair.clock import Timing
from mailmend.repair.decisions.recheck import reason_of
from mailmend.repair.ledger.declared_runs import DECLARATION, MAILBOXES, TABLES
from mailmend.repair.ledger.runs import Run, RunKind, RunState
from mailmend.repair.mending.check_records import SAMPLE, at_present
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.undo import NOT_UNDONE, USED_SINCE, UndoSettings, UndoTools, undoable
from mailmend.repair.mending.undo import undo as undo_run


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
    scope: RunScope = MAIL


def list_runs(connection: ConnectionSettings, since: timedelta = KEEP, *, everything: bool = False) -> RunsResult:
    """The runs in the ledger that are not older than `since`; `everything`: of every keyspace."""
    with open_cluster(connection) as opened:
        ledger = opened.existing_ledger(since)
        if ledger is None:
            return RunsResult(connection.keyspace, ())
        keyspace: str | None = connection.keyspace
        if everything:
            keyspace = None
        runs = at_present(ledger.runs(keyspace), ledger, opened.leases())
    return RunsResult(connection.keyspace, tuple(runs))


def explainer_of(run: Run, scope: RunScope) -> Callable[[Finding], Finding]:
    """Adds the reason to what a run left after it had recorded it: the rest is in its summary."""
    policy = RepairPolicy(run.id, run.as_of)
    if run.command == RunKind.CHECK:
        policy = RepairPolicy(None, run.as_of)
    now = round((run.ended_at or run.started_at).timestamp() * MICROS)

    def explained(finding: Finding) -> Finding:
        projection = scope.projections.get(finding.suspect.projection)
        if finding.result is None or projection is None:
            return finding
        if run.undoes is not None and finding.result is Verdict.MOVED:
            return replace(finding, reason=USED_SINCE)
        return replace(finding, reason=reason_of(finding, policy, now, projection))

    return explained


def show_run(connection: ConnectionSettings, run: UUID | str, caller: Caller) -> RunResult:
    """One run; each of its findings goes to the caller.

    Args:
        connection: where the ledger is.
        run: its id, or the beginning of its id.
        caller: who asks.

    Raises:
        UnknownRun: no such run is kept.
    """
    with open_cluster(connection) as opened:
        ledger = opened.known_ledger(run)
        (found,) = at_present([ledger.get(ledger.id_of(run))], ledger, opened.leases())
        scope = scope_of_run(found, opened, caller)
        examples = Examples(caller, scope, undoes=found.undoes is not None)
        for outcome in map(explainer_of(found, scope), ledger.findings(found.id)):
            examples.take(outcome)
        affected = examples.affected(lambda: opened.cluster.keyspace(found.keyspace))
    return RunResult(found, examples.sorted(), affected, scope)


def scope_of_run(run: Run, opened: OpenCluster, caller: Caller) -> RunScope:
    """What the run looked at; without projections where its declared tables do not fit any more."""
    on = replace(opened, connection=replace(opened.connection, keyspace=run.keyspace))
    try:
        tables = tables_of_run(on, run.options, run.id)
    except MailmendError as error:
        caller.remark(f"The rows are not shown: {error.what}.")
        return scope_kept(run.options)
    if tables is None:
        return MAIL
    for change in tables.changes:
        caller.remark(f"Changed since the run: {change}.")
    return tables.scope


def affected(examples: Examples, opened: OpenCluster) -> Affected | None:
    """Whose mail the findings are in, and the runs of the ledger; None where no report is written."""
    caller = examples.caller
    if not caller.report:
        return None
    runs: tuple[Run, ...] = ()
    try:
        ledger = opened.existing_ledger()
        if ledger:
            runs = tuple(run for run in ledger.runs(opened.mail.name) if not _is_open_check(run))
    except MailmendError as error:
        caller.remark(f"Earlier runs are not known: {error.what}.")
    return replace(examples.affected(lambda: opened.mail), runs=runs)


def _is_open_check(run: Run) -> bool:
    """Whether it is a check that has no sums yet, as the check has that writes the report."""
    return run.command == RunKind.CHECK and run.state is RunState.RUNNING


EXAMPLES_SHOWN: Final = 20
"""How many findings `runs show` lists; `--findings` gives all."""


def runs_document(result: RunsResult) -> Document:
    json = {"runs": list(map(run_json, result.runs))}
    if not result.runs:
        return Document(json, (NO_RUN,))
    table = list_grid(result.keyspace, result.runs)
    return Document(json, (table, f"Next: mailmend runs show {result.runs[0].id}"))


def trend_document(result: RunsResult) -> Document:
    return trend(result.keyspace, result.runs)


def run_document(result: RunResult) -> Document:
    run = result.run
    json = run_json(result.run) | {"shares": shares_in(run)}
    fields = _fields(run, json)
    rows = []
    for name, value in fields.items():
        if value not in (None, {}, [], ""):
            rows.append((name, _text(value)))
    body: list[Part] = [Grid(f"Run {run.id}", ("field", "value"), rows, frozenset({"value"}))]
    body += _about_check(run)
    whose = tuple(mailboxes_part(result.affected, run.keyspace))
    found = {name: _by_verdict(counts) for name, counts in run.summary.get("findings", {}).items()}
    few = result.examples[:EXAMPLES_SHOWN]
    back = []
    if run.command not in NOT_UNDONE:
        back.append(f"To put it back: mailmend undo {run.id} {keyspace_option(run.keyspace)}")
    report = list(body)
    if found:
        report.append(steps_grid(found, run.keyspace, scope=result.scope))
    report += by_verdict(by_name(run, "findings"))
    report += by_time(result.affected.hours)
    report += whose
    keyspace = run.keyspace
    scope = result.scope
    report += findings_parts(result.examples, result.affected, keyspace, scope, whole=True)
    report += back
    in_views = by_name(run, "reasons")[Why.HIDDEN_IN_VIEW.value]
    body += steps_lines(_by_verdict(by_name(run, "left")), run.keyspace, result.scope, in_views)
    body += whose
    body += findings_parts(few, result.affected, keyspace, scope, whole=False)
    body += back
    return Document(
        json | affected_json(result.affected),
        tuple(body),
        title=f"{run.command} of keyspace {run.keyspace}",
        report=tuple(report),
    )


def _fields(run: Run, json: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown of a run, by name; an undo has put back what its sums call fixed."""
    fields = dict(json)
    for name in ("options", "summary", "shares"):
        del fields[name]
    for name, value in run.options.items():
        fields[f"option {name}"] = value
    sums = dict(json["summary"])
    if run.undoes is not None:
        sums.pop("findings", None)
        sums[PUT_BACK] = sums.pop("fixed", {})
    sample = sums.pop(SAMPLE, None)
    if sample:
        sums["recorded"] = sample_text(sample["kept"], sample["found"])
    shares = {table: share_text(share) for table, share in shares_in(run).items() if share}
    if shares:
        sums["rows that differ"] = shares
    for name, value in sums.items():
        fields.setdefault(name, value)
    return fields


def _about_check(run: Run) -> list[str]:
    if run.command != RunKind.CHECK or run.state is not RunState.INTERRUPTED or run.ended_at:
        return []
    return ["The end of this check is not recorded: its process was killed, or lost the ledger."]


def _by_verdict(counts: Any) -> dict[Verdict, int]:
    """Those that this version knows; blobs have names of their own."""
    if not isinstance(counts, dict):
        return {}
    names = Verdict.__members__
    return {names[name]: number for name, number in counts.items() if name in names}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value)


_WHICH: Final = (
    flag("--all", "All of them: the runs of every mail keyspace, not only of --keyspace.", "everything"),
    option(
        "--since",
        "How far to look back; a repair's own --keep may be longer.",
        type=KEEP_KIND,
        default=duration_text(KEEP),
    ),
)

RUNS: Final = CommandGroup(
    name="runs",
    summary="What ran, and what it found.",
    about="Repairs, undos, recorded checks. Kept for 30 days unless a run said otherwise (`--keep`).",
    commands=(
        Command(
            name="list",
            summary="List the runs, newest first.",
            service="mailmend.admin.messages.runs:list_runs",
            present="mailmend.admin.messages.runs:runs_document",
            paged=True,
            options=_WHICH,
            shared=(CONNECTION,),
        ),
        Command(
            name="trend",
            summary="What was found, fixed and left by verdict, run after run, the oldest first.",
            about="""Whether drift comes back, and whether repairs keep up with it; and for each table
            what was found there by verdict, over time, with the share of its rows that differ. Recorded
            checks are among the runs (`mailmend check --record`; jobs record their checks). With --json
            each of `runs` has `findings`, `fixed` and `left` as the run's own result had them,
            `scanned` (rows read, by table), `shares` (from 0 to 1, by table), `what` (the command, with
            what a check looked at) and, for an undo, `put_back`.""",
            service="mailmend.admin.messages.runs:list_runs",
            present="mailmend.admin.messages.runs:trend_document",
            paged=True,
            options=_WHICH,
            shared=(CONNECTION,),
            output=(JSON, REPORT),
        ),
        Command(
            name="show",
            summary="Show one run: what was asked for, its sums, whose mail it found, some findings with both rows.",
            about="""For each of the mailboxes with most findings: user and path, what was found and what is still so;
            for some findings both rows side by side, what differs marked, with the times of writing. With --json
            `mailboxes` (each with `mailbox`, `user`, `path`, `findings`, `left`) and `in_other_mailboxes` come with
            the run's own fields, and `shares` has the share of rows that differ, by table. Of a
            recorded check a sample of the findings is kept: `sample` in the sums has both numbers.""",
            service="mailmend.admin.messages.runs:show_run",
            present="mailmend.admin.messages.runs:run_document",
            paged=True,
            options=(RUN_ARGUMENT,),
            shared=(CONNECTION,),
            output=(
                JSON,
                REPORT,
                ANONYMOUS,
                option("--findings", str(FINDINGS.help), is_flag=False, flag_value="-", type=FILE, metavar="FILE"),
            ),
        ),
    ),
    examples="""
        mailmend runs list
        mailmend runs show 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002
        mailmend runs show RUN --findings - | jq .key
        mailmend runs trend --report trend.html""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRequest:
    """Which run is undone: its id, or the beginning of its id."""

    connection: ConnectionSettings
    run: UUID | str
    dry_run: bool = False
    no_writers: bool = False


def undo(request: UndoRequest, caller: Caller) -> CommandResult:
    """Restore the rows that a run changed, where they have not changed since.

    Raises:
        UnknownRun: no such run is kept.
    """
    with open_cluster(request.connection) as opened:
        known = opened.known_ledger(request.run)
        run = RunId(known.id_of(request.run))
        undone = undoable(known, run, opened.mail.name)
        tables = tables_of_run(opened, undone.options, run) or mail_tables(opened, (MESSAGES,))
        families = tables.whole(opened.mail.name, may_leave_out=False)
        examples = Examples(caller, tables.scope, undoes=True)
        settings = UndoSettings(
            run,
            opened.mail.name,
            families,
            dry_run=request.dry_run,
            owner=caller.name or owner_name(),
            options={"run": str(run), "no_writers": request.no_writers, **_redone_by(undone)},
        )
        mail = opened.mail
        ledger = opened.ledger()
        leases = opened.leases()
        timing = Timing(no_writers=request.no_writers)
        counters = CounterMender(mail, mail.name, families, opened.clock, timing, ledger, leases)
        tools = UndoTools(mail, ledger, opened.clock, caller.progress, leases, counters)
        summary = undo_run(settings, tools, examples.take)
        whose = affected(examples, opened)
    if tables.changes:
        summary.unseen = f"The tables have changed since that run: {'; '.join(tables.changes)}."
    return CommandResult(summary, examples.sorted(), affected=whose, scope=tables.scope)


def _redone_by(undone: Run) -> dict[str, Any]:
    """What an undo keeps of the run's tables, so that it can be undone as well."""
    names = ("projections", "named", MAILBOXES, DECLARATION, TABLES)
    return {name: undone.options[name] for name in names if name in undone.options}


UNDO: Final = Command(
    name="undo",
    summary="Put back what a run changed.",
    about="""A row returns to its before-image only if it has not changed since; the other rows are left and counted as
    moved. The undo is a run of its own, so it can be undone as well.""",
    service="mailmend.admin.messages.runs:undo",
    present="mailmend.admin.messages.shared_document:document_of",
    options=(RUN_ARGUMENT, flag("--dry-run", "Write nothing: say what would be put back."), COUNTERS_AT_ONCE),
    shared=(CONNECTION,),
    output=RESULTS,
    examples="""
        mailmend runs list                  which runs there were
        mailmend undo RUN --dry-run         what would return
        mailmend undo RUN                   put it back
        mailmend undo UNDO_RUN              put the undo back: the repair's state again""",
    exits="0 all of it was put back, 1 some rows have been used since and were left, 2 wrong use, 3 some rows failed, "
    "4 the cluster cannot be reached.",
)
