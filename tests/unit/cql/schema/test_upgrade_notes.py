"""What James's notes leave to the operator: due only where it changes something, never naming what does not exist."""

from dataclasses import replace

import pytest

from mailmend.cql.schema.generations import JAMES_3_8, JAMES_3_9, NEWEST, Generation
from mailmend.cql.schema.risk import Risk
from mailmend.cql.schema.upgrades import (
    MAIL_QUEUE,
    OPTIONAL,
    UPGRADE_NOTES,
    OptionalMigration,
    due_migrations,
    note_adding,
    optional_migration,
)
from mailmend.cql.statements import AddColumns, CreateTable, DropTable, Name, SetOptions
from mailmend.model.catalog.mail_queue import JAMES_QUEUE_TABLES, OWN_QUEUE_TABLES, QUEUE_TABLES
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import pairs_of
from mailmend.model.table import Column, Compaction, Kind, Table
from tests.support.schemas import columns_of, served, with_columns, without_tables

ID = Column("id", "timeuuid", Kind.PARTITION)
REAL_STRATEGIES = {"SizeTieredCompactionStrategy", "TimeWindowCompactionStrategy", "LeveledCompactionStrategy"}


def without_column(schema: Schema, table: str, name: str) -> Schema:
    return with_columns(schema, table, [one for one in columns_of(schema, table) if one.name != name])


def names(live: Schema) -> set[str]:
    return {one.name for one in due_migrations(live)}


def test_notes_are_distinguished_by_name_oldest_first() -> None:
    assert len({one.name for one in OPTIONAL}) == len(OPTIONAL)
    assert [one.since for one in OPTIONAL] == sorted(one.since for one in OPTIONAL)
    for one in OPTIONAL:
        assert one.why.endswith(".")
        assert one.undo.endswith(".")


def test_no_note_names_a_class_that_does_not_exist() -> None:
    compactions = [
        pairs_of(statement.options["compaction"])["class"]
        for one in UPGRADE_NOTES
        for statement in one.statements
        if isinstance(statement, SetOptions) and "compaction" in statement.options
    ]
    assert set(compactions) == REAL_STRATEGIES
    assert "does not exist" in optional_migration("tune-queue-compaction").caution


@pytest.mark.parametrize("table", ["imapuidtable", "messageidtable"])
def test_a_column_that_was_never_added_is_due_and_only_that(table: str) -> None:
    live = without_column(served(JAMES_3_9.schema), table, "save_date")
    assert "save-date" in names(live)
    (left,) = optional_migration("save-date").due(live)
    assert isinstance(left, AddColumns)
    assert left.name.spelling.lower() == table
    assert [column.name for column in left.columns] == ["save_date"]


def test_a_whole_keyspace_of_each_generation_lacks_no_column() -> None:
    for generation, adding in ((JAMES_3_8, {"blob-metadata"}), (JAMES_3_9, {"blob-metadata"}), (NEWEST, set())):
        due = [one for one in due_migrations(served(generation.schema)) if isinstance(one.statements[0], AddColumns)]
        assert {one.name for one in due} == adding, generation.name


def test_a_static_column_is_added_as_static() -> None:
    live = without_column(served(JAMES_3_9.schema), "eventstore", "snapshot")
    (left,) = optional_migration("event-store-snapshot").due(live)
    assert left == AddColumns(Name("eventStore"), (Column("snapshot", "int", Kind.STATIC),))


def test_an_option_that_is_as_the_note_wants_is_not_due() -> None:
    table = Table("modseq", (ID,), compaction=Compaction("SizeTieredCompactionStrategy", {"max_threshold": "32"}))
    leveled = replace(table, compaction=Compaction("LeveledCompactionStrategy"))
    note = optional_migration("tune-mail-compaction")
    assert note.due(Schema((), (table,))) == ()
    (due,) = note.due(Schema((), (leveled,)))
    assert due.assess(Schema((), (leveled,))).worst is Risk.REWRITE


@pytest.mark.parametrize("note", OPTIONAL, ids=lambda one: one.name)
def test_nothing_is_due_in_an_empty_keyspace(note: OptionalMigration) -> None:
    assert note.due(Schema((), ())) == ()


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(WrongUse, match="save-date"):
        optional_migration("save-data")


def live_with(*tables: str) -> Schema:
    return Schema((), tuple(Table(name, (ID,)) for name in tables))


@pytest.mark.parametrize(
    ("note", "old", "successors"),
    [
        ("drop-default-max-quota", ("defaultmaxquota",), ("defaultmaxquota2",)),
        ("drop-enqueued-mails-v3", ("enqueuedmailsv3",), ("enqueuedmailsv4",)),
        ("drop-old-threads", ("threadtable", "threadlookuptable"), ("thread_2", "thread_lookup_3")),
    ],
)
def test_every_successor_must_be_there_before_the_old_goes(
    note: str, old: tuple[str, ...], successors: tuple[str, ...]
) -> None:
    one = optional_migration(note)
    for lacking in range(len(successors)):
        assert one.due(live_with(*old, *successors[:lacking], *successors[lacking + 1 :])) == ()
    dropped = [statement for statement in one.due(live_with(*old, *successors)) if isinstance(statement, DropTable)]
    assert tuple(drop.name.spelling.lower() for drop in dropped) == old
    assert all(drop.if_exists for drop in dropped)
    assert one.due(live_with(*successors)) == ()


def test_the_windows_of_the_queue_are_hours_and_those_of_its_marks_days() -> None:
    due = optional_migration("tune-queue-compaction").due(live_with("deletedmailsv2", "enqueuedmailsv4"))
    windows = [(one.name.spelling, pairs_of(one.options["compaction"])) for one in due if isinstance(one, SetOptions)]
    named = {"class": "TimeWindowCompactionStrategy", "compaction_window_size": "1"}
    assert windows == [
        ("deletedMailsV2", {**named, "compaction_window_unit": "DAYS"}),
        ("enqueuedMailsV4", {**named, "compaction_window_unit": "HOURS"}),
    ]


@pytest.mark.parametrize(
    ("table", "column", "note"),
    [
        ("imapUidTable", "save_date", "save-date"),
        ("IMAPUIDTABLE", "SAVE_DATE", "save-date"),
        ("messageIdTable", "threadId", "thread-id"),
        ("imapUidTable", "internalDate", "message-denormalization"),
        ("attachmentV2", "message_id", "attachment-message-id"),
        ("user", "delegated_users", "user-delegated-users"),
        ("user", "authorized_users", "user-authorized-users"),
        ("eventStore", "snapshot", "event-store-snapshot"),
        ("blobs", "metadata", "blob-metadata"),
        ("email_query_view_sent_at", "thread_id", "email-query-view-thread-id"),
        ("custom_identity", "sort_order", "identity-sort-order"),
        ("imapUidTable", "uid", None),
        ("nowhere", "save_date", None),
    ],
)
def test_who_misses_a_column_gets_the_note_that_adds_it(table: str, column: str, note: str | None) -> None:
    assert note_adding(table, column) == note


@pytest.mark.parametrize("note", UPGRADE_NOTES, ids=lambda one: one.name)
def test_a_note_that_was_followed_is_not_due_any_more(note: OptionalMigration) -> None:
    named = {statement.name.spelling for statement in note.statements if hasattr(statement, "name")}
    clustered = (ID, Column("at", "timestamp", Kind.CLUSTERING))
    live = Schema((), tuple(Table(name.lower(), clustered) for name in sorted({*named, *note.after})))
    due = note.due(live)
    assert due
    for statement in due:
        live = statement.apply(live)
    assert note.due(live) == ()
    assert note not in due_migrations(live)


def test_options_of_which_one_is_set_already_leave_the_other() -> None:
    note = replace(
        optional_migration("tune-bloom-filters"),
        statements=(SetOptions(Name("modseq"), {"gc_grace_seconds": "5", "bloom_filter_fp_chance": "0.01"}),),
    )
    live = Schema((), (Table("modseq", (ID,), options={"gc_grace_seconds": "5", "bloom_filter_fp_chance": "0.1"}),))
    assert note.due(live) == (SetOptions(Name("modseq"), {"bloom_filter_fp_chance": "0.01"}),)


def made_by(live: Schema) -> list[str]:
    due = MAIL_QUEUE.due(live)
    assert all(isinstance(one, CreateTable) and one.if_not_exists for one in due)
    return [one.name.spelling for one in due if isinstance(one, CreateTable)]


@pytest.mark.parametrize("generation", [JAMES_3_8, JAMES_3_9, NEWEST], ids=lambda one: one.name)
def test_a_keyspace_of_james_may_be_given_what_its_queue_lacks(generation: Generation) -> None:
    live, names = served(generation.schema), [table.name for table in JAMES_QUEUE_TABLES]
    assert made_by(live) == [table.spelling for table in OWN_QUEUE_TABLES]
    assert made_by(without_tables(live, *names)) == [table.spelling for table in QUEUE_TABLES]
    for statement in MAIL_QUEUE.due(live):
        live = statement.apply(live)
    assert MAIL_QUEUE.due(live) == ()


def test_queue_tables_whose_rows_expire_are_not_tuned_as_james_would() -> None:
    assert {"tune-queue-compaction", "tune-bloom-filters"}.isdisjoint(names(Schema((), JAMES_QUEUE_TABLES)))
    endless = Schema((), tuple(replace(one, options={}) for one in JAMES_QUEUE_TABLES))
    assert {"tune-queue-compaction", "tune-bloom-filters"} <= names(endless)
