"""The reader of a file of projections (TOML). Pure.

Every error has file, line, column and what to write instead. Reading goes on behind an error, so
that one error tells all places. Nothing in a file is evaluated.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from mailmend.model.file_forms import FileForm
from mailmend.model.names import name_of, spelled
from mailmend.model.projections.declaration_conditions import condition_in
from mailmend.model.projections.declaration_form import (
    BOUNDS_FORMS,
    CONTENT_FORM,
    COUNT_FORM,
    EXPLODE_FORM,
    FILE_FORM,
    FILTER_FORM,
    MIRROR_FORM,
    NULL_FORM,
    REPORTED_FORM,
    TRUTH_FORM,
    UNION_FORM,
    VIEW_FORM,
)
from mailmend.model.projections.declaration_nodes import DeclarationText, Node
from mailmend.model.projections.declarations import (
    COLUMN,
    COLUMNS,
    COMPUTED,
    CONTENT,
    COUNT,
    COUNTERS,
    ELEMENT,
    EXAMPLE,
    EXPLODE,
    FILTER,
    GENERATORS,
    LEFT_OUT,
    MAX,
    MIN,
    MIRROR,
    NEEDS,
    NUMBERED_BY,
    RENAMED,
    UNION,
    USED_WITH,
    VALUE,
    VIEW,
    WHEN,
    Declaration,
    DeclaredBounds,
    DeclaredContent,
    DeclaredCount,
    DeclaredExplode,
    DeclaredFilter,
    DeclaredMax,
    DeclaredMin,
    DeclaredMirror,
    DeclaredTruth,
    DeclaredUnion,
    DeclaredView,
)
from mailmend.model.projections.declared_conditions import EVERY_ROW, DeclaredCondition
from mailmend.model.projections.declared_mirrors import (
    FIELDS,
    FIELDS_MEND,
    FILLED,
    ONLY_REPORTED,
    REPORTED_MEND,
    REQUIRED,
    FieldSources,
)
from mailmend.model.projections.declared_nulls import NULL_IS, NULL_MEND, DeclaredNull
from mailmend.model.projections.declared_transforms import (
    COMPUTED_MEND,
    DEFAULT,
    LISTED,
    RULE_OF,
    WORDS,
    DeclaredTransform,
    Given,
)
from mailmend.model.table import OtherColumn
from mailmend.model.texts import Place, names_instead, place_of
from mailmend.model.toml_places import TomlPath, offset_at, toml_offsets

T = TypeVar("T")

FILE_CHARACTERS_MAX: Final = 2**18
"""Characters of a file of projections; a larger one is refused."""

UNREAD: Final = "unread"
"""Stands for a name that is refused, so that the rest of its table is read."""

COUNTERS_MEND: Final = "Write it like { total = {}, unseen = { seen = false } }."

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class DeclarationFile:
    """A declaration, and where its parts are in its file.

    Attributes:
        offsets: by paths of canonical names.
    """

    file: str
    text: str
    declaration: Declaration
    offsets: Mapping[TomlPath, int]

    def place_of(self, path: TomlPath) -> Place:
        """The place of a path of canonical names; else of the nearest part that holds it."""
        return place_of(self.text, offset_at(self.offsets, path))


def read_declaration(text: str, file: str = "declaration") -> Declaration:
    """The declaration of a file of projections, or of its text in a program.

    Args:
        text: of the file.
        file: its name, for errors.

    Raises:
        BadDeclaration: it is not TOML, or not a declaration.
    """
    return read_file(text, file).declaration


def read_file(text: str, file: str) -> DeclarationFile:
    """The declaration of a file, with its places.

    Args:
        text: of the file.
        file: its name, for errors.

    Raises:
        BadDeclaration: it is not TOML, or not a declaration.
    """
    source = DeclarationText(file, text)
    top = Node(source, (), _parsed(source))
    truths: tuple[DeclaredTruth, ...] = ()
    for part in top.parts(FILE_FORM).values():
        truths = tuple(part.each("truth", _truth))
    if not truths and not source.refused:
        top.note("no truth is declared", EXAMPLE)
    source.finish()
    declaration = top.made(lambda: Declaration(truths))
    source.finish()
    assert declaration is not None
    offsets = {_canonical(path): offset for path, offset in source.offsets.items()}
    return DeclarationFile(file, source.text, declaration, offsets)


def _canonical(path: TomlPath) -> TomlPath:
    steps: list[str | int] = []
    for step in path:
        if isinstance(step, str):
            steps.append(spelled(name_of(step)))
        else:
            steps.append(step)
    return tuple(steps)


def _parsed(source: DeclarationText) -> Mapping[str, Any]:
    if len(source.text) > FILE_CHARACTERS_MAX:
        mend = f"A file of projections has at most {FILE_CHARACTERS_MAX:,} characters."
        raise source.error(0, "the file is too large", mend)
    try:
        document = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        found = _PLACE.search(said)
        if found is None:
            raise source.error(0, f"this is not TOML: {said}") from error
        offset = _offset_of(source.text, found)
        raise source.error(offset, f"this is not TOML: {said[: found.start()]}") from error
    except (ValueError, RecursionError) as error:
        raise source.error(0, f"this is not TOML: {error}") from error
    source.text = source.text.replace("\r\n", "\n")
    source.offsets = toml_offsets(source.text)
    return document


def _offset_of(text: str, found: re.Match[str]) -> int:
    """The offset of the place that an error of `tomllib` names."""
    if found[1] is None:
        return len(text)
    before = text.split("\n")[: int(found[1]) - 1]
    begin = sum(len(line) + 1 for line in before)
    return min(len(text), begin + int(found[2]) - 1)


def _truth(node: Node) -> DeclaredTruth | None:
    table = node.cql_name(node.name, "table name")
    parts = node.parts(TRUTH_FORM)
    mirrors = tuple(_each(parts, MIRROR, _mirror))
    filters = tuple(_each(parts, FILTER, _filter))
    unions = tuple(_each(parts, UNION, _union))
    counts = tuple(_each(parts, COUNT, _count))
    contents = tuple(_each(parts, CONTENT, _content))
    maxima = tuple(_each(parts, MAX, _bounds(DeclaredMax)))
    minima = tuple(_each(parts, MIN, _bounds(DeclaredMin)))
    explodes = tuple(_each(parts, EXPLODE, _explode))
    views = tuple(_each(parts, VIEW, _view))
    null_is = tuple(_nulls(parts))
    if node.source.refused or table is None:
        return None
    groups = (unions, counts, contents, maxima, minima)
    copies: Any = {"explodes": explodes, "views": views, "null_is": null_is}
    return node.made(lambda: DeclaredTruth(table, mirrors, filters, *groups, **copies))


def _each(parts: Mapping[str, Node], kind: str, read: Callable[[Node], T | None]) -> Iterator[T]:
    """The projections of a kind."""
    if kind in parts:
        yield from parts[kind].each(kind, read)


def _nulls(parts: Mapping[str, Node]) -> Iterator[tuple[str, DeclaredNull]]:
    if NULL_IS not in parts:
        return
    for pair in parts[NULL_IS].below(NULL_IS, NULL_MEND):
        name = pair.cql_name(pair.name, "column name")
        given = _null_of(pair)
        if name is not None and given is not None:
            yield name, given


def _null_of(node: Node) -> DeclaredNull | None:
    """What the null of a column is read as; None where it is refused."""
    match node.value:
        case bool() | int() | str():
            return node.value
        case dict():
            parts = node.parts(NULL_FORM)
            if COLUMN in parts:
                name = parts[COLUMN].cql_name(parts[COLUMN].value, "column name")
                if name is not None:
                    return OtherColumn(name)
            elif len(parts) == len(node.value):
                node.note(f"the null of {node.name} is read as nothing", NULL_MEND)
        case _:
            problem = f"the null of {node.name} is neither a constant nor another column"
            node.note(problem, NULL_MEND)
    return None


def _mirror(node: Node) -> DeclaredMirror | None:
    table, parts = _begun(node, MIRROR_FORM)
    renamed = _renamed(parts)
    rules = _mirror_rules(parts)
    rules["filled"] = _listed_names(parts, FILLED)
    rules["fields"] = tuple(_fields(parts))
    return node.made(lambda: DeclaredMirror(table, renamed, **rules))


def _fields(parts: Mapping[str, Node]) -> Iterator[tuple[str, FieldSources]]:
    """Columns of user types, each with its fields."""
    if FIELDS not in parts:
        return
    for node in parts[FIELDS].below(FIELDS, FIELDS_MEND):
        column = node.cql_name(node.name, "column name")
        fields = []
        for pair in node.below(node.name, FIELDS_MEND):
            name = pair.cql_name(pair.name, "field name")
            source = pair.cql_name(pair.value, "column name")
            if name is not None and source is not None:
                fields.append((name, source))
        if column is not None and (fields or not node.source.refused):
            yield column, tuple(fields)


def _mirror_rules(parts: Mapping[str, Node]) -> dict[str, Any]:
    """What a mirror and an explode both have, by the names of attributes."""
    return {
        "computed": _computed(parts),
        "left_out": _listed_names(parts, LEFT_OUT),
        "when": _when(parts),
        "needs": _listed_names(parts, NEEDS),
        "required": _listed_names(parts, REQUIRED),
        "only_reported": tuple(_reported(parts)),
    }


def _reported(parts: Mapping[str, Node]) -> Iterator[tuple[str, str]]:
    """Verdicts that are left, each with the reason."""
    if ONLY_REPORTED not in parts:
        return
    for verdict, node in parts[ONLY_REPORTED].parts(REPORTED_FORM).items():
        if isinstance(node.value, str):
            yield verdict, node.value
        else:
            node.note(f"the reason of {verdict} is not a text", REPORTED_MEND)


def _explode(node: Node) -> DeclaredExplode | None:
    table, parts = _begun(node, EXPLODE_FORM)
    renamed = _renamed(parts)
    rules = _mirror_rules(parts)
    names = {}
    for part in (COLUMN, ELEMENT, VALUE):
        if part in parts:
            names[part] = parts[part].cql_name(parts[part].value, "column name") or UNREAD
    column = names.get(COLUMN, UNREAD)
    element = names.get(ELEMENT, "")
    value = names.get(VALUE, "")
    return node.made(
        lambda: DeclaredExplode(
            table,
            renamed,
            column=column,
            element=element,
            value=value,
            **rules,
        )
    )


def _when(parts: Mapping[str, Node]) -> DeclaredCondition:
    if WHEN not in parts:
        return EVERY_ROW
    return condition_in(parts[WHEN])


def _listed_names(parts: Mapping[str, Node], part: str, of: str = "column") -> tuple[str, ...]:
    if part not in parts:
        return ()
    return tuple(_names(parts[part], of))


def _filter(node: Node) -> DeclaredFilter | None:
    table, parts = _begun(node, FILTER_FORM)
    renamed = _renamed(parts)
    computed = _computed(parts)
    when = _when(parts)
    return node.made(lambda: DeclaredFilter(table, renamed, computed=computed, when=when))


def _union(node: Node) -> DeclaredUnion | None:
    table, parts = _begun(node, UNION_FORM)
    renamed = _renamed(parts)
    computed = _computed(parts)
    column = UNREAD
    if COLUMN in parts:
        column = parts[COLUMN].cql_name(parts[COLUMN].value, "column name") or UNREAD
    return node.made(lambda: DeclaredUnion(table, renamed, computed=computed, column=column))


def _count(node: Node) -> DeclaredCount | None:
    table, parts = _begun(node, COUNT_FORM)
    renamed = _renamed(parts)
    computed = _computed(parts)
    counters = []
    if COUNTERS in parts:
        for counter in parts[COUNTERS].below(COUNTERS, COUNTERS_MEND):
            name = counter.cql_name(counter.name, "column name")
            when = condition_in(counter)
            if name is not None:
                counters.append((name, when))
    if not counters and node.source.refused:
        return None
    found = tuple(counters)
    generators = _listed_names(parts, GENERATORS, "table")
    numbered_by = tuple(_numbered_by(parts))
    used_with = _listed_names(parts, USED_WITH, "table")
    return node.made(
        lambda: DeclaredCount(
            table,
            renamed,
            computed=computed,
            counters=found,
            generators=generators,
            numbered_by=numbered_by,
            used_with=used_with,
        )
    )


def _numbered_by(parts: Mapping[str, Node]) -> Iterator[tuple[str, str]]:
    """Columns of the truth, each with the generator that gave its numbers."""
    if NUMBERED_BY not in parts:
        return
    mend = 'Write it like { column_of_truth = "generator" }.'
    for pair in parts[NUMBERED_BY].below(NUMBERED_BY, mend):
        column = pair.cql_name(pair.name, "column name")
        generator = pair.cql_name(pair.value, "table name")
        if column is not None and generator is not None:
            yield column, generator


BoundsKind = TypeVar("BoundsKind", bound=DeclaredBounds)


def _bounds(kind: type[BoundsKind]) -> Callable[[Node], BoundsKind | None]:
    return partial(_bounds_of, kind)


def _bounds_of(kind: type[BoundsKind], node: Node) -> BoundsKind | None:
    table, parts = _begun(node, BOUNDS_FORMS[kind.kind])
    renamed = _renamed(parts)
    computed = _computed(parts)
    columns = _column_pairs(parts, COLUMNS)
    if not columns and node.source.refused:
        return None
    return node.made(lambda: kind(table, renamed, computed=computed, columns=columns))


def _content(node: Node) -> DeclaredContent | None:
    table, parts = _begun(node, CONTENT_FORM)
    renamed = _renamed(parts)
    return node.made(lambda: DeclaredContent(table, renamed))


def _view(node: Node) -> DeclaredView | None:
    table, _ = _begun(node, VIEW_FORM)
    return node.made(lambda: DeclaredView(table))


def _begun(node: Node, form: FileForm) -> tuple[str, Mapping[str, Node]]:
    """The name of a projection's table, and its parts; a required part that is missing is noted."""
    parts = node.parts(form)
    for name in form.required:
        if name not in parts and isinstance(node.value, dict):
            meanings = {part.name: part.meaning for part in form.parts}
            node.note(f"{form.what} needs {name!r}", f"{name}: {meanings[name]}")
    return node.cql_name(node.name, "table name") or UNREAD, parts


def _renamed(parts: Mapping[str, Node]) -> tuple[tuple[str, str], ...]:
    return _column_pairs(parts, RENAMED)


def _column_pairs(parts: Mapping[str, Node], part: str) -> tuple[tuple[str, str], ...]:
    """Columns of the projection, each with a column of the truth."""
    pairs = []
    if part in parts:
        mend = 'Write it like { column_of_projection = "column_of_truth" }.'
        for pair in parts[part].below(part, mend):
            own = pair.cql_name(pair.name, "column name")
            source = pair.cql_name(pair.value, "column name")
            if own is not None and source is not None:
                pairs.append((own, source))
    return tuple(pairs)


def _computed(parts: Mapping[str, Node]) -> tuple[tuple[str, DeclaredTransform], ...]:
    pairs = []
    if COMPUTED in parts:
        for pair in parts[COMPUTED].below(COMPUTED, COMPUTED_MEND):
            own = pair.cql_name(pair.name, "column name")
            rule = _transform(pair)
            if own is not None and rule is not None:
                pairs.append((own, rule))
    return tuple(pairs)


def _transform(node: Node) -> DeclaredTransform | None:
    """What a column is computed by: one word of the list, what it needs, and a default."""
    parts = {part.name: part for part in node.below("a transform", COMPUTED_MEND)}
    words = [word for word in parts if word in RULE_OF]
    if len(words) != 1 and not node.source.refused:
        problem = f"{node.name} is computed by {' and '.join(words) or 'nothing'}"
        node.note(problem, f"Write one of: {', '.join(WORDS)}.")
    if len(words) != 1:
        return None
    rule = RULE_OF[words[0]]
    values: dict[str, Given | None] = {}
    for name, part in parts.items():
        if name not in (rule.word, rule.part, DEFAULT):
            mend = names_instead(name, list(filter(None, (rule.part, DEFAULT))), "It may have")
            part.note(f"{rule.word} has no {name!r}", mend)
        else:
            values[name] = _given(part)
    of = values.get(rule.word)
    if of is None:
        return None
    needed = None
    if rule.part != DEFAULT:
        needed = values.get(rule.part)
    default: Any = values.get(DEFAULT)
    return node.made(lambda: DeclaredTransform(rule.word, of, needed, default))


def _given(node: Node) -> Given | None:
    """What is written behind a word or a part of a transform; None where it is refused."""
    value = node.value
    if isinstance(value, list) and node.name in LISTED:
        if all(isinstance(item, str) for item in value):
            return tuple(value)
        node.note(f"{node.name} has something other than texts", COMPUTED_MEND)
        return None
    if isinstance(value, bool | int | str):
        return value
    node.note(f"{node.name} is neither a text, a whole number nor a boolean", COMPUTED_MEND)
    return None


def _names(node: Node, of: str) -> Iterator[str]:
    problem = f"{node.name} is a list of {of}s"
    for item in node.items(problem, 'Write it like ["note", "size"].'):
        name = item.cql_name(item.value, f"{of} name")
        if name is not None:
            yield name
