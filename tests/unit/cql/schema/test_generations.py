"""Which generation of James a keyspace is, what of its differences is wrong, and what it is taken to."""

from dataclasses import replace

import pytest

from mailmend.cql.schema.changes import Include, SchemaChange, changes
from mailmend.cql.schema.difference import Aspect
from mailmend.cql.schema.generations import (
    AUGUST_2026,
    GENERATIONS,
    JAMES_3_8,
    JAMES_3_9,
    NEWEST,
    Generation,
    gap_to_catalog,
    holds_mail,
    recognise,
    tables_of_others,
    was_made_here,
)
from mailmend.cql.schema.risk import Risk
from mailmend.cql.schema.upgrades import due_migrations
from mailmend.cql.statements import CreateTable, DropColumns, SetOptions
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.catalog.mail import MAIL_TABLES, SCHEMA, CompactionChoice, compacted
from mailmend.model.catalog.mail_queue import JAMES_QUEUE_TABLES, OWN_QUEUE_TABLES, SLICE_TALLIES
from mailmend.model.keyspace import EMPTY, Index, Schema
from mailmend.model.table import Column, Compaction, Kind, Table, UserType, columns
from tests.support.schemas import columns_of, served, with_columns, without_tables

JMAP = ("message_fast_view_projection", "email_query_view_received_at")


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_each_generation_is_recognised_as_itself(generation: Generation) -> None:
    found = recognise(served(generation.schema))
    assert found.generation is generation
    assert found.agrees
    assert found.notes == ()
    assert not found.made_here


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_a_module_that_james_runs_without_is_a_note(generation: Generation) -> None:
    found = recognise(without_tables(served(generation.schema), *JMAP))
    assert found.generation is generation
    assert found.agrees
    assert [(note.aspect, note.owner) for note in found.notes] == [(Aspect.MISSING_TABLE, name) for name in JMAP]


@pytest.mark.parametrize("table", [table.spelling for table in MAIL_TABLES])
def test_a_table_that_mailmend_works_with_may_not_be_missing(table: str) -> None:
    found = recognise(without_tables(served(JAMES_3_9.schema), table.lower()))
    assert [(one.aspect, one.owner) for one in found.drift] == [(Aspect.MISSING_TABLE, table)]


def test_what_each_generation_has_besides_the_newest() -> None:
    besides = {
        generation.name: {
            (table.spelling, column.spelling)
            for table in generation.schema.tables
            if (newest := SCHEMA.table(table.name))
            for column in table.columns
            if column.name not in newest
        }
        for generation in GENERATIONS
    }
    flags = {("imapUidTable", "flagUser"), ("messageIdTable", "flagUser"), ("messageV3", "bodyOctets")}
    assert besides[NEWEST.name] == set()
    assert besides[AUGUST_2026.name] == flags
    assert besides[JAMES_3_9.name] > flags | {("messageV3", "textualLineCount"), ("messageV3", "mediaType")}
    assert besides[JAMES_3_8.name] == besides[JAMES_3_9.name]


def test_3_8_has_its_own_thread_tables() -> None:
    assert JAMES_3_8.schema.table("thread_2") is None
    assert JAMES_3_8.schema.table("threadtable") is not None
    assert JAMES_3_9.schema.table("threadtable") is None


def test_columns_that_an_upgrade_left_behind_are_notes() -> None:
    live = served(NEWEST.schema)
    live = with_columns(live, "messagev3", (*columns_of(live, "messagev3"), Column("mediatype", "text")))
    found = recognise(live)
    assert found.generation is NEWEST
    assert found.agrees
    assert [str(note) for note in found.notes] == ["unexpected column: messageV3.mediatype (text)"]


def test_a_column_that_no_generation_knows_is_drift() -> None:
    live = served(AUGUST_2026.schema)
    live = with_columns(live, "imapuidtable", (*columns_of(live, "imapuidtable"), Column("label", "text")))
    found = recognise(live)
    assert found.generation is AUGUST_2026
    assert [str(one) for one in found.drift] == ["unexpected column: imapUidTable.label (text)"]


def test_a_dropped_column_does_not_change_the_generation() -> None:
    live = served(JAMES_3_9.schema)
    kept = [column for column in columns_of(live, "messageidtable") if column.name != "save_date"]
    found = recognise(with_columns(live, "messageidtable", kept))
    assert found.generation is JAMES_3_9
    assert [str(one) for one in found.drift] == ["missing column: messageIdTable.save_date (timestamp)"]


def test_options_are_never_drift() -> None:
    live = served(SCHEMA)
    tables = tuple(replace(one, compaction=Compaction("SomeStrategy"), options={}) for one in live.tables)
    found = recognise(replace(live, tables=tables))
    assert found.agrees
    assert {note.aspect for note in found.notes} == {Aspect.DIFFERENT_OPTION}


@pytest.mark.parametrize("choice", CompactionChoice)
def test_any_of_the_compaction_choices_is_as_expected(choice: CompactionChoice) -> None:
    chosen = Schema(SCHEMA.types, compacted(SCHEMA.tables, choice))
    assert recognise(served(chosen, made_here=True)).notes == ()


def test_a_keyspace_made_here_is_known_by_its_comments() -> None:
    ours = served(SCHEMA, made_here=True)
    assert was_made_here(ours)
    assert was_made_here(without_tables(ours, "imapuidtable", "blobs"))
    assert not was_made_here(served(SCHEMA))
    mixed = Schema(ours.types, (*without_tables(ours, "modseq").tables, *served(SCHEMA).tables[4:5]))
    assert mixed.table("modseq")
    assert not was_made_here(mixed)


def test_what_is_missing_in_a_keyspace_made_here_is_drift() -> None:
    found = recognise(without_tables(served(SCHEMA, made_here=True), "subscription"))
    assert [str(one) for one in found.drift] == ["missing table: subscription"]


def test_a_keyspace_of_something_else_holds_no_mail() -> None:
    assert not holds_mail(Schema((), ()))
    assert not holds_mail(without_tables(served(SCHEMA), *(table.name for table in MAIL_TABLES)))
    assert holds_mail(Schema((), served(SCHEMA).tables[:1]))


def with_option(schema: Schema, name: str, option: str, value: str) -> Schema:
    changed = (one.with_options({option: value}) if one.name == name.lower() else one for one in schema.tables)
    return replace(schema, tables=tuple(changed))


@pytest.mark.parametrize("made_here", [True, False])
@pytest.mark.parametrize(
    ("table", "option", "value", "drift"),
    [
        ("imapUidTable", "gc_grace_seconds", "60", True),
        ("imapUidTable", "gc_grace_seconds", "8640000", False),
        ("imapUidTable", "default_time_to_live", "86400", True),
        ("imapUidTable", "bloom_filter_fp_chance", "0.5", None),
        ("mailboxRecents", "gc_grace_seconds", "864000", False),
        ("deletedMailsV2", "gc_grace_seconds", "60", True),
        ("deletedMailsV2", "default_time_to_live", "60", False),
        ("browseStart", "default_time_to_live", "60", True),
    ],
)
def test_an_option_that_can_lose_or_resurrect_data_is_drift_and_planned_back(
    table: str, option: str, value: str, *, drift: bool | None, made_here: bool
) -> None:
    """Others are notes, and so is a life of the queue's rows that was chosen; either is in a plan on request only."""
    live = with_option(served(SCHEMA, made_here=made_here), table, option, value)
    found = recognise(live)
    assert [one.subject for one in found.drift] == ([option] if drift else [])
    assert found.generation.name == recognise(served(SCHEMA, made_here=made_here)).generation.name
    assert [one.subject for one in found.notes if one.owner == table] == ([option] if drift is False else [])
    planned = [one.statement for one in changes(gap_to_catalog(live, frozenset({Include.OPTIONS})))]
    options = [one.options for one in planned if isinstance(one, SetOptions) and one.name.spelling == table]
    assert [list(one) for one in options] == ([] if drift is None else [[option]])
    assert not changes(gap_to_catalog(live, frozenset()))


ORDERS = Table("orders", columns("id uuid"))
NAMESAKE = Table("mailbox", columns("name text"))
QUEUE_ALONE = served(Schema((), JAMES_QUEUE_TABLES))


@pytest.mark.parametrize(
    ("live", "others"),
    [
        (EMPTY, ()),
        (served(SCHEMA), ()),
        (served(JAMES_3_8.schema), ()),
        (replace(served(SCHEMA), tables=(*served(SCHEMA).tables, ORDERS)), ()),
        (Schema((), (ORDERS, *served(SCHEMA).tables[:1])), ()),
        (QUEUE_ALONE, ()),
        (Schema((), (ORDERS,)), ("orders",)),
        (Schema((), (ORDERS, NAMESAKE)), ("orders",)),
        (Schema((), (*QUEUE_ALONE.tables, ORDERS)), ("orders",)),
        (Schema((), LEDGER_TABLES[:1]), (LEDGER_TABLES[0].spelling,)),
    ],
    ids=[
        "empty",
        "ours",
        "James's",
        "a guest",
        "half made",
        "a queue alone",
        "a shop",
        "a namesake",
        "a shop with a queue",
        "a ledger",
    ],
)
def test_a_keyspace_of_another_application_is_known_by_its_tables(live: Schema, others: tuple[str, ...]) -> None:
    """Beside mail they are guests, and none of our business."""
    assert tables_of_others(live) == recognise(live).others == others


def test_an_index_of_somebody_else_is_noted_in_james_and_wrong_in_ours() -> None:
    index = Index("by_seen", "imapuidtable", "flagseen")
    size = UserType("size", (("bytes", "bigint"),))
    theirs, ours = served(SCHEMA), served(SCHEMA, made_here=True)
    adopted, made = (recognise(replace(one, types=(*one.types, size), indexes=(index,))) for one in (theirs, ours))
    assert adopted.agrees
    assert {note.aspect for note in adopted.notes} >= {Aspect.UNEXPECTED_INDEX, Aspect.UNEXPECTED_TYPE}
    assert [one.aspect for one in made.drift] == [Aspect.UNEXPECTED_INDEX]


def test_what_each_generation_lacks_of_the_newest() -> None:
    lacking = {
        generation.name: {
            f"{table.name}.{column.name}"
            for table in SCHEMA.tables
            if table not in OWN_QUEUE_TABLES
            for column in table.columns
            if column.name not in (generation.schema.table(table.name) or ())
        }
        for generation in GENERATIONS
    }
    assert lacking[NEWEST.name] == lacking[AUGUST_2026.name] == set()
    assert lacking[JAMES_3_9.name] == {"blobs.metadata"}
    assert {name.partition(".")[0] for name in lacking[JAMES_3_8.name] - lacking[JAMES_3_9.name]} == {
        "thread_2",
        "thread_lookup_3",
    }


def test_every_table_of_every_generation_says_what_it_is_for() -> None:
    for generation in GENERATIONS:
        assert [table.spelling for table in generation.schema.tables if not table.comment] == []
        for table in generation.schema.tables:
            if "flaguser" in table:
                assert table.column("flaguser").null_is is False


def test_a_james_without_a_distributed_queue_lacks_nothing() -> None:
    names = [table.name for table in JAMES_QUEUE_TABLES]
    found = recognise(without_tables(served(JAMES_3_9.schema), *names))
    assert found.agrees
    assert [(one.aspect, one.owner) for one in found.notes] == [
        (Aspect.MISSING_TABLE, table.spelling) for table in JAMES_QUEUE_TABLES
    ]


def test_our_own_queue_tables_in_a_keyspace_of_james_are_held_to_their_form() -> None:
    (tallies,) = served(Schema((), (SLICE_TALLIES,)), made_here=True).tables
    live = served(JAMES_3_9.schema)
    whole = recognise(replace(live, tables=(*live.tables, tallies)))
    assert (whole.agrees, whole.notes, whole.made_here) == (True, (), False)
    torn = tallies.with_columns(column for column in tallies.columns if column.name != "settled")
    found = recognise(replace(live, tables=(*live.tables, torn)))
    assert [str(one) for one in found.drift] == ["missing column: sliceTallies.settled (boolean)"]


def test_what_james_set_its_queue_tables_to_is_noted_not_wrong() -> None:
    hourly = Compaction("TimeWindowCompactionStrategy", {"compaction_window_unit": "HOURS"})
    names = {table.name for table in JAMES_QUEUE_TABLES}
    live = served(JAMES_3_9.schema)
    tables = (replace(one, compaction=hourly, options={}) if one.name in names else one for one in live.tables)
    found = recognise(replace(live, tables=tuple(tables)))
    assert found.agrees
    reported = {(one.owner, one.subject) for one in found.notes}
    assert ("enqueuedMailsV4", "default_time_to_live") in reported
    assert {one.aspect for one in found.notes} == {Aspect.DIFFERENT_OPTION}


def test_the_queue_s_table_of_an_older_james_is_noted() -> None:
    live = served(JAMES_3_8.schema)
    (newer,) = (one for one in live.tables if one.name == "enqueuedmailsv4")
    left = replace(live, tables=(*live.tables, replace(newer, spelling="enqueuedmailsv3")))
    found = recognise(left)
    assert found.agrees
    assert [str(note) for note in found.notes] == ["unexpected table: enqueuedmailsv3"]
    assert "drop-enqueued-mails-v3" in {one.name for one in due_migrations(left)}


def test_a_james_that_made_its_queue_in_a_keyspace_of_ours_leaves_it_ours() -> None:
    ours = served(SCHEMA, made_here=True)
    names = {table.name for table in JAMES_QUEUE_TABLES}
    theirs = tuple(replace(one, comment="James's", options={}) if one.name in names else one for one in ours.tables)
    found = recognise(replace(ours, tables=theirs))
    assert found.made_here
    assert found.agrees
    assert not recognise(without_tables(ours, "duemails")).agrees, "ours belong to what `schema apply` makes"


NOTHING: frozenset[Include] = frozenset()
EVERYTHING = frozenset(Include)
OTHER = Table("orders", (Column("id", "uuid", Kind.PARTITION),))


def sized(schema: Schema) -> Schema:
    tables = [replace(one, compaction=Compaction("SizeTieredCompactionStrategy")) for one in schema.tables]
    return replace(schema, tables=tuple(tables))


def carried_out(live: Schema, found: tuple[SchemaChange, ...]) -> Schema:
    for one in found:
        assert one.statement is not None, one.manual
        live = one.statement.apply(live)
    return live


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_a_keyspace_of_james_that_agrees_is_left_alone(generation: Generation) -> None:
    live = without_tables(sized(served(generation.schema)), "blobs", "blobparts")
    live = replace(live, tables=(*live.tables, OTHER))
    assert changes(gap_to_catalog(live, NOTHING)) == ()
    assert changes(gap_to_catalog(live, frozenset({Include.REMOVALS}))) == ()


def test_options_are_proposed_on_request_and_marked() -> None:
    found = changes(gap_to_catalog(sized(served(JAMES_3_9.schema)), frozenset({Include.OPTIONS})))
    assert {one.assessment.worst for one in found} == {Risk.REWRITE}
    assert {"imapUidTable", "messageIdTable", "messageV3"} <= {one.owner for one in found}
    assert all(isinstance(one.statement, SetOptions) for one in found)


def test_a_compaction_that_is_named_is_the_one_that_is_proposed() -> None:
    found = changes(
        gap_to_catalog(served(SCHEMA, made_here=True), frozenset({Include.OPTIONS}), choice=CompactionChoice.LEVELED)
    )
    assert [one.owner for one in found] == ["imapUidTable", "messageIdTable", "messageV3"]
    for one in found:
        assert isinstance(one.statement, SetOptions)
        assert "LeveledCompactionStrategy" in one.statement.options["compaction"]


def test_what_is_missing_is_created_or_added() -> None:
    whole = served(JAMES_3_8.schema)
    live = with_columns(
        without_tables(whole, "firstunseen"),
        "messageidtable",
        [one for one in columns_of(whole, "messageidtable") if one.name != "save_date"],
    )
    found = changes(gap_to_catalog(live, NOTHING))
    assert [one.owner for one in found] == ["messageIdTable", "firstUnseen"]
    assert recognise(carried_out(live, found)).agrees


def test_the_newest_generation_is_reached_on_request() -> None:
    live = served(JAMES_3_8.schema)
    adding = changes(gap_to_catalog(live, NOTHING, newest=True))
    assert {type(one.statement) for one in adding if one.owner.startswith("thread_")} == {CreateTable}
    assert not any(isinstance(one.statement, DropColumns) for one in adding)

    whole = changes(gap_to_catalog(live, EVERYTHING, newest=True))
    after = carried_out(live, whole)
    assert recognise(after).generation is NEWEST
    assert after.table("threadtable") is not None


def test_an_empty_keyspace_gets_the_whole_catalog() -> None:
    after = carried_out(Schema((), ()), changes(gap_to_catalog(Schema((), ()), NOTHING)))
    assert recognise(after).agrees
    assert {table.name for table in after.tables} == {table.name for table in SCHEMA.tables}
