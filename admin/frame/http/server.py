"""The web server: uvicorn in the loop of another server, whose signals are not its own."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import uvicorn
from fastapi import FastAPI

from mailmend.admin.delivery.desk import DeliveryDesk
from mailmend.admin.frame.http.access import Listening
from mailmend.admin.frame.http.application import Api, application
from mailmend.admin.frame.http.connections import CONNECTION_LIMITS, ConnectionLimits, HttpDoor, WatchedProtocol
from mailmend.admin.jobs.tasks import TaskDesk
from mailmend.model.errors import BadSettings, WrongUse

BACKLOG = 200
ENDING_SECONDS = 5
"""How long running calls may take once the server is asked to stop; callers that await a task are sent away."""


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def listen(api: Api, listening: Listening, desk: TaskDesk | DeliveryDesk, stop: asyncio.Event) -> None:
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
        desk: TaskDesk | DeliveryDesk,
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
