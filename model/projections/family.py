"""One truth and all that follows from it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mailmend.model.projections.filters import Content, Counts, Filter, Union
from mailmend.model.projections.mirror import Mirror
from mailmend.model.projections.projection import Condition, Projection
from mailmend.model.table import Table


@dataclass(frozen=True, slots=True)
class Family:
    """One truth and all that follows from it: what one scan of the truth checks (docs/design.md, "Ideas").

    Attributes:
        mirror: decides about each row; the filters' suspects find their truth through it.
        content: the table of contents that truth rows refer to; None for a family without contents.
    """

    mirror: Mirror
    filters: tuple[Filter, ...] = ()
    unions: tuple[Union, ...] = ()
    counts: tuple[Counts, ...] = ()
    content: Content | None = None

    @property
    def truth(self) -> Table:
        return self.mirror.truth

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Every projection, the mirror first."""
        every = [self.mirror, *self.filters, *self.unions, *self.counts]
        if self.content:
            every.append(self.content)
        return tuple(every)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table that a check reads, the truth first."""
        return (self.truth, *(projection.table for projection in self.projections))

    @property
    def columns_read(self) -> Mapping[str, tuple[Table, tuple[str, ...]]]:
        """The tables that a check reads, by spelling, each with its columns in declared order."""
        read = {self.truth.spelling: (self.truth, self.truth_columns)}
        for projection in self.projections:
            read[projection.name] = (projection.table, projection.read_columns)
        return read

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Every condition that some projection puts on a truth row, without duplicates."""
        asked = [projection.when for projection in self.filters]
        for counts in self.counts:
            asked += [when for _, when in counts.counters if when is not None]
        return tuple(dict.fromkeys(asked))

    @property
    def truth_columns(self) -> tuple[str, ...]:
        """Truth columns that a check reads: keys, compared and required columns, and columns of conditions."""
        theirs = self.mirror.truth_names
        wanted = {column.name for column in self.truth.key}
        wanted.update(self.mirror.required)
        for column in self.mirror.compared:
            wanted.add(theirs.get(column.name, column.name))
        for projection in self.projections:
            wanted.update(projection.truth_columns)
        return tuple(name for name in self.truth.names if name in wanted)


def projections_of(families: Iterable[Family]) -> dict[str, Projection]:
    """Every projection of the families, by its name in findings."""
    projections = {}
    for family in families:
        for projection in family.projections:
            projections[projection.name] = projection
    return projections
