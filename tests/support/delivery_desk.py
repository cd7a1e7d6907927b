"""A server of deliveries with its desk, over a whole queue in memory; time is turned by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import httpx2

from mailmend.admin.delivery.desk import DeliveryDesk
from mailmend.admin.delivery.http.routes import DELIVERIES
from mailmend.admin.delivery.policies_in_force import PoliciesInForce
from mailmend.admin.frame.http.access import Access
from mailmend.admin.frame.http.application import application
from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.admin.queue.connections import QueueConnections
from mailmend.cql.memory import MemoryTables
from mailmend.delivery.ledger.orders import LedgerOrders
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.delivery.settings import DeliverySettings
from mailmend.delivery.transports import SourceAddress
from mailmend.mailqueue.rabbitmq.mail_queue import open_queue
from mailmend.model.catalog.mail_queue import queue_tables_of
from mailmend.model.ids import EnqueueId, QueueName
from tests.support.clock import VirtualClock
from tests.support.cluster_twin import ClusterTwin
from tests.support.deliveries import CONTENT, ScriptedRelay, TableHops
from tests.support.in_turn import InTurn
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker
from tests.support.queue_commands import KEYSPACE, OURS
from tests.support.queues import HOURLY, mail

SOURCES = (SourceAddress("192.0.2.1"), SourceAddress("192.0.2.2"))


@dataclass
class DeliveryWorld:
    """Everything behind the routes.

    Attributes:
        policies: the file; None: nothing is limited.
    """

    policies: Path | None = None
    clock: VirtualClock = field(default_factory=VirtualClock)
    desk: DeliveryDesk = field(init=False)
    relay: ScriptedRelay = field(init=False)
    hops: TableHops = field(default_factory=TableHops)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.relay = ScriptedRelay(self.clock)
        ledger = InTurn(MemoryTables(self.clock.micros))
        self.ledger = LedgerOrders(ledger, KEYSPACE)
        cluster = ClusterTwin(self.clock, **{KEYSPACE: OURS})
        self.connections = QueueConnections(
            QueueSettings(ConnectionSettings(keyspace=KEYSPACE), QueueName("outgoing")),
            cast("Any", None),
            OURS,
            queue_tables_of(OURS, KEYSPACE),
            InTurn(cluster.keyspace(KEYSPACE)),
            MemoryBroker(self.clock),
            MemoryBlobs(self.clock),
            self.clock,
            ledger=ledger,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """The queue is open, and there is a desk; nothing is delivered yet."""
        known = self.connections
        opened = await open_queue(
            known.settings.name, known.tables, known.broker, known.blobs, self.clock, HOURLY, own=known.own
        )
        async with opened as queue:
            self.queue = queue
            policies = PoliciesInForce(self.policies, known.now)
            said = policies.said
            server = DeliveryServer(
                name="mx1",
                queue=queue,
                next_hops=self.hops,
                relay=self.relay,
                engine=PickupEngine(said.policies, said.algorithm),
                clock=self.clock,
                settings=DeliverySettings(reporter="mail.sender.example", sources=SOURCES, **self.settings),
                ledger=self.ledger,
            )
            server.limit(said.policies, said.suspensions)
            self.desk = DeliveryDesk(server=server, connections=known, policies=policies)
            yield

    @asynccontextmanager
    async def delivering(self) -> AsyncIterator[None]:
        """The server works while the body runs."""
        stop = asyncio.Event()
        serving = asyncio.ensure_future(self.desk.server.serve(stop))
        try:
            await self.clock.pause(1)
            yield
        finally:
            stop.set()
            with suppress(asyncio.CancelledError):
                await serving

    async def put(self, *recipients: str, delay: timedelta | None = None, **fields: Any) -> EnqueueId:
        return await self.queue.enqueue(mail("m", recipients=recipients, **fields), CONTENT, delay=delay)

    @asynccontextmanager
    async def client(
        self, access: Access | None = None, token: str | None = None, host: str = "127.0.0.1:8000"
    ) -> AsyncIterator[httpx2.AsyncClient]:
        app = application(DELIVERIES, self.desk, access or Access())
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}", headers=headers) as found:
            yield found
