"""The verdicts on pairs of rows, on what a scan of queues finds, and why a row is left.

Each kind of projection has a table with a verdict for every combination of symptoms.
`spark_repair.suspects` generates Spark columns from the same tables, indexed by the same bits.
Source: James's ADR-22 (insert, remove); docs/design.md, "Verdicts".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from mailmend.model.ids import micros_of
from mailmend.model.instants import MICROS
from mailmend.model.table import Key

S = TypeVar("S", bound=tuple[Any, ...])


class Verdict(Enum):
    """The judgement on one key of one projection; the value is its name in reports."""

    AGREE = "AGREE"
    """Nothing to do."""
    PROJECT = "PROJECT"
    """Truth without projection: insert it."""
    AMEND = "AMEND"
    """Both, different: overwrite the whole row."""
    WITHDRAW = "WITHDRAW"
    """Projection without truth: delete it."""
    CLASH = "CLASH"
    """Two truths claim one place: report, never guess."""
    LOST_CONTENT = "LOST_CONTENT"
    """Truth whose content is gone: report, or quarantine."""
    TORN = "TORN"
    """Truth lacking what every insert writes: report."""
    LEAK = "LEAK"
    """Content that no truth names: report, or collect."""
    MOVED = "MOVED"
    """Changed since T: left to the next run."""
    AHEAD = "AHEAD"
    """A cell from the future: left until T passes it."""
    FIXED = "FIXED"
    """Mended, and read back so."""
    HIDDEN = "HIDDEN"
    """Mended, yet not visible so: journalled."""
    OVER = "OVER"  # the rest is of mail queues: see QUEUE_VERDICTS
    BEFORE_CONTENT = "BEFORE_CONTENT"
    FINISHED = "FINISHED"
    STRANDED = "STRANDED"
    OVERSTAYED = "OVERSTAYED"
    BLOBS_GONE = "BLOBS_GONE"
    ORPHAN_MARK = "ORPHAN_MARK"
    START_BEHIND = "START_BEHIND"
    START_MOVED_BACK = "START_MOVED_BACK"
    NO_BROWSE_START = "NO_BROWSE_START"
    NO_CONTENT_START = "NO_CONTENT_START"
    TALLY_DIFFERS = "TALLY_DIFFERS"


class RowVerdict(NamedTuple):
    """The properties of a verdict on a pair of rows.

    Attributes:
        is_found: whether a scan can find it; other verdicts come from the second look only.
        is_mended: whether a repair mends it without being asked further.
        is_settled: whether a second look with this verdict leaves nothing to do.
        by_policy: whether mending it removes what cannot be rebuilt: done only on demand, and only on rows of some age.
        is_harmless: whether it only takes room: it is reported, is never left undone, and never fails a check.
        needs_scan: whether the rows of one mailbox alone do not settle it.
    """

    is_found: bool = False
    is_mended: bool = False
    is_settled: bool = False
    by_policy: bool = False
    is_harmless: bool = False
    needs_scan: bool = False


ROW_VERDICTS: Final[Mapping[Verdict, RowVerdict]] = {
    Verdict.AGREE: RowVerdict(is_settled=True),
    Verdict.PROJECT: RowVerdict(is_found=True, is_mended=True, needs_scan=True),
    Verdict.AMEND: RowVerdict(is_found=True, is_mended=True),
    Verdict.WITHDRAW: RowVerdict(is_found=True, is_mended=True, needs_scan=True),
    Verdict.CLASH: RowVerdict(is_found=True),
    Verdict.LOST_CONTENT: RowVerdict(is_found=True, by_policy=True),
    Verdict.TORN: RowVerdict(is_found=True),
    Verdict.LEAK: RowVerdict(is_found=True, by_policy=True, is_harmless=True),
    Verdict.MOVED: RowVerdict(),
    Verdict.AHEAD: RowVerdict(),
    Verdict.FIXED: RowVerdict(is_settled=True),
    Verdict.HIDDEN: RowVerdict(),
}
"""All verdicts that are not on mail queues."""


class QueueVerdict(NamedTuple):
    """The properties of a verdict on a mail queue.

    Attributes:
        table: the table in which it is found.
        meaning: what its number counts.
        mended: the command that mends it; "" without such a command.
        runbook: the page on it.
        moves_start: whether mending it moves the browse start.
        is_over: whether it is on a partition that is removed whole.
        is_harmless: the same as in `RowVerdict`.
    """

    table: str
    meaning: str
    mended: str
    runbook: str
    moves_start: bool = False
    is_over: bool = False
    is_harmless: bool = False

    @property
    def by_repair(self) -> bool:
        """Whether a repair of the queues mends it without being asked further."""
        return self.mended == _BY_REPAIR


_BY_REPAIR: Final = "repair queues"
_TABLES_GROW: Final = "queue-tables-grow"
_START_STUCK: Final = "browse-start-is-stuck"
_NOT_DRAINED: Final = "queue-does-not-drain"
QUEUE_VERDICTS: Final[Mapping[Verdict, QueueVerdict]] = {
    Verdict.OVER: QueueVerdict(
        "enqueuedMailsV4",
        "rows of finished mails that a sweep should have removed: all of their slice are",
        _BY_REPAIR,
        _TABLES_GROW,
        is_over=True,
    ),
    Verdict.BEFORE_CONTENT: QueueVerdict(
        "enqueuedMailsV4",
        "the same before the content start, where no sweep ever looks",
        _BY_REPAIR,
        _TABLES_GROW,
        is_over=True,
    ),
    Verdict.FINISHED: QueueVerdict(
        "enqueuedMailsV4",
        "rows of finished mails in slices that are not over (does not fail a check)",
        "",
        _TABLES_GROW,
        is_harmless=True,
    ),
    Verdict.STRANDED: QueueVerdict(
        "enqueuedMailsV4",
        "mails that wait before the browse start: no listing shows them",
        "queue sweep QUEUE",
        _START_STUCK,
    ),
    Verdict.OVERSTAYED: QueueVerdict(
        "enqueuedMailsV4",
        "mails that wait for longer than a row lives: only a sweep's renewals keep them",
        "queue reconcile QUEUE",
        _NOT_DRAINED,
    ),
    Verdict.BLOBS_GONE: QueueVerdict(
        "enqueuedMailsV4",
        "mails that wait, and whose header or body no blob store has",
        "queue reconcile QUEUE",
        "blob-is-missing",
    ),
    Verdict.ORPHAN_MARK: QueueVerdict(
        "deletedMailsV2",
        "marks without a row, which never expire (does not fail a check)",
        "repair queues --marks empty",
        "marks-never-expire",
        is_harmless=True,
    ),
    Verdict.START_BEHIND: QueueVerdict(
        "browseStart",
        "the browse start is stuck: every listing reads what is finished",
        _BY_REPAIR,
        _START_STUCK,
        moves_start=True,
    ),
    Verdict.START_MOVED_BACK: QueueVerdict(
        "browseStart", "the browse start was moved back", _BY_REPAIR, _START_STUCK, moves_start=True
    ),
    Verdict.NO_BROWSE_START: QueueVerdict(
        "browseStart", "rows and no browse start: no listing shows them", _BY_REPAIR, _START_STUCK
    ),
    Verdict.NO_CONTENT_START: QueueVerdict(
        "contentStart", "no content start: nothing says up to where it was cleaned", _BY_REPAIR, _START_STUCK
    ),
    Verdict.TALLY_DIFFERS: QueueVerdict(
        "sliceTallies",
        "mails by which a size that calls itself exact is wrong, slice by slice",
        _BY_REPAIR,
        _NOT_DRAINED,
    ),
}
"""What a scan of the queues can find; Spark and the local engine count, `mailqueue.rules.cleanup` judges."""

DETECTED = tuple(verdict for verdict, row in ROW_VERDICTS.items() if row.is_found)
MENDABLE = frozenset(verdict for verdict, row in ROW_VERDICTS.items() if row.is_mended)
SETTLED = frozenset(verdict for verdict, row in ROW_VERDICTS.items() if row.is_settled)
BY_POLICY = frozenset(verdict for verdict, row in ROW_VERDICTS.items() if row.by_policy)
ON_DEMAND = BY_POLICY | {Verdict.TORN}
"""What is mended only where an option says so, and only where no cell is later than T."""
NEEDS_SCAN = frozenset(verdict for verdict, row in ROW_VERDICTS.items() if row.needs_scan)
OVER_VERDICTS = frozenset(verdict for verdict, row in QUEUE_VERDICTS.items() if row.is_over)
_EVERY_VERDICT: Final[Mapping[Verdict, RowVerdict | QueueVerdict]] = {**ROW_VERDICTS, **QUEUE_VERDICTS}
HARMLESS = frozenset(verdict for verdict, row in _EVERY_VERDICT.items() if row.is_harmless)


def verdict_on(verdicts: Mapping[S, Verdict], symptoms: Mapping[str, bool]) -> Verdict:
    """Look up the verdict for symptoms by name; symptoms that the table does not have are ignored."""
    known: type[S] = type(next(iter(verdicts)))
    return verdicts[known(**{name: symptoms[name] for name in known._fields})]  # type: ignore[attr-defined]


def table_of(symptoms: type[S], judge: Callable[[S], Verdict]) -> Mapping[S, Verdict]:
    """The verdict on every combination of symptoms, impossible ones too.

    Args:
        symptoms: a NamedTuple of booleans; the first field is the lowest bit, and the table is iterated in their order.
        judge: the rule that the table is made of.
    """
    width = len(symptoms._fields)  # type: ignore[attr-defined] # a NamedTuple has them
    verdicts: dict[S, Verdict] = {}
    for bits in product((False, True), repeat=width):
        seen: S = symptoms._make(reversed(bits))  # type: ignore[attr-defined]
        verdicts[seen] = judge(seen)
    return verdicts


class Why(Enum):
    """The kinds of reasons; the value is the text in tables, in JSON and in the ledger."""

    TOO_YOUNG = "too young"  # changed after T: the margin before the scan began
    CHANGED = "changed while it was looked at"
    USED_SINCE = "changed since that run"
    OTHER_THAN_PLANNED = "not as the plan saw it"
    AHEAD = "written by a clock that is ahead: needs --beat-ahead, or time"
    HIDDEN = "written, and a later tombstone hides it"
    HIDDEN_IN_VIEW = "its row of the base was touched, and the view does not show it"
    DUE = "a repair would mend it"
    RAW = "not looked at again"
    TWO_TRUTHS = "two rows of truth claim it: a person decides which one stays"
    HALF_A_TRUTH = "half a row of truth: needs --torn accept, or its missing columns"
    NEEDS_ORPHANS = "needs --orphans quarantine, or its content back"
    NEEDS_LEAKS = "needs --leaks collect"
    NEEDS_DANGLING = "needs --dangling withdraw or restore"
    NEEDS_ONLY = "left out by --only"
    ONLY_REPORTED = "only reported"  # its declaration says why
    YOUNGER_THAN_A_DAY = "younger than a day"
    AGE_UNKNOWN = "its age cannot be told: no timeuuid in its key, no write time of every cell"
    KEYS_ALONE = "a row of keys alone: no condition tells whether it is unchanged"
    NEEDS_SCAN = "a row of truth that nothing leads to may stand there: needs --scan"
    ROWS_DIFFER = "rows of its mailbox differ: counters are mended once they agree"
    GROUP_DIFFERS = "rows of its group differ: counters are mended once they agree"
    NEEDS_TOUCH_BASE = "a row of a view: needs --touch-base"
    CANNOT_BE_TOUCHED = "a row of a view that no touch of its base mends: build the view anew"
    NEEDS_NEW_VIEW = "a row that only the server can remove from its view: build the view anew"
    NO_WHOLE_ROW = "lacks what a row of truth needs"
    NOT_SETTLED = "a second look cannot tell"


COUNTED_LATER: Final = frozenset({Why.ROWS_DIFFER, Why.GROUP_DIFFERS})
"""Why a counter waits: a repair mends the rows that it counts first."""

_OF_ITS_GROUP: Final = "of its group"


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why a finding is left as it is.

    Attributes:
        micros: by how much it is too young or ahead; None where nothing is measured.
        again_at: when it can be mended, where only time is missing; in microseconds.
        said: what its declaration says, for a person.
        columns: the key of the group whose rows differ, as it is spelled; () for other reasons.
    """

    why: Why
    micros: int | None = None
    again_at: int | None = None
    said: str = ""
    columns: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        if self.said:
            return f"{self.why.value}: {self.said}"
        if self.columns:
            return self.why.value.replace(_OF_ITS_GROUP, f"with the same {', '.join(self.columns)}")
        if self.micros is None:
            return self.why.value
        return f"{self.why.value} by {_seconds(self.micros)}"


def _seconds(micros: int) -> str:
    """At least a second: a shorter wait is not shown."""
    seconds = -(-micros // MICROS)
    if seconds < 120:  # noqa: PLR2004 - two minutes
        return f"{seconds} s"
    return f"{-(-seconds // 60):,} min"


class MirrorSymptoms(NamedTuple):
    """What a scan sees at one key of a mirror. The order of the fields is the order of the bits, lowest first."""

    in_truth: bool  # at least one truth row claims the key
    clash: bool  # more than one does, and they demand different rows
    in_projection: bool
    rows_agree: bool
    has_content: bool
    whole: bool  # the truth row has every column that an insert writes
    says: bool  # a truth row has every column that tells what the mirror's row is


def _judge_mirror(seen: MirrorSymptoms) -> Verdict:
    verdict = Verdict.AGREE
    if not seen.in_truth:
        if seen.in_projection:
            verdict = Verdict.WITHDRAW
    elif not seen.says:
        pass
    elif seen.clash:
        verdict = Verdict.CLASH
    elif not seen.has_content:
        verdict = Verdict.LOST_CONTENT
    elif not seen.whole:
        verdict = Verdict.TORN
    elif not seen.in_projection:
        verdict = Verdict.PROJECT
    elif not seen.rows_agree:
        verdict = Verdict.AMEND
    return verdict


MIRROR_VERDICTS: Final = table_of(MirrorSymptoms, _judge_mirror)


class ContentSymptoms(NamedTuple):
    """What is seen at one row of shared content. The order of the fields is the order of the bits, lowest first."""

    in_truth: bool
    in_projection: bool


def _judge_content(seen: ContentSymptoms) -> Verdict:
    """The mirror reports a truth without content, per place; here only content that no truth names is found."""
    if seen.in_projection and not seen.in_truth:
        return Verdict.LEAK
    return Verdict.AGREE


CONTENT_VERDICTS: Final = table_of(ContentSymptoms, _judge_content)


class FilterSymptoms(NamedTuple):
    """What a scan sees at one key of a filter. The order of the fields is the order of the bits, lowest first."""

    in_truth: bool
    clash: bool
    in_projection: bool
    wanted: bool  # the truth row satisfies the filter's condition
    has_content: bool
    whole: bool


def _judge_filter(seen: FilterSymptoms) -> Verdict:
    """The mirror reports clashing, torn or empty truths: their filters are left as they are."""
    if not seen.in_truth:
        wanted = False
    elif seen.clash or not seen.has_content or not seen.whole:
        wanted = seen.in_projection
    else:
        wanted = seen.wanted
    if wanted == seen.in_projection:
        return Verdict.AGREE
    if wanted:
        return Verdict.PROJECT
    return Verdict.WITHDRAW


FILTER_VERDICTS: Final = table_of(FilterSymptoms, _judge_filter)


class GroupSymptoms(NamedTuple):
    """What a scan sees of one group of a union or of counters. The fields are bits, the lowest first."""

    in_projection: bool
    covered: bool  # the projection says what the truth demands of it


def _judge_group(seen: GroupSymptoms) -> Verdict:
    """What is missing in a group is added; surplus elements (of a union) are fine."""
    if seen.covered:
        return Verdict.AGREE
    if seen.in_projection:
        return Verdict.AMEND
    return Verdict.PROJECT


GROUP_VERDICTS: Final = table_of(GroupSymptoms, _judge_group)


DAY_MICROS = 24 * 3600 * MICROS
"""The least age of a truth row for quarantine, and of content for collection, in microseconds."""


def older_than_a_day(key: Key, now: int) -> bool:
    """Whether a version-1 UUID in the key is more than a day old."""
    born = born_at(key)
    return born is not None and born < now - DAY_MICROS


def born_at(key: Key) -> int | None:
    """When the youngest version-1 UUID of a key was made; None where it has none."""
    births: list[int] = []
    for part in key:
        if isinstance(part, UUID) and part.version == 1:
            births.append(micros_of(part))
    return max(births, default=None)


def younger_than_a_day(key: Key, now: int) -> bool:
    """Whether a version-1 UUID in the key was made within the last day."""
    born = born_at(key)
    return born is not None and born >= now - DAY_MICROS
