"""Maxima and minima that several writers keep at once, on a real Cassandra."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

import mailmend
from mailmend.model.keyspace import Schema
from mailmend.model.table import Table, columns
from tests.support.declared_shops import DeclaredShop, declared_shop
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra]

VISITS = Table("visits", columns("user text", "id uuid", "size int, at timestamp"))
MOST = Table("most", columns("user text", regular="size int"))
LEAST = Table("least", columns("user text", regular="size int"))
DECLARED = """
[truth.visits.max.most]
columns = { size = "size" }

[truth.visits.min.least]
columns = { size = "size" }
"""
WRITERS = 4
ROWS = 40


@pytest.fixture
def shop(cassandra: CassandraServer, tmp_path: Path) -> Iterator[DeclaredShop]:
    schema = Schema((), (VISITS, MOST, LEAST))
    with declared_shop(cassandra, tmp_path, schema, DECLARED) as shop:
        yield shop


def test_writers_of_one_group_leave_the_farthest_values(shop: DeclaredShop, cassandra: CassandraServer) -> None:
    with mailmend.open(
        host=cassandra.host,
        port=cassandra.port,
        keyspace=shop.name,
        ledger_keyspace=shop.ledger,
    ) as opened:
        visits = opened.writer("visits", shop.file)

        def write(number: int) -> bool:
            size = number * 7 % ROWS  # neither rising nor falling
            return visits.put({"user": "ann", "id": UUID(int=number), "size": size}).lagged

        with ThreadPoolExecutor(WRITERS) as pool:
            lagged = list(pool.map(write, range(ROWS)))
        visits.delete({"user": "ann", "id": UUID(int=0)})
        opened.repair_lags(projections=shop.file, no_writers=True)

    assert [row["size"] for row in shop.rows(MOST)] == [ROWS - 1]
    assert [row["size"] for row in shop.rows(LEAST)] == [0]
    assert sum(lagged) < ROWS
    assert shop.found() == (0, {})
