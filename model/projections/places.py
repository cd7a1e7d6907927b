"""Places: rows of projections that are joined with truth rows, and truth rows that demand none."""

from mailmend.model.projections.family import Family, Filter
from mailmend.model.projections.projection import Mirror, Projection

Placed = Mirror | Filter


def places_of(family: Family) -> tuple[tuple[Placed, ...], ...]:
    """The mirror first, then filters: one group for each set of key columns of the truth.

    A family of groups alone, without a mirror, has no places.
    """
    together: dict[tuple[frozenset[str], str | None], list[Placed]] = {}
    every: list[Placed] = [*family.copies, *family.filters]
    for projection in every:
        key = (frozenset(projection.key_sources), _lone_source(projection))
        together.setdefault(key, []).append(projection)
    return tuple(map(tuple, together.values()))


def _lone_source(projection: Projection) -> str | None:
    """The truth's column behind `Table.lone_partition`."""
    lone = projection.table.lone_partition
    if lone is None:
        return None
    return dict(projection.key)[lone]


def may_be_undemanded(projection: Projection) -> bool:
    """Whether `is_demanded_by` may be false: the key of a truth row itself is always whole."""
    whole = set(projection.key_sources) <= set(projection.truth.key_names)
    return projection.table.lone_partition is not None or not whole
