"""What is to be run: decided from the folder, the history and the live schema."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.language.parser import parse
from mailmend.cql.schema.migration_plan import MigrationPlan, Way, decide, declared_by
from mailmend.cql.schema.migrations import (
    LedgerRecord,
    Migration,
    MigrationState,
    Phase,
    StatementEntry,
    StatementState,
    checksum_of,
)
from mailmend.cql.schema.risk import Risk
from mailmend.cql.statements import apply_all
from mailmend.model.errors import BadMigration, HistoryMismatch, WrongUse
from mailmend.model.keyspace import EMPTY, Schema
from tests.support.migrating import SHOP, applied, folder

FOLDER = folder()
PLACES = [(one.number, position) for one in FOLDER for position in range(len(one.statements))]


def before(place: tuple[int, int]) -> Schema:
    schema = EMPTY
    for one in FOLDER:
        for position, parsed in enumerate(one.statements):
            if (one.number, position) >= place:
                return schema
            schema = parsed.statement.apply(schema)
    return schema


def past(place: tuple[int, int], state: StatementState | None) -> LedgerRecord:
    """Everything before that statement is done, and the statement is in that state."""
    number, position = place
    ended = applied(FOLDER[: number - 1])
    running = replace(applied(FOLDER)[number - 1], state=MigrationState.RUNNING, done=position)
    states = [StatementState.DONE] * position + ([state] if state else [])
    at = datetime(2026, 9, 1, tzinfo=UTC)
    statements = [
        StatementEntry(number, index, checksum_of(FOLDER[number - 1].cql(index)), one, UUID(int=index), at, "")
        for index, one in enumerate(states)
    ]
    return LedgerRecord((*ended, running), tuple(statements))


def planned(place: tuple[int, int], state: StatementState | None, live: Schema) -> MigrationPlan:
    return decide("shop", FOLDER, past(place, state), live)


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("state", [None, StatementState.BEGUN, StatementState.FAILED], ids=str)
def test_from_every_statement_the_rest_is_planned_and_ends_at_the_same(
    place: tuple[int, int], state: StatementState | None
) -> None:
    plan = planned(place, state, before(place))
    assert [(one.migration.number, one.position) for one in plan.statements] == [one for one in PLACES if one >= place]
    assert plan.statements[0].way is (Way.AGAIN if state is StatementState.BEGUN else Way.RUN)
    assert (plan.statements[0].attempt is not None) is (state is StatementState.BEGUN)
    assert {one.way for one in plan.statements[1:]} <= {Way.RUN}
    assert plan.expected == declared_by(FOLDER)
    assert plan.reached == FOLDER


@pytest.mark.parametrize("place", [one for one in PLACES if one != (2, 2)], ids=str)
def test_what_was_begun_and_took_effect_is_only_written_down(place: tuple[int, int]) -> None:
    number, position = place
    after = FOLDER[number - 1].statements[position].statement.apply(before(place))
    plan = planned(place, StatementState.BEGUN, after)
    assert plan.statements[0].way is Way.RECORD
    assert plan.expected == declared_by(FOLDER)


def test_what_was_begun_and_is_otherwise_now_is_for_a_person() -> None:
    (other,) = folder({"0001_pre_a.cql": "CREATE TABLE orders (id int PRIMARY KEY);"})
    live = other.statements[0].statement.apply(before((1, 1)))
    with pytest.raises(
        BadMigration, match=r"0001_pre_orders\.cql, line 6: what the statement names is in shop already"
    ):
        planned((1, 1), StatementState.BEGUN, live)


def test_a_migration_whose_end_nobody_wrote_down_is_due_without_a_statement() -> None:
    at = datetime(2026, 9, 1, tzinfo=UTC)
    done = [
        StatementEntry(1, index, checksum_of(FOLDER[0].cql(index)), StatementState.DONE, UUID(int=1), at, "")
        for index in range(3)
    ]
    running = replace(applied(FOLDER)[0], state=MigrationState.RUNNING)
    plan = decide("shop", FOLDER, LedgerRecord((running,), tuple(done)), before((2, 0)), to=1)
    assert (plan.due, plan.statements, plan.empty) == (FOLDER[:1], (), False)


@given(st.integers(0, len(FOLDER)), st.none() | st.integers(1, len(FOLDER)), st.none() | st.sampled_from(Phase))
def test_what_is_asked_for_is_a_beginning_of_what_is_pending(done: int, to: int | None, phase: Phase | None) -> None:
    live = declared_by(FOLDER[:done])
    plan = decide("shop", FOLDER, LedgerRecord(applied(FOLDER[:done])), live, to=to, phase=phase)
    assert plan.due + plan.left == FOLDER[done:]
    assert plan.reached == FOLDER[: done + len(plan.due)]
    assert all(one.number <= (to or 9999) and phase in (None, one.file.phase) for one in plan.due)
    assert bool(plan.left) is bool(plan.stopped)
    if plan.left:
        blocked: Migration = plan.left[0]
        assert blocked.number > (to or 9999) or (phase is not None and blocked.file.phase is not phase)


def test_risks_are_those_of_the_tables_that_are_there() -> None:
    new = decide("shop", FOLDER, LedgerRecord(), EMPTY)
    old = decide("shop", FOLDER, LedgerRecord(applied(FOLDER[:2])), declared_by(FOLDER[:2]))
    dropping = [
        next(one for one in plan.statements if "DROP total" in one.migration.cql(one.position)) for plan in (new, old)
    ]
    assert dropping[0].assessment.worst is not Risk.DATA_LOSS
    assert dropping[1].assessment.worst is Risk.DATA_LOSS


def test_a_person_agrees_to_the_risks_of_what_is_sent_alone() -> None:
    """A statement that took effect already is only written down."""
    plan = decide("shop", FOLDER, LedgerRecord(applied(FOLDER[:2])), declared_by(FOLDER[:2]))
    (drop,) = [one for one in plan.statements if "DROP total" in one.migration.cql(one.position)]
    place = (drop.migration.number, drop.position)

    recorded = planned(place, StatementState.BEGUN, drop.statement.apply(before(place)))

    assert (drop.place, drop.assessment) in plan.risky
    assert [one.place for one in plan.statements if one.assessment.is_risky] == [asked for asked, _ in plan.risky]
    assert recorded.statements[0].way is Way.RECORD
    assert drop.place not in [asked for asked, _ in recorded.risky]


def test_an_edited_folder_plans_nothing() -> None:
    edited = folder({**SHOP, "0001_pre_orders.cql": SHOP["0001_pre_orders.cql"] + "\n"})
    with pytest.raises(HistoryMismatch, match=r"edited migration: 0001_pre_orders\.cql") as refused:
        decide("shop", edited, LedgerRecord(applied(FOLDER[:1])), declared_by(FOLDER[:1]))
    assert "mailmend schema history --keyspace shop" in refused.value.mend


def test_what_is_created_is_named() -> None:
    made = [parsed.statement.created for one in FOLDER for parsed in one.statements]
    assert [one for one in made if one] == [
        "type place",
        "table orders",
        "table by_customer",
        "index by_label",
        "table places",
    ]


PAIR = folder(
    {
        "0001_pre_one.cql": "CREATE TABLE one (k int PRIMARY KEY); CREATE TABLE uno (k int PRIMARY KEY);",
        "0002_pre_two.cql": "CREATE TABLE two (k int PRIMARY KEY);",
    }
)
"""Two migrations that only create."""


def after(cql: str) -> Schema:
    return apply_all(parse(cql))


ONE, UNO, TWO = (f"CREATE TABLE {name} (k int PRIMARY KEY);" for name in ("one", "uno", "two"))


@pytest.mark.parametrize(
    ("there", "baseline", "ways"),
    [
        ("", (), [Way.RUN, Way.RUN, Way.RUN]),
        (ONE, (), [Way.RECORD, Way.RUN, Way.RUN]),
        (UNO, (), [Way.RUN, Way.RECORD, Way.RUN]),
        (TWO, (), [Way.RUN, Way.RUN, Way.RECORD]),
        (ONE + UNO, PAIR[:1], [Way.RUN]),
        (UNO + TWO, (), [Way.RUN, Way.RECORD, Way.RECORD]),
        (ONE + UNO + TWO, PAIR, []),
    ],
    ids=["nothing", "first", "second", "last", "a whole one", "all but the first", "all"],
)
def test_what_an_older_mailmend_made_is_taken_over(
    there: str, baseline: tuple[Migration, ...], ways: list[Way]
) -> None:
    plan = decide("shop", PAIR, LedgerRecord(), after(there), takes_over=True)
    assert plan.baseline == baseline
    assert [one.way for one in plan.statements] == ways
    assert plan.due == PAIR[len(baseline) :]
    assert plan.reached == PAIR
    assert plan.empty is False
    assert plan.expected == after(there + "".join(one for one in (ONE, UNO, TWO) if one not in there))


GROWN = folder(
    {
        "0001_pre_one.cql": f"{ONE} {UNO}",
        "0002_pre_more.cql": "ALTER TABLE one ADD v text;",
        "0003_post_less.cql": "DROP TABLE uno;",
        "0004_pre_rows.cql": "INSERT INTO one (k, v) VALUES (1, 'x');",
        "0005_pre_two.cql": TWO,
    }
)
"""Migrations that change what earlier ones made, then write a row."""


@pytest.mark.parametrize("count", range(6))
def test_a_keyspace_that_later_migrations_changed_is_taken_over_as_it_is(count: int) -> None:
    plan = decide("shop", GROWN, LedgerRecord(), declared_by(GROWN[:count]), takes_over=True)
    assert plan.baseline == GROWN[: min(count, 3)]
    assert plan.expected == declared_by(GROWN)
    assert [one.way for one in plan.statements][-1] is (Way.RECORD if count == 5 else Way.RUN)


def test_options_that_were_not_set_are_set_when_a_keyspace_is_taken_over() -> None:
    slow = folder({"0001_pre_one.cql": ONE, "0002_pre_slow.cql": "ALTER TABLE one WITH gc_grace_seconds = 5;"})
    assert decide("shop", slow, LedgerRecord(), declared_by(slow[:1]), takes_over=True).due == slow[1:]
    assert decide("shop", slow, LedgerRecord(), declared_by(slow), takes_over=True).baseline == slow


def test_nothing_is_taken_over_once_there_is_a_history() -> None:
    past = LedgerRecord(applied(PAIR[:1]))
    with pytest.raises(BadMigration, match=r"0002_pre_two\.cql, line 5: the server would refuse it: CREATE TABLE two"):
        decide("shop", PAIR, past, after(ONE + UNO + TWO), takes_over=True)
    with pytest.raises(BadMigration, match="it exists already"):
        decide("shop", PAIR, LedgerRecord(), after(ONE))


def test_what_cannot_be_taken_over_is_for_a_person() -> None:
    live = after("CREATE TABLE one (k int, c int, PRIMARY KEY (k, c))")
    with pytest.raises(BadMigration, match="is in shop already, and is different") as refused:
        decide("shop", PAIR, LedgerRecord(), live, takes_over=True)
    assert refused.value.mend == "See how with: mailmend schema verify --keyspace shop"


def test_a_refusal_tells_how_to_mend_it_and_that_nothing_ran() -> None:
    bad = folder({**SHOP, "0005_pre_again.cql": "ALTER TABLE orders ADD note text;\nALTER TABLE orders ADD note int;"})
    with pytest.raises(BadMigration) as refused:
        decide("shop", bad, LedgerRecord(applied(FOLDER)), declared_by(FOLDER))
    assert str(refused.value) == (
        "0005_pre_again.cql, line 6: the server would refuse it: ALTER TABLE ADD orders: it has a column note already\n"
        "Add IF NOT EXISTS after ADD (4.1 and later). Nothing of this plan was run."
    )
    bad = folder({"0001_pre_gone.cql": "DROP TABLE nowhere;"})
    with pytest.raises(BadMigration) as refused:
        decide("shop", bad, LedgerRecord(), EMPTY)
    assert refused.value.mend == "Nothing of this plan was run."


@pytest.mark.parametrize(
    ("cql", "why"),
    [
        ("CREATE KEYSPACE k WITH durable_writes = true", "`mailmend schema apply --replication` creates it"),
        ("ALTER KEYSPACE k WITH durable_writes = true", "change it by hand, and repair afterwards"),
        ("DROP KEYSPACE k", "drop it by hand"),
        ("USE shop", "write names without a keyspace"),
        ("TRUNCATE orders", "drop the table and create it again"),
        ("BEGIN BATCH INSERT INTO orders (id) VALUES (1); APPLY BATCH", "write them one by one"),
        ("GRANT SELECT ON orders TO bob", "roles: see `mailmend schema grants`"),
        ("DROP TABLE other.orders", "it names the keyspace other, the migrations are applied to shop"),
        ("ALTER TABLE Other.orders ADD a int", "it names the keyspace"),
        ('ALTER TABLE "Shop".orders ADD a int', 'it names the keyspace "Shop", the migrations are applied to shop'),
        ("UPDATE orders SET total = 1 WHERE id = 5 IF total = 2", "the result of its condition would be lost"),
        ("DELETE FROM orders WHERE id = 5 IF EXISTS", "only INSERT ... IF NOT EXISTS may have one"),
    ],
)
def test_what_no_migration_may_hold_is_refused_at_its_line(cql: str, why: str) -> None:
    bad = folder({"0001_pre_a.cql": f"{SHOP['0001_pre_orders.cql']}{cql};"})
    with pytest.raises(BadMigration) as refused:
        decide("shop", bad, LedgerRecord(), EMPTY)
    assert str(refused.value).startswith("0001_pre_a.cql, line 8: ")
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "cql",
    [
        "INSERT INTO orders (id, total) VALUES (5ac1a1ba-65d2-4a26-b4e6-8f0a3c0c0a01, 1) IF NOT EXISTS",
        "UPDATE orders SET total = 1 WHERE id = 5ac1a1ba-65d2-4a26-b4e6-8f0a3c0c0a01",
        "DELETE FROM orders WHERE id = 5ac1a1ba-65d2-4a26-b4e6-8f0a3c0c0a01",
        "ALTER TABLE shop.orders ADD note text",
        "ALTER TABLE SHOP.orders ADD note text",
        'ALTER TABLE "shop".orders ADD note text',
        "DROP TABLE IF EXISTS nowhere",
    ],
)
def test_rows_and_the_own_keyspace_may_stand_in_a_migration(cql: str) -> None:
    good = folder({"0001_pre_a.cql": f"{SHOP['0001_pre_orders.cql']}{cql};"})
    plan = decide("shop", good, LedgerRecord(), EMPTY)
    assert [one.place for one in plan.statements][-1] == "0001_pre_a.cql, line 8"


@pytest.mark.parametrize(("named", "is_refused"), [('"OddKs"', False), ("OddKs", True), ('"oddks"', True)])
def test_a_migration_names_a_quoted_keyspace_with_its_case(named: str, is_refused: bool) -> None:
    (parsed,) = parse(f"DROP TABLE {named}.orders")
    assert bool(parsed.statement.refusal_in_migration('"OddKs"')) is is_refused


def test_a_folder_may_be_read_before_its_keyspace_is_known() -> None:
    (named,), (use,) = parse("DROP TABLE other.orders"), parse("USE other")
    assert named.statement.refusal_in_migration() == ""
    assert use.statement.refusal_in_migration() != ""


def test_statements_are_reported_by_their_migration() -> None:
    plan = decide("shop", FOLDER, LedgerRecord(applied(FOLDER[:2])), declared_by(FOLDER[:2]))
    assert [len(plan.of(one)) for one in FOLDER] == [0, 0, 2, 2]
    assert {one.migration.number for one in plan.of(FOLDER[2])} == {3}


def test_a_column_that_the_plan_drops_and_adds_again_is_dangerous() -> None:
    files = {
        "0001_post_out.cql": "ALTER TABLE orders DROP total;",
        "0002_pre_in.cql": "ALTER TABLE orders ADD total int;",
    }
    live = after("CREATE TABLE orders (id uuid PRIMARY KEY, total int)")
    again = decide("shop", folder(files), LedgerRecord(), live).statements[1]
    assert again.assessment.worst is Risk.DATA_LOSS
    assert "is added again after it was dropped" in again.assessment.why

    long_ago = after("CREATE TABLE orders (id uuid PRIMARY KEY, total int); ALTER TABLE orders DROP total")
    (again,) = decide(
        "shop", folder({"0001_pre_in.cql": files["0002_pre_in.cql"]}), LedgerRecord(), long_ago
    ).statements
    assert again.assessment.worst is Risk.DATA_LOSS


@pytest.mark.parametrize(
    ("to", "phase", "stopped"),
    [
        (2, None, "0003_post_no_totals.cql and what follows come after --to 0002"),
        (
            None,
            Phase.PRE,
            (
                "0003_post_no_totals.cql comes first: it is of the phase 'post', "
                "and migrations are applied in the order of their numbers"
            ),
        ),
        (4, None, ""),
        (None, None, ""),
    ],
)
def test_why_a_plan_stops_is_reported(to: int | None, phase: Phase | None, stopped: str) -> None:
    assert decide("shop", FOLDER, LedgerRecord(), EMPTY, to=to, phase=phase).stopped == stopped


@pytest.mark.parametrize("to", [-1, 0, 5, 9999])
def test_only_numbers_of_the_folder_can_be_asked_for(to: int) -> None:
    with pytest.raises(WrongUse, match=f"there is no migration {to:04}") as refused:
        decide("shop", FOLDER, LedgerRecord(), EMPTY, to=to)
    assert "0004" in refused.value.mend
    assert decide("shop", FOLDER, LedgerRecord(), EMPTY, to=1).reached == FOLDER[:1]
    assert decide("shop", FOLDER, LedgerRecord(), EMPTY, to=4).reached == FOLDER


@pytest.mark.parametrize(
    "cql",
    [
        (
            "CREATE MATERIALIZED VIEW totals AS SELECT * FROM orders WHERE id IS NOT NULL AND total IS NOT NULL "
            "PRIMARY KEY (total, id)"
        ),
        "CREATE INDEX ON orders (tags)",
        "CREATE INDEX by_tag ON orders (KEYS(tags))",
        "ALTER TABLE orders WITH comment = 'what was ordered'",
        "ALTER TABLE orders ADD IF NOT EXISTS (total int, note text)",
        "ALTER TABLE orders DROP IF EXISTS (total, nothing)",
    ],
    ids=["view", "index without a name", "index of keys", "comment", "partly there", "partly gone"],
)
def test_whatever_was_interrupted_goes_on_where_it_was(cql: str) -> None:
    # Given a keyspace, and a migration whose only statement was begun
    live = after("CREATE TABLE orders (id uuid PRIMARY KEY, total int, tags map<text, int>)")
    (one,) = folder({"0001_pre_a.cql": f"{cql};"})
    running = replace(applied([one])[0], state=MigrationState.RUNNING, done=0)
    begun = StatementEntry(
        1, 0, checksum_of(one.cql(0)), StatementState.BEGUN, UUID(int=1), running.started_at, one.cql(0)
    )
    past = LedgerRecord((running,), (begun,))

    # Then what the server did tells the rest
    done = one.statements[0].statement.apply(live)
    for held, way in ((live, Way.AGAIN), (done, Way.RECORD)):
        plan = decide("shop", (one,), past, held)
        assert [planned.way for planned in plan.statements] == [way]
        assert plan.expected == done


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a int PRIMARY KEY) WITH extensions = {'x': '0x01'}",
        "ALTER TABLE t WITH extensions = {'x': '0x01'}",
    ],
)
def test_a_migration_sets_no_extensions(text: str) -> None:
    """A live value is neither read nor compared, so the migration would be drift for ever."""
    (parsed,) = parse(text)
    assert "extensions" in parsed.statement.refusal_in_migration()
