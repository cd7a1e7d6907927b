"""A client's connection: what it says of its mails, by SMTP or LMTP, and what is answered. The one door to aiosmtpd.

The bytes of a mail end with a line of one dot between CR LF alone; a bare CR or LF is a byte like any other, so nothing
behind it is taken for a command. aiosmtpd reads commands and keeps time; what they say, and all that is answered to
mails, is here. Its own log names addresses and lines of mails, so it is silent.
"""

import asyncio
import logging
import math
from asyncio import sslproto
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from aiosmtpd.smtp import SMTP

from delivery import replies
from delivery.intake import MailIntake
from delivery.listener_tls import ListenerTls
from delivery.reception import MailOrigin, NamedRecipient, NamedSender, recipient_in, sender_in, too_large
from delivery.settings import ListenerSettings
from model.delivery.attempts import DeliveryProtocol, SmtpReply

LEAVING: Final = timedelta(seconds=2)
"""How long a client may take to take what was said to it last."""

HANDSHAKE_SECONDS: Final = 10
"""How long a client may take to secure its connection, from its first byte or by STARTTLS."""

_COMMAND_BYTES_MAX: Final = 1001

_LOG: Final = logging.getLogger("mailmend.delivery")
logging.getLogger("mail.log").setLevel(logging.CRITICAL + 1)


@dataclass(slots=True, eq=False)
class ClientConnections:
    """The connections of a listener, and what they have in common.

    Attributes:
        stopping: no more are taken, and no mail begins.
        bytes_held: of mails that are coming or are being put into the queue, over all of them.
        refused: how often, by the enhanced status code of the reply.
    """

    settings: ListenerSettings
    intake: MailIntake
    tls: ListenerTls | None = None
    stopping: bool = False
    bytes_held: int = 0
    open: "set[ClientConnection]" = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)

    def join(self, connection: "ClientConnection") -> SmtpReply | None:
        """Count a connection, before anything is said or secured; a reply where there is no room for it."""
        if self.stopping:
            return replies.STOPPING
        if len(self.open) >= self.settings.connections_max:
            return replies.CROWDED
        self.open.add(connection)
        return None

    def leave(self, connection: "ClientConnection") -> None:
        self.open.discard(connection)
        self.intake.changed.set()


class ClientConnection(SMTP):
    """One client's: what it has said so far of its next mail.

    Attributes:
        has_mail: whether the bytes of a mail are coming, or it is being put into the queue.
    """

    command_size_limit = _COMMAND_BYTES_MAX
    command_size_limits: dict[str, int] = defaultdict(lambda: _COMMAND_BYTES_MAX)  # noqa: RUF012 - as aiosmtpd's is

    def __init__(self, together: ClientConnections, protocol: DeliveryProtocol, *, secured: bool = False) -> None:
        self._together, self._settings, self._secured_at_once = together, together.settings, secured
        self._lmtp = protocol is DeliveryProtocol.LMTP
        self._sender: NamedSender | None = None
        self._recipients = list[NamedRecipient]()
        self._client = ""
        self._held, self._ends_by = 0, math.inf
        self.has_mail = self._is_secured = False
        self._handshake: asyncio.Future[None] | None = None
        self._heard_at = asyncio.get_running_loop().time()
        super().__init__(
            None,
            enable_SMTPUTF8=True,  # commands are read as UTF-8, so that an address beyond ASCII is refused by name
            hostname=self._settings.host_name,
            ident=f"{'LMTP' if self._lmtp else 'ESMTP'} mailmend",
            tls_context=together.tls.context if together.tls else None,
            timeout=self._settings.idle_max.total_seconds(),
            loop=asyncio.get_running_loop(),
        )

    # The connection

    def connection_made(self, transport: Any) -> None:
        """Also called once the connection is secured: nothing that was said before counts then (RFC 3207 4.2)."""
        peer = transport.get_extra_info("peername")
        self._client = str(peer[0]) if peer else ""
        self._is_secured = transport.get_extra_info("ssl_object") is not None
        super().connection_made(transport)
        if self._secured_at_once and not self._is_secured:
            self._handshake = self._begin_handshake()

    def connection_lost(self, error: Exception | None) -> None:
        self._together.leave(self)
        self._release()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)

    def end(self, reply: SmtpReply) -> None:
        """Say this, and close the connection; to a client that is securing it nothing can be said."""
        transport: Any = self.transport
        if transport is None or transport.is_closing():
            return
        self._count(str(reply))
        if self._is_securing:
            self.abort()
        else:
            transport.write(f"{reply}\r\n".encode())
            transport.close()
            self.loop.call_later(LEAVING.total_seconds(), transport.abort)

    def abort(self) -> None:
        transport: Any = self._original_transport if self._is_securing else self.transport
        if transport is not None:
            transport.abort()
        if self._is_securing:
            self.connection_lost(None)  # the layer of TLS tells of it only once it is there

    @property
    def _is_securing(self) -> bool:
        return self._original_transport is not None and not self._is_secured and self.transport is not None

    async def _handle_client(self) -> None:
        if refusal := self._together.join(self):
            self.end(refusal)
            return
        with suppress(ConnectionError):
            if self._handshake:
                await self._secure(self._handshake)
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
        text = replies.with_status(str(status))
        self._count(text)
        await super().push(text)

    def _count(self, text: str) -> None:
        if refusal := replies.refusal_in(text):
            self._together.refused[refusal] += 1

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
        secure = ("STARTTLS",) if self._may_secure else ()
        offers = (size, "8BITMIME", "PIPELINING", "DSN", "ENHANCEDSTATUSCODES", *secure) if extended else ()
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
        if self._settings.tls_required and not self._is_secured:
            return replies.UNSECURED
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
        if refusal := self._together.intake.refusal(self._sender, found, self._origin()):
            return refusal
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
                answers: Sequence[SmtpReply] = [content for _ in recipients]
            else:
                answers = await self._together.intake.take(sender, recipients, origin, content)
        finally:
            self._release()
        for answer in answers if self._lmtp else [max(answers, key=lambda one: one.code)]:
            await self.push(answer)
        self.has_mail = False
        self._together.intake.changed.set()
        if self._together.stopping:
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
        others = self._together.bytes_held - self._held
        return replies.FULL if others and others + length > self._settings.bytes_at_once_max else None

    def _hold(self, length: int) -> None:
        self._held += length
        self._together.bytes_held += length

    def _release(self) -> None:
        self._hold(-self._held)

    @property
    def _greeted_as(self) -> str:
        return str(self.session.host_name or "") if self.session else ""

    def _origin(self) -> MailOrigin:
        assert self.session is not None
        plain = "LMTP" if self._lmtp else "ESMTP" if self.session.extended_smtp else "SMTP"
        protocol = f"{'ESMTP' if plain == 'SMTP' else plain}S" if self._is_secured else plain
        return MailOrigin(client=self._client, greeted_as=self._greeted_as, protocol=protocol)

    async def smtp_VRFY(self, arg: str | None) -> None:
        await self.push(SmtpReply(252, "2.5.0", "send a mail, and see", ours=True) if arg else replies.NOT_HERE)

    async def smtp_HELP(self, arg: str | None) -> None:  # noqa: ARG002 - aiosmtpd's signature
        await self.push(SmtpReply(214, "2.0.0", "RFC 5321", ours=True))

    async def smtp_AUTH(self, arg: str | None) -> None:  # noqa: ARG002 - aiosmtpd's signature
        await self.push(replies.NOT_HERE)

    async def smtp_STARTTLS(self, arg: str | None) -> None:
        if self._is_secured or not self._may_secure:
            await self.push(replies.SECURED if self._is_secured else replies.NOT_HERE)
        elif arg:
            await self.push(SmtpReply(501, "5.5.4", "STARTTLS stands alone", ours=True))
        else:
            await self.push("220 secure the connection")
            await self._secure(self._begin_handshake())

    def _begin_handshake(self) -> asyncio.Future[None]:
        """Give the connection to TLS, which hands it back through `connection_made`."""
        assert self._together.tls
        done = self.loop.create_future()
        tls = sslproto.SSLProtocol(
            self.loop,
            self,
            self._together.tls.context,
            done,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
        )
        plain: Any = self.transport
        self._tls_protocol, self._original_transport = tls, plain
        plain.set_protocol(tls)
        tls.connection_made(plain)
        return done

    async def _secure(self, handshake: asyncio.Future[None]) -> None:
        """Wait until the connection is secured; it ends where that fails.

        Raises:
            ConnectionResetError: it ended.
        """
        try:
            await handshake
        except OSError as error:
            _LOG.info("a client did not secure its connection", extra={"client": self._client, "error": str(error)})
            self.abort()
            raise ConnectionResetError from error

    @property
    def _may_secure(self) -> bool:
        return self._together.tls is not None and not self._is_secured
