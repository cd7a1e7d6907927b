"""What a version brought, and a lint for an older one that finds it."""

import pytest

from cql.language.parser import parse
from model.schema.lint.servers import ServerRelease
from model.schema.lint.versions import refused_by_version
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
