"""The generations beside keyspaces as servers describe them: a real one of James 3.8.1, and what became of it."""

from dataclasses import replace
from functools import cache

import pytest

from mailmend.cql.language.parser import parse
from mailmend.cql.schema.generations import (
    GENERATIONS,
    JAMES_3_8,
    JAMES_3_9,
    MAIL_TABLE_NAMES,
    NEWEST,
    REBUILDABLE,
    chosen_compaction,
    declared,
    gap_to_catalog,
    judge,
    recognise,
    tables_besides,
)
from mailmend.cql.statements.base import apply_all
from mailmend.model.catalog.mail import SCHEMA, CompactionChoice
from mailmend.model.catalog.mail_queue import OWN_QUEUE_TABLES
from mailmend.model.keyspace import EMPTY, Schema
from mailmend.model.table import Column, Compaction, Kind, Table, UserType
from tests.support.james import SCHEMA_FILE
from tests.support.schemas import columns_of, served, with_columns, without_tables


@cache
def made_by_3_8() -> Schema:
    """A keyspace as DESCRIBE tells it, that James 3.8.1 made without its JMAP views, blobs and queue."""
    return apply_all(parse(SCHEMA_FILE.read_text(encoding="utf-8")))


def test_a_real_keyspace_of_3_8_is_recognised() -> None:
    found = recognise(made_by_3_8())

    assert found.generation is JAMES_3_8
    assert (found.made_here, found.drift, found.others) == (False, (), ())
    assert [str(note) for note in found.notes if "option" not in note.aspect.value] == [
        "unexpected type: properties (namespace text, name text, value text)",
        "unexpected type: zoneddatetime (date timestamp, timezone text)",
        "missing table: message_fast_view_projection",
        "missing table: email_query_view_received_at",
        "missing table: blobs",
        "missing table: blobParts",
        "missing table: enqueuedMailsV4",
        "missing table: deletedMailsV2",
        "missing table: browseStart",
        "missing table: contentStart",
        "unexpected table: acl",
        "unexpected table: attachmentmessageid",
        "unexpected table: attachmentowners",
        "unexpected table: currentquota",
        "unexpected table: defaultmaxquota2",
        "unexpected table: domainmaxquota",
        "unexpected table: maxquota",
        "unexpected table: messagev2",
    ]


def test_a_keyspace_that_fits_two_generations_counts_as_the_newer() -> None:
    """Without threads and blobs a keyspace of 3.8.1 has all that 3.9 works with."""
    found = recognise(without_tables(made_by_3_8(), "threadtable", "threadlookuptable"))
    assert found.generation is JAMES_3_9
    assert found.agrees


def test_the_generations_have_names_that_people_know() -> None:
    names = [generation.name for generation in GENERATIONS]
    assert names == ["September 2026 (JAMES-4225)", "August 2026", "3.9", "3.8.1"]


@pytest.mark.parametrize("table", ["messagev3", "imapuidtable", "messageidtable"])
def test_a_column_that_james_gave_up_may_stay(table: str) -> None:
    live = served(NEWEST.schema)
    kept = columns_of(live, table)
    names = [column.name for column in kept]
    left = [column for column in columns_of(made_by_3_8(), table) if column.name not in names]

    found = recognise(with_columns(live, table, (*kept, *left)))

    assert left
    assert found.generation is NEWEST
    assert found.agrees
    assert [note.subject for note in found.notes] == [column.name for column in left]


@pytest.mark.parametrize(
    ("strategy", "choice"),
    [
        ("TimeWindowCompactionStrategy", CompactionChoice.TWCS),
        ("UnifiedCompactionStrategy", CompactionChoice.UNIFIED),
        ("LeveledCompactionStrategy", CompactionChoice.LEVELED),
    ],
)
def test_the_compaction_that_was_chosen_is_that_of_the_truth_table(strategy: str, choice: CompactionChoice) -> None:
    (table,) = served(Schema((), SCHEMA.tables[:1])).tables
    assert chosen_compaction(Schema((), (replace(table, compaction=Compaction(strategy)),))) is choice


def test_a_compaction_that_is_none_of_ours_counts_as_time_windows() -> None:
    (table,) = served(Schema((), SCHEMA.tables[:1])).tables
    for compaction in (None, Compaction("SizeTieredCompactionStrategy"), Compaction("SomeStrategy")):
        live = Schema((), (replace(table, compaction=compaction),))
        assert chosen_compaction(live) is CompactionChoice.TWCS
    assert chosen_compaction(EMPTY) is CompactionChoice.TWCS


def test_our_own_queue_tables_belong_to_a_keyspace_that_has_them_or_that_we_made() -> None:
    live = Schema((), OWN_QUEUE_TABLES[:1])
    of_james = declared(JAMES_3_8, EMPTY, made_here=False)
    assert of_james == JAMES_3_8.schema
    given = declared(JAMES_3_8, live, made_here=False)
    assert given.tables == (*JAMES_3_8.schema.tables, *OWN_QUEUE_TABLES[:1])
    assert given.types == JAMES_3_8.schema.types
    ours = declared(JAMES_3_8, EMPTY, made_here=True)
    assert ours.tables == (*JAMES_3_8.schema.tables, *OWN_QUEUE_TABLES)


def test_tables_besides_are_named_as_they_are_written() -> None:
    tables = tuple(Table(name, (Column("id", "uuid", Kind.PARTITION),)) for name in ("modSeq", "Orders", "shops"))
    assert tables_besides(Schema((), tables), {"modseq"}) == ("Orders", "shops")


def test_a_difference_is_drift_or_a_note() -> None:
    expected = served(NEWEST.schema)
    live = without_tables(expected, "modseq", "blobs")
    drift, notes = judge(NEWEST.schema, live, made_here=False)
    assert ([str(one) for one in drift], [str(one) for one in notes]) == (
        ["missing table: modseq"],
        ["missing table: blobs"],
    )
    drift, notes = judge(NEWEST.schema, live, made_here=True)
    assert (len(drift), notes) == (2, ())


def test_what_the_catalog_does_not_know_is_part_of_what_is_wanted() -> None:
    """A plan proposes no removal of a stranger's table or type, and misses none of a module that is not run."""
    orders = Table("orders", (Column("id", "uuid", Kind.PARTITION),))
    size = UserType("size", (("bytes", "bigint"),))
    whole = without_tables(served(JAMES_3_9.schema), "blobs", "modseq")
    live = replace(whole, types=(*whole.types, size), tables=(*whole.tables, orders))

    plan = gap_to_catalog(live, frozenset())
    newest = gap_to_catalog(live, frozenset(), newest=True)

    assert plan.expected.table("orders") == newest.expected.table("orders") == orders
    assert [one.name for one in plan.expected.types] == [one.name for one in live.types]
    assert (plan.expected.table("blobs"), plan.expected.table("modseq")) == (None, SCHEMA.table("modseq"))
    assert newest.expected.table("blobs") == SCHEMA.table("blobs")
    assert plan.live == newest.live == live


def test_what_can_be_filled_again_is_no_truth() -> None:
    assert "messageIdTable" in REBUILDABLE
    assert REBUILDABLE.isdisjoint({"imapUidTable", "messageV3"})
    assert {"imapuidtable", "messagev3", "modseq"} <= MAIL_TABLE_NAMES
