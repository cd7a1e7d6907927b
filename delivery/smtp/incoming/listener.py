"""The way into a queue: a server that takes mails by SMTP or LMTP.

A mail is answered with 250 once it is in the queue for good, and with 451 where the queue does not take it: whatever
happens in between, the client still has the mail, and at worst hands it over twice.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from mailmend.delivery.metrics import listener_samples, quota_samples
from mailmend.delivery.settings import LEAVING, ListenAddress, ListenerSettings
from mailmend.delivery.smtp.incoming import replies
from mailmend.delivery.smtp.incoming.client_connections import ClientConnection, ClientConnections
from mailmend.delivery.smtp.incoming.intake import MailIntake
from mailmend.delivery.smtp.incoming.listener_tls import ListenerTls
from mailmend.mailqueue.background import paused
from mailmend.mailqueue.queue import MailQueue
from mailmend.model.errors import WrongUse
from mailmend.model.metrics import MetricSample
from mailmend.model.ports import Clock


@dataclass(slots=True, kw_only=True, eq=False)
class MailListener:
    """Takes mails from clients and puts them into a queue, until it is asked to stop; one event loop uses it.

    Attributes:
        places: where it listens, with the ports that the system chose.
        tls: of clients that ask for it, or connect where all is secured; None: nothing is.
        intake: what becomes of the mails.
    """

    queue: MailQueue
    clock: Clock
    settings: ListenerSettings
    tls: ListenerTls | None = None
    places: tuple[ListenAddress, ...] = ()
    intake: MailIntake = field(init=False)
    connections: ClientConnections = field(init=False)
    _servers: list[asyncio.Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.intake = MailIntake(queue=self.queue, clock=self.clock, host_name=self.settings.host_name)
        self.connections = ClientConnections(self.settings, self.intake, self.tls)

    async def open(self) -> None:
        """Begin to listen, at all addresses or at none.

        Raises:
            WrongUse: an address is not one of this machine, is in use, needs other rights, or needs a certificate.
        """
        try:
            for place in self.settings.addresses:
                self._servers.append(await self._opened(place))
        except BaseException:
            self._deafen()
            raise
        places = list[ListenAddress]()
        for server, place in zip(self._servers, self.settings.addresses, strict=True):
            for socket in server.sockets:
                host, port, *_ = socket.getsockname()
                places.append(replace(place, host=host, port=port))
        self.places = tuple(places)

    async def serve(self, stop: asyncio.Event) -> None:
        """Take mails until asked to stop; those whose bytes are coming then have some time to end."""
        counting = asyncio.ensure_future(self.intake.quotas.keep_current(stop))
        try:
            await stop.wait()
        finally:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
            await self._close()

    async def _opened(self, place: ListenAddress) -> asyncio.Server:
        def connected() -> ClientConnection:
            return ClientConnection(self.connections, place.protocol, secured=place.secured)

        if place.secured and not self.tls:
            raise WrongUse(f"there is no certificate for {place}", mend="Name one, and its key.")
        try:
            return await asyncio.get_running_loop().create_server(connected, place.host, place.port)
        except OSError as error:
            why = error.strerror or str(error)
            raise WrongUse(
                f"mails cannot be taken at {place}: {why}",
                mend="Name an address of this machine and a port that no other program has; below 1024 needs rights.",
            ) from error

    def samples(self) -> Iterable[MetricSample]:
        """What monitoring is told of the present moment."""
        connections = self.connections
        yield from listener_samples(self.queue.name, self.intake.taken, connections.refused, len(connections.open))
        quotas = self.intake.quotas
        if quotas.usage.quotas:
            yield from quota_samples(self.queue.name, quotas.usage, quotas.counted_micros)

    # The end

    def _deafen(self) -> None:
        self.connections.stopping = True
        for server in self._servers:
            server.close()

    async def _close(self) -> None:
        """Listen no more; let mails end whose bytes are coming, for a while, and tell the others to come later."""
        self._deafen()
        self._dismiss(connection for connection in self.connections.open if not connection.has_mail)
        await self._until_gone(self.settings.grace)
        self._dismiss(self.connections.open)
        await self._until_gone(LEAVING)
        for connection in tuple(self.connections.open):
            connection.abort()
        await self.intake.close()

    def _dismiss(self, connections: Iterable[ClientConnection]) -> None:
        for connection in tuple(connections):
            connection.end(replies.STOPPING)

    async def _until_gone(self, limit: timedelta) -> None:
        until = self.clock.monotonic() + limit.total_seconds()
        changed = self.intake.changed
        while (self.connections.open or self.intake.is_busy) and (left := until - self.clock.monotonic()) > 0:
            changed.clear()
            await paused(self.clock, timedelta(seconds=left), changed)
