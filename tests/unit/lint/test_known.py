"""What is known of tables beside their schema: of mail from the catalog, of the queue and the ledger by name."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from model.catalog.ledger import LEDGER_TABLES
from model.catalog.mail import FAMILIES, IMAP_UID, MAILBOX_PATH, MESSAGE_ID, MESSAGES, SCHEMA
from model.schema.keyspace import Schema
from model.schema.lint.knowledge import Knowledge, known_of
from model.schema.table import Column, Kind, Table
from tests.support.schemas import served, without_tables

KEY = (Column("k", "int", Kind.PARTITION),)


def test_nothing_is_known_of_other_keyspaces() -> None:
    assert known_of(Schema((), ())) == Knowledge()
    assert known_of(Schema((), (Table("orders", KEY), Table("enqueuedMailsV4", KEY)))) == Knowledge()
    assert known_of(Schema((), (IMAP_UID,))) == Knowledge()


def test_what_follows_from_what_is_the_catalogs() -> None:
    pairs = {(family.truth.name, one.table.name) for family in FAMILIES for one in family.projections}
    assert set(known_of(SCHEMA).projections) == pairs
    assert known_of(served(SCHEMA)) == known_of(SCHEMA)


def test_what_becomes_of_rows_is_known_of_each_table() -> None:
    known = known_of(SCHEMA)
    assert {"imapuidtable", "messageidtable", "mailboxcounters", "applicableflag"} <= known.updated
    assert {"imapuidtable", "messageidtable", "messagev3", "firstunseen"} <= known.deleted
    assert "messagev3" not in known.updated
    assert "messageidtable" in known.stamped
    assert "imapuidtable" not in known.stamped
    assert {IMAP_UID.name, MAILBOX_PATH.name} <= known.conditional
    assert MESSAGE_ID.name not in known.conditional
    assert known.looked_up == {"imapuidtable"}
    assert known.rewritten == {("messageidtable", "userflags")}


def test_a_keyspace_without_paths_is_still_one_of_messages() -> None:
    known = known_of(without_tables(SCHEMA, "mailboxPathV3"))
    assert {truth for truth, _ in known.projections} == {MESSAGES.truth.name}


def test_the_queue_and_the_ledger_are_known_by_name() -> None:
    queue = known_of(Schema((), (Table("enqueuedMailsV4", KEY), Table("deletedMailsV2", KEY))))
    assert queue.marks == (("deletedmailsv2", "enqueuedmailsv4"),)
    assert queue.deleted == {"deletedmailsv2", "enqueuedmailsv4"}
    assert queue.conditional == queue.updated == {"browsestart", "contentstart"}
    ours = known_of(Schema((), (Table("sliceTallies", KEY),)))
    assert ours.updated == {"slicetallies", "queuestate", "duemails"}
    assert ours.conditional == {"queuestate", "duemails"}
    assert ours.stamped == {"slicetallies"}
    assert ours.deleted == {"duemails", "slicetallies"}
    ledger = known_of(Schema((), LEDGER_TABLES))
    assert ledger.deleted == {"repair_lag"}
    assert ledger.stamped == {"repair_finding"}
    assert ledger.updated == {"repair_run", "repair_finding"}


NAMES = st.frozensets(st.sampled_from("abcd"))
PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), max_size=4).map(tuple)
FACTS = st.builds(
    Knowledge, projections=PAIRS, marks=PAIRS, updated=NAMES, deleted=NAMES, stamped=NAMES, conditional=NAMES
)


@given(FACTS, FACTS)
def test_facts_add_up_and_settings_stay(told: Knowledge, known: Knowledge) -> None:
    both = replace(told, sstables_max=7, rows_per_partition={"a": 1}).with_facts_of(known)
    assert (both.sstables_max, both.rows_per_partition) == (7, {"a": 1})
    assert set(both.projections) == {*told.projections, *known.projections}
    assert len(both.marks) == len({*told.marks, *known.marks})
    assert both.updated == told.updated | known.updated
    assert both.with_facts_of(known) == both
