"""Connections to servers of mail: opened, introduced, secured, kept for the next mail. The one door to aiosmtplib.

Nothing here knows of recipients. Whatever ends a connection is raised as `StageEnded`: the server's
own words where it replied, else ours.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from ipaddress import ip_address
from typing import Final, cast

from aiosmtplib import (
    SMTP,
    SMTPException,
    SMTPResponse,
    SMTPResponseException,
    SMTPServerDisconnected,
)

from mailmend.delivery.mail.attempts import (
    AttemptStage,
    BeforeContent,
    DeliveryAttempt,
    SmtpReply,
    at_once,
)
from mailmend.delivery.smtp.outgoing.esmtp import ContentSender, ServerExtensions, refusing, tls_required
from mailmend.delivery.smtp.outgoing.logins import (
    GO_ON,
    login_commands,
    login_refused,
    may_log_in,
    no_mechanism,
    unsecured_login,
)
from mailmend.delivery.transports import DeliveryProtocol, SmtpLogin, StageTimeouts, TlsLevel

_HELO: Final = re.compile(r"[!-~]+")
_DATA_READY: Final = 354
_DOING: Final[Mapping[AttemptStage, str]] = {
    AttemptStage.TLS: "while the connection was secured",
    AttemptStage.GREETING: "at its greeting",
    AttemptStage.MAIL: "at MAIL",
    AttemptStage.RECIPIENT: "at RCPT",
    AttemptStage.DATA: "at DATA",
}


class StageEnded(Exception):
    """The connection is of no more use; every recipient without a reply of its own has this one."""

    def __init__(self, stage: AttemptStage, reply: SmtpReply) -> None:
        super().__init__(f"{stage.value}: {reply}")
        self.stage = stage
        self.reply = reply


class TlsContexts:
    """How connections are secured.

    Args:
        authorities: a file of the certificates that are trusted, in PEM; None: those that the system trusts.
    """

    def __init__(self, authorities: str | None = None) -> None:
        self._authorities = authorities

    def for_level(self, level: TlsLevel) -> ssl.SSLContext:
        if level is TlsLevel.VERIFIED:
            return self._verifying
        return self._encrypting

    @cached_property
    def _verifying(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._authorities)

    @cached_property
    def _encrypting(self) -> ssl.SSLContext:
        """As the certificates of most servers cannot be verified, it takes any."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


class SmtpConnection:
    """A connection to a server that has taken our greeting.

    Attributes:
        offered: what the server said to it.
        tls: the version of TLS; "" where the connection is not secured.
        mails: how many were begun on it.
    """

    def __init__(self, client: SMTP) -> None:
        self._client = client
        self.offered = ServerExtensions(dict(client.esmtp_extensions))
        secured: ssl.SSLObject | None = client.get_transport_info("ssl_object")
        self.tls = ""
        if secured:
            self.tls = secured.version() or ""
        self.mails = 0

    @property
    def is_open(self) -> bool:
        return self._client.is_connected

    async def command(self, stage: AttemptStage, limit: timedelta, *words: bytes) -> SmtpReply:
        """What the server says to a command.

        Raises:
            StageEnded: it closes the connection, is silent for longer than the limit, or says what is no reply.
        """
        return await _commanded(self._client, stage, limit, *words)

    async def content(
        self, lines: bytes, replies: int, timeouts: StageTimeouts, before: BeforeContent = at_once
    ) -> tuple[Sequence[SmtpReply], bool]:
        """DATA, then `before`, and the lines in blocks.

        Returns:
            The replies that the server owes, or what stands for them, and whether all lines were sent.

        Raises:
            StageEnded: as `command` does, at DATA.
            Exception: whatever `before` raises; no line was sent, and the connection is of no more use.
        """
        reply = await self.command(AttemptStage.DATA, timeouts.data, b"DATA")
        if reply.code != _DATA_READY:
            return [refusing(reply)] * replies, False
        await before()
        if not self.is_open:
            return [_lost(AttemptStage.DATA)] * replies, False
        transport = cast("asyncio.Transport", self._client.transport)
        protocol = cast("asyncio.Protocol", self._client.protocol)
        sender = ContentSender(transport)
        transport.set_protocol(sender)
        try:
            return await sender.send(lines, replies, timeouts)
        except BaseException:
            sender.intact = False
            raise
        finally:
            if sender.intact:
                transport.set_protocol(protocol)
            else:
                self.abort()

    def abort(self) -> None:
        """End it at once: what was not sent yet is not sent any more."""
        transport = self._client.transport
        if isinstance(transport, asyncio.Transport):
            transport.abort()
        self._client.close()

    def quit(self) -> "LeavingConnection | None":
        """End it as RFC 5321 has it, without waiting for the answer: nothing depends on that. None: it has ended."""
        leaving = None
        if self.is_open:
            transport = cast("asyncio.Transport", self._client.transport)
            leaving = LeavingConnection(transport)
            transport.set_protocol(leaving)
            transport.write(b"QUIT\r\n")
        self._client.close()
        return leaving


class LeavingConnection(asyncio.Protocol):
    """A connection that is being closed, which takes two turns with the server where it is secured."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._gone = asyncio.Event()

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()

    async def end(self, limit: timedelta) -> None:
        """Wait until it is gone; for no longer than that."""
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()
            await self._gone.wait()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._gone.set()


async def opened(attempt: DeliveryAttempt, contexts: TlsContexts, host_name: str) -> SmtpConnection:
    """A new connection; where securing it is optional and fails, another one that is not secured.

    Raises:
        StageEnded: there is no connection.
    """
    try:
        return await _opened(attempt, contexts, host_name)
    except StageEnded as ended:
        if attempt.tls is not TlsLevel.OPTIONAL or ended.stage is not AttemptStage.TLS:
            raise
        return await _opened(replace(attempt, tls=TlsLevel.NONE), contexts, host_name)


async def _opened(attempt: DeliveryAttempt, contexts: TlsContexts, host_name: str) -> SmtpConnection:
    limit = attempt.timeouts.greeting
    helo = attempt.source.helo or host_name
    if not _HELO.fullmatch(helo):
        raise StageEnded(AttemptStage.CONNECT, _for_now("4.3.5", f"{helo!r} is no name to greet a server with"))
    connected = await _connected(attempt)
    client = SMTP(sock=connected, local_hostname=helo, start_tls=False)
    try:
        await _greeted(client, limit)
        await _introduced(client, attempt.protocol, helo, limit)
        secured = await _secured(client, attempt, contexts)
        if secured:
            await _introduced(client, attempt.protocol, helo, limit)
        if attempt.login:
            await _log_in(client, attempt, attempt.login, secured=secured)
        return SmtpConnection(client)
    except BaseException:
        client.close()
        raise


async def _connected(attempt: DeliveryAttempt) -> socket.socket:
    hop = attempt.hop
    source = attempt.source
    family = socket.AF_INET
    if ":" in hop.address:
        family = socket.AF_INET6
    try:
        # asyncio sets TCP_NODELAY where the protocol is named; else ends of mails wait 40 ms
        connecting = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:  # too many open files, or none of this family
        text = f"no connection to {hop}: {_said_of(error)}"
        raise StageEnded(AttemptStage.CONNECT, _for_now("4.3.0", text)) from error
    try:
        connecting.settimeout(0)
        _bind(connecting, source.address)
        async with asyncio.timeout(attempt.timeouts.connect.total_seconds()):
            await asyncio.get_running_loop().sock_connect(connecting, (hop.address, hop.port))
    except BaseException as error:
        connecting.close()
        if not isinstance(error, OSError):
            raise
        if isinstance(error, TimeoutError):
            what = "it did not answer in time"
        else:
            what = _said_of(error)
        text = f"no connection to {hop}: {what}"
        raise StageEnded(AttemptStage.CONNECT, _for_now("4.4.1", text)) from error
    return connecting


def _bind(connecting: socket.socket, address: str) -> None:
    if not address:
        return
    try:
        connecting.bind((address, 0))
    except OSError as error:
        text = f"connections cannot come from {address}: {_said_of(error)}"
        raise StageEnded(AttemptStage.CONNECT, _for_now("4.3.5", text)) from error


async def _greeted(client: SMTP, limit: timedelta) -> None:
    try:
        await client.connect(timeout=limit.total_seconds())
    except (SMTPException, OSError) as error:
        raise StageEnded(AttemptStage.GREETING, _reply_of(error, AttemptStage.GREETING)) from error


async def _introduced(client: SMTP, protocol: DeliveryProtocol, helo: str, limit: timedelta) -> None:
    """EHLO, or HELO where the server does not know that; LHLO for LMTP."""
    stage = AttemptStage.GREETING
    name = helo.encode("ascii")
    first = b"EHLO"
    if protocol is DeliveryProtocol.LMTP:
        first = b"LHLO"
    reply, response = await _answered(client, stage, limit, first, name)
    if reply.positive:
        client.last_ehlo_response = response
    elif reply.permanent and protocol is DeliveryProtocol.SMTP:
        reply, _ = await _answered(client, stage, limit, b"HELO", name)
    if not reply.positive:
        raise StageEnded(stage, reply)
    if not client.is_connected:
        raise StageEnded(stage, _lost(stage))


async def _secured(client: SMTP, attempt: DeliveryAttempt, contexts: TlsContexts) -> bool:
    """Whether it is secured now."""
    level = attempt.tls
    stage = AttemptStage.TLS
    if level is TlsLevel.NONE:
        return False
    if not client.supports_extension("starttls"):
        if level is TlsLevel.OPTIONAL:
            return False
        raise StageEnded(stage, _without_tls(attempt, "4.7.4", "TLS is required, and the server does not offer it"))
    try:
        await client.starttls(
            server_hostname=_name_for_tls(attempt.hop.host),
            tls_context=contexts.for_level(level),
            timeout=attempt.timeouts.tls.total_seconds(),
        )
    except SMTPResponseException as error:
        reply = refusing(_reply_of(error, stage))
        if level is TlsLevel.OPTIONAL and client.is_connected and not reply.closes and not reply.ours:
            return False
        text = f"TLS is required, and the server refuses it: {reply}"
        refusal = _for_now("4.7.4", text)
        if reply.permanent:
            refusal = _without_tls(attempt, "4.7.4", text)
        raise StageEnded(stage, refusal) from error
    except ssl.SSLCertVerificationError as error:
        text = f"the server's certificate cannot be trusted: {error.verify_message or error}"
        raise StageEnded(stage, _without_tls(attempt, "4.7.5", text)) from error
    except ssl.SSLError as error:
        raise StageEnded(stage, _without_tls(attempt, "4.7.5", f"TLS failed: {error.reason or error}")) from error
    except (SMTPException, OSError, ValueError) as error:
        raise StageEnded(stage, _reply_of(error, stage)) from error
    return True


async def _log_in(client: SMTP, attempt: DeliveryAttempt, login: SmtpLogin, *, secured: bool) -> None:
    stage = AttemptStage.GREETING
    if not may_log_in(attempt.hop, secured=secured):
        raise StageEnded(stage, unsecured_login())
    offered = client.server_auth_methods
    commands = login_commands(login, offered)
    if not commands:
        raise StageEnded(stage, no_mechanism(offered))
    for number, words in enumerate(commands, 1):
        try:
            reply = await _commanded(client, stage, attempt.timeouts.greeting, *words)
        except StageEnded as ended:
            raise StageEnded(stage, login_refused(ended.reply)) from None
        if reply.positive:
            return
        if reply.code != GO_ON or number == len(commands):
            raise StageEnded(stage, login_refused(reply))


def _without_tls(attempt: DeliveryAttempt, enhanced: str, text: str) -> SmtpReply:
    """For now, as a server may be mended; for good, where the mail's sender has required TLS."""
    if attempt.mail.requires_tls:
        return tls_required(text)
    return _for_now(enhanced, text)


def _name_for_tls(host: str) -> str:
    """As certificates have it: an address without brackets, a name without a dot at its end."""
    try:
        return str(ip_address(host))
    except ValueError:
        return host.removesuffix(".")


async def _commanded(client: SMTP, stage: AttemptStage, limit: timedelta, *words: bytes) -> SmtpReply:
    reply, _ = await _answered(client, stage, limit, *words)
    return reply


async def _answered(
    client: SMTP, stage: AttemptStage, limit: timedelta, *words: bytes
) -> tuple[SmtpReply, SMTPResponse]:
    try:
        response = await client.execute_command(*words, timeout=limit.total_seconds())
    except (SMTPException, OSError, ValueError) as error:
        client.close()
        raise StageEnded(stage, _reply_of(error, stage)) from error
    reply = SmtpReply.parsed(response.code, response.message)
    if reply.closes or reply.ours:
        client.close()
        raise StageEnded(stage, reply)
    return reply, response


def _reply_of(error: Exception, stage: AttemptStage) -> SmtpReply:
    """What the server said, or what stands for it."""
    when = _DOING[stage]
    match error:
        case SMTPResponseException():
            return refusing(SmtpReply.parsed(error.code, error.message))
        case TimeoutError():
            return _for_now("4.4.2", f"the server took too long {when}")
        case SMTPServerDisconnected() | OSError():
            return _lost(stage)
        case _:
            return _for_now("4.3.0", f"{error} {when}")


def _lost(stage: AttemptStage) -> SmtpReply:
    return _for_now("4.4.2", f"the connection was lost {_DOING[stage]}")


def _said_of(error: OSError) -> str:
    """In the system's words; asyncio has others, with the address again."""
    if error.errno:
        return os.strerror(error.errno)
    return str(error)


def _for_now(enhanced: str, text: str) -> SmtpReply:
    return SmtpReply(451, enhanced, text, ours=True)
