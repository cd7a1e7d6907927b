"""Single rows of declared tables, named by their keys: what a few reads find and mend."""

from typing import Any
from uuid import UUID

import pytest

from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Scan
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table
from mailmend.repair.clock import Timing
from mailmend.repair.declared import declared_families
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.runner import RepairTools, repair
from mailmend.repair.scanners.keyed import NamedRows, TargetRows
from mailmend.repair.scanners.lookup import Targeted, refuse_unknown_rows
from tests.support.declared_users import (
    BY_EMAIL,
    BY_TAG,
    BY_TEAM,
    DECLARED,
    LEADS,
    PROJECTIONS,
    TAGS,
    USERS,
)
from tests.support.progress import SilentProgress
from tests.support.repairing import LONG_AGO, World

FAMILIES = declared_families("shop", read_declaration(DECLARED), Schema((), (USERS, *PROJECTIONS)))
ANN = UUID(int=1)
BOB = UUID(int=2)
NOBODY = UUID(int=9)


def user(number: int, **cells: Any) -> Row:
    nothing = dict.fromkeys(USERS.names)
    return {**nothing, "tags": frozenset("a"), "id": UUID(int=number), "email": f"u{number}@x", "team": "red", **cells}


class Shop:
    """Two users in memory, of whose rows none is projected; a row of each table is left behind."""

    def __init__(self) -> None:
        self.world = World(families=FAMILIES)
        self.put(USERS, user(1, name="lead"))
        self.put(USERS, user(2))
        self.put(BY_EMAIL, {**dict.fromkeys(BY_EMAIL.names), "email": "old@x", "id": BOB, "tags": frozenset()})
        self.put(LEADS, {"team": "red", "id": BOB})

    def put(self, table: Table, row: Row) -> None:
        self.world.mail.write(Put(table, row, at=LONG_AGO))

    def mended(self, *named: NamedRows) -> dict[tuple[str, Key], Verdict]:
        """What a repair of named rows finds."""
        world = self.world
        found: dict[tuple[str, Key], Verdict] = {}

        def note(finding: Finding) -> None:
            found[finding.suspect.projection, finding.suspect.key] = finding.verdict

        settings = RepairSettings("shop", FAMILIES, delay_seconds=0.0, timing=Timing(no_writers=True))
        detector = Targeted(world.mail, world.ledger, world.clock, TargetRows(named))
        tools = RepairTools(detector, world.clock, world.memory, SilentProgress(), ledger=world.ledger)
        repair(settings, tools, note)
        return found

    def refuse_unknown(self, *named: NamedRows) -> None:
        refuse_unknown_rows(self.world.mail, FAMILIES, TargetRows(named), self.world.clock)

    def rows(self, table: Table) -> list[Row]:
        return list(self.world.memory.scan(Scan(table, table.names)))


def test_a_row_of_truth_is_projected_into_every_table() -> None:
    shop = Shop()

    found = shop.mended(NamedRows("users", (ANN,)))

    assert found == {
        ("by_email", ("u1@x",)): Verdict.PROJECT,
        ("by_team", ("red", ANN)): Verdict.PROJECT,
        ("by_tag", ("a", ANN)): Verdict.PROJECT,
        ("leads", ("red", ANN)): Verdict.PROJECT,
        ("tags", ("red",)): Verdict.PROJECT,
    }
    assert [row["id"] for row in shop.rows(BY_TEAM)] == [ANN]
    assert [row["tags"] for row in shop.rows(TAGS)] == [frozenset("a")]
    assert [row["id"] for row in shop.rows(BY_TAG)] == [ANN]


@pytest.mark.parametrize(
    ("named", "key"),
    [
        (NamedRows("by_email", ("old@x",)), ("old@x",)),
        (NamedRows("leads", ("red", BOB)), ("red", BOB)),
        (NamedRows("leads", ("red",)), ("red", BOB)),
    ],
)
def test_a_row_that_follows_is_compared_with_the_truth_that_it_names(named: NamedRows, key: Key) -> None:
    shop = Shop()

    assert shop.mended(named) == {(named.table, key): Verdict.WITHDRAW}
    assert shop.mended(named) == {}


def test_a_place_without_a_row_leads_to_the_truth_that_its_key_names() -> None:
    assert Shop().mended(NamedRows("by_team", ("red", ANN))) == {("by_team", ("red", ANN)): Verdict.PROJECT}
    assert Shop().mended(NamedRows("by_email", ("u1@x",))) == {}, "no user"
    assert Shop().mended(NamedRows("leads", ("red", ANN))) == {("leads", ("red", ANN)): Verdict.PROJECT}


@pytest.mark.parametrize(
    ("named", "looked_up"),
    [
        (NamedRows("users", (NOBODY,)), f"users:id={NOBODY}"),
        (NamedRows("by_email", ("new@x",)), "by_email:email=new@x"),
        (NamedRows("leads", ("blue",)), "leads:team=blue"),
        (NamedRows("leads", ("red", NOBODY)), f"leads:team=red,id={NOBODY}; users:id={NOBODY}"),
        (NamedRows("counts", ("blue",)), "counts:team=blue"),
    ],
)
def test_a_key_without_a_row_on_either_side_is_refused(named: NamedRows, looked_up: str) -> None:
    with pytest.raises(WrongUse) as refused:
        Shop().refuse_unknown(named)

    key = looked_up.partition(";")[0]
    assert refused.value.what == f"neither a truth nor a projection has a row of --key {key}"
    assert f"Looked up: {looked_up}. " in refused.value.mend


@pytest.mark.parametrize(
    "named",
    [
        NamedRows("users", (BOB,)),
        NamedRows("by_email", ("old@x",)),
        NamedRows("leads", ("red",)),
        NamedRows("leads", ("red", ANN)),
    ],
)
def test_a_key_with_a_row_on_one_side_is_taken(named: NamedRows) -> None:
    Shop().refuse_unknown(named)


def test_each_key_without_a_row_is_named() -> None:
    with pytest.raises(WrongUse, match=rf"a row of --key users:id={NOBODY} or leads:team=blue\n"):
        Shop().refuse_unknown(NamedRows("users", (NOBODY,)), NamedRows("users", (ANN,)), NamedRows("leads", ("blue",)))


def test_what_was_not_looked_at_is_said() -> None:
    assert "counters" in str(TargetRows(()).unseen())
