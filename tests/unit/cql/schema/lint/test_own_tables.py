"""Our own tables lint clean, but for what is given a reason; and what is known of them beside their schema."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend import cql
from mailmend.admin.schema.lint import LintSettings, lint_files, lint_schema
from mailmend.cql.schema.lint.rule import Severity
from mailmend.cql.schema.lint.rules import CATALOG_IGNORES, unused_among
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import Knowledge, Subject, known_of
from mailmend.model.catalog.ledger import HISTORY_TABLES, LEDGER_TABLES
from mailmend.model.catalog.mail import (
    FAMILIES,
    IMAP_UID,
    MESSAGES,
    SCHEMA,
    CompactionChoice,
    compacted,
)
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.errors import ExitCode
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Compaction, Kind, Table
from tests.support.james import SCHEMA_FILE
from tests.support.schemas import served, without_tables

CQL = Path(cql.__file__).parent
ORDER = LintSettings("apache_james", level=Severity.NOTE)
LEDGER = Schema((), tuple({table.name: table for table in (*LEDGER_TABLES, *HISTORY_TABLES)}.values()))


def subject_of(schema: Schema, release: ServerRelease = ServerRelease.CASSANDRA_5_0) -> Subject:
    return Subject(schema, "ks", release=release, knowledge=known_of(schema))


@pytest.mark.parametrize(
    "release", [ServerRelease.CASSANDRA_4_0, ServerRelease.CASSANDRA_4_1, ServerRelease.CASSANDRA_5_0]
)
@pytest.mark.parametrize("schema", [SCHEMA, LEDGER], ids=["catalog", "ledger"])
def test_catalog_and_ledger_lint_clean(schema: Schema, release: ServerRelease) -> None:
    report = lint_schema(subject_of(schema, release), ORDER)
    assert [(one.rule.id, one.table, one.text) for one in report.open] == []
    assert report.ignored


@pytest.mark.parametrize("choice", [CompactionChoice.UNIFIED, CompactionChoice.LEVELED])
def test_other_compactions_need_fewer_reasons(choice: CompactionChoice) -> None:
    schema = Schema(SCHEMA.types, compacted(SCHEMA.tables, choice))
    report = lint_schema(subject_of(schema), ORDER)
    assert report.open == ()
    queue = {table.spelling for table in QUEUE_TABLES}
    left = {one.rule.id for one in report.ignored if one.table not in queue}
    assert left == {"T8", "T14", "T15", "T20", "T21"}


@pytest.mark.parametrize("path", [CQL / "schema.cql", CQL / "migrations"], ids=["schema.cql", "migrations"])
def test_our_files_lint_clean(path: Path) -> None:
    report = lint_files([path], ORDER)
    catalog = lint_schema(subject_of(SCHEMA), ORDER)
    assert [(one.rule.id, one.table, one.text) for one in report.open] == []
    assert report.exit is ExitCode.FINE
    assert {(one.rule.id, one.table) for one in report.ignored} == {(one.rule.id, one.table) for one in catalog.ignored}


def test_no_reason_is_kept_in_vain() -> None:
    found = [one for schema in (SCHEMA, LEDGER) for one in lint_schema(subject_of(schema), ORDER).findings]
    assert unused_among(CATALOG_IGNORES, found) == ()
    assert len(set(CATALOG_IGNORES)) == len(CATALOG_IGNORES)


def test_reasons_about_windows_of_30_days_say_nothing_of_windows_of_an_hour() -> None:
    hours = Compaction("TimeWindowCompactionStrategy", {"compaction_window_unit": "HOURS"})
    tables = tuple(
        type(table)(table.spelling, table.columns, table.comment, hours, table.options)
        if table.name == "messagev3"
        else table
        for table in SCHEMA.tables
    )
    report = lint_schema(subject_of(Schema(SCHEMA.types, tables)), ORDER)
    assert {(one.rule.id, one.table) for one in report.open} >= {("T1", "messageV3"), ("T3", "messageV3")}


def test_the_keyspace_of_james_has_one_thing_to_tell() -> None:
    report = lint_files([SCHEMA_FILE], LintSettings("apache_james"))
    assert [one.rule.id for one in report.open] == ["T16"]


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
    known = known_of(without_tables(SCHEMA, *(table.spelling for table in QUEUE_TABLES)))
    truths = {"imapuidtable", "mailboxpathv3"}
    mirrors = {"messageidtable", "mailbox"}
    projections = {"firstunseen", "messagedeleted", "mailboxrecents"}
    counted = {"messagecounter", "modseq"}
    assert known.updated == {*truths, *mirrors, *counted, "applicableflag", "mailboxcounters"}
    assert known.deleted == {*truths, *mirrors, *projections, "messagev3"}
    assert known.stamped == {*projections, "applicableflag", "messageidtable"}
    assert known.conditional == truths | counted
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
    assert ours.updated == {"slicetallies", "queuestate", "duemails", "backlogs"}
    assert ours.conditional == {"queuestate", "duemails", "backlogs"}
    assert ours.stamped == {"slicetallies"}
    assert ours.deleted == {"duemails", "slicetallies", "backlogs", "backlogmails"}
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
def test_facts_add_up_and_settings_stay(declared: Knowledge, known: Knowledge) -> None:
    both = replace(declared, sstables_max=7, rows_per_partition={"a": 1}).with_facts_of(known)
    assert (both.sstables_max, both.rows_per_partition) == (7, {"a": 1})
    assert set(both.projections) == {*declared.projections, *known.projections}
    assert len(both.marks) == len({*declared.marks, *known.marks})
    assert both.updated == declared.updated | known.updated
    assert both.with_facts_of(known) == both
