"""Which keyspaces are adopted, and why the others are not."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from model.catalog.generations import GENERATIONS, JAMES_3_8, JAMES_3_9, Generation
from model.catalog.mail import MAIL_TABLES, SCHEMA
from model.migrations.adoption import Standing, decide_adoption
from model.migrations.history import Baseline, Entry, LedgerRecord, MigrationState, digests
from model.migrations.migration import FileName, Phase
from model.schema.difference import Aspect
from model.schema.keyspace import Schema
from model.schema.table import Column, Kind, Table
from tests.support.schemas import columns_of, served, with_columns, without_tables

NOW = datetime(2026, 11, 1, tzinfo=UTC)
BASELINE = Baseline("3.9", digests(served(SCHEMA)), (), NOW, "ann@host", "1.0")
NOTHING = LedgerRecord()
OTHER = Schema((), (Table("orders", (Column("id", "uuid", Kind.PARTITION),)),))


def entry(state: MigrationState) -> Entry:
    """A migration in the history."""
    return Entry(FileName(1, Phase.PRE, "first"), "aa", "bb", state, 1, 1, "ann@host", NOW, "1.0", UUID(int=1))


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_every_generation_is_adopted_as_itself(generation: Generation) -> None:
    """Nothing stands against it."""
    found = decide_adoption(served(generation.schema), NOTHING)
    assert found.standing is Standing.ADOPTABLE
    assert found.recognition.generation is generation
    assert found.against == ()


def test_tables_of_other_modules_stand_against_nothing() -> None:
    """A James without the JMAP views, with somebody's own table beside it."""
    live = without_tables(served(JAMES_3_9.schema), "message_fast_view_projection", "blobs", "blobparts")
    assert decide_adoption(replace(live, tables=(*live.tables, *OTHER.tables)), NOTHING).standing is Standing.ADOPTABLE


def test_a_column_that_an_upgrade_note_adds_may_be_missing() -> None:
    """It is drift, and the note is listed as what mends it."""
    schema = served(JAMES_3_8.schema)
    before = with_columns(
        schema, "imapuidtable", [one for one in columns_of(schema, "imapuidtable") if one.name != "save_date"]
    )
    found = decide_adoption(before, NOTHING)
    assert found.standing is Standing.ADOPTABLE
    assert [one.aspect for one in found.recognition.drift] == [Aspect.MISSING_COLUMN]
    assert "save-date" in {one.name for one in found.optional}


def test_somebodys_own_column_stands_against_nothing() -> None:
    """The keyspace is still James's."""
    schema = served(JAMES_3_9.schema)
    live = with_columns(schema, "modseq", (*columns_of(schema, "modseq"), Column("label", "text")))
    found = decide_adoption(live, NOTHING)
    assert found.standing is Standing.ADOPTABLE
    assert found.recognition.drift


@pytest.mark.parametrize("table", MAIL_TABLES, ids=lambda one: one.spelling)
def test_a_keyspace_that_james_had_not_finished_is_not_adopted(table: Table) -> None:
    """Each table counts: what is not there cannot count as done."""
    found = decide_adoption(without_tables(served(JAMES_3_8.schema), table.name), NOTHING)
    assert found.standing is Standing.HALF_MADE
    assert [(one.aspect, one.owner) for one in found.against] == [(Aspect.MISSING_TABLE, table.spelling)]


@pytest.mark.parametrize(
    "columns",
    [
        (Column("mailboxid", "timeuuid", Kind.PARTITION), Column("nextmodseq", "int")),
        (Column("mailboxid", "timeuuid", Kind.PARTITION),),
        (Column("id", "timeuuid", Kind.PARTITION), Column("nextmodseq", "bigint")),
    ],
    ids=["type", "column", "key"],
)
def test_another_shape_is_not_adopted(columns: tuple[Column, ...]) -> None:
    """A table of James's name that no James made: told by what differs."""
    found = decide_adoption(with_columns(served(JAMES_3_9.schema), "modseq", columns), NOTHING)
    assert found.standing is Standing.UNKNOWN
    assert {one.owner for one in found.against} == {"modseq"}


def test_a_keyspace_without_mail_is_not_adopted() -> None:
    """Somebody else's, or an empty one."""
    assert decide_adoption(OTHER, NOTHING).standing is Standing.EMPTY
    assert decide_adoption(Schema((), ()), NOTHING).standing is Standing.EMPTY


def test_what_mailmend_made_needs_no_adoption() -> None:
    """Told by its comments, or by its history; an apply that was interrupted included."""
    ours = served(SCHEMA, made_here=True)
    assert decide_adoption(ours, NOTHING).standing is Standing.OURS
    assert decide_adoption(without_tables(ours, "modseq"), NOTHING).standing is Standing.OURS
    assert decide_adoption(served(SCHEMA), LedgerRecord((entry(MigrationState.APPLIED),))).standing is Standing.OURS
    assert decide_adoption(served(SCHEMA), LedgerRecord((entry(MigrationState.RUNNING),))).standing is Standing.OURS


def test_what_was_adopted_stays_adopted_whatever_became_of_it() -> None:
    """The history of an adopted keyspace holds its baseline, and later migrations too."""
    history = (entry(MigrationState.BASELINE), entry(MigrationState.APPLIED))
    for live in (served(SCHEMA), OTHER):
        assert decide_adoption(live, LedgerRecord(history, baseline=BASELINE)).standing is Standing.ADOPTED
    assert (
        decide_adoption(served(SCHEMA), LedgerRecord((entry(MigrationState.BASELINE),))).standing is Standing.ADOPTABLE
    )


def test_a_table_that_is_missing_beside_one_of_another_shape_is_no_half_made_keyspace() -> None:
    """Waiting for James to finish would not mend it: the shape is told."""
    live = without_tables(served(JAMES_3_9.schema), "firstunseen")
    live = with_columns(live, "modseq", (Column("mailboxid", "timeuuid", Kind.PARTITION), Column("nextmodseq", "int")))
    found = decide_adoption(live, NOTHING)
    assert found.standing is Standing.UNKNOWN
    assert {one.owner for one in found.against} == {"modseq", "firstUnseen"}


def test_a_type_that_is_missing_makes_it_half_made() -> None:
    """James creates its types first of all."""
    found = decide_adoption(replace(served(JAMES_3_9.schema), types=()), NOTHING)
    assert found.standing is Standing.HALF_MADE
    assert {one.aspect for one in found.against} == {Aspect.MISSING_TYPE}


def test_a_missing_column_that_no_note_adds_stands_against_it() -> None:
    """One that every James has written from the first: rows without it are nobody's."""
    schema = served(JAMES_3_9.schema)
    lacking = [one for one in columns_of(schema, "imapuidtable") if one.name not in {"modseq", "save_date"}]
    found = decide_adoption(with_columns(schema, "imapuidtable", lacking), NOTHING)
    assert found.standing is Standing.UNKNOWN
    assert [one.subject for one in found.against] == ["modSeq"]
