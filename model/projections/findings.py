"""Values that pass between the stages of a check or repair: suspects, second looks and findings."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from mailmend.model.errors import CannotReach, MailmendError
from mailmend.model.ids import RunId
from mailmend.model.operations import Conditional, Seen, Write
from mailmend.model.projections.family import Family
from mailmend.model.projections.filters import Filter
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import MENDABLE, Reason, Verdict
from mailmend.model.table import Key


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """What a repair may do at a second look; plain data, which can be sent to executors.

    Attributes:
        run: the ledger's run, or None when nothing may be written.
        as_of: T, in microseconds.
        all_truths: whether the scan saw every truth row; else projection rows without a known truth are left alone.
        margin_seconds: how long before its scan a repair is dated.
        skew_seconds: S, the greatest difference between any two clocks.
        only: the verdicts that may be mended.
        orphans: "report" or "quarantine" (truth rows whose content is lost).
        dangling: "withdraw", "restore" or "report" (projections without truth).
        leaks: "report" or "collect".
        beat_ahead: write just above cells from the future.
        accept_torn: treat truth rows that lack columns as whole.
        serial: read the truth at SERIAL (LWT is on).
        rows_per_second: pace over all workers together, or None.
    """

    run: RunId | None = None
    as_of: int = 0
    skew_seconds: float = 0.0
    only: frozenset[Verdict] = MENDABLE
    orphans: str = "report"
    dangling: str = "withdraw"
    leaks: str = "report"
    beat_ahead: bool = False
    accept_torn: bool = False
    serial: bool = True
    rows_per_second: int | None = None
    margin_seconds: float = 0.0
    all_truths: bool = True


@dataclass(frozen=True, slots=True)
class Suspect:
    """A key of a projection at which a scan found an inconsistency.

    Attributes:
        projection: name of the projection.
        key: primary key of the projection's row (for a leak: of the content row).
        verdict: the verdict of the scan.
        truth_ids: partition keys of the truth that the scan saw at this place (message ids), so that the second look
            finds the truth even where the projection cannot lead to it.
        wanted: for unions the elements that were missing; for counters the recounted values {counter: n}.
        planned: the digest of the before-image that was approved in a plan; "" where there is no plan.
    """

    projection: str
    key: Key
    verdict: Verdict
    truth_ids: tuple[UUID, ...] = ()
    wanted: Mapping[str, Any] = field(default_factory=dict)
    planned: str = ""


def counts_of(suspects: Iterable[Suspect]) -> dict[str, Counter[Verdict]]:
    """Number of suspects by projection and verdict."""
    counts: dict[str, Counter[Verdict]] = {}
    for suspect in suspects:
        counts.setdefault(suspect.projection, Counter())[suspect.verdict] += 1
    return counts


def merged(suspects: Iterable[Suspect]) -> list[Suspect]:
    """One suspect for each place, with every truth and every missing element that any of its duplicates has."""
    found: dict[tuple[str, Key], Suspect] = {}
    for suspect in suspects:
        place = (suspect.projection, suspect.key)
        if place in found:
            found[place] = _joined(found[place], suspect)
        else:
            found[place] = suspect
    return list(found.values())


def _joined(one: Suspect, other: Suspect) -> Suspect:
    ids = tuple(dict.fromkeys((*one.truth_ids, *other.truth_ids)))
    wanted = {}
    for name in {*one.wanted, *other.wanted}:
        wanted[name] = frozenset(one.wanted.get(name, ())) | frozenset(other.wanted.get(name, ()))
    return replace(one, truth_ids=ids, wanted=wanted)


def _newest(truths: tuple[Seen, ...], projected: Seen | None) -> int | None:
    times = [seen.newest for seen in truths]
    if projected:
        times.append(projected.newest)
    return max((time for time in times if time is not None), default=None)


@dataclass(frozen=True, slots=True)
class Look:
    """A suspect with both sides as they are read again; completed read by read.

    Attributes:
        projected: the projection's row, or None.
        mirrored: the mirror's row at the same place, which may lead to the truth.
        kept: the partition keys of the truth whose content exists.
        truths: every truth row that claims the key, as far as known keys lead to them.
        has_content: whether the content of the truth exists (or, without a truth, the content of
            the projection).
        whole: whether the truth row has every column that an insert writes (or is accepted without).
        uncertain: for counters: truth rows without content or torn, which may be counted or not.
        last_trace: the content exists and the message has no truth row: only the projection may still lead to it.
        blind: the scan saw a truth that no known key leads to (its partition is not one UUID): its
            verdict is kept.
        companions: filter rows at the same place, read when the truth row itself may be removed.
    """

    suspect: Suspect
    family: Family
    projection: Projection
    projected: Seen | None = None
    mirrored: Seen | None = None
    kept: frozenset[Key] = frozenset()
    truths: tuple[Seen, ...] = ()
    has_content: bool = True
    whole: bool = True
    uncertain: tuple[Seen, ...] = ()
    last_trace: bool = False
    blind: bool = False
    companions: tuple[tuple[Filter, Seen], ...] = ()

    @property
    def key(self) -> Key:
        return self.suspect.key

    @property
    def verdict(self) -> Verdict:
        return self.projection.verdict(self)

    @property
    def newest(self) -> int | None:
        """The latest visible write of the pair in microseconds; None where no time can be read."""
        return _newest(self.truths, self.projected)

    @property
    def soonest(self) -> int | None:
        """When the first visible cell of the pair expires, in seconds since 1970; None where none does."""
        instants: list[int] = []
        for seen in self.truths:
            instants.extend(seen.expires_at.values())
        if self.projected:
            instants.extend(self.projected.expires_at.values())
        return min(instants, default=None)

    @property
    def named(self) -> tuple[Key, ...]:
        """Partition keys of the truth that the latest reads name; a half-written row names none."""
        row = self.projection.lead_row(self)
        lead = tuple(row.get(column.name) for column in self.family.truth.partition)
        if None in lead:
            return ()
        return (lead,)

    @property
    def leads(self) -> tuple[Key, ...]:
        """Every known partition key of the truth: those that the scan saw, and those named since."""
        seen_by_scan = [(id_,) for id_ in self.suspect.truth_ids]
        return tuple(dict.fromkeys((*seen_by_scan, *self.named)))

    def content_stands(self, truths: tuple[Seen, ...]) -> bool:
        """Whether the content of the truth exists; without a truth, the content that the projection names."""
        if self.family.content is None:
            return True
        if not truths:
            return any(lead in self.kept for lead in self.named)
        return tuple(truths[0].row[column.name] for column in self.family.truth.partition) in self.kept


@dataclass(frozen=True, slots=True)
class Finding:
    """The decision about a suspect, its before-image, and the result.

    Attributes:
        suspect: what was looked at again.
        verdict: the second verdict, before anything was written (AGREE: the rows had settled
            without a fix).
        result: FIXED, HIDDEN, MOVED or AHEAD where that is what happened; else None (only looked at, or left).
        truths, projected: both sides as they were read again, with their times.
        last_trace: a WITHDRAW whose content still exists while no truth names it: the last trace of a message.
        due: whether a fix would have been written if writing had been allowed (in a check or a dry run).
        error: why the look or the fix failed (one sentence), or None.
        unreached: it failed because the cluster could not be reached.
        untried: it was not tried, because too many before it could not be reached.
        writes: the writes that mend it, as of T; empty once they are done.
        condition: a conditional change of the truth that the writes wait for, or None.
        beside: the before-images of other rows that the writes change.
        reason: why it is left as it is; None where it is mended.
        number: the number of rows that it represents; a finding in a queue may be a whole partition.
    """

    suspect: Suspect
    verdict: Verdict
    result: Verdict | None = None
    truths: tuple[Seen, ...] = ()
    projected: Seen | None = None
    last_trace: bool = False
    error: str | None = None
    due: bool = False
    unreached: bool = False
    untried: bool = False
    writes: tuple[Write, ...] = ()
    condition: Conditional | None = None
    beside: tuple["Finding", ...] = ()
    reason: Reason | None = None
    number: int = 1

    @property
    def newest(self) -> int | None:
        """The latest write that was visible on either side, in microseconds."""
        return _newest(self.truths, self.projected)

    @property
    def changes(self) -> tuple[Write | Conditional, ...]:
        """Everything that is to be written, and verified by reading it back."""
        if self.condition is None:
            return self.writes
        return (self.condition, *self.writes)

    @property
    def is_pending(self) -> bool:
        """Whether its changes are still to be made: nothing spoke against them so far."""
        return self.result is None and self.error is None and bool(self.changes)

    def ended(self, result: Verdict | None = None) -> "Finding":
        """The finding with nothing more to write; `result` applies only where the finding has no result yet."""
        known = self.result
        if known is None and not self.error:
            known = result
        return replace(self, result=known, writes=(), condition=None, beside=())

    def failed(self, error: MailmendError, prefix: str = "") -> "Finding":
        return replace(self, error=f"{prefix}{error}", unreached=isinstance(error, CannotReach))


def failed(suspect: Suspect, error: MailmendError) -> Finding:
    return Finding(suspect, suspect.verdict).failed(error)


@dataclass(frozen=True, slots=True)
class Excess:
    """More suspects than `--max-fixes` allows, shown to a person before any write.

    Attributes:
        allowed: the limit, `--max-fixes`.
        counts: suspects that would be mended, per projection and verdict.
        samples: a few of these suspects.
    """

    keyspace: str
    allowed: int
    counts: Mapping[str, Counter[Verdict]] = field(default_factory=dict)
    samples: tuple[Suspect, ...] = ()

    @property
    def total(self) -> int:
        return sum(counts.total() for counts in self.counts.values())


TRUTHS_SHOWN: Final = 3
"""The largest number of clashing truth rows that are shown."""

_MAILBOX: Final = "mailboxid"
_NOTHING: Final[tuple[Any, ...]] = (None, frozenset(), "")


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """One column over all rows that are compared.

    Attributes:
        values: in each row, the truth's first; None where it is null, "" where there is no row or no such column.
        written_at: microseconds; None where that cannot be read.
    """

    name: str
    values: tuple[Any, ...]
    written_at: tuple[int | None, ...]
    differs: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of a finding side by side.

    Attributes:
        sides: the table that each row is of, the truth's first.
        present: whether the row is there.
        columns: those with a value in any row, in the projection's order.
    """

    sides: tuple[str, ...]
    present: tuple[bool, ...]
    columns: tuple[ComparedColumn, ...]


def compared(finding: Finding, projection: Projection) -> Comparison:
    """Compare the truth's rows (one, or a few that clash) with the projection's row."""
    truths: Sequence[Seen | None] = projection.truth_rows(finding)[:TRUTHS_SHOWN] or (None,)
    rows = (*truths, finding.projected)
    there = [seen.row for seen in rows if seen]
    names = dict.fromkeys(projection.table.names)
    differing: set[str] = set()
    for row in there:
        names.update(dict.fromkeys(row))
    for other in there[1:]:
        differing.update(projection.differing(there[0], other))
    lines = []
    for name in names:
        line = _column(name, rows, projection, differs=name in differing)
        if line.differs or any(value not in _NOTHING for value in line.values):
            lines.append(line)
    tables = (*[projection.truth.spelling] * len(truths), projection.name)
    return Comparison(tables, tuple(seen is not None for seen in rows), tuple(lines))


def _column(name: str, rows: Sequence[Seen | None], projection: Projection, *, differs: bool) -> ComparedColumn:
    spelling = name
    if name in projection.table:
        spelling = projection.table.column(name).spelling
    elif name in projection.truth:
        spelling = projection.truth.column(name).spelling
    values: list[Any] = []
    times: list[int | None] = []
    for seen in rows:
        if seen is None:
            values.append("")
            times.append(None)
        else:
            values.append(seen.row.get(name, ""))
            times.append(seen.written_at.get(name))
    return ComparedColumn(spelling, tuple(values), tuple(times), differs)


def mailbox_in(finding: Finding, projection: Projection | None) -> UUID | None:
    """The mailbox that the finding's place is in; None where it is in none, as content and mails in queues are."""
    if projection is None:
        return None
    for (_, truth), value in zip(projection.key, finding.suspect.key, strict=False):
        if truth == _MAILBOX:
            mailbox: UUID = value
            return mailbox
    return None
