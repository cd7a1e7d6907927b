"""A schema after each statement: what is there afterwards, what is refused, and why.

That a server says the same is tested on a real one (`tests/integration/test_fold.py`).
"""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings

from cql.language.parser import parse
from model.errors import SchemaRefused
from model.schema.difference import differences
from model.schema.keyspace import EMPTY, Schema
from model.schema.statements import CreateType, Name, NamedStatement, Statement, apply_all
from model.schema.table import COMPACT_STORAGE, Column, Kind, UserType
from tests.support.ddl_stories import stories

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
        CREATE TABLE old (k int PRIMARY KEY) WITH COMPACT STORAGE;
        CREATE TABLE base (k int, c int, v text, w text, PRIMARY KEY (k, c));
        CREATE MATERIALIZED VIEW seen AS SELECT * FROM base WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k);
        CREATE INDEX ON t (v);
        CREATE INDEX by_c ON t (c);
        ALTER TABLE t ADD gone text;
        ALTER TABLE t DROP gone;
        """
    )
)


def after(text: str, schema: Schema = BEFORE) -> Schema:
    return apply_all(parse(text), schema)


REFUSED: tuple[tuple[str, str], ...] = (
    ("CREATE TYPE place (a int)", "CREATE TYPE place: it exists already"),
    ("CREATE TYPE p (a nowhere)", "names the user type nowhere, which does not exist"),
    ("CREATE TYPE p (a flat)", "the field a is of a user type, so it must be frozen"),
    ("CREATE TYPE p (a counter)", "the field a cannot be a counter"),
    ("ALTER TYPE nowhere ADD a int", "ALTER TYPE ADD nowhere: there is no such type"),
    ("ALTER TYPE place ADD street int", "it has a field street already"),
    ("ALTER TYPE place ADD a frozen<house>", "the field a would hold the type itself"),
    ("ALTER TYPE flat ADD a int", 'it is in the partition key of "T"'),
    ("ALTER TYPE place RENAME nothing TO a", "it has no field nothing"),
    ("ALTER TYPE place RENAME street TO codes", "it would have two fields codes"),
    ("DROP TYPE place", "the type house, the table t still uses it"),
    ("DROP TYPE nowhere", "there is no such type"),
    ("CREATE TABLE t (k int PRIMARY KEY)", "CREATE TABLE t: it exists already"),
    ("CREATE TABLE seen (k int PRIMARY KEY)", "it exists already"),
    ('CREATE TABLE "odd name" (k int PRIMARY KEY)', "a name has at most 48 letters"),
    ("CREATE TABLE n (k list<int> PRIMARY KEY)", "the key column k cannot be a list that is not frozen"),
    ("CREATE TABLE n (k flat PRIMARY KEY)", "be of a user type that is not frozen"),
    ("CREATE TABLE n (k duration PRIMARY KEY)", "hold durations, which have no order"),
    ("CREATE TABLE n (k tuple<duration> PRIMARY KEY)", "hold durations, which have no order"),
    ("CREATE TABLE n (k counter PRIMARY KEY)", "the key column k cannot be a counter"),
    ("CREATE TABLE n (k int PRIMARY KEY, v place)", "holds collections, so it must be frozen"),
    ("CREATE TABLE n (k int PRIMARY KEY, v list<list<int>>)", "holds list<int>, which must be frozen there"),
    ("CREATE TABLE n (k int PRIMARY KEY, v list<flat>)", "holds the user type flat, which must be frozen there"),
    ("CREATE TABLE n (k int PRIMARY KEY, v list<counter>)", "holds counters"),
    ("CREATE TABLE n (k int PRIMARY KEY, v set<duration>)", "has durations as elements"),
    ("CREATE TABLE n (k int PRIMARY KEY, v map<duration, int>)", "has durations as keys"),
    ("CREATE TABLE n (k int PRIMARY KEY, v frozen<int>)", "freezes int"),
    ("CREATE TABLE n (k int PRIMARY KEY, v int STATIC)", "is static, but the table has no clustering column"),
    ("CREATE TABLE n (k int PRIMARY KEY, v int, n counter)", "it mixes counters with other columns"),
    ("CREATE TABLE n (k int PRIMARY KEY, n counter) WITH default_time_to_live = 5", "counters never expire"),
    ("CREATE TABLE n (k int PRIMARY KEY) WITH compaction = {'enabled': 'true'}", "its compaction names no class"),
    ("ALTER TABLE nowhere ADD a int", "ALTER TABLE ADD nowhere: there is no such table"),
    ("ALTER TABLE seen ADD a int", "it is a materialized view, not a table"),
    ("ALTER TABLE t ADD v int", "it has a column v already"),
    ("ALTER TABLE t ADD (x int, x int)", "it has a column x already"),
    ("ALTER TABLE t ADD gone int", "gone was dropped as text, so it cannot come back as int"),
    ("ALTER TABLE t ADD gone text STATIC", "gone was dropped as a regular column"),
    ("ALTER TABLE t ADD n counter", "n would mix counters with other columns"),
    ("ALTER TABLE counts ADD n2 int", "n2 would mix counters with other columns"),
    ("ALTER TABLE counts DROP n; ALTER TABLE counts ADD n counter", "a counter cannot come back"),
    ('ALTER TABLE "T" ADD s int STATIC', "is static, but the table has no clustering column"),
    ("ALTER TABLE old ADD a int", "it has compact storage"),
    ("ALTER TABLE t DROP nothing", "it has no column nothing"),
    ("ALTER TABLE t DROP c", "c is part of the key"),
    ("ALTER TABLE t DROP u", "u is of a user type that is not frozen"),
    ("ALTER TABLE t DROP v", "the index t_v_idx is on v: drop it first"),
    ("ALTER TABLE base DROP v", "materialized views are made of it (seen)"),
    ("ALTER TABLE t RENAME v TO w", "v is not part of the key"),
    ("ALTER TABLE t RENAME k TO v", "it has a column v already"),
    ("ALTER TABLE t RENAME nothing TO w", "it has no column nothing"),
    ("ALTER TABLE t RENAME c TO d", "the index by_c is on c"),
    ("ALTER TABLE base RENAME k TO x AND c TO x", "is named twice"),
    ("ALTER TABLE nowhere WITH comment = 'a'", "ALTER TABLE WITH nowhere: there is no such table"),
    ("ALTER TABLE t WITH id = 5", "the id of a table cannot be changed"),
    ("ALTER TABLE base WITH gc_grace_seconds = 0", "gc_grace_seconds cannot be 0"),
    ("ALTER TABLE t DROP COMPACT STORAGE", "it has no compact storage"),
    ("ALTER MATERIALIZED VIEW nowhere WITH comment = 'a'", "there is no such materialized view"),
    ("ALTER MATERIALIZED VIEW seen WITH gc_grace_seconds = 0", "cannot be 0"),
    ("ALTER MATERIALIZED VIEW seen WITH default_time_to_live = 5", "belongs there"),
    ("DROP TABLE nowhere", "there is no such table"),
    ("DROP TABLE seen", "it is a materialized view"),
    ("DROP TABLE base", "materialized views are made of it: seen"),
    ("DROP INDEX nowhere", "there is no such index"),
    ("DROP MATERIALIZED VIEW t", "there is no such materialized view"),
    ("TRUNCATE nowhere", "there is no such table"),
    ("CREATE INDEX by_c ON base (v)", "an index of that name exists already"),
    ("CREATE INDEX ON t (c)", "the index by_c is the same already"),
    ("CREATE INDEX ON t (nothing)", "the table has no column nothing"),
    ("CREATE INDEX ON t (u)", "u is of a user type that is not frozen"),
    ("CREATE INDEX ON t (keys(v))", "keys() is for maps"),
    ("CREATE INDEX ON t (full(v))", "full() is for frozen collections"),
    ("CREATE INDEX ON t (values(v))", "values() is for collections"),
    ("CREATE INDEX ON t (c, v)", "only indexes of a class of their own can have several columns"),
    ('CREATE INDEX ON "T" (k)', "k is the whole partition key"),
    ("CREATE INDEX ON counts (n)", "a table of counters can have no index"),
    (
        "CREATE MATERIALIZED VIEW n AS SELECT * FROM nowhere WHERE k IS NOT NULL PRIMARY KEY (k)",
        "there is no such table",
    ),
    ("CREATE MATERIALIZED VIEW n AS SELECT x FROM base WHERE k IS NOT NULL PRIMARY KEY (k, c)", "has no column x"),
    ("CREATE MATERIALIZED VIEW n AS SELECT v FROM base WHERE k IS NOT NULL PRIMARY KEY (k)", "its key lacks c"),
    (
        "CREATE MATERIALIZED VIEW n AS SELECT v FROM base WHERE k IS NOT NULL PRIMARY KEY (k, c, v, w)",
        "but only one column outside the key",
    ),
    ("CREATE MATERIALIZED VIEW n AS SELECT v FROM base WHERE k IS NOT NULL PRIMARY KEY (k, c)", "must say that c"),
    (
        "CREATE MATERIALIZED VIEW n AS SELECT v FROM base WHERE k = 1 AND c > 0 AND v > 'a' PRIMARY KEY (k, c)",
        "speaks of v, which is not in its key",
    ),
    ("CREATE MATERIALIZED VIEW n AS SELECT * FROM counts WHERE k IS NOT NULL PRIMARY KEY (k)", "made of counters"),
    ("CREATE MATERIALIZED VIEW n AS SELECT * FROM t WHERE k = 1 AND c = 1 PRIMARY KEY (k, c)", "s is static"),
    ("INSERT INTO nowhere (a) VALUES (1)", "INSERT nowhere: there is no such table"),
    ("BEGIN BATCH DELETE x FROM t WHERE k = 1 AND c = 1; APPLY BATCH", "the table has no column x"),
    # names and types are compared as the server knows them: in any case, in quotes or not
    ('ALTER TYPE place ADD "street" int', 'it has a field "street" already'),
    ("ALTER TYPE place ADD STREET int", "it has a field STREET already"),
    ("ALTER TYPE place ADD street counter", "the field street cannot be a counter"),
    ("ALTER TYPE place ADD IF NOT EXISTS street counter", "the field street cannot be a counter"),
    ("ALTER TYPE place ADD x frozen<place>", "would hold the type itself"),
    ("ALTER TYPE place RENAME street TO CODES", "it would have two fields codes"),
    ("DROP TYPE PLACE", "Drop what uses it first."),
    ("DROP TYPE flat", 'the table t, the table "T" still uses it'),
    ("ALTER TABLE t ADD IF NOT EXISTS v nowhere", "names the user type nowhere"),
    ("ALTER TABLE IF EXISTS seen ADD a int", "it is a materialized view"),
    ("ALTER TABLE IF EXISTS seen DROP v", "it is a materialized view"),
    ("ALTER TABLE IF EXISTS seen WITH comment = 'a'", "it is a materialized view"),
    ("DROP TABLE IF EXISTS seen", "it is a materialized view"),
    ("ALTER TABLE IF EXISTS t ADD v int", "it has a column v already"),
    ("ALTER TABLE t ADD V int", "it has a column V already"),
    ("ALTER TABLE t DROP C", "C is part of the key"),
    ("ALTER TABLE t DROP V", "the index t_v_idx is on v"),
    ("ALTER TABLE base RENAME k TO x AND k TO y", "is named twice"),
    ("ALTER TABLE base RENAME K TO x AND k TO y", "is named twice"),
    ("ALTER TABLE base RENAME k TO x AND c TO X", "is named twice"),
    ("ALTER TABLE base RENAME k TO V", "it has a column V already"),
    ('CREATE INDEX ON t ("C")', "the table has no column C"),
    ("CREATE INDEX BY_C ON base (v)", "an index of that name exists already"),
    (
        "CREATE CUSTOM INDEX one ON base (v) USING 'sai'; CREATE CUSTOM INDEX two ON base (v) USING 'sai'",
        "v has a storage-attached index already: one",
    ),
    (
        (
            "CREATE CUSTOM INDEX one ON base (v) USING 'sai';"
            "CREATE CUSTOM INDEX two ON base (v) USING 'StorageAttachedIndex'"
        ),
        "v has a storage-attached index already: one",
    ),
    ("CREATE TABLE n (k int PRIMARY KEY, l frozen<list<int>>); CREATE INDEX ON n (l)", "so only full(l) can be"),
    ("CREATE TABLE n (k int PRIMARY KEY, d duration); CREATE INDEX ON n (d)", "d holds durations"),
    ("CREATE TABLE n (k int PRIMARY KEY, l list<int>); CREATE INDEX ON n (entries(l))", "entries() is for maps"),
    ("ALTER TABLE counts WITH default_time_to_live = 5", "counters never expire"),
    ("ALTER TABLE t WITH compaction = {}", "its compaction names no class"),
    ("ALTER MATERIALIZED VIEW seen WITH compaction = {'enabled': 'true'}", "its compaction names no class"),
    ("ALTER MATERIALIZED VIEW seen WITH gc_grace_seconds = '0'", "cannot be 0"),
    (
        (
            "CREATE TABLE n (k int, c int, PRIMARY KEY (k, c)) WITH gc_grace_seconds = 0;"
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM n WHERE k = 1 AND c = 1 PRIMARY KEY (c, k)"
        ),
        "gc_grace_seconds of its base is 0",
    ),
    (
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM base WHERE k = 1 AND c = 1 PRIMARY KEY (c, k)"
            " WITH default_time_to_live = 5"
        ),
        "default_time_to_live belongs there",
    ),
    ("CREATE MATERIALIZED VIEW t AS SELECT * FROM base WHERE k = 1 AND c = 1 PRIMARY KEY (c, k)", "exists already"),
    ("CREATE MATERIALIZED VIEW m AS SELECT * FROM seen WHERE k = 1 AND c = 1 PRIMARY KEY (c, k)", "a materialized"),
)


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_a_server_would_refuse_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(text)
    assert reason in str(refused.value)


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
        "CREATE MATERIALIZED VIEW n AS SELECT v FROM base WHERE k = 1 AND c = 1 PRIMARY KEY (k, c); "
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


def test_a_rename_reaches_the_views() -> None:
    (view,) = after('ALTER TABLE base RENAME k TO "K k"').views
    assert view.table.names == ("c", "K k", "v", "w")
    assert view.where == '"K k" IS NOT NULL AND c IS NOT NULL'


def test_a_column_that_is_added_reaches_the_views_that_select_all() -> None:
    (view,) = after("ALTER TABLE base ADD x int").views
    assert view.table.columns[-1] == Column("x", "int")
    assert view.table.columns[0] == Column("c", "int", Kind.PARTITION)


def test_indexes_are_named_and_aimed_as_a_server_does_it() -> None:
    made = after('CREATE INDEX ON t (M); CREATE INDEX ON t (keys(m)); CREATE INDEX "Own" ON "T" ("v")').indexes[2:]
    assert [(one.spelling, one.table, one.target) for one in made] == [
        ("t_m_idx", "t", "values(m)"),
        ("t_m_idx_1", "t", "keys(m)"),
        ('"Own"', '"T"', "v"),
    ]


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


def test_a_name_in_quotes_is_another() -> None:
    with pytest.raises(SchemaRefused, match="There is counts: a name in double quotes keeps its case"):
        after('DROP TABLE "Counts"')


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


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("list<nowhere>", "names the user type nowhere, which does not exist"),
        ("vector<nowhere, 3>", "names the user type nowhere"),
        ("frozen<map<int, nowhere>>", "names the user type nowhere"),
        ('frozen<"Place">', 'names the user type "Place"'),
        ("tuple<counter>", "holds counters, which only columns can be"),
        ("frozen<list<counter>>", "holds counters"),
        ("frozen<map<duration, int>>", "has durations as keys"),
        ("frozen<set<duration>>", "has durations as elements"),
        ("set<list<int>>", "holds list<int>, which must be frozen there"),
        ("map<int, place>", "holds the user type place, which must be frozen there"),
        ("frozen<frozen<int>>", "freezes int, which is frozen anyway"),
        ("list<frozen<text>>", "freezes text"),
    ],
)
def test_types_that_no_server_takes(kind: str, reason: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(f"ALTER TABLE t ADD x {kind}")
    assert reason in str(refused.value)
    assert " of x " in str(refused.value)


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


@pytest.mark.parametrize("text", [text for text, _ in REFUSED if "BATCH" not in text])
def test_a_refusal_names_the_object_with_its_keyspace(text: str) -> None:
    *first, last = parse(text)
    statement = last.statement
    assert isinstance(statement, NamedStatement)
    elsewhere = replace(statement, name=replace(statement.name, keyspace="shop"))
    with pytest.raises(SchemaRefused, match=r" shop\.[^:]+: "):
        elsewhere.apply(apply_all(first, BEFORE))


def test_a_static_column_is_in_no_view() -> None:
    changed = after("ALTER TABLE base ADD s int STATIC")
    assert changed.views == BEFORE.views
    base = changed.table("base")
    assert base is not None
    assert base.columns[-1] == Column("s", "int", Kind.STATIC)


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
    ("was", "comes"),
    [("text", "ascii"), ("int", "bigint"), ("bigint", "blob"), ("uuid", "timeuuid"), ("list<int>", "blob")],
)
def test_a_column_never_comes_back_narrower(was: str, comes: str) -> None:
    with pytest.raises(SchemaRefused, match=f"x was dropped as {was}, so it cannot come back as {comes}"):
        after(f"ALTER TABLE t ADD x {was}; ALTER TABLE t DROP x; ALTER TABLE t ADD x {comes}")


def test_a_type_that_names_a_field_twice_is_refused_whoever_made_the_statement() -> None:
    twice = CreateType(Name("pair"), UserType("pair", (("a", "int"), ("A", "text"))))
    with pytest.raises(SchemaRefused, match="CREATE TYPE pair: it names the field A twice"):
        twice.apply(EMPTY)
    apart = UserType("pair", (("a", "int"), ('"A"', "text")))
    assert CreateType(Name("pair"), apart).apply(EMPTY).types == (apart,)


VIEW = "CREATE MATERIALIZED VIEW m AS SELECT {} FROM base WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k)"


def test_a_view_has_its_own_order_and_not_that_of_its_base() -> None:
    base = "CREATE TABLE n (k int, c int, d int, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC, d DESC);"
    keyed = "k IS NOT NULL AND c IS NOT NULL AND d IS NOT NULL PRIMARY KEY (d, c, k)"
    plain, turned = (
        after(f"{base} CREATE MATERIALIZED VIEW m AS SELECT * FROM n WHERE {keyed}{tail}").view("m")
        for tail in ("", " WITH CLUSTERING ORDER BY (c ASC, k DESC)")
    )
    assert plain is not None
    assert turned is not None
    assert [(column.name, column.descending) for column in plain.table.columns] == [
        ("d", False),
        ("c", False),
        ("k", False),
    ]
    assert [column.descending for column in turned.table.columns] == [False, False, True]


def test_a_view_may_have_one_column_more_in_its_key() -> None:
    text = "CREATE MATERIALIZED VIEW m AS SELECT {} FROM base WHERE k > 0 AND c > 0 AND v > 'a' PRIMARY KEY (v, c, k)"
    few, all_of_it = (after(text.format(columns)).view("m") for columns in ("v", "*"))
    assert few is not None
    assert all_of_it is not None
    assert few.table.names == ("v", "c", "k")
    assert all_of_it.table.names == ("v", "c", "k", "w")
    assert {column.name: column.kind for column in all_of_it.table.columns}["v"] is Kind.PARTITION


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        (VIEW.format("*") + "; " + VIEW.format("v"), "Add IF NOT EXISTS, or leave it out."),
        ("CREATE TABLE t (k int PRIMARY KEY)", "Add IF NOT EXISTS, or leave it out."),
        ("CREATE TYPE place (a int)", "Add IF NOT EXISTS, or leave it out."),
        ("CREATE INDEX by_c ON base (v)", "Add IF NOT EXISTS."),
        ("ALTER TYPE place ADD street int", "Add IF NOT EXISTS after ADD."),
        ("ALTER TABLE t ADD v int", "Add IF NOT EXISTS after ADD (4.1 and later)."),
        ("ALTER TYPE place RENAME nothing TO a", "Its fields: street, codes."),
        ("DROP TYPE place", "Drop what uses it first."),
        ("DROP TABLE base", "Drop them first: DROP MATERIALIZED VIEW."),
        ("DROP TABLE seen", "Change its base table, or use the statements for materialized views."),
        ("DROP TABLE nowhere", ""),
    ],
)
def test_a_refusal_says_how_to_mend_it(text: str, mend: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(text)
    assert refused.value.mend == mend


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("CREATE INDEX ON base (v); CREATE INDEX ON base (w)", ["base_v_idx", "base_w_idx"]),
        (
            "CREATE CUSTOM INDEX ON base (v) USING 'a.B'; CREATE CUSTOM INDEX ON base (v) USING 'a.C'",
            ["base_v_idx", "base_v_idx_1"],
        ),
        ("CREATE CUSTOM INDEX ON base (v, w) USING 'a.B'", ["base_idx"]),
        ('CREATE INDEX ON "T" (v)', ['"T_v_idx"']),
        ('ALTER TABLE base ADD "odd name" int; CREATE INDEX ON base ("odd name")', ["base_oddname_idx"]),
        ("CREATE INDEX base_v_idx ON base (w); CREATE INDEX ON base (v)", ["base_v_idx", "base_v_idx_1"]),
    ],
)
def test_an_index_without_a_name_gets_the_servers(text: str, names: list[str]) -> None:
    assert [one.spelling for one in after(text).indexes[2:]] == names


@pytest.mark.parametrize("using", ["'legacy_local_table'", "'LEGACY_LOCAL_TABLE'"])
def test_the_built_in_index_is_one_whether_it_is_named_or_not(using: str) -> None:
    (made,) = after(f"CREATE CUSTOM INDEX x ON base (v) USING {using}").indexes[2:]
    assert made == after("CREATE INDEX x ON base (v)").indexes[2]


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


def test_options_of_a_view_are_the_views() -> None:
    changed = after("ALTER MATERIALIZED VIEW seen WITH gc_grace_seconds = 7")
    assert [view.table.options for view in changed.views] == [{"gc_grace_seconds": "7"}]
    assert changed.tables == BEFORE.tables


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ALTER TABLE shop.t WITH compaction = {'a': 'b'}", "ALTER TABLE WITH shop.t: its compaction names no class"),
        (
            "ALTER MATERIALIZED VIEW shop.seen WITH compaction = {'a': 'b'}",
            "ALTER MATERIALIZED VIEW WITH shop.seen: its compaction names no class",
        ),
        ("ALTER TABLE nowhere WITH compaction = {'a': 'b'}", "ALTER TABLE WITH nowhere: its compaction names no class"),
        ("ALTER TABLE base WITH gc_grace_seconds = '0'", "ALTER TABLE WITH base: materialized views are made of it"),
    ],
)
def test_options_are_judged_before_whether_their_table_is_there(text: str, told: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(text)
    assert str(refused.value).startswith(told)


SOME = "CREATE MATERIALIZED VIEW {} AS SELECT {} FROM {} WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SOME.format('"odd name"', "v", "base"), "a name has at most 48 letters"),
        (SOME.format("n" * 49, "v", "base"), "a name has at most 48 letters"),
        (f"ALTER TABLE w WITH gc_grace_seconds = '0'; {SOME.format('m', 'v', 'w')}", "of its base is 0"),
        (SOME.format("m", "s", "t"), "s is static, which no view can hold"),
    ],
)
def test_what_no_view_can_be(text: str, reason: str) -> None:
    schema = after("CREATE TABLE w (k int, c int, v text, PRIMARY KEY (k, c))")
    with pytest.raises(SchemaRefused) as refused:
        after(text, schema)
    assert reason in str(refused.value)


def test_a_view_may_leave_out_what_it_cannot_hold() -> None:
    view = after(SOME.format("n" * 48, "v", "t")).view("n" * 48)
    assert view is not None
    assert view.table.names == ("c", "k", "v")


def test_a_view_masks_what_its_base_masks() -> None:
    made = after(
        f"CREATE TABLE n (k int, c int, v text MASKED WITH DEFAULT, PRIMARY KEY (k, c)); {SOME.format('m', 'v', 'n')}"
    )
    view, base = made.view("m"), made.table("n")
    assert view is not None
    assert base is not None
    assert view.table.column("v").mask == base.column("v").mask != ""


def test_of_two_views_that_differ_in_case_one_is_dropped() -> None:
    both = after(f"{SOME.format('m', 'v', 'base')}; {SOME.format(chr(34) + 'M' + chr(34), 'v', 'base')}")
    assert [view.table.name for view in after("DROP MATERIALIZED VIEW M", both).views] == ["seen", "M"]
    assert [view.table.name for view in after('DROP MATERIALIZED VIEW "M"', both).views] == ["seen", "m"]
