"""Lint beside real servers: a file and the keyspace that it made are judged alike; names that they really know."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from mailmend.admin.schema.lint import LintSettings, lint_files, lint_live
from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.lint_sources import live_subject, release_of, statements_of
from mailmend.cql.schema.lint.rule import LintFinding, Severity
from mailmend.cql.schema.lint.rules import RULES
from mailmend.cql.schema.lint.servers import COMPACTIONS, TABLE_OPTIONS, VALUES, ServerRelease
from mailmend.cql.schema.lint.subject import Knowledge
from mailmend.model.errors import MailmendError
from tests.support.commands import command_line
from tests.support.linting import DAY, UNIFIED, table, windows
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

BY_TOPOLOGY = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
SIMPLE = "{'class': 'SimpleStrategy', 'replication_factor': 1}"

STRANGE = (
    table("plain")
    + table("no_ttl", compaction=windows(1, "HOURS"))
    + table("ttl", compaction=windows(), default_time_to_live=9 * DAY, read_repair="'NONE'", gc_grace_seconds=60)
    + table("units", compaction=windows(timestamp_resolution="MILLISECONDS"), bloom_filter_fp_chance=0.001)
    + table("series", "sensor text, at timestamp, seen boolean, PRIMARY KEY (sensor, at)", compaction=windows(30))
    + table("pairs", "done boolean, c int, tags set<text>, PRIMARY KEY (done, c)", compaction=UNIFIED)
    + table(
        "deletedMailsV2",
        "queueName text, enqueueId uuid, PRIMARY KEY ((queueName, enqueueId))",
        default_time_to_live=DAY,
    )
    + table(
        "enqueuedMailsV4",
        "queueName text, slice timestamp, v text, PRIMARY KEY (queueName, slice)",
        compaction=windows(),
    )
    + table("truth", "k int, steps list<text>, PRIMARY KEY (k)", default_time_to_live=DAY)
    + table("copy", "k int, hits counter, PRIMARY KEY (k)", speculative_retry="'ALWAYS'")
    + table('"Odd_Name"', '"K" int, v uuid, PRIMARY KEY ("K")', compaction=windows(2))
    + 'CREATE INDEX odd ON "Odd_Name" (v);\n'
    + table("indexed", "k int, v text, PRIMARY KEY (k)")
    + "CREATE INDEX ON indexed (v);\n"
)
DECLARED = Knowledge(projections=(("truth", "copy"),), rows_per_partition={"plain": 1_000_000})
"""What settings would say."""


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(Contact((cassandra.host,), cassandra.port)) as opened:
        yield opened


@pytest.fixture
def keyspace(cassandra: CassandraServer, cluster: CassandraCluster) -> Iterator[str]:
    name = cassandra.keyspace()
    yield name
    cluster.execute_ddl(f"DROP KEYSPACE IF EXISTS {name}")


def verdicts(findings: Sequence[LintFinding]) -> set[tuple[str, str, str, Severity]]:
    return {
        (one.rule.id, one.table.strip('"').lower(), one.subject.strip('"').lower(), one.severity) for one in findings
    }


def test_a_file_and_the_keyspace_that_it_made_are_judged_alike(
    cassandra: CassandraServer, cluster: CassandraCluster, keyspace: str, tmp_path: Path
) -> None:
    """Every rule that looks at schemas; only what statements do is not left in a keyspace."""
    file = tmp_path / "strange.cql"
    file.write_text(
        f"CREATE KEYSPACE {keyspace} WITH replication = {SIMPLE};\nUSE {keyspace};\n{STRANGE}", encoding="utf-8"
    )
    made = create(cluster, keyspace, file)
    order = LintSettings(keyspace, level=Severity.NOTE, knowledge=DECLARED)
    from_file, live = lint_files([file], order), lint_live(cluster, order)
    assert made > 10
    assert verdicts(from_file.findings) == {one for one in verdicts(live.findings) if one[2] != "paxos_variant"}
    assert {one.rule.id for one in live.findings} >= {
        "T1",
        "T2",
        "T3",
        "T4",
        "T5",
        "T7",
        "T8",
        "T10",
        "T12",
        "T13",
        "T15",
        "T16",
        "T19",
        "T20",
        "T21",
        "T23",
        "T24",
    }
    ended = command_line(tmp_path, cassandra)("schema", "lint", "--live", "--keyspace", keyspace, "--json")
    assert ended.code == 1
    assert {one["rule"] for one in ended.json["findings"]} >= {"T1", "T8", "T16"}
    assert json.dumps(ended.json)


def create(cluster: CassandraCluster, keyspace: str, file: Path) -> int:
    text = file.read_text(encoding="utf-8")
    placed = statements_of({str(file): text})
    for one in placed:
        statement = text[one.span.start : one.span.end]
        if not statement.startswith("USE"):
            cluster.execute_ddl(qualified(statement, keyspace))
    return len(placed)


def qualified(statement: str, keyspace: str) -> str:
    for words in ("CREATE TABLE ", " ON "):
        if statement.startswith(("CREATE TABLE", "CREATE INDEX")):
            statement = statement.replace(words, f"{words}{keyspace}.", 1)
    return statement


def test_a_live_subject_says_what_the_server_is(cluster: CassandraCluster, keyspace: str) -> None:
    cluster.execute_ddl(f"CREATE KEYSPACE {keyspace} WITH replication = {BY_TOPOLOGY}")
    subject = live_subject(cluster, keyspace, Knowledge(), None, None)
    assert release_of(cluster) is subject.release is ServerRelease.CASSANDRA_5_0
    assert subject.replication is not None
    assert subject.replication["class"].endswith("NetworkTopologyStrategy")
    assert subject.knowledge.hint_window.total_seconds() == 3 * 3600
    assert subject.knowledge.paxos_variant == "v1"
    assert all(not list(rule.check(subject)) for rule in RULES)


VALUE_OF: Mapping[str, str] = {
    "tombstone_threshold": "0.2",
    "tombstone_compaction_interval": "86400",
    "min_threshold": "4",
    "max_threshold": "32",
    "min_sstable_size": "50",
    "bucket_low": "0.5",
    "bucket_high": "1.5",
    "sstable_size_in_mb": "160",
    "fanout_size": "10",
    "provide_overlapping_tombstones": "NONE",
    "expired_sstable_check_frequency_seconds": "600",
    "timestamp_resolution": "MICROSECONDS",
    "compaction_window_unit": "DAYS",
    "compaction_window_size": "1",
    "max_sstable_age_days": "365",
    "base_time_seconds": "3600",
    "max_window_size_seconds": "86400",
    "scaling_parameters": "T4",
    "flush_size_override": "100MiB",
    "max_sstables_to_compact": "32",
    "base_shard_count": "4",
    "target_sstable_size": "1GiB",
    "sstable_growth": "0.5",
    "overlap_inclusion_method": "TRANSITIVE",
}
"""A value that the option takes; `false` for all others."""

TABLE_VALUE_OF: Mapping[str, str] = {
    "bloom_filter_fp_chance": "0.01",
    "caching": "{'keys': 'ALL'}",
    "comment": "'words'",
    "compaction": "{'class': 'LeveledCompactionStrategy'}",
    "compression": "{'class': 'LZ4Compressor'}",
    "crc_check_chance": "0.5",
    "default_time_to_live": "1",
    "extensions": "{}",
    "gc_grace_seconds": "1",
    "max_index_interval": "2048",
    "memtable_flush_period_in_ms": "0",
    "min_index_interval": "128",
    "speculative_retry": "'99p'",
    "additional_write_policy": "'99p'",
    "read_repair": "'NONE'",
    "memtable": "'default'",
    "cdc": "false",
    "allow_auto_snapshot": "true",
    "incremental_backups": "true",
}
NOT_TRIED = {"id", "auto_repair", "compact storage"}
"""An id cannot be changed, auto_repair needs a flag of the JVM, COMPACT STORAGE is no option of ALTER."""


def knows(cluster: CassandraCluster, keyspace: str, options: str) -> bool:
    try:
        cluster.execute_ddl(f"ALTER TABLE {keyspace}.t WITH {options}")
    except MailmendError:
        return False
    return True


def compaction(strategy: str, options: Mapping[str, str]) -> str:
    pairs = ", ".join(f"'{name}': '{value}'" for name, value in {"class": strategy, **options}.items())
    return f"compaction = {{{pairs}}}"


def disagreements(cluster: CassandraCluster, keyspace: str, release: ServerRelease) -> list[str]:
    cluster.execute_ddl(f"CREATE KEYSPACE {keyspace} WITH replication = {BY_TOPOLOGY}")
    cluster.execute_ddl(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY)")
    return [*_compactions(cluster, keyspace, release), *_table_options(cluster, keyspace, release)]


def _compactions(cluster: CassandraCluster, keyspace: str, release: ServerRelease) -> Iterator[str]:
    """All options that a class takes in one statement, each that it should refuse in one of its own."""
    classes = COMPACTIONS[release]
    every = {name: options for known in COMPACTIONS.values() for name, options in known.items()}
    names = set().union(*(options for options in every.values() if options))
    for strategy in every:
        options = classes.get(strategy, frozenset())
        taken = {name: _value(strategy, name) for name in sorted(options or ())}
        if knows(cluster, keyspace, compaction(strategy, taken)) is not (strategy in classes):
            yield f"{strategy} {taken}"
        elif strategy in classes:
            wrong = (
                name
                for name in names - set(taken)
                if knows(cluster, keyspace, compaction(strategy, {name: _value(strategy, name)}))
            )
            yield from (f"{strategy} takes {name}" for name in wrong)
    for unit in VALUES["compaction_window_unit"]:
        if not knows(cluster, keyspace, compaction("TimeWindowCompactionStrategy", {"compaction_window_unit": unit})):
            yield unit


def _value(strategy: str, name: str) -> str:
    sized = name == "min_sstable_size" and strategy.startswith("Unified")
    return "100MiB" if sized else VALUE_OF.get(name, "false")


def _table_options(cluster: CassandraCluster, keyspace: str, release: ServerRelease) -> Iterator[str]:
    known = TABLE_OPTIONS[release] - NOT_TRIED
    taken = " AND ".join(f"{name} = {TABLE_VALUE_OF[name]}" for name in sorted(known))
    if not knows(cluster, keyspace, taken):
        yield taken
    every = set().union(*TABLE_OPTIONS.values()) - NOT_TRIED
    yield from (name for name in every - known if knows(cluster, keyspace, f"{name} = {TABLE_VALUE_OF.get(name, '1')}"))


def test_cassandra_5_knows_the_names_that_we_think_it_knows(cluster: CassandraCluster, keyspace: str) -> None:
    assert disagreements(cluster, keyspace, ServerRelease.CASSANDRA_5_0) == []


@pytest.mark.thorough
def test_cassandra_4_1_knows_the_names_that_we_think_it_knows(cassandra41: CassandraServer) -> None:
    with connect(Contact((cassandra41.host,), cassandra41.port)) as older:
        assert release_of(older) is ServerRelease.CASSANDRA_4_1
        assert disagreements(older, cassandra41.keyspace(), ServerRelease.CASSANDRA_4_1) == []
