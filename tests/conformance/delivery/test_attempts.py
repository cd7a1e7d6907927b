"""The journal of attempts in the ledger, in memory and on a real server: begun, ended, read by mail or recipient."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid1, uuid4

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.cql.memory import MemoryTables
from mailmend.delivery.ledger.attempts import LedgerAttempts
from mailmend.delivery.mail.attempts import AttemptOutcome, AttemptStage, JournalledAttempt
from mailmend.delivery.mail.entries import EntryId
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.keyspace import Schema
from tests.support.in_turn import InTurn
from tests.support.keyspaces import created, dropped
from tests.support.tables import micros

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def ledger_keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    name = f"e_attempts_{uuid4().hex[:8]}"
    yield created(cluster, name, Schema((), (DELIVERY_ATTEMPT,)))
    dropped(cluster, (name,))


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def ledger(request: pytest.FixtureRequest) -> LedgerAttempts:
    if request.param == "memory":
        return LedgerAttempts(InTurn(MemoryTables(micros)), "mail")
    keyspace: Keyspace = request.getfixturevalue("ledger_keyspace")
    return LedgerAttempts(AsyncKeyspace(keyspace), "mail")


@pytest.fixture
def queue(k: str) -> QueueName:
    return QueueName(k)


def begun(mail: EnqueueId, number: int = 0) -> JournalledAttempt:
    return JournalledAttempt(
        entry=EntryId(mail, number),
        mail=EnqueueId(uuid4()),
        id=uuid1(),
        fields={PickupField.JOB_ID: "a b", PickupField.REMOTE_IP: "2001:db8::1", PickupField.LOCAL_IP: "::1"},
        sources=("::1", "::2"),
        ready_at=NOW,
        host="mx.\u00e9.example",
        content_bytes=3_000_000_000,
        urgent=True,
        server="here pid 1",
    )


def ended(attempt: JournalledAttempt, outcome: AttemptOutcome | None = AttemptOutcome.DELIVERED) -> JournalledAttempt:
    later = NOW + timedelta(seconds=2)
    return replace(attempt, ended_at=later, outcome=outcome, stage=AttemptStage.DATA, status="2.0.0")


async def test_an_attempt_that_has_begun_is_there_without_an_outcome(ledger: LedgerAttempts, queue: QueueName) -> None:
    """With all that is known of it; what another queue or keyspace tried is not there."""
    one = begun(EnqueueId(uuid4()))
    await ledger.put(queue, one)
    assert await ledger.of(queue, one.entry.mail) == [one]
    assert await ledger.of(QueueName(f"{queue}2"), one.entry.mail) == []
    assert await LedgerAttempts(ledger.tables, "other").of(queue, one.entry.mail) == []


@pytest.mark.parametrize("outcome", [*AttemptOutcome, None])
async def test_its_end_is_kept_beside_its_beginning(
    ledger: LedgerAttempts, queue: QueueName, outcome: AttemptOutcome | None
) -> None:
    """Or both at once; one without an outcome has none."""
    mail = EnqueueId(uuid4())
    one, other = ended(begun(mail), outcome), ended(begun(mail), outcome)
    await ledger.put(queue, replace(one, ended_at=None, outcome=None, stage=None, status=""))
    await ledger.put_end(queue, one)
    await ledger.put(queue, other)
    assert await ledger.of(queue, mail) == [one, other]


async def test_attempts_are_read_by_mail_or_by_recipient_in_their_order(
    ledger: LedgerAttempts, queue: QueueName
) -> None:
    """Over all passages of the mail."""
    mail = EnqueueId(uuid4())
    first, second, third = begun(mail, 1), begun(mail, 0), begun(mail, 1)
    for one in (third, second, first):
        await ledger.put(queue, one)
    assert await ledger.of(queue, mail) == [second, first, third]
    assert await ledger.of(queue, mail, 1) == [first, third]
    assert await ledger.of(queue, mail, 7) == []


async def test_an_end_without_its_beginning_is_read_all_the_same(ledger: LedgerAttempts, queue: QueueName) -> None:
    """As the beginning expires some moments sooner."""
    one = ended(begun(EnqueueId(uuid4())))
    await ledger.put_end(queue, one)
    (found,) = await ledger.of(queue, one.entry.mail)
    assert (found.entry, found.outcome, found.host, found.fields) == (one.entry, one.outcome, "", {})
