"""What a check of declared tables cannot see, in words. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from mailmend.model.keyspace import Schema
from mailmend.model.projections.family import Family, Union
from mailmend.model.projections.group import Group
from mailmend.model.projections.partial_mirror import ExplodedMirror, PartialMirror
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.valued import Bounds
from mailmend.model.table import Kind, Table, names_of


class Unseen(NamedTuple):
    """Something of a table that no check looks at."""

    table: str
    why: str


def unseen_by(
    families: Sequence[Family],
    live: Schema,
    left: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Unseen, ...]:
    """The parts of the live keyspace that a check of these families does not see.

    Args:
        families: of the declaration.
        live: the keyspace.
        left: why other tables of the declaration are left, by name.
    """
    found: dict[Unseen, None] = {}
    for family in families:
        for mirror in family.copies:
            found.update(dict.fromkeys(_of_mirror(mirror)))
            found.update(dict.fromkeys(_of_parts(mirror)))
        for projection in family.projections:
            found.update(dict.fromkeys(_of_key(projection)))
        groups: tuple[Group, ...] = (
            *family.unions,
            *family.counts,
            *family.numbers,
            *family.bounds,
        )
        for group in groups:
            found.update(dict.fromkeys(_of_group(group)))
    declared: dict[str, Table] = {}
    for family in families:
        declared.update((table.name, table) for table in family.tables)
    for name in declared:
        if live.view(name) is None:  # a view has no static columns
            found.update(dict.fromkeys(_statics(live.table(name))))
    named = {*declared, *_generators(families)}
    only_asked = dict.fromkeys(_used_with(families), "a check only asks whether it has any row")
    reasons = {**only_asked, **left}
    for table in (*live.tables, *(view.table for view in live.views)):
        if table.name not in named:
            why = reasons.get(table.name, "the file does not declare it")
            found[Unseen(table.spelling, why)] = None
    return tuple(found)


def _generators(families: Sequence[Family]) -> Iterator[str]:
    for family in families:
        for counts in family.counts:
            yield from names_of(counts.generators)


def _used_with(families: Sequence[Family]) -> Iterator[str]:
    for family in families:
        for counts in family.counts:
            yield from names_of(counts.used_with)


def _of_mirror(mirror: Mirror) -> Iterator[Unseen]:
    name = mirror.table.spelling
    truth = mirror.truth.spelling
    written = dict(mirror.sources)
    for column in mirror.table.regular:
        if column.name not in written:
            why = f"{column.spelling} is not compared: no column of {truth} gives it"
            if column.name in mirror.left_out:
                why = f"{column.spelling} is not compared: the file leaves it out"
            yield Unseen(name, why)
    sources = mirror.key_sources
    if not set(mirror.truth.key_names).issubset(sources):
        listed = ", ".join(sources)
        differing = ""
        if mirror.claims.may_share:
            differing = " that differ in other cells"
        two = f"of two rows of {truth} with the same {listed}{differing}"
        yield Unseen(name, f"{two}, which is right (CLASH)")
    for needed in mirror.needs:
        yield Unseen(name, f"what its row is where the row of {truth} has no {needed}")


_LATER: Final = "a later check finds what is left"


def _of_parts(mirror: Mirror) -> Iterator[Unseen]:
    if not isinstance(mirror, PartialMirror):
        return
    name = mirror.table.spelling
    for column in mirror.only.columns:
        yield Unseen(name, f"a value of {column} that expires before its row: {_LATER}")
    if not isinstance(mirror, ExplodedMirror):
        return
    if mirror.truth.column(mirror.collection).is_collection:
        why = f"an element of {mirror.collection} that expires before its row: {_LATER}"
        yield Unseen(name, why)


def _of_key(projection: Projection) -> Iterator[Unseen]:
    truth = projection.truth
    outside: dict[str, None] = {}
    needed: tuple[str, ...] = ()
    if isinstance(projection, Mirror):
        needed = projection.needs
    for name in projection.key_sources:
        for source in _may_be_null(truth, name):
            if source not in needed:
                outside[source] = None
    if outside:
        listed = " or ".join(outside)
        why = f"a row of {truth.spelling} without {listed} has no row there"
        yield Unseen(projection.name, why)


def _may_be_null(truth: Table, name: str) -> tuple[str, ...]:
    """The columns without which a part of a key is null; none where it never is."""
    column = truth.column(name)
    rule = column.computed
    if rule is None:
        if column.in_key:
            return ()
        return (name,)
    if rule.default is not None or not rule.sources:
        return ()
    outside: list[str] = []
    for source in rule.sources:
        outside += _may_be_null(truth, source)
    if rule.is_total:
        return tuple(outside)
    return tuple(outside) or (name,)


def _of_group(group: Group) -> Iterator[Unseen]:
    if isinstance(group, Union):
        yield Unseen(group.name, f"elements of {group.column} that no row of the truth has")
    if isinstance(group, Bounds):
        names = " or ".join(name for name, _ in group.bounds)
        yield Unseen(group.name, f"a value of {names} that is farther than each row of the truth")
    for column in group.table.regular:
        if column.name not in group.own_columns:
            why = f"{column.spelling} is not compared: the file does not name it"
            yield Unseen(group.name, why)


def _statics(table: Table | None) -> Iterator[Unseen]:
    if table is None:
        return
    for column in table.columns:
        if column.kind is Kind.STATIC:
            yield Unseen(table.spelling, f"{column.spelling} is a static column")
