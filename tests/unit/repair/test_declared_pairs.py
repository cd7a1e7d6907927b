"""A table and copies of it that hold no mail: checked, mended and taken back as the mail tables are."""

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.ids import RunId
from mailmend.model.operations import Put, Remove, Write
from mailmend.model.projections.conditions import Condition
from mailmend.model.projections.family import Family, Filter
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, columns
from mailmend.model.values import CqlDuration, FrozenMap, date_of, same_value, time_of
from mailmend.repair.clock import Timing
from mailmend.repair.mending.engine import RepairResult, RepairSettings
from mailmend.repair.mending.runner import RepairTools, check, repair
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from mailmend.repair.scanners.local import LocalEngine
from mailmend.repair.store.plans import suspects_of
from tests.support.progress import SilentProgress
from tests.support.repairing import LONG_AGO, World

USERS = Table("users", columns("user_id uuid", regular="email text, name text"))
BY_EMAIL = Table("users_by_email", columns("email text", regular="user_id uuid, name text"))
SHOP = Family(Mirror(USERS, BY_EMAIL, (("email", "email"),), compared=BY_EMAIL.regular))


def user(number: int, email: str | None, name: str | None = "n") -> Row:
    return {"user_id": UUID(int=number), "email": email, "name": name}


class Shop:
    """A keyspace without mail, in memory."""

    def __init__(self, family: Family = SHOP, policy: RepairPolicy | None = None) -> None:
        self.world = World(families=(family,))
        self.family = family
        self.policy = policy or RepairPolicy()

    def put(self, table: Table, row: Row, ends_in: int | None = None) -> None:
        self.world.mail.write(Put(table, row, at=LONG_AGO, ttl_seconds=ends_in))

    def check(self) -> dict[Key, Finding]:
        found: list[Finding] = []
        check(self._settings(), self._tools(), found.append)
        return {finding.suspect.key: finding for finding in found if finding.verdict is not Verdict.AGREE}

    def repair(self) -> RunId:
        result = self.repaired()
        assert result.run is not None
        return result.run

    def repaired(self) -> RepairResult:
        result = repair(self._settings(), self._tools(), lambda _: None)
        assert result.failed == 0
        return result

    def undo(self, run: RunId) -> RunId:
        world = self.world
        tools = UndoTools(world.mail, world.ledger, world.clock, SilentProgress())
        result = undo(UndoSettings(run, "shop", (self.family,)), tools, lambda _: None)
        assert result.run is not None
        return result.run

    def rows(self, table: Table, *keys: Key) -> list[Any]:
        """Rows with their stamps and the seconds that they have left."""
        found = []
        for key in keys:
            seen = self.world.get(table, key)
            found.append(seen and (seen.row, seen.written_at, seen.ttls))
        return found

    def _settings(self) -> RepairSettings:
        quiet = Timing(no_writers=True)
        return RepairSettings(
            "shop",
            (self.family,),
            delay_seconds=0.0,
            timing=quiet,
            policy=self.policy,
        )

    def _tools(self) -> RepairTools:
        world = self.world
        engine = LocalEngine(world.mail, world.ledger, world.clock)
        return RepairTools(
            engine,
            world.clock,
            world.memory,
            SilentProgress(),
            ledger=world.ledger,
            mail=world.mail,
        )


def damaged_shop() -> Shop:
    """Five users: of the first two only one may have the address; the others are lost, wrong and left behind."""
    shop = Shop()
    for number in (1, 2):
        shop.put(USERS, user(number, "both@x"))
    shop.put(USERS, user(3, "lost@x"), ends_in=500_000)
    shop.put(USERS, user(4, "wrong@x", "new"))
    shop.put(BY_EMAIL, user(9, "wrong@x", "old"), ends_in=400_000)
    shop.put(BY_EMAIL, user(5, "gone@x"), ends_in=300_000)
    shop.put(USERS, user(6, "good@x"))
    shop.put(BY_EMAIL, user(6, "good@x"))
    return shop


ADDRESSES: list[Key] = [("both@x",), ("lost@x",), ("wrong@x",), ("gone@x",), ("good@x",)]


def test_a_check_finds_what_is_wrong_in_a_copy() -> None:
    found = damaged_shop().check()

    assert {key: finding.verdict for key, finding in found.items()} == {
        ("both@x",): Verdict.CLASH,
        ("lost@x",): Verdict.PROJECT,
        ("wrong@x",): Verdict.AMEND,
        ("gone@x",): Verdict.WITHDRAW,
    }
    assert found["both@x",].suspect.truth_keys == ((UUID(int=1),), (UUID(int=2),))
    assert [seen.row["user_id"] for seen in found["wrong@x",].truths] == [UUID(int=4)]


def test_a_repair_mends_the_copy_under_its_own_stamp_and_with_the_truths_ttl() -> None:
    shop = damaged_shop()
    untouched = shop.rows(BY_EMAIL, ("good@x",))

    run = shop.repair()

    at = shop.world.ledger.get(run).as_of
    stamps = {"user_id": at, "name": at}
    assert shop.rows(BY_EMAIL, *ADDRESSES) == [
        None,
        (user(3, "lost@x"), stamps, {"user_id": 500_000, "name": 500_000}),
        (user(4, "wrong@x", "new"), stamps, {}),
        None,
        *untouched,
    ]
    assert set(shop.check()) == {("both@x",)}


def test_an_undo_gives_back_every_cell_and_the_ttl_that_was_left() -> None:
    """Its stamps are just above the run's: a cell under an older one would stay hidden."""
    shop = damaged_shop()
    before = shop.rows(BY_EMAIL, *ADDRESSES)
    run = shop.repair()

    shop.undo(run)

    at = shop.world.ledger.get(run).as_of + 1
    restored = []
    for found in before:
        if found is not None and found[2]:
            row, stamps, ttls = found
            restored.append((row, dict.fromkeys(stamps, at), ttls))
        else:
            restored.append(found)
    assert shop.rows(BY_EMAIL, *ADDRESSES) == restored


def test_a_row_that_a_user_changed_since_is_not_taken_back() -> None:
    shop = damaged_shop()
    run = shop.repair()
    shop.world.clock.advance(60)
    shop.world.mail.write(Put(BY_EMAIL, user(4, "wrong@x", "mine"), at=shop.world.clock.micros()))
    mine = shop.rows(BY_EMAIL, ("wrong@x",))

    shop.undo(run)

    assert shop.rows(BY_EMAIL, ("wrong@x",)) == mine


@pytest.mark.parametrize("email", [None, ""], ids=["null", "empty"])
def test_a_truth_row_demands_no_row_whose_key_could_not_be_written(email: str | None) -> None:
    """Cassandra refuses a null in a key, and a partition key that is one empty text."""
    shop = Shop()
    shop.put(USERS, user(1, email))
    shop.put(USERS, user(2, email))

    assert shop.check() == {}


def test_a_row_whose_truth_lost_its_address_is_withdrawn() -> None:
    shop = Shop()
    shop.put(USERS, user(1, None))
    shop.put(BY_EMAIL, user(1, "was@x"))

    shop.repair()

    assert shop.rows(BY_EMAIL, ("was@x",)) == [None]


@pytest.mark.parametrize(
    ("before", "after", "writes"),
    [
        (None, user(1, None), ()),
        (user(1, None), None, ()),
        (user(1, "a@x"), user(1, None), (Remove(BY_EMAIL, ("a@x",), at=7),)),
        (user(1, None), user(1, "a@x"), (Put(BY_EMAIL, user(1, "a@x"), at=7),)),
    ],
)
def test_a_change_writes_only_rows_with_a_whole_key(
    before: Row | None, after: Row | None, writes: tuple[Write, ...]
) -> None:
    assert SHOP.mirror.writes_for(before, after, 7) == writes


def test_a_doubtful_change_suspects_no_row_without_a_whole_key() -> None:
    assert suspects_of(SHOP, user(1, None)) == ()
    assert [suspect.key for suspect in suspects_of(SHOP, user(1, "a@x"))] == [("a@x",)]


EVENTS = Table("events", columns("tenant text, day date", "number int", regular="tag text, note text"))
BY_TAG = Table("events_by_tag", columns("tag text", "tenant text, day date, number int", regular="note text"))
TAGGED = Family(
    Mirror(
        EVENTS,
        BY_TAG,
        tuple((name, name) for name in BY_TAG.key_names),
        compared=BY_TAG.regular,
    )
)
DAY = date(2026, 5, 1)


def event(number: int, tag: str | None, note: str = "") -> Row:
    return {"tenant": "t", "day": DAY, "number": number, "tag": tag, "note": note}


def test_a_truth_under_a_composite_key_is_found_again_by_its_whole_partition() -> None:
    """The row that is missing cannot lead to it: only the scan knows its key."""
    shop = Shop(TAGGED)
    shop.put(EVENTS, event(1, "red", "seen"))
    shop.put(EVENTS, event(2, None))
    shop.put(BY_TAG, event(3, "blue"))

    (missing,) = [found for found in shop.check().values() if found.verdict is Verdict.PROJECT]
    run = shop.repair()

    assert missing.suspect.truth_keys == (("t", DAY),)
    key = ("red", "t", DAY, 1)
    assert shop.world.seen(BY_TAG, key).row == event(1, "red", "seen")
    assert shop.rows(BY_TAG, ("blue", "t", DAY, 3)) == [None]
    shop.undo(run)
    assert shop.rows(BY_TAG, key) == [None]
    assert shop.world.seen(BY_TAG, ("blue", "t", DAY, 3)).row == event(3, "blue")


MEMBERS = Table("members", columns("user_id uuid", regular="email text, tenant text, active boolean"))
BY_ADDRESS = Table("members_by_email", columns("email text", regular="user_id uuid, tenant text, active boolean"))
ACTIVE = Table("active_members", columns("tenant text", "member uuid"))
BY_NAME = Table("active_by_address", columns("tenant text, email text"))
ON = Condition("active", value=True)
CLUB = Family(
    Mirror(MEMBERS, BY_ADDRESS, (("email", "email"),), compared=BY_ADDRESS.regular),
    filters=(
        Filter(MEMBERS, ACTIVE, (("tenant", "tenant"), ("member", "user_id")), ON),
        Filter(MEMBERS, BY_NAME, (("tenant", "tenant"), ("email", "email")), ON),
    ),
)


def member(number: int, tenant: str | None, *, active: bool | None) -> Row:
    return {"user_id": UUID(int=number), "email": f"{number}@x", "tenant": tenant, "active": active}


def club() -> Shop:
    """Members in their mirror: active and not listed, not active and listed, without a tenant, and gone."""
    shop = Shop(CLUB)
    for row in (member(1, "t", active=True), member(2, "t", active=False), member(3, None, active=True)):
        shop.put(MEMBERS, row)
        shop.put(BY_ADDRESS, row)
    for number in (2, 4):
        shop.put(ACTIVE, {"tenant": "t", "member": UUID(int=number)})
        shop.put(BY_NAME, {"tenant": "t", "email": f"{number}@x"})
    return shop


LISTED: list[Key] = [("t", UUID(int=number)) for number in (1, 2, 3, 4)]
NAMED: list[Key] = [("t", f"{number}@x") for number in (1, 2, 3, 4)]


def test_filters_with_other_keys_than_the_mirrors_are_checked_each_at_its_own_places() -> None:
    shop = club()

    found = shop.check()

    assert {key: finding.verdict for key, finding in found.items()} == {
        LISTED[0]: Verdict.PROJECT,
        LISTED[1]: Verdict.WITHDRAW,
        LISTED[3]: Verdict.WITHDRAW,
        NAMED[0]: Verdict.PROJECT,
        NAMED[1]: Verdict.WITHDRAW,
        NAMED[3]: Verdict.WITHDRAW,
    }


def test_filters_with_other_keys_are_mended_and_taken_back() -> None:
    shop = club()

    run = shop.repair()

    assert [row is not None for row in shop.rows(ACTIVE, *LISTED)] == [True, False, False, False]
    assert [row is not None for row in shop.rows(BY_NAME, *NAMED)] == [True, False, False, False]
    assert shop.check() == {}
    shop.undo(run)
    assert [row is not None for row in shop.rows(ACTIVE, *LISTED)] == [False, True, False, True]
    assert [row is not None for row in shop.rows(BY_NAME, *NAMED)] == [False, True, False, True]


def measured(kind: str) -> Shop:
    made = []
    for name, key in (("measured", "id"), ("measured_by_email", "email")):
        other = {"id": "email text", "email": "id uuid"}[key]
        of_key = {"id": "id uuid", "email": "email text"}[key]
        made.append(Table(name, columns(of_key, regular=f"{other}, value {kind}")))
    truth, table = made
    return Shop(Family(Mirror(truth, table, (("email", "email"),), compared=table.regular)))


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("decimal", Decimal("1.0"), Decimal("1.00")),
        ("double", 0.0, -0.0),
        ("double", float("nan"), 0.0),
        ("list<double>", (float("nan"), 0.0), (float("nan"), -0.0)),
        ("map<text,decimal>", FrozenMap(a=Decimal(1)), FrozenMap(a=Decimal("1.0"))),
        ("date", date_of(2**31 - 1), date_of(2**31 - 2)),
        ("duration", CqlDuration(0, 30, 0), CqlDuration(1, 0, 0)),
        ("time", time_of(1), time_of(2)),
        ("frozen<set<frozen<map<text,int>>>>", frozenset({FrozenMap(a=1)}), frozenset({FrozenMap(a=2)})),
    ],
)
def test_cells_that_python_takes_for_equal_are_found_mended_and_taken_back(kind: str, right: Any, wrong: Any) -> None:
    """And cells that are no equals to Python, as no NaN is, are left alone."""
    shop = measured(kind)
    truth, table = shop.family.truth, shop.family.mirror.table
    for number, value in ((1, right), (2, wrong)):
        row = {"id": UUID(int=number), "email": f"{number}@x", "value": right}
        shop.put(truth, row)
        shop.put(table, {**row, "value": value})

    assert {key: finding.verdict for key, finding in shop.check().items()} == {("2@x",): Verdict.AMEND}
    run = shop.repair()
    assert shop.check() == {}
    assert same_value(shop.world.seen(table, ("2@x",)).row["value"], right)
    shop.undo(run)
    assert same_value(shop.world.seen(table, ("2@x",)).row["value"], wrong)
