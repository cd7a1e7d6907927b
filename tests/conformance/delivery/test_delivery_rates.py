"""What servers keep of rates in the ledger, in memory and on a real server: who may change it, and which row holds."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.cql.memory import MemoryTables
from mailmend.delivery.ledger.servers import LedgerRates, SavedRow
from mailmend.delivery.policy.rates import LONG_AGO, SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.remembered import SavedRate
from mailmend.delivery.policy.shares import NO_SHARE, LimitShare, RememberedMembership, ServerName
from mailmend.model.catalog.ledger import DELIVERY_LIFE, DELIVERY_RATE
from mailmend.model.ids import QueueName
from mailmend.model.keyspace import Schema
from tests.support.in_turn import InTurn
from tests.support.keyspaces import created, dropped
from tests.support.tables import micros

A = ServerName("a")
STAMP = 1_700_000_000_000_000


@pytest.fixture(scope="module")
def ledger_keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    name = f"e_rates_{uuid4().hex[:8]}"
    yield created(cluster, name, Schema((), (DELIVERY_LIFE, DELIVERY_RATE)))
    dropped(cluster, (name,))


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def ledger(request: pytest.FixtureRequest) -> LedgerRates:
    if request.param == "memory":
        return LedgerRates(InTurn(MemoryTables(micros)), "mail")
    keyspace: Keyspace = request.getfixturevalue("ledger_keyspace")
    return LedgerRates(AsyncKeyspace(keyspace), "mail")


@pytest.fixture
def queue(k: str) -> QueueName:
    return QueueName(k)


def remembered() -> RememberedMembership:
    changes = ((LONG_AGO, NO_SHARE), (STAMP, LimitShare(((0, 2), (1, 3)))))
    return RememberedMembership(
        claim=uuid4(), span=uuid4(), epoch=3, changes=changes, number=7, stamp=STAMP, seen=STAMP
    )


def row(key: tuple[str, ...], stamp: int, many: int = 1) -> SavedRow:
    spent = ((LONG_AGO, 0), (STAMP + 1, many))
    rate = SavedRate(RateAlgorithm.SLIDING, DeliveryRate(100, 60 * SECOND), spent, 2, 7)
    return SavedRow(("policy-0", key), rate, STAMP + 5, stamp)


async def test_only_the_process_that_claimed_a_server_changes_what_it_leaves(
    ledger: LedgerRates, queue: QueueName
) -> None:
    first, second = remembered(), remembered()
    assert await ledger.remembered(queue, A) is None
    assert await ledger.change(queue, A, None, first)
    assert not await ledger.change(queue, A, None, second)
    assert await ledger.change(queue, A, first.claim, second)
    assert not await ledger.change(queue, A, first.claim, replace(first, epoch=4))
    assert await ledger.remembered(queue, A) == second
    assert await ledger.remembered(queue, ServerName("b")) is None


async def test_the_row_with_the_highest_stamp_holds_in_whatever_order_they_arrive(
    ledger: LedgerRates, queue: QueueName
) -> None:
    span, key = uuid4(), ("one.example", "", 'a "quoted" \u00fc')
    assert await ledger.save(queue, A, span, [row(key, STAMP + 9, 4), row((), STAMP + 10)]) == [None, None]
    assert await ledger.save(queue, A, span, [row(key, STAMP + 8, 3)]) == [None]
    assert {one.name[1]: one for one in await ledger.saved(queue, A, span)} == {
        key: row(key, 0, 4),
        (): row((), 0),
    }
    assert await ledger.saved(queue, A, uuid4()) == []
