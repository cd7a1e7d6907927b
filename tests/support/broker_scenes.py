"""A broker as the conformance suite sees it: clients of it, and connections that break, behind each adapter."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from mailmend.mailqueue.broker import Broker, Delivery
from mailmend.mailqueue.rabbitmq.broker.adapter import RabbitBroker
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Host, QueueForm
from mailmend.repair.clock import SystemClock
from tests.support.brokers import Broker as Server
from tests.support.memory_broker import MemoryBroker

_CHUNK_BYTES = 65536


class NetworkWire:
    """Passes bytes on between whoever connects to `port` and the server behind it, both in this event loop."""

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._ends: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._answers = asyncio.Event()
        self._answers.set()
        self.port = 0
        self.dials = 0
        """How many connections were made over it."""
        self.sent_bytes = 0
        """How much clients sent."""
        self.dead = False
        """Whether whoever connects is hung up on at once."""

    def cut(self) -> None:
        for end in tuple(self._ends):
            end.transport.abort()

    def hold_answers(self) -> None:
        """What the server says is kept back until `let_answers`; what clients say is passed on."""
        self._answers.clear()

    def let_answers(self) -> None:
        self._answers.set()

    async def end(self) -> None:
        self.let_answers()
        self.cut()
        for task in tuple(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dials += 1
        self._ends.add(writer)
        if self.dead:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._behind)
        except OSError:
            writer.transport.abort()
            return
        self._ends.add(server_writer)
        for passing in (self._there(reader, server_writer, writer), self._back(server_reader, writer, server_writer)):
            task = asyncio.ensure_future(passing)
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _there(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, end: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK_BYTES):
                self.sent_bytes += len(chunk)
                sink.write(chunk)
                await sink.drain()
        self._hang_up(sink, end)

    async def _back(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, end: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK_BYTES):
                await self._answers.wait()
                sink.write(chunk)
                await sink.drain()
        self._hang_up(sink, end)

    def _hang_up(self, *ends: asyncio.StreamWriter) -> None:
        for end in ends:
            self._ends.discard(end)
            end.close()


@asynccontextmanager
async def wire_to(host: str, port: int) -> AsyncIterator[NetworkWire]:
    wire = NetworkWire(host, port)
    server = await asyncio.start_server(wire.connected, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        await wire.end()
        await server.wait_closed()


T = TypeVar("T")

SECONDS_MAX = 20.0
_POLL_SECONDS = 0.02


class Scene(Protocol):
    """A broker that nobody has used yet."""

    def client(self) -> Broker: ...

    def cut(self) -> None: ...


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

    wire: NetworkWire
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


async def soon(ask: Callable[[], Awaitable[T]], poll_seconds: float = _POLL_SECONDS) -> T:
    async with asyncio.timeout(SECONDS_MAX):
        while not (answer := await ask()):  # noqa: ASYNC110 - a server tells nobody when it is ready
            await asyncio.sleep(poll_seconds)
        return answer
