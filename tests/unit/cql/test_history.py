"""The history in the ledger: what is kept of a migration and its statements, and who may write it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.row_statements import Operation
from mailmend.cql.schema.migrations import MigrationState, StatementState
from mailmend.model.errors import DoubtfulWrite, LeaseLost
from mailmend.model.operations import ChangeIf, PutIfAbsent
from mailmend.repair.ledger.leases import TTL_SECONDS
from tests.support.migrating import folder
from tests.support.migration_twin import Stage

FOLDER = folder()
CONDITIONALS = 2 * len(FOLDER) + sum(len(one.statements) for one in FOLDER)
"""Conditional writes of a whole apply: the beginning and the end of each migration, and one before each statement."""


class Doubt:
    """Loses the answer of the n-th conditional write to the history: carried out, or not."""

    def __init__(self, number: int, *, carried_out: bool) -> None:
        self.left = number
        self.carried_out = carried_out

    def __call__(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        history = isinstance(operation, PutIfAbsent | ChangeIf) and operation.table.spelling == "schema_migration"
        self.left -= history
        if not history or self.left != 0:
            return carry_out()
        if self.carried_out:
            carry_out()
        raise DoubtfulWrite("no answer came")


def whole() -> Stage:
    """A stage on which everything was applied at once."""
    stage = Stage()
    stage.apply(FOLDER)
    return stage


def states(stage: Stage) -> list[tuple[object, ...]]:
    """What the history says in the end."""
    return [(str(one.file), one.state, one.done, one.chain) for one in stage.history().entries()]


WHOLE = whole()


@given(st.integers(1, CONDITIONALS))
def test_a_lost_answer_of_a_write_that_was_carried_out_is_found_out(number: int) -> None:
    stage = Stage()
    stage.ledger.surround = Doubt(number, carried_out=True)
    stage.apply(FOLDER)
    assert states(stage) == states(WHOLE)


@given(st.integers(1, CONDITIONALS))
def test_a_write_that_was_lost_stops_the_applier_and_the_next_goes_on(number: int) -> None:
    stage = Stage()
    stage.ledger.surround = Doubt(number, carried_out=False)
    with suppress(DoubtfulWrite):
        stage.apply(FOLDER)
    stage.clock.advance(TTL_SECONDS + 1)
    stage.apply(FOLDER, "bob")
    assert states(stage) == states(WHOLE)
    assert stage.server.keyspaces == WHOLE.server.keyspaces


@pytest.mark.parametrize("number", [1, 3, CONDITIONALS])
def test_a_write_that_was_lost_is_reported_as_doubt(number: int) -> None:
    stage = Stage()
    stage.ledger.surround = Doubt(number, carried_out=False)
    with pytest.raises(DoubtfulWrite):
        stage.apply(FOLDER)


def test_of_two_that_begin_the_same_migration_one_is_refused() -> None:
    stage = Stage()
    alice, bob = stage.history("alice"), stage.history("bob")
    entry = alice.begin(FOLDER[0], stage.clock.new_uuid(), None)
    with pytest.raises(LeaseLost, match="mailmend schema history --keyspace shop"):
        bob.begin(FOLDER[0], stage.clock.new_uuid(), None)
    taken = bob.begin(FOLDER[0], stage.clock.new_uuid(), entry)
    with pytest.raises(LeaseLost):
        alice.advanced(entry, 1)
    with pytest.raises(LeaseLost):
        alice.ended(entry)
    assert bob.ended(taken).state is MigrationState.APPLIED
    (kept,) = stage.history().entries()
    assert (kept.owner, kept.started_at, kept.done) == ("bob", entry.started_at, 3)


def test_what_is_kept_of_a_statement_reads_back() -> None:
    stage = Stage()
    history, attempt = stage.history(), stage.clock.new_uuid()
    begun = history.begun(2, 0, "ALTER TABLE t ADD a int", "ALTER TABLE ks.t ADD a int", attempt)
    assert history.statements(2) == (begun,)
    failed = history.failed(begun, "there is no such table")
    assert history.statements(2) == (failed,)
    assert (failed.state, failed.error, failed.ended_at is not None) == (
        StatementState.FAILED,
        "there is no such table",
        True,
    )
    again = history.begun(2, 0, "ALTER TABLE t ADD a int", "ALTER TABLE ks.t ADD a int", attempt)
    assert history.statements(2) == (again,)
    assert history.statements(2) == (again,)
    done = history.done(again)
    assert history.statements(2) == (done,)
    assert history.statements(3) == ()


def test_histories_of_keyspaces_are_apart() -> None:
    stage = Stage()
    shop, mail = stage.history(), stage.history(keyspace="mail")
    shop.begin(FOLDER[0], stage.clock.new_uuid(), None)
    mail.unlocked("carol", "gone")
    assert (len(shop.entries()), len(mail.entries())) == (1, 0)
    assert (len(shop.unlocks()), len(mail.unlocks())) == (0, 1)


def test_unlocks_are_listed_newest_first() -> None:
    stage = Stage()
    first = stage.history("bob").unlocked("alice", "her laptop was stolen")
    stage.clock.advance(60)
    second = stage.history("carol").unlocked("bob", "he left")
    assert stage.history().unlocks() == (second, first)
    assert (first.by, first.holder, first.reason) == ("bob", "alice", "her laptop was stolen")
    assert second.at > first.at


def test_a_baseline_is_written_once() -> None:
    stage = Stage()
    claim = stage.clock.new_uuid()
    stage.history().baseline(FOLDER[:2], claim, "adopted: James 3.8.1")
    entries = stage.history().entries()
    assert [(one.state, one.note, one.done, one.ended) for one in entries] == [
        (MigrationState.BASELINE, "adopted: James 3.8.1", 0, True)
    ] * 2
    with pytest.raises(LeaseLost):
        stage.history("bob").baseline(FOLDER[:2], stage.clock.new_uuid(), "again")
