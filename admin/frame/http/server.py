"""The web server: uvicorn in the loop of another server, and the limits of its connections.

uvicorn knows no limit for a handshake of TLS, a header, a body or the life of a connection, and it
counts a silent connection as a call. So connections are accepted here. A connection that waits
gives way to a new one, and the oldest goes first: silent connections keep no client out, whatever
their number.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from mailmend.admin.frame.http.access import Listening
from mailmend.admin.frame.http.application import Api, application
from mailmend.admin.frame.http.desk import MonitoredDesk
from mailmend.model.errors import BadSettings, WrongUse
from mailmend.model.grammar import counted_address


class HttpPhase(Enum):
    """What a connection does.

    SECURING: its TLS handshake. HEADER: it waits for the whole header of a request, the first or another one. BODY: it
    waits for the body. ANSWERING: we work at the answer. SENDING: the client takes the answer.
    """

    SECURING = auto()
    HEADER = auto()
    BODY = auto()
    ANSWERING = auto()
    SENDING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections there may be, and how long a connection may take.

    Attributes:
        connections_max: at once, those included that are securing themselves. It is above the number of calls, so that
            there is room for probes.
        by_address_max: connections at once from one address.
        handshake, header, body, sending: how long a client may take for each.
        answering: how long a call may take. The answer may wait for a task (`AWAIT_MAX`).
        life: a connection that is older ends once its call is answered.
    """

    connections_max: int = 200
    by_address_max: int = 100
    handshake: timedelta = timedelta(seconds=5)
    header: timedelta = timedelta(seconds=10)
    body: timedelta = timedelta(seconds=30)
    answering: timedelta = timedelta(minutes=10)
    sending: timedelta = timedelta(minutes=1)
    life: timedelta = timedelta(hours=1)

    def of(self, phase: HttpPhase) -> timedelta:
        return {
            HttpPhase.SECURING: self.handshake,
            HttpPhase.HEADER: self.header,
            HttpPhase.BODY: self.body,
            HttpPhase.ANSWERING: self.answering,
            HttpPhase.SENDING: self.sending,
        }[phase]


CONNECTION_LIMITS: Final = ConnectionLimits()
LOOK_EVERY: Final = timedelta(seconds=1)
"""How often connections are looked at that take too long."""

_RETRY_SECONDS: Final = 1
_LOG: Final = logging.getLogger("mailmend.http")


@dataclass(slots=True, eq=False)
class HttpConnection:
    """One connection, from the moment at which it is accepted.

    Attributes:
        began_at, since: the moments at which it began, and began with its phase, in seconds of the clock.
        protocol: what speaks HTTP; None while the connection secures itself.
    """

    accepted: socket.socket
    address: str
    began_at: float
    since: float
    phase: HttpPhase = HttpPhase.SECURING
    protocol: "WatchedProtocol | None" = None
    opening: "asyncio.Task[None] | None" = None

    def look(self, now: float) -> None:
        """Note its phase, and since when it lasts."""
        phase = HttpPhase.SECURING
        if self.protocol:
            phase = self.protocol.phase
        if phase is not self.phase:
            self.phase = phase
            self.since = now

    def is_overdue(self, now: float, limits: ConnectionLimits) -> bool:
        self.look(now)
        is_old = self.phase is HttpPhase.HEADER and now - self.began_at > limits.life.total_seconds()
        return is_old or now - self.since > limits.of(self.phase).total_seconds()

    def abort(self) -> None:
        if self.protocol:
            self.protocol.transport.abort()
        elif self.opening:
            self.opening.cancel()


class WatchedProtocol(H11Protocol):
    """uvicorn's protocol of HTTP, which tells its connection what it does."""

    connection: HttpConnection
    door: "HttpDoor"

    @property
    def phase(self) -> HttpPhase:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.more_body:
                return HttpPhase.BODY
            if self.flow.write_paused:
                return HttpPhase.SENDING
            return HttpPhase.ANSWERING
        if self.transport.get_write_buffer_size():
            return HttpPhase.SENDING
        return HttpPhase.HEADER

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self.connection.protocol = self
        self.connection.look(self.door.now())

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.leave(self.connection)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.connection.look(self.door.now())

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.connection.look(self.door.now())
        self.connection.since = self.door.now()


@dataclass(slots=True, eq=False)
class HttpDoor:
    """Accepts connections, secures them, and ends those that take too long; one event loop uses it.

    Attributes:
        protocol: makes what speaks HTTP over a connection.
        tls: None: connections are not secured.
        now: seconds of a clock that never goes back.
        open: all connections, the oldest first.
    """

    protocol: Callable[[], WatchedProtocol]
    tls: ssl.SSLContext | None
    limits: ConnectionLimits
    now: Callable[[], float]
    open: dict[HttpConnection, None] = field(default_factory=dict)

    async def serve(self, place: socket.socket) -> None:
        """Accept connections of a listening socket, until it is cancelled."""
        place.setblocking(False)  # noqa: FBT003 - the library's own
        looking = asyncio.create_task(self._keep_looking())
        try:
            while True:
                await self._accept(place)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _accept(self, place: socket.socket) -> None:
        try:
            accepted, address = await asyncio.get_running_loop().sock_accept(place)
        except ConnectionError:
            return
        except OSError as error:  # no file descriptor is left, or no memory
            _LOG.error("a connection cannot be accepted", extra={"error": error.strerror or str(error)})
            self._make_room(self.open)
            await asyncio.sleep(_RETRY_SECONDS)
            return
        self.admit(accepted, str(address[0]))

    def admit(self, accepted: socket.socket, address: str) -> None:
        """Let a connection in; where there are too many, one that waits gives way, else the new one."""
        address = counted_address(address)
        theirs = [connection for connection in self.open if connection.address == address]
        is_admitted = len(theirs) < self.limits.by_address_max or self._make_room(theirs)
        if is_admitted and len(self.open) >= self.limits.connections_max:
            is_admitted = self._make_room(self.open)
        if not is_admitted:
            accepted.close()
            return
        now = self.now()
        connection = HttpConnection(accepted, address, began_at=now, since=now)
        self.open[connection] = None
        connection.opening = asyncio.create_task(self._open(connection))
        connection.opening.add_done_callback(lambda _: self._has_opened(connection))

    def _make_room(self, among: "Mapping[HttpConnection, None] | list[HttpConnection]") -> bool:
        """End the connection that waits for its client the longest; False where each is being answered."""
        now = self.now()
        for connection in among:
            connection.look(now)
        waiting = [connection for connection in among if connection.phase is not HttpPhase.ANSWERING]
        if not waiting:
            return False
        longest = min(waiting, key=lambda connection: connection.since)
        longest.abort()
        self.leave(longest)
        return True

    async def _open(self, connection: HttpConnection) -> None:
        def protocol() -> WatchedProtocol:
            made = self.protocol()
            made.connection = connection
            made.door = self
            return made

        seconds: dict[str, Any] = {}
        if self.tls:
            seconds["ssl_handshake_timeout"] = self.limits.handshake.total_seconds()
            seconds["ssl_shutdown_timeout"] = self.limits.handshake.total_seconds()
        with suppress(OSError):  # the handshake failed, or took too long
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol, connection.accepted, ssl=self.tls, **seconds
            )

    def _has_opened(self, connection: HttpConnection) -> None:
        """Called also where the opening was cancelled before it began."""
        if connection.protocol is None:
            self.leave(connection)
            connection.accepted.close()

    def leave(self, connection: HttpConnection) -> None:
        self.open.pop(connection, None)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            self.end_overdue()

    def end_overdue(self) -> None:
        """End connections that take too long."""
        now = self.now()
        for connection in tuple(self.open):
            if connection.is_overdue(now, self.limits):
                connection.abort()
                self.leave(connection)

    async def close(self) -> None:
        """End what is still securing itself."""
        opening = [connection.opening for connection in self.open if connection.opening]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)


BACKLOG = 200
ENDING_SECONDS = 5
"""How long running calls may take once the server is asked to stop; callers that await a task are sent away."""


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def listen(api: Api, listening: Listening, desk: MonitoredDesk, stop: asyncio.Event) -> None:
    """Answer until the event.

    Raises:
        WrongUse: the address cannot be listened on.
        BadSettings: the certificate, or its key, is not valid.
    """
    server = HttpServer(api, listening, desk)
    with closing(_bound(listening)) as place:
        await server.serve(place, stop)


class HttpServer:
    """Answers calls that come to a listening socket.

    Attributes:
        door: its connections.
    """

    def __init__(
        self,
        api: Api,
        listening: Listening,
        desk: MonitoredDesk,
        limits: ConnectionLimits = CONNECTION_LIMITS,
        now: Callable[[], float] | None = None,
    ) -> None:
        config = _config(application(api, desk, listening.access), listening)
        self._uvicorn = _Uvicorn(config)
        state = self._uvicorn.server_state

        def protocol() -> WatchedProtocol:
            return WatchedProtocol(config=config, server_state=state, app_state={})

        self.door = HttpDoor(protocol, config.ssl, limits, now or asyncio.get_running_loop().time)

    async def serve(self, place: socket.socket, stop: asyncio.Event) -> None:
        """Answer until the event; calls that are under way then have `ENDING_SECONDS`."""
        serving = asyncio.create_task(self._uvicorn.serve(sockets=[]))
        accepting = asyncio.create_task(self.door.serve(place))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((serving, accepting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        accepting.cancel()
        ended = await asyncio.gather(accepting, return_exceptions=True)
        await self.door.close()
        self._uvicorn.should_exit = True
        await serving
        if isinstance(ended[0], Exception):
            raise ended[0]


def _config(app: FastAPI, listening: Listening) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",  # errors are logged by the application, without tracebacks
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        http=WatchedProtocol,
        timeout_graceful_shutdown=ENDING_SECONDS,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
    )
    try:
        config.load()
    except (ssl.SSLError, OSError) as error:
        raise BadSettings(
            f"{listening.certificate} and {listening.key} cannot be used: {error.strerror or error}",
            mend="They are a certificate and its key, in PEM, without a password.",
        ) from error
    return config


def _bound(listening: Listening) -> socket.socket:
    try:
        found = socket.getaddrinfo(listening.host, listening.port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise WrongUse(
            f"cannot listen on {listening.host} port {listening.port}: {error.strerror or error}",
            mend="Is another server there? Name another port.",
        ) from error
