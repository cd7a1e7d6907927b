"""Statements in the order of their files, told apart by keyspace and folded: one subject for each keyspace."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from model.errors import SchemaRefused
from model.schema.cql_types import names_in
from model.schema.folding.fold import fold
from model.schema.keyspace import Schema
from model.schema.lint.known import known_of
from model.schema.lint.servers import Release
from model.schema.lint.subject import Knowledge, Placed, Subject
from model.schema.literals import pairs_of
from model.schema.names import name_of
from model.schema.statements import (
    AddColumns,
    AlterKeyspace,
    Batch,
    CreateIndex,
    CreateKeyspace,
    CreateTable,
    CreateType,
    CreateView,
    DropKeyspace,
    Other,
    Statement,
    Use,
)

_EMPTY: Final = Schema((), ())
_NATIVE_TYPES: Final = """
    ascii bigint blob boolean counter date decimal double duration float inet int smallint text time timestamp timeuuid
    tinyint uuid varchar varint list set map frozen tuple vector
"""
_NATIVE: Final = frozenset(_NATIVE_TYPES.split())


@dataclass(slots=True)
class _Keyspace:
    """One keyspace on the way: its statements, and what they have led to so far."""

    statements: list[Placed] = field(default_factory=list)
    schema: Schema = _EMPTY
    refused: dict[int, str] = field(default_factory=dict)
    replication: Mapping[str, str] | None = None
    replication_at: int | None = None
    made: set[str] = field(default_factory=set)

    def take(self, placed: Placed) -> None:
        """The next statement: what a server would refuse changes nothing."""
        number, statement = len(self.statements), placed.statement
        self.statements.append(placed)
        if isinstance(statement, CreateKeyspace | AlterKeyspace):
            self._replicate(number, statement)
        if isinstance(statement, DropKeyspace):
            self.replication, self.replication_at = None, None
        try:
            self.schema = fold(self.schema, statement)
        except SchemaRefused as error:
            if self._told_all(statement):
                self.refused[number] = error.what
        self.made.update(_made_by(statement))

    def _replicate(self, number: int, statement: CreateKeyspace | AlterKeyspace) -> None:
        stands = isinstance(statement, CreateKeyspace) and statement.if_not_exists and self.replication is not None
        if "replication" in statement.options and not stands:
            self.replication = pairs_of(statement.options["replication"])
            self.replication_at = number

    def _told_all(self, statement: Statement) -> bool:
        """Whether all that it needs was created here; else other statements, which are not here, may allow it."""
        return self.made.issuperset(_needed_by(statement))


def subjects_of(
    statements: Sequence[Placed],
    keyspace: str,
    release: Release = Release.CASSANDRA_5_0,
    knowledge: Knowledge | None = None,
) -> tuple[Subject, ...]:
    """One subject for each keyspace that the statements name, in the order of their first mention.

    Statements without a keyspace are run against the one that is given; USE holds to the end of its file. To what the
    settings tell is added what is known of tables of mail.
    """
    keyspaces: dict[str, _Keyspace] = {}
    current, file = keyspace, None
    for placed in statements:
        if placed.file != file:
            current, file = keyspace, placed.file
        if isinstance(placed.statement, Use):
            current = placed.statement.keyspace
            continue
        of = name_of(_keyspace_of(placed.statement) or current)
        keyspaces.setdefault(of, _Keyspace()).take(placed)
    return tuple(_subject(name, told, release, knowledge or Knowledge()) for name, told in keyspaces.items())


def _subject(name: str, told: _Keyspace, release: Release, knowledge: Knowledge) -> Subject:
    return Subject(
        told.schema,
        name,
        tuple(told.statements),
        told.refused,
        told.replication,
        told.replication_at,
        release,
        knowledge.with_facts_of(known_of(told.schema)),
    )


def _keyspace_of(statement: Statement) -> str | None:
    """The keyspace that a statement names itself."""
    match statement:
        case CreateKeyspace() | AlterKeyspace() | DropKeyspace() | Use():
            return statement.keyspace
        case Batch(writes):
            return _first(write.name.keyspace for write in writes)
        case Other():
            return None
        case _:
            return statement.name.keyspace


def _first(keyspaces: Iterable[str | None]) -> str | None:
    return next((name for name in keyspaces if name is not None), None)


def _made_by(statement: Statement) -> tuple[str, ...]:
    """The names that a statement creates."""
    match statement:
        case CreateIndex(index=index):
            return (name_of(index.spelling),)
        case CreateTable(name) | CreateView(name) | CreateType(name):
            return (name_of(name.spelling),)
        case _:
            return ()


def _needed_by(statement: Statement) -> Iterator[str]:
    """The names of tables, types, indexes and views that must be there already for a statement to make sense."""
    match statement:
        case CreateIndex(index=index):
            yield name_of(index.table)
        case CreateView(view=view):
            yield name_of(view.base)
        case CreateTable(table=table):
            yield from _types_in(column.type for column in table.columns)
        case CreateType(type=user_type):
            yield from _types_in(text for _, text in user_type.fields)
        case Batch(writes):
            yield from (name_of(write.name.spelling) for write in writes)
        case CreateKeyspace() | AlterKeyspace() | DropKeyspace() | Use() | Other():
            pass
        case AddColumns(name, columns):
            yield name_of(name.spelling)
            yield from _types_in(column.type for column in columns)
        case _:
            yield name_of(statement.name.spelling)


def _types_in(texts: Iterable[str]) -> Iterator[str]:
    """The user types among the types."""
    for text in texts:
        yield from names_in(text) - _NATIVE
