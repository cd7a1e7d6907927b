"""Rules about writes: each with what it finds, and with what is just not found."""

from typing import Any

import pytest

from mailmend.cql.schema.lint.rule import Severity
from tests.support.linting import UNIFIED, WINDOWED, findings, pointed_at, table, windows

PLAIN = table("p", "k int, c int, v int, PRIMARY KEY (k, c)")


def test_each_delete_on_time_windows_is_found_at_its_place() -> None:
    text = WINDOWED + (
        "DELETE FROM w WHERE k = 1;\n"
        "DELETE v FROM w WHERE k = 1 AND at = 2;\n"
        "BEGIN BATCH INSERT INTO w (k, at) VALUES (1, 2); DELETE FROM ks.w WHERE k = 1; APPLY BATCH;"
    )
    found = findings(text, "T4")
    assert [one.statement for one in found] == [1, 2, 3]
    assert pointed_at(text, found) == ["w", "w", "ks.w"]


@pytest.mark.parametrize(
    "text",
    [
        WINDOWED + "INSERT INTO w (k, at) VALUES (1, 2);",
        PLAIN + "DELETE FROM p WHERE k = 1;",
        WINDOWED + "DELETE FROM somewhere WHERE k = 1;",
        WINDOWED + "DELETE FROM w WHERE k = 1;" + f"ALTER TABLE w WITH compaction = {UNIFIED};",
    ],
)
def test_deletes_elsewhere_are_fine(text: str) -> None:
    assert findings(text, "T4") == ()


def test_deletes_that_are_known_are_found_once() -> None:
    deleted = frozenset({"w", "p"})
    assert [one.text for one in findings(WINDOWED + PLAIN, "T4", deleted=deleted)] == [
        "rows of w are deleted one by one"
    ]
    both = findings(WINDOWED + "DELETE FROM w WHERE k = 1;", "T4", deleted=deleted)
    assert [one.text for one in both] == ["this deletes from w, which has time windows"]


def test_updates_on_time_windows_are_found() -> None:
    text = WINDOWED + "UPDATE w SET v = 1 WHERE k = 1 AND at = 2;"
    assert [one.text for one in findings(text, "T5")] == ["this updates w, which has time windows"]
    assert findings(WINDOWED, "T5") == ()
    assert [one.text for one in findings(WINDOWED, "T5", updated=frozenset({"w"}))] == [
        "columns of w change long after the row was written"
    ]
    assert findings(PLAIN + "UPDATE p SET v = 1 WHERE k = 1 AND c = 2;", "T5") == ()


def test_flags_on_time_windows_are_worth_a_note() -> None:
    columns = "k int, at timestamp, seen boolean, PRIMARY KEY (k, at)"
    text = table(columns=columns, compaction=windows())
    assert [(one.severity, one.subject) for one in findings(text, "T5")] == [(Severity.NOTE, "seen")]
    assert pointed_at(text, findings(text, "T5")) == ["seen"]
    known = findings(text, "T5", updated=frozenset({"t"}))
    assert [(one.severity, one.text) for one in known] == [
        (Severity.WARNING, "columns of t (seen among them) change long after the row was written")
    ]
    assert findings(table(columns=columns), "T5") == ()


def test_timestamps_of_the_writers_own_are_found_on_time_windows_only() -> None:
    text = WINDOWED + (
        "INSERT INTO w (k, at) VALUES (1, 2) USING TIMESTAMP 5;\n"
        "UPDATE w USING TTL 3 AND TIMESTAMP ? SET v = 1 WHERE k = 1 AND at = 2;\n"
        "DELETE FROM w USING TIMESTAMP :stamp WHERE k = 1;\n"
        "BEGIN BATCH USING TIMESTAMP 7 INSERT INTO w (k, at) VALUES (1, 2); APPLY BATCH;\n"
    )
    assert [one.statement for one in findings(text, "T6")] == [1, 2, 3, 4]
    assert pointed_at(text, findings(text, "T6"))[:3] == ["TIMESTAMP"] * 3
    assert findings(WINDOWED + "INSERT INTO w (k, at) VALUES (1, 2) USING TTL 5;", "T6") == ()
    assert findings(PLAIN + "INSERT INTO p (k, c) VALUES (1, 2) USING TIMESTAMP 5;", "T6") == ()
    assert len(findings(WINDOWED, "T6", stamped=frozenset({"w"}))) == 1


def test_collections_written_whole_are_found() -> None:
    columns = "k int, tags set<text>, kept frozen<set<text>>, PRIMARY KEY (k)"
    text = table(columns=columns) + "INSERT INTO t (k, tags, kept) VALUES (1, {'a'}, {'b'});"
    found = findings(text, "T14")
    assert [(one.subject, one.text) for one in found] == [("tags", "tags set<text> is written whole")]
    assert pointed_at(text, found) == ["tags"]
    assert findings(table(columns=columns) + "INSERT INTO t (k, kept) VALUES (1, {'b'});", "T14") == ()
    assert findings(table(columns=columns) + "UPDATE t SET tags = tags + {'a'} WHERE k = 1;", "T14") == ()
    known = findings(table(columns=columns), "T14", rewritten=frozenset({("t", "tags"), ("t", "kept")}))
    assert [one.subject for one in known] == ["tags"]


@pytest.mark.parametrize(
    "writes",
    [
        "INSERT INTO p (k, c) VALUES (1, 1); INSERT INTO p (k, c) VALUES (2, 1);",
        "INSERT INTO p (k, c) VALUES (1, 1); UPDATE p SET v = 1 WHERE k = 2 AND c = 1;",
        "DELETE FROM p WHERE k = 1; DELETE FROM q WHERE k = 2;",
        "INSERT INTO p (k, c) VALUES (?, ?); INSERT INTO named (name) VALUES (?);",
    ],
)
def test_batches_over_partitions_that_differ_are_found(writes: str) -> None:
    tables = PLAIN + table("q", "k int, v int, PRIMARY KEY (k)") + table("named", "name text, PRIMARY KEY (name)")
    found = findings(f"{tables}BEGIN UNLOGGED BATCH {writes} APPLY BATCH;", "T17")
    assert [one.text for one in found] == ["an unlogged batch writes to more than one partition"]


@pytest.mark.parametrize(
    "writes",
    [
        "INSERT INTO p (k, c) VALUES (1, 1); INSERT INTO p (k, c) VALUES (1, 2);",
        "INSERT INTO p (k, c) VALUES (1, 1); DELETE FROM q WHERE k = 1;",
        "INSERT INTO p (k, c) VALUES (?, ?); INSERT INTO p (k, c) VALUES (?, ?);",
        "INSERT INTO p (k, c) VALUES (:k, 1); INSERT INTO q (k) VALUES (:other);",
        "INSERT INTO elsewhere (k, c) VALUES (1, 1); INSERT INTO elsewhere (k, c) VALUES (2, 2);",
        "DELETE FROM p WHERE k IN (1, 2); DELETE FROM p WHERE k = 3;",
        "INSERT INTO p JSON '{\"k\": 1}'; INSERT INTO p (k, c) VALUES (2, 2);",
        "",
    ],
)
def test_batches_whose_partitions_are_one_or_not_known_are_left_alone(writes: str) -> None:
    tables = PLAIN + table("q", "k int, v int, PRIMARY KEY (k)")
    assert findings(f"{tables}BEGIN BATCH {writes} APPLY BATCH;", "T17") == ()


def test_plain_writes_beside_conditional_ones_are_found_once_a_table() -> None:
    text = PLAIN + (
        "INSERT INTO p (k, c) VALUES (1, 1) IF NOT EXISTS;\n"
        "DELETE FROM p WHERE k = 1 AND c = 1;\n"
        "UPDATE p SET v = 1 WHERE k = 1 AND c = 1;\n"
        "DELETE FROM other WHERE k = 1;"
    )
    assert [one.statement for one in findings(text, "K1")] == [2]
    assert findings(PLAIN + "INSERT INTO p (k, c) VALUES (1, 1) IF NOT EXISTS;", "K1") == ()
    assert findings(PLAIN + "INSERT INTO p (k, c) VALUES (1, 1);", "K1") == ()


FLAGGED = table(
    "w", "k int, at timestamp, seen boolean, PRIMARY KEY (k, at)", comment="'x'", compaction=windows()
)  # fmt: skip
"""Time windows over rows with a flag."""


def test_an_update_says_more_than_a_flag_looks_like() -> None:
    found = findings(FLAGGED + "UPDATE w SET seen = true WHERE k = 1 AND at = 2;", "T5")
    assert [(one.severity, one.text) for one in found] == [(Severity.WARNING, "this updates w, which has time windows")]


@pytest.mark.parametrize(
    ("rule", "statement", "wanted"),
    [
        ("T4", "BEGIN BATCH INSERT INTO w (k, at) VALUES (1, 2); DELETE FROM w WHERE k = 1; APPLY BATCH;", "w"),
        ("T5", "BEGIN BATCH UPDATE w SET seen = true WHERE k = 1 AND at = 2; APPLY BATCH;", "w"),
        ("K1", "UPDATE w SET seen = true WHERE k = 1 AND at = 2 IF seen = false; DELETE FROM w WHERE k = 1;", "w"),
    ],
)
def test_a_write_is_pointed_at_by_its_table(rule: str, statement: str, wanted: str) -> None:
    text = FLAGGED + statement
    assert pointed_at(text, findings(text, rule)) == [wanted]


@pytest.mark.parametrize(
    ("rule", "text", "known"),
    [
        ("T4", FLAGGED, {"deleted": frozenset({"w"})}),
        ("T5", WINDOWED, {"updated": frozenset({"w"})}),
        ("T6", FLAGGED, {"stamped": frozenset({"w"})}),
    ],
)
def test_what_is_only_known_is_pointed_at_where_the_windows_are_declared(
    rule: str, text: str, known: dict[str, Any]
) -> None:
    assert pointed_at(text, findings(text, rule, **known)) == ["compaction"]


def test_names_of_columns_are_compared_as_the_server_knows_them() -> None:
    tags = table(columns='k int, "Tags" set<text>, kinds set<text>, PRIMARY KEY (k)')
    text = tags + 'INSERT INTO t (K, "Tags", KINDS) VALUES (1, {}, {});'
    found = findings(text, "T14")
    assert [(one.subject, one.statement) for one in found] == [('"Tags"', 1), ("kinds", 1)]
    batch = f"{PLAIN}BEGIN BATCH INSERT INTO p (K, C) VALUES (1, 1); INSERT INTO P (k, c) VALUES (2, 1); APPLY BATCH;"
    assert len(findings(batch, "T17")) == 1
    quoted = table('"Q"', '"K" int PRIMARY KEY, k int')
    for key, differ in (('"K"', True), ("k", False)):
        writes = f'DELETE FROM "Q" WHERE {key} = 1; DELETE FROM "Q" WHERE {key} = 2;'
        assert bool(findings(f"{quoted}BEGIN BATCH {writes} APPLY BATCH;", "T17")) is differ


def test_what_is_written_whole_is_reported_once() -> None:
    text = table(columns="k int PRIMARY KEY, tags set<text>")
    text += "BEGIN BATCH INSERT INTO t (k, tags) VALUES (1, {'a'}); APPLY BATCH;"
    (found,) = findings(text, "T14", rewritten=frozenset({("t", "tags")}))
    assert (found.statement, pointed_at(text, [found])) == (1, ["t"])


def test_a_batch_is_reported_by_its_kind_and_its_tables() -> None:
    tables = PLAIN + table("named", "name text PRIMARY KEY")
    writes = "INSERT INTO named (name) VALUES ('a'); DELETE FROM p WHERE k = 1; DELETE FROM p WHERE k = 2;"
    (found,) = findings(f"{tables}BEGIN BATCH {writes} APPLY BATCH;", "T17")
    assert (found.table, found.statement) == ("named, p", 2)
    assert found.text == "a logged batch writes to more than one partition"


STAMPED = WINDOWED + "INSERT INTO w (k, at) VALUES (1, 2) USING TIMESTAMP 5;"
WHOLE: dict[str, Any] = {"rewritten": frozenset({("t", "tags")})}


@pytest.mark.parametrize(
    ("rule", "text", "known", "about", "said"),
    [
        ("T4", WINDOWED, {"deleted": frozenset({"w"})}, "w", "rows of w are deleted one by one"),
        (
            "T4",
            WINDOWED + "DELETE FROM w WHERE k = 1;",
            {},
            "w",
            "this deletes from w, which has time windows",
        ),
        (
            "T5",
            WINDOWED,
            {"updated": frozenset({"w"})},
            "w",
            "columns of w change long after the row was written",
        ),
        (
            "T5",
            FLAGGED,
            {},
            "w",
            "seen of w: flags and counters change after the row was written, as a rule",
        ),
        ("T6", STAMPED, {}, "w", "this writes to w with a timestamp of its own"),
        (
            "T6",
            WINDOWED,
            {"stamped": frozenset({"w"})},
            "w",
            "rows of w are written with timestamps of the writer's choice",
        ),
        (
            "T14",
            table(columns="k int PRIMARY KEY, tags set<text>"),
            WHOLE,
            "t",
            "tags set<text> is written whole whenever its row is",
        ),
        (
            "K1",
            PLAIN + "DELETE FROM p WHERE k = 1; DELETE FROM p WHERE k = 1 AND c = 1 IF EXISTS;",
            {},
            "p",
            "p is written with IF elsewhere, and without it here",
        ),
    ],
)
def test_each_rule_reports_the_table_and_what_becomes_of_it(
    rule: str, text: str, known: dict[str, Any], about: str, said: str
) -> None:
    assert [(hit.table, hit.text) for hit in findings(text, rule, **known)] == [(about, said)]


def test_counters_on_time_windows_change_as_flags_do() -> None:
    text = table(columns="k int PRIMARY KEY, hits counter, total counter", compaction=windows())
    (found,) = findings(text, "T5")
    assert (found.subject, found.severity) == ("hits", Severity.NOTE)
    assert found.text.startswith("hits, total of t: ")
