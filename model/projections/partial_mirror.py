"""Mirrors in which a truth row has no row, or several: rows of a condition, rows of elements.

A truth row is split into the rows that it stands for; every other rule is the mirror's. The family
of such a mirror has no other projections: the rows of its scan are not the rows of the truth
(docs/adr/0069).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mailmend.model.operations import Seen, Write
from mailmend.model.projections.conditions import Every, RowCondition
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Key, Row
from mailmend.model.transforms import ElementCell

ElementCells = tuple[tuple[str, ElementCell], ...]

ALWAYS: Final = Every(())
"""The condition that every row satisfies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialMirror(Mirror):
    """A mirror of the truth rows that satisfy a condition."""

    only: RowCondition = ALWAYS

    @property
    def truth_columns(self) -> frozenset[str]:
        return frozenset((*self.truth_names.values(), *self.only.columns))

    def unnested(self, truth: Row) -> Iterator[Row]:
        if self.only.holds(truth):
            yield truth

    def looked_at(self, look: Look, rows: Sequence[Seen], *, accept_torn: bool) -> Look:
        """The look with what the truth rows stand for at its key."""
        parts = []
        for seen in rows:
            for row in self.unnested(seen.row):
                parts.append(replace(seen, row=row))
        return Mirror.looked_at(self, look, parts, accept_torn=accept_torn)

    def writes_for(self, before: Row | None, after: Row | None, stamp: int) -> tuple[Write, ...]:
        """The writes of each row that comes, changes or goes."""
        old = self._by_key(before)
        new = self._by_key(after)
        writes: list[Write] = []
        for key in dict.fromkeys((*old, *new)):
            writes += Mirror.writes_for(self, old.get(key), new.get(key), stamp)
        return tuple(writes)

    def _by_key(self, truth: Row | None) -> dict[Key, Row]:
        found = {}
        if truth is not None:
            for row in self.unnested(truth):
                if self.claims.says(row) and self.is_demanded_by(row):
                    found[self.key_of(row)] = row
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodedMirror(PartialMirror):
    """A mirror with a row for each element of a collection; equal rows are one.

    Attributes:
        collection: the truth's column: a set, a list or a map.
        element_cells: the truth's computed columns that the element fills.
    """

    collection: str
    element_cells: ElementCells = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        Mirror.__post_init__(self)
        wanted = {source for _, source in self.sources}
        cells = []
        for name, rule in self.truth.computed:
            if name in wanted and isinstance(rule, ElementCell):
                cells.append((name, rule))
        object.__setattr__(self, "element_cells", tuple(cells))

    @property
    def truth_columns(self) -> frozenset[str]:
        return frozenset((*self.truth_names.values(), *self.only.columns, self.collection))

    def unnested(self, truth: Row) -> Iterator[Row]:
        if not self.only.holds(truth):
            return
        known = set()
        for element, value in _elements(truth.get(self.collection)):
            cells = {name: rule.of_element(element, value) for name, rule in self.element_cells}
            together = tuple(cells.values())
            if together not in known:
                known.add(together)
                yield {**truth, **cells}


def _elements(collection: Any) -> Iterator[tuple[Any, Any]]:
    """Each element with None; of a map each key with its value."""
    if isinstance(collection, Mapping):
        yield from collection.items()
        return
    for element in collection or ():
        yield element, None
