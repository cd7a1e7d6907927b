"""The consequences of a change of the truth: rows, conditions and projection writes as values.

Pure, and driven by the declarations of a Family: no table of the mail keyspace is named here.

The mirror is written whole with every change of flags, not only in the columns that changed: all writes of one row
carry the time of the truth's own change, so per cell the latest truth wins in any order of arrival, the next write
heals a lost one, and a change whose insert was lost makes no half row. A delete carries a later time than all of them,
so none that is still in flight brings anything back. Set columns are changed element by
element: assigning them would leave a range tombstone in the row each time (JAMES-3626).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from model.operations import Change, Count, Put, Remove, Write
from model.projections.family import Family
from model.projections.filters import Filter
from model.projections.findings import Suspect
from model.projections.groups import Union
from model.projections.mirror import Mirror
from model.projections.projection import Projection
from model.projections.verdicts import Verdict
from model.schema.table import Key, Row, Table


@dataclass(frozen=True, slots=True)
class Consequence:
    """One projection write that a change of the truth demands."""

    projection: Projection
    write: Write

    @property
    def key(self) -> Key:
        return self.write.table.key_of(self.write.row) if isinstance(self.write, Put) else self.write.key

    def suspect(self, ids: tuple[UUID, ...]) -> Suspect:
        """The suspect to journal when this write failed."""
        match self.write:
            case Put():
                return Suspect(self.projection.name, self.key, Verdict.PROJECT, ids)
            case Remove():
                return Suspect(self.projection.name, self.key, Verdict.WITHDRAW, ids)
            case Change(add=add):
                wanted = add if isinstance(self.projection, Union) else {}
                return Suspect(self.projection.name, self.key, Verdict.AMEND, ids, wanted)
            case Count():
                return Suspect(self.projection.name, self.key, Verdict.AMEND)


def truth_ids(family: Family, row: Row) -> tuple[UUID, ...]:
    """A truth row's partition key, by which a second look finds the truth."""
    return tuple(row[column.name] for column in family.truth.partition)


def suspects_of(family: Family, row: Row) -> tuple[Suspect, ...]:
    """The projections of a truth row, for when nobody knows whether the row was changed."""
    ids = truth_ids(family, row)
    near: tuple[Mirror | Filter, ...] = (family.mirror, *family.filters)
    placed = [Suspect(one.name, one.key_of(row), Verdict.AMEND, ids) for one in near]
    sets = [(one, frozenset(row.get(one.column) or ())) for one in family.unions]
    gathered = [Suspect(one.name, one.key_of(row), Verdict.AMEND, ids, {one.column: new}) for one, new in sets if new]
    return (*placed, *gathered, *(one.suspect(()) for one in recounts_for(family, row)))


def writes_for(family: Family, before: Row | None, after: Row | None, stamp: int) -> tuple[Consequence, ...]:
    """The projection writes of one change of one truth row, under one stamp; no counters.

    Args:
        family: the declarations.
        before: the truth row before the change, or None for an insert.
        after: the truth row after it, or None for a delete.
        stamp: microseconds; the time of the truth's change.
    """
    if before is None and after is None:
        return ()
    return (
        Consequence(family.mirror, _mirror_write(family.mirror, before, after, stamp)),
        *(
            Consequence(filtered, write)
            for filtered in family.filters
            if (write := _filter_write(filtered, before, after, stamp))
        ),
        *(Consequence(union, write) for union in family.unions if (write := _union_write(union, before, after, stamp))),
    )


def counts_for(family: Family, before: Row | None, after: Row | None) -> tuple[Consequence, ...]:
    """What one change of one truth row adds to the counters: no stamp, sent once."""
    found = []
    for counts in family.counts:
        plus = counts.deltas_of(after) if after is not None else {}
        minus = counts.deltas_of(before) if before is not None else {}
        deltas = {name: plus.get(name, 0) - minus.get(name, 0) for name, _ in counts.counters}
        row = after if after is not None else before
        if row is not None and any(deltas.values()):
            changed = {name: delta for name, delta in deltas.items() if delta}
            found.append(Consequence(counts, Count(counts.table, counts.key_of(row), changed)))
    return tuple(found)


def recounts_for(family: Family, row: Row) -> tuple[Consequence, ...]:
    """The counters of a row's group, to be counted again."""
    return tuple(Consequence(counts, Count(counts.table, counts.key_of(row), {})) for counts in family.counts)


def merged_counts(consequences: Iterable[Consequence]) -> tuple[Consequence, ...]:
    """One count per group, so that a batch adds to each counter once."""
    single = tuple(consequences)
    if len(single) == 1:
        return single
    sums: dict[tuple[str, Key], tuple[Projection, Table, Counter[str]]] = {}
    for one in single:
        assert isinstance(one.write, Count)
        _, _, total = sums.setdefault((one.projection.name, one.key), (one.projection, one.write.table, Counter()))
        total.update(one.write.deltas)
    return tuple(
        Consequence(projection, Count(table, key, {name: delta for name, delta in total.items() if delta}))
        for (_, key), (projection, table, total) in sums.items()
        if any(total.values())
    )


def _mirror_write(mirror: Mirror, before: Row | None, after: Row | None, stamp: int) -> Write:
    if after is None:
        assert before is not None
        return Remove(mirror.table, mirror.key_of(before), at=stamp)
    row, old = mirror.row_of(after), mirror.row_of(before) if before is not None else {}
    add, take = _elements(mirror.table, old, row)
    if not add and not take:
        return Put(mirror.table, {name: row[name] for name in mirror.table.plain if name in row}, at=stamp)
    key = mirror.key_of(after)
    assign = {name: row[name] for name in mirror.table.plain[len(key) :] if row.get(name) is not None}
    return Change(mirror.table, key, assign, add, take, at=stamp)


def _elements(table: Table, old: Row, new: Row) -> tuple[dict[str, frozenset[Any]], dict[str, frozenset[Any]]]:
    """All elements of the new row's sets, and those that only the old row has."""
    add = {name: frozenset(new.get(name) or ()) for name in table.collections}
    take = {name: frozenset(old.get(name) or ()) - add[name] for name in table.collections}
    return _non_empty(add), _non_empty(take)


def _filter_write(filtered: Filter, before: Row | None, after: Row | None, stamp: int) -> Write | None:
    was = before is not None and filtered.when.holds(before)
    wanted = after is not None and filtered.when.holds(after)
    if wanted and not was and after is not None:
        return Put(filtered.table, filtered.table.key_row(filtered.key_of(after)), at=stamp)
    if was and not wanted and before is not None:
        return Remove(filtered.table, filtered.key_of(before), at=stamp)
    return None


def _union_write(union: Union, before: Row | None, after: Row | None, stamp: int) -> Write | None:
    if after is None:
        return None
    new = frozenset(after.get(union.column) or ()) - frozenset((before or {}).get(union.column) or ())
    return Change(union.table, union.key_of(after), add={union.column: new}, at=stamp) if new else None


def _non_empty(sets: Mapping[str, frozenset[Any]]) -> dict[str, frozenset[Any]]:
    return {name: elements for name, elements in sets.items() if elements}
