"""What taking a fix back means for one row, decided before anything is written.

Pure. A row returns to its before-image only where every visible cell is the run's own (or stood there before), and the
truth is as the run recorded it: then nobody has used it since. Everything else has MOVED, and stays.
"""

from dataclasses import dataclass, replace

from model.operations import Change, Conditional, Put, PutIfAbsent, Remove, Seen, Write
from model.projections.declarations import Filter, Mirror, Union
from model.schema.table import Key, Row, Table, rows_agree
from repair.decisions.findings import Outcome, Suspect
from repair.decisions.fixes import Fix, Sight, exactly, fixed_at, restored
from repair.decisions.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class _Moved:
    """Somebody has changed it since."""


_MOVED = _Moved()


def take_back(image: Outcome, sight: Sight, as_of: int, origin: Outcome | None = None) -> Fix | Outcome:
    """The fix that undoes a fix, or an outcome where nothing is to be done (AGREE) or may be done (MOVED).

    Args:
        image: what the run recorded before it wrote.
        sight: the same place, as it is now.
        as_of: T of the run that is taken back.
        origin: where that run was itself an undo: what the run before it had recorded.
    """
    now = replace(image, truths=sight.look.truths, projected=sight.look.projected, result=None, error=None)
    at = fixed_at(image, as_of)
    if isinstance(sight.look.projection, Union):
        return _unions_back(sight.look.projection, image, now, at)
    condition = _truth_back(image, now, sight, origin)
    writes = row_back(sight.look.projection.table, sight.look.key, image.projected, now.projected, at)
    if isinstance(condition, _Moved) or isinstance(writes, _Moved):
        return replace(now, result=Verdict.MOVED)
    if condition is None and not writes:
        return replace(now, verdict=Verdict.AGREE)
    return Fix(now, writes, condition)


def row_back(table: Table, key: Key, before: Seen | None, now: Seen | None, at: int) -> tuple[Write, ...] | _Moved:
    """The write that puts a row back, just above what the run wrote; none where it stands there already."""
    if (before.row if before else None) == (now.row if now else None):
        return ()
    if now is not None and not _is_own(now, before, at):
        return _MOVED
    if before is None:
        return (Remove(table, key, at=at + 1),)
    return (Put(table, before.row, at=at + 1, clear=True),)


def known_again(image: Outcome, mirror: Mirror) -> Suspect:
    """The suspect with every partition key of the truth that the image tells of: its rows may be gone by now."""
    column = mirror.truth.partition[0].name
    rows: list[Row] = [seen.row for seen in image.truths]
    if image.suspect.projection == mirror.name and image.projected is not None:
        rows.append(restored(mirror, image.projected.row))
    ids = (row.get(column) for row in rows)
    return replace(
        image.suspect,
        truth_ids=tuple(dict.fromkeys((*image.suspect.truth_ids, *(one for one in ids if one is not None)))),
    )


def _is_own(now: Seen, before: Seen | None, at: int) -> bool:
    """Whether every cell with a readable time is the run's, or one that it left as it was."""
    kept = {
        name
        for name, time in (before.written_at if before else {}).items()
        if now.written_at.get(name) == time and before is not None and before.row.get(name) == now.row.get(name)
    }
    return all(time == at or name in kept for name, time in now.written_at.items())


def _truth_back(image: Outcome, now: Outcome, sight: Sight, origin: Outcome | None) -> Conditional | _Moved | None:
    """How the truth returns: not at all, where it is as recorded; conditionally, where the run itself changed it."""
    if image.truths == now.truths:
        return None
    mirror, projection = sight.family.mirror, sight.look.projection
    changed_by_run = image.verdict is Verdict.LOST_CONTENT or image.last_trace
    if isinstance(projection, Filter) and image.verdict is Verdict.LOST_CONTENT:
        return None  # it went along with a truth row, whose own image decides
    if not changed_by_run or not isinstance(projection, Mirror):
        return _MOVED
    match image.truths, now.truths:
        case (recorded,), ():
            return PutIfAbsent(mirror.truth, recorded.row)
        case (), (standing,) if _is_runs_own(standing.row, image, mirror, origin):
            return exactly(mirror.truth, standing.row)
        case _:
            return _MOVED


def _is_runs_own(standing: Row, image: Outcome, mirror: Mirror, origin: Outcome | None) -> bool:
    """Whether a truth row is the one that the run put there: from the projection, or from its origin's image."""
    if image.verdict is Verdict.LOST_CONTENT:
        return origin is not None and any(rows_agree(mirror.truth.columns, one.row, standing) for one in origin.truths)
    projected = image.projected.row if image.projected else {}
    return rows_agree(mirror.truth.columns, restored(mirror, projected), standing)


def _unions_back(union: Union, image: Outcome, now: Outcome, at: int) -> Fix | Outcome:
    """The elements that the run added go; those that it took (as an undo) return. Whatever else was added stays."""
    before, standing = _elements(image.projected, union), _elements(now.projected, union)
    added = _elements(image.truths[0] if image.truths else None, union) & (standing - before)
    taken = before - standing
    if not added and not taken:
        return replace(now, verdict=Verdict.AGREE)
    change = Change(
        union.table,
        image.suspect.key,
        add={union.column: taken} if taken else {},
        take={union.column: added} if added else {},
        at=at + 1,
    )
    return Fix(replace(now, truths=image.truths), (change,))


def _elements(seen: Seen | None, union: Union) -> frozenset[str]:
    return frozenset((seen.row.get(union.column) if seen else None) or ())
