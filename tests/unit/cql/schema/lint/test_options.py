"""Rules about what a server takes at all, version by version."""

import pytest

from mailmend.cql.schema.lint.rule import Severity
from mailmend.cql.schema.lint.rules import lint, rules_named
from mailmend.cql.schema.lint.servers import COMPACTIONS, TABLE_OPTIONS, ServerRelease, parse_release
from mailmend.cql.schema.lint.subject import Subject
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table
from tests.support.linting import findings, pointed_at, table, windows

C3, C40, C41, C5 = (
    ServerRelease.CASSANDRA_3_11,
    ServerRelease.CASSANDRA_4_0,
    ServerRelease.CASSANDRA_4_1,
    ServerRelease.CASSANDRA_5_0,
)


def test_a_class_from_the_upgrade_notes_of_james_is_no_class() -> None:
    text = (
        table()
        + "ALTER TABLE t WITH compaction = {'class': 'org.apache.cassandra.db.compaction.TimeWindowCompaction'};"
    )
    found = findings(text, "T11")
    assert [(one.subject, one.severity) for one in found] == [("compaction.class", Severity.ERROR)]
    assert found[0].text == "Cassandra 5.0 has no compaction class TimeWindowCompaction"
    assert found[0].fix == "Did you mean TimeWindowCompactionStrategy?"
    assert pointed_at(text, found) == ["compaction"]


@pytest.mark.parametrize(
    ("strategy", "releases"),
    [
        ("SizeTieredCompactionStrategy", set(ServerRelease)),
        ("DateTieredCompactionStrategy", {C3, C40, C41}),
        ("UnifiedCompactionStrategy", {C5}),
        ("IncrementalCompactionStrategy", {ServerRelease.SCYLLA}),
        ("NullCompactionStrategy", {ServerRelease.SCYLLA}),
        ("org.apache.cassandra.db.compaction.LeveledCompactionStrategy", set(ServerRelease)),
        ("com.example.OurOwnStrategy", set(ServerRelease)),
        ("timewindowcompactionstrategy", set()),
        ("MadeUp", set()),
    ],
)
def test_classes_come_and_go(strategy: str, releases: set[ServerRelease]) -> None:
    text = table(compaction=f"{{'class': '{strategy}'}}")
    assert {release for release in ServerRelease if not findings(text, "T11", release)} == releases


@pytest.mark.parametrize(
    ("option", "literal", "releases"),
    [
        ("read_repair_chance", "0.1", {C3, ServerRelease.SCYLLA}),
        ("read_repair", "'NONE'", {C40, C41, C5}),
        ("additional_write_policy", "'99p'", {C40, C41, C5}),
        ("memtable", "'trie'", {C41, C5}),
        ("allow_auto_snapshot", "true", {C5}),
        ("tombstone_gc", "{'mode': 'repair'}", {ServerRelease.SCYLLA}),
        ("gc_grace_seconds", "100", set(ServerRelease)),
        ("GC_GRACE_SECONDS", "100", set(ServerRelease)),
        ("comment", "'words'", set(ServerRelease)),
        ("time_to_live", "100", set()),
    ],
)
def test_table_options_come_and_go(option: str, literal: str, releases: set[ServerRelease]) -> None:
    text = table(**{option: literal})
    assert {release for release in ServerRelease if not findings(text, "T11", release)} == releases


@pytest.mark.parametrize(
    ("compaction", "subject", "fix"),
    [
        (windows(compaction_windows_size="3"), "compaction.compaction_windows_size", "compaction_window_size"),
        (windows(unit="HOUR"), "compaction.compaction_window_unit", "HOURS"),
        (windows(unit="days"), "compaction.compaction_window_unit", "DAYS"),
        (windows(timestamp_resolution="MICROS"), "compaction.timestamp_resolution", "MICROSECONDS"),
        ("{'class': 'UnifiedCompactionStrategy', 'min_threshold': '4'}", "compaction.min_threshold", ""),
        (
            "{'class': 'LeveledCompactionStrategy', 'sstable_size_mb': '4'}",
            "compaction.sstable_size_mb",
            "sstable_size_in_mb",
        ),
        ("{'enabled': 'true'}", "compaction.class", ""),
    ],
)
def test_options_of_a_class_are_known_with_their_values(compaction: str, subject: str, fix: str) -> None:
    found = findings(table(compaction=compaction), "T11")
    assert [one.subject for one in found] == [subject]
    assert fix in found[0].fix


@pytest.mark.parametrize(
    "compaction",
    [
        windows(min_threshold="4", bucket_low="0.5", enabled="true"),
        windows(expired_sstable_check_frequency_seconds="5", unsafe_aggressive_sstable_expiration="false"),
        "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4', 'target_sstable_size': '1GiB'}",
    ],
)
def test_options_that_a_class_takes_are_fine(compaction: str) -> None:
    assert findings(table(compaction=compaction), "T11") == ()


def test_what_an_older_compression_was_called_is_reported_as_what_it_is_called_now() -> None:
    text = table(compression="{'sstable_compression': 'LZ4Compressor', 'chunk_length_kb': 8, 'crc_check_chance': 1}")
    assert sorted(one.subject for one in findings(text, "T11")) == [
        "compression.chunk_length_kb",
        "compression.crc_check_chance",
        "compression.sstable_compression",
    ]
    assert {hit.fix for hit in findings(text, "T11")} == {
        "Write class instead.",
        "Write chunk_length_in_kb instead.",
        "Write the table's own option crc_check_chance instead.",
    }
    assert findings(text, "T11", C41) == ()


def test_other_options_with_names_of_their_own_are_known() -> None:
    assert [one.fix for one in findings(table(caching="{'keys': 'ALL', 'rows_per_partitions': '1'}"), "T11")] == [
        "Did you mean rows_per_partition?"
    ]
    assert findings(table(caching="{'keys': 'ALL', 'rows_per_partition': '1'}"), "T11") == ()
    assert [one.fix for one in findings(table(read_repair="'BLOCKED'"), "T11")] == ["Did you mean BLOCKING?"]
    assert findings(table(read_repair="'none'"), "T11") == ()


def test_every_statement_is_asked_not_only_the_last() -> None:
    text = (
        table(compaction="{'class': 'Wrong'}")
        + f"ALTER TABLE t WITH compaction = {windows()};"
        + "ALTER TABLE elsewhere WITH time_to_live = 5;"
    )
    assert [(one.table, one.statement) for one in findings(text, "T11")] == [("t", 0), ("elsewhere", 2)]


@pytest.mark.parametrize(
    ("value", "refusing"),
    [
        ("99p", {C3}),
        ("99.5PERCENTILE", set()),
        ("50ms", set()),
        ("MIN(99p,50ms)", {C3}),
        ("never", {C3}),
        ("none", set()),
        ("50", {C3, C40, C41, C5}),
        ("sometimes", {C3, C40, C41, C5}),
    ],
)
def test_speculation_is_understood_or_not(value: str, refusing: set[ServerRelease]) -> None:
    text = table(speculative_retry=f"'{value}'")
    hits = {release: findings(text, "T24", release) for release in ServerRelease}
    assert {release for release, found in hits.items() if found} == refusing
    assert {one.severity for found in hits.values() for one in found} <= {Severity.ERROR}


@pytest.mark.parametrize("option", ["speculative_retry", "additional_write_policy"])
def test_speculation_that_a_release_does_not_understand_is_reported_with_its_forms(option: str) -> None:
    (hit,) = findings(f"ALTER TABLE t WITH {option} = ' 50 ';", "T24")
    assert (hit.subject, hit.statement, hit.table) == (option, 0, "t")
    assert hit.text == f"Cassandra 5.0 does not understand {option} = '50'"
    forms = "'99p' ('99PERCENTILE' before 4.0), '50ms', 'NONE', or from 4.0 on 'MIN(99p,50ms)'"
    assert hit.fix == f"Write {forms}."


def test_speculation_at_every_request_is_reported_where_it_is_set() -> None:
    (hit,) = findings(table() + "ALTER TABLE t WITH speculative_retry = 'ALWAYS';", "T24")
    assert (hit.statement, hit.table, hit.text) == (
        1,
        "t",
        "speculative_retry = 'ALWAYS' sends every request once more",
    )


def test_asking_one_replica_more_every_time_is_found() -> None:
    found = findings(table(speculative_retry="'always'", additional_write_policy="'ALWAYS'"), "T24")
    assert {(one.subject, one.severity) for one in found} == {
        ("additional_write_policy", Severity.WARNING),
        ("speculative_retry", Severity.WARNING),
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (table() + table(), "exists"),
        (table() + "ALTER TABLE t DROP k;", "k"),
        (table() + "ALTER TABLE t DROP nothing;", "nothing"),
        (table() + "INSERT INTO t (nothing) VALUES (1);", "nothing"),
    ],
)
def test_statements_that_the_server_would_refuse_are_found(text: str, reason: str) -> None:
    found = findings(text, "K2")
    assert [(one.statement, one.table, one.severity) for one in found] == [(1, "t", Severity.ERROR)]
    assert reason in found[0].text


@pytest.mark.parametrize(
    "text",
    [
        table() + table().replace("TABLE", "TABLE IF NOT EXISTS"),
        "ALTER TABLE elsewhere ADD a int; DROP TABLE elsewhere; TRUNCATE elsewhere;",
        "INSERT INTO elsewhere (a) VALUES (1); CREATE INDEX ON elsewhere (a);",
        "BEGIN BATCH INSERT INTO elsewhere (a) VALUES (1); APPLY BATCH;",
        table(columns="k int, v frozen<somewhere>, PRIMARY KEY (k)"),
    ],
)
def test_what_other_statements_may_have_made_is_not_missed(text: str) -> None:
    assert findings(text, "K2") == ()


def test_names_that_a_server_itself_tells_are_not_looked_at() -> None:
    options_set = {"read_repair_chance": "0.0", "compression": "{'chunk_length_kb': '8'}"}
    live = Table("t", (Column("k", "int", Kind.PARTITION),), options=options_set)
    found = lint(Subject(Schema((), (live,))), rules_named(["T11"]))
    assert [one.subject for one in found] == ["compression.chunk_length_kb"]


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("3.11", C3),
        ("3.11.19", C3),
        ("4.0.12", C40),
        ("4.1-rc1", C41),
        ("5.0.9", C5),
        ("5.1", C5),
        ("6.0-alpha2", C5),
        ("4", C40),
        ("Scylla", ServerRelease.SCYLLA),
        ("ScyllaDB", ServerRelease.SCYLLA),
    ],
)
def test_versions_are_read_as_servers_tell_them(text: str, release: ServerRelease) -> None:
    assert parse_release(text) is release


@pytest.mark.parametrize("text", ["", "new", "2.2", "3.0", "5,0", "\u0665.\u0660", "-1", "5."])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="is no server whose options are known") as refused:
        parse_release(text)
    assert refused.value.mend == "Write one of: 3.11, 4.0, 4.1, 5.0, scylla."


def test_every_server_has_its_tables() -> None:
    assert set(TABLE_OPTIONS) == set(COMPACTIONS) == set(ServerRelease)


@pytest.mark.parametrize(
    ("option", "fix"),
    [
        ("gc_grace_second", "Did you mean gc_grace_seconds?"),
        ("COMPACTON", "Did you mean compaction?"),
        ("expiry", ""),
        ("zzz", ""),
    ],
)
def test_only_what_is_near_is_offered(option: str, fix: str) -> None:
    (found,) = findings(table(**{option: "1"}), "T11")
    assert found.fix == (fix or found.rule.fix)


@pytest.mark.parametrize(
    ("caching", "unknown"),
    [
        ("{'KEYS': 'ALL', 'rows_per_partition': '1'}", ["caching.KEYS"]),
        ("{'keys': 'all', 'rows_per_partition': 'None'}", []),
        ("{'key': 'ALL'}", ["caching.key"]),
        ("{}", []),
    ],
)
def test_names_of_caching_have_one_case_and_its_values_any(caching: str, unknown: list[str]) -> None:
    text = table(caching=caching)
    assert [one.subject for one in findings(text, "T11")] == unknown
    assert findings(text, "T11", ServerRelease.SCYLLA) == ()


def test_a_statement_tells_of_its_table_in_any_case() -> None:
    assert len(findings(table('"Mixed"', compaction="{'class': 'Wrong'}"), "T11")) == 1
    assert len(findings(table("MixedToo", compaction="{'class': 'Wrong'}"), "T11")) == 1


@pytest.mark.parametrize("release", [C41, C5])
def test_paxos_is_reported_with_its_own_fix_of_tables_that_are_written_with_if(release: ServerRelease) -> None:
    text = table() + table("plain") + "INSERT INTO plain (k) VALUES (1); DELETE FROM t WHERE k = 1 IF EXISTS;"
    (found,) = findings(text, "T24", release, paxos_variant="v1", conditional=frozenset({"known"}))
    assert found.text == "the server uses the first variant of Paxos, and these are written with IF: t"
    assert (found.subject, found.severity) == ("paxos_variant", Severity.NOTE)
    notes = "Read the upgrade notes of Cassandra 4.1"
    assert found.fix == f"{notes}, then set paxos_variant: v2 on every node: half the round trips."
    known = findings(table("known") + text, "T24", release, paxos_variant="v1", conditional=frozenset({"known"}))
    assert known[0].text.endswith("with IF: known, t")
    assert findings(text, "T24", release, paxos_variant="v2") == findings(text, "T24", release) == ()
    assert findings(text, "T24", C40, paxos_variant="v1") == ()
    assert findings(table(), "T24", release, paxos_variant="v1") == ()


@pytest.mark.parametrize(
    ("text", "about"),
    [
        (table() + "CREATE INDEX ON t (nothing);", "t"),
        (table() + "CREATE TYPE a (x int); CREATE TYPE a (x int);", "a"),
        (table() + "BEGIN BATCH INSERT INTO t (nothing) VALUES (1); APPLY BATCH;", ""),
        (table() + "TRUNCATE t; DROP TABLE t; TRUNCATE t;", "t"),
        (table() + "DROP TABLE t; ALTER TABLE t ADD v int;", "t"),
        ("CREATE TYPE a (x int);" + table(columns="k int PRIMARY KEY, v list<a>"), "t"),
        (table() + "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE k IS NOT NULL PRIMARY KEY (z);", "m"),
        (table('"T"') + 'INSERT INTO "T" (nothing) VALUES (1);', '"T"'),
    ],
)
def test_what_cannot_be_carried_out_is_reported_of_its_object(text: str, about: str) -> None:
    assert [one.table for one in findings(text, "K2")] == [about]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE INDEX ON elsewhere (a);",
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM elsewhere WHERE k IS NOT NULL PRIMARY KEY (k);",
        "CREATE TYPE a (x frozen<somewhere>);",
        table() + "ALTER TABLE t ADD v frozen<somewhere>;",
        table() + "BEGIN BATCH INSERT INTO t (k) VALUES (1); INSERT INTO elsewhere (k) VALUES (1); APPLY BATCH;",
        "DROP INDEX somewhere;",
        "DROP TYPE somewhere;",
    ],
)
def test_what_needs_something_made_elsewhere_may_be_fine(text: str) -> None:
    assert findings(text, "K2") == ()
