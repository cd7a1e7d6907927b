"""Results of a check, a repair or an undo, as documents."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from admin.present.document import Document, Part, Styled, Table
from admin.services.examples import EXAMPLES_MAX, Example
from admin.services.mending import MendingResult
from model.errors import ExitCode
from model.projections.verdicts import DETECTED, MENDABLE, Verdict
from repair.mending.result import RepairResult

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
    Verdict.HIDDEN: "mended, but a later tombstone hides it: journalled",
}
"""Every verdict in a few words."""

STYLES: Mapping[Verdict, str] = {
    **dict.fromkeys((Verdict.AGREE, Verdict.FIXED), "green"),
    **dict.fromkeys((Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW, Verdict.MOVED, Verdict.AHEAD), "yellow"),
    Verdict.LEAK: "dim",
    **dict.fromkeys((Verdict.CLASH, Verdict.LOST_CONTENT, Verdict.TORN, Verdict.HIDDEN), "red"),
}


def document_of(result: MendingResult) -> Document:
    summary = result.summary
    return Document(
        json=summary_json(summary),
        body=tuple(_body(summary, result.examples)),
        exit=ExitCode(summary.exit),
        remarks=(summary.unseen,) if summary.unseen else (),
        title=f"{summary.command} of keyspace {summary.keyspace}",
        details=(_details(summary),),
    )


def summary_json(summary: RepairResult) -> dict[str, Any]:
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
    """Counts by verdict name, without zeros, in the order of the verdicts."""
    return {verdict.value: counts[verdict] for verdict in Verdict if counts.get(verdict)}


def _body(summary: RepairResult, examples: Sequence[Example]) -> Iterator[Part]:
    if summary.findings:
        yield _findings(summary)
    if summary.run:
        yield _mended(summary)
    yield from example_lines(examples)
    yield from closing_lines(summary)


def _findings(summary: RepairResult) -> Table:
    rows = [
        (name, Styled(verdict.value, STYLES[verdict]), f"{counts[verdict]:,}", MEANINGS[verdict])
        for name, counts in sorted(summary.findings.items())
        for verdict in (*DETECTED, Verdict.MOVED, Verdict.AHEAD)
        if counts.get(verdict)
    ]
    return Table(f"Findings in {summary.keyspace}", ("projection", "verdict", "count", "meaning"), rows)


def _mended(summary: RepairResult) -> Table:
    fixed, left = summary.fixed, summary.left
    rows = [
        (
            Styled(verdict.value, STYLES[verdict]),
            f"{fixed[verdict]:,}" if fixed.get(verdict) else "",
            f"{left[verdict]:,}" if left.get(verdict) else "",
        )
        for verdict in Verdict
        if fixed.get(verdict) or left.get(verdict)
    ]
    return Table("What became of them", ("verdict", "fixed", "left"), rows)


def example_lines(examples: Sequence[Example]) -> Iterator[Styled]:
    heading = ""
    for one in examples:
        above = f"{one.verdict.value} in {one.projection}, for example:"
        if above != heading:
            yield Styled(above, "dim")
        heading = above
        yield Styled(f"    {one.key}" + (f"  ({one.result})" if one.result != "as found" else ""), "dim")


def closing_lines(summary: RepairResult) -> list[str]:
    """The totals in a sentence, and what to type next."""
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


def next_lines(summary: RepairResult) -> list[str]:
    keyspace = f" --keyspace {summary.keyspace}"
    if summary.command.startswith("check"):
        lines = _after_check(summary, keyspace)
    elif summary.command == "undo":
        lines = [] if summary.run else [f"Nothing was written. {summary.due.total():,} would be put back."]
    else:
        what = "lags" if summary.command == "repair lags" else "messages"
        lines = _after_repair(summary, f"mailmend repair {what}{keyspace}")
    if summary.left.get(Verdict.LOST_CONTENT) or _found(summary)[Verdict.LOST_CONTENT]:
        lines.append("Content is lost: mailmend runbook show content-is-lost")
    if summary.run and summary.fixed:
        lines.append(f"To put it back: mailmend undo {summary.run}{keyspace}")
    return lines


def _after_check(summary: RepairResult, keyspace: str) -> list[str]:
    found = _found(summary)
    if any(found[verdict] for verdict in MENDABLE):
        return [f"Next: mailmend repair messages{keyspace} --dry-run"]
    drift = any(found[verdict] for verdict in DETECTED if verdict is not Verdict.LEAK)
    return [] if drift or summary.failed or summary.untried else ["No drift."]


def _after_repair(summary: RepairResult, again: str) -> list[str]:
    mendable = sum(summary.left.get(verdict, 0) for verdict in MENDABLE)
    if summary.run is None:
        nothing = f"Nothing was written. A repair would mend {summary.due.total():,}."
        return [nothing, f"Next: {again}"] if summary.due.total() else [nothing]
    if mendable or summary.moved or summary.left.get(Verdict.AHEAD):
        return [f"Next: {again} (a second run mends what moved or was left)"]
    return []


def _found(summary: RepairResult) -> Counter[Verdict]:
    return sum((Counter(counts) for counts in summary.findings.values()), Counter[Verdict]())


def _details(summary: RepairResult) -> Table:
    rows = [
        ("run", str(summary.run or "none: a check writes nothing")),
        ("suspects", f"{summary.suspects:,}"),
        ("moved meanwhile", f"{summary.moved:,}"),
        ("failed", f"{summary.failed:,}"),
        *((f"rows of {name}", f"{rows:,}") for name, rows in summary.scanned.items()),
        *((f"seconds: {stage}", f"{seconds:.1f}") for stage, seconds in summary.seconds.items()),
        ("examples", f"at most {EXAMPLES_MAX} of each kind"),
    ]
    return Table("The run", ("field", "value"), rows)
