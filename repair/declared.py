"""Declared projections bound to a live schema: a family for each mirror, or what does not fit."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mailmend.model.cql_types import normal_type
from mailmend.model.errors import BadIdentifier, SchemaMismatch, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.declarations import (
    LEFT_OUT,
    MIRROR,
    RENAMED,
    TRUTH,
    Declaration,
    DeclaredMirror,
    DeclaredTruth,
    toml_text,
)
from mailmend.model.projections.family import Family
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Canonical, Column, Kind, Table, identifier, names_of, spellings
from mailmend.model.texts import names_instead
from mailmend.model.toml_places import TomlPath
from mailmend.repair.comparable import incomparable

Names = Mapping[str, str]
"""Columns of a truth by columns of a projection."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Something in a declaration that does not fit the live schema.

    Attributes:
        path: to the place in the declaration's canonical text.
    """

    path: TomlPath
    problem: str
    mend: str

    def __str__(self) -> str:
        return f"{self.problem}\n  {self.mend}"


class DoesNotFit(SchemaMismatch):
    """A declaration that names what the keyspace does not have, or what cannot be compared."""

    def __init__(self, keyspace: str, misfits: tuple[Misfit, ...]) -> None:
        problems = "\n".join(map(str, misfits))
        what = f"the declaration does not fit keyspace {keyspace!r}:\n{problems}"
        WrongUse.__init__(self, what)
        self.keyspace = keyspace
        self.missing = tuple(misfit.problem for misfit in misfits)
        self.misfits = misfits


@dataclass(frozen=True, slots=True)
class BoundDeclaration:
    """The families of a declaration, and what of it does not fit."""

    families: tuple[Family, ...]
    misfits: tuple[Misfit, ...]


def declared_families(keyspace: str, declaration: Declaration, live: Schema) -> tuple[Family, ...]:
    """One family for each mirror, in the order of the declaration.

    Raises:
        DoesNotFit: it names what the keyspace lacks, or what cannot be compared.
    """
    found = bound_declaration(declaration, live)
    if found.misfits:
        raise DoesNotFit(keyspace, found.misfits)
    return found.families


def bound_declaration(declaration: Declaration, live: Schema) -> BoundDeclaration:
    binder = _Binder(live)
    families: list[Family] = []
    for truth in declaration.truths:
        families.extend(binder.families(truth))
    return BoundDeclaration(tuple(families), tuple(binder.misfits))


def proposed_mirror(live: Schema, truth: str, projection: str) -> Declaration:
    """The declaration of a mirror whose columns have the names of the truth's.

    Columns that only the projection has are left out, and static columns.

    Raises:
        WrongUse: a name is not a name of CQL.
    """
    left_out = []
    source = live.table(truth)
    copy = live.table(projection)
    if source is not None and copy is not None:
        for column in copy.regular:
            if not _is_comparable(column, source):
                left_out.append(column.spelling)
    mirror = DeclaredMirror(projection, left_out=tuple(left_out))
    return Declaration((DeclaredTruth(truth, (mirror,)),))


def _is_comparable(column: Column, truth: Table) -> bool:
    if column.name not in truth or column.kind is Kind.STATIC:
        return False
    return truth.column(column.name).kind is not Kind.STATIC


@dataclass(frozen=True, slots=True)
class _Pair:
    """A projection and its truth as they are live, and where the projection is declared."""

    path: TomlPath
    truth: Table
    table: Table

    def own(self, column: Column) -> str:
        return f"{self.table.spelling}.{column.spelling}"

    def of_truth(self, column: Column) -> str:
        return f"{self.truth.spelling}.{column.spelling}"


@dataclass(slots=True)
class _Binder:
    """A live schema, and what did not fit it so far."""

    live: Schema
    misfits: list[Misfit] = field(default_factory=list)

    def note(self, path: TomlPath, problem: str, mend: str) -> None:
        self.misfits.append(Misfit(path, problem, mend))

    def families(self, declared: DeclaredTruth) -> Iterator[Family]:
        path = (TRUTH, declared.table)
        truth = self.table(path, declared.table, "truth")
        for mirror in declared.mirrors:
            own_path = (*path, MIRROR, mirror.table)
            table = self.table(own_path, mirror.table, "projection")
            if truth is not None and table is not None:
                bound = self.mirror(_Pair(own_path, truth, table), mirror)
                if bound is not None:
                    family = Family(bound)
                    self._check_comparable(own_path, family)
                    yield family

    def _check_comparable(self, path: TomlPath, family: Family) -> None:
        mend = "Leave the column out with left_out. A column of a key cannot be left out."
        for problem in dict.fromkeys(incomparable(family)):
            self.note(path, problem, mend)

    def table(self, path: TomlPath, spelling: str, what: str) -> Table | None:
        """The live table of a name; None where it is not there, or cannot be compared."""
        if self.live.view(spelling) is not None:
            mend = "The server derives it from its base table. Declare tables that programs write."
            self.note(path, f"the {what} {spelling} is a materialised view", mend)
            return None
        table = self.live.table(spelling)
        if table is None or table.name != name_of(spelling):
            mend = names_instead(spelling, [other.spelling for other in self.live.tables])
            self.note(path, f"there is no table {spelling}", mend)
            return None
        if table.has_counters:
            mend = "A counter has no write time and is not copied by row. Leave the table out."
            self.note(path, f"the {what} {spelling} has counters", mend)
            return None
        if not is_plain(spelling):
            mend = "Rows of such a table are not read or written yet: leave it out."
            self.note(path, f"the name of the table {spelling} needs double quotes", mend)
            return None
        return table

    def mirror(self, pair: _Pair, declared: DeclaredMirror) -> Mirror | None:
        """The mirror; None where something does not fit."""
        before = len(self.misfits)
        self._check_names(pair, declared)
        self._check_readable(pair.path, pair.truth)
        self._check_readable(pair.path, pair.table)
        if len(self.misfits) > before:
            return None
        left_out = frozenset(map(name_of, declared.left_out))
        renamed = {name_of(own): name_of(source) for own, source in declared.renamed}
        fed = self._fed(pair, renamed, left_out)
        self._check_way_back(pair, fed.values())
        if len(self.misfits) > before:
            return None
        own = _row_form(pair.table)
        key = tuple((name, fed[name]) for name in own.key_names)
        compared = tuple(column for column in own.regular if column.name in fed)
        others = tuple((name, fed[name]) for name in names_of(compared) if fed[name] != name)
        return Mirror(_row_form(pair.truth), own, key, compared, others, left_out=left_out)

    def _fed(self, pair: _Pair, renamed: Names, left_out: frozenset[str]) -> Names:
        """The truth's column behind each column of the projection; what has none is not in it."""
        fed: dict[str, str] = {}
        for column in pair.table.columns:
            source = renamed.get(column.name, column.name)
            if column.name not in left_out and source in pair.truth:
                fed[column.name] = source
                self._check_types(pair, column, pair.truth.column(source))
            elif column.in_key:
                self._note_unfed_key(pair, column)
        return fed

    def _check_names(self, pair: _Pair, declared: DeclaredMirror) -> None:
        """Note columns that are not there, and a key column that is left out."""
        for own, source in declared.renamed:
            self._check_column((*pair.path, RENAMED, own), own, pair.table)
            self._check_column((*pair.path, RENAMED, own), source, pair.truth)
        for number, name in enumerate(declared.left_out):
            place = (*pair.path, LEFT_OUT, number)
            self._check_column(place, name, pair.table)
            if name_of(name) in pair.table.key_names:
                problem = f"{name} is in the key of {pair.table.spelling} and cannot be left out"
                self.note(place, problem, "A row is found by its whole key: keep the column.")

    def _check_column(self, path: TomlPath, spelling: str, table: Table) -> None:
        if name_of(spelling) not in table:
            mend = names_instead(spelling, [column.spelling for column in table.columns])
            self.note(path, f"{table.spelling} has no column {spelling}", mend)

    def _check_readable(self, path: TomlPath, table: Table) -> None:
        """Note columns that no read or before-image holds as they are."""
        mend = f"Rows of {table.spelling} cannot be read or written yet: leave the table out."
        for column in table.columns:
            name = f"{table.spelling}.{column.spelling}"
            if not is_plain(column.spelling):
                self.note(path, f"the name of the column {name} needs double quotes", mend)
            if column.mask:
                self.note(path, f"{name} is masked: a read may give other values", mend)

    def _check_types(self, pair: _Pair, column: Column, source: Column) -> None:
        """Note a column that cannot be compared with its source."""
        own = pair.own(column)
        theirs = pair.of_truth(source)
        mend = f"Leave it out: {LEFT_OUT} = [{toml_text(column.spelling)}]"
        if column.in_key:
            pair_text = f'{{ {column.spelling} = "COLUMN" }}'
            mend = f"Name another column of the truth: {RENAMED} = {pair_text}"
        if normal_type(column.type) != normal_type(source.type):
            problem = f"{own} is of type {column.type}, and {theirs} of type {source.type}"
            self.note(pair.path, problem, mend)
        for name, kind in ((own, column.kind), (theirs, source.kind)):
            if kind is Kind.STATIC:
                self.note(pair.path, f"{name} is static: it is of a partition, not of a row", mend)

    def _note_unfed_key(self, pair: _Pair, column: Column) -> None:
        shape = normal_type(column.type)
        fitting = [other for other in pair.truth.columns if normal_type(other.type) == shape]
        listed = spellings(fitting) or "none"
        problem = f"no column of {pair.truth.spelling} gives the key column {pair.own(column)}"
        mend = (
            f'Name the column: {RENAMED} = {{ {column.spelling} = "COLUMN" }}. '
            f"Columns of {pair.truth.spelling} with the type {column.type}: {listed}."
        )
        self.note(pair.path, problem, mend)

    def _check_way_back(self, pair: _Pair, used: Iterable[str]) -> None:
        """Note a truth whose partition key the projection does not hold."""
        held = frozenset(used)
        for column in pair.truth.partition:
            if column.name not in held:
                source = toml_text(column.spelling)
                problem = (
                    f"no column of {pair.table.spelling} holds {pair.of_truth(column)}, "
                    f"so no row of it leads back to its truth"
                )
                mend = f"Name the column that holds it: {RENAMED} = {{ COLUMN = {source} }}"
                self.note(pair.path, problem, mend)


def _row_form(table: Table) -> Table:
    """The table with what belongs to its rows; of a set, null and the empty set are one."""
    columns = []
    for column in table.columns:
        if column.type.startswith("set<"):
            columns.append(replace(column, canonical=Canonical.SET))
        elif column.kind is not Kind.STATIC:
            columns.append(column)
    return table.with_columns(columns)


def is_plain(spelling: str) -> bool:
    """Whether a name is read and written without double quotes."""
    try:
        return identifier(spelling) == spelling
    except BadIdentifier:
        return False
