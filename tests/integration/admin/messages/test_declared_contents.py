"""Contents of a declared truth on a real Cassandra: collected, quarantined and put back, by both engines."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import mailmend
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Put
from mailmend.model.projections.verdicts import Verdict, Why
from mailmend.model.table import Row, Table
from tests.support.declared_contents import (
    DECLARED,
    FOLLOWERS,
    LIVE,
    PROFILES,
    USERS,
    Age,
    Meanwhile,
    UserStory,
)
from tests.support.declared_shops import DeclaredShop, declared_shop
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra]

LOST = UserStory(1, Age.NONE, Age.OLD, Age.NONE, lead=True, meanwhile=Meanwhile.NOTHING)
LEAKED = UserStory(2, Age.NONE, Age.NONE, Age.OLD, lead=False, meanwhile=Meanwhile.NOTHING)
SOUND = UserStory(3, Age.NONE, Age.OLD, Age.OLD, lead=True, meanwhile=Meanwhile.NOTHING)
YOUNG_LOST = replace(LOST, number=4, truth=Age.YOUNG)
YOUNG_LEAKED = replace(LEAKED, number=5, content=Age.YOUNG)
EVERY = (USERS, PROFILES, *FOLLOWERS)
ASKED = ("--orphans", "quarantine", "--leaks", "collect")
FOUND = {"users_by_email": {"LOST_CONTENT": 2}, "profiles": {"LEAK": 2}}


@pytest.fixture
def shop(cassandra: CassandraServer, tmp_path: Path) -> Iterator[DeclaredShop]:
    """Users without profiles and profiles without users, of two days ago and of an hour ago."""
    with declared_shop(cassandra, tmp_path, LIVE, DECLARED) as shop:
        for story in (LOST, SOUND, YOUNG_LOST):
            at = _written(story.truth)
            _put(shop, USERS, story.row, at)
            for table, row in story.followers:
                _put(shop, table, row, at)
        for story in (LEAKED, SOUND, YOUNG_LEAKED):
            _put(shop, PROFILES, story.profile, _written(story.content))
        yield shop


def _written(age: Age) -> int:
    return time.time_ns() // 1000 - int(age.value or 0) * MICROS


def _put(shop: DeclaredShop, table: Table, row: Row, at: int) -> None:
    """Elements are added one by one: an assignment would hide what is written with an earlier time."""
    sets = {name: row[name] for name in table.collections if isinstance(row.get(name), frozenset)}
    cells = {name: cell for name, cell in row.items() if name not in sets}
    shop.tables.write(Put(table, cells, at=at))
    if sets:
        shop.tables.write(Change(table, table.key_of(row), add=sets, at=at))


ENGINES = ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.thorough])]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_alone_for_a_day_is_removed_and_put_back(shop: DeclaredShop, engine: str) -> None:
    before = shop.rows_of(EVERY)
    assert shop.found(engine) == (1, FOUND)
    words = ("repair", "--projections", str(shop.file), "--engine", engine, *ASKED, "--json")

    planned = shop.mailmend(*words, "--dry-run")
    assert (planned.json["due"], shop.rows_of(EVERY)) == ({"LOST_CONTENT": 1, "LEAK": 1}, before)
    ended = shop.mailmend(*words)

    assert ended.json["fixed"] == {"LOST_CONTENT": 1, "LEAK": 1}, ended.err
    assert ended.json["reasons"] == {"LOST_CONTENT": {"younger than a day": 1}, "LEAK": {"younger than a day": 1}}
    rows = shop.rows_of(EVERY)
    assert [row["email"] for row in rows["users"]] == ["lead3", "lead4"]
    assert [row["body"] for row in rows["profiles"]] == ["profile 3", "profile 5"]
    assert [row["user_id"].int & 0xFF for row in rows["users_by_email"]] == [3, 4]
    assert [row["tag"] for row in rows["users_by_tag"]] == ["all", "all", "lead3", "lead4"]

    undone = shop.mailmend("undo", ended.json["run"], "--no-writers", "--json")

    assert undone.code == 0, undone.err
    assert shop.rows_of(EVERY) == before
    redone = shop.mailmend("undo", undone.json["run"], "--no-writers", "--json")
    assert redone.code == 0, redone.err
    assert shop.rows_of(EVERY) == rows


def test_a_set_that_was_changed_since_the_look_refuses_the_removal_of_its_row(shop: DeclaredShop) -> None:
    """A plan is made; then a program adds a tag, at a time that no rule of times holds back."""
    plan = shop.file.with_name("plan.jsonl")
    words = ("repair", "--projections", str(shop.file), "--engine", "local", *ASKED)
    shop.mailmend(*words, "--plan", str(plan))
    tag = {"tags": frozenset({"new"})}
    shop.tables.write(Change(USERS, (LOST.id,), add=tag, at=_written(Age.OLD)))

    applied = shop.mailmend("apply", str(plan), "--no-writers", "--json")

    assert applied.json["fixed"] == {"LEAK": 1}, applied.err
    assert "lead1" in [row["email"] for row in shop.rows(USERS)]


def test_a_program_collects_a_single_row_of_contents(shop: DeclaredShop, cassandra: CassandraServer) -> None:
    with mailmend.open(
        host=cassandra.host,
        port=cassandra.port,
        keyspace=shop.name,
        ledger_keyspace=shop.ledger,
    ) as opened:
        ended = opened.repair(
            projections=shop.file,
            key=[f"profiles:user_id={LEAKED.id}"],
            leaks="collect",
            no_writers=True,
            delay=timedelta(0),
        )

    assert ended.summary.fixed == {Verdict.LEAK: 1}
    assert LEAKED.profile["body"] not in [row["body"] for row in shop.rows(PROFILES)]


def test_content_of_a_key_alone_is_left_with_the_reason(shop: DeclaredShop) -> None:
    bare = {"user_id": replace(LOST, number=9).id}
    shop.tables.write(Put(PROFILES, bare, at=_written(Age.OLD)))
    words = ("repair", "profiles", "--projections", str(shop.file), "--engine", "local")

    ended = shop.mailmend(*words, "--leaks", "collect", "--json")

    assert ended.json["fixed"] == {"LEAK": 1}
    assert ended.json["reasons"]["LEAK"] == {Why.YOUNGER_THAN_A_DAY.value: 1, Why.AGE_UNKNOWN.value: 1}
    assert bare["user_id"] in [row["user_id"] for row in shop.rows(PROFILES)]
