"""Taking a keyspace over and giving it back, on twins: what the ledger then holds, and that a kill leaves a way on."""

from collections.abc import Callable
from typing import Any

import pytest

from mailmend.cql.memory import MemoryTables, Surround
from mailmend.cql.migrate.files import shipped
from mailmend.cql.migrate.history import History, VersionWritten, adopt, forget, look_at, version_step, write_version
from mailmend.cql.row_statements import Operation
from mailmend.cql.schema.generations import JAMES_3_8, NEWEST
from mailmend.cql.schema.migrations import MigrationState, digests, fingerprint_of
from mailmend.cql.schema.upgrades import Standing
from mailmend.model.catalog.james_tables import SCHEMA_VERSION
from mailmend.model.catalog.ledger import SCHEMA_BASELINE, SCHEMA_MIGRATION
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.errors import DoubtfulWrite, LeaseHeld, LeaseLost, SchemaMismatch, UnknownKeyspace, UnsafeRequest
from mailmend.model.keyspace import Schema
from mailmend.model.operations import PutIfAbsent, Read, Scan
from mailmend.repair.ledger.leases import TTL_SECONDS, Leases
from tests.support.clock import VirtualClock
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import served, without_tables

KEYSPACE = "mail"
MIGRATIONS = shipped()
JAMES = served(JAMES_3_8.schema)


class Scene:
    """A server with one keyspace, and a ledger in memory."""

    def __init__(self, live: Schema = JAMES) -> None:
        self.clock = VirtualClock()
        self.server = SchemaTwin(mail=live)
        self.rows = MemoryTables(self.clock.micros)
        self.history = History(self.rows, self.clock, KEYSPACE, "ann@host pid 1", "1.0")
        self.leases = Leases(self.rows, self.clock, "ann@host pid 1")

    def adopt(self) -> None:
        self.opened = adopt(self.server, self.history, self.leases, MIGRATIONS)

    def states(self) -> list[MigrationState]:
        """The states of the history."""
        return [one.state for one in self.history.entries()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_adopting_writes_the_baseline_and_every_migration_as_there_already(scene: Scene) -> None:
    # Given a keyspace that can be adopted
    assert look_at(scene.server, KEYSPACE, scene.history)[0].standing is Standing.ADOPTABLE

    # When it is adopted
    scene.adopt()

    # Then the ledger says so, and nothing was changed
    adoption, baseline = look_at(scene.server, KEYSPACE, scene.history)
    assert adoption.standing is Standing.ADOPTED
    assert baseline is not None
    assert baseline.generation == "3.8.1"
    assert baseline.fingerprint == fingerprint_of(digests(JAMES))
    assert baseline.migrations == tuple(str(one.file) for one in MIGRATIONS)
    assert baseline.owner == "ann@host pid 1"
    assert scene.states() == [MigrationState.BASELINE] * len(MIGRATIONS)
    assert {one.note for one in scene.history.entries()} == {"adopted as 3.8.1"}
    assert scene.server.carried_out == []


def test_adopting_twice_changes_nothing(scene: Scene) -> None:
    scene.adopt()
    first = scene.opened
    scene.clock.advance(60)
    scene.server.keyspaces[KEYSPACE] = served(NEWEST.schema)
    scene.adopt()
    assert scene.opened == first


def test_forgetting_leaves_nothing_behind(scene: Scene) -> None:
    scene.adopt()
    assert forget(scene.history, scene.leases) == scene.opened
    assert scene.states() == []
    assert look_at(scene.server, KEYSPACE, scene.history)[0].standing is Standing.ADOPTABLE
    assert forget(scene.history, scene.leases) is None
    scene.server.keyspaces[KEYSPACE] = served(NEWEST.schema)
    scene.adopt()
    assert scene.opened.generation == NEWEST.name


def test_what_was_migrated_since_is_not_forgotten(scene: Scene) -> None:
    scene.adopt()
    scene.history.begin(MIGRATIONS[0], scene.clock.new_uuid(), scene.history.entries()[0])
    with pytest.raises(UnsafeRequest, match="0001_pre"):
        forget(scene.history, scene.leases)
    assert look_at(scene.server, KEYSPACE, scene.history)[0].standing is Standing.ADOPTED


def test_forgetting_what_was_never_adopted_keeps_a_history_of_our_own() -> None:
    scene = Scene(served(SCHEMA, made_here=True))
    scene.history.begin(MIGRATIONS[0], scene.clock.new_uuid(), None)
    assert forget(scene.history, scene.leases) is None
    assert scene.states() == [MigrationState.RUNNING]


@pytest.mark.parametrize(
    ("live", "standing"),
    [
        (served(SCHEMA, made_here=True), Standing.OURS),
        (without_tables(JAMES, "modseq"), Standing.HALF_MADE),
        (Schema((), ()), Standing.EMPTY),
    ],
    ids=["ours", "half made", "empty"],
)
def test_what_became_another_while_we_waited_is_not_adopted(live: Schema, standing: Standing) -> None:
    scene = Scene(live)
    assert look_at(scene.server, KEYSPACE, scene.history)[0].standing is standing
    with pytest.raises(UnsafeRequest, match=standing.value):
        scene.adopt()
    assert scene.states() == []


def test_while_the_schema_is_being_changed_nobody_adopts(scene: Scene) -> None:
    with scene.leases.held("schema mail", "schema apply"), pytest.raises(LeaseHeld, match="schema apply"):
        scene.adopt()
    assert scene.states() == []


def test_a_keyspace_that_is_not_there_is_reported() -> None:
    with pytest.raises(UnknownKeyspace, match="mailmend schema apply"):
        look_at(SchemaTwin(), KEYSPACE, None)


class Killed(Exception):
    """The process is gone."""


@pytest.mark.parametrize("ending", ["adopt", "forget"])
@pytest.mark.parametrize("survived", range(1, 2 + len(MIGRATIONS)))
def test_whoever_is_killed_on_the_way_leaves_a_way_on(scene: Scene, survived: int, ending: str) -> None:
    # Given an adopter who died after so many writes, the lease's the first of them
    alive = scene.rows.surround
    scene.rows.surround = _dying(survived)
    with pytest.raises(Killed):
        scene.adopt()
    scene.rows.surround = alive
    scene.clock.advance(120)

    # Then nothing counts as adopted, and either way leads out
    assert look_at(scene.server, KEYSPACE, scene.history)[0].standing is Standing.ADOPTABLE
    if ending == "adopt":
        scene.adopt()
        assert scene.states() == [MigrationState.BASELINE] * len(MIGRATIONS)
    else:
        assert forget(scene.history, scene.leases) is None
        assert scene.states() == []


def _dying(survived: int) -> Surround:
    """So many writes are carried out; from then on the process does nothing any more."""
    left = [survived]

    def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, PutIfAbsent):
            left[0] -= 1
        if left[0] < 0:
            raise Killed
        return carry_out()

    return surround


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_doubtful_answer_is_settled_by_the_row_itself(scene: Scene, carried_out: bool) -> None:
    alive = scene.rows.surround

    def doubtful(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if not isinstance(operation, PutIfAbsent) or operation.table is not SCHEMA_BASELINE:
            return alive(operation, carry_out)
        if carried_out:
            carry_out()
        raise DoubtfulWrite("no answer")

    scene.rows.surround = doubtful
    if carried_out:
        scene.adopt()
        assert scene.history.adoption() == scene.opened
        return
    with pytest.raises(LeaseLost, match="meanwhile"):
        scene.adopt()
    assert scene.history.adoption() is None


def test_a_version_is_written_as_james_writes_it_and_can_be_taken_back() -> None:
    clock = VirtualClock()
    rows = MemoryTables(clock.micros)
    step = version_step(JAMES, KEYSPACE, rows, JAMES_3_8, 12)
    assert (step.before, step.assumed, step.after) == (None, 8, 12)

    written = write_version(rows, clock, step)
    assert written.key is not None
    assert written.key.version == 1
    assert list(rows.scan(Scan(SCHEMA_VERSION, ("key", "value")))) == [{"key": written.key, "value": 12}]
    assert written.undo("mail") == f"DELETE FROM mail.schemaversion WHERE key = {written.key} AND value = 12;"

    again = write_version(rows, clock, version_step(JAMES, KEYSPACE, rows, JAMES_3_8, 12))
    assert again == VersionWritten(again.step)
    assert again.undo("mail") == ""
    assert len(list(rows.scan(Scan(SCHEMA_VERSION, ("key",))))) == 1


def test_where_there_is_no_table_of_versions_none_is_written() -> None:
    with pytest.raises(SchemaMismatch, match="schemaversion"):
        version_step(without_tables(JAMES, "schemaversion"), KEYSPACE, MemoryTables(VirtualClock().micros), NEWEST, 12)


def test_forgetting_what_was_never_adopted_keeps_what_was_there_before_the_history() -> None:
    scene = Scene(served(SCHEMA, made_here=True))
    scene.history.baseline(MIGRATIONS, scene.clock.new_uuid(), "there before the history began")
    assert forget(scene.history, scene.leases) is None
    assert scene.states() == [MigrationState.BASELINE] * len(MIGRATIONS)


def test_without_a_ledger_a_keyspace_can_be_looked_at() -> None:
    adoption, baseline = look_at(SchemaTwin(mail=JAMES), KEYSPACE, None)
    assert (adoption.standing, baseline) == (Standing.ADOPTABLE, None)


def test_a_half_written_adoption_is_seen_as_what_is_left_to_do(scene: Scene) -> None:
    scene.history.baseline(MIGRATIONS[:1], scene.clock.new_uuid(), "adopted as 3.8.1")
    first, *_ = scene.history.entries()
    scene.clock.advance(5)

    scene.adopt()

    assert scene.history.entries()[0] == first
    assert len(scene.history.entries()) == len(MIGRATIONS)
    assert round(scene.opened.adopted_at.timestamp() * 1_000) == scene.clock.micros() // 1_000


@pytest.mark.parametrize("ending", ["adopt", "forget"])
def test_whoever_was_paused_until_the_lease_ran_out_writes_nothing(scene: Scene, ending: str) -> None:
    if ending == "forget":
        scene.adopt()
    before = scene.states()
    alive = scene.rows.surround

    def paused(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        answer = alive(operation, carry_out)
        if isinstance(operation, Read) and operation.table is SCHEMA_MIGRATION:
            scene.clock.advance(TTL_SECONDS + 1)
        return answer

    scene.rows.surround = paused
    with pytest.raises(LeaseLost):
        scene.adopt() if ending == "adopt" else forget(scene.history, scene.leases)
    scene.rows.surround = alive
    assert scene.states() == before
