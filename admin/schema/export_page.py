"""The schema as a Markdown page: truths and projections at a glance, then a table for each table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mailmend.model.catalog.purposes import null_text, purpose_of, why_compacted
from mailmend.model.projections.conditions import RowCondition
from mailmend.model.projections.family import Counts, Family, Filter, Union
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.table import Column, Compaction, Kind, Table, UserType, names_of, spellings

_HEAD = ("column", "type", "key", "compared", "what it is")
_KEY_PARTS = {Kind.PARTITION: "partition", Kind.CLUSTERING: "clustering", Kind.STATIC: "static", Kind.REGULAR: ""}


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


@dataclass(frozen=True, slots=True)
class Section:
    """Some tables under one heading, with a remark about all of them."""

    title: str
    about: str
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the page shows.

    Attributes:
        made: how the page was made, so that it is not changed by hand.
        drawing: file name of the drawing next to it; "" without a drawing.
    """

    title: str
    made: str
    families: tuple[Family, ...]
    types: tuple[UserType, ...]
    sections: tuple[Section, ...]
    drawing: str = ""


def page_text(page: Page) -> str:
    blocks = [f"# {page.title}", page.made, *_truths(page), *_contents(page)]
    for section in page.sections:
        blocks += [f"## {section.title}", section.about]
        for table in section.tables:
            blocks += _table(table, page.families)
    blocks += _types(page.types)
    return "\n\n".join(filter(None, blocks)) + "\n"


def _truths(page: Page) -> Iterator[str]:
    if not page.families:
        return
    yield "## Truths and projections"
    yield (
        "A projection can always be rebuilt from its truth. "
        "`mailmend check` finds where it differs, `mailmend repair messages` mends it."
    )
    if page.drawing:
        yield f"![Truths and their projections]({page.drawing})"


def _contents(page: Page) -> Iterator[str]:
    yield "## Tables"
    for section in page.sections:
        links = ", ".join(f"[{table.spelling}](#{table.name})" for table in section.tables)
        yield f"**{section.title}**: {links}"


def _table(table: Table, families: tuple[Family, ...]) -> Iterator[str]:
    yield f"### {table.spelling}"
    if table.comment:
        yield f"{_escaped(table.comment)}."
    yield "\n".join(roles_of(table, families))
    rows = [_row(_HEAD), _row(("---",) * len(_HEAD))]
    for column in table.columns:
        rows.append(_row(_cells(column, table, families)))
    yield "\n".join(rows)
    yield f"Key: `{key_text(table)}`. Compaction: {_compaction(table.compaction)}: {why_compacted(table)}."
    yield _options(table)


def _cells(column: Column, table: Table, families: tuple[Family, ...]) -> tuple[str, ...]:
    key_part = _KEY_PARTS[column.kind]
    if column.descending:
        key_part += " ↓"
    return (
        f"`{column.spelling}`",
        f"`{column.type}`",
        key_part,
        _compared(column, table, families),
        _escaped(purpose_of(table.name, column.name)),
    )


def _compared(column: Column, table: Table, families: tuple[Family, ...]) -> str:
    """The form in which the column is compared, in truths and projections whose cells are compared at all."""
    compared: set[str] = set()
    for family in families:
        if table.name in {family.truth.name, family.mirror.table.name}:
            compared.update(names_of(family.mirror.compared))
        compared.update(union.column for union in family.unions if union.table.name == table.name)
    if column.null_is is not None or column.name in compared:
        return null_text(column, table)
    return ""


def _compaction(compaction: Compaction | None) -> str:
    if compaction is None:
        return "not declared"
    strategy = f"`{compaction.strategy}`"
    if not compaction.options:
        return strategy
    options = ", ".join(f"{name} {value}" for name, value in sorted(compaction.options.items()))
    return f"{strategy} ({options})"


def _options(table: Table) -> str:
    if not table.options:
        return ""
    shown = ", ".join(f"`{name} = {value}`" for name, value in sorted(table.options.items()))
    return f"Options: {shown}."


def _types(types: Sequence[UserType]) -> Iterator[str]:
    if types:
        yield "## User types"
    for user_type in types:
        fields = ", ".join(f"`{name}` `{kind}`" for name, kind in user_type.fields)
        yield f"**{user_type.spelling}**: {fields}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


def relations_of(family: Family) -> tuple[Relation, ...]:
    return tuple(map(_relation, family.projections))


def _relation(projection: Projection) -> Relation:
    match projection:
        case Mirror():
            return _mirror(projection)
        case Filter():
            says = f"keys of the rows where {projection.when.said(projection.truth)}"
            return Relation(projection.truth, projection.table, "filter", says)
        case Union():
            column = projection.truth.column(projection.column).spelling
            says = f"every {column} per {_group(projection)}; it only grows"
            return Relation(projection.truth, projection.table, "union", says)
        case Counts():
            return _counts(projection)
        case _:
            says = f"what every row needs in addition, by {_group(projection)}"
            return Relation(projection.truth, projection.table, "content", says, ("several rows may share one",))


def _mirror(mirror: Mirror) -> Relation:
    notes = []
    for mine, theirs in mirror.renamed:
        notes.append(f"{mine} is its {mirror.truth.column(theirs).spelling}")
    for verdict, _ in mirror.kept:
        notes.append(f"{verdict.value} is reported, never mended")
    return Relation(mirror.truth, mirror.table, "mirror", f"every row, by {_key(mirror.table)}", tuple(notes))


def _counts(counts: Counts) -> Relation:
    parts = "; ".join(_counter(name, when, counts) for name, when in counts.counters)
    notes: tuple[str, ...] = ()
    if counts.generators:
        generators = spellings(counts.generators)
        notes = (f"mended only while {generators} stand still",)
    return Relation(counts.truth, counts.table, "count", f"per {_group(counts)}: {parts}", notes)


def _counter(name: str, when: RowCondition | None, counts: Counts) -> str:
    which = "all rows"
    if when:
        which = f"rows where {when.said(counts.truth)}"
    return f"{counts.table.column(name).spelling}, {which}"


def _group(derived: Projection) -> str:
    return spellings(map(derived.truth.column, derived.key_sources))


def _key(table: Table) -> str:
    return spellings(table.key)


def key_text(table: Table) -> str:
    """The primary key in one line: partition key in brackets, then the clustering columns."""
    parts = [f"({spellings(table.partition)})"]
    for column in table.clustering:
        if column.descending:
            parts.append(f"{column.spelling} ↓")
        else:
            parts.append(column.spelling)
    return ", ".join(parts)


def roles_of(table: Table, families: tuple[Family, ...]) -> Iterator[str]:
    for family in families:
        if table.name == family.truth.name:
            names = spellings(relation.table for relation in relations_of(family))
            yield f"**Truth** of {names}."
        for relation in relations_of(family):
            if relation.table.name == table.name:
                yield f"**Projection** ({relation.kind}) of {relation.truth.spelling}: {_whole(relation)}."
        for counts in family.counts:
            for generator in counts.generators:
                if table.name == generator.name:
                    truth = counts.truth.spelling
                    yield f"**Generator** of numbers in {truth}; {counts.name} is mended while it rests."


def _whole(relation: Relation) -> str:
    return "; ".join((relation.says, *relation.notes))
