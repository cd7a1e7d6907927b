"""A broker as the conformance suite sees it: clients of it, and connections that break, behind each adapter."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from mailqueue.rabbitmq.broker.adapter import RabbitBroker
from mailqueue.rabbitmq.broker.settings import BrokerSettings, Host
from mailqueue.rabbitmq.broker.topology import QueueForm
from model.ports import Broker, Delivery
from repair.clock import SystemClock
from tests.support.brokers import Broker as Server
from tests.support.memory_broker import MemoryBroker
from tests.support.wires import Wire, wire_to

T = TypeVar("T")

SECONDS_MAX = 20.0
_POLL_SECONDS = 0.02


class Scene(Protocol):
    """A broker that nobody has used yet."""

    def client(self) -> Broker:
        """What a further process has of it; closed with the scene."""
        ...

    def cut(self) -> None:
        """Every connection is lost; new ones can be had."""
        ...


SceneOpened = Callable[[], AbstractAsyncContextManager[Scene]]


@dataclass(frozen=True, slots=True)
class MemoryScene:
    """The twin."""

    broker: MemoryBroker

    def client(self) -> Broker:
        return self.broker

    def cut(self) -> None:
        self.broker.drop_connections()


@dataclass(frozen=True, slots=True)
class RabbitScene:
    """A virtual host of a real RabbitMQ, behind a wire."""

    wire: Wire
    settings: BrokerSettings
    clients: list[RabbitBroker] = field(default_factory=list)

    def client(self) -> RabbitBroker:
        self.clients.append(RabbitBroker(self.settings, SystemClock()))
        return self.clients[-1]

    def cut(self) -> None:
        self.wire.cut()


@asynccontextmanager
async def memory_scene(delivery_limit: int | None = None) -> AsyncIterator[MemoryScene]:
    yield MemoryScene(MemoryBroker(SystemClock(), delivery_limit))


@asynccontextmanager
async def rabbit_scene(
    server: Server, vhost: str, form: QueueForm | None = None, **changed: float
) -> AsyncIterator[RabbitScene]:
    """A virtual host, with the settings changed as said; nobody kills its broker, so nothing need settle."""
    async with wire_to(server.host, server.port) as wire:
        settings = BrokerSettings(
            (Host("127.0.0.1", wire.port),),
            vhost,
            server.user,
            server.password,
            form=form or QueueForm(),
            **{"settle_seconds": 0.0, **changed},  # type: ignore[arg-type]  # numbers of seconds, all of them
        )
        scene = RabbitScene(wire, settings)
        try:
            yield scene
        finally:
            for client in scene.clients:
                await client.close()


async def taken(deliveries: AsyncIterator[Delivery], count: int) -> list[Delivery]:
    async with asyncio.timeout(SECONDS_MAX):
        return [await anext(deliveries) for _ in range(count)]


async def soon(ask: Callable[[], Awaitable[T]]) -> T:
    """What an answer is, once it is true of anything."""
    async with asyncio.timeout(SECONDS_MAX):
        while not (answer := await ask()):  # noqa: ASYNC110 - a server tells nobody when it is ready
            await asyncio.sleep(_POLL_SECONDS)
        return answer
