"""How soon a server delivers that finds many deferred mails due, as after a night on which nothing could go out.

The mails are made as rows, as so many retries leave them. Broker and blobs are the twins, and the relay takes
everything at once: these are the costs of the tables, of moving and of the server.
"""

import asyncio
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import Keyspace
from mailmend.delivery.mail.attempts import (
    AttemptStage,
    BeforeContent,
    DeliveryAttempt,
    RecipientResult,
    SmtpReply,
    at_once,
)
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.delivery.settings import DeliverySettings
from mailmend.delivery.smtp.outgoing.addresses import SmartHost
from mailmend.mailqueue.concurrency import cancelled
from mailmend.mailqueue.rabbitmq.mail_queue import open_queue
from mailmend.mailqueue.rabbitmq.view.due_mails import DUE_WINDOW
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import OwnTables
from mailmend.model.ids import BlobId, QueueName
from mailmend.model.instants import instant_of
from mailmend.repair.clock import SystemClock
from tests.bench.queue_delays import delayed_rows
from tests.bench.queue_past import write
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker

DEPTHS = (1_000, 10_000, 100_000)
DELIVERED = 500
_PATIENCE = timedelta(minutes=5)
_TAKEN = SmtpReply(250, "2.0.0", "taken")


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a server does that begins with so many mails due.

    Attributes:
        first_seconds: from its beginning until one is delivered.
        per_second: deliveries, over the first `DELIVERED`.
        mebibytes: by which this process has grown meanwhile, the broker's twin and what it holds included.
    """

    deferred: int
    first_seconds: float
    per_second: float
    mebibytes: float

    def __str__(self) -> str:
        spent = f"first after {self.first_seconds:5.2f} s, then {self.per_second:4.0f} mails/s"
        return f"{self.deferred:>9,} deferred mails due: {spent}, {self.mebibytes:5.0f} MiB more"


def measure(keyspace: Keyspace) -> Iterator[Recovery]:
    """Each number of mails in turn; one round that is not counted before them."""
    asyncio.run(_recovery(keyspace, QueueName("recovery-warm"), DEPTHS[0]))
    for deferred in DEPTHS:
        yield asyncio.run(_recovery(keyspace, QueueName(f"recovery-{deferred}"), deferred))


def as_json(measured: Sequence[Recovery]) -> list[dict[str, Any]]:
    """For the results' file."""
    return [asdict(one) for one in measured]


class _Kept(MemoryBlobs):
    """All mails share their bytes, so none of them takes these away."""

    async def delete(self, blob_id: BlobId) -> None:
        pass


@dataclass
class _Taker:
    """Implements `delivery.mail.attempts.MailRelay`: takes each mail at once, and says when it has had enough."""

    enough: asyncio.Event = field(default_factory=asyncio.Event)
    taken_at: list[float] = field(default_factory=list)

    async def deliver(
        self, attempt: DeliveryAttempt, content: bytes, before_content: BeforeContent = at_once
    ) -> Sequence[RecipientResult]:
        assert content
        await before_content()
        self.taken_at.append(time.perf_counter())
        if len(self.taken_at) == DELIVERED:
            self.enough.set()
        return [
            RecipientResult(one.recipient, delivered=True, reply=_TAKEN, stage=AttemptStage.DATA, host=attempt.hop.host)
            for one in attempt.recipients
        ]

    async def close(self) -> None:
        pass


async def _recovery(keyspace: Keyspace, name: QueueName, deferred: int) -> Recovery:
    clock, relay = SystemClock(), _Taker()
    first = slice_of(instant_of(clock.micros()), DUE_WINDOW) - timedelta(days=1)
    write(keyspace, delayed_rows(name, first, deferred))
    blobs, broker = _Kept(clock), MemoryBroker(clock)
    for one in ("header", "body"):
        await blobs.keep(BlobId(one), b"Subject: hello\r\n\r\n")
    before = _peak_mebibytes()
    async with await open_queue(name, AsyncKeyspace(keyspace), broker, blobs, clock, own=OwnTables()) as queue:
        server = DeliveryServer(
            name="bench",
            queue=queue,
            next_hops=SmartHost("127.0.0.1"),
            relay=relay,
            engine=PickupEngine(()),
            clock=clock,
            settings=DeliverySettings(reporter="bench.example"),
        )
        begun = time.perf_counter()
        moving = asyncio.ensure_future(queue.maintain(asyncio.Event()))
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            await server.serve(relay.enough)
        await cancelled((moving,))
    seconds = relay.taken_at[DELIVERED - 1] - relay.taken_at[0]
    grown = _peak_mebibytes() - before
    return Recovery(deferred, relay.taken_at[0] - begun, (DELIVERED - 1) / seconds, grown)


def _peak_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
