"""Memberships of servers in the ledger, in memory and on a real server: who has one, keeps it, loses it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.cql.memory import MemoryTables
from mailmend.delivery.ledger import servers as delivery_servers
from mailmend.delivery.ledger.servers import LedgerServers
from mailmend.delivery.policy.shares import Members, Membership, MembershipState, ServerName, first_members
from mailmend.model.catalog.ledger import DELIVERY_SERVER, DELIVERY_VIEW
from mailmend.model.ids import QueueName
from mailmend.model.keyspace import Schema
from tests.support.in_turn import InTurn
from tests.support.keyspaces import created, dropped
from tests.support.tables import micros

A, B = ServerName("a"), ServerName("b")
NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def ledger_keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    name = f"e_servers_{uuid4().hex[:8]}"
    yield created(cluster, name, Schema((), (DELIVERY_VIEW, DELIVERY_SERVER)))
    dropped(cluster, (name,))


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def ledger(request: pytest.FixtureRequest) -> LedgerServers:
    if request.param == "memory":
        return LedgerServers(InTurn(MemoryTables(micros)), "mail")
    keyspace: Keyspace = request.getfixturevalue("ledger_keyspace")
    return LedgerServers(AsyncKeyspace(keyspace), "mail")


@pytest.fixture
def queue(k: str) -> QueueName:
    return QueueName(k)


def membership(name: ServerName = A) -> Membership:
    return Membership(name=name, claim=uuid4(), owner="ann@here pid 7", since=NOW, seen_at=NOW)


async def test_a_membership_is_one_servers_and_only_its_holder_keeps_it(
    ledger: LedgerServers, queue: QueueName
) -> None:
    """Whoever claims it besides is told whose it is, and touches nothing."""
    mine, other = membership(), membership()
    assert await ledger.take(queue, mine) == mine
    assert await ledger.take(queue, other) == mine
    assert not await ledger.renew(queue, other)
    renewed = replace(mine, adopted=3, seen_at=NOW + timedelta(seconds=5))
    assert await ledger.renew(queue, renewed)
    assert await ledger.memberships(queue) == {A: renewed}
    await ledger.take(queue, membership(B))
    assert list(await ledger.memberships(queue)) == [A, B]
    assert await ledger.memberships(QueueName(f"{queue}2")) == {}


async def test_the_membership_of_who_has_ended_is_taken_at_once(ledger: LedgerServers, queue: QueueName) -> None:
    """It is seen as ended until then, and the one before can keep it no longer."""
    mine, next_one = membership(), membership()
    await ledger.take(queue, mine)
    assert await ledger.end(queue, mine)
    assert (await ledger.memberships(queue))[A].state is MembershipState.ENDED
    assert await ledger.take(queue, next_one) == next_one
    assert not await ledger.renew(queue, mine)
    assert await ledger.memberships(queue) == {A: next_one}


async def test_the_membership_of_a_process_that_is_surely_no_more_is_taken_at_once(
    ledger: LedgerServers, queue: QueueName
) -> None:
    """What it called itself is in its row."""
    dead, mine = replace(membership(), process="boot space 7"), membership()
    await ledger.take(queue, dead)
    assert await ledger.take(queue, mine, lambda one: one == "boot space 8") == dead
    assert await ledger.take(queue, mine, lambda one: one == "boot space 7") == mine
    assert not await ledger.renew(queue, dead)
    assert await ledger.memberships(queue) == {A: mine}


async def test_a_membership_that_is_not_kept_is_gone(
    ledger: LedgerServers, queue: QueueName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it: it can be taken, and not be kept; one that is kept lives on, all of it."""
    monkeypatch.setattr(delivery_servers, "MEMBERSHIP_SECONDS", 1)
    lost, kept = membership(), membership(B)
    await ledger.take(queue, lost)
    await ledger.take(queue, kept)
    monkeypatch.setattr(delivery_servers, "MEMBERSHIP_SECONDS", 60)
    assert await ledger.renew(queue, kept)
    for _ in range(100):
        if A not in (memberships := await ledger.memberships(queue)):
            break
        await asyncio.sleep(0.1)
    assert memberships == {B: kept}
    assert not await ledger.renew(queue, lost)
    again = membership()
    assert await ledger.take(queue, again) == again


async def test_lists_of_members_follow_each_other_one_by_one(ledger: LedgerServers, queue: QueueName) -> None:
    """Of two that would follow the same one, the first does."""
    assert await ledger.members(queue) is None
    first = first_members([B, A])
    assert await ledger.change_members(queue, first)
    assert not await ledger.change_members(queue, first_members([A]))
    second = Members(2, {B: 1}, (A, B))
    assert await ledger.change_members(queue, second)
    assert not await ledger.change_members(queue, Members(2, {A: 1}, (A, B)))
    assert not await ledger.change_members(queue, Members(4, {A: 4}, (B,)))
    assert await ledger.members(queue) == second
