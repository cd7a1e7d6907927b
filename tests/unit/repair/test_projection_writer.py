"""The writer of a declared truth: what it writes follows through every kind of projection."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.model.errors import (
    Contended,
    DoubtfulWrite,
    NotEnoughReplicas,
    TimedOut,
    UnknownRow,
    WrongUse,
)
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, ChangeIf, Put, Read, RemoveIf, Scan
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row, Table, columns
from mailmend.repair.clock import Timing
from mailmend.repair.declared import declared_families
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.runner import RepairTools, check
from mailmend.repair.retries import Retries
from mailmend.repair.scanners.local import LocalEngine
from mailmend.repair.store.plans import guard_of
from mailmend.repair.store.projection_writer import ProjectionWriter, WrittenRow
from mailmend.repair.store.writes import ConditionalTruth, StampSource, WriterSettings
from tests.support.clock import VirtualClock
from tests.support.declared_users import (
    BY_EMAIL,
    BY_TEAM,
    COUNTS,
    DECLARED,
    LEADS,
    PROJECTIONS,
    USERS,
)
from tests.support.progress import SilentProgress
from tests.support.repairing import World
from tests.support.writing import Faults, LagList, on

LIVE = Schema((), (USERS, *PROJECTIONS))
FAMILIES = declared_families("shop", read_declaration(DECLARED), LIVE)
ANN = UUID(int=1)
KEY = {"id": ANN}
WAYS = pytest.mark.parametrize(
    "settings",
    [
        WriterSettings(),
        WriterSettings(stamp=StampSource.FLOOR),
        WriterSettings(stamp=StampSource.CLOCK),
        WriterSettings(strong=False),
    ],
    ids=["strong", "by floor", "by clock", "plain"],
)


class Shop:
    """The keyspace in memory, with one writer, and faults on demand."""

    def __init__(self, settings: WriterSettings | None = None) -> None:
        self.clock = VirtualClock()
        self.faults = Faults()
        self.lags = LagList()
        self.tables = MemoryTables(self.clock.micros, self.faults)
        self.writer = ProjectionWriter(self.tables, FAMILIES, self.lags, self.clock, settings=settings)

    def rows(self, table: Table) -> list[Row]:
        return list(self.tables.scan(Scan(table, table.names)))

    def drift(self) -> set[tuple[str, Verdict]]:
        self.clock.advance(1)
        world = World(self.clock, self.tables, families=FAMILIES)
        engine = LocalEngine(world.mail, world.ledger, world.clock)
        tools = RepairTools(engine, world.clock, world.memory, SilentProgress(), ledger=world.ledger)
        settings = RepairSettings("shop", FAMILIES, delay_seconds=0.0, timing=Timing(no_writers=True))
        found: set[tuple[str, Verdict]] = set()

        def note(finding: Any) -> None:
            if finding.verdict is not Verdict.AGREE:
                found.add((finding.suspect.projection, finding.verdict))

        check(settings, tools, note)
        return found


def doubtful() -> DoubtfulWrite:
    return DoubtfulWrite("no answer")


def user(number: int = 1, **cells: Any) -> Row:
    return {"id": UUID(int=number), **cells}


@WAYS
def test_a_row_is_in_every_projection_and_leaves_every_one(settings: WriterSettings) -> None:
    shop = Shop(settings)
    ann = user(email="ann@x", team="red", name="lead", tags=frozenset({"a"}))

    assert shop.writer.put(ann) == WrittenRow(changed=True)

    assert shop.rows(BY_EMAIL) == [ann]
    assert shop.rows(LEADS) == [{"team": "red", "id": ANN}]
    assert shop.rows(COUNTS) == [{"team": "red", "total": 1, "named": 1}]
    assert shop.drift() == set()

    shop.writer.delete(KEY)

    assert shop.rows(USERS) == shop.rows(BY_EMAIL) == shop.rows(BY_TEAM) == shop.rows(LEADS) == []
    assert shop.drift() == set()


@WAYS
def test_a_row_that_moves_to_another_key_is_not_left_under_the_old_one(settings: WriterSettings) -> None:
    shop = Shop(settings)
    shop.writer.put(user(email="old@x", team="red", name="lead", tags=frozenset({"a"})))

    shop.writer.change(KEY, {"email": "new@x", "team": "blue"})

    assert [row["email"] for row in shop.rows(BY_EMAIL)] == ["new@x"]
    assert [row["team"] for row in shop.rows(LEADS)] == ["blue"]
    assert shop.drift() == set()


@WAYS
def test_a_cell_that_becomes_null_does_so_in_the_copy(settings: WriterSettings) -> None:
    shop = Shop(settings)
    shop.writer.put(user(email="ann@x", team="red", name="Ann", tags=frozenset({"a", "b"})))

    shop.writer.change(KEY, {"name": None})
    shop.writer.change(KEY, {"tags": frozenset({"b"}), "team": None})

    assert shop.rows(BY_EMAIL) == [user(email="ann@x", team=None, name=None, tags=frozenset({"b"}))]
    assert shop.drift() == set()


CELLS = st.fixed_dictionaries(
    {
        "email": st.sampled_from((None, "a@x", "b@x", "c@x")),
        "team": st.sampled_from((None, "red", "blue")),
        "name": st.sampled_from((None, "lead", "hand")),
        "tags": st.frozensets(st.sampled_from("ab")).map(lambda tags: tags or None),
    }
)
STEPS = st.lists(st.tuples(st.sampled_from(("put", "change", "delete")), st.integers(1, 3), CELLS), max_size=12)


@given(steps=STEPS, settings=st.sampled_from([WriterSettings(), WriterSettings(strong=False)]))
def test_no_story_of_one_writer_leaves_drift(steps: list[tuple[str, int, Row]], settings: WriterSettings) -> None:
    """Two users may have one address: that is the truth's own clash, and no drift of the writer."""
    shop = Shop(settings)
    for what, number, cells in steps:
        shop.clock.advance(0.001)
        # An address of its own for each user, so that no two claim one row.
        email = cells["email"] and f"{number}{cells['email']}"
        row = user(number, **{**cells, "email": email})
        match what:
            case "put":
                shop.writer.put(row)
            case "change" if shop.writer.read({"id": row["id"]}) is not None:
                changed = {name: cell for name, cell in row.items() if name != "id"}
                shop.writer.change({"id": row["id"]}, changed)
            case _:
                shop.writer.delete({"id": row["id"]})

    assert shop.drift() == set()


def test_what_is_so_already_is_not_written() -> None:
    shop = Shop()
    ann = user(email="ann@x", team="red")
    shop.writer.put(ann)
    shop.faults.seen.clear()

    assert not shop.writer.put(ann).changed
    assert not shop.writer.change(KEY, {"team": "red"}).changed
    assert not shop.writer.delete({"id": UUID(int=2)}).changed

    assert all(isinstance(operation, Read) for operation in shop.faults.seen)


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize(
    ("kind", "act"),
    [
        (ChangeIf, lambda writer: writer.change(KEY, {"email": "new@x"})),
        (RemoveIf, lambda writer: writer.delete(KEY)),
    ],
    ids=["change", "delete"],
)
def test_a_write_without_an_answer_leaves_no_drift(
    kind: type, act: Callable[[ProjectionWriter], object], *, done: bool
) -> None:
    """The row is read at SERIAL; then the write is known, or tried again, or its groups are journalled."""
    shop = Shop()
    shop.writer.put(user(email="old@x", team="red"))
    shop.faults.doubt(on(USERS, kind), doubtful(), done=done)

    act(shop.writer)

    counted = {("counts", Verdict.AMEND)}
    assert shop.drift() - counted == set()
    assert shop.lags.names <= {"counts"}


def test_another_writer_in_between_is_not_overwritten_unseen() -> None:
    """A change that was overtaken reads the row again, so the projections follow the latest one."""
    shop = Shop()
    shop.writer.put(user(email="old@x", team="red"))
    other = ProjectionWriter(shop.tables, FAMILIES, shop.lags, shop.clock)

    def overtake() -> None:
        other.change(KEY, {"email": "other@x"})

    shop.faults.doubt(on(USERS, ChangeIf), doubtful(), done=False, then=overtake)
    shop.writer.change(KEY, {"team": "blue"})

    assert shop.rows(BY_EMAIL) == [user(email="other@x", team="blue", name=None, tags=None)]
    assert shop.drift() == set()


def test_a_projection_that_cannot_be_written_is_journalled() -> None:
    shop = Shop()
    shop.faults.fail(on(BY_EMAIL, Put), NotEnoughReplicas("too few replicas"), times=100)

    written = shop.writer.put(user(email="ann@x", team="red"))

    assert written == WrittenRow(changed=True, lagged=True)
    assert shop.lags.names == {"by_email"}


def test_what_follows_from_a_lost_write_of_the_truth_is_journalled_under_both_keys() -> None:
    shop = Shop(WriterSettings(strong=False))
    shop.writer.put(user(email="old@x", team="red"))
    shop.faults.fail(on(USERS), TimedOut("no answer"), times=100)

    with pytest.raises(TimedOut):
        shop.writer.change(KEY, {"email": "new@x"})

    keys = {suspect.key for suspect in shop.lags.suspects if suspect.projection == "by_email"}
    assert keys == {("old@x",), ("new@x",)}


def test_a_row_that_others_keep_changing_is_given_up() -> None:
    shop = Shop(WriterSettings(rounds_max=3))
    shop.writer.put(user(email="0@x"))
    emails = iter(["1@x", "2@x", "3@x"])

    def overtake() -> None:
        shop.tables.write(Change(USERS, (ANN,), {"email": next(emails)}))

    for _ in range(3):
        shop.faults.doubt(on(USERS, ChangeIf), doubtful(), done=False, then=overtake)

    with pytest.raises(Contended, match="kept changing the row id = "):
        shop.writer.change(KEY, {"team": "blue"})


@pytest.mark.parametrize(
    ("act", "kind", "said"),
    [
        (lambda writer: writer.put({"email": "a@x"}), WrongUse, "needs its whole key: id"),
        (lambda writer: writer.put(user(mail="a@x")), WrongUse, "has no column mail"),
        (lambda writer: writer.change(KEY, {"id": ANN}), WrongUse, "id is in the key"),
        (lambda writer: writer.change(KEY, {"name": "x"}), UnknownRow, "no row id = "),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_written(
    act: Callable[[ProjectionWriter], object], kind: type[Exception], said: str
) -> None:
    shop = Shop()

    with pytest.raises(kind, match=said):
        act(shop.writer)

    assert shop.rows(USERS) == []


def test_a_table_with_a_list_is_refused() -> None:
    """A list is changed by position, which no retry may repeat."""
    table = replace(USERS, columns=(*USERS.columns, *columns("", regular="names list<text>")))
    live = Schema((), (table, BY_EMAIL))
    families = declared_families("shop", read_declaration("[truth.users.mirror.by_email]", "shop.toml"), live)

    with pytest.raises(WrongUse, match=r"users\.names"):
        ProjectionWriter(MemoryTables(lambda: 0), families, LagList(), VirtualClock())


def test_a_computed_column_follows_too() -> None:
    mails = Table("by_mail", columns("mail text", "id uuid"))
    declared = '[truth.users.mirror.by_mail]\ncomputed = { mail = { lower = "email" } }'
    live = Schema((), (USERS, mails))
    families = declared_families("shop", read_declaration(declared), live)
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    writer = ProjectionWriter(tables, families, LagList(), clock)

    writer.put(user(email="Ann@X"))
    writer.change(KEY, {"email": "Bob@X"})

    rows = list(tables.scan(Scan(mails, mails.names)))
    assert [row["mail"] for row in rows] == ["bob@x"]
    assert writer.read(KEY) == user(email="Bob@X", team=None, name=None, tags=None)


def test_a_table_that_follows_from_whole_groups_is_refused() -> None:
    sizes = Table("sizes", columns("team text", regular="total bigint"))
    declared = "[truth.users.mirror.by_team]\n[truth.users.count.sizes]\ncounters = { total = {} }"
    families = declared_families("shop", read_declaration(declared), Schema((), (USERS, BY_TEAM, sizes)))

    with pytest.raises(WrongUse, match="sizes has a number that follows from all rows of a group"):
        ProjectionWriter(MemoryTables(lambda: 0), families, LagList(), VirtualClock())


def test_a_row_that_others_may_demand_is_left_to_a_lag() -> None:
    # Given
    logins = Table("logins", columns("id uuid", "number int", "team text"))
    teams = Table("teams", columns("team text", "id uuid"))
    families = declared_families("shop", read_declaration("[truth.logins.mirror.teams]"), Schema((), (logins, teams)))
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    lags = LagList()
    writer = ProjectionWriter(tables, families, lags, clock)
    for number in (1, 2):
        assert writer.put({**KEY, "number": number, "team": "red"}) == WrittenRow(changed=True)

    # When
    written = writer.delete({**KEY, "number": 1})

    # Then
    assert written == WrittenRow(changed=True, lagged=True)
    assert list(tables.scan(Scan(teams, teams.names))) == [{"team": "red", "id": ANN}]
    (suspect,) = lags.suspects
    assert (suspect.key, suspect.verdict, suspect.truth_keys) == (("red", ANN), Verdict.WITHDRAW, ((ANN,),))
    assert lags.causes == ["other rows of the truth may demand the same row, or its own cannot say what it is"]


def test_a_condition_has_every_cell_that_was_read() -> None:
    """Of a row that is its key alone only the existence is asked: absent rows equal one of nulls."""
    seen = user(email="a@x", team=None, name=None, tags=frozenset())

    assert guard_of(USERS, seen, None) == {"email": "a@x", "team": None, "name": None, "tags": None}
    assert guard_of(USERS, user(), None) == {}


def test_a_change_of_the_row_since_it_was_read_refuses_the_write() -> None:
    shop = Shop()
    shop.writer.put(user(email="a@x", tags=frozenset({"a"})))
    truth = ConditionalTruth(shop.tables, USERS, shop.clock, Retries(shop.clock), version=None)
    seen = truth.read((ANN,))
    assert seen is not None
    shop.writer.change(KEY, {"tags": frozenset({"a", "b"})})

    assert truth.change(seen, {**seen.row, "email": "b@x"}) is None
    assert truth.remove(seen) is None
