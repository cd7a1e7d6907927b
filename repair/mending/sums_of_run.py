"""The sums of a check or repair: what each outcome adds, what the exit code is, what the ledger keeps of it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from model.errors import ExitCode
from repair.decisions.findings import Outcome, Summary
from repair.decisions.verdicts import Verdict


def count(summary: Summary, outcome: Outcome) -> None:
    """Add one outcome to the sums: confirmed ones are findings, settled ones nothing, moved ones the next run's."""
    if outcome.untried:
        summary.untried += 1
        return
    if outcome.error:
        summary.failed += 1
    match outcome.result:
        case Verdict.FIXED:
            summary.fixed[outcome.verdict] += 1
        case Verdict.MOVED:
            summary.moved += 1
            return
        case Verdict.HIDDEN | Verdict.AHEAD as result:
            summary.left[result] += 1
        case _ if outcome.error or outcome.verdict is Verdict.AGREE:
            return
        case _ if outcome.verdict is not Verdict.LEAK:
            summary.left[outcome.verdict] += 1
        case _:
            pass
    summary.findings.setdefault(outcome.suspect.projection, Counter())[outcome.verdict] += 1
    summary.due[outcome.verdict] += outcome.due
    summary.last_traces += outcome.last_trace


def exit_of(summary: Summary) -> ExitCode:
    """4 when the cluster was lost before anything was mended, 3 when something failed, 1 when confirmed drift is left.

    Else 0; content that leaks is no drift.
    """
    if summary.untried and not summary.fixed.total():
        return ExitCode.CANNOT_REACH
    if summary.failed or summary.untried:
        return ExitCode.PARTLY_FAILED
    return ExitCode.DRIFT if summary.left.total() else ExitCode.FINE


def summary_fields(summary: Summary) -> dict[str, Any]:
    """The sums as the ledger keeps them, by the names that `--json` promises."""
    return {
        "scanned": summary.scanned,
        "findings": {name: _named(counts) for name, counts in summary.findings.items()},
        "suspects": summary.suspects,
        "fixed": _named(summary.fixed),
        "left": _named(summary.left),
        "moved": summary.moved,
        "failed": summary.failed,
        "untried": summary.untried,
        "last_traces": summary.last_traces,
        "seconds": summary.seconds,
        "exit": int(summary.exit),
    }


def _named(counts: Mapping[Verdict, int]) -> dict[str, int]:
    return {verdict.value: number for verdict, number in counts.items() if number}
