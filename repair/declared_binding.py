"""One declared truth bound to a live schema: its families, or what does not fit. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mailmend.model.cql_types import normal_type
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.conditions import (
    RowCondition,
)
from mailmend.model.projections.content import Content
from mailmend.model.projections.declarations import (
    COLUMN,
    COLUMNS,
    COMPUTED,
    COUNTERS,
    GENERATORS,
    LEFT_OUT,
    MIRROR,
    RENAMED,
    TRUTH,
    USED_WITH,
    WHEN,
    DeclaredBounds,
    DeclaredCount,
    DeclaredExplode,
    DeclaredFilter,
    DeclaredMirror,
    DeclaredProjection,
    DeclaredTruth,
    DeclaredUnion,
    DeclaredView,
)
from mailmend.model.projections.declared_conditions import EVERY_ROW
from mailmend.model.projections.declared_transforms import DeclaredTransform
from mailmend.model.projections.family import Counts, Family, Filter, Union
from mailmend.model.projections.partial_mirror import ExplodedMirror, PartialMirror
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.toml_values import toml_text
from mailmend.model.projections.valued import RANKED, Bound, Bounds, Numbers
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.projections.view_mirror import ViewMirror
from mailmend.model.table import (
    Column,
    Kind,
    Table,
    computed_column,
    is_plain_name,
    names_of,
    spellings,
)
from mailmend.model.toml_places import TomlPath
from mailmend.model.transforms import ElementCell, JoinedColumns, Transform
from mailmend.repair.declared_assembly import assembled
from mailmend.repair.declared_computing import bound_transform
from mailmend.repair.declared_conditions import Misfits, bound_condition
from mailmend.repair.declared_elements import (
    CollectionElements,
    check_element_in_key,
    element_cells,
    elements_of,
)
from mailmend.repair.declared_fields import by_fields
from mailmend.repair.declared_nulls import check_key, read_as_declared, read_as_truth
from mailmend.repair.declared_rows import (
    check_counters,
    check_generator,
    fill_from_content,
    needed_columns,
    numbered_columns,
    required_columns,
)
from mailmend.repair.declared_tables import GENERATOR, live_table

Names = Mapping[str, str]
"""Columns of a truth by columns of a projection."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A projection and its truth as they are live, and where the projection is declared.

    Attributes:
        computed: the computed column of the truth behind columns of the projection.
        form: the truth with what belongs to its rows, and all computed columns.
    """

    path: TomlPath
    truth: Table
    table: Table
    computed: Mapping[str, Column]
    form: Table

    def own(self, column: Column) -> str:
        return f"{self.table.spelling}.{column.spelling}"

    def of_truth(self, column: Column) -> str:
        return f"{self.truth.spelling}.{column.spelling}"


@dataclass(slots=True)
class Binder:
    """A live schema, and what did not fit it so far."""

    live: Schema
    misfits: Misfits = field(default_factory=Misfits)

    def note(self, path: TomlPath, problem: str, mend: str) -> None:
        self.misfits.note(path, problem, mend)

    def families(self, declared: DeclaredTruth) -> tuple[Family, ...]:
        """The families of a truth: one for each mirror; what has no other place is in the first."""
        path = (TRUTH, declared.table)
        truth = self.table(path, declared.table, "truth")
        if truth is not None:
            truth = read_as_declared(self.misfits, path, declared.null_is, truth)
        found: dict[str, list[Projection]] = {}
        for pair, projection in self._pairs(path, truth, declared.every):
            bound = self.projection(pair, projection)
            if bound is not None:
                found.setdefault(projection.kind, []).append(bound)
        if len(found.get(MIRROR, ())) < len(declared.mirrors):
            return ()
        fill_from_content(self.misfits, path, declared, found)
        return assembled(self.misfits, path, found)

    def _pairs(
        self, path: TomlPath, truth: Table | None, declared: Sequence[DeclaredProjection]
    ) -> list[tuple[_Pair, DeclaredProjection]]:
        """The projections whose tables are there, all with one form of the truth."""
        found = []
        columns: dict[str, Column] = {}
        for projection in declared:
            own_path = (*path, projection.kind, projection.table)
            table = self.table(own_path, projection.table, projection.kind)
            if truth is not None and table is not None:
                computed = self._computed(own_path, projection, table, truth)
                columns |= {column.name: column for column in computed.values()}
                found.append((_Pair(own_path, truth, table, computed, truth), projection))
        if truth is None:
            return []
        rows = _row_form(truth)
        form = rows.with_columns((*rows.columns, *columns.values()))
        return [(replace(pair, form=form), projection) for pair, projection in found]

    def _computed(
        self,
        path: TomlPath,
        declared: DeclaredProjection,
        table: Table,
        truth: Table,
    ) -> dict[str, Column]:
        """The truth's computed columns, by the projection's columns that they feed."""
        found: dict[str, Column] = {}
        elements = None
        if isinstance(declared, DeclaredExplode):
            elements = elements_of(self.misfits, path, declared, truth, self.live)
            if elements is None:
                return found
            for name, cell in element_cells(self.misfits, path, declared, table, elements):
                found[name] = computed_column(cell)
        for spelling, rule in declared.computed:
            place = (*path, COMPUTED, spelling)
            self.misfits.check_column(place, spelling, table)
            if name_of(spelling) not in table:
                continue
            own = table.column(name_of(spelling))
            try:
                transform = self._transform(rule, own, truth, elements)
            except WrongUse as error:
                self.note(place, error.what, error.mend)
            else:
                found[own.name] = computed_column(transform)
        if elements is not None:
            check_element_in_key(self.misfits, path, table, found)
        return found

    def _transform(
        self,
        rule: DeclaredTransform,
        own: Column,
        truth: Table,
        elements: CollectionElements | None,
    ) -> Transform:
        """What computes a column: of the collection that is exploded, each of its elements."""
        if elements is None or elements.column.name not in map(name_of, rule.columns):
            return bound_transform(rule, own, truth, self.live)
        of_one = bound_transform(rule, own, elements.as_one(truth), self.live)
        return ElementCell(source=elements.column.name, type=of_one.type, rule=of_one)

    def table(self, path: TomlPath, spelling: str, what: str) -> Table | None:
        return live_table(self.misfits, self.live, path, spelling, what)

    def projection(self, pair: _Pair, declared: DeclaredProjection) -> Projection | None:
        """A projection; None where something does not fit."""
        before = len(self.misfits.found)
        self._check_names(pair, declared)
        self._check_readable(pair.path, pair.truth)
        self._check_readable(pair.path, pair.table)
        if len(self.misfits.found) > before:
            return None
        match declared:
            case DeclaredMirror():
                bound: Projection = self._mirror_of(pair, declared)
            case DeclaredView():
                whole = self._mirror(pair, declared)
                parts = (whole.truth, whole.table, whole.key, whole.compared)
                bound = ViewMirror(*parts)
            case DeclaredFilter():
                bound = self._filter(pair, declared)
            case DeclaredUnion():
                bound = self._union(pair, declared)
            case DeclaredCount():
                bound = self._count(pair, declared)
            case DeclaredBounds():
                bound = self._bounds(pair, declared)
            case _:
                bound = self._content(pair, declared)
        if len(self.misfits.found) > before:
            return None
        return bound

    def _mirror(self, pair: _Pair, declared: DeclaredMirror | DeclaredView) -> Mirror:
        left_out: frozenset[str] = frozenset()
        if isinstance(declared, DeclaredMirror):
            left_out = frozenset(map(name_of, declared.left_out))
        renamed = dict(_renames(declared))
        if isinstance(declared, DeclaredMirror) and declared.fields:
            given = (declared.fields, pair.table, pair.truth)
            table, sources = by_fields(self.misfits, pair.path, *given, live=self.live)
            pair = replace(pair, table=table)
            renamed |= sources
        fed = self._fed(pair, renamed, left_out)
        self._check_way_back(pair, fed.values())
        own = read_as_truth(self.misfits, pair.path, _row_form(pair.table), pair.truth, fed)
        compared = tuple(column for column in own.regular if column.name in fed)
        others = tuple((name, fed[name]) for name in names_of(compared) if fed[name] != name)
        key = _key(own, fed)
        required: tuple[str, ...] = ()
        needs: tuple[str, ...] = ()
        kept: tuple[tuple[Verdict, str], ...] = ()
        if isinstance(declared, DeclaredMirror):
            wanted = declared.required
            required = required_columns(self.misfits, pair.path, wanted, pair.truth)
            needs = needed_columns(self.misfits, pair.path, declared.needs, pair.truth)
            kept = tuple((Verdict(verdict), why) for verdict, why in declared.only_reported)
        rules = (required, kept, left_out, needs)
        return Mirror(pair.form, own, key, compared, others, *rules)

    def _mirror_of(self, pair: _Pair, declared: DeclaredMirror) -> Mirror:
        """A mirror of all rows, of some rows, or of the elements of rows."""
        whole = self._mirror(pair, declared)
        if declared.kind == MIRROR and declared.when == EVERY_ROW:
            return whole
        only = bound_condition(self.misfits, (*pair.path, WHEN), declared.when, pair.truth)
        parts = (
            whole.truth,
            whole.table,
            whole.key,
            whole.compared,
            whole.renamed,
            whole.required,
            whole.kept,
            whole.left_out,
            whole.needs,
        )
        if isinstance(declared, DeclaredExplode):
            collection = name_of(declared.column)
            return ExplodedMirror(*parts, only=only, collection=collection)
        return PartialMirror(*parts, only=only)

    def _filter(self, pair: _Pair, declared: DeclaredFilter) -> Filter:
        key = self._key_of(pair, declared)
        for column in pair.table.regular:
            if column.kind is Kind.REGULAR:
                mend = f"A row with values is a copy: declare the table as {MIRROR}."
                problem = f"{pair.own(column)} is not in the key, and a filter's row is a key alone"
                self.note(pair.path, problem, mend)
        when = bound_condition(self.misfits, (*pair.path, WHEN), declared.when, pair.truth)
        return Filter(pair.form, _row_form(pair.table), key, when)

    def _union(self, pair: _Pair, declared: DeclaredUnion) -> Union:
        key = self._key_of(pair, declared)
        name = name_of(declared.column)
        place = (*pair.path, COLUMN)
        for table in (pair.truth, pair.table):
            self.misfits.check_column(place, declared.column, table)
            if name in table and table.column(name).type not in UNION_TYPES:
                mend = f"A union gathers columns of the types {', '.join(UNION_TYPES)}."
                shown = f"{table.spelling}.{declared.column} is of type {table.column(name).type}"
                self.note(place, shown, mend)
        if name in pair.truth and name in pair.table:
            own = pair.table.column(name)
            self._check_types(replace(pair, path=place), own, pair.truth.column(name))
        return Union(pair.form, _row_form(pair.table), key, name)

    def _count(self, pair: _Pair, declared: DeclaredCount) -> Counts | Numbers:
        key = self._key_of(pair, declared)
        counters: list[tuple[str, RowCondition | None]] = []
        for spelling, when in declared.counters:
            place = (*pair.path, COUNTERS, spelling)
            name = name_of(spelling)
            self.misfits.check_column(place, spelling, pair.table)
            if name in pair.table and not _counts(pair.table.column(name)):
                listed = spellings(column for column in pair.table.regular if _counts(column))
                mend = f"Such columns of {pair.table.spelling}: {listed or 'none'}."
                problem = f"{pair.table.spelling}.{spelling} is not a counter, an int or a bigint"
                self.note(place, problem, mend)
            condition = None
            if when != EVERY_ROW:
                condition = bound_condition(self.misfits, place, when, pair.truth)
            counters.append((name, condition))
        generators = self._generators(pair, declared)
        group = (pair.form, _row_form(pair.table), key, tuple(counters))
        if not pair.table.has_counters:
            return Numbers(*group)
        counts = Counts(*group, generators, used_with=self._used_with(pair, declared))
        numbered_by = numbered_columns(self.misfits, pair.path, declared, counts, pair.truth)
        return replace(counts, numbered_by=numbered_by)

    def _used_with(self, pair: _Pair, declared: DeclaredCount) -> tuple[Table, ...]:
        """The tables that have rows where generators are used."""
        found = []
        for number, spelling in enumerate(declared.used_with):
            table = self.table((*pair.path, USED_WITH, number), spelling, "table")
            if table is not None:
                found.append(table)
        return tuple(found)

    def _generators(self, pair: _Pair, declared: DeclaredCount) -> tuple[Table, ...]:
        """The tables whose row changes before a row of the group does."""
        if declared.generators:
            check_counters(self.misfits, pair.path, pair.table)
        found = []
        for number, spelling in enumerate(declared.generators):
            place = (*pair.path, GENERATORS, number)
            table = self.table(place, spelling, GENERATOR)
            if table is not None:
                check_generator(self.misfits, place, table, pair.table)
                found.append(table)
        return tuple(found)

    def _bounds(self, pair: _Pair, declared: DeclaredBounds) -> Bounds:
        key = self._key_of(pair, declared)
        bounds = []
        for spelling, source in declared.columns:
            place = (*pair.path, COLUMNS, spelling)
            self.misfits.check_column(place, spelling, pair.table)
            self.misfits.check_column(place, source, pair.truth)
            name = name_of(spelling)
            if name in pair.table and name_of(source) in pair.truth:
                own = pair.table.column(name)
                self._check_ranked(place, pair, own)
                theirs = pair.truth.column(name_of(source))
                self._check_types(replace(pair, path=place), own, theirs)
            bounds.append((name, name_of(source)))
        kind = Bound[declared.kind.upper()]
        return Bounds(pair.form, _row_form(pair.table), key, tuple(bounds), kind)

    def _check_ranked(self, path: TomlPath, pair: _Pair, own: Column) -> None:
        if own.in_key or own.kind is Kind.STATIC:
            problem = f"{pair.own(own)} is in the key, or static: it is no value of a group"
            self.note(path, problem, "Name a column of the row outside its key.")
        if normal_type(own.type) not in RANKED:
            mend = f"Types with a greatest value: {', '.join(sorted(RANKED))}."
            self.note(path, f"{pair.own(own)} is of type {own.type}, which has no form here", mend)

    def _content(self, pair: _Pair, declared: DeclaredProjection) -> Content:
        key = self._key_of(pair, declared)
        sources = tuple(source for _, source in key)
        if len(key) == len(pair.table.key) and sources != pair.truth.partition_names:
            wanted = spellings(pair.truth.partition)
            mend = f"Name these columns in the order of its key with {RENAMED}: {wanted}."
            problem = f"the key of {pair.table.spelling} is not the partition key of its truth"
            self.note(pair.path, problem, mend)
        return Content(pair.form, _row_form(pair.table), key)

    def _key_of(self, pair: _Pair, declared: DeclaredProjection) -> tuple[tuple[str, str], ...]:
        """(projection column, truth column) of a key; columns outside the key are not looked at."""
        others = frozenset(column.name for column in pair.table.regular)
        return _key(pair.table, self._fed(pair, _renames(declared), others))

    def _fed(self, pair: _Pair, renamed: Names, left_out: frozenset[str]) -> Names:
        """The truth's column behind each column of the projection; what has none is not in it."""
        fed: dict[str, str] = {}
        for column in pair.table.columns:
            source = renamed.get(column.name, column.name)
            if column.name in pair.computed:
                fed[column.name] = pair.computed[column.name].name
            elif column.name not in left_out and source in pair.truth:
                fed[column.name] = source
                self._check_types(pair, column, pair.truth.column(source))
                if column.in_key:
                    their_column = pair.truth.column(source)
                    check_key(self.misfits, pair.path, pair.own(column), their_column)
            elif column.in_key:
                self._note_unfed_key(pair, column)
        return fed

    def _check_names(self, pair: _Pair, declared: DeclaredProjection) -> None:
        """Note columns that are not there, and a key column that is left out."""
        for own, source in declared.renamed:
            self.misfits.check_column((*pair.path, RENAMED, own), own, pair.table)
            self.misfits.check_column((*pair.path, RENAMED, own), source, pair.truth)
        left_out: tuple[str, ...] = ()
        if isinstance(declared, DeclaredMirror):
            left_out = declared.left_out
        for number, name in enumerate(left_out):
            place = (*pair.path, LEFT_OUT, number)
            self.misfits.check_column(place, name, pair.table)
            if name_of(name) in pair.table.key_names:
                problem = f"{name} is in the key of {pair.table.spelling} and cannot be left out"
                self.note(place, problem, "A row is found by its whole key: keep the column.")

    def _check_readable(self, path: TomlPath, table: Table) -> None:
        """Note columns that no read or before-image holds as they are."""
        mend = f"Rows of {table.spelling} cannot be read or written yet: leave the table out."
        for column in table.columns:
            name = f"{table.spelling}.{column.spelling}"
            if not is_plain_name(column.name):
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
        if not _holds(column, source):
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
        held = set(used)
        for column in pair.computed.values():
            if isinstance(column.computed, JoinedColumns):
                held.update(column.computed.columns)
        for column in pair.truth.partition:
            if column.name not in held:
                source = toml_text(column.spelling)
                problem = (
                    f"no column of {pair.table.spelling} holds {pair.of_truth(column)}, "
                    f"so no row of it leads back to its truth"
                )
                mend = f"Name the column that holds it: {RENAMED} = {{ COLUMN = {source} }}"
                self.note(pair.path, problem, mend)


def _holds(column: Column, source: Column) -> bool:
    """Whether each value of the source is a value of the column: a time-based UUID is a UUID."""
    own = normal_type(column.type)
    theirs = normal_type(source.type)
    return own == theirs or (own, theirs) == ("uuid", "timeuuid")


def _counts(column: Column) -> bool:
    """Whether a column can hold the number of rows of a group."""
    return column.kind is Kind.REGULAR and (column.is_counter or column.type in {"bigint", "int"})


def _renames(declared: DeclaredProjection) -> Names:
    return {name_of(own): name_of(source) for own, source in declared.renamed}


def _key(table: Table, fed: Names) -> tuple[tuple[str, str], ...]:
    return tuple((name, fed[name]) for name in table.key_names if name in fed)


UNION_TYPES: Final = ("set<text>", "set<int>", "set<bigint>")
"""The types of sets that both engines gather."""


def _row_form(table: Table) -> Table:
    """The table with what belongs to its rows."""
    return table.with_columns(column for column in table.columns if column.kind is not Kind.STATIC)
