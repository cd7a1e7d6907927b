"""A keyspace beside its model and its history: what is wrong, what is only otherwise, what is still under way."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from mailmend.cql.schema.difference import Aspect
from mailmend.cql.schema.generations import JAMES_3_8
from mailmend.cql.schema.migration_plan import declared_by, expected_after, verify_migrations, verify_ours
from mailmend.cql.schema.migrations import (
    Baseline,
    Entry,
    LedgerRecord,
    Migration,
    MigrationState,
    Since,
    StatementEntry,
    StatementState,
    Tampering,
    checksum_of,
    digests,
)
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table, UserType
from tests.support.migrating import SHOP, applied, folder
from tests.support.schemas import columns_of, served, with_columns, without_tables

AT = datetime(2026, 9, 1, tzinfo=UTC)
MIGRATIONS = folder()
HISTORY = applied(MIGRATIONS)
LIVE = declared_by(MIGRATIONS)
WHOLE = LedgerRecord(HISTORY)
OTHER = Table("other", (Column("id", "uuid", Kind.PARTITION),))


def aspects(live: Schema, record: LedgerRecord | None = WHOLE, files: Sequence[Migration] = MIGRATIONS) -> list[Aspect]:
    return [one.aspect for one in verify_migrations(live, files, record).drift]


def begun(number: int, position: int, state: StatementState) -> StatementEntry:
    """A statement in the history."""
    cql = MIGRATIONS[number - 1].cql(position)
    return StatementEntry(number, position, checksum_of(cql), state, UUID(int=1), AT, cql)


def test_a_keyspace_that_is_what_its_migrations_made_of_it_agrees() -> None:
    found = verify_migrations(LIVE, MIGRATIONS, WHOLE)
    assert found.agrees
    assert found.notes == ()
    assert (found.applied, found.pending, found.running) == (len(SHOP), (), ())


def test_missing_unexpected_and_different_are_drift() -> None:
    assert aspects(without_tables(LIVE, "places")) == [Aspect.MISSING_TABLE]
    assert aspects(replace(LIVE, tables=(*LIVE.tables, OTHER))) == [Aspect.UNEXPECTED_TABLE]
    assert aspects(replace(LIVE, indexes=())) == [Aspect.MISSING_INDEX]
    assert aspects(replace(LIVE, types=())) == [Aspect.MISSING_TYPE]
    more = with_columns(LIVE, "orders", (*columns_of(LIVE, "orders"), Column("hint", "text")))
    assert aspects(more) == [Aspect.UNEXPECTED_COLUMN]


def test_a_keyspace_that_held_tables_before_its_first_migration_may_hold_them_still() -> None:
    older = LedgerRecord((replace(HISTORY[0], state=MigrationState.BASELINE), *HISTORY[1:]))
    found = verify_migrations(replace(LIVE, tables=(*LIVE.tables, OTHER)), MIGRATIONS, older)
    assert found.agrees
    assert [one.aspect for one in found.notes] == [Aspect.UNEXPECTED_TABLE]


def test_without_a_history_everything_is_unexpected() -> None:
    assert set(aspects(LIVE, None)) == {
        Aspect.UNEXPECTED_TABLE,
        Aspect.UNEXPECTED_TYPE,
        Aspect.UNEXPECTED_INDEX,
    }
    assert verify_migrations(Schema((), ()), MIGRATIONS, None).agrees


def test_what_is_pending_is_reported_and_is_no_drift() -> None:
    two = LedgerRecord(HISTORY[:2])
    found = verify_migrations(declared_by(MIGRATIONS[:2]), MIGRATIONS, two)
    assert found.agrees
    assert found.pending == tuple(str(one.file) for one in MIGRATIONS[2:])


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_migration_under_way_is_drift_and_what_it_did_is_expected(done: int) -> None:
    # Given a second migration of which some statements are done
    running = replace(HISTORY[1], state=MigrationState.RUNNING, done=done, ended_at=None)
    statements = tuple(begun(2, position, StatementState.DONE) for position in range(done))
    statements += (begun(2, done, StatementState.BEGUN),)
    past = LedgerRecord((HISTORY[0], running), statements)
    live = expected_after(MIGRATIONS, past)

    # Then only its being under way is told
    found = verify_migrations(live, MIGRATIONS, past)
    assert not found.agrees
    assert found.drift == ()
    assert [str(one.file) for one in found.running] == ["0002_pre_labels.cql"]
    assert ("label" in columns_names(live)) is (done > 0)


def columns_names(live: Schema) -> set[str]:
    return {column.name for column in columns_of(live, "orders")}


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({**SHOP, "0002_pre_labels.cql": SHOP["0002_pre_labels.cql"] + "-- a word\n"}, Tampering.EDITED),
        ({name: text for name, text in SHOP.items() if not name.startswith("0004")}, Tampering.MISSING),
        (
            {name.replace("0004_pre_places", "0004_pre_towns"): text for name, text in SHOP.items()},
            Tampering.RENAMED,
        ),
    ],
    ids=["edited", "missing", "renamed"],
)
def test_a_folder_that_is_not_what_was_applied_is_drift(files: dict[str, str], kind: Tampering) -> None:
    found = verify_migrations(LIVE, folder(files), WHOLE)
    assert not found.agrees
    assert [one.kind for one in found.tampering] == [kind]


def test_a_folder_that_fits_together_no_more_is_reported_by_its_files() -> None:
    swapped = {
        "0001_pre_labels.cql": SHOP["0002_pre_labels.cql"],
        "0002_pre_orders.cql": SHOP["0001_pre_orders.cql"],
        **{name: text for name, text in SHOP.items() if name > "0003"},
    }
    found = verify_migrations(LIVE, folder(swapped), WHOLE)
    assert [one.kind for one in found.tampering] == [Tampering.MOVED, Tampering.MOVED]
    assert (found.drift, found.agrees) == ((), False)


def test_a_migration_that_was_put_in_between_is_drift() -> None:
    past = LedgerRecord((*HISTORY[:2], *HISTORY[3:]))
    kinds = {one.kind for one in verify_migrations(LIVE, MIGRATIONS, past).tampering}
    assert Tampering.INSERTED in kinds


def test_a_mail_keyspace_is_compared_with_its_generation_and_with_its_baseline() -> None:
    # Given a keyspace of 3.8.1 that was adopted before James made two tables more
    now = served(JAMES_3_8.schema)
    before = without_tables(now, "blobs", "blobparts")
    baseline = Baseline("3.8.1", digests(before), (), AT, "ann@host", "1.0")

    # Then the tables are told as new
    found = verify_ours(now, MIGRATIONS, LedgerRecord(baseline=baseline))
    assert found.agrees
    assert found.recognition is not None
    assert found.since == ((Since.NEW, "table blobparts"), (Since.NEW, "table blobs"))


def test_without_a_ledger_a_mail_keyspace_is_compared_with_the_catalog_alone() -> None:
    found = verify_ours(served(SCHEMA, made_here=True), MIGRATIONS, None)
    assert found.agrees
    assert (found.applied, found.pending, found.since, found.baseline) == (None, (), (), None)
    broken = verify_ours(without_tables(served(SCHEMA, made_here=True), "modseq"), MIGRATIONS, None)
    assert [one.owner for one in broken.drift] == ["modseq"]


def entry_of(one: Migration) -> Entry:
    return HISTORY[one.number - 1]


def test_expected_is_the_fold_of_what_was_applied_and_of_nothing_else() -> None:
    for count in range(len(MIGRATIONS) + 1):
        past = LedgerRecord(tuple(entry_of(one) for one in MIGRATIONS[:count]))
        assert expected_after(MIGRATIONS, past) == declared_by(MIGRATIONS[:count])


@pytest.mark.parametrize("state", [StatementState.BEGUN, StatementState.FAILED])
def test_a_statement_that_is_not_known_to_be_done_is_not_expected(state: StatementState) -> None:
    running = replace(HISTORY[1], state=MigrationState.RUNNING, done=0, ended_at=None)
    past = LedgerRecord((HISTORY[0], running), (begun(2, 0, state),))
    assert expected_after(MIGRATIONS, past) == declared_by(MIGRATIONS[:1])


def test_statements_of_migrations_that_the_history_lacks_count_for_nothing() -> None:
    past = LedgerRecord(HISTORY[:1], (begun(2, 0, StatementState.DONE),))
    assert expected_after(MIGRATIONS, past) == declared_by(MIGRATIONS[:1])


def test_each_thing_that_is_wrong_is_enough() -> None:
    assert verify_migrations(LIVE, MIGRATIONS, WHOLE).agrees
    drifted = verify_migrations(without_tables(LIVE, "places"), MIGRATIONS, WHOLE)
    assert (bool(drifted.drift), drifted.tampering, drifted.running) == (True, (), ())
    forged = LedgerRecord((*HISTORY[:-1], replace(HISTORY[-1], chain="0" * 64)))
    tampered = verify_migrations(LIVE, MIGRATIONS, forged)
    assert (tampered.drift, [one.kind for one in tampered.tampering]) == ((), [Tampering.FORGED])
    open_end = LedgerRecord((*HISTORY[:-1], replace(HISTORY[-1], state=MigrationState.RUNNING)))
    running = verify_migrations(declared_by(MIGRATIONS[:-1]), MIGRATIONS, open_end)
    assert (running.drift, running.tampering, len(running.running)) == ((), (), 1)
    assert [one.agrees for one in (drifted, tampered, running)] == [False, False, False]


def test_options_and_types_of_an_older_keyspace_are_noted_and_its_columns_are_not() -> None:
    older = LedgerRecord(applied(MIGRATIONS, MigrationState.BASELINE))
    tuned = replace(LIVE, types=(*LIVE.types, UserType("size", (("bytes", "int"),))))
    found = verify_migrations(tuned, MIGRATIONS, older)
    assert found.agrees
    assert [one.aspect for one in found.notes] == [Aspect.UNEXPECTED_TYPE]
    more = with_columns(LIVE, "orders", (*columns_of(LIVE, "orders"), Column("hint", "text")))
    assert [one.aspect for one in verify_migrations(more, MIGRATIONS, older).drift] == [Aspect.UNEXPECTED_COLUMN]
    assert not verify_migrations(tuned, MIGRATIONS, WHOLE).agrees
