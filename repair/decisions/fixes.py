"""What a second look leads to, decided before anything is written: which rows change, how, and what must show then.

Pure. Everything that is written here is written as of T, so that whatever a user changed after the scan began wins
(DESIGN idea 4); only a removal from the truth, or a return to it, is conditional on what was seen. Whole rows are
overwritten, null columns too: a row that is half the repair's and half a late writer's would agree with nothing.
"""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from model.ids import micros_of
from model.instants import MICROS
from model.operations import Change, Conditional, Put, PutIfAbsent, Remove, RemoveIf, Seen, Write
from model.projections.declarations import Content, Counts, Family, Filter, Mirror, Projection, Union
from model.schema.table import Key, Row, Table, rows_agree
from repair.decisions.findings import Errand, Outcome, Suspect
from repair.decisions.recheck import Look, Moment, judge, verdict_of
from repair.decisions.verdicts import MENDABLE, Verdict

DAY_MICROS = 24 * 3600 * MICROS
"""How old a truth row must be before it is quarantined, and content before it is collected."""

BY_POLICY = frozenset({Verdict.LOST_CONTENT, Verdict.LEAK})
"""Verdicts that remove what nothing can rebuild: only on demand, and only what is old enough."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A suspect, looked at again.

    Attributes:
        last_trace: the content stands and no truth row of the message does: only the projection may still lead to it.
        blind: the scan saw a truth that no known key leads to (its partition is not one UUID): its verdict stands.
        companions: filter rows at the same place, read when the truth row itself may be removed.
    """

    suspect: Suspect
    family: Family
    look: Look
    last_trace: bool = False
    blind: bool = False
    companions: tuple[tuple[Filter, Seen], ...] = ()


@dataclass(frozen=True, slots=True)
class Fix:
    """What to write for one suspect.

    Attributes:
        outcome: what was seen and decided; the before-image of the suspect's own row.
        beside: the before-images of other rows that the fix changes.
        condition: a conditional change of the truth that everything else waits for, or None.
        writes: the writes as of T.
    """

    outcome: Outcome
    writes: tuple[Write, ...]
    condition: Conditional | None = None
    beside: tuple[Outcome, ...] = ()

    @property
    def images(self) -> tuple[Outcome, ...]:
        """Every before-image that must be safe before the first write."""
        return (self.outcome, *self.beside)

    @property
    def changes(self) -> tuple[Write | Conditional, ...]:
        """Everything that must show when it is read back."""
        return (*((self.condition,) if self.condition else ()), *self.writes)


def rule(sight: Sight, moment: Moment, errand: Errand) -> Outcome | Fix:
    """What a second look leads to: a fix, where one is asked for and may be written; else only an outcome."""
    verdict, judged = verdict_of(sight.look), judge(sight.look, moment)
    if judged is Verdict.FIXED and errand.run is None:
        judged = Verdict.AGREE  # somebody's write bears that stamp, but not ours: nothing was written
    outcome = _outcome(sight, verdict, judged)
    fix = _fix_asked_for(sight, outcome, errand, moment)
    if fix is None:
        return outcome
    if outcome.verdict in BY_POLICY and (sight.look.newest or 0) > moment.as_of:
        return replace(outcome, result=Verdict.MOVED)
    return fix if errand.run is not None else replace(outcome, due=True)


def asked_for(projection: Projection, verdict: Verdict, errand: Errand) -> bool:
    """Whether the errand would have such a finding mended, as far as its kind alone tells."""
    match projection, verdict:
        case Mirror(report_only=True), _:
            return False
        case Mirror(), Verdict.LOST_CONTENT:
            return errand.orphans == "quarantine"
        case Content(), Verdict.LEAK:
            return errand.leaks == "collect"
        case Mirror(), Verdict.WITHDRAW if errand.dangling == "report":
            return False
        case _:
            return verdict in MENDABLE & errand.only


def fixed_at(image: Outcome, as_of: int) -> int:
    """The stamp that a fix of this before-image carries: T, or just above what lay ahead of it."""
    if image.verdict not in MENDABLE:
        return as_of
    seen = (*image.truths, *((image.projected,) if image.projected else ()))
    newest = max((one.newest for one in seen if one.newest is not None), default=as_of)
    return as_of if newest <= as_of else newest + 1


def shows(change: Write | Conditional, seen: Seen | None) -> bool:
    """Whether a row, read back, is what the change was to make of it."""
    match change:
        case Remove() | RemoveIf():
            return seen is None
        case Put(table=table, row=row) | PutIfAbsent(table=table, row=row):
            return seen is not None and rows_agree((table.column(name) for name in row), row, seen.row)
        case Change(add=add, take=take):
            row = _row(seen)
            added = all(wanted <= _elements(row, name) for name, wanted in add.items())
            return added and not any(gone & _elements(row, name) for name, gone in take.items())
        case _:
            return True


def written_key(change: Write | Conditional) -> Key:
    """The primary key of the row that is changed."""
    return change.table.key_of(change.row) if isinstance(change, Put | PutIfAbsent) else change.key


def restored(mirror: Mirror, projected: Row) -> dict[str, Any]:
    """The truth row that a mirror's row tells of."""
    theirs = {truth: own for own, truth in (*mirror.renamed, *mirror.key)}
    return {name: projected.get(theirs.get(name, name)) for name in mirror.truth.names}


def exactly(table: Table, row: Row) -> RemoveIf:
    """The removal of a row while it is as it was seen (sets are left out: the modseq travels with each change)."""
    expected = {column.name: row.get(column.name) for column in table.regular if not column.is_collection}
    return RemoveIf(table, table.key_of(row), expected)


def older_than_a_day(key: Key, now: int) -> bool:
    """Whether a version-1 UUID in the key says that what it names was born more than a day ago."""
    births = [micros_of(part) for part in key if isinstance(part, UUID) and part.version == 1]
    return bool(births) and max(births) < now - DAY_MICROS


def _outcome(sight: Sight, verdict: Verdict, judged: Verdict) -> Outcome:
    stands = judged is Verdict.FIXED or sight.blind
    return Outcome(
        suspect=sight.suspect,
        verdict=sight.suspect.verdict if stands else verdict,
        result=judged if judged is not verdict and not sight.blind else None,
        truths=sight.look.truths,
        projected=sight.look.projected,
        last_trace=sight.last_trace and verdict is Verdict.WITHDRAW,
    )


def _fix_asked_for(sight: Sight, outcome: Outcome, errand: Errand, moment: Moment) -> Fix | None:
    """The fix that the errand asks for, if the verdict stands (or is beaten) and all that it removes is old enough."""
    asked = asked_for(sight.look.projection, outcome.verdict, errand)
    if sight.blind or not asked or not _old_enough(sight, outcome.verdict, moment):
        return None
    match outcome.result:
        case None:
            return _fix(sight, outcome, errand, errand.as_of)
        case Verdict.AHEAD if errand.beat_ahead:
            return _fix(sight, replace(outcome, result=None), errand, _just_above(sight.look))
        case _:
            return None


def _old_enough(sight: Sight, verdict: Verdict, moment: Moment) -> bool:
    """Truth and content are only ever removed when nobody can still be busy writing them."""
    match verdict:
        case Verdict.LOST_CONTENT:
            table = sight.family.truth
            births = tuple(sight.look.truths[0].row[column.name] for column in table.partition)
            return older_than_a_day(births, moment.now)
        case Verdict.LEAK:
            written = sight.look.newest
            recent = written is not None and written > moment.now - DAY_MICROS
            return older_than_a_day(sight.look.key, moment.now) and not recent
        case _:
            return True


def _just_above(look: Look) -> int:
    assert look.newest is not None, "only a visible time can lie ahead"
    return look.newest + 1


def _fix(sight: Sight, outcome: Outcome, errand: Errand, at: int) -> Fix | None:
    """The fix of a verdict that stands and was asked for, or None: it can only be reported."""
    match sight.look.projection:
        case Mirror() as mirror:
            return _fix_mirror(sight, mirror, outcome, errand, at)
        case Filter() | Content() as projection:
            return Fix(outcome, (_key_row(projection, sight.look.key, outcome.verdict, at),))
        case Union(table=table, column=column):
            wanted = _elements(sight.look.truths[0].row, column)
            missing = wanted - _elements(_row(sight.look.projected), column)
            return Fix(outcome, (Change(table, sight.look.key, add={column: missing}, at=at),))
        case Counts():
            return None


def _fix_mirror(sight: Sight, mirror: Mirror, outcome: Outcome, errand: Errand, at: int) -> Fix | None:
    match outcome.verdict:
        case Verdict.PROJECT | Verdict.AMEND:
            row = mirrored(mirror, sight.look.truths[0].row)
            return Fix(outcome, (Put(mirror.table, row, at=at, clear=True),))
        case Verdict.WITHDRAW:
            return _withdraw(sight, mirror, outcome, errand, at)
        case Verdict.LOST_CONTENT:
            return _quarantine(sight, mirror, outcome, at)
        case _:
            return None


def mirrored(mirror: Mirror, truth: Row) -> dict[str, Any]:
    """The whole projection row that a truth row demands; a column that the truth's table lacks is left as it is."""
    theirs = dict(mirror.renamed) | dict(mirror.key)
    return {name: cell for name, cell in mirror.row_of(truth).items() if theirs.get(name, name) in mirror.truth}


def _withdraw(sight: Sight, mirror: Mirror, outcome: Outcome, errand: Errand, at: int) -> Fix | None:
    """A projection without truth goes, unless it may be a message's last trace and that is to be restored."""
    if errand.dangling != "restore" or not sight.last_trace:
        return Fix(outcome, (Remove(mirror.table, sight.look.key, at=at),))
    row = restored(mirror, _row(sight.look.projected))
    return Fix(outcome, (), PutIfAbsent(mirror.truth, row)) if mirror.whole(row) else None


def _quarantine(sight: Sight, mirror: Mirror, outcome: Outcome, at: int) -> Fix | None:
    """A truth row without content goes while it is as it was seen; then its own projections."""
    truth = sight.look.truths[0].row
    condition = exactly(mirror.truth, truth)
    if all(cell is None for cell in condition.expected.values()):
        return None
    own = mirror.truth.key_of(restored(mirror, _row(sight.look.projected))) == mirror.truth.key_of(truth)
    writes = [Remove(mirror.table, sight.look.key, at=at)] if own else []
    writes += [Remove(filtered.table, filtered.table.key_of(seen.row), at=at) for filtered, seen in sight.companions]
    beside = tuple(
        replace(
            outcome,
            suspect=replace(sight.suspect, projection=filtered.name, key=filtered.table.key_of(seen.row)),
            projected=seen,
        )
        for filtered, seen in sight.companions
    )
    return Fix(outcome, tuple(writes), condition, beside)


def _key_row(projection: Projection, key: Key, verdict: Verdict, at: int) -> Write:
    if verdict is Verdict.PROJECT:
        return Put(projection.table, projection.table.key_row(key), at=at)
    return Remove(projection.table, key, at=at)


def _row(seen: Seen | None) -> Row:
    return seen.row if seen else {}


def _elements(row: Row, column: str) -> frozenset[Any]:
    return frozenset(row.get(column) or ())
