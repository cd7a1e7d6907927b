"""What a version brought, and a lint for an older one that finds it."""

import pytest

from mailmend.cql.language.parser import parse
from mailmend.cql.schema.lint.servers import (
    VALUES,
    ServerRelease,
    TooNew,
    exact_release,
    lacking,
    refused_by_version,
)
from tests.support.linting import findings, pointed_at

C3, C40, C41, C5, SCYLLA = ServerRelease


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        ("CREATE TABLE t (p int PRIMARY KEY, e vector<float, 3>)", {C3, C40, C41}),
        ("CREATE TABLE t (p int PRIMARY KEY, e list<frozen<vector<float, 3>>>)", {C3, C40, C41}),
        ("CREATE TYPE u (e vector<float, 3>)", {C3, C40, C41}),
        ("ALTER TYPE u ADD e vector<float, 3>", {C3, C40, C41}),
        ("ALTER TABLE t ADD e vector<float, 3>", {C3, C40, C41}),
        ("CREATE TABLE t (p int PRIMARY KEY, e text MASKED WITH DEFAULT)", {C3, C40, C41}),
        ("ALTER TABLE t ALTER e MASKED WITH mask_null()", {C3, C40, C41}),
        ("CREATE INDEX ON t (v) USING 'sai'", {C3, C40, C41}),
        ("CREATE CUSTOM INDEX ON t (v) USING 'StorageAttachedIndex'", {C3, C40, C41}),
        ("ALTER TABLE IF EXISTS t ADD v int", {C3, C40}),
        ("ALTER TABLE t ADD IF NOT EXISTS v int", {C3, C40}),
        ("ALTER TABLE t DROP IF EXISTS v", {C3, C40}),
        ("ALTER KEYSPACE IF EXISTS k WITH durable_writes = true", {C3, C40}),
        ("DELETE FROM t WHERE k = 1 AND c BETWEEN 1 AND 2", {C3, C40, C41, C5}),
        ("INSERT INTO t (k, v) VALUES (1, text_as_blob('a'))", {C3, C40, C41}),
        ("INSERT INTO t (k, v) VALUES (1, 'text_as_blob()')", set()),
        ("SELECT mask_inner(a, 1, 2) FROM t", {C3, C40, C41}),
        ("CREATE TABLE t (p int PRIMARY KEY, e duration)", set()),
        ("CREATE INDEX ON t (v)", set()),
        ("CREATE INDEX ON t (v) USING 'org.apache.cassandra.index.sasi.SASIIndex'", {C3, C40, C41}),
        ("CREATE CUSTOM INDEX ON t (v) USING 'org.apache.cassandra.index.sasi.SASIIndex'", set()),
        ("CREATE TABLE t (p int PRIMARY KEY, e 'VectorType(FloatType, 3)')", {C3, C40, C41}),
        ("CREATE ROLE r WITH ACCESS FROM CIDRS {'office'}", {C3, C40, C41}),
        ("ALTER ROLE r WITH LOGIN = true AND ACCESS FROM ALL CIDRS", {C3, C40, C41}),
        ("CREATE ROLE cidrs WITH ACCESS TO ALL DATACENTERS", set()),
        ("GRANT UNMASK ON TABLE t TO r", {C3, C40, C41}),
        ("REVOKE SELECT_MASKED PERMISSION ON TABLE t FROM r", {C3, C40, C41}),
        ("GRANT unmask TO r", set()),
    ],
)
def test_each_release_lacks_what_later_ones_brought(text: str, lacking: set[ServerRelease]) -> None:
    (parsed,) = parse(text)
    assert {release for release in ServerRelease if refused_by_version(parsed.statement, release)} == lacking


OPTION = ("option", "")
TABLE_ONLY = ("IF EXISTS in ALTER TABLE", C41, OPTION)
TYPE_ONLY = ("IF EXISTS in ALTER TYPE", C41, OPTION)


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("CREATE TABLE t (k int PRIMARY KEY, e list<vector<int, 2>>)", [("type vector", C5, ("column", "e"))]),
        ("CREATE TABLE t (k int PRIMARY KEY, e int MASKED WITH DEFAULT)", [("masked columns", C5, ("column", "e"))]),
        ("ALTER TABLE t ALTER e MASKED WITH DEFAULT", [("masked columns", C5, ("column", "e"))]),
        (
            "ALTER TABLE IF EXISTS t ADD IF NOT EXISTS e vector<int, 2>",
            [TABLE_ONLY, ("IF NOT EXISTS for a column", C41, OPTION), ("type vector", C5, ("column", "e"))],
        ),
        ("ALTER TABLE IF EXISTS t DROP IF EXISTS e", [TABLE_ONLY, ("IF EXISTS for a column", C41, OPTION)]),
        ("ALTER TABLE IF EXISTS t RENAME IF EXISTS a TO b", [TABLE_ONLY, ("IF EXISTS for a column", C41, OPTION)]),
        ("ALTER TABLE IF EXISTS t WITH comment = 'a'", [("IF EXISTS in ALTER", C41, OPTION)]),
        ("CREATE TYPE u (e vector<int, 2>)", [("type vector", C5, ("field", "e"))]),
        (
            "ALTER TYPE IF EXISTS u ADD IF NOT EXISTS e vector<int, 2>",
            [TYPE_ONLY, ("IF NOT EXISTS for a field", C41, OPTION), ("type vector", C5, ("field", "e"))],
        ),
        ("ALTER TYPE IF EXISTS u RENAME IF EXISTS a TO b", [TYPE_ONLY, ("IF EXISTS for a field", C41, OPTION)]),
        ("ALTER KEYSPACE IF EXISTS k WITH a = 1", [("IF EXISTS in ALTER KEYSPACE", C41, OPTION)]),
        (
            "CREATE INDEX ON t (v) USING 'SAI'",
            [
                ("USING in CREATE INDEX without CUSTOM", C5, ("column", "v")),
                ("indexes of class SAI", C5, ("column", "v")),
            ],
        ),
        (
            "CREATE CUSTOM INDEX ON t (v) USING 'org.apache.cassandra.index.sai.StorageAttachedIndex'",
            [("indexes of class org.apache.cassandra.index.sai.StorageAttachedIndex", C5, ("column", "v"))],
        ),
        (
            "CREATE CUSTOM INDEX ON t (v) USING 'legacy_local_table'",
            [("indexes of class legacy_local_table", C5, ("column", "v"))],
        ),
        ("CREATE ROLE r WITH ACCESS FROM CIDRS {'a'}", [("ACCESS FROM CIDRS", C5, OPTION)]),
        ("ADD IDENTITY 'a' TO ROLE r", [("ADD IDENTITY", C5, OPTION)]),
        ("DROP IDENTITY 'a'", [("DROP IDENTITY", C5, OPTION)]),
        ("SELECT to_json(a), to_json(b) FROM t", [("function to_json", C5, OPTION)]),
        ("INSERT INTO t (a) VALUES (1) USING TIMEOUT 5s", [("USING TIMEOUT", None, ("option", "timeout"))]),
        (
            "UPDATE t SET a = 1 WHERE k NOT IN (1) IF b NOT CONTAINS KEY 2",
            [
                ("NOT IN in conditions", None, ("column", "k")),
                ("NOT CONTAINS KEY in conditions", None, ("column", "b")),
            ],
        ),
        ("DELETE FROM t WHERE k NOT CONTAINS 1", [("NOT CONTAINS in conditions", None, ("column", "k"))]),
        ("DELETE FROM t WHERE k BETWEEN 1 AND 2", [("BETWEEN in conditions", None, ("column", "k"))]),
        (
            "INSERT INTO t (a, b) VALUES (Blob_As_Int (0x01), int_as_blob(abs(1)))",
            [
                ("function blob_as_int", C5, ("column", "a")),
                ("function int_as_blob", C5, ("column", "b")),
                ("function abs", C5, ("column", "b")),
            ],
        ),
        ("INSERT INTO t (a) VALUES ('it''s abs(1)')", []),
    ],
)
def test_what_a_statement_needs_has_its_release_and_its_place(text: str, needed: list[TooNew]) -> None:
    (parsed,) = parse(text)
    assert list(lacking(parsed.statement, C3)) == needed
    assert list(lacking(parsed.statement, SCYLLA)) == []


_FUNCTIONS = """
    abs exp log log10 round collection_avg collection_count collection_max collection_min collection_sum map_keys
    map_values mask_default mask_hash mask_inner mask_null mask_outer mask_replace maxwritetime similarity_cosine
    similarity_dot_product similarity_euclidean to_date to_timestamp to_unix_timestamp min_timeuuid max_timeuuid
    current_date current_time current_timestamp current_timeuuid to_json from_json format_bytes format_time
"""


@pytest.mark.parametrize("function", _FUNCTIONS.split())
def test_a_function_of_5_0_is_refused_before(function: str) -> None:
    (parsed,) = parse(f"INSERT INTO t (a) VALUES ({function}(1))")
    assert refused_by_version(parsed.statement, C41) == (
        f"Cassandra 4.1 has no function {function}, which came with 5.0",
    )
    assert refused_by_version(parsed.statement, C5) == ()


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("compaction_window_unit", "MINUTES HOURS DAYS"),
        ("timestamp_resolution", "DAYS HOURS MINUTES SECONDS MILLISECONDS MICROSECONDS NANOSECONDS"),
    ],
)
def test_an_option_of_time_windows_takes_these_words(option: str, values: str) -> None:
    assert VALUES[option] == set(values.split())


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("3.11.19", C3),
        ("4.0.12", C40),
        ("4.1", C41),
        ("4.1-rc1", C41),
        ("5.0.9-SNAPSHOT", C5),
        ("5.1.0", None),
        ("3.0.8", None),
        ("4.0.11.0", None),
        ("scylla", None),
    ],
)
def test_only_a_version_whose_options_are_all_known_is_exact(version: str, release: ServerRelease | None) -> None:
    assert exact_release(version) is release


def test_a_finding_points_at_the_column() -> None:
    text = "CREATE TABLE t (p int PRIMARY KEY, e vector<float, 3>);"
    found = findings(text, "T25", C41)
    assert [(hit.subject, hit.statement, hit.table, hit.text) for hit in found] == [
        ("e", 0, "t", "Cassandra 4.1 has no type vector, which came with 5.0")
    ]
    assert pointed_at(text, found) == ["e"]
    of_type = "CREATE TYPE u (a int, e vector<float, 3>);"
    assert pointed_at(of_type, findings(of_type, "T25", C41)) == ["e"]
    assert findings(text, "T25", C5) == ()


MADE_BY_5_ALONE = """
CREATE TABLE t (p int PRIMARY KEY, e vector<float, 3>);
INSERT INTO t (p) VALUES (1);
"""


def test_what_depends_on_a_refused_statement_is_refused_with_it() -> None:
    assert findings(MADE_BY_5_ALONE, "K2", C5) == ()
    (found,) = findings(MADE_BY_5_ALONE, "K2", C41)
    assert found.text == "INSERT t: there is no such table: the server refuses the statement that makes it"


def test_a_table_that_the_release_refused_can_be_made_in_another_form() -> None:
    text = MADE_BY_5_ALONE + "CREATE TABLE t (p int PRIMARY KEY, v int);\nINSERT INTO t (p, v) VALUES (1, 1);"
    assert [found.statement for found in findings(text, "K2", C41)] == [1]
    assert [found.statement for found in findings(text, "K2", C5)] == [2, 3]


def test_a_statement_whose_refusal_is_ignored_counts_as_taken() -> None:
    text = f"-- lint: ignore T25: our servers have a patch{MADE_BY_5_ALONE}"
    assert findings(text, "K2", C41) == ()


TINY = "CREATE TABLE t (p int PRIMARY KEY, v list<tinyint>, b blob);\n"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t (p, v) VALUES (1, [0x01]);",
        "UPDATE t SET b = 0x01 WHERE p = 1 IF v = [0x01];",
        "BEGIN BATCH INSERT INTO t (p, v) VALUES (1, [0x01]); APPLY BATCH;",
    ],
)
def test_a_blob_in_place_of_a_tinyint_came_with_5_0(statement: str) -> None:
    text = TINY + statement
    assert findings(text, "T25", C5) == findings(text, "T25", SCYLLA) == ()
    (found,) = findings(text, "T25", C41)
    assert (found.subject, found.statement, found.table) == ("v", 1, "t")
    assert found.text == "Cassandra 4.1 has no blobs in place of a tinyint, which came with 5.0"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t (p, b) VALUES (1, 0x01);",
        "INSERT INTO t (p, v) VALUES (1, [1]);",
        "INSERT INTO t (p, nothing) VALUES (1, 0x01);",
        "INSERT INTO elsewhere (p, v) VALUES (1, 0x01);",
        "UPDATE t SET b = 0x01 WHERE p = 1 IF v[0] = 0x01;",
    ],
)
def test_a_blob_is_found_in_place_of_a_known_tinyint_alone(statement: str) -> None:
    assert findings(TINY + statement, "T25", C41) == ()
