"""The consequences of a change of the truth: rows, conditions and projection writes as values.

Pure, and driven by the declarations of a Family: no table of the mail keyspace is named here.

The mirror is written whole with every change of flags, not only in the columns that changed: all writes of one row
carry the time of the truth's own change, so per cell the latest truth wins in any order of arrival, the next write
heals a lost one, and a change whose insert was lost makes no half row. A delete carries a later time than all of them,
so none that is still in flight brings anything back. Set columns are changed element by
element: assigning them would leave a range tombstone in the row each time (JAMES-3626).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from mailmend.model.operations import Change, Count, Put, Remove, Write
from mailmend.model.projections.family import Family
from mailmend.model.projections.filters import Filter
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.mirror import Mirror
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table


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
                return Suspect(self.projection.name, self.key, Verdict.AMEND, ids, self.projection.owed(add))
            case Count():
                return Suspect(self.projection.name, self.key, Verdict.AMEND)


def truth_ids(family: Family, row: Row) -> tuple[UUID, ...]:
    """A truth row's partition key, by which a second look finds the truth."""
    return tuple(row[column.name] for column in family.truth.partition)


def suspects_of(family: Family, row: Row) -> tuple[Suspect, ...]:
    """The projections of a truth row, for a row whose change is uncertain."""
    ids = truth_ids(family, row)
    near: tuple[Mirror | Filter, ...] = (family.mirror, *family.filters)
    placed = [Suspect(mirror.name, mirror.key_of(row), Verdict.AMEND, ids) for mirror in near]
    sets = [(union, frozenset(row.get(union.column) or ())) for union in family.unions]
    gathered = [
        Suspect(union.name, union.key_of(row), Verdict.AMEND, ids, {union.column: new}) for union, new in sets if new
    ]
    return (*placed, *gathered, *(recount.suspect(()) for recount in recounts_for(family, row)))


def writes_for(family: Family, before: Row | None, after: Row | None, stamp: int) -> tuple[Consequence, ...]:
    """The projection writes of one change of one truth row, under one stamp; no counters.

    Args:
        family: the declarations.
        before: the truth row before the change, or None for an insert.
        after: the truth row after it, or None for a delete.
        stamp: microseconds; the time of the truth's change.
    """
    asked = ((projection, projection.write_for(before, after, stamp)) for projection in family.projections)
    return tuple(Consequence(projection, write) for projection, write in asked if write is not None)


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
    for consequence in single:
        assert isinstance(consequence.write, Count)
        _, _, total = sums.setdefault(
            (consequence.projection.name, consequence.key), (consequence.projection, consequence.write.table, Counter())
        )
        total.update(consequence.write.deltas)
    return tuple(
        Consequence(projection, Count(table, key, {name: delta for name, delta in total.items() if delta}))
        for (_, key), (projection, table, total) in sums.items()
        if any(total.values())
    )
