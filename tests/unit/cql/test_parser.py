"""CQL as people write it, statement by statement, and how what is wrong is told."""

from dataclasses import replace

import pytest

from mailmend.cql.language.parser import parse
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    AlterKeyspace,
    Batch,
    CreateIndex,
    CreateKeyspace,
    CreateTable,
    CreateView,
    DropColumns,
    DropCompactStorage,
    DropIndex,
    DropKeyspace,
    DropTable,
    DropType,
    DropView,
    MaskColumn,
    Name,
    Other,
    RenameColumns,
    RenameFields,
    SetOptions,
    SetViewOptions,
    Statement,
    Truncate,
    Use,
    WriteKind,
    WriteRows,
)
from mailmend.cql.statements.base import CellChange, CellOperator, Compared, LeftSide
from mailmend.model.errors import CqlSyntaxError, ExitCode
from mailmend.model.keyspace import Index
from mailmend.model.table import COMPACT_STORAGE, Column, Compaction, Kind, Table


def one(text: str) -> Statement:
    (parsed,) = parse(text)
    return parsed.statement


def table(text: str) -> Table:
    statement = one(text)
    assert isinstance(statement, CreateTable)
    return statement.table


def test_a_table_with_everything() -> None:
    made = table(
        """
        create columnfamily if not exists Mail."Box" (
            owner text, "Id" timeuuid, at timestamp, uid bigint, total int static,
            words frozen < list < text > >, v vector<float, 3> masked with mask_default ( ), -- masks are of 5.0
            primary key ((owner, "Id"), at, uid),
        ) with clustering order by (at desc, uid asc) and comment = 'Bob''s'
          and compaction = {'class': 'org.apache.cassandra.db.compaction.LeveledCompactionStrategy', 'fanout_size': 10}
          and gc_grace_seconds = 0 and caching = {'keys' : 'ALL','rows_per_partition':'10'}
          and id = 5a1c395e-b41f-11e5-9f22-ba0be0483c18
        """
    )
    assert made == Table(
        '"Box"',
        (
            Column("owner", "text", Kind.PARTITION),
            Column('"Id"', "timeuuid", Kind.PARTITION),
            Column("at", "timestamp", Kind.CLUSTERING, descending=True),
            Column("uid", "bigint", Kind.CLUSTERING),
            Column("total", "int", Kind.STATIC),
            Column("words", "frozen<list<text>>"),
            Column("v", "vector<float,3>", mask="mask_default()"),
        ),
        "Bob's",
        Compaction("LeveledCompactionStrategy", {"fanout_size": "10"}),
        {
            "gc_grace_seconds": "0",
            "caching": "{'keys': 'ALL', 'rows_per_partition': '10'}",
            "id": "5a1c395e-b41f-11e5-9f22-ba0be0483c18",
        },
    )


def test_a_key_may_stand_with_its_column() -> None:
    assert table("CREATE TABLE t (b int, a int PRIMARY KEY)").columns == (
        Column("a", "int", Kind.PARTITION),
        Column("b", "int"),
    )


def test_compact_storage_is_kept_as_an_option() -> None:
    assert table("CREATE TABLE t (a int PRIMARY KEY) WITH COMPACT STORAGE").options == {COMPACT_STORAGE: "true"}
    assert one("ALTER TABLE t DROP COMPACT STORAGE") == DropCompactStorage(Name("t"))
    assert one("ALTER TABLE IF EXISTS t DROP COMPACT STORAGE") == DropCompactStorage(Name("t"), if_exists=True)


def test_a_type_of_the_same_keyspace_needs_no_keyspace() -> None:
    assert table("CREATE TABLE k.t (a int PRIMARY KEY, b frozen<K.own>)").column("b").type == "frozen<own>"
    with pytest.raises(CqlSyntaxError, match="cannot use a type of keyspace other"):
        parse("CREATE TABLE k.t (a int PRIMARY KEY, b frozen<other.own>)")


STATEMENTS: tuple[tuple[str, Statement], ...] = (
    ("USE mail", Use("mail")),
    (
        (
            "CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} "
            "AND durable_writes = TRUE"
        ),
        CreateKeyspace(
            "k",
            {"replication": "{'class': 'SimpleStrategy', 'replication_factor': 1}", "durable_writes": "true"},
            if_not_exists=True,
        ),
    ),
    ("DROP SCHEMA IF EXISTS k", DropKeyspace("k", if_exists=True)),
    ("TRUNCATE TABLE k.t", Truncate(Name("t", "k"))),
    (
        "ALTER TABLE t ADD IF NOT EXISTS (a int, b text STATIC)",
        AddColumns(Name("t"), (Column("a", "int"), Column("b", "text", Kind.STATIC)), if_not_exists=True),
    ),
    ("ALTER TABLE t DROP a USING TIMESTAMP 5", DropColumns(Name("t"), ("a",), timestamp="5")),
    (
        "CREATE CUSTOM INDEX i ON k.t (ENTRIES(m)) USING 'sai' WITH OPTIONS = {'a': 'b'}",
        CreateIndex(Name("t", "k"), Index("i", "t", "entries(m)", "sai", {"a": "b"})),
    ),
    ('CREATE INDEX ON t ("A")', CreateIndex(Name("t"), Index("", "t", '"A"'))),
    ("ALTER TABLE t ALTER a DROP MASKED", MaskColumn(Name("t"), "a", "")),
    ("ALTER SCHEMA IF EXISTS k WITH a = 1", AlterKeyspace("k", {"a": "1"}, if_exists=True)),
    ("ALTER KEYSPACE k WITH a = 1", AlterKeyspace("k", {"a": "1"})),
    ("CREATE SCHEMA k WITH a = 1", CreateKeyspace("k", {"a": "1"})),
    ("DROP KEYSPACE k", DropKeyspace("k")),
    ("DROP COLUMNFAMILY IF EXISTS k.t", DropTable(Name("t", "k"), if_exists=True)),
    ("DROP TABLE t", DropTable(Name("t"))),
    ("DROP TYPE t", DropType(Name("t"))),
    ("DROP INDEX k.i", DropIndex(Name("i", "k"))),
    ("DROP MATERIALIZED VIEW IF EXISTS v", DropView(Name("v"), if_exists=True)),
    ("TRUNCATE COLUMNFAMILY t", Truncate(Name("t"))),
    ("ALTER MATERIALIZED VIEW v WITH a = 1", SetViewOptions(Name("v"), {"a": "1"})),
    ("ALTER COLUMNFAMILY IF EXISTS t WITH a = 1", SetOptions(Name("t"), {"a": "1"}, if_exists=True)),
    ("ALTER TYPE IF EXISTS k.t ADD IF NOT EXISTS f int", AddField(Name("t", "k"), "f", "int", True, True)),
    (
        "ALTER TYPE t RENAME IF EXISTS a TO b AND c TO d",
        RenameFields(Name("t"), (("a", "b"), ("c", "d")), fields_if_exist=True),
    ),
    (
        'ALTER TABLE t RENAME a TO "B" AND c TO d',
        RenameColumns(Name("t"), (("a", '"B"'), ("c", "d"))),
    ),
    (
        "ALTER TABLE IF EXISTS t DROP IF EXISTS (a, b) USING TIMESTAMP 5",
        DropColumns(Name("t"), ("a", "b"), True, True, "5"),
    ),
    ("ALTER TABLE t DROP (a)", DropColumns(Name("t"), ("a",))),
    (
        "ALTER TABLE t ALTER IF EXISTS a MASKED WITH DEFAULT",
        MaskColumn(Name("t"), "a", "mask_default()", column_if_exists=True),
    ),
    ("ALTER TABLE t ALTER a MASKED WITH k.f(1, null, '*')", MaskColumn(Name("t"), "a", "k.f(1, null, '*')")),
    (
        "ALTER TABLE IF EXISTS t ALTER a MASKED WITH system.mask_inner(1,NULL)",
        MaskColumn(Name("t"), "a", "mask_inner(1, null)", if_exists=True),
    ),
    ("BEGIN COUNTER BATCH APPLY BATCH", Batch((), counter=True)),
    ("BEGIN UNLOGGED BATCH APPLY BATCH", Batch((), logged=False)),
)


@pytest.mark.parametrize(("text", "statement"), STATEMENTS, ids=[text[:40] for text, _ in STATEMENTS])
def test_each_kind_of_statement_is_read(text: str, statement: Statement) -> None:
    assert one(text) == statement
    assert [parsed.statement for parsed in parse(f"USE a; ;{text};\n;USE b")][1:-1] == [statement]
    if not {"'", '"'} & set(text):
        assert one(text.lower()) == statement


@pytest.mark.parametrize(
    "text",
    [
        *("LIST ROLES", "REVOKE ALL ON t FROM r", "DESCRIBE TABLES", "DESC TABLES", "ADD IDENTITY 'x' TO ROLE y"),
        *("GRANT SELECT ON k.t TO bob", "SELECT * FROM t WHERE a = ';'"),
        "CREATE OR REPLACE FUNCTION f () CALLED ON NULL INPUT RETURNS int LANGUAGE java AS ';'",
        *("DROP IDENTITY 'x'", "ATTACH SERVICE_LEVEL a TO b", "DETACH SERVICE_LEVEL FROM b"),
        *(f"{verb} {noun} x" for verb in ("CREATE", "ALTER", "DROP") for noun in ("ROLE", "USER", "FUNCTION")),
        *(f"CREATE {noun} x" for noun in ("AGGREGATE", "TRIGGER", "SERVICE_LEVEL")),
    ],
)
def test_what_changes_no_table_is_passed_over_up_to_its_semicolon(text: str) -> None:
    first, second = parse(f"{text};TRUNCATE t")

    assert isinstance(first.statement, Other)
    assert text.startswith(first.statement.words)
    assert text[len(first.statement.words)] == " "
    assert second.statement == Truncate(Name("t"))


def test_empty_statements_are_none() -> None:
    assert parse(" ; -- nothing\n;") == ()


WRITES: tuple[tuple[str, WriteRows], ...] = (
    (
        'INSERT INTO t (a, "B") VALUES (1, [now(), ?]) IF NOT EXISTS USING TTL 5 AND TIMESTAMP :at',
        WriteRows(Name("t"), WriteKind.INSERT, ("a", "B"), ":at", "5", True, {"a": "1", "B": "[now(), ?]"}),
    ),
    (
        'INSERT INTO t JSON \'{"a": 1, "\\"B\\"": "it\'\'s"}\' DEFAULT UNSET',
        WriteRows(Name("t"), WriteKind.INSERT, ("a", "B"), json={"a": 1, "B": "it's"}),
    ),
    (
        (
            "UPDATE k.t USING TIMESTAMP -5 SET a = a + 1, b['x'] = {1: 'y'}, c.f = (frozen<list<int>>) [1], a += 2 "
            "WHERE k = 'x' AND (c, d) >= (1, 2) AND m CONTAINS KEY 5 IF a IN (1, 2) AND b[1] = 2"
        ),
        WriteRows(Name("t", "k"), WriteKind.UPDATE, ("a", "b", "c"), "-5", None, True, {"k": "'x'"}),
    ),
    (
        "DELETE a, b[1], c.d FROM t WHERE k = ? IF EXISTS",
        WriteRows(Name("t"), WriteKind.DELETE, ("a", "b", "c"), conditional=True, values={"k": "?"}),
    ),
    ("DELETE FROM t WHERE token(k) > token(5) AND k IN ()", WriteRows(Name("t"), WriteKind.DELETE)),
)


@pytest.mark.parametrize(("text", "write"), WRITES, ids=[text[:30] for text, _ in WRITES])
def test_data_statements_are_read_as_far_as_rules_ask(text: str, write: WriteRows) -> None:
    parsed = one(text)
    assert isinstance(parsed, WriteRows)
    assert replace(parsed, where=(), only_if=(), cells=()) == write


def test_the_changes_of_cells_are_kept() -> None:
    parsed = one("UPDATE t SET a = a + 1, b[0] = 'x', c.\"F\" = 2, d = [1] + d, e -= {3}, f = 4 - 1 WHERE k = 1")
    assert isinstance(parsed, WriteRows)
    assert parsed.cells == (
        CellChange("a", CellOperator.ADD, "1"),
        CellChange("b", CellOperator.SET, "'x'", element="0"),
        CellChange("c", CellOperator.SET, "2", field_name="F"),
        CellChange("d", CellOperator.PREPEND, "[1]"),
        CellChange("e", CellOperator.SUBTRACT, "{3}"),
        CellChange("f", CellOperator.SET, "4 - 1"),
    )


def test_the_parts_that_a_delete_names_are_kept() -> None:
    parsed = one("DELETE a, b['x'], c.f FROM t WHERE k = 1")
    assert isinstance(parsed, WriteRows)
    assert parsed.cells == (
        CellChange("a", CellOperator.DELETE),
        CellChange("b", CellOperator.DELETE, element="'x'"),
        CellChange("c", CellOperator.DELETE, field_name="f"),
    )


def test_the_conditions_of_a_write_are_kept() -> None:
    parsed = one("DELETE FROM t WHERE k IN (1, 2) AND (c, d) >= (1, 2) AND token(e) = 5 IF v[1] = 2 AND w != 3")
    assert isinstance(parsed, WriteRows)
    assert parsed.where == (
        Compared(("k",), "IN", "(1, 2)"),
        Compared(("c", "d"), ">=", "(1, 2)", LeftSide.TUPLE),
        Compared(("e",), "=", "5", LeftSide.TOKEN),
    )
    assert parsed.only_if == (Compared(("v",), "=", "2", LeftSide.PART, "1"), Compared(("w",), "!=", "3"))


def test_a_clustering_order_names_the_first_columns_and_the_rest_ascends() -> None:
    made = table("CREATE TABLE t (k int, c int, d int, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC)")
    assert [(column.name, column.descending) for column in made.clustering] == [("c", True), ("d", False)]


def test_a_batch_gives_its_time_to_its_writes_and_says_where_their_names_stand() -> None:
    text = (
        "BEGIN UNLOGGED BATCH USING TIMESTAMP 9 AND TIMEOUT 5s "
        "DELETE FROM t WHERE k = 1; UPDATE u SET a = 1 WHERE k = 1 APPLY BATCH"
    )
    (parsed,) = parse(text)
    batch = parsed.statement
    assert isinstance(batch, Batch)
    assert [(write.timestamp, write.timeout) for write in batch.writes] == [("9", True), ("9", True)]
    assert not batch.logged
    names = [parsed.places["name", str(index)] for index in range(2)]
    assert [text[span.start : span.end] for span in names] == ["t", "u"]


def test_a_view_keeps_its_condition_in_one_spelling() -> None:
    view = one(
        "CREATE MATERIALIZED VIEW v AS SELECT a,b FROM k.t WHERE a is not null and b in( 1,2 ) PRIMARY KEY (b, a)"
    )
    assert isinstance(view, CreateView)
    assert view.view.where == "a IS NOT NULL AND b IN (1, 2)"
    assert [column.spelling for column in view.view.table.key] == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            "CREATE TABLE t (a int, \"B\" int, PRIMARY KEY (a)) WITH Comment = 'c'",
            {("column", "a"): "a", ("column", "B"): '"B"', ("key", ""): "(a)", ("option", "comment"): "Comment"},
        ),
        (
            "CREATE TABLE t (PRIMARY KEY ((k), c), k int, c int)",
            {("key", ""): "((k), c)", ("column", "k"): "k", ("column", "c"): "c"},
        ),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT c, k FROM k.t PRIMARY KEY (k, c)",
            {("base", ""): "k.t", ("key", ""): "(k, c)", ("column", "k"): "k", ("column", "c"): "c"},
        ),
        ('CREATE TYPE u (a int, "B" text)', {("field", "a"): "a", ("field", "B"): '"B"'}),
        ("ALTER TYPE u ADD F int", {("field", "f"): "F"}),
        ("ALTER TYPE u RENAME a TO b AND c TO d", {("field", "a"): "a", ("field", "c"): "c"}),
        ("ALTER TABLE t RENAME A TO b", {("column", "a"): "A"}),
        ("ALTER TABLE t ADD (a int, b int)", {("column", "a"): "a", ("column", "b"): "b"}),
        ("ALTER TABLE t DROP (a, B)", {("column", "a"): "a", ("column", "b"): "B"}),
        ("ALTER TABLE t ALTER a DROP MASKED", {("column", "a"): "a"}),
        ("ALTER TABLE t WITH GC_grace_seconds = 0", {("option", "gc_grace_seconds"): "GC_grace_seconds"}),
        (
            "CREATE TABLE t (k int PRIMARY KEY) WITH compact storage",
            {("column", "k"): "k", ("key", ""): "k", ("option", "compact storage"): "compact"},
        ),
        ("CREATE KEYSPACE k WITH replication = {}", {("option", "replication"): "replication"}),
        ('CREATE INDEX ON t (values(M), "N")', {("column", "m"): "M", ("column", "N"): '"N"'}),
        ("INSERT INTO t (A, b) VALUES (1, 2)", {("column", "a"): "A", ("column", "b"): "b"}),
        ("INSERT INTO t JSON '{\"a\": 1}'", {("column", "a"): "'{\"a\": 1}'"}),
        (
            "UPDATE t USING TTL 5 SET a[1] = 2 WHERE K = 1 IF c = 3",
            {("option", "ttl"): "TTL", ("column", "a"): "a", ("column", "k"): "K", ("column", "c"): "c"},
        ),
        ("DELETE a FROM t WHERE k = 1 AND a = 2", {("column", "a"): "a", ("column", "k"): "k"}),
    ],
)
def test_each_part_is_placed_by_the_name_that_the_server_knows(text: str, places: dict[tuple[str, str], str]) -> None:
    (parsed,) = parse(text)
    reported = {part: text[span.start : span.end] for part, span in parsed.places.items()}
    assert reported == places


def test_notes_are_the_comments_right_before_a_statement() -> None:
    first, second, third = parse(
        "-- Why: it is time.\n\n-- head\n/* more\n * of it */\nUSE a; -- of the first\n// of the second\nUSE b; USE c"
    )
    assert first.notes == ("head", "more", "of it")
    assert second.notes == ("of the second",)
    assert third.notes == ()


WRONG: tuple[tuple[str, int, int, str, str], ...] = (
    ("CREATE TABEL t (a int)", 1, 8, "found TABEL", "Did you mean TABLE?"),
    ("\nCREAT TABLE t", 2, 1, "found CREAT", "Did you mean CREATE?"),
    ("ALTER TABLE t RENMAE a TO b", 1, 15, "expected ADD, ", "Did you mean RENAME?"),
    ("CREATE TABLE t (a int, PRIMRAY KEY (a))", 1, 24, "expected ) or PRIMARY KEY", "Did you mean PRIMARY?"),
    ("CREATE TABLE order (a int PRIMARY KEY)", 1, 14, "found order", 'needs double quotes: "order"'),
    ("CREATE TABLE t (a int)", 1, 16, "the table t has no PRIMARY KEY", ""),
    ("CREATE TABLE t (a int PRIMARY KEY, PRIMARY KEY (a))", 1, 48, "a second PRIMARY KEY", ""),
    ("CREATE TABLE t (a int PRIMARY KEY, A int)", 1, 36, "the column A occurs twice", ""),
    ("CREATE TABLE t (a int, PRIMARY KEY (a, b))", 1, 40, "the key names b, which is no column", ""),
    ("CREATE TABLE t (a int, PRIMARY KEY (a, a))", 1, 40, "the key names a twice", ""),
    ("CREATE TABLE t (a int, b int static, PRIMARY KEY (a, b))", 1, 54, "cannot be part of the key", ""),
    (
        "CREATE TABLE t (a int, b int, c int, PRIMARY KEY (a, b, c)) WITH CLUSTERING ORDER BY (c ASC)",
        1,
        87,
        "it must name the clustering columns in the key's order: b, c",
        "",
    ),
    ("BEGIN BATCH USING TTL 5 DELETE FROM t WHERE k = 1 APPLY BATCH", 1, 13, "a batch has no TTL", ""),
    (
        "BEGIN BATCH USING TIMESTAMP 5 DELETE FROM t USING TIMESTAMP 6 WHERE k = 1 APPLY BATCH",
        1,
        31,
        "a batch with a TIMESTAMP holds no statement with another",
        "",
    ),
    ("UPDATE t SET a = 1, a = 2 WHERE k = 1", 1, 21, "the column a is set here a second time", ""),
    ("UPDATE t SET u.a = 1, u.a = 2 WHERE k = 1", 1, 23, "the column u is set here a second time", ""),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM t PRIMARY KEY (a, b, c) WITH CLUSTERING ORDER BY (b DESC)",
        1,
        95,
        "CLUSTERING ORDER BY of a view lacks c",
        "",
    ),
    ("CREATE TYPE t (a int, A int)", 1, 23, "the field A occurs twice", ""),
    ("ALTER TABLE t WITH a = 1 AND a = 2", 1, 30, "the option a occurs twice", ""),
    ("ALTER TABLE t ALTER a TYPE int", 1, 23, "refused by every server", "add one of the other type"),
    ("ALTER TYPE t ALTER a TYPE int", 1, 14, "refused by every server", "add one of the other type"),
    ("CREATE CUSTOM INDEX ON t (a)", 1, 29, "expected USING, found the end", "names its class"),
    ("INSERT INTO t (a, b) VALUES (1)", 1, 29, "2 columns are named, but 1 values are given", ""),
    ("INSERT INTO t JSON '[1]'", 1, 25, "no object", ""),
    ("INSERT INTO t JSON '{'", 1, 23, "is no JSON", ""),
    ("DELETE FROM t", 1, 14, "expected USING or WHERE", ""),
    ("UPDATE t SET a = ;", 1, 18, "a value", ""),
    ("SOURCE 'x.cql'", 1, 1, "a command of cqlsh", "leave the command out"),
    ("DROP TABLE a DROP TABLE b", 1, 14, "expected ;, found DROP", ""),
    ("CREATE MATERIALIZED TABLE t", 1, 21, "expected VIEW, found TABLE", ""),
    ("CREATE CUSTOM TABLE t", 1, 15, "expected INDEX, found TABLE", ""),
    ("CREATE OR FUNCTION f", 1, 11, "expected REPLACE, found FUNCTION", ""),
    ("ATTACH ROLE r", 1, 8, "expected SERVICE_LEVEL, found ROLE", ""),
    ("ALTER INDEX i", 1, 7, "expected KEYSPACE, SCHEMA, TABLE, COLUMNFAMILY, TYPE, MATERIALIZED, ", ""),
    ("DROP", 1, 5, "found the end of the text", ""),
    ('"CREATE" TABLE t', 1, 1, "expected CREATE, ALTER, DROP, TRUNCATE, USE, ", ""),
    ("INSERT INTO t (a, A) VALUES (1, 2)", 1, 19, "the column A occurs twice", ""),
    ("INSERT INTO t () VALUES ()", 1, 16, "expected a column, found )", ""),
    ("INSERT t (a) VALUES (1)", 1, 8, "expected INTO, found t", ""),
    ("INSERT INTO t JSON '{}' DEFAULT 5", 1, 33, "expected NULL or UNSET", ""),
    ("UPDATE t SET a WHERE k = 1", 1, 16, "expected [, +, - or =, found WHERE", ""),
    ("UPDATE t SET a = 1", 1, 19, "expected , or WHERE, found the end", ""),
    ("DELETE a b FROM t WHERE k = 1", 1, 10, "found b", ""),
    ("DELETE , FROM t WHERE k = 1", 1, 8, "found ,", ""),
    ("DELETE a, FROM t WHERE k = 1", 1, 11, "found FROM", ""),
    ("BEGIN BATCH SELECT * FROM t APPLY BATCH", 1, 13, "expected USING, APPLY BATCH, INSERT, UPDATE or DELETE", ""),
    ("BEGIN BATCH DELETE FROM t WHERE k = 1;", 1, 39, "found the end of the text", ""),
    (f"INSERT INTO t (a) VALUES ({'[' * 200}", 1, 91, "nested more than 64 deep", ""),
)


@pytest.mark.parametrize(
    ("text", "line", "column", "expected", "mend"),
    WRONG,
    ids=[f"{text[:30]}: {expected}" for text, _, _, expected, _ in WRONG],
)
def test_what_is_wrong_is_reported_at_its_place_in_words(
    text: str, line: int, column: int, expected: str, mend: str
) -> None:
    with pytest.raises(CqlSyntaxError) as refused:
        parse(text)
    error = refused.value
    assert (error.line, error.column) == (line, column)
    assert expected in error.problem
    words = error.problem.partition(", found")[0].removeprefix("expected ").replace(" or ", ", ").split(", ")
    assert len(words) == len(set(words))
    assert mend in error.mend
    assert error.exit_code is ExitCode.WRONG_USE
    shown, caret = error.place.pointed.split("\n")
    assert str(error).startswith(f"line {line}, column {column}: ")
    assert f"\n{shown}\n{caret}" in str(error)


def test_the_file_is_reported_where_it_is_known() -> None:
    with pytest.raises(CqlSyntaxError) as refused:
        parse("USE")
    reported = refused.value.in_file("0001_pre_begin.cql")
    assert str(reported).startswith("0001_pre_begin.cql, line 1, column 4: expected the name of a keyspace")


@pytest.mark.parametrize("word", ["CAPTURE", "consistency", "COPY", "exit", "login", "source", "tracing", "Show"])
def test_commands_of_cqlsh_are_distinguished_from_typing_errors(word: str) -> None:
    with pytest.raises(CqlSyntaxError) as refused:
        parse(f"USE k; {word} x")
    error = refused.value
    assert error.problem == f"{word} is a command of cqlsh, which servers do not know"
    assert error.column == 8


@pytest.mark.parametrize(
    ("text", "table", "like"),
    [
        ("SELECT a FROM t WHERE a LIKE 'x%' AND \"B\" LIKE 'y' LIMIT 5", "t", ("a", "B")),
        ("SELECT a AS like FROM t WHERE a = 'b'", "t", ()),
        ("SELECT a FROM other.t WHERE a LIKE 'x%'", "", ()),
        ("SELECT a FROM t", "", ()),
    ],
)
def test_of_a_query_the_columns_of_like_are_read(text: str, table: str, like: tuple[str, ...]) -> None:
    query = one(text)
    assert isinstance(query, Other)
    assert (query.words, query.table, query.like) == ("SELECT", table, like)


@pytest.mark.parametrize(
    ("text", "calls", "parts"),
    [
        ("SELECT F(a), g (b), f(c), h(i(d)) FROM t", ("f", "h", "i"), ()),
        ("GRANT UNMASK, SELECT_MASKED ON t TO r", (), ("permission UNMASK", "permission SELECT_MASKED")),
        ("REVOKE UNMASK PERMISSION ON t FROM r", (), ("permission UNMASK",)),
        ("CREATE ROLE r WITH ACCESS FROM CIDRS {'a'}", (), ("ACCESS FROM CIDRS",)),
        ("ALTER USER r WITH ACCESS FROM ALL CIDRS", (), ("ACCESS FROM CIDRS",)),
        ("CREATE ROLE r WITH ACCESS TO CIDRS", (), ()),
        ("GRANT r FROM CIDRS", (), ()),
        ("LIST UNMASK ON t", (), ()),
    ],
)
def test_of_what_is_passed_over_the_words_of_later_releases_are_read(
    text: str, calls: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    passed_over = one(text)
    assert isinstance(passed_over, Other)
    assert (passed_over.calls, passed_over.parts_of_versions) == (calls, parts)
