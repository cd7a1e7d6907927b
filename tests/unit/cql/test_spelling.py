"""A statement as it is sent: the author's text, the keyspace before the name, and safe to be sent again."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.language.parser import parse
from mailmend.cql.migrate.files import qualified, sent
from mailmend.cql.statements import CreateTable, WriteRows
from mailmend.model.ids import micros_of
from tests.support.clock import uuid_at

AT = 1_788_000_000_000_123
ATTEMPT = uuid_at(AT)

QUALIFIED = [
    ("CREATE TABLE t (a int PRIMARY KEY)", "CREATE TABLE ks.t (a int PRIMARY KEY)"),
    ("CREATE TABLE IF NOT EXISTS T(a int PRIMARY KEY)", "CREATE TABLE IF NOT EXISTS ks.T(a int PRIMARY KEY)"),
    ("create table ks.t (a int primary key)", "create table ks.t (a int primary key)"),
    ('ALTER TABLE "Odd Name" ADD b int', 'ALTER TABLE ks."Odd Name" ADD b int'),
    ("ALTER TABLE t /* not t */ WITH comment = 't'", "ALTER TABLE ks.t /* not t */ WITH comment = 't'"),
    ("CREATE TYPE u (a int)", "CREATE TYPE ks.u (a int)"),
    ("ALTER TYPE u RENAME a TO b", "ALTER TYPE ks.u RENAME a TO b"),
    ("CREATE INDEX i ON t (b)", "CREATE INDEX i ON ks.t (b)"),
    ("CREATE CUSTOM INDEX ON t (b) USING 'sai'", "CREATE CUSTOM INDEX ON ks.t (b) USING 'sai'"),
    ("DROP INDEX i", "DROP INDEX ks.i"),
    ("DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS ks.t"),
    ("INSERT INTO t (a) VALUES (1)", "INSERT INTO ks.t (a) VALUES (1)"),
    ("UPDATE t SET b = 1 WHERE a = 1", "UPDATE ks.t SET b = 1 WHERE a = 1"),
    ("DELETE b FROM t WHERE a = 1", "DELETE b FROM ks.t WHERE a = 1"),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHERE a IS NOT NULL AND b IS NOT NULL PRIMARY KEY (b, a)",
        "CREATE MATERIALIZED VIEW ks.v AS SELECT * FROM t WHERE a IS NOT NULL AND b IS NOT NULL PRIMARY KEY (b, a)",
    ),
]


@pytest.mark.parametrize(("author", "expected"), QUALIFIED, ids=range(len(QUALIFIED)))
def test_the_keyspace_stands_before_the_name_and_nothing_else_is_changed(author: str, expected: str) -> None:
    text = f"-- t\n;;{author};"
    (parsed,) = parse(text)
    assert qualified(text, parsed, "ks") == expected


def test_a_quoted_keyspace_stands_before_the_name_in_its_quotes() -> None:
    (parsed,) = parse("DROP TABLE t")
    assert qualified("DROP TABLE t", parsed, '"OddKs"') == 'DROP TABLE "OddKs".t'


SENT = [
    ("CREATE TABLE t (a int PRIMARY KEY)", f"CREATE TABLE ks.t (a int PRIMARY KEY) WITH ID = {ATTEMPT}"),
    (
        "CREATE TABLE t (a int, b frozen<set<int>>, PRIMARY KEY (a, b)) WITH comment = 'b'",
        f"CREATE TABLE ks.t (a int, b frozen<set<int>>, PRIMARY KEY (a, b)) WITH ID = {ATTEMPT} AND comment = 'b'",
    ),
    (
        "CREATE TABLE t (a int PRIMARY KEY) with comment = 'WITH' -- with",
        f"CREATE TABLE ks.t (a int PRIMARY KEY) with ID = {ATTEMPT} AND comment = 'WITH'",
    ),
    (
        f"CREATE TABLE t (a int PRIMARY KEY) WITH ID = {UUID(int=5)}",
        f"CREATE TABLE ks.t (a int PRIMARY KEY) WITH ID = {UUID(int=5)}",
    ),
    ("INSERT INTO t (a) VALUES (1)", f"INSERT INTO ks.t (a) VALUES (1) USING TIMESTAMP {AT}"),
    (
        "INSERT INTO t (a) VALUES (1) USING TTL 60",
        f"INSERT INTO ks.t (a) VALUES (1) USING TIMESTAMP {AT} AND TTL 60",
    ),
    ("INSERT INTO t (a) VALUES (1) IF NOT EXISTS", "INSERT INTO ks.t (a) VALUES (1) IF NOT EXISTS"),
    ("INSERT INTO t (a) VALUES (1) USING TIMESTAMP 7", "INSERT INTO ks.t (a) VALUES (1) USING TIMESTAMP 7"),
    ("UPDATE t SET b = 'USING' WHERE a = 1", f"UPDATE ks.t USING TIMESTAMP {AT} SET b = 'USING' WHERE a = 1"),
    ("UPDATE ks.t SET b = 1 WHERE a = 1", f"UPDATE ks.t USING TIMESTAMP {AT} SET b = 1 WHERE a = 1"),
    (
        "UPDATE t USING TTL 60 SET b = 1 WHERE a = 1",
        f"UPDATE ks.t USING TIMESTAMP {AT} AND TTL 60 SET b = 1 WHERE a = 1",
    ),
    ("DELETE b, c FROM t WHERE a = 1", f"DELETE b, c FROM ks.t USING TIMESTAMP {AT} WHERE a = 1"),
    ("DROP TABLE t", "DROP TABLE ks.t"),
]


@pytest.mark.parametrize(("author", "expected"), SENT, ids=range(len(SENT)))
def test_what_is_sent_can_be_sent_again(author: str, expected: str) -> None:
    (parsed,) = parse(author)
    assert sent(author, parsed, "ks", ATTEMPT) == expected


@given(st.sampled_from([author for author, _ in SENT]), st.integers(1, 2**40))
def test_what_is_sent_is_still_the_same_statement(author: str, micros: int) -> None:
    (parsed,), attempt = parse(author), uuid_at(micros)
    (again,) = parse(sent(author, parsed, "ks", attempt))
    before, after = parsed.statement, again.statement
    assert type(before) is type(after)
    assert after.keyspace_named == "ks"
    if isinstance(before, CreateTable) and isinstance(after, CreateTable):
        assert after.table.columns == before.table.columns
        assert {"id": str(attempt), **before.table.options} == dict(after.table.options)
    if isinstance(before, WriteRows) and isinstance(after, WriteRows):
        assert (after.columns, after.ttl) == (before.columns, before.ttl)
        assert after.conditional or after.timestamp in (before.timestamp, str(micros_of(attempt)))
