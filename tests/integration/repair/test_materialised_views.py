"""Materialised views of a real Cassandra that lost writes: found, and mended by touches of their bases."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from mailmend.cql.driver.session import connect
from mailmend.cql.render import in_every_data_centre, keyspace_cql
from mailmend.model.operations import Scan
from mailmend.model.table import Row, Table
from tests.support.commands import CommandLine, Ended, command_line, contact_of
from tests.support.cyclists import CYCLISTS, DECLARED, VIEWS, Rows, demanded, differences, out_of_reach
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

CYCLING = "cycling"


def cyclist(number: int, **cells: Any) -> Row:
    sound = {"name": "A. Costa", "age": 18, "birthday": date(1997, 2, 8), "country": "Germany"}
    return {"cid": UUID(int=number), **sound, **cells}


THEN = (
    *(cyclist(number) for number in range(1, 7)),
    cyclist(7, age=None),
    cyclist(8, name=None, country=None),
)
NOW = (
    cyclist(1),
    cyclist(2, age=27),
    cyclist(3, country=None),
    cyclist(5, name="B. Welten"),
    cyclist(6, name=None, birthday=date(1987, 9, 4)),
    cyclist(7, age=27),
    cyclist(8, name="B. Welten", country=None),
    cyclist(9, country="Netherlands"),
)
"""What the cyclists became while their views lost writes: the fourth is gone."""


def inserted(rows: tuple[Row, ...]) -> tuple[str, ...]:
    texts = [json.dumps(row, default=str) for row in rows]
    return tuple(f"INSERT INTO {CYCLING}.{CYCLISTS.name} JSON '{text}'" for text in texts)


def all_of_base(view: Table) -> str:
    first, second, *_ = view.names
    return (
        f"CREATE MATERIALIZED VIEW {CYCLING}.{view.name} AS SELECT * FROM {CYCLING}.{CYCLISTS.name} "
        f"WHERE {first} IS NOT NULL AND {second} IS NOT NULL PRIMARY KEY ({first}, {second})"
    )


class LosingViews(NamedTuple):
    """A keyspace whose views miss the last writes of their base.

    Attributes:
        meanwhile: the writes that they miss.
    """

    keyspace: str
    views: tuple[str, ...]
    tables: tuple[str, ...]
    before: tuple[str, ...]
    meanwhile: tuple[str, ...]


OF_CYCLISTS = (
    f"CREATE TABLE {CYCLING}.{CYCLISTS.name} (cid uuid PRIMARY KEY, name text, age int, birthday date, country text)"
)

LOSING = (
    LosingViews(KEYSPACE, (VIEW,), TABLES, BEFORE, MEANWHILE),
    LosingViews(
        CYCLING,
        tuple(view.name for view in VIEWS),
        (
            OF_CYCLISTS,
            *map(all_of_base, VIEWS),
        ),
        inserted(THEN),
        (*inserted(NOW), f"DELETE FROM {CYCLING}.{CYCLISTS.name} WHERE cid = {UUID(int=4)}"),
    ),
)

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
    """A node whose views have the files of before the last changes, as after a restore of some tables too few."""
    with own_node() as node:
        for losing in LOSING:
            keyspace = keyspace_cql(losing.keyspace, in_every_data_centre(1))
            written(node, (keyspace, *losing.tables, *losing.before))
        node.stop()
        kept = {}
        for losing in LOSING:
            for view in losing.views:
                (files,) = (node.sstables / losing.keyspace).glob(f"{view}-*")
                copy = node.cluster.layout.root / "kept" / view
                kept[files] = Path(shutil.copytree(files, copy))
        node.start()
        for losing in LOSING:
            written(node, losing.meanwhile)
        node.stop()
        for files, copy in kept.items():
            shutil.rmtree(files)
            shutil.copytree(copy, files)
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


class Velodrome(NamedTuple):
    """The cyclists of the node, and a shell whose file declares their views."""

    node: OwnNode
    mailmend: CommandLine
    file: str

    def rows(self, table: Table) -> Rows:
        with connect(contact_of(self.node.server)) as cluster:
            scanned = cluster.keyspace(CYCLING).scan(Scan(table, table.names))
            return {table.key_of(row): dict(row) for row in scanned}

    def found(self) -> Any:
        return self.mailmend("check", "--projections", self.file, *OPTIONS).json["findings"]


@pytest.fixture
def velodrome(node: OwnNode, tmp_path: Path) -> Velodrome:
    file = tmp_path / "cycling.toml"
    file.write_text(DECLARED)
    return Velodrome(node, command_line(tmp_path, node.server, MAILMEND_KEYSPACE=CYCLING), str(file))


def test_published_views_that_lost_writes_are_mended_as_far_as_a_touch_can(velodrome: Velodrome) -> None:
    # Given
    base = velodrome.rows(CYCLISTS)
    assert sorted(base.values(), key=str) == sorted(NOW, key=str)
    wanted = {view.name: demanded(view, NOW) for view in VIEWS}
    standing = {view.name: velodrome.rows(view) for view in VIEWS}
    assert standing == {view.name: demanded(view, THEN) for view in VIEWS}
    assert velodrome.found() == sums_of(wanted, standing, differences)

    # When
    touched = velodrome.mailmend("repair", "--projections", velodrome.file, *OPTIONS, "--touch-base")

    # Then
    assert touched.code == 1, touched.err
    assert velodrome.found() == sums_of(wanted, standing, out_of_reach)
    assert velodrome.rows(CYCLISTS) == base
    for view in VIEWS:
        left = out_of_reach(wanted[view.name], standing[view.name])
        rows = velodrome.rows(view)
        assert {key: row for key, row in rows.items() if key not in left} == {
            key: row for key, row in wanted[view.name].items() if key not in left
        }


def sums_of(wanted: dict[str, Rows], standing: dict[str, Rows], judged: Any) -> dict[str, dict[str, int]]:
    sums = {}
    for name, rows in wanted.items():
        verdicts = judged(rows, standing[name]).values()
        sums[name] = dict(Counter(verdict.value for verdict in verdicts))
    return sums
