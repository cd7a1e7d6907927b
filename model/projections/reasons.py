"""The reasons why a run leaves a finding as it is, shown to the operator next to each such row."""

from dataclasses import dataclass
from enum import Enum

from mailmend.model.instants import MICROS


class Why(Enum):
    """The kinds of reasons; the value is the text in tables, in JSON and in the ledger."""

    TOO_YOUNG = "too young"  # changed after T: the margin before the scan began
    CHANGED = "changed while it was looked at"
    USED_SINCE = "changed since that run"
    OTHER_THAN_PLANNED = "not as the plan saw it"
    AHEAD = "written by a clock that is ahead: needs --beat-ahead, or time"
    HIDDEN = "written, and a later tombstone hides it"
    DUE = "a repair would mend it"
    RAW = "not looked at again"
    TWO_TRUTHS = "two rows of truth claim it: a person decides which one stays"
    HALF_A_TRUTH = "half a row of truth: needs --torn accept, or its missing columns"
    NEEDS_ORPHANS = "needs --orphans quarantine, or its content back"
    NEEDS_LEAKS = "needs --leaks collect"
    NEEDS_DANGLING = "needs --dangling withdraw or restore"
    NEEDS_ONLY = "left out by --only"
    ONLY_REPORTED = "only reported"
    YOUNGER_THAN_A_DAY = "younger than a day"
    NEEDS_SCAN = "a row of truth that nothing leads to may stand there: needs --scan"
    ROWS_DIFFER = "rows of its mailbox differ: counters are mended once they agree"
    NO_WHOLE_ROW = "lacks what a row of truth needs"
    NOT_SETTLED = "a second look cannot tell"


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why a finding is left as it is.

    Attributes:
        micros: by how much it is too young or ahead; None where nothing is measured.
        again_at: when it can be mended, where only time is missing; in microseconds.
    """

    why: Why
    micros: int | None = None
    again_at: int | None = None

    @property
    def text(self) -> str:
        return self.why.value if self.micros is None else f"{self.why.value} by {_seconds(self.micros)}"


def _seconds(micros: int) -> str:
    """At least a second: a shorter wait is not shown."""
    seconds = -(-micros // MICROS)
    return f"{seconds} s" if seconds < 120 else f"{-(-seconds // 60):,} min"  # noqa: PLR2004 - two minutes
