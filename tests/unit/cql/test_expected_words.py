"""What is expected where another word comes, and what is said of what no server takes."""

import pytest

from mailmend.cql.language.parser import parse
from mailmend.model.errors import CqlSyntaxError

KEPT = """\
The type of a column or field cannot be changed: \
add one of the other type and copy what it holds."""


def refusal(text: str) -> CqlSyntaxError:
    with pytest.raises(CqlSyntaxError) as refused:
        parse(text)
    return refused.value


@pytest.mark.parametrize(
    ("text", "expected", "found"),
    [
        ("INSERT INTO 5", "the name of a table", "5"),
        ("INSERT INTO t JSON 5", "?, : or a text in quotes", "5"),
        ("INSERT INTO t (a) VALUES (1) USING TTL :5", "the name of a bind mark", "5"),
        ("INSERT INTO t (a) VALUES (1) USING TTL 'x'", ":, ?, - or a number", "'x'"),
        ("INSERT INTO t (a) VALUES (:5)", "the name of a bind mark", "5"),
        ("UPDATE 5", "the name of a table", "5"),
        ("UPDATE t SET 5", "a column", "5"),
        ("UPDATE t SET a = [1] + 5 WHERE k = 1 AND 5", "TOKEN (, ( or a column", "5"),
        ("UPDATE t SET a.5 = 1", "a field", "5"),
        ("UPDATE t SET a[] = 1", "-, ?, :, (, [, { or a value", "]"),
        ("UPDATE t SET a[1 = 1", "]", "="),
        ("DELETE FROM 5", "the name of a table", "5"),
        ("DELETE FROM t WHERE 5", "TOKEN (, ( or a column", "5"),
        ("DELETE FROM t WHERE (5", "a column", "5"),
        ("DELETE FROM t WHERE token(a, 5", "a column", "5"),
        ("DELETE FROM t WHERE a NOT b", "IN or CONTAINS", "b"),
        (
            "DELETE FROM t WHERE a b",
            "[, =, IS, BETWEEN, NOT, IN, CONTAINS, <=, >=, !=, <, > or LIKE",
            "b",
        ),
        ("DELETE FROM t WHERE a IS b", "NOT", "b"),
        ("DELETE FROM t WHERE a BETWEEN 1 b", "AND", "b"),
        ("DELETE FROM t WHERE a = b", "- or a value", "b"),
        ("DELETE FROM t WHERE a = k.5", "a name", "5"),
        ("DELETE FROM t WHERE a = f(1", "AS, ) or ,", "the end of the text"),
        ("USE 5", "the name of a keyspace", "5"),
        ("CREATE KEYSPACE 5", "IF or the name of a keyspace", "5"),
        ("CREATE KEYSPACE k", "WITH", "the end of the text"),
        ("ALTER KEYSPACE k", "WITH", "the end of the text"),
        ("CREATE TABLE 5", "IF or the name of a table", "5"),
        ("CREATE TABLE t.5", "the name of a table", "5"),
        ("CREATE TABLE t (5", "PRIMARY KEY or a column", "5"),
        ("CREATE TABLE t (a 5", "SET < or a type", "5"),
        ("CREATE TABLE t (a k.5", "the name of a type", "5"),
        ("CREATE TABLE t (a vector<int, x", "a length", "x"),
        ("CREATE TABLE t (a int<", "STATIC, MASKED WITH, PRIMARY, , or )", "<"),
        ("CREATE TABLE t (a int, PRIMARY KEY (5", "( or a column", "5"),
        ("CREATE TABLE t (a int, PRIMARY KEY ((a, 5", "a column", "5"),
        ("CREATE TABLE t (a int, PRIMARY KEY (a, 5", "a column", "5"),
        (
            "CREATE TABLE t (a int PRIMARY KEY) WITH 5",
            "COMPACT STORAGE, CLUSTERING ORDER BY or an option",
            "5",
        ),
        (
            "CREATE TABLE t (a int PRIMARY KEY) WITH CLUSTERING ORDER BY (5",
            "a clustering column",
            "5",
        ),
        (
            "CREATE TABLE t (a int PRIMARY KEY) WITH a = (",
            "{, -, a text in quotes, a number or a map",
            "(",
        ),
        ("CREATE TABLE t (a int MASKED WITH 5", "DEFAULT or a function", "5"),
        ("CREATE TABLE t (a int, KEY (a))", "SET < or a type", "("),
        ("CREATE TYPE 5", "IF or the name of a type", "5"),
        ("CREATE TYPE t (5", "a field", "5"),
        ("ALTER TYPE 5", "IF or the name of a type", "5"),
        ("ALTER TYPE t ADD 5", "IF or a field", "5"),
        ("ALTER TYPE t RENAME 5", "IF or a field", "5"),
        ("ALTER TYPE t RENAME a TO 5", "a field", "5"),
        ("ALTER TYPE t 5", "ADD, RENAME or ALTER", "5"),
        ("ALTER TABLE 5", "IF or the name of a table", "5"),
        ("ALTER TABLE t 5", "ADD, DROP COMPACT STORAGE, DROP, RENAME, WITH or ALTER", "5"),
        ("ALTER TABLE t RENAME 5", "IF or a column", "5"),
        ("ALTER TABLE t RENAME a TO 5", "a column", "5"),
        ("ALTER TABLE t DROP 5", "IF, ( or a column", "5"),
        ("ALTER TABLE t DROP a USING TIMESTAMP x", "a number", "x"),
        ("ALTER TABLE t ALTER a 5", "TYPE, DROP or MASKED", "5"),
        ("CREATE MATERIALIZED VIEW 5", "IF or the name of a view", "5"),
        ("CREATE MATERIALIZED VIEW v AS SELECT a FROM 5", "the name of a table", "5"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 5", "* or a column", "5"),
        ("ALTER MATERIALIZED VIEW 5", "IF or the name of a view", "5"),
        ("DROP TABLE 5", "IF or the name of what is dropped (TABLE)", "5"),
        ("DROP TYPE 5", "IF or the name of what is dropped (TYPE)", "5"),
        ("DROP INDEX 5", "IF or the name of what is dropped (INDEX)", "5"),
        ("DROP MATERIALIZED VIEW 5", "IF or the name of what is dropped (MATERIALIZED VIEW)", "5"),
        ("TRUNCATE 5", "TABLE, COLUMNFAMILY or the name of a table", "5"),
        ("CREATE INDEX 5", "IF, ON or the name of an index", "5"),
        ("CREATE INDEX ON 5", "the name of a table", "5"),
        ("CREATE INDEX ON t (5", "), (, ENTRIES (, FULL ( or a column", "5"),
        ("CREATE INDEX ON t (keys(5", "a column", "5"),
        ("CREATE INDEX ON t (a) USING sai", "a text in quotes", "sai"),
        ("INSERT INTO t JSON '{\"a\": 1}' DEFAULT 5", "NULL or UNSET", "5"),
        ("UPDATE t USING 5", "TIMESTAMP, TTL or TIMEOUT", "5"),
        ("UPDATE t USING TIMEOUT 5", "a duration", "5"),
        ("INSERT INTO t (a) VALUES (1) extra", "IF, USING or ;", "extra"),
        (
            "SELECT 1; 5",
            (
                "CREATE, ALTER, DROP, TRUNCATE, USE, INSERT, UPDATE, DELETE, BEGIN, SELECT, GRANT, "
                "REVOKE, LIST, DESCRIBE, DESC, ADD, ATTACH or DETACH"
            ),
            "5",
        ),
    ],
)
def test_all_that_may_come_is_listed(text: str, expected: str, found: str) -> None:
    assert refusal(text).problem == f"expected {expected}, found {found}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("INSERT INTO t (a) VALUES (1) USING TTL 1.5", "1.5 is no whole number"),
        (
            "UPDATE t SET a = b + 1 WHERE k = 1",
            "only a itself can be added to or taken from here, not b",
        ),
        (
            "UPDATE t SET a = b - 5 WHERE k = 1",
            "only a itself can be added to or taken from here, not b",
        ),
        (
            "UPDATE t SET a = [1] + b WHERE k = 1",
            "only a itself can be added to or taken from here, not b",
        ),
        (
            "DELETE FROM t WHERE a = 1 -2",
            "a minus before a number belongs to the number: write a blank between them",
        ),
        (
            "BEGIN BATCH USING TTL 5 APPLY BATCH",
            "a batch has no TTL: each of its statements has its own",
        ),
        ("CREATE TABLE t (a frozen<'x'>", "frozen takes no Java class, and 'x' is one"),
        ("CREATE TABLE t (a int MASKED WITH f(now()", "the arguments of a mask are literals"),
        ("CREATE INDEX ON t (a) USING ''", "USING names no class"),
        (
            "CREATE INDEX ON t (a) WITH comment = 'x'",
            "an index has no option comment, only OPTIONS = {...}",
        ),
        ("INSERT INTO t JSON '[1]'", "the text after JSON is no object: it names no columns"),
        ("INSERT INTO t (a, b) VALUES (1)", "2 columns are named, but 1 values are given"),
        (
            "CREATE TABLE k.t (a other.u",
            "a statement on keyspace k cannot use a type of keyspace other",
        ),
    ],
)
def test_what_no_server_takes_is_reported_with_the_reason(text: str, problem: str) -> None:
    assert refusal(text).problem == problem


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("TRUNCATE 5", ""),
        (
            "CREATE CUSTOM INDEX ON t (a)",
            "A CUSTOM INDEX names its class: USING 'StorageAttachedIndex', for example.",
        ),
        ("USE select", 'If it is meant as a name, it needs double quotes: "select".'),
        ("USE Order", 'If it is meant as a name, it needs double quotes: "order".'),
        (
            "ALTER TABLE t ALTER a TYPE int",
            KEPT,
        ),
        (
            "ALTER TYPE t ALTER a TYPE int",
            KEPT,
        ),
        (
            "SOURCE 'x'",
            "A migration is sent to the server, so it holds CQL only: leave the command out.",
        ),
    ],
)
def test_a_refusal_says_how_to_write_it(text: str, mend: str) -> None:
    assert refusal(text).mend == mend


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x" * 40, "x" * 40),
        ("x" * 41, f"{'x' * 40}..."),
        ("'a\n   b'", "'a b'"),
    ],
)
def test_what_was_found_is_shown_in_a_line(text: str, found: str) -> None:
    assert refusal(text).problem.endswith(f"ATTACH or DETACH, found {found}")
