"""What a version brought, and a lint for an older one that finds it."""

import pytest

from mailmend.cql.language.parser import parse
from mailmend.cql.schema.lint.servers import ServerRelease, refused_by_version
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


def test_a_finding_points_at_the_column() -> None:
    text = "CREATE TABLE t (p int PRIMARY KEY, e vector<float, 3>);"
    found = findings(text, "T25", C41)
    assert [one.text for one in found] == ["Cassandra 4.1 has no type vector, which came with 5.0"]
    assert pointed_at(text, found) == ["e"]
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


def test_a_blob_in_place_of_a_tinyint_came_with_5_0() -> None:
    text = "CREATE TABLE t (p int PRIMARY KEY, v list<tinyint>);\nINSERT INTO t (p, v) VALUES (1, [0x01]);"
    assert findings(text, "T25", C5) == ()
    (found,) = findings(text, "T25", C41)
    assert found.text == "Cassandra 4.1 has no blobs in place of a tinyint, which came with 5.0"
