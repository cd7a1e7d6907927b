"""A client's connection: what it says of its mails, by SMTP or LMTP, and what is answered. The one door to aiosmtpd.

The bytes of a mail end with a line of one dot between CR LF alone, so nothing behind a bare CR or
LF is taken for a command. What came before the end of a client's input is answered. aiosmtpd keeps
the session and its timer; commands, and all that is answered to mails, are here. The log of
aiosmtpd names addresses and lines of mails, so it is silent.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from aiosmtpd.smtp import SMTP

from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.delivery.settings import HANDSHAKE_SECONDS, LEAVING, RECIPIENTS_BEYOND
from mailmend.delivery.smtp.incoming import replies
from mailmend.delivery.smtp.incoming.client_input import COMMAND_BYTES_MAX, ClientInput, NotSmtp, begin_tls
from mailmend.delivery.smtp.incoming.client_places import ClientConnections
from mailmend.delivery.smtp.incoming.logins import MECHANISMS, ClientLogin
from mailmend.delivery.smtp.incoming.reception import (
    MailOrigin,
    NamedRecipient,
    NamedSender,
    recipient_in,
    sender_in,
    too_large,
)
from mailmend.delivery.transports import DeliveryProtocol

_LOG: Final = logging.getLogger("mailmend.delivery")
logging.getLogger("mail.log").setLevel(logging.CRITICAL + 1)


class ClientConnection(SMTP):
    """One client's: what it has said so far of its next mail.

    Attributes:
        client: its address.
        has_mail: whether the bytes of a mail are coming, or it is being put into the queue.
        waits_since: the moment of its begin, or of the end of its last mail, in seconds of the
            clock.
    """

    def __init__(self, together: ClientConnections, protocol: DeliveryProtocol, *, secured: bool = False) -> None:
        self._together = together
        self._settings = together.settings
        self._secured_at_once = secured
        self._login = ClientLogin(together.users, together.intake.clock)
        self._lmtp = protocol is DeliveryProtocol.LMTP
        self._sender: NamedSender | None = None
        self._recipients = list[NamedRecipient]()
        self.client = ""
        self._held = 0
        self._ends_by = math.inf
        self._heard_at = self.waits_since = together.now()
        limits = self._settings
        self._commands = self._errors = self._recipients_asked = 0
        self.has_mail = self._is_secured = self._is_greeted = self._spoke_early = False
        self._handshake: asyncio.Future[None] | None = None
        super().__init__(
            None,
            enable_SMTPUTF8=True,
            hostname=self._settings.host_name,
            ident="LMTP mailmend" if self._lmtp else "ESMTP mailmend",
            tls_context=together.tls,
            timeout=min(limits.idle_max, limits.mail_wait_max, limits.mail_time_max).total_seconds(),
            loop=asyncio.get_running_loop(),
        )

    # The connection

    def connection_made(self, transport: Any) -> None:
        """Also called once the connection is secured: nothing that was said before counts then (RFC 3207 4.2)."""
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if peer else ""
        self._is_secured = transport.get_extra_info("ssl_object") is not None
        super().connection_made(transport)
        self._input = ClientInput(self._reader)
        if self._secured_at_once and not self._is_secured:
            self._handshake = self._begin_handshake()

    def connection_lost(self, error: Exception | None) -> None:
        self._together.leave(self)
        self._release()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._spoke_early |= not self._is_greeted
        super().data_received(data)

    def eof_received(self) -> bool:
        """The client sends no more; what it sent is answered, and then the connection ends."""
        asyncio.StreamReaderProtocol.eof_received(self)
        return not self._is_secured  # by TLS the connection stays open without being asked to

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
            self._leave()

    def _leave(self) -> None:
        """Close the connection once the client has taken what was said, or after `LEAVING`."""
        transport: Any = self.transport
        if transport is not None and not transport.is_closing():
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
            await self._converse()
        self._leave()

    async def _converse(self) -> None:
        """Greet the client and answer its commands, until its input or the connection ends."""
        await asyncio.sleep(0)  # what came together with the connection is read meanwhile
        if self._spoke_early:
            self.end(replies.EARLY)
            return
        self._is_greeted = True
        await self.push(f"220 {self.hostname} {self.__ident__}")
        while self.transport is not None and not self.transport.is_closing():
            self._heard_at = self._together.now()
            try:
                line = await self._input.command()
            except NotSmtp:
                _LOG.warning("a client does not speak SMTP", extra={"client": self.client})
                self.end(replies.NOT_SMTP)
                return
            if line is None:
                return
            await self._answer(line)
            if excess := self._excess():
                self.end(excess)

    async def _answer(self, line: bytes) -> None:
        verb, _, words = line.partition(b" ")
        name = verb.upper().decode("ascii", "replace")
        is_free = name == "RCPT" and self._recipients_asked < self._settings.recipients_max + RECIPIENTS_BEYOND
        if is_free:
            self._recipients_asked += 1
        elif name != "MAIL":  # it fails as an error, or is taken back by a command that counts
            self._commands += 1
        errors = self._errors
        if not line or len(line) > COMMAND_BYTES_MAX or b"\r" in line or b"\0" in line:
            await self.push(replies.UNREADABLE)
            return
        try:
            # An address beyond ASCII is refused by name, so it is read as UTF-8.
            argument = words.strip().decode("utf-8", "surrogateescape") or None
            await self._smtp_methods.get(name, self._not_here)(argument)
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours ends neither the connection nor the listener
            _LOG.exception("a command failed by itself", extra={"client": self.client})
            await self.push(replies.FAULT)
        if is_free:
            self._errors = errors

    def _excess(self) -> SmtpReply | None:
        """The reply that ends a connection with too many commands or errors since its last mail."""
        if self._commands > self._settings.commands_max:
            return replies.TALKATIVE
        return replies.FAULTY if self._errors > self._settings.errors_max else None

    def _timeout_cb(self) -> None:
        """End the connection where a line, a mail, or the begin of one takes too long.

        While a mail is put into the queue we are the slow one.
        """
        now = self._together.now()
        if self._puts_mail:
            self._reset_timeout()
            return
        line_by = self._heard_at + self._settings.idle_max.total_seconds()
        mail_by = self.waits_since + self._settings.mail_wait_max.total_seconds()
        if self.has_mail:
            mail_by = self._ends_by
        left = min(line_by, mail_by) - now
        if left > 0:
            self._reset_timeout(left)
        elif mail_by > now:
            self.end(replies.IDLE)
        elif self.has_mail:
            self.end(replies.SLOW)
        else:
            self.end(replies.NO_MAIL)

    @property
    def has_sender(self) -> bool:
        """Whether MAIL was said, and the mail has not come yet."""
        return self._sender is not None

    @property
    def _puts_mail(self) -> bool:
        return self.has_mail and self._sender is None

    def _set_post_data_state(self) -> None:
        super()._set_post_data_state()  # type: ignore[no-untyped-call]
        self._sender = None
        self._recipients = []

    async def push(self, status: Any) -> None:
        """Send a reply, with an enhanced status code where aiosmtpd gives none."""
        text = replies.with_status(str(status))
        self._errors += text.startswith("5")
        self._count(text)
        await super().push(text)

    def _count(self, text: str) -> None:
        if refusal := replies.refusal_in(text):
            self._together.refused[refusal] += 1

    # Commands

    async def smtp_HELO(self, arg: str | None) -> None:
        await self._greet(arg, extended=False, lmtp=False)

    async def smtp_EHLO(self, arg: str | None) -> None:
        await self._greet(arg, extended=True, lmtp=False)

    async def smtp_LHLO(self, arg: str | None) -> None:
        await self._greet(arg, extended=True, lmtp=True)

    async def _greet(self, name: str | None, *, extended: bool, lmtp: bool) -> None:
        if lmtp is not self._lmtp:
            await self.push(replies.NOT_HERE)
            return
        if not name:
            await self.push(SmtpReply(501, "5.5.4", "say your name", ours=True))
            return
        self._set_rset_state()  # type: ignore[no-untyped-call]
        assert self.session is not None
        self.session.host_name = name
        self.session.extended_smtp = extended
        lines = [self._settings.host_name]
        if extended:
            lines += [f"SIZE {self._settings.mail_bytes_max}", "8BITMIME", "PIPELINING", "DSN", "ENHANCEDSTATUSCODES"]
        if extended and self._may_secure:
            lines.append("STARTTLS")
        if extended and self._login.is_offered(secured=self._is_secured):
            lines.append(f"AUTH {MECHANISMS}")
        texts = [*(f"250-{line}" for line in lines[:-1]), f"250 {lines[-1]}"]
        await super().push("\r\n".join(texts))

    async def smtp_MAIL(self, arg: str | None) -> None:
        await self.push(self._begun(arg or ""))

    def _begun(self, words: str) -> SmtpReply:
        if not self._greeted_as:
            return replies.UNGREETED
        if self._sender:
            return SmtpReply(503, "5.5.1", "a mail has begun already", ours=True)
        if refusal := self._lacking():
            return refusal
        found = sender_in(words, self._settings.mail_bytes_max)
        if isinstance(found, SmtpReply):
            return found
        self._sender = found
        self._recipients_asked = 0
        return replies.FINE

    def _lacking(self) -> SmtpReply | None:
        """What a client is to do before a mail; None: nothing."""
        lacks_login = self._together.must_log_in(self.client) and not self._login.user
        if not self._is_secured and (lacks_login or self._settings.tls_required):
            return replies.UNSECURED
        if lacks_login:
            return replies.LOG_IN_FIRST
        return None

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
            await self.push(SmtpReply(501, "5.5.4", "DATA takes no parameters", ours=True))
            return
        self.has_mail = True
        self._ends_by = self._together.now() + self._settings.mail_time_max.total_seconds()
        self._reset_timeout()
        await self.push("354 send the mail, and a line of one dot behind it")
        content = await self._content()
        sender = self._sender
        recipients = self._recipients
        origin = self._origin()
        self._set_post_data_state()
        try:
            if isinstance(content, SmtpReply):
                answers: Sequence[SmtpReply] = [content] * len(recipients)
            else:
                answers = await self._together.intake.take(sender, recipients, origin, content)
        except Exception:  # noqa: BLE001 - the connection goes on
            _LOG.exception("a mail could not be answered", extra={"client": self.client})
            answers = [replies.FAULT] * len(recipients)
        finally:
            self._release()
        said = answers
        if not self._lmtp:  # SMTP knows one answer: the worst
            said = [max(answers, key=lambda answer: answer.code)]
        for answer in said:
            await self.push(answer)
        self.has_mail = False
        self._commands = 0
        if any(answer.positive for answer in answers):
            self._errors = 0
        self.waits_since = self._together.now()
        self._reset_timeout()
        self._together.intake.changed.set()
        if self._together.stopping:
            self.end(replies.STOPPING)

    async def _content(self) -> bytes | SmtpReply:
        """The bytes of a mail up to the line of one dot; a reply where there are too many, of which none are kept."""
        content = bytearray()
        refusal = None
        async for part in self._input.content():
            self._heard_at = self._together.now()
            if refusal is None and (refusal := self._refused(len(content) + len(part))):
                content.clear()
                self._release()
            if refusal is None:
                content += part
                self._hold(len(part))
        return refusal or bytes(content)

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
        if self._lmtp:
            protocol = "LMTP"
        elif self.session.extended_smtp or self._is_secured:  # RFC 3848 has no name for SMTP with TLS
            protocol = "ESMTP"
        else:
            protocol = "SMTP"
        if self._is_secured:
            protocol += "S"
        user = self._login.user
        if user:  # RFC 3848
            protocol += "A"
        return MailOrigin(client=self.client, greeted_as=self._greeted_as, protocol=protocol, user=user)

    async def smtp_QUIT(self, arg: str | None) -> None:
        if arg:
            await self.push(SmtpReply(501, "5.5.4", "QUIT takes no parameters", ours=True))
            return
        await self.push(SmtpReply(221, "2.0.0", "bye", ours=True))
        self._leave()

    async def smtp_VRFY(self, arg: str | None) -> None:
        await self.push(SmtpReply(252, "2.5.0", "send a mail, and see", ours=True) if arg else replies.NOT_HERE)

    async def smtp_HELP(self, arg: str | None) -> None:  # noqa: ARG002 - aiosmtpd's signature
        await self.push(SmtpReply(214, "2.0.0", "RFC 5321", ours=True))

    async def _not_here(self, _: str | None) -> None:
        await self.push(replies.NOT_HERE)

    async def smtp_AUTH(self, arg: str | None) -> None:
        if self._sender or not self._greeted_as:
            await self.push(SmtpReply(503, "5.5.1", "log in before a mail, and behind EHLO", ours=True))
            return
        await self.push(await self._login.answer(arg or "", self.client, self._asked, secured=self._is_secured))
        if self._login.is_over:
            self.end(replies.MANY_LOGINS)

    async def _asked(self, challenge: str) -> bytes | None:
        await super().push(f"334 {challenge}")
        return await self._input.response()

    async def smtp_STARTTLS(self, arg: str | None) -> None:
        if self._is_secured:
            await self.push(replies.SECURED)
        elif not self._may_secure:
            await self.push(replies.NOT_HERE)
        elif arg:
            await self.push(SmtpReply(501, "5.5.4", "STARTTLS takes no parameters", ours=True))
        else:
            await self.push("220 secure the connection")
            await self._secure(self._begin_handshake())

    def _begin_handshake(self) -> asyncio.Future[None]:
        """Give the connection to TLS, which hands it back through `connection_made`."""
        assert self._together.tls
        self._original_transport = self.transport
        self._tls_protocol, done = begin_tls(self.transport, self, self._together.tls, HANDSHAKE_SECONDS)
        return done

    async def _secure(self, handshake: asyncio.Future[None]) -> None:
        """Wait until the connection is secured; it ends where that fails.

        Raises:
            ConnectionResetError: it ended.
        """
        try:
            await handshake
        except OSError as error:
            _LOG.info("a client did not secure its connection", extra={"client": self.client, "error": str(error)})
            self.abort()
            raise ConnectionResetError from error

    @property
    def _may_secure(self) -> bool:
        return self._together.tls is not None and not self._is_secured
