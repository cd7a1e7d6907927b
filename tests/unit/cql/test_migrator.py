"""Migrations carried out: whole, in part, killed at any point and resumed, refused, disagreed upon."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.cql.migrate.rollout import RolloutRequest
from mailmend.cql.schema.migration_plan import declared_by
from mailmend.cql.schema.migrations import MigrationState, Phase, StatementState
from mailmend.model.errors import (
    BadMigration,
    CannotReach,
    HistoryMismatch,
    LeaseHeld,
    LeaseLost,
    MigrationFailed,
    SchemaDisagreement,
    TablesOfOthers,
)
from mailmend.model.keyspace import Schema
from mailmend.repair.ledger.leases import TTL_SECONDS
from tests.support.migrating import SHOP, folder
from tests.support.migration_twin import KEYSPACE, OLD_VERSION, Killed, Stage
from tests.support.thorough import few_or

FOLDER = folder()
NAMES = list(SHOP)


def whole() -> Stage:
    """A stage on which everything was applied at once."""
    stage = Stage()
    stage.apply(FOLDER)
    return stage


WHOLE = whole()
POINTS = WHOLE.killer.passed
"""How many places there are at which an applier can be killed."""


def story(stage: Stage) -> list[tuple[object, ...]]:
    """The history without what differs from applier to applier."""
    entries = stage.history().entries()
    statements = [one for entry in entries for one in stage.history().statements(entry.number)]
    return [
        *((str(one.file), one.checksum, one.chain, one.state, one.done) for one in entries),
        *((one.number, one.position, one.checksum, one.state, one.error) for one in statements),
    ]


def test_everything_is_applied_in_order_and_written_down() -> None:
    live = WHOLE.server.keyspaces[KEYSPACE]
    declared = declared_by(FOLDER)
    assert {table.name for table in live.tables} == {table.name for table in declared.tables} == {"orders", "places"}
    entries = WHOLE.history().entries()
    assert [str(one.file) for one in entries] == NAMES
    assert {one.state for one in entries} == {MigrationState.APPLIED}
    assert [one.done for one in entries] == [3, 3, 2, 2]
    assert [one.chain for one in entries] == [one.chain for one in FOLDER]
    assert all(one.owner == "alice" and one.version == "0.1.0" and one.ended_at for one in entries)
    assert {one.state for number in range(1, 5) for one in WHOLE.history().statements(number)} == {StatementState.DONE}
    assert [line.split(" of ")[1] for line in WHOLE.reported] == ["3", "3", "2", "2"]


def test_a_second_time_nothing_is_done_and_nothing_written() -> None:
    stage = whole()
    passed, carried_out = stage.killer.passed, list(stage.server.carried_out)
    again = stage.apply(FOLDER)
    assert again.plan.empty
    assert again.statements == []
    assert stage.server.carried_out == carried_out
    assert stage.killer.passed <= passed + 4, "the history is read, and nothing else happens"


@given(st.integers(1, POINTS))
@settings(max_examples=few_or(POINTS))
def test_killed_anywhere_the_next_applier_ends_at_the_same(point: int) -> None:
    stage = Stage()
    stage.killer.at = point
    with pytest.raises(Killed):
        stage.apply(FOLDER)
    stage.killer.revive()
    stage.clock.advance(TTL_SECONDS + 1)

    stage.apply(FOLDER, "bob")

    assert stage.server.keyspaces == WHOLE.server.keyspaces
    assert story(stage) == story(WHOLE)
    assert len(stage.server.carried_out) == len(WHOLE.server.carried_out), "no statement took effect twice"
    assert len(set(stage.server.rows)) == 1, "a row that is sent again carries its first stamp"


@given(st.lists(st.integers(1, POINTS), min_size=2, max_size=6))
@settings(max_examples=few_or(60))
def test_killed_again_and_again_it_still_ends_at_the_same(points: list[int]) -> None:
    stage = Stage()
    for point in points:
        stage.killer.at = stage.killer.passed + point
        try:
            stage.apply(FOLDER)
        except Killed:
            stage.clock.advance(TTL_SECONDS + 1)
        stage.killer.revive()
    stage.apply(FOLDER, "bob")
    assert stage.server.keyspaces == WHOLE.server.keyspaces
    assert story(stage) == story(WHOLE)
    assert len(set(stage.server.rows)) == 1


@given(st.integers(0, len(FOLDER)), st.integers(0, len(FOLDER)))
def test_in_two_goes_it_ends_at_the_same(first: int, second: int) -> None:
    stage = Stage()
    for number in (first, second):
        if number:
            stage.apply(FOLDER, to=number)
    stage.apply(FOLDER)
    assert stage.server.keyspaces == WHOLE.server.keyspaces
    assert story(stage) == story(WHOLE)


def test_a_killed_holder_is_named_until_its_lease_ends() -> None:
    stage = Stage()
    stage.killer.at = POINTS // 2
    with pytest.raises(Killed):
        stage.apply(FOLDER)
    stage.killer.revive()
    with pytest.raises(LeaseHeld, match="'schema shop' is held by alice for schema apply"):
        stage.apply(FOLDER, "bob")
    stage.clock.advance(TTL_SECONDS + 1)
    assert stage.apply(FOLDER, "bob").applied


def test_one_who_was_believed_dead_stops_at_the_next_write() -> None:
    stage = Stage()
    migrator = stage.migrator("alice")
    history = stage.history("alice")
    entry = history.begin(FOLDER[0], stage.clock.new_uuid(), None)
    stage.apply(FOLDER, "bob")
    with pytest.raises(LeaseLost, match="another applier has written into the history of shop at number 0001"):
        history.advanced(entry, 1)
    assert migrator.history is not None
    assert {one.owner for one in migrator.history.entries()} == {"bob"}


def test_a_refused_statement_is_written_down_and_can_be_mended() -> None:
    stage = Stage()
    stage.server.refuses = "INDEX"
    with pytest.raises(MigrationFailed, match=r"0002_pre_labels\.cql, line 6: the server would not"):
        stage.apply(FOLDER)
    running = stage.history().entries()[1]
    assert (running.state, running.done) == (MigrationState.RUNNING, 1)
    assert [(one.state, one.error) for one in stage.history().statements(2)] == [
        (StatementState.DONE, ""),
        (StatementState.FAILED, "the server would not: INDEX"),
    ]
    labels = SHOP[NAMES[1]]
    with pytest.raises(HistoryMismatch, match=r"0002_pre_labels\.cql: its checksum is"):
        stage.apply(folder({**SHOP, NAMES[1]: labels.replace("ADD label", "ADD tag")}))
    mended = folder({**SHOP, NAMES[1]: labels.replace("CREATE INDEX by_label ON orders (label);\n", "")})
    stage.server.refuses, stage.server.silent_at = None, "INSERT"
    with pytest.raises(CannotReach):
        stage.apply(mended)
    begun = stage.history().statements(2)[1]
    assert (begun.state, begun.error, begun.ended_at) == (StatementState.BEGUN, "", None), (
        "what was refused is forgotten"
    )
    stage.server.silent_at = None
    stage.apply(mended, "bob")
    assert [one.state for one in stage.history().entries()] == [MigrationState.APPLIED] * 4
    assert stage.history().entries()[1].chain == mended[1].chain
    assert stage.apply(mended).plan.empty


@pytest.mark.parametrize("lost", [True, False], ids=["carried out", "not carried out"])
@pytest.mark.parametrize("at", ["TYPE", "by_customer (", "ADD label", "INDEX", "DROP total", "WITH gc", "DROP TABLE"])
def test_where_the_answer_is_lost_the_live_schema_tells(at: str, lost: bool) -> None:
    stage = Stage()
    if lost:
        stage.server.lost_answer_at = at
    else:
        stage.server.silent_at = at
    with pytest.raises(CannotReach, match="it looks whether it was, and goes on"):
        stage.apply(FOLDER)
    stage.server.lost_answer_at = stage.server.silent_at = None
    stage.apply(FOLDER)
    assert stage.server.keyspaces == WHOLE.server.keyspaces
    assert story(stage) == story(WHOLE)


def test_a_table_that_is_created_again_keeps_its_id() -> None:
    stage = Stage()
    stage.server.silent_at = "orders"
    with pytest.raises(CannotReach):
        stage.apply(FOLDER)
    drawn = stage.history().statements(1)[1].attempt
    stage.server.silent_at = None
    stage.clock.advance(3600)
    stage.apply(FOLDER)
    assert stage.server.ids[KEYSPACE, "orders"] == str(drawn)


def test_what_the_server_would_refuse_is_reported_before_anything_is_run() -> None:
    stage = Stage()
    wrong = folder({**SHOP, NAMES[3]: "ALTER TABLE orders ADD label int;\n"})
    with pytest.raises(BadMigration, match=r"0004_pre_places\.cql, line 5: the server would refuse it"):
        stage.apply(wrong)
    assert stage.server.keyspaces == {}
    assert stage.history().entries() == ()


def test_a_phase_stops_where_the_other_comes_first() -> None:
    stage = Stage()
    pre = stage.apply(FOLDER, phase=Phase.PRE)
    assert pre.applied == NAMES[:2]
    assert [str(one.file) for one in pre.plan.migrations.left] == NAMES[2:]
    assert pre.plan.migrations.stopped.startswith("0003_post_no_totals.cql comes first: it is of the phase 'post'")
    assert stage.apply(FOLDER, phase=Phase.PRE).plan.empty
    assert stage.apply(FOLDER, phase=Phase.POST).applied == NAMES[2:3]
    assert stage.apply(FOLDER).applied == NAMES[3:]


def test_nodes_that_disagree_are_named_with_their_versions() -> None:
    stage = Stage()
    stage.server.versions["10.0.0.2"] = OLD_VERSION
    with pytest.raises(SchemaDisagreement, match=f"before anything was changed.*10.0.0.2 has {OLD_VERSION}") as refused:
        stage.apply(FOLDER)
    assert "Look at 10.0.0.2: nodetool describecluster" in str(refused.value)
    assert stage.server.keyspaces == {}


def test_a_node_that_does_not_answer_counts_as_one_that_disagrees() -> None:
    stage = Stage()
    stage.server.versions["10.0.0.3"] = None
    with pytest.raises(SchemaDisagreement, match=r"10\.0\.0\.3 has given no answer"):
        stage.apply(FOLDER)


def test_a_node_that_is_down_is_reported_and_does_not_block() -> None:
    stage = Stage()
    stage.server.down = ("10.0.0.3",)
    with pytest.raises(SchemaDisagreement, match=r"not every node is up, before anything was changed: 10\.0\.0\.3"):
        stage_all(stage)
    assert stage.apply(FOLDER).nodes.down == ("10.0.0.3",)


def stage_all(stage: Stage) -> None:
    """Apply where every node is required."""
    stage.migrator(require_all=True).roll_out(RolloutRequest(KEYSPACE, FOLDER, ours=False))


def test_a_disagreement_after_a_statement_stops_there_and_is_resumed() -> None:
    stage = Stage()
    carry_out = stage.server._carry_out

    def falls_behind(text: str) -> None:
        carry_out(text)
        if "label" in text:
            stage.server.versions["10.0.0.2"] = OLD_VERSION

    stage.server._carry_out = falls_behind  # type: ignore[method-assign]
    with pytest.raises(SchemaDisagreement, match=r"after 0002_pre_labels\.cql, line 5"):
        stage.apply(FOLDER)
    assert [one.state for one in stage.history().statements(2)] == [StatementState.BEGUN]
    stage.server.versions["10.0.0.2"] = stage.server.versions["10.0.0.1"]
    stage.server._carry_out = carry_out  # type: ignore[method-assign]
    stage.apply(FOLDER)
    assert story(stage) == story(WHOLE)
    assert len(stage.server.carried_out) == len(WHOLE.server.carried_out)


def test_a_keyspace_with_tables_of_others_is_migrated_beside_them() -> None:
    others = Schema((), declared_by(folder({"0001_pre_a.cql": "CREATE TABLE other (a int PRIMARY KEY);"})).tables)
    stage = Stage(shop=others)
    with pytest.raises(TablesOfOthers, match=r"another application: other\n.*--into-existing"):
        stage.apply(FOLDER)
    assert stage.server.carried_out == []
    stage.apply(FOLDER, into_existing=True)
    assert stage.apply(FOLDER).plan.empty, "from then on it is known"
    assert stage.server.keyspaces[KEYSPACE].table("other")
    assert len(stage.server.keyspaces[KEYSPACE].tables) == 3
