"""Expected against live: each kind of drift is found, named and told apart from what is only spelled otherwise."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.schema.difference import (
    Aspect,
    Difference,
    aspects_of,
    differences,
    endangers,
    option_says,
    option_text,
    with_lifetimes,
)
from mailmend.model.catalog.mail import MAILBOX_BASE, SCHEMA
from mailmend.model.keyspace import Index, Schema, View
from mailmend.model.names import map_literal
from mailmend.model.table import Column, Compaction, Kind, Table, UserType, columns

KEY, CLUSTER = Column("mailboxId", "timeuuid", Kind.PARTITION), Column("uid", "bigint", Kind.CLUSTERING)
VALUE, OWNER = Column("note", "text"), Column("owner", "text", Kind.STATIC)
TABLE = Table(
    "noteTable",
    (KEY, CLUSTER, VALUE, OWNER),
    comment="Notes",
    compaction=Compaction("LeveledCompactionStrategy"),
    options={"gc_grace_seconds": "0", "caching": "{'keys': 'ALL', 'rows_per_partition': '10'}"},
)
EXPECTED = Schema((MAILBOX_BASE,), (TABLE,))


def with_table(**changes: object) -> Schema:
    return Schema(EXPECTED.types, (replace(TABLE, **changes),))  # type: ignore[arg-type]


def test_a_schema_differs_from_itself_in_nothing() -> None:
    assert differences(SCHEMA, SCHEMA) == ()


def test_an_empty_keyspace_lacks_every_type_and_table() -> None:
    found = differences(SCHEMA, Schema((), ()))
    assert [one.aspect for one in found].count(Aspect.MISSING_TYPE) == len(SCHEMA.types)
    assert [one.aspect for one in found].count(Aspect.MISSING_TABLE) == len(SCHEMA.tables)
    assert len(found) == len(SCHEMA.types) + len(SCHEMA.tables)


CASES: tuple[tuple[Aspect, Schema, str], ...] = (
    (
        Aspect.DIFFERENT_TYPE,
        Schema((UserType("mailboxbase", (("namespace", "text"), ("user", "int"))),), (TABLE,)),
        "different type: mailboxbase: expected namespace text, user text, found namespace text, user int",
    ),
    (Aspect.MISSING_TYPE, Schema((), (TABLE,)), "missing type: mailboxbase (namespace text, user text)"),
    (
        Aspect.UNEXPECTED_TABLE,
        Schema(EXPECTED.types, (TABLE, Table("other", (KEY,)))),
        "unexpected table: other",
    ),
    (
        Aspect.DIFFERENT_KEY,
        with_table(columns=(replace(CLUSTER, kind=Kind.PARTITION), replace(KEY, kind=Kind.CLUSTERING), VALUE, OWNER)),
        "different key: noteTable: expected (mailboxid), uid, found (uid), mailboxid",
    ),
    (
        Aspect.DIFFERENT_KEY,
        with_table(columns=(KEY, replace(CLUSTER, kind=Kind.PARTITION), VALUE, OWNER)),
        "different key: noteTable: expected (mailboxid), uid, found (mailboxid, uid)",
    ),
    (
        Aspect.DIFFERENT_ORDER,
        with_table(columns=(KEY, replace(CLUSTER, descending=True), VALUE, OWNER)),
        "different clustering order: noteTable: expected uid ASC, found uid DESC",
    ),
    (Aspect.MISSING_COLUMN, with_table(columns=(KEY, CLUSTER, OWNER)), "missing column: noteTable.note (text)"),
    (
        Aspect.UNEXPECTED_COLUMN,
        with_table(columns=(KEY, CLUSTER, VALUE, OWNER, Column("colour", "int"))),
        "unexpected column: noteTable.colour (int)",
    ),
    (
        Aspect.DIFFERENT_COLUMN,
        with_table(columns=(KEY, CLUSTER, Column("note", "blob"), OWNER)),
        "different column: noteTable.note: expected text, found blob",
    ),
    (
        Aspect.DIFFERENT_COLUMN,
        with_table(columns=(KEY, CLUSTER, VALUE, Column("owner", "text"))),
        "different column: noteTable.owner: expected text static, found text",
    ),
    (
        Aspect.DIFFERENT_OPTION,
        with_table(options={**TABLE.options, "gc_grace_seconds": "864000"}),
        "different option: noteTable.gc_grace_seconds: expected 0, found 864000",
    ),
    (
        Aspect.DIFFERENT_OPTION,
        with_table(compaction=Compaction("SizeTieredCompactionStrategy")),
        (
            "different option: noteTable.compaction: expected {'class': 'LeveledCompactionStrategy'}, "
            "found {'class': 'SizeTieredCompactionStrategy'}"
        ),
    ),
)


MASKED = with_table(columns=(KEY, CLUSTER, replace(VALUE, mask="mask_default()"), OWNER))


@pytest.mark.parametrize(
    ("expected", "live", "reported"),
    [
        (EXPECTED, MASKED, "expected no mask, found mask_default()"),
        (MASKED, EXPECTED, "expected mask_default(), found no mask"),
        (
            MASKED,
            with_table(columns=(KEY, CLUSTER, replace(VALUE, mask="mask_null()"), OWNER)),
            "expected mask_default(), found mask_null()",
        ),
    ],
)
def test_another_mask_is_reported_with_both_sides(expected: Schema, live: Schema, reported: str) -> None:
    (found,) = differences(expected, live)
    assert found.aspect is Aspect.DIFFERENT_MASK
    assert str(found) == f"different mask: noteTable.note: {reported}"
    assert differences(MASKED, MASKED) == ()


def test_a_column_of_another_type_may_have_another_mask_too() -> None:
    found = differences(EXPECTED, with_table(columns=(KEY, CLUSTER, Column("note", "int", mask="mask_null()"), OWNER)))
    assert [one.aspect for one in found] == [Aspect.DIFFERENT_COLUMN, Aspect.DIFFERENT_MASK]
    assert aspects_of(found) == {Aspect.DIFFERENT_COLUMN, Aspect.DIFFERENT_MASK}


@pytest.mark.parametrize(("aspect", "live", "reported"), CASES, ids=[reported for _, _, reported in CASES])
def test_each_kind_of_drift_is_found_and_reported(aspect: Aspect, live: Schema, reported: str) -> None:
    (found,) = differences(EXPECTED, live)
    assert found.aspect is aspect
    assert str(found) == reported


def test_another_key_counts_once_even_where_the_column_is_of_another_type() -> None:
    live = with_table(columns=(replace(KEY, type="uuid"), CLUSTER, VALUE, OWNER))
    assert differences(EXPECTED, live) == (
        Difference(Aspect.DIFFERENT_COLUMN, "noteTable", "mailboxId", "timeuuid", "uuid"),
    )


SAID_OTHERWISE = {
    "lower case": replace(TABLE, columns=tuple(replace(one, spelling=one.name) for one in TABLE.columns)),
    "order of other columns": replace(TABLE, columns=(KEY, CLUSTER, OWNER, VALUE)),
    "type by another name": replace(TABLE, columns=(KEY, CLUSTER, Column("note", "varchar"), OWNER)),
    "comment": replace(TABLE, comment="in other words"),
    "number": replace(TABLE, options={**TABLE.options, "gc_grace_seconds": "0.0", "speculative_retry": "'99p'"}),
    "map": replace(TABLE, options={**TABLE.options, "caching": "{'rows_per_partition':'10','keys':'ALL'}"}),
    "defaults": replace(TABLE, compaction=Compaction("LeveledCompactionStrategy", {"max_threshold": "32"})),
}


@pytest.mark.parametrize("table", SAID_OTHERWISE.values(), ids=SAID_OTHERWISE)
def test_what_is_only_said_otherwise_is_no_difference(table: Table) -> None:
    assert differences(EXPECTED, Schema(EXPECTED.types, (table,))) == ()


def test_a_table_without_declared_compaction_takes_the_servers() -> None:
    expected = Schema(EXPECTED.types, (replace(TABLE, compaction=None, options={}),))
    assert differences(expected, EXPECTED) == ()


def test_a_class_is_compared_by_its_short_name() -> None:
    literal = map_literal({"class": "org.apache.cassandra.io.compress.LZ4Compressor", "chunk_length_in_kb": "8"})
    assert option_text(literal) == "{'chunk_length_in_kb': '8', 'class': 'LZ4Compressor'}"


@given(st.sets(st.sampled_from(range(len(SCHEMA.tables)))))
def test_exactly_the_tables_taken_away_are_missing(gone: set[int]) -> None:
    live = Schema(SCHEMA.types, tuple(table for index, table in enumerate(SCHEMA.tables) if index not in gone))
    missing = {one.owner for one in differences(SCHEMA, live)}
    assert missing == {SCHEMA.tables[index].spelling for index in gone}


BY_NOTE = Index("by_note", "noteTable", "note", "StorageAttachedIndex", {"case_sensitive": "'false'"})
BY_UID = View(
    Table("by_uid", (Column("uid", "bigint", Kind.PARTITION), Column("mailboxId", "timeuuid", Kind.CLUSTERING))),
    "noteTable",
    "uid IS NOT NULL AND mailboxId IS NOT NULL",
)
INDEXED = replace(EXPECTED, indexes=(BY_NOTE,), views=(BY_UID,))


def aspects(expected: Schema, live: Schema) -> list[tuple[Aspect, str, str]]:
    return [(one.aspect, one.owner, one.subject) for one in differences(expected, live)]


def test_missing_and_unexpected_indexes_and_views_are_reported() -> None:
    assert aspects(INDEXED, EXPECTED) == [
        (Aspect.MISSING_INDEX, "noteTable", "by_note"),
        (Aspect.MISSING_VIEW, "by_uid", ""),
    ]
    assert aspects(EXPECTED, INDEXED) == [
        (Aspect.UNEXPECTED_INDEX, "noteTable", "by_note"),
        (Aspect.UNEXPECTED_VIEW, "by_uid", ""),
    ]


def test_an_index_is_the_same_however_its_class_and_target_are_spelled() -> None:
    spelled = Index(
        "BY_NOTE",
        "notetable",
        '"note"',
        "'org.apache.cassandra.index.sai.StorageAttachedIndex'",
        {"case_sensitive": "'false'", "ascii": "'true'"},
    )
    assert differences(INDEXED, replace(INDEXED, indexes=(spelled,))) == ()
    assert differences(INDEXED, replace(INDEXED, indexes=(replace(spelled, using="sai"),))) == ()


@pytest.mark.parametrize(
    "found",
    [
        replace(BY_NOTE, target="owner"),
        replace(BY_NOTE, target='"Note"'),
        replace(BY_NOTE, using=""),
        replace(BY_NOTE, options={"case_sensitive": "'true'"}),
    ],
    ids=["column", "quoted", "class", "options"],
)
def test_an_index_on_another_column_or_of_another_class_is_different(found: Index) -> None:
    assert aspects(INDEXED, replace(INDEXED, indexes=(found,))) == [(Aspect.DIFFERENT_INDEX, "noteTable", "by_note")]


def test_an_index_with_other_options_is_reported_with_its_target_and_class() -> None:
    (found,) = differences(INDEXED, replace(INDEXED, indexes=(replace(BY_NOTE, options={}),)))
    same = "notetable (note) using StorageAttachedIndex"
    assert str(found) == f"different index: noteTable.by_note: expected {same}, found {same}"


def test_a_view_is_the_same_however_its_condition_is_spelled() -> None:
    spelled = replace(BY_UID, base="notetable", where="UID is not null\n  and mailboxid IS NOT NULL")
    assert differences(INDEXED, replace(INDEXED, views=(spelled,))) == ()
    quoted = replace(BY_UID, where="note = 'A' AND uid IS NOT NULL")
    other = replace(BY_UID, where="note = 'a' AND uid IS NOT NULL")
    assert aspects(replace(INDEXED, views=(quoted,)), replace(INDEXED, views=(other,))) == [
        (Aspect.DIFFERENT_VIEW, "by_uid", "")
    ]


def test_a_view_with_other_options_differs_in_them_only() -> None:
    wanted = replace(BY_UID, table=replace(BY_UID.table, options={"gc_grace_seconds": "10"}))
    assert aspects(replace(INDEXED, views=(wanted,)), INDEXED) == [
        (Aspect.DIFFERENT_OPTION, "by_uid", "gc_grace_seconds")
    ]


def test_an_unexpected_type_is_reported_with_its_fields() -> None:
    more = replace(EXPECTED, types=(*EXPECTED.types, UserType("size", (("bytes", "bigint"),))))
    (found,) = differences(EXPECTED, more)
    assert str(found) == "unexpected type: size (bytes bigint)"


def test_what_is_unexpected_is_reported_with_what_it_is() -> None:
    texts = [str(one) for one in differences(EXPECTED, INDEXED)]
    assert texts == [
        "unexpected index: noteTable.by_note (notetable (note) using StorageAttachedIndex)",
        (
            "unexpected view: by_uid (of notetable (mailboxid, uid) key ((uid), mailboxid, mailboxid ASC) "
            "where uid is not null and mailboxid is not null)"
        ),
    ]
    plain = replace(EXPECTED, indexes=(Index("by_note", "noteTable", "note"),))
    assert [str(one) for one in differences(EXPECTED, plain)] == [
        "unexpected index: noteTable.by_note (notetable (note))"
    ]
    typed = replace(EXPECTED, types=(*EXPECTED.types, UserType("Size", (("Bytes", "varchar"),))))
    assert [str(one) for one in differences(EXPECTED, typed)] == ["unexpected type: Size (bytes text)"]


def test_a_field_is_the_same_however_its_type_is_spelled() -> None:
    pair = UserType("pair", (("a", "varchar"), ("b", "map<int, text>")))
    reported = UserType("PAIR", (("A", "text"), ("B", "map<int,varchar>")))
    assert differences(Schema((pair,), ()), Schema((reported,), ())) == ()
    turned = UserType("pair", reported.fields[::-1])
    assert aspects(Schema((pair,), ()), Schema((turned,), ())) == [(Aspect.DIFFERENT_TYPE, "pair", "")]


def test_the_columns_of_a_view_are_reported_in_one_order() -> None:
    more = replace(BY_UID, table=BY_UID.table.with_columns((*BY_UID.table.columns, VALUE, Column("a", "int"))))
    turned = replace(more, table=more.table.with_columns((*BY_UID.table.columns, Column("a", "int"), VALUE)))
    assert differences(replace(EXPECTED, views=(more,)), replace(EXPECTED, views=(turned,))) == ()


@pytest.mark.parametrize(
    ("expected", "found", "agree"),
    [
        ("5", "5", True),
        ("5", "'5'", True),
        ("5", "5.0", True),
        ("0.01", "0.010", True),
        ("'99p'", "'99PERCENTILE'", True),
        ("'99.0p'", "'99percentile'", True),
        ("'99p'", "'95p'", False),
        ("'99p'", "99", False),
        ("'NONE'", "'none'", False),
        ("true", "false", False),
        ("true", "", False),
        ("'a'", "a", True),
        ("'1'", "'x'", False),
        ("{}", "{'a': 'b'}", True),
        ("{'a': 'b'}", "{}", False),
        ("{'a': 'b'}", "{'a': 'b', 'c': 'd'}", True),
        ("{'a': 'b', 'c': 'd'}", "{'a': 'b'}", False),
        ("{'a': 'b'}", "'a'", False),
    ],
)
def test_an_option_says_what_is_expected_of_it_or_more(expected: str, found: str, *, agree: bool) -> None:
    assert option_says(expected, found) is agree


@pytest.mark.parametrize(
    ("option", "untold"),
    [("cdc", "false"), ("allow_auto_snapshot", "true"), ("incremental_backups", "true"), ("memtable", "'default'")],
)
def test_a_default_that_a_server_does_not_write_down_is_there_all_the_same(option: str, untold: str) -> None:
    same, other = (replace(TABLE, options={**TABLE.options, option: literal}) for literal in (untold, "'other'"))
    assert differences(Schema(EXPECTED.types, (same,)), EXPECTED) == ()
    assert aspects(Schema(EXPECTED.types, (other,)), EXPECTED) == [(Aspect.DIFFERENT_OPTION, "noteTable", option)]


TWCS = "{'class': 'TimeWindowCompactionStrategy', 'unsafe_aggressive_sstable_expiration': '%s'}"


@pytest.mark.parametrize(
    ("option", "expected", "found", "dangerous"),
    [
        ("gc_grace_seconds", "864000", "60", True),
        ("gc_grace_seconds", "864000", "0", True),
        ("gc_grace_seconds", "864000", "864001", False),
        ("gc_grace_seconds", "0", "864000", False),
        ("gc_grace_seconds", "864000", "", False),
        ("default_time_to_live", "0", "60", True),
        ("default_time_to_live", "60", "59", True),
        ("default_time_to_live", "60", "0", False),
        ("default_time_to_live", "60", "61", False),
        ("compaction", TWCS % "false", TWCS % "true", True),
        ("compaction", TWCS % "true", TWCS % "true", False),
        ("compaction", TWCS % "true", TWCS % "false", False),
        ("caching", "{'keys': 'ALL'}", "{'keys': 'NONE'}", False),
    ],
)
def test_options_that_lose_or_resurrect_data_are_reported_apart(
    option: str, expected: str, found: str, *, dangerous: bool
) -> None:
    """What expires or forgets sooner than expected; a longer life only costs space."""
    assert endangers(Difference(Aspect.DIFFERENT_OPTION, "t", option, expected, found)) is dangerous
    assert not endangers(Difference(Aspect.DIFFERENT_COLUMN, "t", option, expected, found))


@pytest.mark.parametrize(
    ("declared", "live", "differ"),
    [
        ({}, {"gc_grace_seconds": "60"}, ["gc_grace_seconds"]),
        ({}, {"gc_grace_seconds": "864000", "default_time_to_live": "0"}, []),
        ({"gc_grace_seconds": "60"}, {"gc_grace_seconds": "60"}, []),
        ({}, {"default_time_to_live": "60"}, ["default_time_to_live"]),
        ({}, {"compaction": TWCS % "true"}, ["compaction"]),
        ({"compaction": "{'class': 'TimeWindowCompactionStrategy'}"}, {"compaction": TWCS % "true"}, ["compaction"]),
        ({"compaction": TWCS % "true"}, {"compaction": TWCS % "true"}, []),
        ({}, {"caching": "{'keys': 'NONE'}"}, []),
        ({}, {}, []),
    ],
)
def test_a_model_that_says_nothing_of_a_lifetime_means_the_servers_default(
    declared: dict[str, str], live: dict[str, str], differ: list[str]
) -> None:
    """Only where a live table has it; other options that are not declared are nobody's business."""
    bare = Table("t", columns("id uuid"))
    expected, found = (Schema((), (bare.with_options(options),)) for options in (declared, live))
    assert [one.subject for one in differences(with_lifetimes(expected, found), found)] == differ
    assert with_lifetimes(expected, Schema((), ())) == expected
