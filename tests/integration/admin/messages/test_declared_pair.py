"""A table and a copy of it, on a real Cassandra, in a keyspace that never had a mail."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Remove
from mailmend.model.table import Row, Table, columns
from tests.support.commands import CommandLine
from tests.support.declared_shops import declared_shop
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra]

USERS = Table("users", columns("user_id uuid", regular="email text, name text"))
BY_EMAIL = Table("users_by_email", columns("email text", regular="user_id uuid, name text"))
ROWS = 200
HOUR = 3600
DAMAGE = {"PROJECT": 4, "AMEND": 2, "WITHDRAW": 2}
CLASH = {"CLASH": 1}
OF_ID = "WRITETIME(user_id) AS u_at, TTL(user_id) AS u_ttl"
OF_NAME = "WRITETIME(name) AS n_at, TTL(name) AS n_ttl"
TTLS = ("u_ttl", "n_ttl")
STAMPS = ("u_at", "n_at")


def user(number: int, **changed: Any) -> Row:
    row = {"user_id": UUID(int=number), "email": f"u{number}@shop", "name": f"name {number}"}
    return row | changed


@dataclass(frozen=True, slots=True)
class Shop:
    """The keyspace with its damaged copy, and a shell in front of it."""

    name: str
    cluster: CassandraCluster
    tables: Keyspace
    mailmend: CommandLine
    file: Path

    def copies(self) -> dict[str, Row]:
        """The rows of the copy by their keys, each with the write times and TTLs of its cells."""
        table = f"{self.name}.users_by_email"
        rows = self.cluster.query(f"SELECT email, user_id, name, {OF_ID}, {OF_NAME} FROM {table}")
        return {row["email"]: dict(row) for row in rows}

    def found(self, *options: str) -> tuple[int, Mapping[str, int]]:
        """The exit code and the counts of a check of the two tables."""
        ended = self.mailmend("check", "users", "users_by_email", *options, "--json")
        return ended.code, ended.json["findings"].get("users_by_email", {})

    def mend(self, *options: str) -> Mapping[str, Any]:
        words = ("repair", "--projections", str(self.file))
        return self.mailmend(*words, *options, "--json").json


def damaged(tables: Keyspace) -> None:
    """Two hundred users with their copies, then damage of every class, some of it with a TTL."""
    for number in range(1, ROWS + 1):
        tables.write(Put(USERS, user(number)))
        tables.write(Put(BY_EMAIL, user(number)))
    tables.write(Remove(BY_EMAIL, ("u1@shop",)))
    tables.write(Remove(BY_EMAIL, ("u2@shop",)))
    tables.write(Put(BY_EMAIL, user(3, name="another")))
    tables.write(Put(BY_EMAIL, user(4, name="another"), ttl_seconds=HOUR))
    tables.write(Put(BY_EMAIL, user(900)))
    tables.write(Put(USERS, user(5, email="moved@shop")))
    tables.write(Put(USERS, user(800), ttl_seconds=HOUR))
    tables.write(Put(USERS, user(901, email="u6@shop")))


@pytest.fixture
def shop(cassandra: CassandraServer, tmp_path: Path) -> Iterator[Shop]:
    declared = "[truth.users.mirror.users_by_email]\n"
    with declared_shop(cassandra, tmp_path, Schema((), (USERS, BY_EMAIL)), declared) as made:
        damaged(made.tables)
        yield Shop(made.name, made.cluster, made.tables, made.mailmend, made.file)


def values_of(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows without their times."""
    found: dict[str, Row] = {}
    for key, row in rows.items():
        found[key] = {name: row[name] for name in BY_EMAIL.names}
    return found


def stamps_of(row: Row) -> list[int]:
    return [row[name] for name in STAMPS]


def expire_together(one: Row, other: Row) -> bool:
    """Whether both rows have no TTL, or TTLs that end within a minute."""
    pairs = [(one[name], other[name]) for name in TTLS]
    return all(a is b is None or (a and b and abs(a - b) < HOUR / 10) for a, b in pairs)


def stamped_by(stamp: int, rows: Mapping[str, Row], keys: Sequence[str]) -> bool:
    return all(set(stamps_of(rows[key])) == {stamp} for key in keys)


def test_a_copy_is_mended_and_put_back_to_the_cell(shop: Shop) -> None:
    before = shop.copies()
    assert shop.found("--engine", "local") == (1, DAMAGE | CLASH)

    repaired = shop.mend("--engine", "local")

    assert (repaired["fixed"], repaired["left"]) == (DAMAGE, CLASH)
    assert HOUR / 2 < shop.copies()["u800@shop"]["u_ttl"] <= HOUR
    shop.tables.write(Remove(USERS, (UUID(int=901),)))
    assert shop.found("--engine", "local") == (0, {})

    shop.file.write_text("[truth.others.mirror.files]\n")
    undone = shop.mailmend("undo", repaired["run"], "--json")

    after = shop.copies()
    assert (undone.code, values_of(after)) == (0, values_of(before))
    assert all(expire_together(row, after[key]) for key, row in before.items())
    restored = [key for key, row in before.items() if stamps_of(after[key]) != stamps_of(row)]
    assert sorted(restored) == ["u3@shop", "u4@shop", "u5@shop", "u900@shop"]
    run = shop.mailmend("runs", "show", repaired["run"], "--json").json
    assert stamped_by(run["as_of"] + 1, after, restored)


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_finds_and_mends_the_same(shop: Shop) -> None:
    assert shop.found("--engine", "spark") == (1, DAMAGE | CLASH)

    repaired = shop.mend("--engine", "spark")

    assert (repaired["fixed"], repaired["left"]) == (DAMAGE, CLASH)
    shop.tables.write(Remove(USERS, (UUID(int=901),)))
    assert shop.found("--engine", "local") == (0, {})
