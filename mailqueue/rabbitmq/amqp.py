"""The one door to aio-pika: a connection that is made when it is needed, and its errors told as ours.

aio-pika's own robust connection knows one host, waits without end, and declares and consumes anew by itself; but a
queue is looked at before it is declared, and a consumer that was lost is to be counted and told of. So its plain
connections are used, and made anew here.
"""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    ProbableAuthenticationError,
)
from aiormq.exceptions import AuthenticationError, ChannelAccessRefused, PublishError

from mailqueue.broker_settings import BrokerSettings, Host, Tls
from model.errors import AccessDenied, BrokerUnreachable, TopologyMismatch

__all__ = [
    "LOST",
    "AbstractChannel",
    "ChannelNotFoundEntity",
    "ChannelPreconditionFailed",
    "DeliveryError",
    "Link",
    "PublishError",
    "told",
]

LOST: Final = (AMQPError, ChannelInvalidStateError, ConnectionError, asyncio.TimeoutError, OSError, RuntimeError)
"""What aio-pika raises when a connection or channel is gone, or does not answer."""

_DENIED: Final = (ProbableAuthenticationError, AuthenticationError, ChannelAccessRefused)


class Link:
    """The connection to a broker; whoever needs one after it was lost makes it anew."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._connection: AbstractConnection | None = None
        self._turn = asyncio.Lock()

    @property
    def generation(self) -> int:
        """Names the connection of now: what was declared over another may be gone."""
        return id(self._connection)

    async def channel(self, *, confirms: bool = False) -> AbstractChannel:
        """A new channel.

        Raises:
            BrokerUnreachable: nobody answers.
            AccessDenied: not to these credentials.
        """
        with told(self.settings):
            connection = await self._connected()
            async with asyncio.timeout(self.settings.answer_seconds):
                return await connection.channel(publisher_confirms=confirms, on_return_raises=confirms)

    async def close(self) -> None:
        """Close it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*LOST):
                await connection.close()

    async def _connected(self) -> AbstractConnection:
        async with self._turn:
            if self._connection is None or self._connection.is_closed:
                self._connection = await self._dialled()
            return self._connection

    async def _dialled(self) -> AbstractConnection:
        """The first host that answers; refused credentials are refused by all of them."""
        failure: BaseException = AMQPConnectionError("no host is named")
        for host in self.settings.hosts:
            try:
                return await self._dial(host)
            except _DENIED:
                raise
            except LOST as error:
                failure = error
        raise failure

    async def _dial(self, host: Host) -> AbstractConnection:
        settings = self.settings
        return await aio_pika.connect(
            host=host.name,
            port=host.port,
            virtualhost=settings.vhost,
            login=settings.username,
            password=settings.password,
            ssl=settings.tls is not None,
            ssl_context=context_of(settings.tls) if settings.tls else None,
            timeout=settings.answer_seconds,
            heartbeat=settings.heartbeat_seconds,
            client_properties={"connection_name": "mailmend"},
        )


def context_of(tls: Tls) -> ssl.SSLContext:
    """What checks the broker's certificate, and shows ours."""
    context = ssl.create_default_context(cafile=str(tls.ca) if tls.ca else None)
    if tls.certificate:
        context.load_cert_chain(str(tls.certificate), str(tls.key) if tls.key else None)
    return context


@contextmanager
def told(settings: BrokerSettings) -> Iterator[None]:
    """Turn aio-pika's errors into ours, without any secret in them.

    Raises:
        BrokerUnreachable, AccessDenied, TopologyMismatch: what was met.
    """
    try:
        yield
    except _DENIED as error:
        raise AccessDenied(
            f"the broker at {settings.place} lets {settings.username!r} not in",
            mend="Check the user, its password and its permissions on the virtual host.",
        ) from error
    except ChannelPreconditionFailed as error:
        raise TopologyMismatch(
            f"a queue or exchange at {settings.place} is there in another form: {error}",
            mend="See what it is with: rabbitmqctl list_queues name type arguments",
        ) from error
    except LOST as error:
        raise BrokerUnreachable(
            f"the broker at {settings.place} does not answer: {str(error) or type(error).__name__}",
            mend="See whether it runs, and takes connections: rabbitmqctl status",
        ) from error
