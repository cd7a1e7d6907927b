"""Connections of a server's HTTP side on loopback: silent ones, slow ones and many keep nobody out."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.frame.http.access import LIMITS_ABOUT, Access, Listening, parse_tokens
from mailmend.admin.frame.http.application import CALLS_AT_ONCE, CALLS_BY_ADDRESS, PROBES_AT_ONCE, CallLimit
from mailmend.admin.frame.http.server import CONNECTION_LIMITS, ConnectionLimits, HttpConnection, HttpPhase, HttpServer
from mailmend.admin.jobs.http import JOBS
from tests.support.certificates import Authority, Signed, authority
from tests.support.task_desk import TaskWorld

HOST, LIMIT_SECONDS = "127.0.0.1", 20.0
TOKEN = "r" * 32
PROBE = b"GET /healthcheck HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BODY = b"POST /messages?task=SolveInconsistencies HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n"


@pytest.fixture
def world(tmp_path: Path) -> TaskWorld:
    return TaskWorld(tmp_path)


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture(scope="module")
def own(signer: Authority) -> Signed:
    return signer.signed("server", f"IP:{HOST}")


@dataclass
class Client:
    """A connection to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def status(self) -> int:
        """Of the next answer; 0 once the connection has ended."""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                head = await self.reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length"))
                await self.reader.readexactly(int(length.split(b":")[1]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        return int(head.split()[1])

    async def asks(self, request: bytes) -> int:
        self.writer.write(request)
        return await self.status()


@dataclass
class Site:
    """A server, and the clock that a test sets ahead."""

    server: HttpServer
    port: int
    tls: ssl.SSLContext | None = None
    at: float = 0.0
    clients: list[Client] = field(default_factory=list)

    @property
    def phases(self) -> list[HttpPhase]:
        for connection in self.server.door.open:
            connection.look(self.at)
        return [connection.phase for connection in self.server.door.open]

    async def client(self, *, secured: bool = False) -> Client:
        made = Client(*await asyncio.open_connection(HOST, self.port, ssl=self.tls if secured else None))
        self.clients.append(made)
        return made

    async def silent(self, count: int) -> list[Client]:
        """Clients that say nothing, each once the server knows of it."""
        made = list[Client]()
        for _ in range(count):
            newest = list(self.server.door.open)[-1:]
            made.append(await self.client())
            async with asyncio.timeout(LIMIT_SECONDS):
                while list(self.server.door.open)[-1:] == newest:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0)
        return made

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not condition():  # noqa: ASYNC110 - nothing tells when it holds
                await asyncio.sleep(0)

    def passes(self, seconds: float) -> None:
        self.at += seconds
        self.server.door.end_overdue()


@asynccontextmanager
async def serving(
    world: TaskWorld, listening: Listening, limits: ConnectionLimits = CONNECTION_LIMITS
) -> AsyncIterator[Site]:
    stop = asyncio.Event()
    with socket.create_server((HOST, 0), backlog=300) as place:
        server = HttpServer(JOBS, listening, world.desk, limits, lambda: site.at)
        site = Site(server, place.getsockname()[1])
        task = asyncio.create_task(server.serve(place, stop))
        try:
            yield site
        finally:
            for client in site.clients:
                client.writer.transport.abort()
            stop.set()
            await task


PLAIN = Listening(HOST, 0)


async def test_silent_connections_keep_nobody_out(world: TaskWorld) -> None:
    """More than there may be, from the address that then asks: the oldest of them give way."""
    async with serving(world, PLAIN) as site:
        silent = await site.silent(CONNECTION_LIMITS.by_address_max + 20)
        asking = await site.client()
        assert await asking.asks(PROBE) == 200
        assert len(site.server.door.open) == CONNECTION_LIMITS.by_address_max
        assert [await client.status() for client in silent[:21]] == [0] * 21
        assert await silent[21].asks(PROBE) == 200


async def test_silent_connections_keep_nobody_out_of_tls_and_tokens(
    world: TaskWorld, signer: Authority, own: Signed
) -> None:
    """A handshake that does not begin holds a place no better than a header that does not come."""
    tokens = Access(parse_tokens([f"watcher read {TOKEN}"], "tokens"))
    limits = replace(CONNECTION_LIMITS, by_address_max=4)
    async with serving(world, Listening(HOST, 0, tokens, own.certificate, own.key), limits) as site:
        site.tls = ssl.create_default_context(cafile=signer.file)
        silent = await site.silent(6)
        asking = await site.client(secured=True)
        assert await asking.asks(PROBE) == 200
        metrics = f"GET /metrics HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        assert await asking.asks(metrics.encode()) == 200
        assert site.phases == [HttpPhase.SECURING] * 3 + [HttpPhase.HEADER]
        assert [await client.status() for client in silent[:3]] == [0] * 3


async def test_a_client_that_speaks_plainly_to_tls_leaves_nothing_behind(world: TaskWorld, own: Signed) -> None:
    async with serving(world, Listening(HOST, 0, Access(), own.certificate, own.key)) as site:
        (client,) = await site.silent(1)
        assert await client.asks(PROBE) == 0
        await site.until(lambda: not site.server.door.open)


@pytest.mark.parametrize(
    ("sent", "phase", "seconds"),
    [
        (b"", HttpPhase.HEADER, 10),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ", HttpPhase.HEADER, 10),
        (BODY, HttpPhase.BODY, 30),
        (BODY + b"12345", HttpPhase.BODY, 30),
    ],
)
async def test_a_request_has_to_come_in_time(world: TaskWorld, sent: bytes, phase: HttpPhase, seconds: int) -> None:
    """Bytes that drip do not extend it. The route reads no body: it answers late, so that the body could come."""
    answers = asyncio.Event()

    async def late(call: Callable[..., Any], *given: Any) -> Any:
        await answers.wait()
        return call(*given)

    world.desk = replace(world.desk, apart=late)
    async with serving(world, PLAIN) as site:
        (client,) = await site.silent(1)
        client.writer.write(sent)
        await site.until(lambda: site.phases == [phase])
        site.passes(seconds - 1)
        client.writer.write(b"x")
        await asyncio.sleep(0)
        site.passes(1)
        assert len(site.server.door.open) == 1
        site.passes(1)
        assert not site.server.door.open
        assert await client.status() == 0
        answers.set()


async def test_a_connection_may_be_used_again_for_a_while(world: TaskWorld) -> None:
    """Each header has its time anew, until the connection has reached its life."""
    async with serving(world, PLAIN, replace(CONNECTION_LIMITS, life=timedelta(seconds=24))) as site:
        (client,) = await site.silent(1)
        for _ in range(3):
            site.passes(8)
            assert await client.asks(PROBE) == 200
        assert len(site.server.door.open) == 1
        site.passes(1)
        assert await client.status() == 0


async def test_a_call_that_waits_for_a_task_is_not_ended_in_favour_of_others(
    world: TaskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new connection is closed where each of its address is being answered."""
    task = await world.desk.submit("SolveInconsistencies", {}, "")
    waits = f"GET /tasks/{task.id}/await HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    limits = replace(CONNECTION_LIMITS, by_address_max=2)
    release, pause = asyncio.Event(), world.clock.pause

    async def held_up(seconds: float) -> None:
        await release.wait()
        await pause(seconds)

    monkeypatch.setattr(world.clock, "pause", held_up)
    async with serving(world, PLAIN, limits) as site:
        calls = await site.silent(2)
        for call in calls:
            call.writer.write(waits)
        await site.until(lambda: site.phases == [HttpPhase.ANSWERING] * 2)
        assert await (await site.client()).status() == 0
        site.passes(599)
        assert len(site.server.door.open) == 2
        site.passes(2)
        assert not site.server.door.open
        release.set()


async def test_nothing_waits_for_a_task_once_its_client_has_left(
    world: TaskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So calls whose clients left keep nobody out."""
    task = await world.desk.submit("SolveInconsistencies", {}, "")
    began = asyncio.Event()

    async def held_up(_: float) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(world.clock, "pause", held_up)
    async with serving(world, PLAIN) as site:
        (client,) = await site.silent(1)
        client.writer.write(f"GET /tasks/{task.id}/await HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await asyncio.wait_for(began.wait(), LIMIT_SECONDS)
        calls = site.server._uvicorn.server_state.tasks
        assert len(calls) == 1
        client.writer.transport.abort()
        await site.until(lambda: not calls)


async def test_an_answer_has_to_be_taken_in_time(world: TaskWorld) -> None:
    """A client that asks on and on without reading ends within a minute."""
    async with serving(world, PLAIN) as site:
        (client,) = await site.silent(1)
        client.writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: a.example\r\n\r\n" * 2000)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(500):  # until all buffers on the way are full
            await asyncio.sleep(0)
        await site.until(lambda: site.phases == [HttpPhase.SENDING])
        site.passes(59)
        assert len(site.server.door.open) == 1
        site.passes(2)
        assert not site.server.door.open


async def test_connections_of_other_addresses_leave_room(world: TaskWorld) -> None:
    """Over all addresses the one that waits the longest gives way."""
    async with serving(world, PLAIN, replace(CONNECTION_LIMITS, connections_max=2)) as site:
        door = site.server.door
        ours = [socket.socketpair() for _ in range(3)]
        for number, (accepted, _) in enumerate(ours):
            accepted.setblocking(False)
            door.admit(accepted, f"192.0.2.{number}")
            site.at += 1
        assert [connection.address for connection in door.open] == ["192.0.2.1", "192.0.2.2"]
        for _, other in ours:
            other.close()


def test_each_phase_has_its_limit() -> None:
    """A connection is overdue once it does one thing for longer."""
    for phase in HttpPhase:
        connection = HttpConnection(socket.socket(), HOST, began_at=0.0, since=0.0, phase=HttpPhase.SECURING)
        connection.accepted.close()
        limit = CONNECTION_LIMITS.of(phase).total_seconds()
        if phase is HttpPhase.SECURING:
            assert [connection.is_overdue(at, CONNECTION_LIMITS) for at in (limit, limit + 1)] == [False, True]
        assert 0 < limit <= 600


# Calls


async def test_calls_leave_room_for_probes_and_for_other_addresses() -> None:
    """Of 50 of one address, of 100 over all; a probe is answered beside them."""
    goes_on, answered = asyncio.Event(), list[tuple[str, int]]()

    async def app(scope: dict[str, object], _receive: object, send: Callable[..., object]) -> None:
        await goes_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[misc]

    limit = CallLimit(app)  # type: ignore[arg-type]

    async def call(address: str, path: str) -> None:
        async def send(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                answered.append((f"{address}{path}", int(str(message["status"]))))

        scope = {"type": "http", "path": path, "client": (address, 1), "method": "GET", "headers": []}
        await limit(scope, None, send)  # type: ignore[arg-type]

    wanted = [("192.0.2.1", "/tasks", CALLS_BY_ADDRESS + 1), ("192.0.2.2", "/tasks", CALLS_BY_ADDRESS)]
    wanted += [("192.0.2.3", "/tasks", 1), ("192.0.2.1", "/metrics", PROBES_AT_ONCE + 1), ("192.0.2.1", "/ready", 1)]
    tasks = [asyncio.create_task(call(address, path)) for address, path, count in wanted for _ in range(count)]
    while len(answered) < 3:  # noqa: ASYNC110 - those that are refused
        await asyncio.sleep(0)
    refused, answered[:] = list(answered), []
    goes_on.set()
    await asyncio.gather(*tasks)
    await call("192.0.2.1", "/tasks")

    assert refused == [("192.0.2.1/tasks", 503), ("192.0.2.3/tasks", 503), ("192.0.2.1/metrics", 503)]
    assert {status for _, status in answered} == {200}
    assert len(answered) == CALLS_AT_ONCE + PROBES_AT_ONCE + 1 + 1


def test_the_help_names_the_limits_that_hold() -> None:
    limits = CONNECTION_LIMITS
    assert f"{limits.connections_max} connections, {limits.by_address_max} of one address" in LIMITS_ABOUT
    assert f"{CALLS_AT_ONCE} calls at once, {CALLS_BY_ADDRESS} of one address" in LIMITS_ABOUT
