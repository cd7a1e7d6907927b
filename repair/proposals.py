"""A declaration proposed from a live schema: what its tables tell, and what is asked. Pure.

A table is taken for a copy of another one where the other has the columns of its key, and it has
the partition key of the other. Names and numbers of columns decide which of the two is the truth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mailmend.model.cql_types import normal_type
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.declarations import (
    COLUMN,
    ELEMENT,
    EXPLODE,
    MIRROR,
    RENAMED,
    TRUTH,
    Declaration,
    DeclaredMirror,
    DeclaredTruth,
    DeclaredView,
)
from mailmend.model.projections.toml_values import toml_text
from mailmend.model.table import Column, Kind, Table, is_plain_name, spellings
from mailmend.repair.declared_elements import has_elements
from mailmend.repair.declared_views import can_be_compared

Mirrors = dict[str, list[DeclaredMirror]]
"""The mirrors of each truth, by its spelling."""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """What the schema does not tell about a table.

    Attributes:
        lines: lines of a declaration that an answer would make valid.
    """

    table: str
    text: str
    lines: tuple[str, ...] = ()

    @property
    def comment(self) -> str:
        """The question as comments of TOML."""
        comments = [f"# ? {self.text}"]
        comments.extend(f"# {line}" for line in self.lines)
        return "\n".join(comments) + "\n"


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a keyspace's tables tell.

    Attributes:
        truths: those that were found, in the order of the schema; there may be none.
        views: the names of materialised views, each with its base table.
        apart: the names of tables that share no key with another one.
    """

    keyspace: str
    truths: tuple[DeclaredTruth, ...]
    questions: tuple[OpenQuestion, ...]
    views: tuple[tuple[str, str], ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def declaration(self) -> Declaration | None:
        """None where no table follows from another one."""
        if not self.truths:
            return None
        return Declaration(self.truths)

    @property
    def text(self) -> str:
        """The proposal as a file, with its questions as comments."""
        return "\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        yield f"# Proposed from the tables of keyspace {self.keyspace}. Questions have a ?.\n"
        asked: dict[str, list[OpenQuestion]] = {}
        for question in self.questions:
            asked.setdefault(question.table, []).append(question)
        for truth in self.truths:
            for copy in truth.copies:
                comments = [question.comment for question in asked.pop(copy.table, [])]
                yield "".join((*comments, copy.text_of(truth.table)))
        for questions in asked.values():
            for question in questions:
                yield question.comment
        notes = list(self._notes())
        if notes:
            yield "\n".join(notes) + "\n"

    def _notes(self) -> Iterator[str]:
        declared: list[str] = []
        for truth in self.truths:
            declared.extend(view.table for view in truth.views)
        for view, base in self.views:
            if view not in declared:
                note = f"# {view} is a materialised view of {base} that cannot be compared: "
                yield f"{note}it has a condition, or a name that needs double quotes."
        if self.apart:
            yield f"# Tables that share no key with another one: {', '.join(self.apart)}."


def proposed(keyspace: str, live: Schema) -> Proposal:
    """What the tables of a keyspace tell of projections."""
    return _Proposer(keyspace, live).proposal()


@dataclass(slots=True)
class _Proposer:
    keyspace: str
    live: Schema
    questions: list[OpenQuestion] = field(default_factory=list)

    def ask(self, table: Table, text: str, *lines: str) -> None:
        self.questions.append(OpenQuestion(table.spelling, text, lines))

    def proposal(self) -> Proposal:
        tables = self._readable()
        truths = self._truth_of(tables)
        mirrors: Mirrors = {}
        placed = {name_of(view.base) for view in self.live.views}
        for table in tables:
            truth = truths.get(table.name)
            if truth is not None:
                placed.update((table.name, truth.name))
                self._declare(truth, table, mirrors)
        apart = []
        for table in tables:
            if table.name in placed or self._asks_for_elements(table, tables):
                continue
            if not self._asks_for_a_key(table, tables):
                apart.append(toml_text(table.spelling).strip('"'))
        declared = []
        for table in tables:
            mirrored = tuple(mirrors.get(table.spelling, ()))
            derived = tuple(self._views_of(table))
            if mirrored or derived:
                declared.append(DeclaredTruth(table.spelling, mirrored, views=derived))
        views = tuple((view.spelling, view.base) for view in self.live.views)
        return Proposal(self.keyspace, tuple(declared), tuple(self.questions), views, tuple(apart))

    def _views_of(self, base: Table) -> Iterator[DeclaredView]:
        for view in self.live.views_of(base):
            if can_be_compared(view):
                yield DeclaredView(view.spelling)

    def _readable(self) -> list[Table]:
        """The tables whose rows can be compared; the others are asked about."""
        readable = []
        for table in self.live.tables:
            name = toml_text(table.spelling).strip('"')
            if not is_plain_name(table.spelling) or not all(map(is_plain_name, _spelled(table))):
                self.questions.append(OpenQuestion(name, f"{name} needs double quotes: left out."))
            elif table.has_counters:
                text = f"{name} has counters: does it count rows of a truth? Then declare a count."
                self.questions.append(OpenQuestion(name, text))
            else:
                readable.append(table)
        return readable

    def _truth_of(self, tables: Sequence[Table]) -> dict[str, Table]:
        """The truth of each table that looks like a copy, by the copy's name."""
        candidates: dict[str, list[Table]] = {}
        for table in tables:
            found = [other for other in tables if _may_be_truth(other, table)]
            if found:
                candidates[table.name] = found
        truths = {}
        for table in tables:
            found = candidates.get(table.name, [])
            roots = [other for other in found if other.name not in candidates]
            if roots:
                best = max(roots, key=lambda other: _likeness(other, table))
                truths[table.name] = best
                if len(roots) > 1:
                    names = ", ".join(other.spelling for other in roots if other is not best)
                    self.ask(table, f"Another table could be its truth: {names}.")
        return truths

    def _declare(self, truth: Table, table: Table, mirrors: Mirrors) -> None:
        """Declare a copy, and ask about what is not certain."""
        if not table.regular:
            text = f"{table.spelling} has only keys of {truth.spelling}: has every row of it one?"
            self.ask(table, text, *_header(truth, table))
            return
        if not _is_decided(truth, table):
            self.ask(table, f"Is {truth.spelling} the truth, or {table.spelling}?")
        left_out = [column.spelling for column in table.regular if not _feeds(truth, column)]
        for column in table.regular:
            if column.spelling in left_out:
                self._ask_about(truth, table, column)
        mirror = DeclaredMirror(table.spelling, left_out=tuple(left_out))
        mirrors.setdefault(truth.spelling, []).append(mirror)

    def _ask_about(self, truth: Table, table: Table, column: Column) -> None:
        shape = normal_type(column.type)
        unused = []
        for other in truth.regular:
            if normal_type(other.type) == shape and other.name not in table:
                unused.append(other)
        name = f"{table.spelling}.{column.spelling}"
        text = f"{name} is left out: {truth.spelling} has no such column."
        if unused:
            text += f" Columns of its type: {spellings(unused)}."
        self.ask(table, text)

    def _asks_for_elements(self, table: Table, tables: Sequence[Table]) -> bool:
        """Ask whether a key column holds the elements of a collection of a likely truth."""
        for truth in tables:
            unfed = [column for column in table.key if not _feeds(truth, column)]
            leads = truth is not table and all(_feeds(table, column) for column in truth.partition)
            if not leads or len(unfed) != 1:
                continue
            own = unfed[0]
            collections = [column for column in truth.regular if has_elements(column, own)]
            if not collections:
                continue
            first = f"{truth.spelling}.{collections[0].spelling}"
            text = f"Has {table.spelling} a row for each element of {first}?"
            if len(collections) > 1:
                text += f" Other collections of its type: {spellings(collections[1:])}."
            header = f"[{TRUTH}.{truth.spelling}.{EXPLODE}.{table.spelling}]"
            column = f"{COLUMN} = {toml_text(collections[0].spelling)}"
            self.ask(table, text, header, column, f"{ELEMENT} = {toml_text(own.spelling)}")
            return True
        return False

    def _asks_for_a_key(self, table: Table, tables: Sequence[Table]) -> bool:
        """Ask for the columns of a key that no column of a likely truth has."""
        for truth in tables:
            leads = truth is not table and all(_feeds(table, column) for column in truth.partition)
            is_likely = table.name.startswith(truth.name) or _is_mostly_fed(truth, table)
            if leads and table.key_names != truth.key_names and is_likely:
                unfed = [column for column in table.key if not _feeds(truth, column)]
                pairs = ", ".join(f'{column.spelling} = "COLUMN"' for column in unfed)
                text = f"{table.spelling} looks like a copy of {truth.spelling}: "
                text += f"which columns of {truth.spelling} are its {spellings(unfed)}?"
                self.ask(table, text, *_header(truth, table), f"{RENAMED} = {{ {pairs} }}")
                return True
        return False


def _header(truth: Table, table: Table) -> tuple[str]:
    return (f"[{TRUTH}.{truth.spelling}.{MIRROR}.{table.spelling}]",)


def _spelled(table: Table) -> Iterator[str]:
    for column in table.columns:
        yield column.spelling


def _feeds(table: Table, column: Column) -> bool:
    """Whether a table has a column of that name and type, which belongs to its rows."""
    if column.name not in table or column.kind is Kind.STATIC:
        return False
    own = table.column(column.name)
    return own.kind is not Kind.STATIC and normal_type(own.type) == normal_type(column.type)


def _is_copy(truth: Table, table: Table) -> bool:
    """Whether each row of the truth could have a row of the table, which leads back to it."""
    if truth is table or truth.key_names == table.key_names:
        return False
    has_key = all(_feeds(truth, column) for column in table.key)
    leads_back = all(_feeds(table, column) for column in truth.partition)
    return has_key and leads_back and _is_mostly_fed(truth, table)


def _is_mostly_fed(truth: Table, table: Table) -> bool:
    """Whether at least half of a table's columns have a source in the truth."""
    fed = [column for column in table.columns if _feeds(truth, column)]
    return 2 * len(fed) >= len(table.columns)


def _may_be_truth(truth: Table, table: Table) -> bool:
    """Whether a table is the truth of another one rather than the other way round."""
    if not _is_copy(truth, table):
        return False
    return not _is_copy(table, truth) or _rank(truth, table) > _rank(table, truth)


def _rank(truth: Table, table: Table) -> tuple[bool, int, int, str]:
    """How much speaks for the first table being the truth of the second one."""
    is_prefix = table.name.startswith(truth.name)
    return (is_prefix, len(truth.columns), -len(truth.name), table.name)


def _is_decided(truth: Table, table: Table) -> bool:
    """Whether more than the order of names decides."""
    if not _is_copy(table, truth):
        return True
    decided = _rank(truth, table)[:2]
    return decided != _rank(table, truth)[:2]


def _likeness(truth: Table, table: Table) -> tuple[bool, int, int]:
    shared = [column for column in table.columns if _feeds(truth, column)]
    return (table.name.startswith(truth.name), len(shared), len(truth.name))
