"""What statements need of a server, by the version that brought it: types, masks, functions, indexes, words. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    AlterKeyspace,
    CreateIndex,
    CreateTable,
    CreateType,
    DropColumns,
    MaskColumn,
    Other,
    RenameColumns,
    RenameFields,
    SetOptions,
    Statement,
)
from mailmend.model.cql_types import names_in
from mailmend.model.names import short_class
from mailmend.model.table import Column

_4_1: Final = ServerRelease.CASSANDRA_4_1
_5_0: Final = ServerRelease.CASSANDRA_5_0
_ATTACHED: Final = frozenset({"sai", "storageattachedindex"})
_CALL: Final = re.compile(r"'(?:[^']|'')*'|(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_]*)\s*\(")
_FUNCTIONS_OF_5: Final = frozenset(
    [
        "abs",
        "exp",
        "log",
        "log10",
        "round",
        "collection_avg",
        "collection_count",
        "collection_max",
        "collection_min",
        "collection_sum",
        "map_keys",
        "map_values",
        "mask_default",
        "mask_hash",
        "mask_inner",
        "mask_null",
        "mask_outer",
        "mask_replace",
        "maxwritetime",
        "similarity_cosine",
        "similarity_dot_product",
        "similarity_euclidean",
        "to_date",
        "to_timestamp",
        "to_unix_timestamp",
        "min_timeuuid",
        "max_timeuuid",
        "current_date",
        "current_time",
        "current_timestamp",
        "current_timeuuid",
        "to_json",
        "from_json",
        "format_bytes",
        "format_time",
    ]
)
"""Functions that Cassandra 5.0 brought, in lower case; functions of the form text_as_blob came with it too."""

_AS_BLOB: Final = re.compile(r"[a-z]+_as_blob|blob_as_[a-z]+")
_IN_NO_RELEASE: Final = ("BETWEEN", "NOT IN", "NOT CONTAINS", "NOT CONTAINS KEY")
"""Comparisons that came after Cassandra 5.0."""

TooNew = tuple[str, ServerRelease | None, tuple[str, str]]
"""What a statement needs, the first release that has it (None: none that is known), and the place of it."""


def lacking(statement: Statement, release: ServerRelease) -> Iterator[TooNew]:
    """What the statement needs and a server of that release does not have."""
    if not release.is_cassandra:
        return
    for what, since, place in _needs(statement):
        if since is None or not release.at_least(since):
            yield what, since, place


def refused_by_version(statement: Statement, release: ServerRelease) -> tuple[str, ...]:
    """Why a server of that release refuses the statement, one sentence for each thing it lacks."""
    return tuple(version_problem(what, since, release) for what, since, _ in lacking(statement, release))


def version_problem(what: str, since: ServerRelease | None, release: ServerRelease) -> str:
    problem = f"{release.title} has no {what}"
    if since:
        problem += f", which came with {since.value}"
    return problem


def _needs(statement: Statement) -> Iterator[TooNew]:  # noqa: C901, PLR0912 - one case for each kind
    """Everything that some release lacks."""
    match statement:
        case CreateTable(_, table):
            yield from _of_columns(table.columns)
        case AddColumns(_, columns, only, unless):
            yield from _words(("IF EXISTS in ALTER TABLE", only), ("IF NOT EXISTS for a column", unless))
            yield from _of_columns(columns)
        case MaskColumn(_, column):
            yield "masked columns", _5_0, ("column", column)
        case DropColumns(_, _, only, columns_only) | RenameColumns(_, _, only, columns_only):
            yield from _words(("IF EXISTS in ALTER TABLE", only), ("IF EXISTS for a column", columns_only))
        case SetOptions(_, _, only):
            yield from _words(("IF EXISTS in ALTER", only))
        case CreateType(_, user_type):
            for name, kind in user_type.fields:
                yield from _of_type(kind, ("field", name))
        case AddField(_, name, kind, only, unless):
            yield from _words(("IF EXISTS in ALTER TYPE", only), ("IF NOT EXISTS for a field", unless))
            yield from _of_type(kind, ("field", name))
        case RenameFields(_, _, only, fields_only):
            yield from _words(("IF EXISTS in ALTER TYPE", only), ("IF EXISTS for a field", fields_only))
        case AlterKeyspace(_, _, only):
            yield from _words(("IF EXISTS in ALTER KEYSPACE", only))
        case CreateIndex(_, index, _, is_custom):
            using = short_class(index.using).lower()
            if index.using and is_custom is False:
                yield "USING in CREATE INDEX without CUSTOM", _5_0, ("column", index.target)
            if using in _ATTACHED or using == "legacy_local_table":
                yield f"indexes of class {index.using}", _5_0, ("column", index.target)
        case Other(words, calls, parts):
            for part in parts:
                yield part, _5_0, ("option", "")
            if words.endswith("IDENTITY"):
                yield words, _5_0, ("option", "")
            yield from _of_functions(calls)
        case _:
            yield from _of_writes(statement)


def _words(*flags: tuple[str, bool]) -> Iterator[TooNew]:
    for what, is_there in flags:
        if is_there:
            yield what, _4_1, ("option", "")


def _of_columns(columns: tuple[Column, ...]) -> Iterator[TooNew]:
    for column in columns:
        place = ("column", column.name)
        yield from _of_type(column.type, place)
        if column.mask:
            yield "masked columns", _5_0, place


def _of_type(kind: str, place: tuple[str, str]) -> Iterator[TooNew]:
    if "vector" in names_in(kind):
        yield "type vector", _5_0, place


def _of_writes(statement: Statement) -> Iterator[TooNew]:
    for write in statement.row_writes:
        if write.timeout:
            yield "USING TIMEOUT", None, ("option", "timeout")
        for relation in (*write.where, *write.only_if):
            if relation.operator in _IN_NO_RELEASE:
                yield f"{relation.operator} in conditions", None, ("column", relation.columns[0])
        for name, text in write.values.items():
            calls = tuple(found.lower() for found in _CALL.findall(text) if found)
            for what, since, _ in _of_functions(calls):
                yield what, since, ("column", name)


def _of_functions(calls: tuple[str, ...]) -> Iterator[TooNew]:
    for name in dict.fromkeys(calls):
        if name in _FUNCTIONS_OF_5 or _AS_BLOB.fullmatch(name):
            yield f"function {name}", _5_0, ("option", "")
