"""The sums of a check, a repair or an undo, and its exit code."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.errors import ExitCode
from model.ids import RunId
from model.projections.findings import Finding
from model.projections.verdicts import Verdict


@dataclass(slots=True)
class RepairResult:
    """The sums so far, with the names of `--json` (DESIGN section 5)."""

    keyspace: str
    command: str
    run: RunId | None = None
    scanned: dict[str, int] = field(default_factory=dict)
    findings: dict[str, Counter[Verdict]] = field(default_factory=dict)
    suspects: int = 0
    due: Counter[Verdict] = field(default_factory=Counter)  # what a dry run would have mended
    fixed: Counter[Verdict] = field(default_factory=Counter)
    left: Counter[Verdict] = field(default_factory=Counter)
    moved: int = 0
    failed: int = 0
    untried: int = 0  # skipped, because the cluster could not be reached any more
    last_traces: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    unseen: str | None = None  # a sentence on what a targeted look cannot see
    exit: int = 0

    def count(self, finding: Finding) -> None:
        """Add one finding: confirmed ones count, settled ones do not, MOVED ones are left to the next run."""
        if finding.untried:
            self.untried += 1
            return
        if finding.error:
            self.failed += 1
        match finding.result:
            case Verdict.FIXED:
                self.fixed[finding.verdict] += 1
            case Verdict.MOVED:
                self.moved += 1
                return
            case Verdict.HIDDEN | Verdict.AHEAD as result:
                self.left[result] += 1
            case _ if finding.error or finding.verdict is Verdict.AGREE:
                return
            case _ if finding.verdict is not Verdict.LEAK:
                self.left[finding.verdict] += 1
            case _:
                pass
        self.findings.setdefault(finding.suspect.projection, Counter())[finding.verdict] += 1
        self.due[finding.verdict] += finding.due
        self.last_traces += finding.last_trace

    @property
    def exit_code(self) -> ExitCode:
        """4: cluster lost before anything was mended; 3: something failed; 1: drift is left; else 0.

        Leaked content is not drift.
        """
        if self.untried and not self.fixed.total():
            return ExitCode.CANNOT_REACH
        if self.failed or self.untried:
            return ExitCode.PARTLY_FAILED
        return ExitCode.DRIFT if self.left.total() else ExitCode.FINE

    @property
    def kept(self) -> dict[str, Any]:
        return {
            "scanned": self.scanned,
            "findings": {name: _named(counts) for name, counts in self.findings.items()},
            "suspects": self.suspects,
            "fixed": _named(self.fixed),
            "left": _named(self.left),
            "moved": self.moved,
            "failed": self.failed,
            "untried": self.untried,
            "last_traces": self.last_traces,
            "seconds": self.seconds,
            "exit": int(self.exit),
        }


def _named(counts: Mapping[Verdict, int]) -> dict[str, int]:
    return {verdict.value: number for verdict, number in counts.items() if number}
