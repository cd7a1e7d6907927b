"""The base class of all kinds of projections, the second look at a suspect, and the mirror.

A kind is one class in this package (docs/design.md). Five kinds cover the mail tables, and most
others: mirror (the whole row under another key), filter (keys of the rows that satisfy a
condition), union (a set column gathered per group), counts (counters per group) and content (the
rows that each truth row needs).

Truth rows and contents are removed only when older than a day, when no write of them can be under
way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from mailmend.model.operations import (
    Change,
    Conditional,
    Put,
    Read,
    Remove,
    RemoveIf,
    Seen,
    Write,
    cells_of,
)
from mailmend.model.projections import mirror_columns
from mailmend.model.projections.ages import is_old, last_sign, why_kept
from mailmend.model.projections.claims import Claims, last_to_end
from mailmend.model.projections.findings import (
    Finding,
    MovedVerdict,
    RepairPolicy,
    Suspect,
    all_the_same,
    exactly_whole,
    lives_under,
    row_back,
    row_if_absent,
    row_writes,
    set_changes,
)
from mailmend.model.projections.look import Look
from mailmend.model.projections.verdicts import (
    MENDABLE,
    MIRROR_VERDICTS,
    MirrorSymptoms,
    Reason,
    Verdict,
    Why,
)
from mailmend.model.table import Column, Key, Row, Table, cells_agree, rows_agree
from mailmend.model.transforms import JoinedColumns


@dataclass(frozen=True, slots=True)
class Projection:
    """A table whose rows follow from the truth: how the keys correspond, and the decisions of each kind.

    Attributes:
        key: (projection column, truth column) for each primary key column of the projection.
    """

    truth: Table
    table: Table
    key: tuple[tuple[str, str], ...]

    by_row: ClassVar[bool] = True
    """Whether suspects are looked at and mended one by one; counters are not (`repair.mending.counters`)."""

    hidden_by: ClassVar[Why] = Why.HIDDEN
    """Why a fix that was written does not show."""

    needs_content: ClassVar[bool] = True
    """Whether a second look checks that the content of the truth exists."""

    @property
    def name(self) -> str:
        """The name in findings: the projection table, in James's spelling."""
        return self.table.spelling

    @property
    def key_sources(self) -> tuple[str, ...]:
        """The truth's columns that its key is made of, in the key's order."""
        return tuple(source for _, source in self.key)

    @property
    def truth_columns(self) -> frozenset[str]:
        """The truth's columns that its verdict depends on."""
        return frozenset(self.key_sources)

    @property
    def own_columns(self) -> frozenset[str]:
        """Its own non-key columns that its verdict needs."""
        return frozenset()

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Its own columns that a check reads."""
        return self.table.ordered(self.own_columns.union(self.table.key_names))

    def key_of(self, truth: Row) -> Key:
        return tuple(truth[source] for _, source in self.key)

    def is_demanded_by(self, truth: Row) -> bool:
        """Whether a row can follow from the truth row: no key has a null or an empty partition."""
        return self.table.takes_key(self.key_of(truth))

    def truth_part(self, key: Key) -> dict[str, Any]:
        """What a key of the projection tells of its truth row."""
        return dict(zip(self.key_sources, key, strict=True))

    def at_key(self, truths: Iterable[Seen], key: Key) -> tuple[Seen, ...]:
        """The truth rows that claim a key of the projection."""
        return tuple(seen for seen in truths if self.key_of(seen.row) == key)

    def content_columns(self, suspect: Suspect) -> tuple[str, ...]:  # noqa: ARG002 - for one kind
        """The columns that a second look reads of contents; none: only whether they exist."""
        return ()

    def near_reads(self, mirror: "Mirror", key: Key) -> list[Read]:  # noqa: ARG002 - filters ask the mirror too
        """The first reads of a second look: the projection's own row first, rows that lead to the truth last."""
        return [Read(self.table, key, times=True)]

    def lead_row(self, look: "Look") -> Row:
        """What is known of the truth row from the rows that were read so far; empty where nothing is."""
        if look.mirrored is None:
            return {}
        return look.mirror.restored(look.mirrored.row)

    def looked_at(self, look: "Look", rows: Sequence[Seen], *, accept_torn: bool) -> "Look":
        """The look, complete with the truth rows under every known key."""
        truths = self.at_key(rows, look.key)
        whole = accept_torn or all(look.mirror.whole(seen.row) for seen in truths)
        return replace(look, truths=truths, has_content=look.content_stands(truths), whole=whole)

    def lasting_with(self, seen: Seen, beside: Seen | None) -> Seen:  # noqa: ARG002 - a filter's row shows no TTL itself
        """A row of the projection with its expiry."""
        return seen

    def verdict(self, look: "Look") -> Verdict:
        """The verdict on the pair of rows, without regard to write times."""
        raise NotImplementedError

    def wanted(self, look: "Look") -> dict[str, Any]:  # noqa: ARG002 - unions have some
        """The value of `Suspect.wanted`: what the suspect carries of the truth in addition to keys."""
        return {}

    def owed(self, elements: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002 - only a union cannot ask later
        """The value of `Suspect.wanted` for a failed write of these elements."""
        return {}

    def writes_for(self, before: Row | None, after: Row | None, stamp: int) -> tuple[Write, ...]:
        """The writes that a change of one truth row demands; counts, which have no stamp, apart.

        Args:
            before: the truth row before the change, or None for an insert.
            after: the truth row after it, or None for a delete.
            stamp: microseconds; the time of the truth's change.
        """
        del before, after, stamp
        return ()

    def key_demanded_by(self, truth: Row | None) -> Key | None:
        """The key of the row that follows from the truth row; None where no row does."""
        if truth is None or not self.is_demanded_by(truth):
            return None
        return self.key_of(truth)

    def asks_for(self, verdict: Verdict, policy: RepairPolicy) -> bool:
        """Whether the policy lets findings of this verdict be mended."""
        return verdict in MENDABLE & policy.only

    def old_enough(self, look: "Look", verdict: Verdict, now: int) -> bool:  # noqa: ARG002 - truth and content have one
        """Whether the fix removes only rows that are too old to be still written; rows of projections always are."""
        return True

    def fix(self, finding: Finding, look: "Look", policy: RepairPolicy, at: int) -> Finding | None:
        """The finding with the writes that mend it, stamped `at` (microseconds); None where it can only be reported."""
        raise NotImplementedError

    def why_left(self, finding: Finding, policy: RepairPolicy, now: int) -> Reason:  # noqa: ARG002 - ages need it
        """Why a finding is left, for reasons other than write times."""
        if finding.verdict in MENDABLE - policy.only:
            return Reason(Why.NEEDS_ONLY)
        if not policy.all_truths:
            return Reason(Why.NEEDS_SCAN)
        if not self.by_row:
            return Reason(Why.ROWS_DIFFER)
        if finding.last_trace and policy.dangling == "restore":
            return Reason(Why.NO_WHOLE_ROW)
        return Reason(Why.NOT_SETTLED)

    def truth_rows(self, finding: Finding) -> tuple[Seen, ...]:
        """The truth rows of a finding, with columns named as in the projection, to be shown next to its row."""
        return finding.truths

    def differing(self, truth: Row, other: Row) -> frozenset[str]:  # noqa: ARG002 - each kind knows what it compares
        """The compared columns in which two rows of a finding differ."""
        return frozenset()

    def key_row(self, finding: Finding, at: int, ends_at: int | None = None) -> Finding:
        """The finding with the fix of a row that consists of its key: an insert (until `ends_at`) or a delete."""
        if finding.verdict is Verdict.PROJECT:
            put = Put(self.table, self.table.key_row(finding.suspect.key), at=at, expires_at=ends_at)
            return replace(finding, writes=(put,))
        return replace(finding, writes=(Remove(self.table, finding.suspect.key, at=at),))

    def take_back(self, image: Finding, look: "Look", at: int, origin: Finding | None) -> Finding:
        """The finding that undoes a fix; without writes if that is done already (AGREE) or others wrote since (MOVED).

        Args:
            image: the before-image that the run recorded.
            look: the same place, as it is now.
            at: the stamp of the run's writes, in microseconds.
            origin: the before-image of the run that was undone, where the run was itself an undo; else None.
        """
        now = replace(image, truths=look.truths, projected=look.projected, result=None, error=None)
        condition = self.truth_back(image, look, origin)
        writes = row_back(self.table, look.key, image.projected, look.projected, at)
        if condition is Verdict.MOVED or writes is Verdict.MOVED:
            return replace(now, result=Verdict.MOVED)
        if condition is None and not writes:
            return replace(now, verdict=Verdict.AGREE)
        return replace(now, writes=writes, condition=condition)

    def truth_back(self, image: Finding, look: "Look", origin: Finding | None) -> Conditional | MovedVerdict | None:  # noqa: ARG002 - a mirror's run may have changed it
        """The conditional write that restores the truth; None if it is as recorded; MOVED if others changed it."""
        if all_the_same(image.truths, look.truths):
            return None
        return Verdict.MOVED


@dataclass(frozen=True, slots=True)
class Mirror(Projection):
    """One projection row for each truth row: the same columns, under another key.

    Attributes:
        compared: columns of the projection that must agree with the truth's, in canonical form.
        renamed: (projection column, truth column) where the two names differ outside the key.
        required: truth columns that every insert writes; a truth row lacking one is TORN.
        kept: verdicts that are only reported, each with the reason.
        left_out: columns that are not to be written.
        needs: truth columns without which a truth row cannot say what its row is.
    """

    compared: tuple[Column, ...]
    renamed: tuple[tuple[str, str], ...] = ()
    required: tuple[str, ...] = ()
    kept: tuple[tuple[Verdict, str], ...] = ()
    left_out: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)
    """Each projection column that is written, with the truth column behind it."""
    back: tuple[tuple[str, str | None], ...] = field(init=False, repr=False, compare=False)
    """Each column of the truth that a server has, with the projection column that holds it."""
    _joined: tuple[tuple[str, JoinedColumns], ...] = field(init=False, repr=False, compare=False)
    """Each projection column whose text leads back to several columns of the truth."""
    _claims: Claims = field(init=False, repr=False, compare=False)

    verdicts: ClassVar = MIRROR_VERDICTS
    is_copy: ClassVar[bool] = True  # a table of its own, which follows from the truth
    when: ClassVar[None] = None  # every truth row has a mirror row

    def __post_init__(self) -> None:
        theirs = self.truth_names
        sources = tuple(mirror_columns.written(self.truth, self.table, theirs, self.left_out))
        object.__setattr__(self, "sources", sources)
        back = tuple(mirror_columns.back(self.truth, theirs, self.own_names))
        object.__setattr__(self, "back", back)
        object.__setattr__(self, "_joined", tuple(mirror_columns.joined(self.truth, sources)))
        held = {theirs.get(column.name, column.name) for column in self.compared}
        claims = Claims.of(self.truth, self.key_sources, held, self.needs)
        object.__setattr__(self, "_claims", claims)

    @property
    def claims(self) -> Claims:
        """How the truth rows that claim one row are told apart."""
        return self._claims

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
        return frozenset(self.truth_names.values())

    @property
    def read_columns(self) -> tuple[str, ...]:
        compared = [column.name for column in self.compared]
        return self.table.ordered({*self.table.key_names, *compared})

    def at_key(self, truths: Iterable[Seen], key: Key) -> tuple[Seen, ...]:
        return self.claims.at_key(truths, key)

    def key_demanded_by(self, truth: Row | None) -> Key | None:
        if truth is None or not self.claims.says(truth):
            return None
        return Projection.key_demanded_by(self, truth)

    def lead_row(self, look: Look) -> Row:
        """Its own row; without one, what the key tells."""
        return self.restored(cells_of(look.mirrored) or self.table.key_row(look.key))

    def unnested(self, truth: Row) -> Iterator[Row]:
        """The rows that a truth row stands for: itself; of a partial mirror none, or several."""
        yield truth

    def row_of(self, truth: Row) -> dict[str, object]:
        """The projection row that a truth row requires: its key, and every other column that both tables have."""
        return {name: truth.get(source) for name, source in self.sources}

    def restored(self, projected: Row) -> dict[str, Any]:
        """The truth row rebuilt from a mirror's row, as far as that holds its cells."""
        row: dict[str, Any] = {}
        for name, own in self.back:
            row[name] = None
            if own is not None:
                row[name] = projected.get(own)
        for own, rule in self._joined:
            for name, text in rule.columns_of(projected.get(own)).items():
                if row[name] is None:
                    row[name] = text
        return row

    def agree(self, truth: Row, projection: Row) -> bool:
        """Whether all compared columns are equal, in canonical form."""
        return rows_agree(self.compared, self.row_of(truth), projection)

    def truth_rows(self, finding: Finding) -> tuple[Seen, ...]:
        rows = []
        for seen in finding.truths:
            written_at = {}
            for name, source in self.sources:
                if source in seen.written_at:
                    written_at[name] = seen.written_at[source]
            rows.append(Seen(self.row_of(seen.row), written_at))
        return tuple(rows)

    def differing(self, truth: Row, other: Row) -> frozenset[str]:
        names: set[str] = set()
        for column in (*self.table.key, *self.compared):
            if not cells_agree(column, truth, other):
                names.add(column.name)
        return frozenset(names)

    def whole(self, truth: Row) -> bool:
        """Whether the truth row has every column that an insert writes."""
        return None not in map(truth.get, self.required)

    def verdict(self, look: Look) -> Verdict:
        agree = False
        if look.truths and look.projected:
            agree = self.agree(look.truths[0].row, look.projected.row)
        others = [self.row_of(seen.row) for seen in look.truths[1:]]
        alike = all(self.agree(look.truths[0].row, other) for other in others)
        symptoms = MirrorSymptoms(
            in_truth=bool(look.truths),
            clash=bool(others) and not (alike and self.claims.are_compared),
            in_projection=look.projected is not None,
            rows_agree=agree,
            has_content=look.has_content,
            whole=look.whole,
            says=all(map(self.claims.says, [seen.row for seen in look.truths])),
        )
        return self.verdicts[symptoms]

    def looked_at(self, look: Look, rows: Sequence[Seen], *, accept_torn: bool) -> Look:
        """The look with its truth rows, `last_trace` and `blind`."""
        seen = Projection.looked_at(self, look, rows, accept_torn=accept_torn)
        last_trace = bool(look.contents) and not rows
        return replace(seen, last_trace=last_trace, blind=self._is_blind(seen))

    def _is_blind(self, look: Look) -> bool:
        """Whether the scan saw truths that no known key leads to, and the rows found do not settle it."""
        scanned = look.suspect.verdict
        if look.suspect.truth_keys or scanned is Verdict.WITHDRAW:
            return False
        return scanned is Verdict.CLASH or not look.truths or self.verdict(look) is not Verdict.AGREE

    def writes_for(self, before: Row | None, after: Row | None, stamp: int) -> tuple[Write, ...]:
        """A row that moves is removed under the old key, and written whole under the new one."""
        old_key = self.key_demanded_by(before)
        new_key = self.key_demanded_by(after)
        writes: list[Write] = []
        if old_key is not None and old_key != new_key:
            writes.append(Remove(self.table, old_key, at=stamp))
        if new_key is not None and after is not None:
            old: Row = {}
            if before is not None and old_key == new_key:
                old = self.row_of(before)
            writes.append(self._written(old, self.row_of(after), new_key, stamp))
        return tuple(writes)

    def _written(self, old: Row, row: Row, key: Key, stamp: int) -> Write:
        """The write of a whole row. A cell that was there before and is null now is deleted."""
        filled = [name for name in self.table.plain if old.get(name) is not None]
        emptied = [name for name in filled if row.get(name) is None]
        add, take = set_changes(self.table, old, row)
        if not add and not take:
            cells = {name: row[name] for name in self.table.plain if name in row}
            return Put(self.table, cells, at=stamp, clear=bool(emptied))
        assign = {name: row[name] for name in self.table.plain[len(key) :] if row.get(name) is not None}
        return Change(self.table, key, {**assign, **dict.fromkeys(emptied)}, add, take, at=stamp)

    def asks_for(self, verdict: Verdict, policy: RepairPolicy) -> bool:
        if verdict in dict(self.kept):
            return False
        if verdict is Verdict.WITHDRAW and policy.dangling == "report":
            return False
        if verdict is Verdict.LOST_CONTENT:
            return policy.orphans == "quarantine"
        return Projection.asks_for(self, verdict, policy)

    def old_enough(self, look: Look, verdict: Verdict, now: int) -> bool:
        """Whether a truth row may be quarantined: it is more than a day old."""
        return verdict is not Verdict.LOST_CONTENT or is_old(self.since(look.truths), now)

    def why_left(self, finding: Finding, policy: RepairPolicy, now: int) -> Reason:  # noqa: PLR0911 - one for each
        match finding.verdict:
            case Verdict.CLASH:
                return Reason(Why.TWO_TRUTHS)
            case Verdict.TORN:
                return Reason(Why.HALF_A_TRUTH)
            case Verdict.LOST_CONTENT if policy.orphans == "report":
                return Reason(Why.NEEDS_ORPHANS)
            case Verdict.LOST_CONTENT if len(finding.truths) > 1:
                return Reason(Why.TWO_TRUTHS)
            case Verdict.LOST_CONTENT:
                return why_kept(self.since(finding.truths), now, Why.KEYS_ALONE)
            case kept if said := dict(self.kept).get(kept):
                return Reason(Why.ONLY_REPORTED, said=said)
            case Verdict.WITHDRAW if policy.dangling == "report" and Verdict.WITHDRAW in policy.only:
                return Reason(Why.NEEDS_DANGLING)
            case _:
                return Projection.why_left(self, finding, policy, now)

    def since(self, truths: Sequence[Seen]) -> int | None:
        """When truth rows were made or written last, in microseconds; None: unknown."""
        if len(truths) != 1:  # several share a row, or clash: none is removed
            return None
        (seen,) = truths
        return last_sign(self.truth, self.truth.key_of(seen.row), seen)

    def removal(self, truth: Row) -> RemoveIf:
        """The removal of a truth row while it is unchanged."""
        return exactly_whole(self.truth, truth)

    def fix(self, finding: Finding, look: Look, policy: RepairPolicy, at: int) -> Finding | None:
        """The finding with the writes that mend it. Rows are overwritten whole, null columns too."""
        match finding.verdict:
            case Verdict.PROJECT | Verdict.AMEND:
                row = self.row_of(look.truths[0].row)
                each = [mirror_columns.ends(self.truth, self.sources, seen) for seen in look.truths]
                ends = last_to_end(each)
                some_stay = any(seen.ends_at is None for seen in look.truths)
                stays = some_stay and ends.keys().isdisjoint(self.table.key_names)
                writes = row_writes(self.table, row, ends, at, stays=stays)
                return replace(finding, writes=writes)
            case Verdict.WITHDRAW:
                return self._withdraw(finding, look, policy, at)
            case Verdict.LOST_CONTENT:
                return self._quarantine(finding, look, at)
            case _:
                return None

    def _withdraw(self, finding: Finding, look: Look, policy: RepairPolicy, at: int) -> Finding | None:
        """Remove a projection without truth, unless it may be a message's last trace and that is to be restored."""
        if policy.dangling != "restore" or not look.last_trace:
            return replace(finding, writes=(Remove(self.table, look.key, at=at),))
        row = self.restored(cells_of(look.projected))
        if not self.whole(row):
            return None
        ends: Mapping[str, int] = {}
        if look.projected:
            ends = look.projected.expires_at
        lives = lives_under(self.own_names, row, ends)
        return replace(finding, condition=row_if_absent(self.truth, row, lives))

    def _quarantine(self, finding: Finding, look: Look, at: int) -> Finding | None:
        if len(look.truths) > 1:  # an undo brings one row of the truth back
            return None
        truth = look.truths[0].row
        condition = self.removal(truth)
        if all(cell is None for cell in condition.expected.values()):
            return None
        restored = self.restored(cells_of(look.projected))
        writes = []
        if self.truth.key_of(restored) == self.truth.key_of(truth):
            writes.append(Remove(self.table, look.key, at=at))
        beside = []
        for other, seen in look.companions:
            key = other.table.key_of(seen.row)
            writes.append(Remove(other.table, key, at=at))
            suspect = replace(look.suspect, projection=other.name, key=key)
            lasting = other.lasting_with(seen, look.truths[0])
            beside.append(replace(finding, suspect=suspect, projected=lasting))
        return replace(finding, writes=tuple(writes), condition=condition, beside=tuple(beside))

    def truth_back(self, image: Finding, look: Look, origin: Finding | None) -> Conditional | MovedVerdict | None:
        """None where the truth is as recorded; a conditional write where the run itself changed it; else MOVED."""
        is_anothers = image.verdict is Verdict.LOST_CONTENT and look.content is None  # another family's
        if is_anothers or all_the_same(image.truths, look.truths):
            return None
        if image.verdict is not Verdict.LOST_CONTENT and not image.last_trace:
            return Verdict.MOVED
        match image.truths, look.truths:
            case (recorded,), ():
                return row_if_absent(self.truth, recorded.row, recorded.expires_at)
            case (), (standing,) if self._is_runs_own(standing.row, image, origin):
                return self.removal(standing.row)
            case _:
                return Verdict.MOVED

    def _is_runs_own(self, standing: Row, image: Finding, origin: Finding | None) -> bool:
        """Whether the run wrote this truth row: from the projection, or from its origin's image."""
        columns = self.truth.columns
        if image.verdict is Verdict.LOST_CONTENT:
            return origin is not None and any(rows_agree(columns, truth.row, standing) for truth in origin.truths)
        return rows_agree(columns, self.restored(cells_of(image.projected)), standing)
