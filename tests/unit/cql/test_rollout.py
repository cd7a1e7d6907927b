"""A mail keyspace taken to what our own migrations say, or to what is left of an upgrade note."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.cql.applying import creations
from mailmend.cql.migrate.files import Spelling, shipped
from mailmend.cql.migrate.migrator import RolloutResult
from mailmend.cql.migrate.rollout import RolloutRequest, plan_rollout
from mailmend.cql.render import CASSANDRA_5, parse_version
from mailmend.cql.schema.difference import differences
from mailmend.cql.schema.generations import JAMES_3_9, recognise
from mailmend.cql.schema.migrations import LedgerRecord, MigrationState
from mailmend.cql.schema.upgrades import optional_migration
from mailmend.model.catalog.mail import SCHEMA, CompactionChoice
from mailmend.model.errors import LeaseHeld, SchemaDisagreement, WrongUse
from mailmend.model.keyspace import Schema
from tests.support.migration_twin import KEYSPACE, OLD_VERSION, Killed, Stage
from tests.support.schemas import columns_of, served, with_columns, without_tables
from tests.support.thorough import few_or

OURS = shipped()
STATEMENTS = sum(len(one.statements) for one in OURS)
MADE = served(SCHEMA, made_here=True)
EVERYTHING = len(SCHEMA.types) + len(SCHEMA.tables)


def rolled(stage: Stage, **request: object) -> RolloutResult:
    return stage.migrator().roll_out(RolloutRequest("shop", OURS, ours=True, **request))  # type: ignore[arg-type]


def test_a_new_keyspace_becomes_what_the_catalog_declares() -> None:
    stage = Stage()
    done = rolled(stage)
    assert done.created[:3] == ["keyspace shop", "type attachments", "table imapUidTable"]
    assert len(done.created) == 1 + EVERYTHING == 1 + STATEMENTS
    assert differences(SCHEMA, stage.server.keyspaces["shop"]) == ()
    assert recognise(stage.server.keyspaces["shop"]).agrees
    assert [one.state for one in stage.history().entries()] == [MigrationState.APPLIED] * len(OURS)
    assert rolled(stage).plan.empty


@given(st.integers(0, EVERYTHING))
@settings(max_examples=few_or(EVERYTHING, 12))
def test_a_keyspace_made_before_there_was_a_history_is_taken_over_however_far_it_came(statements: int) -> None:
    stage = Stage(shop=Schema((), ()))
    for step in list(creations("shop", SCHEMA, Schema((), ()), CASSANDRA_5))[:statements]:
        stage.server.execute_ddl(step.cql)
    held = stage.server.keyspaces["shop"]
    done = rolled(stage)
    assert len(done.created) == EVERYTHING - len(held.types) - len(held.tables)
    assert differences(SCHEMA, stage.server.keyspaces["shop"]) == ()
    assert all(one.ended for one in stage.history().entries())
    assert len(stage.history().entries()) == len(OURS)
    baseline = [one for one in stage.history().entries() if one.state is MigrationState.BASELINE]
    assert [one.number for one in baseline] == list(range(1, len(baseline) + 1))
    assert (len(baseline) == len(OURS)) is (statements == EVERYTHING)


@pytest.mark.parametrize("gone", ["firstunseen", "messagev3", "subscription"])
def test_what_somebody_dropped_is_made_again(gone: str) -> None:
    stage = Stage()
    rolled(stage)
    before = stage.history().entries()
    stage.server.keyspaces["shop"] = without_tables(stage.server.keyspaces["shop"], gone)
    again = rolled(stage)
    assert [one.lower() for one in again.created] == [f"table {gone}"]
    assert again.plan.migrations.empty
    assert stage.history().entries() == before
    assert rolled(stage).plan.empty


def test_what_was_not_applied_yet_is_not_made_as_if_it_were_missing() -> None:
    stage = Stage()
    rolled(stage, to=2)
    assert {table.name for table in stage.server.keyspaces["shop"].tables} == {
        "imapuidtable",
        "messageidtable",
        "messagev3",
        "messagecounter",
        "modseq",
        "mailboxcounters",
    }
    assert rolled(stage, to=2).plan.empty


def test_a_keyspace_of_james_is_left_alone_and_no_ledger_is_made() -> None:
    stage = Stage(shop=without_tables(served(JAMES_3_9.schema), "firstunseen"))
    left = rolled(stage)
    assert (left.plan.foreign, left.plan.empty, left.statements) == (True, True, [])
    assert [step.creates for step in left.plan.withheld] == ["table firstUnseen"]
    assert stage.killer.passed <= 4, "the ledger was looked at, and not written"
    completed = rolled(stage, complete=True)
    assert completed.created == ["table firstUnseen"]
    assert stage.history().entries() == ()
    assert recognise(stage.server.keyspaces["shop"]).agrees


def test_an_adopted_keyspace_gets_later_migrations_and_nothing_else() -> None:
    stage = Stage(shop=without_tables(served(JAMES_3_9.schema), "subscription", "firstunseen"))
    stage.history().baseline(OURS[:-1], stage.clock.new_uuid(), "adopted: 3.9")
    stage.history().baseline(OURS[-1:], stage.clock.new_uuid(), "adopted: 3.9")
    adopted = rolled(stage)
    assert (adopted.plan.foreign, adopted.plan.empty, adopted.plan.withheld) == (False, True, ())
    assert rolled(stage, complete=True).created == ["table firstUnseen"]


@pytest.mark.parametrize("choice", CompactionChoice)
def test_the_choice_of_compaction_is_rendered_into_three_tables(choice: CompactionChoice) -> None:
    stage = Stage()
    rolled(stage, compaction=choice)
    live = stage.server.keyspaces["shop"]
    assert recognise(live).notes == ()
    chosen = live.table("imapuidtable")
    assert chosen is not None
    assert [one.checksum for one in stage.history().entries()] == [one.checksum for one in OURS]
    assert rolled(stage, compaction=choice).plan.empty


def test_a_server_that_lacks_the_compaction_is_reported_of_before_anything_is_done() -> None:
    stage = Stage()
    stage.server.release_version = "4.1.10"
    with pytest.raises(WrongUse, match="UnifiedCompactionStrategy"):
        rolled(stage, compaction=CompactionChoice.UNIFIED)
    assert (stage.server.keyspaces, stage.history().entries()) == ({}, ())


def test_a_plan_only_reads() -> None:
    stage = Stage()
    plan = plan_rollout(stage.server, LedgerRecord(), RolloutRequest("shop", OURS, ours=True))
    assert len(plan.migrations.statements) == STATEMENTS
    assert plan.creation is not None
    assert stage.server.keyspaces == {}
    assert stage.killer.passed == 0


def test_a_server_without_an_option_gets_our_tables_without_it_and_anybody_else_s_as_they_are() -> None:
    (queue,) = (one for one in OURS if one.file.name == "mail_queue")
    for release, choice, there in (
        ("3.0.8", CompactionChoice.TWCS, False),
        ("3.0.8", None, True),
        ("4.0.0", CompactionChoice.TWCS, True),
    ):
        text = Spelling("shop", parse_version(release), choice).shown(queue, 0)
        assert text.startswith("CREATE TABLE IF NOT EXISTS shop.enqueuedMailsV4 (")
        assert ("read_repair" in text) is there
        assert "default_time_to_live = " in text


SAVE_DATE = optional_migration("save-date")
WHOLE = served(JAMES_3_9.schema, made_here=True)
BOTH = [
    f"ALTER TABLE {KEYSPACE}.messageIdTable ADD save_date timestamp;",
    f"ALTER TABLE {KEYSPACE}.imapUidTable ADD save_date timestamp;",
]


def unfollowed(*tables: str) -> Schema:
    schema = WHOLE
    for table in tables:
        schema = with_columns(schema, table, [one for one in columns_of(schema, table) if one.name != "save_date"])
    return schema


@pytest.fixture
def stage() -> Stage:
    return Stage(shop=unfollowed("imapuidtable", "messageidtable"))


def test_what_is_left_of_it_is_run_and_nothing_a_second_time(stage: Stage) -> None:
    assert list(stage.migrator().run_optional(KEYSPACE, SAVE_DATE)) == BOTH
    assert stage.migrator().run_optional(KEYSPACE, SAVE_DATE) == ()
    assert stage.server.carried_out == BOTH


def test_a_table_that_was_altered_by_hand_is_left_out() -> None:
    stage = Stage(shop=unfollowed("imapuidtable"))
    assert list(stage.migrator().run_optional(KEYSPACE, SAVE_DATE)) == BOTH[1:]


def test_whoever_is_killed_at_any_point_leaves_a_way_on() -> None:
    killed = 0
    for point in range(1, 100):
        # Given an applier who dies at that point
        stage = Stage(shop=unfollowed("imapuidtable", "messageidtable"))
        stage.killer.at = point
        try:
            stage.migrator().run_optional(KEYSPACE, SAVE_DATE)
        except Killed:
            killed += 1
        else:
            break

        # When the lease has run out and the same command is typed again
        stage.killer.revive()
        stage.clock.advance(120)
        stage.migrator("bob").run_optional(KEYSPACE, SAVE_DATE)

        # Then all of it is done, once
        assert stage.server.carried_out == BOTH, point
        assert SAVE_DATE.due(stage.server.keyspaces[KEYSPACE]) == ()
    assert killed > 2 * len(BOTH)


def test_while_somebody_else_changes_the_schema_nothing_is_run(stage: Stage) -> None:
    leases = stage.migrator("bob").leases()
    with leases.held(f"schema {KEYSPACE}", "schema apply"), pytest.raises(LeaseHeld, match="schema apply"):
        stage.migrator("alice").run_optional(KEYSPACE, SAVE_DATE)
    assert stage.server.carried_out == []


def test_while_the_nodes_disagree_nothing_is_run(stage: Stage) -> None:
    stage.server.versions["10.0.0.2"] = OLD_VERSION
    with pytest.raises(SchemaDisagreement, match=r"10\.0\.0\.2"):
        stage.migrator().run_optional(KEYSPACE, SAVE_DATE)
    assert stage.server.carried_out == []


def test_what_the_server_refuses_is_reported_and_what_was_done_stands(stage: Stage) -> None:
    stage.server.refuses = "imapUidTable"
    with pytest.raises(WrongUse, match="the server would not"):
        stage.migrator().run_optional(KEYSPACE, SAVE_DATE)
    assert stage.server.carried_out == BOTH[:1]
    stage.server.refuses = None
    assert list(stage.migrator("alice").run_optional(KEYSPACE, SAVE_DATE)) == BOTH[1:]
