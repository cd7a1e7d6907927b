"""An upgrade note carried out: only what is left of it, under the lease, and from any kill the same command goes on."""

import pytest

from model.catalog.generations import JAMES_3_9
from model.errors import LeaseHeld, SchemaDisagreement, WrongUse
from model.migrations.upgrade_notes import optional_migration
from model.schema.keyspace import Schema
from tests.support.migration_twin import KEYSPACE, OLD_VERSION, Killed, Stage
from tests.support.schemas import columns_of, served, with_columns

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


def test_what_the_server_refuses_is_told_and_what_was_done_stands(stage: Stage) -> None:
    stage.server.refuses = "imapUidTable"
    with pytest.raises(WrongUse, match="the server would not"):
        stage.migrator().run_optional(KEYSPACE, SAVE_DATE)
    assert stage.server.carried_out == BOTH[:1]
    stage.server.refuses = None
    assert list(stage.migrator("alice").run_optional(KEYSPACE, SAVE_DATE)) == BOTH[1:]
