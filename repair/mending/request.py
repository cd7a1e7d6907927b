"""What a check or repair is asked for and what it works with: two values, so that commands and tests say it alike."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from model.errors import UnsafeRequest
from model.operations import Level
from model.ports import Clock, NodeClocks, Progress
from model.projections.declarations import Family
from repair.clock import Timing
from repair.decisions.findings import Engine, Errand, Outcome, Survey, Suspect
from repair.decisions.verdicts import MENDABLE, Verdict
from repair.ledger.leases import Held, Leases
from repair.ledger.runs import Ledger, Run

DELAY_SECONDS = 60.0
"""How long suspects are given to settle, unless `--delay` says otherwise."""

Sink = Callable[[Outcome], None]


class Recount(Protocol):
    """What looks at suspicious counters again, and mends them. Adapter: `repair.mending.counters`."""

    def revisit(
        self, suspects: Callable[[], Iterable[Suspect]], errand: Errand, held: Held | None
    ) -> Iterator[Outcome]:
        """One outcome for each suspect of counters; the others, streamed as often as asked for, tell what to count."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """What a check or repair is asked for: the commands' options, as one value.

    Attributes:
        recheck: look again before reporting (a check only; a repair always does).
        dry_run: look, and say what would be mended.
        max_fixes: ask, or refuse to begin writing, when more suspects than this would be mended.
        options: what the ledger keeps of the command line.
    """

    keyspace: str
    families: tuple[Family, ...]
    level: Level = Level.LOCAL_QUORUM
    delay_seconds: float = DELAY_SECONDS
    timing: Timing = field(default_factory=Timing)
    recheck: bool = True
    dry_run: bool = False
    only: frozenset[Verdict] = MENDABLE
    orphans: str = "report"
    dangling: str = "withdraw"
    leaks: str = "report"
    beat_ahead: bool = False
    accept_torn: bool = False
    serial: bool = True
    max_fixes: int | None = None
    rows_per_second: int | None = None
    owner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.leaks == "collect" and self.dangling != "withdraw":
            raise UnsafeRequest(
                f"--leaks collect together with --dangling {self.dangling} could collect the content of a message "
                "whose last trace is to be kept",
                mend="First repair with --dangling alone; then run again with --leaks collect.",
            )

    @property
    def survey(self) -> Survey:
        """What a scan is asked to look at."""
        return Survey(self.families, self.level, accept_torn=self.accept_torn, rows_per_second=self.rows_per_second)

    def errand(self, as_of: int, run: Run | None) -> Errand:
        """What the second look may do; without a run it may only look."""
        return Errand(
            run=run.id if run else None,
            as_of=as_of,
            skew_seconds=self.timing.skew_seconds,
            only=self.only,
            orphans=self.orphans,
            dangling=self.dangling,
            leaks=self.leaks,
            beat_ahead=self.beat_ahead,
            accept_torn=self.accept_torn,
            serial=self.serial,
            rows_per_second=self.rows_per_second,
        )


@dataclass(frozen=True, slots=True)
class Excess:
    """More than `--max-fixes` allows: what a person is shown before anything is written.

    Attributes:
        allowed: what `--max-fixes` said.
        counts: suspects that would be mended, per projection and verdict.
        samples: a few of them.
    """

    keyspace: str
    allowed: int
    counts: Mapping[str, Counter[Verdict]] = field(default_factory=dict)
    samples: tuple[Suspect, ...] = ()

    @property
    def total(self) -> int:
        """How many would be mended."""
        return sum(counts.total() for counts in self.counts.values())


GoOn = Callable[[Excess], bool]
"""Asks whoever can be asked whether to go on."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a check or repair works with.

    Attributes:
        recount: for counters; None leaves them alone.
        ledger, leases: needed to write; a check and a dry run have none.
        go_on: asked when more is due than `max_fixes` allows; None where nobody can be asked.
    """

    engine: Engine
    clock: Clock
    nodes: NodeClocks
    progress: Progress
    recount: Recount | None = None
    ledger: Ledger | None = None
    leases: Leases | None = None
    go_on: GoOn | None = None
