"""The projection kind `Mirror`: the whole truth row under another key. Its verdict covers each truth row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from mailmend.model.operations import Change, Conditional, Put, Remove, RemoveIf, Seen, Write, cells_of
from mailmend.model.projections.projection import (
    MovedVerdict,
    Projection,
    older_than_a_day,
    row_if_absent,
    row_writes,
    why_kept,
)
from mailmend.model.projections.verdicts import Reason, Verdict, Why, table_of
from mailmend.model.table import Column, Key, Row, Table, canonical_value, rows_agree

if TYPE_CHECKING:
    from mailmend.model.projections.findings import Finding, Look, RepairPolicy


class MirrorSymptoms(NamedTuple):
    """What a scan sees at one key of a mirror. The order of the fields is the order of the bits, lowest first."""

    in_truth: bool  # at least one truth row claims the key
    clash: bool  # more than one does
    in_projection: bool
    rows_agree: bool
    has_content: bool
    whole: bool  # the truth row has every column that an insert writes


def _judge(seen: MirrorSymptoms) -> Verdict:
    verdict = Verdict.AGREE
    if not seen.in_truth:
        if seen.in_projection:
            verdict = Verdict.WITHDRAW
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


@dataclass(frozen=True, slots=True)
class Mirror(Projection):
    """One projection row for each truth row: the same columns, under another key.

    Attributes:
        compared: columns of the projection that must agree with the truth's, in canonical form.
        renamed: (projection column, truth column) where the two names differ outside the key.
        required: truth columns that every insert writes; a truth row lacking one is TORN.
        left_out: columns that are not to be written.
    """

    compared: tuple[Column, ...]
    renamed: tuple[tuple[str, str], ...] = ()
    required: tuple[str, ...] = ()
    report_only: bool = False
    left_out: frozenset[str] = frozenset()
    sources: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)
    """Each projection column that is written, with the truth column behind it."""

    verdicts: ClassVar = table_of(MirrorSymptoms, _judge)
    when: ClassVar[None] = None
    """No condition: every truth row has a mirror row."""

    def __post_init__(self) -> None:
        theirs = self.truth_names
        pairs = ((name, theirs.get(name, name)) for name in self.table.names if name not in self.left_out)
        object.__setattr__(
            self, "sources", tuple((mine, source) for mine, source in pairs if source in self.truth.names)
        )

    @property
    def truth_names(self) -> dict[str, str]:
        """The truth's column names by the mirror's, where they may differ."""
        return dict(self.renamed) | dict(self.key)

    @property
    def own_names(self) -> dict[str, str]:
        """The mirror's column names by the truth's, where they may differ."""
        return {truth: own for own, truth in (*self.renamed, *self.key)}

    @property
    def truth_columns(self) -> frozenset[str]:
        return frozenset(column for _, column in (*self.key, *self.renamed))

    @property
    def read_columns(self) -> tuple[str, ...]:
        wanted = {column.name for column in (*self.table.key, *self.compared)}
        return tuple(name for name in self.table.names if name in wanted)

    def row_of(self, truth: Row) -> dict[str, object]:
        """The projection row that a truth row requires: its key, and every other column that both tables have."""
        return {name: truth.get(source) for name, source in self.sources}

    def restored(self, projected: Row) -> dict[str, Any]:
        """The truth row rebuilt from a mirror's row."""
        own = self.own_names
        return {name: projected.get(own.get(name, name)) for name in self.truth.names}

    def agree(self, truth: Row, projection: Row) -> bool:
        """Whether all compared columns are equal, in canonical form."""
        return rows_agree(self.compared, self.row_of(truth), projection)

    def truth_rows(self, finding: "Finding") -> tuple[Seen, ...]:
        rows = []
        for seen in finding.truths:
            written_at = {}
            for name, source in self.sources:
                if source in seen.written_at:
                    written_at[name] = seen.written_at[source]
            rows.append(Seen(self.row_of(seen.row), written_at))
        return tuple(rows)

    def differing(self, truth: Row, other: Row) -> frozenset[str]:
        compared = (*self.table.key, *self.compared)
        return frozenset(
            column.name for column in compared if canonical_value(column, truth) != canonical_value(column, other)
        )

    def whole(self, truth: Row) -> bool:
        """Whether the truth row has every column that an insert writes."""
        return None not in map(truth.get, self.required)

    def verdict(self, look: "Look") -> Verdict:
        agree = False
        if look.truths and look.projected:
            agree = self.agree(look.truths[0].row, look.projected.row)
        symptoms = MirrorSymptoms(
            in_truth=bool(look.truths),
            clash=len(look.truths) > 1,
            in_projection=look.projected is not None,
            rows_agree=agree,
            has_content=look.has_content,
            whole=look.whole,
        )
        return self.verdicts[symptoms]

    def looked_at(self, look: "Look", rows: Sequence[Seen], *, accept_torn: bool) -> "Look":
        """The look with its truth rows, `last_trace` and `blind`."""
        seen = Projection.looked_at(self, look, rows, accept_torn=accept_torn)
        return replace(seen, last_trace=bool(look.kept) and not rows, blind=self._is_blind(seen))

    def _is_blind(self, look: "Look") -> bool:
        """Whether the scan saw truths that no known key leads to, and the rows found do not settle it."""
        scanned = look.suspect.verdict
        if look.suspect.truth_ids or scanned is Verdict.WITHDRAW:
            return False
        return scanned is Verdict.CLASH or not look.truths or self.verdict(look) is not Verdict.AGREE

    def write_for(self, before: Row | None, after: Row | None, stamp: int) -> Write | None:
        if after is None:
            if before is None:
                return None
            return Remove(self.table, self.key_of(before), at=stamp)
        row = self.row_of(after)
        old: Row = {}
        if before is not None:
            old = self.row_of(before)
        add, take = _elements(self.table, old, row)
        if not add and not take:
            return Put(self.table, {name: row[name] for name in self.table.plain if name in row}, at=stamp)
        key = self.key_of(after)
        assign = {name: row[name] for name in self.table.plain[len(key) :] if row.get(name) is not None}
        return Change(self.table, key, assign, add, take, at=stamp)

    def asks_for(self, verdict: Verdict, policy: "RepairPolicy") -> bool:
        if self.report_only or (verdict is Verdict.WITHDRAW and policy.dangling == "report"):
            return False
        if verdict is Verdict.LOST_CONTENT:
            return policy.orphans == "quarantine"
        return Projection.asks_for(self, verdict, policy)

    def old_enough(self, look: "Look", verdict: Verdict, now: int) -> bool:
        """Whether a truth row may be quarantined: its UUIDs are more than a day old."""
        return verdict is not Verdict.LOST_CONTENT or older_than_a_day(self._births(look.truths), now)

    def why_left(self, finding: "Finding", policy: "RepairPolicy", now: int) -> Reason:  # noqa: PLR0911 - one for each
        match finding.verdict:
            case Verdict.CLASH:
                return Reason(Why.TWO_TRUTHS)
            case Verdict.TORN:
                return Reason(Why.HALF_A_TRUTH)
            case Verdict.LOST_CONTENT if policy.orphans == "report":
                return Reason(Why.NEEDS_ORPHANS)
            case Verdict.LOST_CONTENT:
                return why_kept(self._births(finding.truths) or finding.suspect.truth_ids, None, now)
            case _ if self.report_only:
                return Reason(Why.ONLY_REPORTED)
            case Verdict.WITHDRAW if policy.dangling == "report" and Verdict.WITHDRAW in policy.only:
                return Reason(Why.NEEDS_DANGLING)
            case _:
                return Projection.why_left(self, finding, policy, now)

    def _births(self, truths: Sequence[Seen]) -> Key:
        """The partition keys of truth rows, whose time-based UUIDs tell when they were made."""
        return tuple(seen.row[column.name] for seen in truths for column in self.truth.partition)

    def fix(self, finding: "Finding", look: "Look", policy: "RepairPolicy", at: int) -> "Finding | None":
        """The finding with the writes that mend it. Rows are overwritten whole, null columns too."""
        match finding.verdict:
            case Verdict.PROJECT | Verdict.AMEND:
                truth = look.truths[0]
                return replace(finding, writes=row_writes(self.table, self.row_of(truth.row), self._expiry(truth), at))
            case Verdict.WITHDRAW:
                return self._withdraw(finding, look, policy, at)
            case Verdict.LOST_CONTENT:
                return self._quarantine(finding, look, at)
            case _:
                return None

    def _expiry(self, truth: Seen) -> dict[str, int]:
        """By the projection's columns, when the truth's cells expire, in seconds since 1970; its key with its row."""
        ends = dict(truth.expires_at)
        if truth.ends_at is not None:
            for column in self.truth.key:
                ends[column.name] = truth.ends_at
        return {name: ends[source] for name, source in self.sources if source in ends}

    def _withdraw(self, finding: "Finding", look: "Look", policy: "RepairPolicy", at: int) -> "Finding | None":
        """Remove a projection without truth, unless it may be a message's last trace and that is to be restored."""
        if policy.dangling != "restore" or not look.last_trace:
            return replace(finding, writes=(Remove(self.table, look.key, at=at),))
        row = self.restored(cells_of(look.projected))
        if not self.whole(row):
            return None
        ends: Mapping[str, int] = {}
        if look.projected:
            ends = look.projected.expires_at
        own = self.own_names
        lives = {}
        for name in row:
            mine = own.get(name, name)
            if mine in ends:
                lives[name] = ends[mine]
        return replace(finding, condition=row_if_absent(self.truth, row, lives))

    def _quarantine(self, finding: "Finding", look: "Look", at: int) -> "Finding | None":
        truth = look.truths[0].row
        condition = exactly(self.truth, truth)
        if all(cell is None for cell in condition.expected.values()):
            return None
        restored = self.restored(cells_of(look.projected))
        writes = []
        if self.truth.key_of(restored) == self.truth.key_of(truth):
            writes.append(Remove(self.table, look.key, at=at))
        beside = []
        for filtered, seen in look.companions:
            key = filtered.table.key_of(seen.row)
            writes.append(Remove(filtered.table, key, at=at))
            suspect = replace(look.suspect, projection=filtered.name, key=key)
            lasting = filtered.lasting_with(seen, look.truths[0])
            beside.append(replace(finding, suspect=suspect, projected=lasting))
        return replace(finding, writes=tuple(writes), condition=condition, beside=tuple(beside))

    def truth_back(self, image: "Finding", look: "Look", origin: "Finding | None") -> Conditional | MovedVerdict | None:
        """None where the truth is as recorded; a conditional write where the run itself changed it; else MOVED."""
        if image.truths == look.truths:
            return None
        if image.verdict is not Verdict.LOST_CONTENT and not image.last_trace:
            return Verdict.MOVED
        match image.truths, look.truths:
            case (recorded,), ():
                return row_if_absent(self.truth, recorded.row, recorded.expires_at)
            case (), (standing,) if self._is_runs_own(standing.row, image, origin):
                return exactly(self.truth, standing.row)
            case _:
                return Verdict.MOVED

    def _is_runs_own(self, standing: Row, image: "Finding", origin: "Finding | None") -> bool:
        """Whether the run wrote this truth row: from the projection, or from its origin's image."""
        columns = self.truth.columns
        if image.verdict is Verdict.LOST_CONTENT:
            return origin is not None and any(rows_agree(columns, truth.row, standing) for truth in origin.truths)
        return rows_agree(columns, self.restored(cells_of(image.projected)), standing)


def _elements(table: Table, old: Row, new: Row) -> tuple[dict[str, frozenset[Any]], dict[str, frozenset[Any]]]:
    """All elements of the new row's sets, and those that only the old row has."""
    add = {}
    take = {}
    for name in table.collections:
        elements = frozenset(new.get(name) or ())
        gone = frozenset(old.get(name) or ()) - elements
        if elements:
            add[name] = elements
        if gone:
            take[name] = gone
    return add, take


def exactly(table: Table, row: Row) -> RemoveIf:
    """Remove a row only while it is unchanged (sets are left out: the modseq changes with each change)."""
    expected = {column.name: row.get(column.name) for column in table.regular if not column.is_collection}
    return RemoveIf(table, table.key_of(row), expected)
