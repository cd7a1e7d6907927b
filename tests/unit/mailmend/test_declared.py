"""Declared tables in a program: written, checked, mended and put back through `mailmend.open`."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import mailmend
from mailmend.admin.frame.cluster import lag_journal, open_cluster
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Remove, Scan
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row, Table, columns
from tests.support.cluster_twin import ClusterTwin, NamedTables, cluster_in_memory
from tests.support.schema_twin import ONE_COPY

USERS = Table("users", columns("user_id uuid", regular="email text, name text"))
BY_EMAIL = Table("users_by_email", columns("email text", regular="user_id uuid, name text"))
SHOP = mailmend.read_declaration("[truth.users.mirror.users_by_email]")
KEY = {"user_id": UUID(int=1)}
ANN = {**KEY, "email": "ann@shop", "name": "Ann"}
AT_ONCE: Mapping[str, Any] = {"delay": timedelta(), "no_writers": True}
SCAN: Mapping[str, Any] = {**AT_ONCE, "engine": "local", "projections": SHOP}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ClusterTwin:
    monkeypatch.setenv("MAILMEND_KEYSPACE", "shop")
    found = cluster_in_memory(monkeypatch)
    found.keyspaces["shop"] = Schema((), (USERS, BY_EMAIL))
    found.replications["shop"] = ONE_COPY
    return found


@pytest.fixture
def tables(cluster: ClusterTwin) -> NamedTables:
    return cluster.keyspace("shop")


def copies(tables: NamedTables) -> list[Row]:
    return list(tables.scan(Scan(BY_EMAIL, BY_EMAIL.names)))


def test_a_program_writes_a_truth_with_its_copy(tables: NamedTables) -> None:
    with mailmend.open() as shop:
        users = shop.writer("users", SHOP)
        users.put({**ANN, "email": "old@shop"})
        users.change(KEY, {"email": "ann@shop"})

        assert users.read(KEY) == ANN
        assert copies(tables) == [{"email": "ann@shop", **KEY, "name": "Ann"}]


def test_a_program_in_a_loop_writes_too(tables: NamedTables) -> None:
    async def story() -> None:
        async with mailmend.open_async() as shop:
            users = await shop.writer("users", SHOP)
            await users.put(ANN)
            await users.delete(KEY)
            assert await users.read(KEY) is None

    asyncio.run(story())

    assert copies(tables) == []


def test_a_program_mends_and_puts_back_what_it_declares(cluster: ClusterTwin, tables: NamedTables) -> None:
    with mailmend.open() as shop:
        shop.writer("users", SHOP).put(ANN)
        tables.write(Remove(BY_EMAIL, ("ann@shop",)))
        cluster.clock.advance(1)

        found = shop.check(**SCAN)
        repaired = shop.repair(**SCAN)

        assert found.summary.findings == {"users_by_email": {Verdict.PROJECT: 1}}
        assert [row["email"] for row in copies(tables)] == ["ann@shop"]
        assert repaired.summary.run is not None

        shop.undo(repaired.summary.run)

    assert copies(tables) == []


def test_a_lag_of_declared_tables_waits_for_their_own_repair(cluster: ClusterTwin, tables: NamedTables) -> None:
    with mailmend.open() as shop:
        shop.writer("users", SHOP).put(ANN)
        tables.write(Remove(BY_EMAIL, ("ann@shop",)))
        suspect = Suspect("users_by_email", ("ann@shop",), Verdict.PROJECT, ((UUID(int=1),),))
        with open_cluster(shop.connection) as opened:
            lag_journal(opened, opened.ledger()).journal([suspect], "no answer")
        cluster.clock.advance(1)

        mended = shop.repair_lags(projections=SHOP, **AT_ONCE)
        again = shop.repair_lags(projections=SHOP, **AT_ONCE)

    assert mended.summary.fixed == {Verdict.PROJECT: 1}
    assert again.summary.suspects == 0
    assert [row["email"] for row in copies(tables)] == ["ann@shop"]


@pytest.mark.parametrize(
    ("truth", "said"), [("user", "Did you mean 'users'"), ("users_by_email", "no truth users_by_email")]
)
def test_a_truth_that_is_not_declared_is_named(cluster: ClusterTwin, truth: str, said: str) -> None:
    del cluster
    with mailmend.open() as shop, pytest.raises(mailmend.WrongUse) as caught:
        shop.writer(truth, SHOP)

    assert said in f"{caught.value.what} {caught.value.mend}"


def test_a_file_says_the_same_as_its_text(tables: NamedTables, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(SHOP.text)

    with mailmend.open() as shop:
        shop.writer("users", str(file)).put(ANN)

    assert len(copies(tables)) == 1
