"""The bound projections of one truth, put together as families: what one scan checks. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mailmend.model.projections.declarations import (
    CONTENT,
    COUNT,
    EXPLODE,
    FILTER,
    MAX,
    MIN,
    MIRROR,
    UNION,
    VIEW,
)
from mailmend.model.projections.family import Counts, Family, Filter
from mailmend.model.projections.group import Group
from mailmend.model.projections.partial_mirror import PartialMirror
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.truth_itself import TruthItself
from mailmend.model.projections.valued import Bounds, Numbers, Valued
from mailmend.model.projections.view_mirror import ViewMirror
from mailmend.model.toml_places import TomlPath
from mailmend.repair.comparable import incomparable
from mailmend.repair.declared_conditions import Misfits

Columns = frozenset[str]
BoundByKind = Mapping[str, Sequence[Any]]
"""Bound projections by the word of their kind."""


def assembled(misfits: Misfits, path: TomlPath, found: BoundByKind) -> tuple[Family, ...]:
    """A family for each mirror; what has no other place is in the first one of all rows."""
    families = _of_whole_mirrors(misfits, path, found)
    for family in families:
        _check_comparable(misfits, (*path, MIRROR, family.mirror.name), family)
    for kind, mirror in _standing_alone(found):
        family = Family(mirror)
        _check_comparable(misfits, (*path, kind, mirror.name), family)
        families.append(family)
    return tuple(families)


def _standing_alone(found: BoundByKind) -> Iterator[tuple[str, Mirror]]:
    """The mirrors whose family has no other projections, each with the word of its kind."""
    for kind in (MIRROR, EXPLODE, VIEW):
        for mirror in found.get(kind, ()):
            if isinstance(mirror, PartialMirror | ViewMirror):
                yield kind, mirror


def _of_whole_mirrors(misfits: Misfits, path: TomlPath, found: BoundByKind) -> list[Family]:
    families = []
    for mirror in found.get(MIRROR, ()):
        if not isinstance(mirror, PartialMirror):
            families.append(Family(mirror))
    contents = found.get(CONTENT, ())
    if contents and not families:
        problem = f"no mirror would report the rows of the truth that {contents[0].name} lacks"
        mend = f"Declare a {MIRROR} of all rows of the truth too."
        misfits.note((*path, CONTENT, contents[0].name), problem, mend)
        return []
    if not families:
        families = _without_mirror(found)
    if not families:
        return []
    if len(contents) > 1:
        mend = "Declare one of them; several tables of contents have no form yet."
        misfits.note((*path, CONTENT, contents[1].name), "a truth has two contents", mend)
    families[0] = replace(
        families[0],
        unions=tuple(found.get(UNION, ())),
        content=next(iter(contents), None),
    )
    for word in (COUNT, MAX, MIN):
        for group in found.get(word, ()):
            _place_group(misfits, (*path, word, group.name), group, families)
    for filtered in found.get(FILTER, ()):
        _place_filter(misfits, (*path, FILTER, filtered.name), filtered, families)
    return families


def _place_filter(
    misfits: Misfits,
    path: TomlPath,
    filtered: Filter,
    families: list[Family],
) -> None:
    """Add a filter to the first family in which its key leads to one row of the truth."""
    whole_key = frozenset(filtered.truth.key_names)
    at = _leading(families, frozenset(filtered.key_sources), whole_key)
    if at is None:
        problem = f"no key of {filtered.name} leads to a row of its truth"
        listed = ", ".join(sorted(whole_key))
        mend = f"Its key needs the truth's {listed}, or all columns of a mirror's key."
        misfits.note(path, problem, mend)
    else:
        families[at] = replace(families[at], filters=(*families[at].filters, filtered))


def _without_mirror(found: BoundByKind) -> list[Family]:
    """A family of the truth itself, where something other than copies follows from it."""
    for kind in (FILTER, UNION, COUNT, MAX, MIN):
        for projection in found.get(kind, ()):
            return [Family(TruthItself.of(projection.truth))]
    return []


def _place_group(misfits: Misfits, path: TomlPath, group: Group, families: list[Family]) -> None:
    """Add a group to the first family in which its rows can be found again by its key."""
    for at, family in enumerate(families):
        if not _is_kept_together(group, family.mirror):
            continue
        match group:
            case Counts():
                families[at] = replace(family, counts=(*family.counts, group))
            case Numbers():
                families[at] = replace(family, numbers=(*family.numbers, group))
            case Bounds():
                families[at] = replace(family, bounds=(*family.bounds, group))
            case _:
                raise NotImplementedError(type(group).__name__)
        return
    listed = ", ".join(group.key_sources)
    problem = f"the rows of a group of {group.name} are not kept together"
    mend = f"Declare a {MIRROR} whose partition key is ({listed}), in this order."
    misfits.note(path, problem, mend)


def _is_kept_together(group: Group, mirror: Mirror) -> bool:
    """Whether the rows of a group are found by its key, in one partition of truth or mirror."""
    if isinstance(group, Valued):
        return group.is_kept_together(mirror)
    return group.key_sources == mirror.key_sources[: len(mirror.table.partition)]


def _leading(families: Sequence[Family], named: Columns, whole_key: Columns) -> int | None:
    """The family in which a key with these columns of the truth leads to a truth row, by number."""
    for at, family in enumerate(families):
        if named.issuperset(family.mirror.key_sources):
            return at
    if whole_key <= named:
        return 0
    return None


def _check_comparable(misfits: Misfits, path: TomlPath, family: Family) -> None:
    mend = "Leave the column out with left_out. A column of a key cannot be left out."
    for problem in dict.fromkeys(incomparable(family)):
        misfits.note(path, problem, mend)
