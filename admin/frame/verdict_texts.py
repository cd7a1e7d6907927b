"""What a verdict means to a person: in words, in a colour, as a runbook's page and as the next command to type."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from mailmend.admin.frame.document import Grid, GridCell, RunbookLink, Styled
from mailmend.admin.frame.run_scopes import MAIL, RunScope
from mailmend.model.catalog.mail import MESSAGES, PATHS
from mailmend.model.projections.verdicts import HARMLESS, MENDABLE, QUEUE_VERDICTS, Verdict
from mailmend.model.texts import keyspace_option

MEANINGS: Mapping[Verdict, str] = {
    Verdict.AGREE: "nothing to mend",
    Verdict.PROJECT: "in the source of truth, not in the denormalised table",
    Verdict.AMEND: "in both, but different",
    Verdict.WITHDRAW: "in the denormalised table, not in the source of truth",
    Verdict.CLASH: "two rows of the source of truth claim one place",
    Verdict.LOST_CONTENT: "in the source of truth, but its content is gone",
    Verdict.TORN: "half a row of truth: columns that every insert writes are missing",
    Verdict.LEAK: "content that no row of truth names (does not fail a check)",
    Verdict.MOVED: "changed meanwhile: left to the next run",
    Verdict.AHEAD: "written by a clock that runs ahead: left until time has passed it",
    Verdict.FIXED: "mended, and read back so",
    Verdict.HIDDEN: "mended, but a delete after T hides it: journalled for repair lags",
    **{verdict: queue_verdict.meaning for verdict, queue_verdict in QUEUE_VERDICTS.items()},
}
"""Every verdict in a few words."""

_OF_ROWS: Final[Mapping[Verdict, str]] = {
    Verdict.CLASH: "two rows of the source of truth claim one row",
    Verdict.HIDDEN: "mended, but a delete after T hides it: the next repair mends it",
}
"""The verdicts whose words are others where rows are not mail."""


def meaning_of(verdict: Verdict, scope: RunScope = MAIL) -> str:
    if scope.has_lags:
        return MEANINGS[verdict]
    return _OF_ROWS.get(verdict, MEANINGS[verdict])


def _queue_styles() -> dict[Verdict, str]:
    styles = dict.fromkeys(QUEUE_VERDICTS, "red")
    for verdict, queue_verdict in QUEUE_VERDICTS.items():
        if queue_verdict.by_repair:
            styles[verdict] = "yellow"
    return styles


STYLES: Mapping[Verdict, str] = {
    **dict.fromkeys((Verdict.AGREE, Verdict.FIXED), "green"),
    **dict.fromkeys((Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW, Verdict.MOVED, Verdict.AHEAD), "yellow"),
    **dict.fromkeys((Verdict.CLASH, Verdict.LOST_CONTENT, Verdict.TORN, Verdict.HIDDEN), "red"),
    **_queue_styles(),
    **dict.fromkeys(HARMLESS, "dim"),
}

EACH_VERDICT: Final = "check-found-inconsistencies"
_FLAGS: Final = "flags-differ"
_COUNTERS: Final = frozenset(count.name for count in MESSAGES.counts)

RUNBOOKS: Mapping[Verdict, str] = {
    **{verdict: EACH_VERDICT for verdict in Verdict if verdict not in (Verdict.AGREE, Verdict.FIXED)},
    **dict.fromkeys((Verdict.PROJECT, Verdict.WITHDRAW), "message-in-jmap-not-in-imap"),
    Verdict.AMEND: _FLAGS,
    Verdict.LOST_CONTENT: "content-is-lost",
    **dict.fromkeys((Verdict.AHEAD, Verdict.HIDDEN), "clocks-differ"),
    **{verdict: queue_verdict.runbook for verdict, queue_verdict in QUEUE_VERDICTS.items()},
}
"""The page for each verdict that asks something of a person."""

_MENDED_WITH: Mapping[Verdict, str] = {
    **dict.fromkeys(MENDABLE | {Verdict.MOVED, Verdict.AHEAD}, ""),
    Verdict.LOST_CONTENT: " --only LOST_CONTENT --orphans quarantine",
    Verdict.TORN: " --torn accept",
    Verdict.LEAK: " --only LEAK --leaks collect",
}
"""The further options with which a repair mends what has this verdict."""

_ROWS_MENDED_WITH: Final[Mapping[Verdict, str]] = dict.fromkeys(
    MENDABLE | {Verdict.MOVED, Verdict.AHEAD, Verdict.HIDDEN}, ""
)
"""The same of the rows of mailboxes."""

_TABLES_MENDED_WITH: Final[Mapping[Verdict, str]] = {
    **_ROWS_MENDED_WITH,
    Verdict.TORN: _MENDED_WITH[Verdict.TORN],
    Verdict.LOST_CONTENT: _MENDED_WITH[Verdict.LOST_CONTENT],
    Verdict.LEAK: _MENDED_WITH[Verdict.LEAK],
}
"""The same where rows are in declared tables."""


def kinds(findings: Mapping[str, Mapping[Verdict, int]]) -> Iterator[tuple[str, Verdict, int]]:
    """Projection, verdict and number of each kind of findings, in one order everywhere."""
    for name, counts in sorted(findings.items()):
        for verdict in Verdict:
            if counts.get(verdict):
                yield name, verdict, counts[verdict]


def steps_grid(
    findings: Mapping[str, Mapping[Verdict, int]],
    keyspace: str,
    options: str = "",
    scope: RunScope = MAIL,
) -> Grid:
    """Findings of a report: what each kind means, its runbook, and the next command."""
    rows = []
    for name, verdict, count in kinds(findings):
        styled = Styled(verdict.value, STYLES[verdict])
        runbook: GridCell = ""
        if page := runbook_of(name, verdict, scope):
            runbook = RunbookLink(page)
        command = next_command(name, verdict, keyspace, options, scope)
        rows.append((name, styled, f"{count:,}", meaning_of(verdict, scope), runbook, command))
    return Grid(f"Findings in {keyspace}", ("projection", "verdict", "count", "meaning", "runbook", "next"), rows)


def steps_lines(
    left: Mapping[Verdict, int],
    keyspace: str,
    scope: RunScope = MAIL,
    in_views: int = 0,
) -> Iterator[str]:
    """What a run left, with its page and the next command, as lines to be read and copied.

    Of the HIDDEN, `in_views` are rows of views: only a check tells what became of them.
    """
    mirror = next((family.mirror.name for family in scope.families), "")
    if in_views:
        page = f"mailmend runbook show {EACH_VERDICT}"
        check = f"mailmend check {scope.checked} {keyspace_option(keyspace)}"
        yield f"Left, HIDDEN {in_views:,} in views: {page}; next: {check}"
    others = Counter(left)
    others[Verdict.HIDDEN] -= in_views
    for verdict, count in (+others).items():
        if page := runbook_of(mirror, verdict, scope):
            line = f"Left, {verdict.value} {count:,}: mailmend runbook show {page}"
            if command := next_command(mirror, verdict, keyspace, scope=scope):
                line += f"; next: {command}"
            yield line


_OF_CLOCKS: Final = frozenset({Verdict.AHEAD, Verdict.HIDDEN})


def runbook_of(projection: str, verdict: Verdict, scope: RunScope = MAIL) -> str:
    """The page on such a finding; "" where nothing is to be done."""
    if not scope.is_mail and verdict in RUNBOOKS and verdict not in _OF_CLOCKS:
        return EACH_VERDICT
    if verdict in MENDABLE and projection == PATHS.mirror.name:
        return EACH_VERDICT
    if verdict in MENDABLE and projection in _COUNTERS:
        return "counters-never-settle"
    if verdict in MENDABLE and projection != MESSAGES.mirror.name:
        return _FLAGS
    return RUNBOOKS.get(verdict, "")


def next_command(
    projection: str,
    verdict: Verdict,
    keyspace: str,
    options: str = "",
    scope: RunScope = MAIL,
) -> str:
    """What a person types next about such findings; it writes nothing yet. "" where no command of ours mends them.

    `options` are those that were typed with the command that found them.
    """
    on = f" {keyspace_option(keyspace)}"
    asked = on
    if options:
        asked += f" {options}"
    if projection == PATHS.mirror.name and scope.is_mail:
        return _mailboxes_command(verdict, keyspace, scope)
    if verdict in QUEUE_VERDICTS:
        return _queue_command(QUEUE_VERDICTS[verdict].mended, on)
    if verdict is Verdict.CLASH:
        return f"mailmend check {scope.checked}{asked} --findings clashes.jsonl"
    if verdict is Verdict.HIDDEN and scope.is_mail:
        return f"mailmend repair lags{on} --dry-run"
    mended_with = _MENDED_WITH
    if not scope.is_mail:
        mended_with = _TABLES_MENDED_WITH
    is_left = scope.is_only_reported(projection, verdict)
    if is_left or verdict not in mended_with or not scope.repair:
        return ""
    return f"mailmend {scope.repair}{asked}{mended_with[verdict]} --dry-run"


def _mailboxes_command(verdict: Verdict, keyspace: str, scope: RunScope) -> str:
    """A repair of mailboxes has none of the options of a check; "" where a person decides."""
    mended = verdict in _ROWS_MENDED_WITH and not scope.is_only_reported(PATHS.mirror.name, verdict)
    if not mended:
        return ""
    return f"mailmend {scope.repair_of(PATHS.mirror.name)} {keyspace_option(keyspace)} --dry-run"


def _queue_command(mended: str, on: str) -> str:
    if not mended:
        return ""
    command = f"mailmend {mended}{on}"
    if mended.startswith("repair"):
        command += " --dry-run"
    return command
