"""Statements in the order of their files, told apart by keyspace and folded: one subject for each keyspace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from model.errors import SchemaRefused
from model.schema.keyspace import EMPTY, Schema
from model.schema.lint.known import known_of
from model.schema.lint.servers import Release
from model.schema.lint.subject import Knowledge, Placed, Subject
from model.schema.literals import pairs_of
from model.schema.names import name_of
from model.schema.statements import AlterKeyspace, CreateKeyspace, DropKeyspace, Use


@dataclass(slots=True)
class _Keyspace:
    """One keyspace on the way: its statements, and what they have led to so far."""

    statements: list[Placed] = field(default_factory=list)
    schema: Schema = EMPTY
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
            self.schema = statement.apply(self.schema)
        except SchemaRefused as error:
            if self.made >= statement.needs():  # else statements that are not here may allow it
                self.refused[number] = error.what
        self.made |= statement.makes()

    def _replicate(self, number: int, statement: CreateKeyspace | AlterKeyspace) -> None:
        stands = isinstance(statement, CreateKeyspace) and statement.if_not_exists and self.replication is not None
        if "replication" in statement.options and not stands:
            self.replication = pairs_of(statement.options["replication"])
            self.replication_at = number


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
        of = name_of(placed.statement.keyspace_named or current)
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
