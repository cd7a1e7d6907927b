"""The suspensions in the ledger, in memory and on a real server: what is made, listed, removed, and ends by itself."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid1, uuid4

import pytest

from cql.driver.asynchronous import AsyncKeyspace
from cql.driver.session import CassandraCluster, Keyspace
from cql.memory import MemoryTables
from model.catalog.ledger import DELIVERY_SUSPENSION
from model.ids import QueueName
from model.pickup.suspensions import MadeSuspension
from model.schema.keyspace import Schema
from repair.ledger import suspensions
from repair.ledger.suspensions import LedgerSuspensions
from tests.support.in_turn import InTurn
from tests.support.keyspaces import created, dropped
from tests.support.tables import micros


@pytest.fixture(scope="module")
def ledger_keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    name = f"e_suspensions_{uuid4().hex[:8]}"
    yield created(cluster, name, Schema((), (DELIVERY_SUSPENSION,)))
    dropped(cluster, (name,))


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def ledger(request: pytest.FixtureRequest) -> LedgerSuspensions:
    if request.param == "memory":
        return LedgerSuspensions(InTurn(MemoryTables(micros)), "mail")
    keyspace: Keyspace = request.getfixturevalue("ledger_keyspace")
    return LedgerSuspensions(AsyncKeyspace(keyspace), "mail")


@pytest.fixture
def queue(k: str) -> QueueName:
    return QueueName(k)


def made(queue: QueueName, lasts: timedelta | None = None, **values: tuple[str, ...]) -> MadeSuspension:
    now = datetime.now(UTC).replace(microsecond=0)
    ends_at = now + lasts if lasts else None
    return MadeSuspension(id=uuid1(), queue=queue, values=values, owner="ann@here", reason="why not", ends_at=ends_at)


async def put(ledger: LedgerSuspensions, one: MadeSuspension) -> MadeSuspension:
    await ledger.put(one, datetime.now(UTC))
    return one


async def test_all_of_a_queue_are_read_as_they_were_made(ledger: LedgerSuspensions, queue: QueueName) -> None:
    """In their order; those of another queue, or of another keyspace's, are not among them."""
    some = [
        await put(ledger, made(queue)),
        await put(ledger, made(queue, timedelta(hours=2), localip=("192.0.2.0/28", "::1"), jobid=("a b", "\u00e9"))),
    ]
    await put(ledger, made(QueueName(f"{queue}2")))
    assert await ledger.of(queue) == some
    assert await ledger.find(queue, some[1].id) == some[1]
    assert await LedgerSuspensions(ledger.tables, "other").of(queue) == []


async def test_what_was_removed_is_gone(ledger: LedgerSuspensions, queue: QueueName) -> None:
    """The others stay."""
    first, second = await put(ledger, made(queue)), await put(ledger, made(queue))
    await ledger.remove(first)
    assert await ledger.of(queue) == [second]
    assert await ledger.find(queue, first.id) is None


async def test_what_has_ended_expires_and_leaves_nothing_to_delete(
    ledger: LedgerSuspensions, queue: QueueName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row and all of its cells; one without an end stays."""
    monkeypatch.setattr(suspensions, "KEPT_AFTER_END", timedelta(0))
    stays = await put(ledger, made(queue))
    await put(ledger, made(queue, timedelta(seconds=2), jobid=("x",)))
    for _ in range(100):
        if len(found := await ledger.of(queue)) == 1:
            break
        await asyncio.sleep(0.1)
    assert found == [stays]
