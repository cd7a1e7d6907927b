"""Results as a person or a script reads them: tables on a terminal, one JSON object for scripts, both on stdout only.

The names in the JSON are a contract (DESIGN section 5). Everything else that a command says goes to stderr.
"""

import json
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from admin.samples import Samples
from model.errors import ExitCode
from repair.decisions.findings import Summary
from repair.decisions.verdicts import DETECTED, MENDABLE, Verdict

PAPER_COLUMNS = 120
"""The width of tables that go to a file or a mail, where nobody's terminal sets it."""

MEANINGS: Mapping[Verdict, str] = {
    Verdict.AGREE: "nothing to mend",
    Verdict.PROJECT: "in the truth, not in the projection",
    Verdict.AMEND: "in both, but different",
    Verdict.WITHDRAW: "in the projection, not in the truth",
    Verdict.CLASH: "two truths claim one place",
    Verdict.LOST_CONTENT: "in the truth, but its content is gone",
    Verdict.TORN: "half a truth: columns that every insert writes are missing",
    Verdict.LEAK: "content that no truth names (does not fail a check)",
    Verdict.MOVED: "changed meanwhile: left to the next run",
    Verdict.AHEAD: "written by a clock that runs ahead: left until time has passed it",
    Verdict.FIXED: "mended, and read back so",
    Verdict.HIDDEN: "mended, but a later tombstone hides it: journalled",
}
"""Every verdict in a few words."""


def stdout_console(paper_columns: int = PAPER_COLUMNS) -> Console:
    """Where results go; so wide where nobody's terminal sets the width."""
    terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, highlight=False, soft_wrap=not terminal, width=None if terminal else paper_columns)


def stderr_console() -> Console:
    """Where progress and remarks go."""
    return Console(file=sys.stderr, highlight=False)


def summary_json(summary: Summary) -> dict[str, Any]:
    """The summary under the names that scripts rely on."""
    return {
        "run": str(summary.run) if summary.run else None,
        "keyspace": summary.keyspace,
        "command": summary.command,
        "scanned": dict(summary.scanned),
        "findings": {name: counts_json(counts) for name, counts in summary.findings.items()},
        "suspects": summary.suspects,
        "fixed": counts_json(summary.fixed),
        "left": counts_json(summary.left),
        "moved": summary.moved,
        "failed": summary.failed,
        "untried": summary.untried,
        "last_traces": summary.last_traces,
        "due": counts_json(summary.due),
        "seconds": {stage: round(seconds, 3) for stage, seconds in summary.seconds.items()},
        "unseen": summary.unseen,
        "exit": int(summary.exit),
    }


def counts_json(counts: Mapping[Verdict, int]) -> dict[str, int]:
    """Counts by the verdicts' names, without zeros, in the order of the verdicts."""
    return {verdict.value: counts[verdict] for verdict in Verdict if counts.get(verdict)}


def write_json(document: Any, stream: TextIO | None = None) -> None:
    """One JSON object and a newline on stdout."""
    stream = stream or sys.stdout
    stream.write(json.dumps(document, ensure_ascii=False, default=str) + "\n")
    stream.flush()


def show_summary(summary: Summary, samples: Samples, console: Console) -> None:
    """What a check or repair found and did, for a person."""
    if summary.findings:
        console.print(findings_grid(summary))
    if summary.run:
        console.print(outcome_grid(summary))
    for line in sample_lines(samples):
        console.print(Text(line, style="dim"), soft_wrap=True)
    for line in closing_lines(summary):
        console.print(line, markup=False)


def findings_grid(summary: Summary) -> Grid:
    """Counts per projection and verdict."""
    grid = _grid(f"Findings in {summary.keyspace}", "projection", "verdict", "count", "meaning")
    for name, counts in sorted(summary.findings.items()):
        for verdict in (*DETECTED, Verdict.MOVED, Verdict.AHEAD):
            if counts.get(verdict):
                grid.add_row(name, Text(verdict.value, _style(verdict)), f"{counts[verdict]:,}", MEANINGS[verdict])
    return grid


def outcome_grid(summary: Summary) -> Grid:
    """What was mended and what was left, per verdict."""
    grid = _grid("What became of them", "verdict", "fixed", "left")
    verdicts = [verdict for verdict in Verdict if summary.fixed.get(verdict) or summary.left.get(verdict)]
    for verdict in verdicts:
        grid.add_row(
            Text(verdict.value, _style(verdict)), _number(summary.fixed, verdict), _number(summary.left, verdict)
        )
    return grid


def sample_lines(samples: Samples) -> list[str]:
    """Example keys, one line per projection and verdict."""
    lines = []
    for (name, verdict), found in sorted(samples.by_kind().items(), key=lambda kind: (kind[0][0], kind[0][1].value)):
        lines.append(f"{verdict.value} in {name}, for example:")
        lines += [
            f"    {sample.key}" + (f"  ({sample.ended})" if sample.ended != "as found" else "") for sample in found
        ]
    return lines


def closing_lines(summary: Summary) -> list[str]:
    """The sums in a sentence, and what to type next."""
    rows = ", ".join(f"{name} {count:,}" for name, count in summary.scanned.items())
    seconds = sum(summary.seconds.values())
    lines = [f"Read {rows} in {seconds:.1f} s; {summary.suspects:,} suspects." if rows else f"{seconds:.1f} s."]
    if summary.last_traces:
        lines.append(
            f"{summary.last_traces:,} of the WITHDRAW are the last trace of a message whose content still exists."
        )
    if summary.moved:
        lines.append(f"{summary.moved:,} were changed meanwhile, and left.")
    if summary.failed:
        lines.append(f"{summary.failed:,} failed: see the examples above, or all of them with --findings.")
    if summary.untried:
        lines.append(
            f"{summary.untried:,} were left as they are: the cluster could not be reached any more. "
            "Once it answers, the same command goes on."
        )
    return [*lines, *next_lines(summary)]


def next_lines(summary: Summary) -> list[str]:
    """What to type next, as the exit code and the counts suggest."""
    keyspace = f" --keyspace {summary.keyspace}"
    if summary.command.startswith("check"):
        lines = _after_check(summary, keyspace)
    elif summary.command == "undo":
        lines = [] if summary.run else [f"Nothing was written. {summary.due.total():,} would be put back."]
    else:
        lines = _after_repair(summary, f"mailmend {_REPEATED.get(summary.command, 'repair messages')}{keyspace}")
    if summary.left.get(Verdict.LOST_CONTENT) or _found(summary, Verdict.LOST_CONTENT):
        lines.append("Content is lost: mailmend runbook show content-is-lost")
    if summary.run and summary.fixed:
        lines.append(f"To put it back: mailmend undo {summary.run}{keyspace}")
    return lines


_REPEATED: Mapping[str, str] = {"repair lags": "repair lags"}
"""What goes on with what a command left, where that is not a repair of everything."""


def _after_check(summary: Summary, keyspace: str) -> list[str]:
    found = sum((Counter(counts) for counts in summary.findings.values()), Counter[Verdict]())
    if any(found[verdict] for verdict in MENDABLE):
        return [f"Next: mailmend repair messages{keyspace} --dry-run"]
    drift = any(found[verdict] for verdict in DETECTED if verdict is not Verdict.LEAK)
    return [] if drift or summary.failed or summary.untried else ["No drift."]


def _after_repair(summary: Summary, again: str) -> list[str]:
    mendable = sum(summary.left.get(verdict, 0) for verdict in MENDABLE)
    if summary.run is None:
        nothing = f"Nothing was written. A repair would mend {summary.due.total():,}."
        return [nothing, f"Next: {again}"] if summary.due.total() else [nothing]
    if mendable or summary.moved or summary.left.get(Verdict.AHEAD):
        return [f"Next: {again} (a second run mends what moved or was left)"]
    return []


def exit_meaning(code: int) -> str:
    """The exit code in words."""
    return {
        ExitCode.FINE: "fine",
        ExitCode.DRIFT: "drift",
        ExitCode.WRONG_USE: "wrong use",
        ExitCode.PARTLY_FAILED: "partly failed",
        ExitCode.CANNOT_REACH: "cannot reach",
    }[ExitCode(code)]


def rows_grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], wrapped: Collection[str] = ()) -> Grid:
    """Any table of texts; those of the wrapped columns may take several lines."""
    grid = _grid(title, *columns, wrapped=wrapped)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def _found(summary: Summary, verdict: Verdict) -> int:
    return sum(counts.get(verdict, 0) for counts in summary.findings.values())


def _number(counts: Mapping[Verdict, int], verdict: Verdict) -> str:
    return f"{counts[verdict]:,}" if counts.get(verdict) else ""


def _style(verdict: Verdict) -> str:
    match verdict:
        case Verdict.AGREE | Verdict.FIXED:
            return "green"
        case Verdict.PROJECT | Verdict.AMEND | Verdict.WITHDRAW | Verdict.MOVED | Verdict.AHEAD:
            return "yellow"
        case Verdict.LEAK:
            return "dim"
        case Verdict.CLASH | Verdict.LOST_CONTENT | Verdict.TORN | Verdict.HIDDEN:
            return "red"


def _grid(title: str, *columns: str, wrapped: Collection[str] = ()) -> Grid:
    grid = Grid(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numeric = column in {"count", "fixed", "left", "rows"}
        prose = column in {"meaning", "how it came about", "why", *wrapped}
        grid.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=not prose)
    return grid
