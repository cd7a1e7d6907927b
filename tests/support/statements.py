"""Random statements of CQL, as values: what the parser must read back from what the renderer wrote."""

import re

from hypothesis import strategies as st

from mailmend.cql import statements as every_statement
from mailmend.cql.language.stream import TokenKind, tokens_of
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    AlterKeyspace,
    CreateIndex,
    CreateKeyspace,
    CreateTable,
    CreateType,
    CreateView,
    Drop,
    DropColumns,
    DropCompactStorage,
    DropIndex,
    DropKeyspace,
    DropTable,
    DropType,
    DropView,
    MaskColumn,
    Name,
    NamedStatement,
    RenameColumns,
    RenameFields,
    SetOptions,
    SetViewOptions,
    Statement,
    Truncate,
    Use,
)
from mailmend.model.keyspace import Index, View
from mailmend.model.names import RESERVED, map_literal, name_of, text_literal
from mailmend.model.table import Column, Compaction, Kind, Table, UserType

KINDS = [
    kind
    for name in every_statement.__all__
    if isinstance(kind := getattr(every_statement, name), type)
    and issubclass(kind, Statement)
    and kind not in {Statement, NamedStatement, Drop}
]
"""Every kind of statement."""

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
PLAIN = st.from_regex(r"[a-z][a-zA-Z0-9_]{0,9}", fullmatch=True).filter(lambda name: name.lower() not in RESERVED)
QUOTED = TEXTS.filter(bool).map(lambda text: '"' + text.replace('"', '""') + '"')
SPELLINGS = st.one_of(PLAIN, PLAIN, QUOTED)
KEYSPACES = st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True).filter(lambda name: name not in RESERVED)
NAMES = st.builds(Name, SPELLINGS, st.none() | KEYSPACES)
_BUILT = {"list", "set", "map", "frozen", "tuple", "vector"}
LEAVES = st.one_of(
    st.sampled_from(["int", "text", "uuid", "timestamp", "blob", "counter", "duration"]),
    KEYSPACES.filter(lambda name: name not in _BUILT | {"varchar"}),
    st.just('"Own Type"'),
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda one: f"list<{one}>"),
        inner.map(lambda one: f"set<{one}>"),
        st.tuples(inner, inner).map(lambda two: f"map<{two[0]},{two[1]}>"),
        st.lists(LEAVES, min_size=1, max_size=3).map(lambda some: f"tuple<{','.join(some)}>"),
        st.tuples(LEAVES, st.integers(1, 9)).map(lambda two: f"vector<{two[0]},{two[1]}>"),
        LEAVES.map(lambda one: f"frozen<list<{one}>>"),
    ),
    max_leaves=4,
)
MASKS = st.sampled_from(["", "", "", "mask_default()", "mask_inner(1, null)", "own.hide('it''s', 5)"])
LITERALS = st.one_of(
    st.integers(-100, 10**9).map(str),
    st.sampled_from(["0.01", "true", "false", "1.0E-5", "0xCAFE", "123e4567-e89b-12d3-a456-426614174000"]),
    TEXTS.map(text_literal),
    st.dictionaries(TEXTS, TEXTS, max_size=3).map(map_literal),
)
OPTIONS = st.dictionaries(PLAIN.map(str.lower).filter(lambda name: name not in {"comment", "compaction"}), LITERALS)
SOME_OPTIONS = st.dictionaries(PLAIN.map(str.lower), LITERALS, min_size=1, max_size=3)
COMPACTIONS = st.none() | st.builds(Compaction, PLAIN, st.dictionaries(PLAIN, TEXTS.filter(bool), max_size=2))


def _distinct(spellings: st.SearchStrategy[str], least: int, most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(spellings, min_size=least, max_size=most, unique_by=name_of)


@st.composite
def tables(draw: st.DrawFn, *, typed: bool = True) -> Table:
    """A table as CREATE TABLE can say it, whether or not a server would take its types."""
    spellings = draw(_distinct(SPELLINGS, 1, 6))
    partition = draw(st.integers(1, len(spellings)))
    clustering = draw(st.integers(0, len(spellings) - partition))
    kinds = [Kind.PARTITION] * partition + [Kind.CLUSTERING] * clustering
    columns = []
    for place, spelling in enumerate(spellings):
        kind = kinds[place] if place < len(kinds) else draw(st.sampled_from([Kind.REGULAR, Kind.STATIC]))
        descending = kind is Kind.CLUSTERING and draw(st.booleans())
        of_type, mask = (draw(TYPES), draw(MASKS)) if typed else ("", "")
        if not typed and kind is Kind.STATIC:
            kind = Kind.REGULAR
        columns.append(Column(spelling, of_type, kind, descending=descending, mask=mask))
    return Table(draw(SPELLINGS), tuple(columns), draw(TEXTS), draw(COMPACTIONS), draw(OPTIONS))


@st.composite
def create_tables(draw: st.DrawFn) -> CreateTable:
    table = draw(tables())
    return CreateTable(Name(table.spelling, draw(st.none() | KEYSPACES)), table, draw(st.booleans()))


@st.composite
def create_types(draw: st.DrawFn) -> CreateType:
    fields = tuple((spelling, draw(TYPES)) for spelling in draw(_distinct(SPELLINGS, 1, 4)))
    user_type = UserType(draw(SPELLINGS), fields)
    return CreateType(Name(user_type.spelling, draw(st.none() | KEYSPACES)), user_type, draw(st.booleans()))


@st.composite
def create_views(draw: st.DrawFn) -> CreateView:
    table = draw(tables(typed=False))
    every = draw(st.booleans())
    if every:
        table = table.with_columns(table.key)
    where = " AND ".join(f"{column.spelling} IS NOT NULL" for column in table.key)
    keyspace = draw(st.none() | KEYSPACES)
    view = View(table, draw(SPELLINGS), where, every)
    return CreateView(Name(table.spelling, keyspace), view, draw(st.booleans()))


@st.composite
def create_indexes(draw: st.DrawFn) -> CreateIndex:
    column = draw(SPELLINGS)
    target = draw(st.sampled_from(["{}", "values({})", "keys({})", "entries({})", "full({})"])).replace("{}", column)
    using = draw(st.sampled_from(["", "sai", "org.apache.cassandra.index.sai.StorageAttachedIndex"]))
    options = draw(st.dictionaries(TEXTS, TEXTS.filter(bool), max_size=2)) if using else {}
    name = draw(NAMES)
    spelling = draw(st.just("") | SPELLINGS)
    return CreateIndex(name, Index(spelling, name.spelling, target, using, options), draw(st.booleans()))


_RENAMES = st.lists(st.tuples(SPELLINGS, SPELLINGS), min_size=1, max_size=3).map(tuple)
_ADDED = st.builds(Column, SPELLINGS, TYPES, st.sampled_from([Kind.REGULAR, Kind.STATIC]), mask=MASKS)
_FLAG = st.booleans()
_FLAGS = (_FLAG, _FLAG)
_COLUMN_NAMES = st.lists(SPELLINGS, min_size=1, max_size=3).map(tuple)
_STAMPS = st.none() | st.integers(1, 10**15).map(str)
_FIELDS: dict[type[Statement], tuple[st.SearchStrategy[object], ...]] = {
    CreateKeyspace: (KEYSPACES, SOME_OPTIONS, _FLAG),
    AlterKeyspace: (KEYSPACES, SOME_OPTIONS, _FLAG),
    DropKeyspace: (KEYSPACES, _FLAG),
    Use: (KEYSPACES,),
    AddField: (NAMES, SPELLINGS, TYPES, *_FLAGS),
    RenameFields: (NAMES, _RENAMES, *_FLAGS),
    AddColumns: (NAMES, st.lists(_ADDED, min_size=1, max_size=3).map(tuple), *_FLAGS),
    DropColumns: (NAMES, _COLUMN_NAMES, *_FLAGS, _STAMPS),
    RenameColumns: (NAMES, _RENAMES, *_FLAGS),
    MaskColumn: (NAMES, SPELLINGS, MASKS, *_FLAGS),
    SetOptions: (NAMES, SOME_OPTIONS, _FLAG),
    SetViewOptions: (NAMES, SOME_OPTIONS, _FLAG),
    **dict.fromkeys((DropTable, DropType, DropIndex, DropView, DropCompactStorage), (NAMES, _FLAG)),
    Truncate: (NAMES,),
}
BY_KIND: dict[type[Statement], st.SearchStrategy[Statement]] = {
    CreateTable: create_tables(),
    CreateType: create_types(),
    CreateView: create_views(),
    CreateIndex: create_indexes(),
    **{kind: st.builds(kind, *fields) for kind, fields in _FIELDS.items()},
}
"""Statements of every kind that has a text."""
STATEMENTS = st.one_of(*BY_KIND.values())

_SEPARATORS = st.sampled_from([" ", "\n", "\t\r\n  ", " /* ; ' */ ", " -- it's ;\n", "//\n", "/***/"])
_KEYWORD = re.compile(r"[A-Z]+")


@st.composite
def written_otherwise(draw: st.DrawFn, text: str) -> str:
    """The same statements in other white space, with comments, with keywords in another case."""
    parts = []
    for token in tokens_of(text):
        keyword = token.kind is TokenKind.WORD and _KEYWORD.fullmatch(token.text)
        parts.append(draw(st.sampled_from([str.lower, str.title]))(token.text) if keyword else token.text)
        parts.append(draw(_SEPARATORS))
    return "".join(parts)
