"""Laws of the rules, on any schema: they never raise, and no order of tables or statements of others changes them."""

from collections.abc import Iterable
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.lint_sources import statements_of
from mailmend.cql.schema.lint.rule import LintFinding
from mailmend.cql.schema.lint.rules import lint, notes_among, with_reasons
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import Knowledge, Subject, subjects_of
from mailmend.model.keyspace import Index, Schema, View
from mailmend.model.table import Column, Compaction, Kind, Table

TYPES = st.sampled_from(
    [
        "int",
        "text",
        "boolean",
        "uuid",
        "timestamp",
        "counter",
        "set<text>",
        "list<int>",
        "frozen<list<int>>",
        "vector<float,3>",
    ]
)
LITERALS = st.sampled_from(
    [
        "0",
        "1",
        "86400",
        "864000",
        "-5",
        "99999999999999999999",
        "1e3",
        "0.01",
        "''",
        "'NONE'",
        "'ALWAYS'",
        "{",
        "{}",
        "{'class': 'X'}",
        "{'keys': 'ALL'}",
        "true",
        "null",
        "?",
        "'\u0665'",
        "'--5'",
        "'-'",
        "' 7 '",
    ]
)
OPTIONS = st.sampled_from(
    [
        "default_time_to_live",
        "gc_grace_seconds",
        "bloom_filter_fp_chance",
        "read_repair",
        "speculative_retry",
        "caching",
        "compression",
        "compaction",
        "additional_write_policy",
        "nonsense",
        "compact storage",
    ]
)
STRATEGIES = st.sampled_from(
    [
        "TimeWindowCompactionStrategy",
        "org.apache.cassandra.db.compaction.TimeWindowCompactionStrategy",
        "UnifiedCompactionStrategy",
        "DateTieredCompactionStrategy",
        "TimeWindowCompaction",
        "a.b.C",
        "",
    ]
)
COMPACTION_OPTIONS = st.dictionaries(
    st.sampled_from(
        [
            "compaction_window_size",
            "compaction_window_unit",
            "timestamp_resolution",
            "unsafe_aggressive_sstable_expiration",
            "min_threshold",
            "what",
        ]
    ),
    st.sampled_from(
        ["0", "1", "7", "-1", "DAYS", "HOURS", "MINUTES", "days", "true", "99999999999999999999", "", "\u0667"]
    ),
)
NAMES = st.sampled_from(
    ["a", "b", "c", "imapUidTable", "messageIdTable", "deletedMailsV2", "enqueuedMailsV4", '"Odd ""name"']
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    kinds = [Kind.PARTITION] * draw(st.integers(0, 2)) + [Kind.CLUSTERING] * draw(st.integers(0, 2))
    kinds += [draw(st.sampled_from([Kind.REGULAR, Kind.STATIC])) for _ in range(draw(st.integers(0, 3)))]
    return Table(
        draw(NAMES),
        tuple(Column(f"c{number}", draw(TYPES), kind) for number, kind in enumerate(kinds)),
        compaction=draw(st.none() | st.builds(Compaction, STRATEGIES, COMPACTION_OPTIONS)),
        options=draw(st.dictionaries(OPTIONS, LITERALS, max_size=4)),
    )


SCHEMAS = st.builds(
    Schema,
    st.just(()),
    st.lists(tables(), max_size=4, unique_by=lambda table: table.name).map(tuple),
    st.lists(
        st.builds(Index, st.sampled_from(["", "i"]), NAMES, st.sampled_from(["c0", "values(c3)", '"C"', ""])),
        max_size=2,
    ).map(tuple),
    st.lists(st.builds(View, tables(), NAMES, st.just("")), max_size=2).map(tuple),
)
KNOWN = st.builds(
    Knowledge,
    repair_interval=st.none() | st.timedeltas(timedelta(0), timedelta(days=1000)),
    marks=st.lists(st.tuples(NAMES, NAMES).map(lambda pair: (pair[0].lower(), pair[1].lower())), max_size=2).map(tuple),
    projections=st.lists(st.tuples(st.just("a"), st.sampled_from(["b", "c", "a"])), max_size=3).map(tuple),
    updated=st.frozensets(st.sampled_from(["a", "b", "imapuidtable"])),
    rows_per_partition=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 10**12)),
    paxos_variant=st.sampled_from(["", "v1", "v2"]),
    conditional=st.frozensets(st.sampled_from(["a", "b"])),
)
REPLICATION = st.none() | st.dictionaries(
    st.sampled_from(["class", "dc1"]), st.sampled_from(["SimpleStrategy", "", "3"])
)


def verdicts(found: Iterable[LintFinding]) -> set[tuple[str, str, str, str]]:
    return {(one.rule.id, one.table, one.subject, one.text) for one in found}


@given(SCHEMAS, KNOWN, st.sampled_from(ServerRelease), REPLICATION)
def test_lint_never_raises(
    schema: Schema, knowledge: Knowledge, release: ServerRelease, replication: dict[str, str] | None
) -> None:
    for one in lint(Subject(schema, "ks", replication=replication, release=release, knowledge=knowledge)):
        assert one.text
        assert one.fix
        assert one.file is None


@given(st.data(), SCHEMAS, KNOWN)
def test_the_order_of_tables_does_not_matter(data: st.DataObject, schema: Schema, knowledge: Knowledge) -> None:
    shuffled = Schema((), tuple(data.draw(st.permutations(schema.tables))), schema.indexes, schema.views)
    first, again = (lint(Subject(one, "ks", knowledge=knowledge)) for one in (schema, shuffled))
    paxos = [one for one in first if one.subject == "paxos_variant"]  # lists tables in the schema's order
    assert verdicts(set(first) - set(paxos)) == verdicts(one for one in again if one.subject != "paxos_variant")
    assert len(first) == len(again)


@given(SCHEMAS)
def test_a_table_is_judged_by_itself(schema: Schema) -> None:
    plain = Schema((), schema.tables)
    alone = [lint(Subject(Schema((), (table,)), "ks")) for table in schema.tables]
    assert verdicts(lint(Subject(plain, "ks"))) == set().union(*(verdicts(found) for found in alone))


STATEMENTS = st.sampled_from(
    [
        "CREATE TABLE a (k int, c timestamp, v boolean, s set<text>, PRIMARY KEY (k, c));",
        "CREATE TABLE IF NOT EXISTS a (k int PRIMARY KEY) WITH gc_grace_seconds = 1;",
        "-- lint: ignore T1, T4: it may\nCREATE TABLE b (k int PRIMARY KEY) WITH default_time_to_live = 60;",
        'CREATE TABLE other."B" ("K" frozen<missing> PRIMARY KEY);',
        "ALTER TABLE a WITH compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': '9'};",
        "ALTER TABLE a ADD w list<int>;",
        "ALTER TABLE a DROP v;",
        "ALTER TABLE nowhere WITH speculative_retry = 'ALWAYS' AND what = {'a': 1};",
        "DROP TABLE a;",
        "DROP KEYSPACE ks;",
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};",
        "USE other;",
        "CREATE INDEX ON a (c);",
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM a WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k);",
        "TRUNCATE a;",
        "INSERT INTO a (k, c, s) VALUES (1, 2, {'x'}) IF NOT EXISTS;",
        "UPDATE a USING TIMESTAMP 1 SET v = true WHERE k = 1 AND c = 2;",
        "DELETE FROM ks.a WHERE k = 1;",
        "BEGIN BATCH DELETE FROM a WHERE k = 1; INSERT INTO b (k) VALUES (2); APPLY BATCH;",
        "GRANT SELECT ON a TO reader;",
        "SELECT * FROM a;",
    ]
)


@given(st.lists(STATEMENTS, max_size=12), KNOWN, st.sampled_from(ServerRelease))
def test_any_history_is_judged_and_every_place_is_in_its_file(
    statements: list[str], knowledge: Knowledge, release: ServerRelease
) -> None:
    half = len(statements) // 2
    texts = {"1.cql": "\n".join(statements[:half]), "2.cql": "\n".join(statements[half:])}
    for subject in subjects_of(statements_of(texts), "ks", release, knowledge):
        found = with_reasons(lint(subject), notes_among(subject.statements))
        for one in found:
            if one.file is not None:
                assert one.span is not None
                assert 0 <= one.span.start < one.span.end <= len(texts[one.file])
        positions = [(one.statement, one.span.start) for one in found if one.span and one.statement is not None]
        assert positions == sorted(positions)
