"""Suspensions and conditions in the ledger, in memory and on a real server: made, listed, removed, ended."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid1, uuid4

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.cql.memory import MemoryTables
from mailmend.delivery.ledger.intents import EntryIntent, IntentStage, LedgerIntents
from mailmend.delivery.ledger.orders import (
    LedgerOrders,
    LedgerPolicies,
    OrderEvent,
    OrderRecord,
)
from mailmend.delivery.mail.entries import EntryAction, EntryChange, EntryId
from mailmend.delivery.policy.orders import NOTHING_BEGINS, Order, OrderKind, ServedPolicies
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    FieldGroup,
    PickupField,
    Threshold,
    ThresholdCondition,
    pattern_of,
)
from mailmend.delivery.policy.rates import DeliveryRate, RateAlgorithm
from mailmend.model.catalog.ledger import (
    DELIVERY_CONDITION,
    DELIVERY_POLICIES,
    DELIVERY_SUSPENSION,
    DELIVERY_TABLES,
)
from mailmend.model.errors import Outweighed
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change
from mailmend.model.ports import AsyncTables
from mailmend.repair.ledger import expiring
from tests.support.in_turn import InTurn
from tests.support.keyspaces import created, dropped
from tests.support.orders import condition, suspension
from tests.support.tables import micros


@pytest.fixture(scope="module")
def ledger_keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    name = f"e_orders_{uuid4().hex[:8]}"
    yield created(cluster, name, Schema((), DELIVERY_TABLES))
    dropped(cluster, (name,))


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def tables(request: pytest.FixtureRequest) -> AsyncTables:
    if request.param == "memory":
        return InTurn(MemoryTables(micros))
    return AsyncKeyspace(request.getfixturevalue("ledger_keyspace"))


@dataclass
class Orders:
    """The orders of one kind: where they are kept, and one with these values that ends after that time."""

    kind: OrderKind
    tables: AsyncTables

    @property
    def ledger(self) -> LedgerOrders:
        return LedgerOrders(self.tables, "mail")

    async def put(self, queue: QueueName, lasts: timedelta | None = None, **values: tuple[str, ...]) -> Order:
        now = datetime.now(UTC).replace(microsecond=0)
        ends_at = now + lasts if lasts else None
        order = suspension(uuid1(), values, ends_at, queue)
        if self.kind is OrderKind.CONDITION:
            threshold = Threshold()
            if values:
                threshold = Threshold(0, DeliveryRate(3, 10**11 + 1), 500_000_000, stop=True, cluster=False)
            made_at = now + timedelta(milliseconds=len(values))
            order = condition(made_at, {}, threshold, ends_at, fields="jobid,localip", queue=queue)
            order = replace(order, id=uuid4(), values=values)
        await self.ledger.put(order, datetime.now(UTC))
        return order

    async def of(self, queue: QueueName) -> Sequence[Order]:
        return await self.ledger.of(self.kind, queue)

    async def find(self, queue: QueueName, order_id: UUID) -> Order | None:
        return await self.ledger.find(self.kind, queue, order_id)


@pytest.fixture(params=list(OrderKind))
def kept(request: pytest.FixtureRequest, tables: AsyncTables) -> Orders:
    return Orders(request.param, tables)


@pytest.fixture
def queue(k: str) -> QueueName:
    return QueueName(k)


async def test_all_of_a_queue_are_read_as_they_were_made(kept: Orders, queue: QueueName) -> None:
    """In their order; those of another queue, or of another keyspace's, are not among them."""
    some = [
        await kept.put(queue),
        await kept.put(queue, timedelta(hours=2), localip=("192.0.2.0/28", "::1"), jobid=("a b", "\u00e9")),
    ]
    await kept.put(QueueName(f"{queue}2"))
    assert await kept.of(queue) == some
    assert await kept.find(queue, some[1].id) == some[1]
    assert await LedgerOrders(kept.tables, "other").of(kept.kind, queue) == []


async def test_what_was_removed_is_gone(kept: Orders, queue: QueueName) -> None:
    """The others stay."""
    first, second = await kept.put(queue), await kept.put(queue)
    await kept.ledger.remove(first, datetime.now(UTC))
    assert await kept.of(queue) == [second]
    assert await kept.find(queue, first.id) is None


async def test_words_that_no_store_takes_are_kept_as_far_as_one_does(kept: Orders, queue: QueueName) -> None:
    """Given an owner and a reason from a command line that is not UTF-8, and a reason without end."""
    latin = replace(await kept.put(queue), owner="J\udcf6rg@here", reason="bis sp\ud800ter")
    await kept.ledger.put(latin, datetime.now(UTC))
    (one,) = await kept.of(queue)
    assert (one.owner, one.reason) == ("J\ufffdrg@here", "bis sp\ufffdter")

    await kept.ledger.put(replace(latin, reason="x" * 100_000), datetime.now(UTC))
    (one,) = await kept.of(queue)
    assert one.reason == "x" * 2_045 + "..."


async def test_what_a_clock_ahead_has_written_is_removed_and_can_be_made_again(kept: Orders, queue: QueueName) -> None:
    """Its stamp outweighs a removal with this host's time; the removal's stamp outweighs what is made again."""
    made, ahead = await kept.put(queue), timedelta(minutes=10)
    await kept.ledger.put(made, datetime.now(UTC) + ahead)

    await kept.ledger.remove(made, datetime.now(UTC))
    assert await kept.of(queue) == []

    await kept.ledger.put(made, datetime.now(UTC))
    assert await kept.of(queue) == [made]


async def test_one_that_is_renewed_outweighs_what_a_clock_ahead_has_written(kept: Orders, queue: QueueName) -> None:
    made = await kept.put(queue)
    await kept.ledger.put(made, datetime.now(UTC) + timedelta(minutes=10))
    renewed = replace(made, reason="why")

    await kept.ledger.put(renewed, datetime.now(UTC))

    assert await kept.of(queue) == [renewed]


async def test_an_order_that_is_hidden_for_more_than_a_day_is_said_not_to_be_in_force(
    kept: Orders, queue: QueueName
) -> None:
    made = await kept.put(queue)
    await kept.ledger.remove(made, datetime.now(UTC) + timedelta(days=2))

    with pytest.raises(Outweighed, match="not in force"):
        await kept.ledger.put(made, datetime.now(UTC))

    assert await kept.of(queue) == []


async def test_one_that_is_put_again_is_what_it_was_put_as_last(kept: Orders, queue: QueueName) -> None:
    """With another end, without one, and with one once more."""
    first = await kept.put(queue, timedelta(hours=1))
    assert first.ends_at
    for ends_at in (first.ends_at + timedelta(hours=1), None, first.ends_at):
        again = replace(first, ends_at=ends_at, reason=f"until {ends_at}")
        await kept.ledger.put(again, datetime.now(UTC))
        assert await kept.of(queue) == [again]


async def test_what_has_ended_expires_and_leaves_nothing_to_delete(
    kept: Orders, queue: QueueName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row and all of its cells; one without an end stays."""
    monkeypatch.setattr(expiring, "KEPT_AFTER_END", timedelta(0))
    stays = await kept.put(queue)
    await kept.put(queue, timedelta(seconds=2), jobid=("x",))
    for _ in range(100):
        if len(found := await kept.of(queue)) == 1:
            break
        await asyncio.sleep(0.1)
    assert found == [stays]


async def test_what_was_done_is_read_newest_first(kept: Orders, queue: QueueName) -> None:
    """All of it, over days and as far as the limit; that of the other kind, and of other queues, is not among it."""
    first, other = await kept.put(queue, timedelta(hours=2), jobid=("a b", "\u00e9")), await kept.put(queue)
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    ids = [_uuid_at(noon + timedelta(hours=hours)) for hours in (-49, -25, -1, 0)]
    done = [
        OrderRecord(ids[0], OrderEvent.ADDED, first, "ann"),
        OrderRecord(ids[1], OrderEvent.RENEWED, replace(first, reason="still", ends_at=None), "bob"),
        OrderRecord(ids[2], OrderEvent.ADDED, other, "hook x"),
        OrderRecord(ids[3], OrderEvent.REMOVED, first, "ann"),
    ]
    ledger, now = kept.ledger, round(noon.timestamp() * 1e6)
    for one in (done[2], done[0], done[3], done[1]):
        await ledger.put_record(one)
    await ledger.put_record(OrderRecord(uuid1(), OrderEvent.ADDED, await kept.put(QueueName(f"{queue}2")), "ann"))
    await LedgerOrders(kept.tables, "other").put_record(done[0])
    assert await ledger.records(kept.kind, queue, now, 100) == done[::-1]
    assert await ledger.records(kept.kind, queue, now, 3) == done[:0:-1]
    (neither,) = set(OrderKind) - {kept.kind}
    assert await ledger.records(neither, queue, now, 100) == []


def _uuid_at(at: datetime) -> UUID:
    time = round(at.timestamp() * 1e6) * 10 + 0x01B21DD213814000
    return UUID(fields=(time & 0xFFFFFFFF, time >> 32 & 0xFFFF, time >> 48 & 0xFFF | 0x1000, 0x80, 1, 1))


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ('{"bytes": 5}', "it has limits that are not known here: bytes"),
        ('{"concurrency": "many"}', "its limits are damaged"),
        ('{"rate": [0, 5]}', "its limits are damaged"),
        ('{"rate": [1', "its column limits is no JSON"),
        ("[]", "its limits are damaged"),
        (None, "its column limits is empty"),
    ],
)
async def test_a_condition_whose_limits_cannot_be_read_lets_nothing_begin(
    tables: AsyncTables, queue: QueueName, limits: str | None, why: str
) -> None:
    """What would be without its limits might let everything go. The others are as they were."""
    orders = Orders(OrderKind.CONDITION, tables)
    one, other = await orders.put(queue), await orders.put(queue, jobid=("a",))
    key = ("mail", queue, one.id)

    await tables.write(Change(DELIVERY_CONDITION, key, assign={"limits": limits}))

    assert await orders.of(queue) == [replace(one, threshold=NOTHING_BEGINS, damage=why), other]
    assert await orders.find(queue, one.id) == replace(one, threshold=NOTHING_BEGINS, damage=why)


@pytest.mark.parametrize("column", ["fields", "matches"])
@pytest.mark.parametrize("text", ["{", "5", '[5, "a"]', '{"jobid": "a"}', "[" * 100_000])
async def test_a_condition_that_does_not_tell_its_mails_is_named_and_the_others_hold(
    tables: AsyncTables, queue: QueueName, column: str, text: str
) -> None:
    orders = Orders(OrderKind.CONDITION, tables)
    one, other = await orders.put(queue), await orders.put(queue, jobid=("a",))

    await tables.write(Change(DELIVERY_CONDITION, ("mail", queue, one.id), assign={column: text}))

    damaged, read = await orders.of(queue)
    assert (damaged.id, damaged.has_scope, column in damaged.damage, read) == (one.id, False, True, other)


@pytest.mark.parametrize("text", ["{", "5", '["a"]', '{"jobid": "a"}', '{"jobid": [5]}', "[" * 100_000, None])
async def test_a_damaged_suspension_holds_every_mail_and_the_others_hold_theirs(
    tables: AsyncTables, queue: QueueName, text: str | None
) -> None:
    orders = Orders(OrderKind.SUSPENSION, tables)
    one, other = await orders.put(queue, jobid=("a",)), await orders.put(queue, jobid=("b",))

    await tables.write(Change(DELIVERY_SUSPENSION, ("mail", queue, one.id), assign={"fields": text}))

    damaged, read = await orders.of(queue)
    assert (damaged.id, damaged.holds_every_mail, damaged.unread) == (one.id, True, (damaged.damage,))
    assert damaged.suspension(None).holds({})
    assert read == other


async def test_what_a_server_of_a_later_version_counts_by_is_left_out_and_named(
    tables: AsyncTables, queue: QueueName, caplog: pytest.LogCaptureFixture
) -> None:
    ledger, now = LedgerPolicies(tables, "mail"), datetime.now(UTC).replace(microsecond=0)
    for server in ("one", "two", "three"):
        policy = CounterPolicy((PickupField.JOB_ID,))
        said = ServedPolicies(server=server, policies=(policy,), algorithm=RateAlgorithm.SLIDING, said_at=now)
        await ledger.put(queue, said)
    await tables.write(Change(DELIVERY_POLICIES, ("mail", queue, "two"), assign={"algorithm": "of 2030"}))
    await tables.write(Change(DELIVERY_POLICIES, ("mail", queue, "one"), assign={"policies": "[{"}))

    assert [said.server for said in await ledger.of(queue)] == ["three"]
    assert [record.__dict__["server"] for record in caplog.records] == ["one", "two"]


async def test_what_is_ordered_for_after_attempts_is_read_by_mail_until_it_is_removed(
    tables: AsyncTables, queue: QueueName
) -> None:
    """The later order in place of the earlier one, all of it; that there is something is known of the whole queue."""
    ledger, now = LedgerIntents(tables, "mail"), datetime.now(UTC).replace(microsecond=0)
    one, two = EnqueueId(uuid4()), EnqueueId(uuid4())
    defer = EntryChange(action=EntryAction.DEFER, at=now, owner="ann", reason="x", until=now + timedelta(hours=1))
    hold = EntryChange(action=EntryAction.HOLD, at=now + timedelta(seconds=1), owner="bob", reason="y")
    assert not await ledger.are_there(queue)
    await ledger.put(
        queue, dict.fromkeys((EntryId(one, 0), EntryId(one, 7), EntryId(two, 0)), defer), datetime.now(UTC)
    )
    await ledger.put(queue, {EntryId(one, 7): hold}, datetime.now(UTC))
    assert await ledger.are_there(queue)
    assert await ledger.of(queue, one) == {0: defer, 7: hold}
    both = {EntryId(one, 0): defer, EntryId(one, 7): hold, EntryId(two, 0): defer}
    assert await ledger.of_all(queue, [one, two]) == both
    await ledger.remove(queue, [EntryId(one, 0)])
    assert await ledger.of(queue, one) == {7: hold}
    assert await LedgerIntents(tables, "other").of(queue, one) == {}
    assert not await ledger.are_there(QueueName(f"{queue}2"))


async def test_what_is_ordered_for_after_attempts_is_in_force_and_removed_whatever_clock_wrote_before(
    tables: AsyncTables, queue: QueueName
) -> None:
    """Given a host whose clock is an hour ahead: a later command of a host with the right clock takes its place."""
    ledger, mail = LedgerIntents(tables, "mail"), EnqueueId(uuid4())
    now = datetime.now(UTC).replace(microsecond=0)
    ahead = now + timedelta(hours=1)
    entry = EntryId(mail, 0)
    hold = EntryChange(action=EntryAction.HOLD, at=ahead, owner="ann", reason="x")
    delete = EntryChange(action=EntryAction.DELETE, at=now, owner="bob", reason="y")
    await ledger.put(queue, {entry: hold}, ahead)

    await ledger.put(queue, {entry: delete}, now)
    outweighing = await ledger.of(queue, mail)
    await ledger.remove(queue, [entry])
    removed = await ledger.of(queue, mail)
    await ledger.put(queue, {entry: delete}, now)
    again = await ledger.of(queue, mail)

    assert (outweighing, removed, again) == ({0: delete}, {}, {0: delete})


async def test_answers_of_servers_are_read_and_hide_no_later_order(tables: AsyncTables, queue: QueueName) -> None:
    """A left order is in force no more; where nobody waits for an answer, the row is removed."""
    ledger, mail = LedgerIntents(tables, "mail"), EnqueueId(uuid4())
    now = datetime.now(UTC).replace(microsecond=0)
    hold = EntryChange(action=EntryAction.HOLD, at=now, owner="ann", reason="x")
    entries = [EntryId(mail, number) for number in range(3)]
    first, second, third = entries
    await ledger.put(queue, {first: hold, second: hold}, now, IntentStage.ORDERED)
    before = await ledger.latest(queue)
    await ledger.put(queue, {third: hold}, now)
    assert await ledger.latest(queue) != before

    await ledger.answer(queue, {first: IntentStage.HEEDED, second: IntentStage.LEFT, third: IntentStage.LEFT})
    found = await ledger.find(queue, [mail])
    assert {entry.number: intent.stage for entry, intent in found.items()} == {
        0: IntentStage.HEEDED,
        1: IntentStage.LEFT,
    }
    assert await ledger.of(queue, mail) == {0: hold}

    await ledger.put(queue, {second: hold}, datetime.now(UTC), IntentStage.ORDERED)
    assert (await ledger.find(queue, [mail]))[second] == EntryIntent(hold, IntentStage.ORDERED)
    await ledger.remove(queue, entries)
    assert await ledger.find(queue, [mail]) == {}


async def test_what_is_ordered_for_after_attempts_has_words_that_every_store_takes(
    tables: AsyncTables, queue: QueueName
) -> None:
    ledger, mail = LedgerIntents(tables, "mail"), EnqueueId(uuid4())
    now = datetime.now(UTC).replace(microsecond=0)
    hold = EntryChange(action=EntryAction.HOLD, at=now, owner="J\udcf6rg", reason="sp\ud800ter")
    await ledger.put(queue, {EntryId(mail, 0): hold}, datetime.now(UTC))
    assert await ledger.of(queue, mail) == {0: replace(hold, owner="J\ufffdrg", reason="sp\ufffdter")}


async def test_what_servers_say_that_they_count_by_is_read_until_they_leave(
    tables: AsyncTables, queue: QueueName
) -> None:
    """Fields and groups as they are; of conditions and limits nothing."""
    ledger, now = LedgerPolicies(tables, "mail"), datetime.now(UTC).replace(microsecond=0)
    network, below = pattern_of(PickupField.REMOTE_IP, "192.0.2.0/24"), pattern_of(PickupField.REMOTE_MX, "*.a.org")
    groups = {
        PickupField.REMOTE_IP: (FieldGroup("near", (network,)),),
        PickupField.REMOTE_MX: (FieldGroup("a", (below,)),),
    }
    policy = CounterPolicy((PickupField.REMOTE_MX, PickupField.REMOTE_IP), groups)
    limited = replace(policy, conditions=(ThresholdCondition({}, Threshold(1)),), default=Threshold(2))
    said = [
        ServedPolicies(server=server, policies=(limited, CounterPolicy()), algorithm=RateAlgorithm.SLIDING, said_at=now)
        for server in ("one", "two")
    ]
    for one in said:
        await ledger.put(queue, one)
    read = [replace(one, policies=(policy, CounterPolicy())) for one in said]
    assert await ledger.of(queue) == read
    await ledger.remove(queue, "one")
    assert await ledger.of(queue) == read[1:]
    assert await ledger.of(QueueName(f"{queue}2")) == []
