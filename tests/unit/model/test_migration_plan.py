"""What is to be run: decided from the folder, the history and the live schema."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import BadMigration, HistoryMismatch, WrongUse
from model.folding.fold import fold
from model.migrating.history import State, StatementEntry, Step
from model.migrating.migrations import Migration, Phase, checksum_of
from model.migrating.plan import MigrationPlan, Past, Way, Wish, created_by, decide, declared_by
from model.risk import Risk
from model.schema import Schema
from tests.support.migrating import SHOP, applied, folder

FOLDER = folder()
EMPTY = Schema((), ())
PLACES = [(one.number, position) for one in FOLDER for position in range(len(one.statements))]


def before(place: tuple[int, int]) -> Schema:
    """The schema right before that statement."""
    schema = EMPTY
    for one in FOLDER:
        for position, parsed in enumerate(one.statements):
            if (one.number, position) >= place:
                return schema
            schema = fold(schema, parsed.statement)
    return schema


def past(place: tuple[int, int], state: Step | None) -> Past:
    """Everything before that statement is done, and the statement is in that state."""
    number, position = place
    ended = applied(FOLDER[: number - 1])
    running = replace(applied(FOLDER)[number - 1], state=State.RUNNING, done=position)
    states = [Step.DONE] * position + ([state] if state else [])
    at = datetime(2026, 9, 1, tzinfo=UTC)
    statements = [
        StatementEntry(number, index, checksum_of(FOLDER[number - 1].cql(index)), one, UUID(int=index), at, "")
        for index, one in enumerate(states)
    ]
    return Past((*ended, running), tuple(statements))


def planned(place: tuple[int, int], state: Step | None, live: Schema) -> MigrationPlan:
    """The plan from there."""
    return decide("shop", FOLDER, past(place, state), live, Wish())


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("state", [None, Step.BEGUN, Step.FAILED], ids=str)
def test_from_every_statement_the_rest_is_planned_and_ends_at_the_same(
    place: tuple[int, int], state: Step | None
) -> None:
    """What was begun and left nothing is run again, under the same attempt."""
    plan = planned(place, state, before(place))
    assert [(one.migration.number, one.position) for one in plan.statements] == [one for one in PLACES if one >= place]
    assert plan.statements[0].way is (Way.AGAIN if state is Step.BEGUN else Way.RUN)
    assert (plan.statements[0].attempt is not None) is (state is Step.BEGUN)
    assert {one.way for one in plan.statements[1:]} <= {Way.RUN}
    assert plan.expected == declared_by(FOLDER)
    assert plan.reached == FOLDER


@pytest.mark.parametrize("place", [one for one in PLACES if one != (2, 2)], ids=str)
def test_what_was_begun_and_took_effect_is_only_written_down(place: tuple[int, int]) -> None:
    """Of every kind of statement but rows, which are sent again as of their first time."""
    number, position = place
    after = fold(before(place), FOLDER[number - 1].statements[position].statement)
    plan = planned(place, Step.BEGUN, after)
    assert plan.statements[0].way is Way.RECORD
    assert plan.expected == declared_by(FOLDER)


def test_what_was_begun_and_is_otherwise_now_is_for_a_person() -> None:
    """Somebody made a table of that name meanwhile."""
    (other,) = folder({"0001_pre_a.cql": "CREATE TABLE orders (id int PRIMARY KEY);"})
    live = fold(before((1, 1)), other.statements[0].statement)
    with pytest.raises(
        BadMigration, match=r"0001_pre_orders\.cql, line 6: what the statement names is in shop already"
    ):
        planned((1, 1), Step.BEGUN, live)


def test_a_migration_whose_end_nobody_wrote_down_is_due_without_a_statement() -> None:
    """All of its statements are done."""
    at = datetime(2026, 9, 1, tzinfo=UTC)
    done = [
        StatementEntry(1, index, checksum_of(FOLDER[0].cql(index)), Step.DONE, UUID(int=1), at, "")
        for index in range(3)
    ]
    running = replace(applied(FOLDER)[0], state=State.RUNNING)
    plan = decide("shop", FOLDER, Past((running,), tuple(done)), before((2, 0)), Wish(to=1))
    assert (plan.due, plan.statements, plan.empty) == (FOLDER[:1], (), False)


@given(st.integers(0, len(FOLDER)), st.none() | st.integers(1, len(FOLDER)), st.none() | st.sampled_from(Phase))
def test_what_is_wished_for_is_a_beginning_of_what_is_pending(done: int, to: int | None, phase: Phase | None) -> None:
    """Never a migration out of order; what is left is named, with a reason when there is one."""
    live = declared_by(FOLDER[:done])
    plan = decide("shop", FOLDER, Past(applied(FOLDER[:done])), live, Wish(to, phase))
    assert plan.due + plan.left == FOLDER[done:]
    assert plan.reached == FOLDER[: done + len(plan.due)]
    assert all(one.number <= (to or 9999) and phase in (None, one.file.phase) for one in plan.due)
    assert bool(plan.left) is bool(plan.stopped)
    if plan.left:
        blocked: Migration = plan.left[0]
        assert blocked.number > (to or 9999) or (phase is not None and blocked.file.phase is not phase)


def test_risks_are_those_of_the_tables_that_are_there() -> None:
    """A column of a table that the plan itself makes holds nothing yet."""
    new = decide("shop", FOLDER, Past(), EMPTY, Wish())
    old = decide("shop", FOLDER, Past(applied(FOLDER[:2])), declared_by(FOLDER[:2]), Wish())
    dropping = [
        next(one for one in plan.statements if "DROP total" in one.migration.cql(one.position)) for plan in (new, old)
    ]
    assert dropping[0].assessment.worst is not Risk.DATA_LOSS
    assert dropping[1].assessment.worst is Risk.DATA_LOSS


def test_an_edited_folder_plans_nothing() -> None:
    """The message names the file, the way back and the history."""
    edited = folder({**SHOP, "0001_pre_orders.cql": SHOP["0001_pre_orders.cql"] + "\n"})
    with pytest.raises(HistoryMismatch, match=r"edited migration: 0001_pre_orders\.cql") as refused:
        decide("shop", edited, Past(applied(FOLDER[:1])), declared_by(FOLDER[:1]), Wish())
    assert "mailmend schema history --keyspace shop" in refused.value.mend


def test_a_number_beyond_the_folder_is_refused() -> None:
    """With the last one."""
    with pytest.raises(WrongUse, match="there is no migration 0009") as refused:
        decide("shop", FOLDER, Past(), EMPTY, Wish(to=9))
    assert "0004" in refused.value.mend


def test_what_is_created_is_named() -> None:
    """By kind, as reports have it; an alteration creates nothing."""
    made = [created_by(parsed.statement) for one in FOLDER for parsed in one.statements]
    assert [one for one in made if one] == [
        "type place",
        "table orders",
        "table by_customer",
        "index by_label",
        "table places",
    ]
