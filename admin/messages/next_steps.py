"""The last lines of check, repair, apply and undo: what to do next."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mailmend.admin.frame.run_scopes import MAIL, MAILBOXES, RunScope
from mailmend.admin.frame.values import NOTHING_WRITTEN
from mailmend.admin.frame.verdict_texts import EACH_VERDICT
from mailmend.model.catalog.mail import MAILBOX_RECENTS
from mailmend.model.projections.verdicts import HARMLESS, MENDABLE, QUEUE_VERDICTS, Verdict, Why
from mailmend.model.texts import keyspace_option
from mailmend.repair.ledger.runs import RunKind
from mailmend.repair.mending.engine import RepairResult
from mailmend.repair.scanners.gone_mailboxes import GoneMailbox

BEHIND_PAGE: Final = "table-was-restored"
"""The page for generators that are behind the messages."""
NO_DRIFT: Final = "No drift."
"""The last line of a check that found nothing."""


def next_lines(
    summary: RepairResult,
    options: str = "",
    plan: Path | None = None,
    scope: RunScope = MAIL,
) -> list[str]:
    """What to do next; a repair is named with the options that were given, a plan with its file."""
    keyspace = f" {keyspace_option(summary.keyspace)}"
    asked = keyspace
    if options:
        asked += f" {options}"
    lines: list[str] = []
    if summary.kind is RunKind.CHECK:
        lines += _after_check(summary, keyspace, asked, scope)
    elif summary.kind is RunKind.QUEUES:
        if not summary.run:
            lines.append(NOTHING_WRITTEN)
        lines += about_queues(summary.left, keyspace, again=not summary.run)
        return lines or ["No drift is left."]
    elif summary.kind is RunKind.UNDO:
        if not summary.run:
            lines.append(f"Nothing was written. {summary.due.total():,} would be put back.")
    elif summary.kind is RunKind.LAGS:
        lines += _after_messages(summary, f"mailmend repair lags{asked}", keyspace, plan)
    else:
        lines += _after_messages(summary, f"mailmend {scope.repair}{asked}", keyspace, plan, scope)
    lines += _unwritten_recents(summary)
    if summary.left.get(Verdict.LOST_CONTENT) or found_in(summary)[Verdict.LOST_CONTENT]:
        lines.append(f"Content is lost: mailmend runbook show {_page_of_lost_content(scope)}")
    if summary.run and summary.fixed:
        lines.append(f"To put it back: mailmend undo {summary.run}{keyspace}")
    return lines


def _page_of_lost_content(scope: RunScope) -> str:
    if scope.is_mail:
        return "content-is-lost"
    return EACH_VERDICT


def _unwritten_recents(summary: RepairResult) -> list[str]:
    """A note on a table that James does not write where its setting says so (JAMES-4152)."""
    name = MAILBOX_RECENTS.spelling
    lacking = summary.findings.get(name, Counter[Verdict]())[Verdict.PROJECT]
    if summary.scanned.get(name) != 0 or not lacking:
        return []
    note = f"{name} has no row, and {lacking:,} messages are recent."
    cause = "James with james.mailbox.handleRecent=false does not write this table"
    return [f"{note} {cause}: if that is so, use --without {name}"]


def _after_check(summary: RepairResult, keyspace: str, asked: str, scope: RunScope) -> list[str]:
    if summary.missing_columns or summary.missing_tables:
        verify = f"mailmend schema verify{keyspace}"
        return [f"Next: {verify} (it names the statement that adds what is missing)"]
    found = found_in(summary)
    lines = _repair_of_found(summary, asked, scope)
    if summary.generators:
        lines.append(f"Generators are behind: mailmend runbook show {BEHIND_PAGE}")
    lines += about_queues(found, keyspace, again=True)
    drift = any(number for verdict, number in found.items() if verdict not in HARMLESS)
    if not lines and not drift and not summary.failed and not summary.untried:
        return [NO_DRIFT]
    return lines


_NEEDS_OTHER_OPTIONS: Final = frozenset({Why.NEEDS_DANGLING, Why.NEEDS_ONLY, Why.NEEDS_TOUCH_BASE, Why.NO_WHOLE_ROW})
"""Why a repair with the same options leaves what it could mend with others."""

_NEEDS_NEW_VIEW: Final = frozenset({Why.CANNOT_BE_TOUCHED, Why.NEEDS_NEW_VIEW})
"""Why rows of a view stay as they are until the view is built anew."""

_NEVER_MENDED: Final = _NEEDS_OTHER_OPTIONS | _NEEDS_NEW_VIEW | {Why.ONLY_REPORTED}
"""Why a second repair with the same options leaves what the first one left."""


def _repair_of_found(summary: RepairResult, asked: str, scope: RunScope) -> list[str]:
    """The repairs that mend what a check found, or why a repair with these options does not."""
    by_repair = _by_repair(summary, scope)
    reasons = _reasons_of_mendable(summary)
    unmended = _NEEDS_OTHER_OPTIONS | _NEEDS_NEW_VIEW
    others = {why: reasons[why] for why in Why if why in unmended and reasons[why]}
    may_change = by_repair[scope.repair] - sum(others.values())
    lines = []
    if may_change > 0:
        scan = ""
        if reasons[Why.NEEDS_SCAN] >= may_change:
            scan = " --scan"
        if scope.before_repair:
            return list(scope.before_repair)
        lines.append(f"Next: mailmend {scope.repair}{asked}{scan} --dry-run")
    if by_repair[MAILBOXES.repair]:
        keyspace = keyspace_option(summary.keyspace)
        lines.append(f"Next: mailmend {MAILBOXES.repair} {keyspace} --dry-run")
    if lines:
        return lines
    if by_repair[None]:
        others[Why.ONLY_REPORTED] = by_repair[None]
    whys = [f"{why.value} ({number:,})" for why, number in others.items()]
    if not whys:
        return []
    return [f"A repair with these options would change nothing: {', '.join(whys)}."]


def _by_repair(summary: RepairResult, scope: RunScope) -> Counter[str | None]:
    """The number of findings that a repair mends, by its command; None: only reported ones."""
    numbers = Counter[str | None]()
    for name, counts in summary.findings.items():
        for verdict in MENDABLE:
            command: str | None = scope.repair_of(name)
            if scope.is_only_reported(name, verdict):
                command = None
            numbers[command] += counts[verdict]
    return numbers


def _reasons_of_mendable(summary: RepairResult) -> Counter[Why]:
    """The number of findings with verdicts that a repair mends, by the reason why they are left."""
    reasons = Counter[Why]()
    for verdict in MENDABLE:
        reasons.update(summary.reasons.get(verdict, {}))
    return reasons


def _after_messages(
    summary: RepairResult, again: str, keyspace: str, plan: Path | None, scope: RunScope = MAIL
) -> list[str]:
    """After a repair, of messages, of lags or of declared tables, or after the plan of one."""
    if plan is None:
        return _after_repair(summary, again, again, scope)
    file = shlex.quote(str(plan))
    apply = f"mailmend apply {file}{keyspace}"
    lines = _after_repair(summary, f"{again} --plan {file}", apply, scope)
    return [*_waiting(summary), *lines]


def _after_repair(summary: RepairResult, again: str, done_by: str, scope: RunScope) -> list[str]:
    """After a look: what does what would be done."""
    reasons = _reasons_of_mendable(summary)
    mendable = sum(summary.left.get(verdict, 0) for verdict in MENDABLE)
    mendable -= sum(reasons[why] for why in _NEVER_MENDED)
    scan = f"Next: {again} --scan (it reads the whole source of truth, and mends what is left)"
    if any(counts[Why.NEEDS_SCAN] for counts in summary.reasons.values()):
        return [scan]
    lines = []
    if summary.gaps:
        lines.append(scan)
    if summary.run is not None:
        if mendable > 0 or summary.moved or summary.left.get(Verdict.AHEAD):
            return [f"Next: {again} (a second run mends what moved or was left)"]
        return [*lines, *_hidden(summary, again, scope)]
    due = summary.due.total()
    nothing = f"Nothing was written. A repair would mend {due:,}."
    if due:
        return [nothing, f"Next: {done_by}"]
    if summary.too_young:
        return [nothing, f"Next: {again}"]
    return [nothing, *lines]


def _hidden(summary: RepairResult, again: str, scope: RunScope) -> list[str]:
    """The command for fixes that do not show.

    A second run mends rows that a later delete hides. It does not mend rows of a view.
    """
    lines = []
    in_views = summary.reasons.get(Verdict.HIDDEN, Counter[Why]())[Why.HIDDEN_IN_VIEW]
    deleted = summary.left.get(Verdict.HIDDEN, 0) - in_views
    if deleted > 0:
        mended_by = again
        if scope.has_lags:
            mended_by = f"mailmend repair lags {keyspace_option(summary.keyspace)}"
        lines += [
            f"{deleted:,} HIDDEN were deleted within the margin, or by a clock that is ahead.",
            f"Next: {mended_by} (it mends them after that time)",
        ]
    if in_views:
        check = f"mailmend check {scope.checked} {keyspace_option(summary.keyspace)}"
        lines += [
            f"{in_views:,} HIDDEN are rows of views that do not show after a touch of their base.",
            f"Next: {check} (the view of rows that it still finds has to be built anew)",
        ]
    return lines


def _waiting(summary: RepairResult) -> list[str]:
    waiting = Counter[Why]()
    for counts in summary.reasons.values():
        waiting.update(counts)
    lines = []
    for why, rows in _WAITS_FOR.items():
        if waiting[why]:
            lines.append(f"The plan has {waiting[why]:,} counters that wait until {rows} agree.")
    return lines


_WAITS_FOR: Final = {
    Why.ROWS_DIFFER: "the rows of their mailboxes",
    Why.GROUP_DIFFERS: "the rows of their groups",
}
"""The rows that a counter waits for, by the reason why it waits."""


def found_in(summary: RepairResult) -> Counter[Verdict]:
    return sum((Counter(counts) for counts in summary.findings.values()), Counter[Verdict]())


def after_a_plan(summary: "RepairResult", asked: str, file: str, done_by: str) -> list[str]:
    """What to do next with a plan that was made, or applied."""
    if summary.run is not None:
        if not summary.moved:
            return []
        return [f"Next: mailmend repair queues{asked} --plan {file} (for what moved)"]
    due = summary.due.total()
    if not due:
        return [NOTHING_WRITTEN]
    return [f"Nothing was written. A repair would remove or mend {due:,}.", f"Next: {done_by}"]


def about_gone_mailboxes(gone: Sequence[GoneMailbox] | None) -> list[str]:
    """The page that says what a person does about rows of mailboxes that are no more."""
    if not gone:
        return []
    return [f"Rows of mailboxes that are no more: mailmend runbook show {EACH_VERDICT}"]


def about_queues(found: Mapping[Verdict, int], keyspace: str, *, again: bool) -> list[str]:
    """The commands that mend what was found in queues; `again`: also the one that this was a dry run of."""
    names: dict[str, None] = {}
    for verdict, queue_verdict in QUEUE_VERDICTS.items():
        if found.get(verdict) and verdict not in HARMLESS:
            names[queue_verdict.mended] = None
    if not again:
        names.pop("repair queues", None)
    return [f"Next: mailmend {name}{keyspace}" for name in names]
