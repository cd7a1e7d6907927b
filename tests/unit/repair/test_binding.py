"""The families over live tables: what a generation lacks is neither read nor written, what it has besides is kept."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.schema.generations import AUGUST_2026, GENERATIONS, JAMES_3_8, NEWEST, Generation
from mailmend.model.catalog.mail import IMAP_UID, MESSAGES, PATHS, SCHEMA
from mailmend.model.errors import SchemaMismatch, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.family import Family
from mailmend.model.table import Column, Kind
from mailmend.repair.binding import bind, bound, left_out, live_form, missing_columns, missing_tables
from tests.support.james import james_families, james_rows
from tests.support.schemas import columns_of, served, with_columns, without_tables

LIVE = served(NEWEST.schema)


def messages(live: Schema) -> Family:
    """The family of the messages as it binds."""
    return bind("mail", live)[0]


def without_column(live: Schema, table: str, column: str) -> Schema:
    return with_columns(live, table, (one for one in columns_of(live, table) if one.name != column))


def with_column(live: Schema, table: str, column: Column) -> Schema:
    return with_columns(live, table, (*columns_of(live, table), column))


def test_the_newest_generation_binds_to_the_catalog_itself() -> None:
    assert bind("mail", LIVE) == (MESSAGES, PATHS)


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_every_generation_binds_with_every_projection(generation: Generation) -> None:
    bound = bind("mail", served(generation.schema))
    assert [[one.name for one in family.projections] for family in bound] == [
        [one.name for one in family.projections] for family in (MESSAGES, PATHS)
    ]


def test_flag_user_is_compared_where_both_have_it() -> None:
    family = messages(served(AUGUST_2026.schema))
    compared = {column.name: column.null_is for column in family.mirror.compared}
    assert compared["flaguser"] is False
    assert "flaguser" in family.truth
    assert family.mirror.row_of({"flaguser": True})["flaguser"] is True


@pytest.mark.parametrize("table", ["imapuidtable", "messageidtable"])
def test_flag_user_is_not_compared_where_one_lacks_it(table: str) -> None:
    family = messages(without_column(served(AUGUST_2026.schema), table, "flaguser"))
    assert "flaguser" not in {column.name for column in family.mirror.compared}
    assert "flaguser" not in family.mirror.row_of({"flaguser": True})


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_nothing_is_missed_in_any_generation_of_james(generation: Generation) -> None:
    live = served(generation.schema)
    assert (missing_columns(live), missing_tables(live)) == ((), ())


@pytest.mark.parametrize(
    ("table", "column", "named"),
    [
        ("messageidtable", "flagseen", "messageIdTable.flagSeen"),
        ("imapuidtable", "save_date", "imapUidTable.save_date"),
        ("messageidtable", "messageid", "messageIdTable.messageId"),
        ("mailbox", "mailboxbase", "mailbox.mailboxbase.namespace"),
        ("mailboxpathv3", "uidvalidity", "mailboxPathV3.uidvalidity"),
        ("imapuidtable", "flagseen", "imapUidTable.flagSeen"),
        ("imapuidtable", "flagdeleted", "imapUidTable.flagDeleted"),
        ("imapuidtable", "flagrecent", "imapUidTable.flagRecent"),
        ("imapuidtable", "userflags", "imapUidTable.userFlags"),
        ("mailboxpathv3", "mailboxid", "mailboxPathV3.mailboxId"),
        ("applicableflag", "userflags", "applicableFlag.userFlags"),
        ("mailboxcounters", "unseen", "mailboxCounters.unseen"),
        ("messagev3", "bodycontent", None),
        ("messageidtable", "flaguser", None),
    ],
)
def test_a_compared_column_that_a_table_lacks_is_named(table: str, column: str, named: str | None) -> None:
    """What nothing is compared with is not missed, nor what only older generations have."""
    live = without_column(served(AUGUST_2026.schema), table, column)
    assert [str(one) for one in missing_columns(live)][:1] == ([named] if named else [])
    assert missing_columns(live, (), ()) == ()


def test_a_column_that_is_left_out_is_not_missed_and_read_all_the_same() -> None:
    live = without_column(LIVE, "messageidtable", "flagseen")
    assert missing_columns(live, without={"flagseen"}) == ()
    (family,) = bind("mail", LIVE, (MESSAGES,), {"flagseen"})
    assert "flagseen" in family.mirror.table
    assert "flagseen" not in family.mirror.read_columns
    assert "flagseen" not in family.mirror.row_of(dict.fromkeys(IMAP_UID.names))
    assert "flaganswered" in family.mirror.row_of(dict.fromkeys(IMAP_UID.names))


@pytest.mark.parametrize(
    ("names", "left"), [((), set()), (("flagSeen", "THREADID", "FirstUnseen"), {"flagseen", "threadid", "firstunseen"})]
)
def test_columns_are_left_out_however_their_case_is_written(names: tuple[str, ...], left: set[str]) -> None:
    assert left_out(names) == left


@pytest.mark.parametrize("name", ["messageId", "mailboxId", "bodyContent", "messageIdTable", "messageV3", "x", ""])
def test_only_a_compared_column_outside_the_keys_or_a_table_beside_the_mirror_can_be_left_out(name: str) -> None:
    with pytest.raises(WrongUse, match=f"'{name}' is not a column or a table that can be left out"):
        left_out([name])


@pytest.mark.parametrize(
    ("table", "column", "named", "without"),
    [
        ("messageIdTable", "flagseen", "messageIdTable.flagSeen", "--without flagSeen"),
        ("imapUidTable", "flagseen", "imapUidTable.flagSeen", "--without flagSeen"),
        ("messageIdTable", "messageid", "messageIdTable.messageId", ""),
        ("applicableFlag", "userflags", "applicableFlag.userFlags", "--without applicableFlag"),
        ("firstUnseen", "", "firstUnseen", "--without firstUnseen"),
        ("messageV3", "", "messageV3", ""),
    ],
)
def test_what_is_lost_is_not_written_to_until_it_is_back_or_left_out(
    table: str, column: str, named: str, without: str
) -> None:
    live = without_column(LIVE, table.lower(), column) if column else without_tables(LIVE, table.lower())
    with pytest.raises(SchemaMismatch) as refused:
        bound("mail", live, (MESSAGES,)).whole("mail")
    assert refused.value.missing == (named,)
    assert "mailmend schema verify --keyspace mail" in refused.value.mend
    assert refused.value.mend.partition("; or leave it out: ")[2] == without
    if without:
        left = bound("mail", live, (MESSAGES,), left_out([without.removeprefix("--without ")]))
        assert left.whole("mail") == left.families


@pytest.mark.parametrize("column", ["save_date", "threadid", "internaldate", "headercontent"])
@pytest.mark.parametrize("table", ["imapuidtable", "messageidtable"])
def test_a_column_that_one_side_lacks_is_neither_compared_nor_written(table: str, column: str) -> None:
    family = messages(without_column(LIVE, table, column))
    lacking = family.truth if table == "imapuidtable" else family.mirror.table
    assert column not in lacking
    assert column not in {one.name for one in family.mirror.compared}
    assert column not in family.mirror.row_of(dict.fromkeys(IMAP_UID.names))
    assert (column in family.mirror.required) == (column in MESSAGES.mirror.required and column in family.truth)


def test_an_unknown_column_is_read_but_not_compared() -> None:
    live = with_column(LIVE, "messageidtable", Column("label", "map<text, text>"))
    family = messages(live)
    assert family.mirror.table.column("label").type == "map<text, text>"
    assert "label" not in {column.name for column in family.mirror.compared}


def test_what_only_the_mirror_has_is_not_written() -> None:
    family = messages(with_column(LIVE, "messageidtable", Column("label", "text")))
    assert "label" not in family.mirror.row_of(dict.fromkeys(IMAP_UID.names))


def test_what_both_have_unknown_to_us_follows_the_truth() -> None:
    live = with_column(
        with_column(LIVE, "messageidtable", Column("label", "text")), "imapuidtable", Column("label", "text")
    )
    assert messages(live).mirror.row_of({"label": "x"})["label"] == "x"


def test_a_static_column_belongs_to_no_row() -> None:
    assert (
        "owner" not in messages(with_column(LIVE, "messageidtable", Column("owner", "text", Kind.STATIC))).mirror.table
    )


@pytest.mark.parametrize(
    "table", ["firstUnseen", "messageDeleted", "mailboxRecents", "applicableFlag", "mailboxCounters", "messageV3"]
)
def test_a_missing_projection_is_named_and_the_rest_is_looked_at(table: str) -> None:
    found = bound("mail", without_tables(LIVE, table.lower()), (MESSAGES,))
    names = [one.name for one in found.families[0].projections]
    assert names == [one.name for one in MESSAGES.projections if one.name != table]
    assert (found.missing_tables, found.missing_columns, found.unseen) == ((table,), (), (table,))


def test_a_table_that_the_generation_never_had_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `schema verify` compares with decides; here a generation without messageDeleted and save_date."""
    older = without_column(without_tables(SCHEMA, "messageDeleted"), "messageidtable", "save_date")
    generations = tuple(replace(one, schema=older) for one in GENERATIONS)
    monkeypatch.setattr("mailmend.cql.schema.generations.GENERATIONS", generations)
    found = bound("mail", served(older), (MESSAGES,))
    assert (found.missing_tables, found.missing_columns, found.unseen) == ((), (), ("messageDeleted",))
    assert found.whole("mail") == found.families


def test_a_table_that_is_left_out_is_neither_looked_at_nor_missed() -> None:
    (family,) = bind("mail", LIVE, (MESSAGES,), {"firstunseen"})
    assert "firstUnseen" not in {one.name for one in family.projections}
    found = bound("mail", without_tables(LIVE, "firstunseen"), (MESSAGES,), {"firstunseen"})
    assert (found.missing_tables, found.unseen) == ((), ())


@pytest.mark.parametrize("table", ["imapUidTable", "messageIdTable"])
def test_without_truth_or_mirror_there_is_nothing_to_check(table: str) -> None:
    with pytest.raises(SchemaMismatch, match="keyspace 'mail' lacks " + table) as refused:
        bind("mail", without_tables(LIVE, table.lower()))
    assert refused.value.missing == (table,)
    assert "mailmend schema verify" in refused.value.mend


@pytest.mark.parametrize("table", ["mailbox", "mailboxPathV3"])
def test_a_family_after_the_first_may_be_absent_and_is_missed(table: str) -> None:
    found = bound("mail", without_tables(LIVE, table.lower()), (MESSAGES, PATHS))
    assert found.families == (MESSAGES,)
    assert (found.missing_tables, found.unseen) == ((table,), ("mailbox",))


@pytest.mark.parametrize(
    ("table", "column", "unseen"),
    [
        ("imapuidtable", "flagseen", ("firstUnseen", "mailboxCounters")),
        ("imapuidtable", "flagdeleted", ("messageDeleted",)),
        ("imapuidtable", "flagrecent", ("mailboxRecents",)),
        ("imapuidtable", "userflags", ("applicableFlag",)),
        ("messageidtable", "flagseen", ()),
        ("messageidtable", "messageid", ()),
        ("applicableflag", "userflags", ("applicableFlag",)),
        ("mailboxcounters", "unseen", ("mailboxCounters",)),
        ("mailboxpathv3", "mailboxid", ("mailbox",)),
    ],
)
def test_what_a_missing_column_decides_is_not_looked_at(table: str, column: str, unseen: tuple[str, ...]) -> None:
    found = bound("mail", without_column(LIVE, table, column), (MESSAGES, PATHS))
    assert len(found.missing_columns) >= 1
    assert found.unseen == unseen
    names = {one.name for family in found.families for one in family.projections}
    assert names == {one.name for family in (MESSAGES, PATHS) for one in family.projections} - set(unseen)


@pytest.mark.parametrize(
    ("table", "column", "expected"),
    [
        ("messageidtable", "uid", "messageIdTable with the key (mailboxId, uid)"),
        ("mailboxrecents", "recent_mesage_uid", "mailboxRecents with the key (mailboxId, recent_mesage_uid)"),
    ],
)
def test_a_table_with_another_key_is_refused(table: str, column: str, expected: str) -> None:
    with pytest.raises(SchemaMismatch) as refused:
        bind("mail", without_column(LIVE, table, column))
    assert refused.value.missing == (expected,)


def test_a_column_of_another_type_is_refused() -> None:
    changed = (
        replace(column, type="text") if column.name == "modseq" else column
        for column in columns_of(LIVE, "messageidtable")
    )
    with pytest.raises(SchemaMismatch, match=r"messageIdTable.modSeq of type bigint \(it is text\)"):
        bind("mail", with_columns(LIVE, "messageidtable", changed))


@pytest.mark.parametrize("name", ["Label", "my label", "order", "étiquette"])
def test_a_column_that_only_quotes_could_name_is_refused(name: str) -> None:
    with pytest.raises(SchemaMismatch, match="a plain name for the column"):
        bind("mail", with_column(LIVE, "imapuidtable", Column(name, "text")))


def test_the_content_of_3_8_keeps_its_mime_properties() -> None:
    content = messages(served(JAMES_3_8.schema)).content
    assert content is not None
    assert {"mediatype", "textuallinecount", "bodyoctets"} <= set(content.table.names)


def test_the_fields_of_a_user_type_bind_by_their_column() -> None:
    """`mailboxbase.user` is there when `mailboxbase` is, and the type itself is not read besides."""
    paths = bind("mail", LIVE)[1]
    assert paths.mirror.table.names == ("id", "mailboxbase.namespace", "mailboxbase.user", "name", "uidvalidity")
    with_more = with_column(LIVE, "mailbox", Column("quota", "bigint"))
    assert bind("mail", with_more)[1].mirror.table.names[-1] == "quota"


def test_the_rows_of_james_agree_under_the_bound_mirror() -> None:
    """1,503 real rows: each projection is what its truth demands, also in flagUser."""
    mirror = james_families()[0].mirror
    projected = {(row["mailboxid"], row["uid"]): row for row in james_rows("messageidtable")}
    assert all(mirror.agree(truth, projected[mirror.key_of(truth)]) for truth in james_rows("imapuidtable"))


@given(st.sets(st.sampled_from(sorted(set(IMAP_UID.names) - {column.name for column in IMAP_UID.key}))))
def test_a_live_form_has_exactly_the_columns_that_are_there(gone: set[str]) -> None:
    live = IMAP_UID.with_columns(column for column in IMAP_UID.columns if column.name not in gone)
    form = live_form(IMAP_UID, live)
    assert set(form.names) == set(live.names)
    assert form.key == IMAP_UID.key


def test_a_schema_without_types_still_binds() -> None:
    assert bind("mail", replace(LIVE, types=())) == bind("mail", LIVE)
    assert SCHEMA.types


def test_counters_keep_those_of_their_generators_that_are_there() -> None:
    tables = tuple(table for table in SCHEMA.tables if table.name != "modseq")
    (family,) = bind("mail", Schema(SCHEMA.types, tables), (MESSAGES,))
    assert [table.spelling for table in family.counts[0].generators] == ["messageCounter"]
    (whole,) = bind("mail", SCHEMA, (MESSAGES,))
    assert [table.spelling for table in whole.counts[0].generators] == ["messageCounter", "modseq"]


def test_a_keyspace_without_any_family_binds_none() -> None:
    assert bind("shop", LIVE, ()) == ()
