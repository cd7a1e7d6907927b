"""Every kind of projection of a declared truth on a real Cassandra: written, damaged, found, mended and put back."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import mailmend
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, Count, Put, Remove
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row
from tests.support.declared_shops import DeclaredShop, declared_shop
from tests.support.declared_users import (
    BY_EMAIL,
    BY_TAG,
    COUNTS,
    DECLARED,
    LEADS,
    LEADS_ALONE,
    PROJECTIONS,
    TAGS,
    USERS,
)
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra]


def user(number: int, **cells: Any) -> Row:
    return {"id": UUID(int=number), "email": f"u{number}@shop", "team": "red", **cells}


@pytest.fixture
def shop(cassandra: CassandraServer, tmp_path: Path) -> Iterator[DeclaredShop]:
    """Four users, written by a program; two have moved to another address or team since."""
    with declared_shop(cassandra, tmp_path, Schema((), (USERS, *PROJECTIONS)), DECLARED) as shop:
        written(cassandra, shop)
        yield shop


def written(cassandra: CassandraServer, shop: DeclaredShop) -> None:
    with mailmend.open(
        host=cassandra.host,
        port=cassandra.port,
        keyspace=shop.name,
        ledger_keyspace=shop.ledger,
    ) as opened:
        users = opened.writer("users", shop.file)
        users.put(user(1, name="lead", tags=frozenset({"a", "b"})))
        users.put(user(2, name="hand", tags=frozenset({"b"})))
        users.put(user(3, name="hand"))
        users.put({"id": UUID(int=4)})
        users.change({"id": UUID(int=2)}, {"email": "moved@shop", "tags": frozenset({"c"})})
        users.change({"id": UUID(int=3)}, {"team": "blue", "name": None})
        users.change({"id": UUID(int=4)}, {"email": "u4@shop", "team": "blue"})
        users.put(user(5))
        users.delete({"id": UUID(int=5)})


def test_a_writer_leaves_no_drift_in_any_kind(shop: DeclaredShop) -> None:
    assert shop.found() == (0, {})
    rows = shop.rows_of(PROJECTIONS)
    assert [row["email"] for row in rows["by_email"]] == ["moved@shop", "u1@shop", "u3@shop", "u4@shop"]
    assert [(row["tag"], row["id"].int) for row in rows["by_tag"]] == [("a", 1), ("b", 1), ("c", 2)]
    counted = {row["team"]: (row["total"], row["named"] or 0) for row in rows["counts"]}
    assert counted == {"red": (2, 2), "blue": (2, 0)}


FOUND: Mapping[str, Mapping[str, int]] = {
    "by_email": {"PROJECT": 1},
    "by_tag": {"AMEND": 1, "PROJECT": 1, "WITHDRAW": 1},
    "leads": {"PROJECT": 1, "WITHDRAW": 1},
    "tags": {"AMEND": 1},
    "counts": {"AMEND": 1},
}


def damage(shop: DeclaredShop) -> None:
    shop.tables.write(Remove(BY_EMAIL, ("u1@shop",)))
    shop.tables.write(Remove(BY_TAG, ("a", UUID(int=1))))
    shop.tables.write(Put(BY_TAG, {"tag": "b", "id": UUID(int=1), "name": "old"}))
    shop.tables.write(Put(BY_TAG, {"tag": "d", "id": UUID(int=1), "name": "lead"}))
    shop.tables.write(Remove(LEADS, ("red", UUID(int=1))))
    shop.tables.write(Put(LEADS, {"team": "blue", "id": UUID(int=3)}))
    shop.tables.write(Change(TAGS, ("red",), take={"tags": frozenset({"a"})}))
    shop.tables.write(Count(COUNTS, ("red",), {"total": 5}))


def test_damage_of_every_kind_is_mended_and_put_back(shop: DeclaredShop) -> None:
    sound = shop.rows_of(PROJECTIONS)
    damage(shop)
    damaged = shop.rows_of(PROJECTIONS)
    assert shop.found() == (1, FOUND)

    repaired = shop.mailmend("repair", "--projections", str(shop.file), "--engine", "local", "--json")

    assert repaired.code == 0, repaired.err
    assert shop.rows_of(PROJECTIONS) == sound
    assert shop.found() == (0, {})

    undone = shop.mailmend("undo", repaired.json["run"], "--no-writers", "--json")

    assert undone.code == 0, undone.err
    assert shop.rows_of(PROJECTIONS) == damaged


def test_single_rows_are_mended_by_their_keys(shop: DeclaredShop, cassandra: CassandraServer) -> None:
    damage(shop)
    with mailmend.open(host=cassandra.host, port=cassandra.port, keyspace=shop.name) as opened:
        looked = opened.repair(
            projections=shop.file, key=["by_tag:tag=d"], dry_run=True, no_writers=True, delay=timedelta(0)
        )
    assert looked.summary.due == {Verdict.WITHDRAW: 1}
    words = ("repair", "--projections", str(shop.file), "--json")

    of_truth = shop.mailmend(*words, "--key", f"users:id={UUID(int=1)}")
    of_tag = shop.mailmend(*words, "--key", "by_tag:tag=d")

    assert of_truth.json["fixed"] == {"AMEND": 2, "PROJECT": 3}
    assert of_tag.json["fixed"] == {"WITHDRAW": 1}
    assert shop.found() == (1, {"leads": {"WITHDRAW": 1}, "counts": {"AMEND": 1}})


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_finds_the_same_damage(shop: DeclaredShop) -> None:
    assert shop.found("spark") == (0, {})
    damage(shop)
    assert shop.found("spark") == (1, FOUND)


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.thorough])])
def test_a_filter_without_a_mirror_is_mended(shop: DeclaredShop, engine: str) -> None:
    shop.file.write_text(LEADS_ALONE)
    assert shop.found(engine) == (0, {})
    damage(shop)
    assert shop.found(engine) == (1, {"leads": FOUND["leads"]})

    assert shop.mend(engine)["fixed"] == FOUND["leads"]

    assert shop.found("local") == (0, {})
