"""Which keyspaces are adopted, and why the others are not; which schema version of James may be written."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.schema.difference import Aspect
from mailmend.cql.schema.generations import AUGUST_2026, GENERATIONS, JAMES_3_8, JAMES_3_9, NEWEST, Generation
from mailmend.cql.schema.migrations import Baseline, Entry, FileName, LedgerRecord, MigrationState, Phase, digests
from mailmend.cql.schema.upgrades import SUPPORTED, Standing, VersionStep, decide_adoption, decide_version
from mailmend.model.catalog.mail import MAIL_TABLES, SCHEMA
from mailmend.model.errors import ExitCode, UnsafeRequest, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table
from tests.support.schemas import columns_of, served, with_columns, without_tables

NOW = datetime(2026, 11, 1, tzinfo=UTC)
BASELINE = Baseline("3.9", digests(served(SCHEMA)), (), NOW, "ann@host", "1.0")
NOTHING = LedgerRecord()
OTHER = Schema((), (Table("orders", (Column("id", "uuid", Kind.PARTITION),)),))


def entry(state: MigrationState) -> Entry:
    return Entry(FileName(1, Phase.PRE, "first"), "aa", "bb", state, 1, 1, "ann@host", NOW, "1.0", UUID(int=1))


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_every_generation_is_adopted_as_itself(generation: Generation) -> None:
    found = decide_adoption(served(generation.schema), NOTHING)
    assert found.standing is Standing.ADOPTABLE
    assert found.recognition.generation is generation
    assert found.against == ()


def test_tables_of_other_modules_stand_against_nothing() -> None:
    live = without_tables(served(JAMES_3_9.schema), "message_fast_view_projection", "blobs", "blobparts")
    assert decide_adoption(replace(live, tables=(*live.tables, *OTHER.tables)), NOTHING).standing is Standing.ADOPTABLE


def test_a_column_that_an_upgrade_note_adds_may_be_missing() -> None:
    schema = served(JAMES_3_8.schema)
    before = with_columns(
        schema, "imapuidtable", [one for one in columns_of(schema, "imapuidtable") if one.name != "save_date"]
    )
    found = decide_adoption(before, NOTHING)
    assert found.standing is Standing.ADOPTABLE
    assert [one.aspect for one in found.recognition.drift] == [Aspect.MISSING_COLUMN]
    assert "save-date" in {one.name for one in found.optional}


def test_somebodys_own_column_stands_against_nothing() -> None:
    schema = served(JAMES_3_9.schema)
    live = with_columns(schema, "modseq", (*columns_of(schema, "modseq"), Column("label", "text")))
    found = decide_adoption(live, NOTHING)
    assert found.standing is Standing.ADOPTABLE
    assert found.recognition.drift


@pytest.mark.parametrize("table", MAIL_TABLES, ids=lambda one: one.spelling)
def test_a_keyspace_that_james_had_not_finished_is_not_adopted(table: Table) -> None:
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
    found = decide_adoption(with_columns(served(JAMES_3_9.schema), "modseq", columns), NOTHING)
    assert found.standing is Standing.UNKNOWN
    assert {one.owner for one in found.against} == {"modseq"}


def test_a_keyspace_without_mail_is_not_adopted() -> None:
    assert decide_adoption(OTHER, NOTHING).standing is Standing.EMPTY
    assert decide_adoption(Schema((), ()), NOTHING).standing is Standing.EMPTY


def test_what_mailmend_made_needs_no_adoption() -> None:
    ours = served(SCHEMA, made_here=True)
    assert decide_adoption(ours, NOTHING).standing is Standing.OURS
    assert decide_adoption(without_tables(ours, "modseq"), NOTHING).standing is Standing.OURS
    assert decide_adoption(served(SCHEMA), LedgerRecord((entry(MigrationState.APPLIED),))).standing is Standing.OURS
    assert decide_adoption(served(SCHEMA), LedgerRecord((entry(MigrationState.RUNNING),))).standing is Standing.OURS


def test_what_was_adopted_stays_adopted_whatever_became_of_it() -> None:
    history = (entry(MigrationState.BASELINE), entry(MigrationState.APPLIED))
    for live in (served(SCHEMA), OTHER):
        assert decide_adoption(live, LedgerRecord(history, baseline=BASELINE)).standing is Standing.ADOPTED
    assert (
        decide_adoption(served(SCHEMA), LedgerRecord((entry(MigrationState.BASELINE),))).standing is Standing.ADOPTABLE
    )


def test_a_table_that_is_missing_beside_one_of_another_shape_is_no_half_made_keyspace() -> None:
    live = without_tables(served(JAMES_3_9.schema), "firstunseen")
    live = with_columns(live, "modseq", (Column("mailboxid", "timeuuid", Kind.PARTITION), Column("nextmodseq", "int")))
    found = decide_adoption(live, NOTHING)
    assert found.standing is Standing.UNKNOWN
    assert {one.owner for one in found.against} == {"modseq", "firstUnseen"}


def test_a_type_that_is_missing_makes_it_half_made() -> None:
    found = decide_adoption(replace(served(JAMES_3_9.schema), types=()), NOTHING)
    assert found.standing is Standing.HALF_MADE
    assert {one.aspect for one in found.against} == {Aspect.MISSING_TYPE}


def test_a_missing_column_that_no_note_adds_stands_against_it() -> None:
    schema = served(JAMES_3_9.schema)
    lacking = [one for one in columns_of(schema, "imapuidtable") if one.name not in {"modseq", "save_date"}]
    found = decide_adoption(with_columns(schema, "imapuidtable", lacking), NOTHING)
    assert found.standing is Standing.UNKNOWN
    assert [one.subject for one in found.against] == ["modSeq"]


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_what_its_james_knows_is_taken_and_nothing_else(generation: Generation) -> None:
    oldest, newest = SUPPORTED[generation.name]
    for wanted in range(oldest, newest + 1):
        assert decide_version((), generation, wanted) == VersionStep(None, oldest, wanted)
    for nonsense in (-1, 0, oldest - 1, newest + 1, 2**31):
        with pytest.raises(WrongUse, match=f"{oldest} to {newest}") as refused:
            decide_version((), generation, nonsense)
        assert refused.value.exit_code is ExitCode.WRONG_USE


def test_each_generation_has_its_range() -> None:
    assert set(SUPPORTED) == {one.name for one in GENERATIONS}
    assert SUPPORTED[JAMES_3_8.name] == (8, 12)
    assert SUPPORTED[JAMES_3_9.name] == (12, 15)


@given(st.sets(st.integers(1, 16)), st.integers(12, 16))
def test_james_reads_the_greatest_so_a_lower_one_is_refused(standing: set[int], wanted: int) -> None:
    if standing and wanted < max(standing):
        with pytest.raises(UnsafeRequest, match="would change nothing"):
            decide_version(standing, NEWEST, wanted)
        return
    step = decide_version(standing, NEWEST, wanted)
    assert max((*standing, step.after)) == wanted
    assert step.changes is (wanted not in standing)


def test_a_version_that_skips_james_own_work_says_so() -> None:
    caution = decide_version((12,), JAMES_3_9, 15).caution
    for step in ("12 to 13", "13 to 14", "14 to 15"):
        assert step in caution
    assert decide_version((), JAMES_3_9, 12).caution == ""
    assert "8 to 9" in decide_version((), JAMES_3_8, 9).caution
    assert decide_version((15,), JAMES_3_9, 15).caution == ""


@pytest.mark.parametrize(
    ("generation", "known"),
    [(JAMES_3_8, (8, 12)), (JAMES_3_9, (12, 15)), (AUGUST_2026, (12, 15)), (NEWEST, (12, 16))],
    ids=lambda one: one.name if isinstance(one, Generation) else "",
)
def test_each_james_refuses_to_start_above_its_own(generation: Generation, known: tuple[int, int]) -> None:
    assert SUPPORTED[generation.name] == known
    with pytest.raises(WrongUse) as refused:
        decide_version((), generation, known[1] + 1)
    assert refused.value.mend == "Ask James itself: GET /cassandra/version/latest of its webadmin."


def test_a_version_that_nobody_would_read_is_refused_with_the_way_out() -> None:
    with pytest.raises(UnsafeRequest, match="the keyspace has schema version 14") as refused:
        decide_version((12, 14, 13), JAMES_3_9, 13)
    assert refused.value.mend == (
        "Leave it. A version that was written by mistake goes with its row: DELETE FROM schemaversion."
    )
    assert decide_version((12, 14, 13), JAMES_3_9, 14) == VersionStep(14, 14, 14)


@pytest.mark.parametrize(
    ("step", "caution", "changes"),
    [
        (VersionStep(None, 8, 8), False, True),
        (VersionStep(None, 8, 9), True, True),
        (VersionStep(8, 8, 8), False, False),
        (VersionStep(8, 8, 10), True, True),
    ],
)
def test_a_step_claims_what_lies_between(step: VersionStep, *, caution: bool, changes: bool) -> None:
    assert (bool(step.caution), step.changes) == (caution, changes)
    for number in range(step.assumed, step.after):
        assert f"{number} to {number + 1}" in step.caution
