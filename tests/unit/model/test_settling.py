"""Whether a statement took effect, told from the schema alone."""

from collections.abc import Iterator

import pytest

from cql.language.parser import parse
from model.ddl import Statement, Write
from model.folding.fold import fold
from model.migrating.settling import Effect, effect_of
from model.schema import Schema
from tests.support.migrating import folder

MORE = """
    ALTER TYPE place ADD country text;
    ALTER TYPE place RENAME town TO city;
    CREATE TABLE events (day text, at timestamp, PRIMARY KEY (day, at)) WITH CLUSTERING ORDER BY (at DESC);
    ALTER TABLE events RENAME at TO happened;
    ALTER TABLE events ADD (who text, what text);
    CREATE INDEX ON events (who);
    DROP INDEX by_label;
"""


def statement(cql: str) -> Statement:
    """The one statement in a text."""
    (parsed,) = parse(cql)
    return parsed.statement


def states() -> Iterator[tuple[Statement, Schema, Schema]]:
    """Each statement of a folder, with the schema before it and after it."""
    schema = Schema((), ())
    for migration in folder():
        for parsed in migration.statements:
            after = fold(schema, parsed.statement)
            yield parsed.statement, schema, after
            schema = after
    for text in MORE.split(";")[:-1]:
        after = fold(schema, statement(text))
        yield statement(text), schema, after
        schema = after


STATES = [one for one in states() if not isinstance(one[0], Write)]


@pytest.mark.parametrize(("sent", "before", "after"), STATES, ids=map(str, range(len(STATES))))
def test_what_was_not_sent_has_left_nothing_and_what_was_sent_has(
    sent: Statement, before: Schema, after: Schema
) -> None:
    """Whatever kind of statement it is."""
    assert effect_of(sent, before) is Effect.ABSENT
    assert effect_of(sent, after) is Effect.THERE


TABLE = "CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))"


@pytest.mark.parametrize(
    ("sent", "live"),
    [
        (TABLE, "CREATE TABLE t (k int, c int, v text, PRIMARY KEY ((k, c)))"),
        (TABLE, "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))"),
        (TABLE, "CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))"),
        (TABLE, "CREATE TABLE t (k int, c int, v text, w text, PRIMARY KEY (k, c))"),
        (TABLE, f"{TABLE} WITH CLUSTERING ORDER BY (c DESC)"),
        ("CREATE TYPE t (a int)", "CREATE TYPE t (a text)"),
        ("ALTER TYPE t ADD a int", "CREATE TYPE t (a text)"),
        ("ALTER TABLE t ADD v int", TABLE),
        ("ALTER TABLE t ADD (v text, w text)", TABLE),
        ("ALTER TABLE t DROP (v, w)", TABLE),
        ("ALTER TABLE t RENAME x TO y", TABLE),
        ("ALTER TABLE nowhere ADD v int", TABLE),
        ("ALTER TYPE nowhere ADD v int", TABLE),
        ("ALTER TABLE nowhere WITH gc_grace_seconds = 1", TABLE),
    ],
)
def test_what_somebody_else_made_is_not_taken_for_ours(sent: str, live: str) -> None:
    """Another key, order, type or set of columns under the same name."""
    assert effect_of(statement(sent), fold(Schema((), ()), statement(live))) is Effect.OTHERWISE


def test_options_that_were_changed_since_do_not_make_it_another_table() -> None:
    """Tuning goes on while a migration waits to be resumed."""
    live = fold(Schema((), ()), statement(f"{TABLE} WITH comment = 'tuned' AND gc_grace_seconds = 1"))
    assert effect_of(statement(TABLE), live) is Effect.THERE
