"""A schema after each statement: what is there afterwards.

That a server says the same is tested on a real one (`tests/integration/cql/test_fold.py`).
"""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings

from mailmend.cql.schema.difference import differences
from mailmend.cql.statements import Statement
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import EMPTY
from mailmend.model.table import COMPACT_STORAGE, Column
from tests.support.ddl_stories import BEFORE, after, stories

HONOURED = (
    "CREATE TYPE IF NOT EXISTS place (a int)",
    "ALTER TYPE IF EXISTS nowhere ADD a int",
    "ALTER TYPE place ADD IF NOT EXISTS street int",
    "ALTER TYPE place RENAME IF EXISTS nothing TO a",
    "DROP TYPE IF EXISTS nowhere",
    "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)",
    "ALTER TABLE IF EXISTS nowhere ADD a int",
    "ALTER TABLE t ADD IF NOT EXISTS v int",
    "ALTER TABLE t DROP IF EXISTS nothing",
    "ALTER TABLE IF EXISTS nowhere RENAME a TO b",
    "ALTER TABLE IF EXISTS nowhere WITH comment = 'a'",
    "ALTER MATERIALIZED VIEW IF EXISTS nowhere WITH comment = 'a'",
    "DROP TABLE IF EXISTS nowhere",
    "DROP INDEX IF EXISTS nowhere",
    "DROP MATERIALIZED VIEW IF EXISTS nowhere",
    "CREATE INDEX IF NOT EXISTS by_c ON base (v)",
    "CREATE INDEX IF NOT EXISTS ON t (c)",
    "CREATE MATERIALIZED VIEW IF NOT EXISTS seen AS SELECT * FROM base WHERE k = 1 PRIMARY KEY (k)",
    "TRUNCATE t",
    "GRANT SELECT ON t TO bob",
    "ALTER KEYSPACE mail WITH durable_writes = false",
    "UPDATE t SET v = 'a' WHERE k = 1 AND c = 1",
)


@pytest.mark.parametrize("text", HONOURED)
def test_if_exists_and_if_not_exists_are_honoured(text: str) -> None:
    assert after(text) == BEFORE


INVERSE = (
    "CREATE TYPE n (a int); DROP TYPE n",
    "CREATE TABLE n (k int PRIMARY KEY); DROP TABLE n",
    "CREATE TABLE n (k int PRIMARY KEY, v int); CREATE INDEX ON n (v); DROP TABLE n",
    "ALTER TABLE t ADD x int; ALTER TABLE t DROP x",
    "ALTER TABLE base RENAME k TO x; ALTER TABLE base RENAME x TO k",
    "ALTER TYPE place RENAME street TO road; ALTER TYPE place RENAME road TO street",
    "CREATE INDEX ON base (v); DROP INDEX base_v_idx",
    (
        "CREATE MATERIALIZED VIEW n AS SELECT k, c, v FROM base WHERE k = 1 AND c = 1 PRIMARY KEY (k, c); "
        "DROP MATERIALIZED VIEW n"
    ),
)


@pytest.mark.parametrize("text", INVERSE)
def test_one_undoes_the_other(text: str) -> None:
    assert after(text) == BEFORE


def test_what_was_dropped_is_remembered_with_tuples_for_its_types() -> None:
    dropped = after("ALTER TABLE t DROP f").tables[0].dropped
    assert Column("f", "tuple<text,list<int>>") in dropped
    assert Column("gone", "blob") in after("ALTER TABLE t ADD gone blob").tables[0].columns


def test_options_are_set_one_by_one() -> None:
    changed = after(
        "ALTER TABLE t WITH comment = 'new' AND compaction = {'class': 'LeveledCompactionStrategy'} AND a = 1;"
        "ALTER TABLE t WITH b = 2; ALTER TABLE old DROP COMPACT STORAGE"
    )
    table = changed.table("t")
    assert table is not None
    assert table.compaction is not None
    assert (table.comment, table.compaction.strategy) == ("new", "LeveledCompactionStrategy")
    assert table.options == {"a": "1", "b": "2"}
    assert all(COMPACT_STORAGE not in one.options for one in changed.tables)


@settings(max_examples=5)
@given(stories(views=True))
def test_every_story_leaves_a_schema_that_agrees_with_itself(story: list[Statement]) -> None:
    schema = EMPTY
    for statement in story:
        with suppress(SchemaRefused):
            schema = statement.apply(schema)
    names = {table.name for table in schema.tables}
    assert len(names) == len(schema.tables)
    assert {index.table.strip('"') for index in schema.indexes} <= names
    assert {view.base.strip('"') for view in schema.views} <= names
    assert differences(schema, replace(schema)) == ()


@pytest.mark.parametrize(
    "kind",
    [
        "frozen<list<list<int>>>",
        "frozen<map<text, set<place>>>",
        "list<frozen<list<int>>>",
        "map<int, duration>",
        "list<duration>",
        "tuple<duration, list<int>>",
        "vector<float, 3>",
        "vector<duration, 3>",
        "list<vector<float, 3>>",
        "frozen<place>",
        "flat",
        "list<frozen<flat>>",
        "tuple<place, flat>",
        "'org.example.OwnType'",
        "VARCHAR",
        'frozen<"place">',
    ],
)
def test_types_that_a_server_takes_in_a_column(kind: str) -> None:
    assert after(f"ALTER TABLE t ADD x {kind}").tables[0].names[-1] == "x"


SPELLED = (
    ("ALTER TABLE t DROP F", "ALTER TABLE t DROP f"),
    ("ALTER TABLE T ADD x int", 'ALTER TABLE "t" ADD x int'),
    ("ALTER TABLE base RENAME K TO x", "ALTER TABLE base RENAME k TO x"),
    ("ALTER TYPE PLACE RENAME Street TO road", "ALTER TYPE place RENAME street TO road"),
    ("ALTER TABLE t ADD IF NOT EXISTS V int", "TRUNCATE t"),
    ("ALTER TABLE t DROP IF EXISTS (Nothing, f)", "ALTER TABLE t DROP f"),
    ("ALTER TYPE place ADD IF NOT EXISTS STREET int", "TRUNCATE t"),
    ("ALTER TYPE place RENAME IF EXISTS nothing TO x AND street TO road", "ALTER TYPE place RENAME street TO road"),
    ("ALTER TABLE IF EXISTS nowhere DROP a", "TRUNCATE t"),
    ("DROP INDEX T_V_IDX", "DROP INDEX t_v_idx"),
    ("DROP MATERIALIZED VIEW Seen", 'DROP MATERIALIZED VIEW "seen"'),
    ("ALTER TABLE t WITH comment = 'a'; ALTER TABLE t WITH comment = 'b'", "ALTER TABLE t WITH comment = 'b'"),
    ("ALTER TABLE t ADD gone text; ALTER TABLE t DROP gone", "TRUNCATE t"),
)


@pytest.mark.parametrize(("text", "same"), SPELLED)
def test_spellings_of_one_name_do_the_same(text: str, same: str) -> None:
    one, other = after(text), after(same)
    assert one == other
    assert [table.dropped for table in one.tables] == [table.dropped for table in other.tables]


def test_a_type_grows_at_its_end() -> None:
    grown = after("ALTER TYPE place ADD x int; ALTER TYPE house ADD y frozen<flat>")
    assert [user_type.fields[-1] for user_type in grown.types] == [
        ("x", "int"),
        ("number", "int"),
        ("y", "frozen<flat>"),
    ]


def test_a_table_made_anew_keeps_its_place_and_an_index_goes_with_its_table() -> None:
    dropped = after("CREATE INDEX ON base (v); DROP TABLE t")
    assert [index.spelling for index in dropped.indexes] == ["base_v_idx"]
    assert [table.name for table in dropped.tables] == ["T", "counts", "old", "base"]


@pytest.mark.parametrize(
    ("was", "comes"),
    [
        ("ascii", "text"),
        ("ascii", "blob"),
        ("timestamp", "bigint"),
        ("bigint", "timestamp"),
        ("timeuuid", "uuid"),
        ("varint", "blob"),
        ("list<int>", "list<int>"),
        ("frozen<place>", "tuple<text, list<int>>"),
        ("varchar", "text"),
    ],
)
def test_a_column_may_come_back_wider(was: str, comes: str) -> None:
    there = f"ALTER TABLE t ADD x {was}; ALTER TABLE t DROP x; ALTER TABLE t ADD x {comes}"
    table = after(there).table("t")
    assert table is not None
    assert table.column("x").type == comes.replace(", ", ",")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE CUSTOM INDEX one ON base (v) USING 'sai'; CREATE CUSTOM INDEX two ON base (w) USING 'sai'",
        "CREATE INDEX one ON base (v); CREATE CUSTOM INDEX two ON base (v) USING 'sai'",
        "CREATE CUSTOM INDEX one ON t (keys(m)) USING 'sai'; CREATE CUSTOM INDEX two ON t (values(m)) USING 'sai'",
        "CREATE INDEX one ON t (keys(m)); CREATE INDEX two ON t (entries(m)); CREATE INDEX three ON t (m)",
        "CREATE TABLE n (k int, d int, PRIMARY KEY ((k, d))); CREATE INDEX ON n (k)",
        "CREATE TABLE n (k int PRIMARY KEY, l frozen<list<int>>); CREATE INDEX ON n (full(l))",
        "ALTER TABLE t WITH gc_grace_seconds = 0",
        "ALTER TABLE base WITH gc_grace_seconds = 5",
        "ALTER TABLE IF EXISTS t WITH comment = 'a'",
        "ALTER TABLE counts WITH default_time_to_live = '0'",
        "ALTER TABLE t WITH default_time_to_live = 5",
        "ALTER MATERIALIZED VIEW seen WITH default_time_to_live = '0'",
        "ALTER MATERIALIZED VIEW IF EXISTS seen WITH comment = 'a'",
        "DROP TABLE IF EXISTS t",
    ],
)
def test_what_a_server_takes_is_taken(text: str) -> None:
    assert after(text) != BEFORE


def test_the_id_of_a_table_is_no_option_of_it() -> None:
    made = after("CREATE TABLE n (k int PRIMARY KEY) WITH id = 5ac1a1ba-65d2-4a26-b4e6-8f0a3c0c0a01 AND cdc = true")
    assert made.tables[-1].options == {"cdc": "true"}
