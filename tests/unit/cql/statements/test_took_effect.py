"""Whether a statement took effect, told from the schema alone."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings

from mailmend.cql.language.parser import parse
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    CreateTable,
    CreateType,
    Effect,
    Name,
    RenameColumns,
    RenameFields,
    SetOptions,
    Statement,
    WriteRows,
    apply_all,
)
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table, UserType
from tests.support.ddl_stories import stories
from tests.support.linting import UNIFIED
from tests.support.migrating import folder

MORE = """
    ALTER TYPE place ADD country text;
    ALTER TYPE place RENAME town TO city;
    CREATE TABLE events (day text, at timestamp, PRIMARY KEY (day, at)) WITH CLUSTERING ORDER BY (at DESC);
    ALTER TABLE events RENAME at TO happened;
    ALTER TABLE events RENAME happened TO at AND happened TO occurred;
    ALTER TABLE events ADD (who text, what text);
    CREATE INDEX ON events (who);
    DROP INDEX by_label;
    CREATE TABLE "Logs" (k int, c int, v text, tags map<text, int>, size frozen<place>, PRIMARY KEY (k, c));
    CREATE INDEX ON "Logs" (tags);
    CREATE INDEX ON "Logs" (keys(tags));
    CREATE INDEX "By_v" ON "Logs" (V);
    CREATE MATERIALIZED VIEW recent AS SELECT * FROM "Logs"
        WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k) WITH CLUSTERING ORDER BY (k DESC);
    CREATE MATERIALIZED VIEW "Few" AS SELECT k, c, v FROM "Logs"
        WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k);
    ALTER MATERIALIZED VIEW recent WITH gc_grace_seconds = 5;
    ALTER MATERIALIZED VIEW recent WITH comment = 'the newest first';
    ALTER TABLE "Logs" WITH comment = 'what happened';
    DROP MATERIALIZED VIEW RECENT;
    DROP MATERIALIZED VIEW "Few";
    ALTER TABLE "Logs" ADD (closed boolean STATIC, "Who" VARCHAR);
    ALTER TABLE "Logs" DROP (closed, "Who");
    ALTER TABLE "Logs" RENAME k TO "K";
    DROP INDEX "By_v";
    CREATE TYPE "Pair" (one VARCHAR, "Two" int);
    ALTER TYPE "Pair" ADD "Three" varchar;
    ALTER TYPE "Pair" RENAME "Two" TO second AND one TO "First";
    DROP TYPE "Pair";
    DROP TABLE "Logs";
"""


def statement(cql: str) -> Statement:
    (parsed,) = parse(cql)
    return parsed.statement


def states() -> Iterator[tuple[Statement, Schema, Schema]]:
    """Each statement of a folder, with the schema before it and after it."""
    schema = Schema((), ())
    for migration in folder():
        for parsed in migration.statements:
            after = parsed.statement.apply(schema)
            yield parsed.statement, schema, after
            schema = after
    for text in MORE.split(";")[:-1]:
        after = statement(text).apply(schema)
        yield statement(text), schema, after
        schema = after


STATES = [one for one in states() if not isinstance(one[0], WriteRows)]


@pytest.mark.parametrize(("sent", "before", "after"), STATES, ids=map(str, range(len(STATES))))
def test_what_was_not_sent_has_left_nothing_and_what_was_sent_has(
    sent: Statement, before: Schema, after: Schema
) -> None:
    assert sent.took_effect(before) is Effect.NOT_APPLIED
    assert sent.took_effect(after) is Effect.APPLIED


TABLE = "CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))"
COMPACT = "CREATE TABLE old (k int PRIMARY KEY, v text) WITH COMPACT STORAGE"
VIEW = "CREATE MATERIALIZED VIEW few AS SELECT k, c, v FROM t WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY"


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
        ("CREATE TYPE t (a int, b int)", "CREATE TYPE t (b int, a int)"),
        ("ALTER TABLE t ADD v int", TABLE),
        ("ALTER TABLE t ADD v text STATIC", TABLE),
        ("ALTER TABLE t ADD c int", TABLE),
        ("CREATE INDEX by_v ON t (v)", f"{TABLE}; CREATE INDEX by_v ON t (c)"),
        ("CREATE INDEX by_v ON t (v)", f"{TABLE}; CREATE CUSTOM INDEX by_v ON t (v) USING 'sai'"),
        ("CREATE INDEX by_v ON u (v)", f"{TABLE}; CREATE INDEX by_v ON t (v)"),
        (f"{VIEW} (c, k)", f"{TABLE}; {VIEW} (k, c)"),
        (f"{VIEW} (c, k)", f"{TABLE}; {VIEW.replace('k, c, v', 'k, c')} (c, k)"),
        (f"{VIEW} (c, k)", f"{TABLE}; {VIEW.replace('c IS NOT NULL', 'c > 5')} (c, k)"),
        (f"{VIEW} (c, k)", f"{TABLE}; {TABLE.replace('t', 'base', 1)}; {VIEW.replace('FROM t', 'FROM base')} (c, k)"),
        ("ALTER TABLE t ADD (v text, w text)", TABLE),
        ("ALTER TABLE t DROP (v, w)", TABLE),
        ("ALTER TABLE t RENAME x TO y", TABLE),
        ("ALTER TABLE t RENAME k TO c", TABLE),
        ("ALTER TYPE t RENAME a TO b AND c TO d", "CREATE TYPE t (a int, d int)"),
        ("ALTER TABLE nowhere ADD v int", TABLE),
        ("ALTER TYPE nowhere ADD v int", TABLE),
        ("ALTER TABLE nowhere WITH gc_grace_seconds = 1", TABLE),
    ],
)
def test_what_somebody_else_made_is_not_taken_for_ours(sent: str, live: str) -> None:
    assert statement(sent).took_effect(apply_all(parse(live))) is Effect.DIFFERENT


def test_options_that_were_changed_since_do_not_make_it_another_table() -> None:
    live = statement(f"{TABLE} WITH comment = 'tuned' AND gc_grace_seconds = 1").apply(Schema((), ()))
    assert statement(TABLE).took_effect(live) is Effect.APPLIED
    assert statement(f"{TABLE} WITH gc_grace_seconds = 7").took_effect(live) is Effect.APPLIED
    leveled = statement("ALTER TABLE t WITH compaction = {'class': 'LeveledCompactionStrategy'}").apply(live)
    assert statement(f"{TABLE} WITH compaction = {UNIFIED}").took_effect(leveled) is Effect.APPLIED


def test_nor_do_they_make_it_another_view() -> None:
    live = apply_all(parse(f"{TABLE}; {VIEW} (c, k); ALTER MATERIALIZED VIEW few WITH comment = 'tuned'"))
    assert statement(f"{VIEW} (c, k) WITH comment = 'new'").took_effect(live) is Effect.APPLIED


def test_an_index_without_a_name_is_reported_by_what_it_is_on() -> None:
    live = apply_all(parse(f"{TABLE}; CREATE INDEX somebodys ON t (v); CREATE INDEX ON t (c)"))
    assert statement('CREATE INDEX ON T ("v")').took_effect(live) is Effect.APPLIED
    assert statement("CREATE INDEX ON t (k)").took_effect(live) is Effect.NOT_APPLIED
    assert statement("CREATE CUSTOM INDEX ON t (v) USING 'sai'").took_effect(live) is Effect.NOT_APPLIED
    assert statement("CREATE INDEX ON elsewhere (v)").took_effect(live) is Effect.NOT_APPLIED


@pytest.mark.parametrize(
    "sent",
    [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}",
        "INSERT INTO t (k, c) VALUES (1, 2)",
        "UPDATE t SET v = 'a' WHERE k = 1 AND c = 2",
        "TRUNCATE t",
    ],
)
def test_what_leaves_nothing_in_a_schema_counts_as_not_sent(sent: str) -> None:
    assert statement(sent).took_effect(statement(TABLE).apply(Schema((), ()))) is Effect.NOT_APPLIED


@pytest.mark.parametrize("what", ["TABLE", "TYPE", "INDEX", "MATERIALIZED VIEW"])
def test_what_is_not_there_is_dropped(what: str) -> None:
    alike = {
        "TABLE": "",
        "TYPE": "CREATE TYPE few (a int);",
        "INDEX": "CREATE INDEX few ON t (v);",
        "MATERIALIZED VIEW": f"{VIEW} (c, k);",
    }
    others = "".join(cql for name, cql in alike.items() if name != what)
    live = apply_all(parse(f"{TABLE}; {others}"))
    assert statement(f"DROP {what} few").took_effect(live) is Effect.APPLIED


@pytest.mark.parametrize(
    ("sent", "effect"),
    [
        ("ALTER TABLE t ADD IF NOT EXISTS (v blob, w text)", Effect.NOT_APPLIED),
        ("ALTER TABLE t ADD IF NOT EXISTS (v text, c int)", Effect.APPLIED),
        ("ALTER TABLE t ADD IF NOT EXISTS v blob", Effect.DIFFERENT),
        ("ALTER TABLE t DROP IF EXISTS (v, w)", Effect.NOT_APPLIED),
        ("ALTER TABLE t DROP IF EXISTS (w, x)", Effect.APPLIED),
    ],
)
def test_a_part_that_was_there_before_is_no_strangers_where_the_statement_allows_for_it(
    sent: str, effect: Effect
) -> None:
    assert statement(sent).took_effect(statement(TABLE).apply(Schema((), ()))) is effect


def test_compact_storage_is_gone_or_it_is_not() -> None:
    live, sent = statement(COMPACT).apply(Schema((), ())), statement("ALTER TABLE old DROP COMPACT STORAGE")
    assert sent.took_effect(live) is Effect.NOT_APPLIED
    assert sent.took_effect(sent.apply(live)) is Effect.APPLIED


@settings(max_examples=5)
@given(stories(views=True))
def test_whoever_was_killed_after_any_statement_finds_out_what_it_left(story: list[Statement]) -> None:
    """Whatever a server takes: what was not sent is never told as there, what was sent never as absent.

    Only names that were turned around are for a person: x TO y AND y TO x leaves no trace.
    """
    schema = Schema((), ())
    for sent in story:
        with suppress(SchemaRefused):
            after = sent.apply(schema)
            turned = isinstance(sent, RenameColumns | RenameFields)
            if after != schema and not isinstance(sent, SetOptions):
                assert sent.took_effect(schema) is not Effect.APPLIED
            if after != schema:
                assert sent.took_effect(after) in ({Effect.APPLIED, Effect.DIFFERENT} if turned else {Effect.APPLIED})
            schema = after


def test_a_server_spells_types_and_names_in_its_own_way() -> None:
    sent = Column("Tags", "map<varchar,int>")
    declared = Table("t", (Column("k", "int", Kind.PARTITION), Column("tags", "map<text, int>")))
    size, declared_size = (
        UserType("Size", (("Tags", "map<varchar,int>"),)),
        UserType("size", (("tags", "map<text, int>"),)),
    )
    live = Schema((declared_size,), (declared,))
    name = Name("T")
    assert AddColumns(name, (sent,)).took_effect(live) is Effect.APPLIED
    assert CreateTable(name, Table("T", (declared.columns[0], sent))).took_effect(live) is Effect.APPLIED
    assert CreateType(Name("Size"), size).took_effect(live) is Effect.APPLIED
    assert AddField(Name("SIZE"), *size.fields[0]).took_effect(live) is Effect.APPLIED
