"""The way into a queue: a server that takes mails by SMTP or LMTP. The one door to aiosmtpd.

A mail is answered with 250 once it is in the queue for good, and with 451 where the queue does not take it: whatever
happens in between, the client still has the mail, and at worst hands it over twice. Its bytes end with a line of one
dot between CR LF alone; a bare CR or LF is a byte like any other, so nothing behind it is taken for a command.

aiosmtpd reads commands and keeps time; what they say, and all that is answered to mails, is here. Its own log names
addresses and lines of mails, so it is silent.
"""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from aiosmtpd.smtp import SMTP

from delivery import replies
from delivery.reception import (
    MailOrigin,
    NamedRecipient,
    NamedSender,
    goes_in_a_circle,
    incoming_mail,
    received_field,
    recipient_in,
    sender_in,
    too_large,
)
from delivery.settings import ListenAddress, ListenerSettings
from mailqueue.background import paused
from mailqueue.queue import MailQueue
from model.delivery.attempts import DeliveryProtocol, SmtpReply
from model.errors import MailmendError, WrongUse
from model.instants import instant_of
from model.ports import Clock
from model.queue.mails import Mail

_COMMAND_BYTES_MAX: Final = 1001
_LEAVING: Final = timedelta(seconds=2)
"""How long a client may take to take what was said to it last."""


_LOG: Final = logging.getLogger("mailmend.delivery")
logging.getLogger("mail.log").setLevel(logging.CRITICAL + 1)


@dataclass(slots=True, kw_only=True, eq=False)
class MailListener:
    """Takes mails from clients and puts them into a queue, until it is asked to stop; one event loop uses it.

    Attributes:
        places: where it listens, with the ports that the system chose.
        bytes_held: of mails that are coming or are being put into the queue, over all connections.
    """

    queue: MailQueue
    clock: Clock
    settings: ListenerSettings
    places: tuple[ListenAddress, ...] = ()
    stopping: bool = False
    bytes_held: int = 0
    _servers: list[asyncio.Server] = field(default_factory=list)
    _connections: "set[_Connection]" = field(default_factory=set)
    _puts: set[asyncio.Task[SmtpReply]] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self) -> None:
        """Begin to listen, at all addresses or at none.

        Raises:
            WrongUse: an address is not one of this machine, is in use, or needs other rights.
        """
        try:
            for place in self.settings.addresses:
                self._servers.append(await self._opened(place))
        except BaseException:
            self._deafen()
            raise
        self.places = tuple(
            ListenAddress(socket.getsockname()[0], socket.getsockname()[1], place.protocol)
            for server, place in zip(self._servers, self.settings.addresses, strict=True)
            for socket in server.sockets
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Take mails until asked to stop; those whose bytes are coming then have some time to end."""
        try:
            await stop.wait()
        finally:
            await self._close()

    async def _opened(self, place: ListenAddress) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_server(lambda: _Connection(self, place.protocol), place.host, place.port)
        except OSError as error:
            why = error.strerror or str(error)
            raise WrongUse(
                f"mails cannot be taken at {place}: {why}",
                mend="Name an address of this machine and a port that no other program has; below 1024 needs rights.",
            ) from error

    # What connections ask

    def joins(self, connection: "_Connection") -> SmtpReply | None:
        """Count a connection; a reply where there is no room for it."""
        if self.stopping:
            return replies.STOPPING
        if len(self._connections) >= self.settings.connections_max:
            return replies.CROWDED
        self._connections.add(connection)
        return None

    def leaves(self, connection: "_Connection") -> None:
        self._connections.discard(connection)
        self._changed.set()

    def moved(self) -> None:
        """A mail of a connection has ended."""
        self._changed.set()

    async def take(
        self, sender: NamedSender, recipients: list[NamedRecipient], origin: MailOrigin, content: bytes
    ) -> SmtpReply:
        """Put a mail into the queue; a client that leaves meanwhile changes nothing."""
        if goes_in_a_circle(content):
            return replies.CIRCLE
        mail_id, at = str(self.clock.random_uuid()), instant_of(self.clock.micros())
        mail = incoming_mail(mail_id, sender, recipients, origin, at)
        whole = received_field(origin, self.settings.host_name, mail_id, at) + content
        put = asyncio.ensure_future(self._put(mail, whole))
        self._puts.add(put)
        put.add_done_callback(self._has_put)
        return await asyncio.shield(put)

    def _has_put(self, put: asyncio.Task[SmtpReply]) -> None:
        self._puts.discard(put)
        self._changed.set()

    async def _put(self, mail: Mail, content: bytes) -> SmtpReply:
        fields = {"client": mail.remote_addr, "recipients": len(mail.recipients), "bytes": len(content)}
        try:
            enqueue_id = await self.queue.enqueue(mail, content)
        except MailmendError as error:
            _LOG.warning("a mail was not taken", extra={**fields, "error": str(error)})
            return replies.LATER
        except Exception:  # noqa: BLE001 - whatever it is, the client keeps the mail
            _LOG.exception("a mail was not taken", extra=fields)
            return replies.LATER
        _LOG.info("a mail was taken", extra={"mail": str(enqueue_id), **fields})
        return SmtpReply(250, "2.0.0", f"taken as {enqueue_id}", ours=True)

    # The end

    def _deafen(self) -> None:
        self.stopping = True
        for server in self._servers:
            server.close()

    async def _close(self) -> None:
        """Listen no more; let mails end whose bytes are coming, for a while, and tell the others to come later."""
        self._deafen()
        self._dismiss(one for one in self._connections if not one.has_mail)
        await self._until_gone(self.settings.grace)
        self._dismiss(self._connections)
        await self._until_gone(_LEAVING)
        for one in tuple(self._connections):
            one.abort()
        for put in tuple(self._puts):
            put.cancel()
        await asyncio.gather(*self._puts, return_exceptions=True)

    def _dismiss(self, connections: "Iterable[_Connection]") -> None:
        for one in tuple(connections):
            one.end(replies.STOPPING)

    async def _until_gone(self, limit: timedelta) -> None:
        until = self.clock.monotonic() + limit.total_seconds()
        while (self._connections or self._puts) and (left := until - self.clock.monotonic()) > 0:
            self._changed.clear()
            await paused(self.clock, timedelta(seconds=left), self._changed)


class _Connection(SMTP):
    """One client's: what it has said so far of its next mail.

    Attributes:
        has_mail: whether the bytes of a mail are coming, or it is being put into the queue.
    """

    command_size_limit = _COMMAND_BYTES_MAX
    command_size_limits: dict[str, int] = defaultdict(lambda: _COMMAND_BYTES_MAX)  # noqa: RUF012 - as aiosmtpd's is

    def __init__(self, listener: MailListener, protocol: DeliveryProtocol) -> None:
        self._listener, self._settings = listener, listener.settings
        self._lmtp = protocol is DeliveryProtocol.LMTP
        self._sender: NamedSender | None = None
        self._recipients = list[NamedRecipient]()
        self._client = ""
        self._held, self._ends_by = 0, math.inf
        self.has_mail = False
        self._heard_at = asyncio.get_running_loop().time()
        super().__init__(
            None,
            enable_SMTPUTF8=True,  # commands are read as UTF-8, so that an address beyond ASCII is refused by name
            hostname=self._settings.host_name,
            ident=f"{'LMTP' if self._lmtp else 'ESMTP'} mailmend",
            timeout=self._settings.idle_max.total_seconds(),
            loop=asyncio.get_running_loop(),
        )

    # The connection

    def connection_made(self, transport: Any) -> None:
        peer = transport.get_extra_info("peername")
        self._client = str(peer[0]) if peer else ""
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leaves(self)
        self._release()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)

    def end(self, reply: SmtpReply) -> None:
        """Say this, and close the connection."""
        transport: Any = self.transport
        if transport is not None and not transport.is_closing():
            transport.write(f"{reply}\r\n".encode())
            transport.close()
            self.loop.call_later(_LEAVING.total_seconds(), transport.abort)

    def abort(self) -> None:
        transport: Any = self.transport
        if transport is not None:
            transport.abort()

    async def _handle_client(self) -> None:
        if refusal := self._listener.joins(self):
            self.end(refusal)
            return
        with suppress(ConnectionError):
            await super()._handle_client()

    def _timeout_cb(self) -> None:
        """End the connection where nothing came for long, or a mail never ends.

        While a mail is put into the queue we are the slow one.
        """
        now, coming = self.loop.time(), self.has_mail and not self._puts_mail
        left = min(self._heard_at + self._timeout_duration, self._ends_by if coming else math.inf) - now
        if self._puts_mail or left > 0:
            self._reset_timeout(left if left > 0 else self._timeout_duration)
        else:
            self.end(replies.SLOW if coming and self._ends_by <= now else replies.IDLE)

    @property
    def _puts_mail(self) -> bool:
        return self.has_mail and self._sender is None

    def _set_post_data_state(self) -> None:
        super()._set_post_data_state()  # type: ignore[no-untyped-call]
        self._sender, self._recipients = None, []

    async def handle_exception(self, error: Exception) -> str:
        _LOG.error("a command failed by itself", exc_info=error, extra={"client": self._client})
        return str(replies.FAULT)

    async def push(self, status: Any) -> None:
        """Send a reply, with an enhanced status code where aiosmtpd gives none."""
        await super().push(replies.with_status(str(status)))

    # Commands

    async def smtp_HELO(self, arg: str | None) -> None:
        await (self.push(replies.NOT_HERE) if self._lmtp else self._greet(arg, extended=False))

    async def smtp_EHLO(self, arg: str | None) -> None:
        await (self.push(replies.NOT_HERE) if self._lmtp else self._greet(arg, extended=True))

    async def smtp_LHLO(self, arg: str | None) -> None:
        await (self._greet(arg, extended=True) if self._lmtp else self.push(replies.NOT_HERE))

    async def _greet(self, name: str | None, *, extended: bool) -> None:
        if not name:
            await self.push(SmtpReply(501, "5.5.4", "say your name", ours=True))
            return
        self._set_rset_state()  # type: ignore[no-untyped-call]
        assert self.session is not None
        self.session.host_name, self.session.extended_smtp = name, extended
        size = f"SIZE {self._settings.mail_bytes_max}"
        offers = (size, "8BITMIME", "PIPELINING", "DSN", "ENHANCEDSTATUSCODES") if extended else ()
        lines = (self._settings.host_name, *offers)
        texts = [f"250{'-' if place < len(lines) else ' '}{line}" for place, line in enumerate(lines, 1)]
        await super().push("\r\n".join(texts))

    async def smtp_MAIL(self, arg: str | None) -> None:
        await self.push(self._begun(arg or ""))

    def _begun(self, words: str) -> SmtpReply:
        if not self._greeted_as:
            return replies.UNGREETED
        if self._sender:
            return SmtpReply(503, "5.5.1", "a mail has begun already", ours=True)
        if not self._settings.may_relay(self._client):
            _LOG.warning("a client may not hand over mails", extra={"client": self._client})
            return replies.STRANGER
        found = sender_in(words, self._settings.mail_bytes_max)
        if isinstance(found, SmtpReply):
            return found
        self._sender = found
        return replies.FINE

    async def smtp_RCPT(self, arg: str | None) -> None:
        await self.push(self._added(arg or ""))

    def _added(self, words: str) -> SmtpReply:
        if not self._sender:
            return SmtpReply(503, "5.5.1", "say MAIL first", ours=True)
        if len(self._recipients) >= self._settings.recipients_max:
            return replies.TOO_MANY
        found = recipient_in(words, self._settings.host_name)
        if isinstance(found, SmtpReply):
            return found
        self._recipients.append(found)
        return replies.TAKEN

    async def smtp_DATA(self, arg: str | None) -> None:
        if not self._sender or not self._recipients:
            await self.push(SmtpReply(503, "5.5.1", "say MAIL and RCPT first", ours=True))
            return
        if arg:
            await self.push(SmtpReply(501, "5.5.4", "DATA stands alone", ours=True))
            return
        self.has_mail = True
        self._ends_by = self.loop.time() + self._settings.mail_time_max.total_seconds()
        await self.push("354 send the mail, and a line of one dot behind it")
        content = await self._content()
        sender, recipients, origin = self._sender, self._recipients, self._origin()
        self._set_post_data_state()
        try:
            if isinstance(content, SmtpReply):
                reply = content
            else:
                reply = await self._listener.take(sender, recipients, origin, content)
        finally:
            self._release()
        for _ in recipients if self._lmtp else (None,):
            await self.push(reply)
        self.has_mail = False
        self._listener.moved()
        if self._listener.stopping:
            self.end(replies.STOPPING)

    async def _content(self) -> bytes | SmtpReply:
        """The bytes of a mail up to the line of one dot; a reply where there are too many, of which none are kept."""
        content, begins, refusal = bytearray(), True, None
        while True:
            try:
                piece = await self._reader.readuntil(b"\r\n")
            except asyncio.LimitOverrunError as error:
                piece = await self._reader.read(error.consumed)
            if begins and piece == b".\r\n":
                return refusal or bytes(content)
            text = piece[1:] if begins and piece.startswith(b".") else piece
            begins = piece.endswith(b"\r\n")
            if refusal is None and (refusal := self._refused(len(content) + len(text))):
                content.clear()
                self._release()
            if refusal is None:
                content += text
                self._hold(len(text))

    def _refused(self, length: int) -> SmtpReply | None:
        """What is said to a mail of that many bytes so far; None where it may go on."""
        if length > self._settings.mail_bytes_max:
            return too_large(self._settings.mail_bytes_max)
        others = self._listener.bytes_held - self._held
        return replies.FULL if others and others + length > self._settings.bytes_at_once_max else None

    def _hold(self, length: int) -> None:
        self._held += length
        self._listener.bytes_held += length

    def _release(self) -> None:
        self._hold(-self._held)

    @property
    def _greeted_as(self) -> str:
        return str(self.session.host_name or "") if self.session else ""

    def _origin(self) -> MailOrigin:
        assert self.session is not None
        plain = "ESMTP" if self.session.extended_smtp else "SMTP"
        return MailOrigin(client=self._client, greeted_as=self._greeted_as, protocol="LMTP" if self._lmtp else plain)

    async def smtp_VRFY(self, arg: str | None) -> None:
        await self.push(SmtpReply(252, "2.5.0", "send a mail, and see", ours=True) if arg else replies.NOT_HERE)

    async def smtp_HELP(self, arg: str | None) -> None:  # noqa: ARG002 - aiosmtpd's signature
        await self.push(SmtpReply(214, "2.0.0", "RFC 5321", ours=True))

    async def smtp_AUTH(self, arg: str | None) -> None:  # noqa: ARG002 - aiosmtpd's signature
        await self.push(replies.NOT_HERE)

    async def smtp_STARTTLS(self, arg: str | None) -> None:  # noqa: ARG002 - aiosmtpd's signature
        await self.push(replies.NOT_HERE)
