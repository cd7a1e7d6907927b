"""The way into a queue: a server that takes mails by SMTP or LMTP.

A mail is answered with 250 once it is in the queue for good, and with 451 where the queue does not
take it: whatever happens in between, the client still has the mail, and at worst hands it over
twice.
"""

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from mailmend.delivery.metrics import listener_samples, quota_samples
from mailmend.delivery.settings import LEAVING, ListenAddress, ListenerSettings
from mailmend.delivery.smtp.incoming import replies
from mailmend.delivery.smtp.incoming.client_connections import ClientConnection
from mailmend.delivery.smtp.incoming.client_places import ClientConnections
from mailmend.delivery.smtp.incoming.intake import MailIntake
from mailmend.delivery.smtp.incoming.open_places import OpenPlace, accept_from, not_listening
from mailmend.delivery.smtp.incoming.users import ListenerUsers
from mailmend.mailqueue.concurrency import paused
from mailmend.mailqueue.queue import MailQueue
from mailmend.model.errors import WrongUse
from mailmend.model.metrics import MetricSample
from mailmend.model.ports import Clock


@dataclass(slots=True, kw_only=True)
class ListenerTls:
    """The files of a listener's certificate, and what is made of them.

    Attributes:
        certificate: with the certificates between it and its authority behind it.
        authority: who signs the certificates that clients have to show; None: they show none.
        context: for all connections; each gets the certificate that was read last.
    """

    certificate: Path
    key: Path
    authority: Path | None = None
    context: ssl.SSLContext = field(init=False)
    _newest: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        """Reads the files.

        Raises:
            WrongUse: they cannot be read, or do not belong together.
        """
        self.context = self._newest = self._read()
        self.context.sni_callback = self._give_newest

    def read_again(self) -> None:
        """Use what the files hold now, for connections that begin from now on.

        Raises:
            WrongUse: it cannot be used; what was read before stays.
        """
        self._newest = self._read()

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate.expanduser(), self.key.expanduser(), _no_password)
        except (OSError, ssl.SSLError) as error:
            raise WrongUse(
                f"the certificate {self.certificate} cannot be used with the key {self.key}: {_reason(error)}",
                mend="Both have to be PEM files, of one pair, and the key without a password.",
            ) from error
        if self.authority:
            try:
                context.load_verify_locations(self.authority.expanduser())
            except (OSError, ssl.SSLError) as error:
                raise WrongUse(f"the certificates in {self.authority} cannot be read: {_reason(error)}") from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _give_newest(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        """Called in every handshake, whether the client names a server or not."""
        connection.context = self._newest


def _no_password() -> str:
    """Asked for only where the key has one: else OpenSSL would ask the terminal."""
    return ""


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


@dataclass(slots=True, kw_only=True, eq=False)
class MailListener:
    """Takes mails from clients and puts them into a queue, until it is asked to stop; one event loop uses it.

    Attributes:
        places: where it listens, with the ports that the system chose.
        tls: of clients that ask for it, or connect where all is secured; None: nothing is.
        users: who may log in; None: no client does.
        opened: the sockets of all addresses, where the process shares them with others; none: it
            opens its own.
        intake: what becomes of the mails.
    """

    queue: MailQueue
    clock: Clock
    settings: ListenerSettings
    tls: ListenerTls | None = None
    users: ListenerUsers | None = None
    places: tuple[ListenAddress, ...] = ()
    opened: tuple[OpenPlace, ...] = ()
    intake: MailIntake = field(init=False)
    connections: ClientConnections = field(init=False)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _accepting: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.intake = MailIntake(queue=self.queue, clock=self.clock, host_name=self.settings.host_name)
        tls = None
        if self.tls:
            tls = self.tls.context
        self.connections = ClientConnections(self.settings, self.intake, tls, self.users)

    async def open(self) -> None:
        """Begin to listen, at all addresses or at none.

        Raises:
            WrongUse: an address is not one of this machine, is in use, needs other rights, or needs
                a certificate.
        """
        opened = self.opened
        if opened:
            self._accept(opened)
        else:
            opened = await self._open_all()
        places = list[ListenAddress]()
        for place in opened:
            for socket in place.sockets:
                host, port, *_ = socket.getsockname()
                places.append(replace(place.address, host=host, port=port))
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

    def _accept(self, opened: Iterable[OpenPlace]) -> None:
        for place in opened:
            connected = partial(self._connected, place.address)
            for socket in place.sockets:
                accepting = accept_from(socket, connected, lambda: self.connections.are_full)
                self._accepting.append(asyncio.ensure_future(accepting))

    async def _open_all(self) -> tuple[OpenPlace, ...]:
        opened = list[OpenPlace]()
        try:
            for address in self.settings.addresses:
                server = await self._opened(address)
                self._servers.append(server)
                opened.append(OpenPlace(address, server.sockets))
        except BaseException:
            self._deafen()
            raise
        return tuple(opened)

    async def _opened(self, place: ListenAddress) -> asyncio.Server:
        if place.secured and not self.tls:
            raise WrongUse(f"there is no certificate for {place}", mend="Name one, and its key.")
        connected = partial(self._connected, place)
        try:
            return await asyncio.get_running_loop().create_server(connected, place.host, place.port)
        except OSError as error:
            raise not_listening(place, error) from error

    def _connected(self, place: ListenAddress) -> ClientConnection:
        return ClientConnection(self.connections, place.protocol, secured=place.secured)

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
        for accepting in self._accepting:
            accepting.cancel()

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
