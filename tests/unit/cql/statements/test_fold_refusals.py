"""What no server would do to a schema is refused: why, of which object, and how to mend it."""

from dataclasses import replace

import pytest

from mailmend.cql.language.parser import parse
from mailmend.cql.statements import CreateType, Name, NamedStatement, apply_all
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import EMPTY
from mailmend.model.table import UserType
from tests.support.ddl_stories import BEFORE, after

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
    ('CREATE TABLE "odd name" (k int PRIMARY KEY)', "a name has at most 207 letters"),
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
    *(
        (f"CREATE TABLE n (k int, c int, {columns}, PRIMARY KEY ({key})) WITH COMPACT STORAGE", problem)
        for columns, key, problem in (
            ("v int STATIC", "k, c", "a table with COMPACT STORAGE has no static columns"),
            ("v list<int>", "k, c", "a table with COMPACT STORAGE has only frozen collections"),
            ("v set<int>", "k, c", "a table with COMPACT STORAGE has only frozen collections"),
            ("v map<int, int>", "k, c", "a table with COMPACT STORAGE has only frozen collections"),
            ("v int, w int", "k, c", "with clustering columns, COMPACT STORAGE takes one column outside the key"),
            ("v int", "(k, c, v)", "COMPACT STORAGE without clustering columns needs a column outside the key"),
        )
    ),
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
    (f"ALTER TABLE t DROP x USING TIMESTAMP {2**63}", "its TIMESTAMP is out of range"),
    ("ALTER TABLE t DROP c", "c is part of the key"),
    ("ALTER TABLE t DROP u", "u is of a user type that is not frozen"),
    ("ALTER TABLE t DROP v", "the index t_v_idx is on v: drop it first"),
    ("ALTER TABLE base DROP v", "materialized views are made of it (seen)"),
    ("ALTER TABLE t RENAME v TO w", "v is not part of the key"),
    ("ALTER TABLE t RENAME k TO v", "it has a column v already"),
    ("ALTER TABLE t RENAME nothing TO w", "it has no column nothing"),
    ("ALTER TABLE t RENAME c TO d", "the index by_c is on c"),
    ("ALTER TABLE base RENAME k TO x AND c TO x", "two columns would be named x"),
    ("ALTER TABLE nowhere WITH comment = 'a'", "ALTER TABLE WITH nowhere: there is no such table"),
    ("ALTER TABLE t WITH id = 5", "the id of a table cannot be changed"),
    ("ALTER TABLE base WITH gc_grace_seconds = 0", "gc_grace_seconds cannot be 0"),
    ("ALTER TABLE t DROP COMPACT STORAGE", "it has no compact storage"),
    ("ALTER MATERIALIZED VIEW nowhere WITH comment = 'a'", "there is no such materialized view"),
    ("ALTER MATERIALIZED VIEW seen WITH gc_grace_seconds = 0", "cannot be 0"),
    ("ALTER MATERIALIZED VIEW seen WITH default_time_to_live = 5", "set default_time_to_live there"),
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
    ("CREATE CUSTOM INDEX ON t (v) USING 'nowhere'", "no server has an index of class nowhere"),
    ("CREATE CUSTOM INDEX ON t (v) USING 'legacy_local_table'", "is the class of an index without CUSTOM"),
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
    ("UPDATE base SET k = 1 WHERE k = 1 AND c = 1", "k is part of the key, which no UPDATE sets"),
    ("DELETE k FROM base WHERE k = 1 AND c = 1", "k is part of the key, which is deleted only with its row"),
    ("INSERT INTO nowhere (a) VALUES (1)", "INSERT nowhere: there is no such table"),
    ("BEGIN BATCH DELETE x FROM t WHERE k = 1 AND c = 1; APPLY BATCH", "the table has no column x"),
    # names and types are compared as the server knows them: in any case, in quotes or not
    ('ALTER TYPE place ADD "street" int', 'it has a field "street" already'),
    ("ALTER TYPE place ADD STREET int", "it has a field STREET already"),
    ("ALTER TYPE place ADD street counter", "the field street cannot be a counter"),
    ("ALTER TYPE place ADD IF NOT EXISTS street counter", "the field street cannot be a counter"),
    ("ALTER TYPE place ADD IF NOT EXISTS street place", "so it must be frozen"),
    ("ALTER TYPE place ADD IF NOT EXISTS street nowhere", "names the user type nowhere"),
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
    ("ALTER TABLE base RENAME k TO x AND c TO X", "two columns would be named x"),
    ("ALTER TABLE base RENAME k TO x AND k TO c", "it has a column c already"),
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
    *(
        (
            f"CREATE TABLE n (k int PRIMARY KEY, b {kind}); CREATE CUSTOM INDEX ON n ({target}) USING 'sai'",
            "b holds blobs, which no such index takes",
        )
        for kind, target in (
            ("blob", "b"),
            ("list<blob>", "b"),
            ("set<blob>", "b"),
            ("map<int, blob>", "b"),
            ("map<blob, int>", "keys(b)"),
        )
    ),
    ("CREATE CUSTOM INDEX ON t (v) USING 'sai' WITH OPTIONS = {'odd': 'a'}", "index has no option odd"),
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
        "set default_time_to_live there",
    ),
    ("CREATE MATERIALIZED VIEW t AS SELECT * FROM base WHERE k = 1 AND c = 1 PRIMARY KEY (c, k)", "exists already"),
    ("CREATE MATERIALIZED VIEW m AS SELECT * FROM seen WHERE k = 1 AND c = 1 PRIMARY KEY (c, k)", "a materialized"),
)


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_a_server_would_refuse_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(text)
    assert reason in str(refused.value)


def test_a_name_in_quotes_is_another() -> None:
    with pytest.raises(SchemaRefused, match="There is counts: a name in double quotes keeps its case"):
        after('DROP TABLE "Counts"')


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


@pytest.mark.parametrize("text", [text for text, _ in REFUSED if "BATCH" not in text])
def test_a_refusal_names_the_object_with_its_keyspace(text: str) -> None:
    *first, last = parse(text)
    statement = last.statement
    assert isinstance(statement, NamedStatement)
    elsewhere = replace(statement, name=replace(statement.name, keyspace="shop"))
    with pytest.raises(SchemaRefused, match=r" shop\.[^:]+: "):
        elsewhere.apply(apply_all(first, BEFORE))


@pytest.mark.parametrize("text", [text for text, _ in REFUSED if "BATCH" not in text])
def test_a_refusal_names_the_kind_of_statement_by_its_own_words(text: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(text)

    written = iter(text.rpartition(";")[2].split())
    assert all(word in written for word in refused.value.statement.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "BEGIN BATCH UPDATE counts SET n = n + 1 WHERE k = 1; DELETE FROM t WHERE k = 1; APPLY BATCH",
            "BATCH counts, t: no batch changes both counters and other columns",
        ),
        (
            "BEGIN COUNTER BATCH DELETE FROM t WHERE k = 1; APPLY BATCH",
            "BATCH t: a COUNTER batch changes only counters",
        ),
        (
            "BEGIN BATCH UPDATE counts SET n = n + 1 WHERE k = 1; APPLY BATCH",
            "BATCH counts: counters are changed in a COUNTER batch or an UNLOGGED one",
        ),
        (
            "BEGIN BATCH INSERT INTO t (k, c) VALUES (1, 1) IF NOT EXISTS; DELETE FROM t WHERE k = 2; APPLY BATCH",
            "BATCH t: a batch with IF changes only one partition",
        ),
        (
            "CREATE KEYSPACE \"odd name\" WITH replication = {'class': 'SimpleStrategy'}",
            (
                'CREATE KEYSPACE "odd name": '
                "the name of a keyspace has 1 to 48 letters, digits and underscores, also in double quotes"
            ),
        ),
        ("SELECT * FROM t WHERE v LIKE 'a%'", "SELECT t: LIKE needs an index of class SASIIndex on v"),
    ],
)
def test_what_is_about_several_tables_or_none_is_refused_as_a_whole(text: str, message: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(text)

    assert str(refused.value) == message


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
    ("text", "expected"),
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
def test_options_are_judged_before_whether_their_table_is_there(text: str, expected: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        after(text)
    assert str(refused.value).startswith(expected)
