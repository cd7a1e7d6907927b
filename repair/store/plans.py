"""The consequences of a change of the truth: rows, conditions and projection writes as values.

Pure, and driven by the declarations of a Family: no table of the mail keyspace is named here.

The mirror is written whole with every change of flags, not only in the columns that changed: all
writes of one row carry the time of the truth's own change, so per cell the latest truth wins in any
order of arrival, the next write heals a lost one, and a change whose insert was lost makes no half
row. A delete carries a later time than all of them, so none that is still in flight brings anything
back. Set columns are changed element by element: assigning them would leave a range tombstone in
the row each time (JAMES-3626).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from mailmend.model.operations import Change, Count, Put, Remove, Write
from mailmend.model.projections.family import Family, Filter
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table


@dataclass(frozen=True, slots=True)
class Consequence:
    """One projection write that a change of the truth demands."""

    projection: Projection
    write: Write

    @property
    def key(self) -> Key:
        if isinstance(self.write, Put):
            return self.write.table.key_of(self.write.row)
        return self.write.key

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
    return family.truth.partition_of(row)


def suspects_of(family: Family, row: Row) -> tuple[Suspect, ...]:
    """The projections of a truth row, for a row whose change is uncertain."""
    ids = truth_ids(family, row)
    near: tuple[Mirror | Filter, ...] = (family.mirror, *family.filters)
    suspects = [Suspect(mirror.name, mirror.key_of(row), Verdict.AMEND, ids) for mirror in near]
    for union in family.unions:
        elements = frozenset(row.get(union.column) or ())
        if elements:
            suspects.append(Suspect(union.name, union.key_of(row), Verdict.AMEND, ids, {union.column: elements}))
    suspects += [recount.suspect(()) for recount in recounts_for(family, row)]
    return tuple(suspects)


def writes_for(family: Family, before: Row | None, after: Row | None, stamp: int) -> tuple[Consequence, ...]:
    """The projection writes of one change of one truth row, under one stamp; no counters.

    Args:
        family: the declarations.
        before: the truth row before the change, or None for an insert.
        after: the truth row after it, or None for a delete.
        stamp: microseconds; the time of the truth's change.
    """
    demanded = []
    for projection in family.projections:
        write = projection.write_for(before, after, stamp)
        if write is not None:
            demanded.append(Consequence(projection, write))
    return tuple(demanded)


def counts_for(family: Family, before: Row | None, after: Row | None) -> tuple[Consequence, ...]:
    """What one change of one truth row adds to the counters: no stamp, sent once."""
    row = after
    if row is None:
        row = before
    if row is None:
        return ()
    found = []
    for counts in family.counts:
        deltas = dict.fromkeys((name for name, _ in counts.counters), 0)
        if after is not None:
            for name, number in counts.deltas_of(after).items():
                deltas[name] += number
        if before is not None:
            for name, number in counts.deltas_of(before).items():
                deltas[name] -= number
        changed = {name: delta for name, delta in deltas.items() if delta}
        if changed:
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
    found = []
    for (_, key), (projection, table, total) in sums.items():
        deltas = {name: delta for name, delta in total.items() if delta}
        if deltas:
            found.append(Consequence(projection, Count(table, key, deltas)))
    return tuple(found)
