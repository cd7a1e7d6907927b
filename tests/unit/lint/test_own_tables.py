"""Our own tables lint clean, but for what is given a reason; and no reason is kept that nothing needs."""

from pathlib import Path

import pytest

import cql
from admin.services.lint import LintSettings, lint_files, lint_schema
from model.catalog.ledger import HISTORY_TABLES, LEDGER_TABLES
from model.catalog.lint_ignores import CATALOG_IGNORES
from model.catalog.mail import SCHEMA, CompactionChoice, compacted
from model.catalog.mail_queue import QUEUE_TABLES
from model.errors import ExitCode
from model.schema.keyspace import Schema
from model.schema.lint.ignores import unused_among
from model.schema.lint.knowledge import known_of
from model.schema.lint.rule import Severity
from model.schema.lint.servers import ServerRelease
from model.schema.lint.subject import Subject
from model.schema.table import Compaction
from tests.support.james import SCHEMA_FILE

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
