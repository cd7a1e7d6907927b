"""Statements over few names, so that they meet: created twice, dropped in use, altered when gone; not all fit."""

from collections.abc import Sequence
from contextlib import suppress

from hypothesis import strategies as st

from mailmend.cql.language.parser import parse
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    CreateIndex,
    CreateTable,
    CreateType,
    CreateView,
    DropColumns,
    DropIndex,
    DropTable,
    DropType,
    DropView,
    Name,
    RenameColumns,
    RenameFields,
    SetOptions,
    SetViewOptions,
    Statement,
    Truncate,
    apply_all,
)
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import EMPTY, Index, Schema, View
from mailmend.model.table import Column, Compaction, Kind, Table, UserType

_TABLES = ("one", "two", '"One"')
_TYPES = ("place", '"Place"', "person")
_INDEXES = ("by_a", "by_b")
_VIEWS = ("seen", "kept")
_COLUMNS = ("a", "b", "c", "d", '"A"', '"odd name"')
_FIELDS = ("x", "y", '"X"')
_SCALARS = ("int", "text", "blob", "bigint", "timestamp", "varint", "timeuuid", "uuid", "ascii", "inet", "boolean")
_FROZEN = ("frozen<place>", 'frozen<"Place">', "frozen<person>", "frozen<list<int>>", "frozen<map<text,int>>")
_CELLS = ("set<text>", "list<int>", "map<text,int>", "place", '"Place"', "list<frozen<place>>", "tuple<int,text>")
_ODD = ("duration", "counter", "list<list<int>>", "set<duration>", "list<place>", "nowhere", "frozen<nowhere>")
_OF_KEY = st.sampled_from(_SCALARS * 3 + _FROZEN + _CELLS + _ODD)
_OF_COLUMN = st.sampled_from(_SCALARS * 2 + _FROZEN * 2 + _CELLS * 2 + _ODD + ("vector<float,2>", "counter"))
_OF_FIELD = st.sampled_from(_SCALARS + _FROZEN + _CELLS + _ODD)
_KINDS = (Kind.REGULAR, Kind.REGULAR, Kind.REGULAR, Kind.STATIC)
_SOMETIMES = st.integers(0, 4).map(lambda number: number == 0)
_OPTIONS = st.sampled_from(
    (
        {"gc_grace_seconds": "0"},
        {"gc_grace_seconds": "'3600'"},
        {"default_time_to_live": "60"},
        {"comment": "'it''s'"},
        {"compaction": "{'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': '80'}"},
        {"compaction": "{'enabled': 'true'}"},
        {"caching": "{'keys': 'NONE'}", "speculative_retry": "'95PERCENTILE'"},
        {"bloom_filter_fp_chance": "0.5", "compression": "{'class': 'ZstdCompressor'}"},
    )
)


BEFORE = apply_all(
    parse(
        """
        CREATE TYPE place (street text, codes list<int>);
        CREATE TYPE flat (number int);
        CREATE TYPE house (at frozen<place>);
        CREATE TABLE t (k int, c int, v text, f frozen<place>, u flat, m map<text, int>, s int STATIC,
            PRIMARY KEY (k, c));
        CREATE TABLE "T" (k frozen<flat> PRIMARY KEY, v text);
        CREATE TABLE counts (k int PRIMARY KEY, n counter);
        CREATE TABLE old (k int PRIMARY KEY, v int) WITH COMPACT STORAGE;
        CREATE TABLE base (k int, c int, v text, w text, PRIMARY KEY (k, c));
        CREATE MATERIALIZED VIEW seen AS SELECT * FROM base WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k);
        CREATE INDEX ON t (v);
        CREATE INDEX by_c ON t (c);
        ALTER TABLE t ADD gone text;
        ALTER TABLE t DROP gone;
        """
    )
)
"""A bit of everything, of which statements may speak."""


def after(text: str, schema: Schema = BEFORE) -> Schema:
    return apply_all(parse(text), schema)


@st.composite
def stories(draw: st.DrawFn, *, views: bool) -> list[Statement]:
    """Statements one after the other, each drawn for the schema that the ones before have left."""
    statements: list[Statement] = []
    schema = EMPTY
    for _ in range(draw(st.integers(10, 20))):
        statements.append(draw(_statements(schema, views=views)))
        with suppress(SchemaRefused):
            schema = statements[-1].apply(schema)
    return statements


def _statements(schema: Schema, *, views: bool) -> st.SearchStrategy[Statement]:
    kinds = [_creations(schema), _creations(schema), _alterations(schema), _alterations(schema), _drops(schema)]
    return st.one_of(*kinds, *([_views(schema)] if views else []))


def _known(schema: Schema) -> st.SearchStrategy[str]:
    return st.sampled_from((*(table.spelling for table in schema.tables), *_TABLES))


def _columns_of(schema: Schema, spelling: str) -> Sequence[str]:
    table = next((one for one in schema.tables if one.spelling == spelling), None)
    return (*(column.spelling for column in table.columns), *_COLUMNS) if table else _COLUMNS


def _creations(schema: Schema) -> st.SearchStrategy[Statement]:
    return st.one_of(_create_table(), _create_table(), _create_type(), _create_index(schema))


@st.composite
def _create_table(draw: st.DrawFn) -> CreateTable:
    spellings = draw(st.permutations(_COLUMNS))
    partition, clustering, others = (draw(st.integers(*bounds)) for bounds in ((1, 2), (0, 2), (0, 2)))
    counters = draw(_SOMETIMES)
    columns = []
    for place, spelling in enumerate(spellings[: partition + clustering + others]):
        if place < partition:
            columns.append(Column(spelling, draw(_OF_KEY), Kind.PARTITION))
        elif place < partition + clustering:
            columns.append(Column(spelling, draw(_OF_KEY), Kind.CLUSTERING, descending=draw(st.booleans())))
        else:
            kind = "counter" if counters else draw(_OF_COLUMN)
            columns.append(Column(spelling, kind, draw(st.sampled_from(_KINDS))))
    compaction = draw(st.none() | st.just(Compaction("SizeTieredCompactionStrategy", {"min_threshold": "6"})))
    options = {name: literal for name, literal in draw(_OPTIONS).items() if name not in {"comment", "compaction"}}
    table = Table(draw(st.sampled_from(_TABLES)), tuple(columns), "a table", compaction, options)
    return CreateTable(Name(table.spelling), table, draw(_SOMETIMES))


@st.composite
def _create_type(draw: st.DrawFn) -> CreateType:
    spellings = draw(st.permutations(_FIELDS))[: draw(st.integers(1, 3))]
    user_type = UserType(draw(st.sampled_from(_TYPES)), tuple((one, draw(_OF_FIELD)) for one in spellings))
    return CreateType(Name(user_type.spelling), user_type, draw(_SOMETIMES))


@st.composite
def _create_index(draw: st.DrawFn, schema: Schema) -> CreateIndex:
    table = draw(_known(schema))
    aspect = draw(st.sampled_from(("{}", "{}", "{}", "values({})", "keys({})", "entries({})", "full({})")))
    target = aspect.replace("{}", draw(st.sampled_from(_columns_of(schema, table))))
    spelling = draw(st.sampled_from(("", *_INDEXES)))
    return CreateIndex(Name(table), Index(spelling, table, target), draw(_SOMETIMES))


def _alterations(schema: Schema) -> st.SearchStrategy[Statement]:
    of_type = st.sampled_from(_TYPES).map(Name)
    field, renames = st.sampled_from(_FIELDS), st.lists(st.tuples(*[st.sampled_from(_FIELDS)] * 2), min_size=1)
    return st.one_of(
        _alter_table(schema),
        _alter_table(schema),
        st.builds(AddField, of_type, field, _OF_FIELD, _SOMETIMES, _SOMETIMES),
        st.builds(RenameFields, of_type, renames.map(lambda some: tuple(dict(some).items())), _SOMETIMES, _SOMETIMES),
    )


@st.composite
def _alter_table(draw: st.DrawFn, schema: Schema) -> Statement:
    spelling = draw(_known(schema))
    name, column = Name(spelling), st.sampled_from(_columns_of(schema, spelling))
    only, exist = draw(_SOMETIMES), draw(_SOMETIMES)
    some = st.lists(column, min_size=1, max_size=2, unique=True).map(tuple)
    added = st.builds(Column, st.sampled_from(_COLUMNS), _OF_COLUMN, st.sampled_from(_KINDS))
    renames = st.lists(
        st.tuples(column, st.sampled_from(_COLUMNS)), min_size=1, max_size=2, unique_by=lambda one: one[0]
    )
    return draw(
        st.one_of(
            st.lists(added, min_size=1, max_size=2).map(lambda them: AddColumns(name, tuple(them), only, exist)),
            some.map(lambda them: DropColumns(name, them, only, exist)),
            renames.map(lambda them: RenameColumns(name, tuple(them), only, exist)),
            _OPTIONS.map(lambda options: SetOptions(name, options, only)),
        )
    )


def _drops(schema: Schema) -> st.SearchStrategy[Statement]:
    indexes = (*(one.spelling for one in schema.indexes), *_INDEXES)
    return st.one_of(
        st.builds(DropTable, _known(schema).map(Name), _SOMETIMES),
        st.builds(DropType, st.sampled_from(_TYPES).map(Name), _SOMETIMES),
        st.builds(DropIndex, st.sampled_from(indexes).map(Name), _SOMETIMES),
        st.builds(Truncate, _known(schema).map(Name)),
    )


@st.composite
def _views(draw: st.DrawFn, schema: Schema) -> Statement:
    name = Name(draw(st.sampled_from(_VIEWS)))
    if draw(_SOMETIMES):
        return DropView(name, draw(_SOMETIMES))
    if draw(_SOMETIMES):
        return SetViewOptions(name, draw(_OPTIONS), draw(_SOMETIMES))
    base = draw(_known(schema))
    table = next((one for one in schema.tables if one.spelling == base), None)
    key = [column.spelling for column in table.key] if table else ["a"]
    others = [column.spelling for column in table.regular] if table else ["b"]
    keyed = draw(st.permutations([*key, *others[: draw(st.integers(0, 1))]]))
    columns = [Column(keyed[0], "", Kind.PARTITION)]
    columns += [Column(one, "", Kind.CLUSTERING, descending=draw(st.booleans())) for one in keyed[1:]]
    every = draw(st.booleans())
    columns += [] if every else [Column(one, "") for one in others if one not in keyed]
    where = " AND ".join(f"{one} IS NOT NULL" for one in keyed)
    return CreateView(name, View(Table(name.spelling, tuple(columns)), base, where, every), draw(_SOMETIMES))
