"""A materialised view of a real Cassandra that lost writes: found, and mended by touches of its base."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mailmend.cql.driver.session import connect
from mailmend.cql.render import in_every_data_centre, keyspace_cql
from tests.support.commands import CommandLine, Ended, command_line, contact_of
from tests.support.servers import OwnNode, own_node

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]

KEYSPACE = "shop"
VIEW = "users_by_email"
TABLES = (
    "CREATE TABLE shop.users (user_id int PRIMARY KEY, email text, name text, age int)",
    """CREATE MATERIALIZED VIEW shop.users_by_email AS SELECT email, user_id, name, age FROM shop.users
        WHERE email IS NOT NULL AND user_id IS NOT NULL PRIMARY KEY (email, user_id)""",
)
BEFORE = (
    *[f"INSERT INTO shop.users (user_id, email, name, age) VALUES ({n}, '{n}@x', 'n', 30)" for n in range(1, 7)],
    "INSERT INTO shop.users (user_id, name) VALUES (9, 'no address')",
)
MEANWHILE = (
    "UPDATE shop.users SET name = 'new' WHERE user_id = 2",
    "UPDATE shop.users SET email = 'moved@x' WHERE user_id = 3",
    "DELETE FROM shop.users WHERE user_id = 4",
    "DELETE age FROM shop.users WHERE user_id = 5",
    "INSERT INTO shop.users (user_id, email, name, age) VALUES (7, '7@x', 'n', 30) USING TIMESTAMP 1700000000000000",
    "INSERT INTO shop.users (user_id, email, name) VALUES (8, '8@x', 'n') USING TTL 500000",
)
"""What the view misses."""

OPTIONS = ("--delay", "0", "--no-writers", "--engine", "local", "--json")
WITH_TIMES = "user_id, email, name, age, writetime(email), writetime(name), writetime(age)"


@dataclass(frozen=True)
class Shop:
    """The node whose view lost writes, a shell, and the file that declares the view."""

    node: OwnNode
    mailmend: CommandLine
    file: str

    def rows(self, text: str) -> list[Any]:
        with connect(contact_of(self.node.server)) as cluster:
            return [tuple(row.values()) for row in cluster.query(text)]

    def base(self) -> list[Any]:
        return sorted(self.rows(f"SELECT {WITH_TIMES} FROM shop.users"))

    def view(self) -> list[Any]:
        return sorted(self.rows(f"SELECT email, user_id, name, age FROM shop.{VIEW}"))

    def repaired(self, *words: str) -> Ended:
        return self.mailmend("repair", "--projections", self.file, *OPTIONS, *words)

    def found(self) -> dict[str, int]:
        ended = self.mailmend("check", "--projections", self.file, *OPTIONS)
        counts: dict[str, int] = ended.json["findings"].get(VIEW, {})
        return counts


def written(node: OwnNode, texts: tuple[str, ...]) -> None:
    with connect(contact_of(node.server)) as cluster:
        for text in texts:
            cluster.execute_ddl(text)


@pytest.fixture(scope="module")
def node() -> Iterator[OwnNode]:
    """A node whose view has the files of before the last changes, as after a restore of one table too few."""
    with own_node() as node:
        written(node, (keyspace_cql(KEYSPACE, in_every_data_centre(1)), *TABLES, *BEFORE))
        node.stop()
        (files,) = (node.sstables / KEYSPACE).glob(f"{VIEW}-*")
        kept = Path(shutil.copytree(files, node.cluster.layout.root / "kept"))
        node.start()
        written(node, MEANWHILE)
        node.stop()
        shutil.rmtree(files)
        shutil.copytree(kept, files)
        node.start()
        yield node


@pytest.fixture
def shop(node: OwnNode, tmp_path: Path) -> Shop:
    mailmend = command_line(tmp_path, node.server, MAILMEND_KEYSPACE=KEYSPACE)
    file = tmp_path / "shop.toml"
    file.write_text(mailmend("projections", "init").out)
    return Shop(node, mailmend, str(file))


def test_a_view_that_lost_writes_is_found_mended_and_left_where_no_touch_helps(shop: Shop) -> None:
    # Given a view whose files are older than its base's
    assert shop.found() == {"PROJECT": 3, "AMEND": 2, "WITHDRAW": 2}
    base = shop.base()
    # When it is repaired without the option, nothing is written, and the option is named
    left = shop.repaired()
    assert left.json["fixed"] == {}
    assert left.json["reasons"]["PROJECT"] == {"a row of a view: needs --touch-base": 3}
    assert shop.base() == base
    # When the base is touched
    ended = shop.repaired("--touch-base")
    # Then every row is there that a touch can bring, and what it cannot mend has its reason
    assert ended.code == 1, ended.err
    assert ended.json["fixed"] == {"PROJECT": 3, "AMEND": 1}
    assert ended.json["left"] == {"AMEND": 1, "WITHDRAW": 2}
    assert shop.found() == {"AMEND": 1, "WITHDRAW": 2}
    rows = shop.view()
    assert [row for row in rows if row[1] in {2, 3, 7, 8}] == [
        ("2@x", 2, "new", 30),
        ("3@x", 3, "n", 30),
        ("7@x", 7, "n", 30),
        ("8@x", 8, "n", None),
        ("moved@x", 3, "n", 30),
    ]
    # Then each cell of the base is as it was, a microsecond later where it was touched
    touched = {2, 3, 7, 8}
    for before, now in zip(base, shop.base(), strict=True):
        later = 1 if before[0] in touched else 0
        assert now[:4] == before[:4]
        assert [at and at - later for at in now[4:]] == list(before[4:])
    ((of_view,),) = shop.rows(f"SELECT ttl(name) FROM shop.{VIEW} WHERE email = '8@x'")
    ((of_base,),) = shop.rows("SELECT ttl(name) FROM shop.users WHERE user_id = 8")
    assert 400_000 < of_view < 500_000
    assert abs(of_view - of_base) < 60  # both were read at different moments
    # Then an undo has nothing to put back
    undone = shop.mailmend("undo", ended.json["run"], "--json")
    assert undone.code == 0, undone.err
    assert shop.view() == rows


def test_two_names_are_enough_for_a_check(shop: Shop) -> None:
    ended = shop.mailmend("check", "users", VIEW, *OPTIONS[:2], *OPTIONS[3:])

    assert ended.code == 1
    assert set(ended.json["findings"]) == {VIEW}


@pytest.mark.spark
def test_spark_finds_what_the_local_engine_finds(shop: Shop) -> None:
    by_spark = shop.mailmend("check", "--projections", shop.file, *OPTIONS, "--engine", "spark")

    assert by_spark.json["findings"] == {VIEW: shop.found()}
    assert by_spark.code == 1
