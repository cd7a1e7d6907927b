"""Who follows from whom, in words: what the page, the Mermaid diagram and the drawing all say of a projection."""

from collections.abc import Iterator
from dataclasses import dataclass

from model.projections.family import Family
from model.projections.filters import Filter
from model.projections.groups import Counts, Union
from model.projections.mirror import Mirror
from model.projections.projection import Condition, Projection
from model.schema.table import Table


@dataclass(frozen=True, slots=True)
class Relation:
    """One projection of a truth.

    Attributes:
        kind: a word for the kind of projection.
        says: its content.
        notes: further remarks.
    """

    truth: Table
    table: Table
    kind: str
    says: str
    notes: tuple[str, ...] = ()


def relations_of(family: Family) -> tuple[Relation, ...]:
    """Every projection of the family's truth, the mirror first."""
    return tuple(_relation(projection) for projection in family.projections)


def _relation(projection: Projection) -> Relation:
    match projection:
        case Mirror():
            return _mirror(projection)
        case Filter():
            says = f"keys of the rows where {_condition(projection.when, projection.truth)}"
            return Relation(projection.truth, projection.table, "filter", says)
        case Union():
            column = projection.truth.column(projection.column).spelling
            says = f"every {column} per {_group(projection)}; it only grows"
            return Relation(projection.truth, projection.table, "union", says)
        case Counts():
            return _counts(projection)
        case _:
            says = f"what every row needs beside it, by {_group(projection)}"
            return Relation(projection.truth, projection.table, "content", says, ("several rows may share one",))


def _mirror(mirror: Mirror) -> Relation:
    renamed = tuple(f"{mine} is its {mirror.truth.column(theirs).spelling}" for mine, theirs in mirror.renamed)
    only = ("differences are reported, never mended",) if mirror.report_only else ()
    return Relation(mirror.truth, mirror.table, "mirror", f"every row, by {_key(mirror.table)}", renamed + only)


def _counts(counts: Counts) -> Relation:
    parts = (_counter(name, when, counts) for name, when in counts.counters)
    generators = ", ".join(table.spelling for table in counts.generators)
    notes = (f"mended only while {generators} stand still",) if generators else ()
    return Relation(counts.truth, counts.table, "count", f"per {_group(counts)}: {'; '.join(parts)}", notes)


def _counter(name: str, when: Condition | None, counts: Counts) -> str:
    which = f"rows where {_condition(when, counts.truth)}" if when else "all rows"
    return f"{counts.table.column(name).spelling}, {which}"


def _condition(condition: Condition, truth: Table) -> str:
    return f"{truth.column(condition.column).spelling} is {str(condition.value).lower()}"


def _group(derived: Projection) -> str:
    return ", ".join(derived.truth.column(theirs).spelling for _, theirs in derived.key)


def _key(table: Table) -> str:
    return ", ".join(column.spelling for column in table.key)


def key_text(table: Table) -> str:
    """The primary key in one line: partition key in brackets, then the clustering columns."""
    partition = ", ".join(column.spelling for column in table.partition)
    clustering = (f"{column.spelling}{' ↓' if column.descending else ''}" for column in table.clustering)
    return ", ".join((f"({partition})", *clustering))


def roles_of(table: Table, families: tuple[Family, ...]) -> Iterator[str]:
    for family in families:
        if table.name == family.truth.name:
            names = ", ".join(relation.table.spelling for relation in relations_of(family))
            yield f"**Truth** of {names}."
        for relation in relations_of(family):
            if relation.table.name == table.name:
                yield f"**Projection** ({relation.kind}) of {relation.truth.spelling}: {_whole(relation)}."
        for counts in family.counts:
            if table.name in {generator.name for generator in counts.generators}:
                yield f"**Generator** of numbers in {counts.truth.spelling}; {counts.name} is mended while it rests."


def _whole(relation: Relation) -> str:
    return "; ".join((relation.says, *relation.notes))
