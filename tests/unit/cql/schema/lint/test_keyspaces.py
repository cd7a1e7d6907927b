"""Rules about keyspaces, views and indexes: each with what it finds, and with what is just not found."""

import pytest

from mailmend.cql.schema.lint.rule import Severity
from mailmend.cql.schema.lint.rules import lint, rules_named
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import Subject
from mailmend.model.keyspace import Index, Schema
from mailmend.model.table import Column, Kind, Table
from tests.support.linting import findings, pointed_at, table

BY_TOPOLOGY = "{'class': 'NetworkTopologyStrategy', 'dc1': 3}"
SIMPLE = "{'class': 'SimpleStrategy', 'replication_factor': 3}"


@pytest.mark.parametrize("strategy", ["SimpleStrategy", "org.apache.cassandra.locator.SimpleStrategy"])
def test_simple_strategy_is_found(strategy: str) -> None:
    text = f"CREATE KEYSPACE ks WITH replication = {{'class': '{strategy}', 'replication_factor': 3}};"
    found = findings(text, "T16")
    assert [(one.table, one.text) for one in found] == [("", "ks is replicated by SimpleStrategy")]
    assert pointed_at(text, found) == ["replication"]


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        (f"CREATE KEYSPACE ks WITH replication = {BY_TOPOLOGY};", 0),
        (f"CREATE KEYSPACE ks WITH replication = {SIMPLE}; ALTER KEYSPACE ks WITH replication = {BY_TOPOLOGY};", 0),
        (f"CREATE KEYSPACE ks WITH replication = {BY_TOPOLOGY}; ALTER KEYSPACE ks WITH replication = {SIMPLE};", 1),
        (f"CREATE KEYSPACE ks WITH replication = {SIMPLE}; ALTER KEYSPACE ks WITH durable_writes = false;", 1),
        (
            (
                f"CREATE KEYSPACE ks WITH replication = {BY_TOPOLOGY};"
                f"CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {SIMPLE};"
            ),
            0,
        ),
        (table(), 0),
    ],
)
def test_the_last_word_on_replication_counts(text: str, hits: int) -> None:
    assert len(findings(text, "T16")) == hits


VIEW = "CREATE MATERIALIZED VIEW by_v AS SELECT * FROM t WHERE k IS NOT NULL AND v IS NOT NULL PRIMARY KEY (v, k);\n"
COLUMNS = "k int, v int, PRIMARY KEY (k)"


def test_a_view_is_found_until_it_is_dropped() -> None:
    text = table(columns=COLUMNS) + VIEW
    assert [(one.table, one.text) for one in findings(text, "T22")] == [("by_v", "by_v is a materialised view of t")]
    assert pointed_at(text, findings(text, "T22")) == ["by_v"]
    assert findings(text + "DROP MATERIALIZED VIEW by_v;", "T22") == ()
    assert findings(table(columns=COLUMNS), "T22") == ()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE CUSTOM INDEX at_v ON t (v) USING 'StorageAttachedIndex';",
        "CREATE INDEX at_v ON t (v) USING 'sai';",
        "CREATE INDEX at_tags ON t (VALUES(tags));",
        "CREATE INDEX at_v ON t (v); DROP INDEX at_v;",
    ],
)
def test_other_indexes_are_fine(statement: str) -> None:
    text = table(columns="k int, v uuid, tags set<uuid>, PRIMARY KEY (k)")
    assert findings(text + statement, "T23") == ()


def test_an_index_is_found_whatever_it_is_called() -> None:
    text = table(columns="k int, v uuid, PRIMARY KEY (k)") + "CREATE INDEX ON t (v);"
    assert [one.statement for one in findings(text, "T23")] == [1]


@pytest.mark.parametrize(
    ("kind", "target", "severity"),
    [
        ("uuid", "v", Severity.WARNING),
        ("UUID", "v", Severity.WARNING),
        ("uuid", "V", Severity.WARNING),
        ("timestamp", '"v"', Severity.WARNING),
        ("varint", "v", Severity.WARNING),
        ("bigint", "v", Severity.WARNING),
        ("text", "v", Severity.NOTE),
        ("int", "v", Severity.NOTE),
        ("boolean", "v", None),
        ("tinyint", "v", None),
        ("set<uuid>", "values(v)", None),
        ("map<uuid, int>", "keys(v)", None),
        ("map<uuid, int>", "KEYS(v)", None),
        ("frozen<set<uuid>>", "full(v)", None),
    ],
)
def test_how_many_values_there_may_be_is_reported_by_the_type(
    kind: str, target: str, severity: Severity | None
) -> None:
    text = table(columns=f"k int PRIMARY KEY, v {kind}") + f"CREATE INDEX by_v ON t ({target});"
    assert [one.severity for one in findings(text, "T23")] == ([severity] if severity else [])
    assert findings(text, "T23", ServerRelease.SCYLLA) == ()


def test_why_many_values_hurt_is_said_as_surely_as_it_is_known() -> None:
    text = table(columns="k int PRIMARY KEY, id uuid, name text")
    text += "CREATE INDEX ON t (id); CREATE INDEX by_name ON T (name);"
    assert [(one.subject, one.text) for one in findings(text, "T23")] == [
        ("t_id_idx", "t_id_idx is on id of t, uuid: nearly every row has its own value"),
        ("by_name", "by_name is on name of t, text: good only where many rows share few values"),
    ]
    assert [one.statement for one in findings(text, "T23")] == [1, 2]


@pytest.mark.parametrize("name", ["M", '"m"', '"M"'])
def test_a_view_is_pointed_at_under_any_spelling(name: str) -> None:
    text = table(columns=COLUMNS) + VIEW.replace("by_v", name)
    assert [one.statement for one in findings(text, "T22")] == [1]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (f"CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {SIMPLE};", 0),
        (f"CREATE KEYSPACE ks WITH replication = {BY_TOPOLOGY}; CREATE KEYSPACE ks WITH replication = {SIMPLE};", 1),
        (
            (
                f"CREATE KEYSPACE ks WITH replication = {BY_TOPOLOGY}; DROP KEYSPACE ks;"
                f"CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {SIMPLE};"
            ),
            2,
        ),
        (f"CREATE KEYSPACE ks WITH replication = {SIMPLE}; DROP KEYSPACE ks;", None),
        (f"CREATE KEYSPACE ks WITH replication = {SIMPLE}; USE other; DROP KEYSPACE ks;", None),
    ],
    ids=["first", "again", "after a drop", "dropped", "dropped from elsewhere"],
)
def test_what_was_dropped_has_no_replication(text: str, at: int | None) -> None:
    assert [one.statement for one in findings(text, "T16")] == ([] if at is None else [at])


def test_a_column_is_called_like_an_aspect_of_a_collection() -> None:
    text = table(columns='k int PRIMARY KEY, "values" uuid') + 'CREATE INDEX by_values ON t ("values");'
    assert [hit.severity for hit in findings(text, "T23")] == [Severity.WARNING]


KEYED = Table("t", (Column("k", "int", Kind.PARTITION), Column("v", "uuid")))


@pytest.mark.parametrize(
    ("index", "reported"),
    [
        (Index("", "t", "v"), [("v", "an index is on v of t, uuid: nearly every row has its own value")]),
        (Index("i", "elsewhere", "v"), []),
        (Index("i", "t", "nothing"), []),
    ],
)
def test_only_an_index_on_a_known_column_is_judged(index: Index, reported: list[tuple[str, str]]) -> None:
    found = lint(Subject(Schema((), (KEYED,), (index,))), rules_named(["T23"]))
    assert [(hit.subject, hit.text) for hit in found] == reported
