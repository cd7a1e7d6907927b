"""The settings of a check, a repair or an undo: one value each, for commands and tests alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from model.errors import UnsafeRequest
from model.ids import RunId
from model.operations import Level
from model.projections.family import Family
from model.projections.findings import RepairPolicy
from repair.clock import Timing

DELAY_SECONDS = 60.0
"""How long suspects may take to settle, without `--delay`."""


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """The settings of a check or repair.

    Attributes:
        recheck: look again before reporting (a check only; a repair always does).
        dry_run: look, and report what would be mended.
        policy: what may be mended; its run, T and skew are set when the run begins.
        max_fixes: ask, or refuse to write, when more suspects than this would be mended.
        options: what the ledger keeps of the command line.
    """

    keyspace: str
    families: tuple[Family, ...]
    level: Level = Level.LOCAL_QUORUM
    delay_seconds: float = DELAY_SECONDS
    timing: Timing = field(default_factory=Timing)
    recheck: bool = True
    dry_run: bool = False
    policy: RepairPolicy = field(default_factory=RepairPolicy)
    max_fixes: int | None = None
    owner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.policy.leaks == "collect" and self.policy.dangling != "withdraw":
            raise UnsafeRequest(
                f"--leaks collect together with --dangling {self.policy.dangling} could collect the content of a "
                "message whose last trace is to be kept",
                mend="First repair with --dangling alone; then run again with --leaks collect.",
            )

    def policy_of(self, as_of: int, run: RunId | None) -> RepairPolicy:
        """The policy for a run's second look; without a run it may only look."""
        return replace(self.policy, run=run, as_of=as_of, skew_seconds=self.timing.skew_seconds)


@dataclass(frozen=True, slots=True)
class UndoSettings:
    """What an undo is asked for."""

    run: RunId
    keyspace: str
    families: tuple[Family, ...]
    dry_run: bool = False
    serial: bool = True
    owner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
