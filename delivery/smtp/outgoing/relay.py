"""Attempts to deliver by SMTP and LMTP: one mail, one server, one result for each recipient.

What concerns the server (it is not reached, its greeting refuses) is a result of each recipient: whether another
server is tried is the caller's to decide.
Source: RFC 5321, RFC 2033 (LMTP).
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Final

from mailmend.delivery.mail.attempts import (
    AttemptStage,
    BeforeContent,
    DeliveryAttempt,
    RecipientResult,
    SmtpReply,
    at_once,
)
from mailmend.delivery.smtp.outgoing.connections import (
    LeavingConnection,
    SmtpConnection,
    StageEnded,
    TlsContexts,
    opened,
)
from mailmend.delivery.smtp.outgoing.esmtp import (
    CommandWords,
    ServerExtensions,
    commands_for,
    fitted_lines,
    goes_as_it_is,
    lines_of,
    refused_without_tls,
)
from mailmend.delivery.transports import (
    CannotSign,
    ConnectionReuse,
    ContentSigner,
    DeliveryProtocol,
    SmtpLogin,
    SourceAddress,
    TlsLevel,
)

_TOO_MANY_RECIPIENTS: Final = 552
_LEAVING_MAX: Final = timedelta(seconds=2)

ConnectionKey = tuple[str, str, int, SourceAddress, TlsLevel, DeliveryProtocol, SmtpLogin | None]
"""What attempts over one connection share: where it leads, our side, TLS, protocol, login."""


class SmtpRelay:
    """Attempts to deliver.

    Args:
        host_name: what we call ourselves where a source does not say.
        authorities: as `TlsContexts` has it.
        reuse: of attempts that do not say it; None ends each connection after its mail.
    """

    def __init__(self, host_name: str, authorities: str | None = None, reuse: ConnectionReuse | None = None) -> None:
        self._host_name = host_name
        self._contexts = TlsContexts(authorities)
        self._reuse = reuse
        self._kept = KeptConnections()
        self._fitted = FittedMails()

    @property
    def idle_connections(self) -> int:
        """The number of unused connections that are kept open."""
        return len(self._kept)

    async def deliver(
        self, attempt: DeliveryAttempt, content: bytes, before_content: BeforeContent = at_once
    ) -> Sequence[RecipientResult]:
        if attempt.mail.requires_tls:
            attempt = replace(attempt, tls=TlsLevel.VERIFIED)
        transaction = _Transaction(attempt, before_content, self._fitted)
        try:
            connection = await self._connection(attempt)
        except StageEnded as ended:
            transaction.end_rest(ended.stage, ended.reply)
            return transaction.results
        try:
            await transaction.carry_out(connection, content)
        except StageEnded as ended:
            transaction.end_rest(ended.stage, ended.reply)
        except BaseException:
            connection.abort()
            raise
        self._kept.keep(_key_of(attempt), connection, attempt.reuse or self._reuse)
        return transaction.results

    async def close(self) -> None:
        await self._kept.end()

    async def _connection(self, attempt: DeliveryAttempt) -> SmtpConnection:
        """One that is kept and still answers, else a new one."""
        while kept := self._kept.take(_key_of(attempt)):
            try:
                reply = await kept.command(AttemptStage.MAIL, attempt.timeouts.command, b"RSET")
            except StageEnded:
                continue
            if reply.positive:
                return kept
            self._kept.part_with(kept)
        return await opened(attempt, self._contexts, self._host_name)


def _key_of(attempt: DeliveryAttempt) -> ConnectionKey:
    hop = attempt.hop  # its preference only orders the servers
    where = (hop.host, hop.address, hop.port)
    return *where, attempt.source, attempt.tls, attempt.protocol, attempt.login


FittedForm = tuple[int, bool, ContentSigner | None]
"""A content by its id, whether it may have 8-bit bytes, and what signs it."""


async def _signed_lines(
    content: bytes,
    offered: ServerExtensions,
    signer: ContentSigner | None,
) -> bytes | SmtpReply:
    """The content as a server takes it. It is signed last: what is encoded later is not verified."""
    lines = await fitted_lines(lines_of(content), offered)
    if signer is None or isinstance(lines, SmtpReply):
        return lines
    try:
        return await asyncio.to_thread(signer.signed, lines)
    except CannotSign as error:
        return SmtpReply(451, "4.3.5", f"the mail cannot be signed: {error}", ours=True)


class FittedMails:
    """Mails as servers take them: each form of a mail is made once for all attempts that go on at that time.

    A mail is known by the id of its content, which every attempt that uses it holds: no other content has that id.
    """

    def __init__(self) -> None:
        self._making: dict[FittedForm, asyncio.Future[bytes | SmtpReply]] = {}
        self._attempts = Counter[FittedForm]()

    @asynccontextmanager
    async def lines(
        self, content: bytes, offered: ServerExtensions, signer: ContentSigner | None
    ) -> AsyncGenerator[bytes | SmtpReply]:
        """The lines of a mail for a server, signed; a reply where it cannot have the mail.

        A mail of one block that goes as it is needs no work that others could share.
        """
        if signer is None and goes_as_it_is(content, offered):
            yield content
            return
        key = (id(content), "8bitmime" in offered, signer)
        making = self._making.get(key)
        if making is None:
            work = _signed_lines(content, offered, signer)
            making = self._making[key] = asyncio.ensure_future(work)
        self._attempts[key] += 1
        try:
            yield await asyncio.shield(making)
        finally:
            self._attempts[key] -= 1
            if not self._attempts[key]:
                making.cancel()
                del self._making[key]
                del self._attempts[key]


class KeptConnections:
    """Connections that wait for another mail."""

    def __init__(self) -> None:
        self._kept: dict[SmtpConnection, tuple[ConnectionKey, asyncio.TimerHandle]] = {}
        self._leaving: list[LeavingConnection] = []

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, key: ConnectionKey) -> SmtpConnection | None:
        """The one that was used last: the others may then grow old, and end."""
        for connection, (kept_for, _) in reversed(self._kept.items()):
            if kept_for == key:
                self._let_go(connection)
                return connection
        return None

    def keep(
        self,
        key: ConnectionKey,
        connection: SmtpConnection,
        reuse: ConnectionReuse | None,
    ) -> None:
        """Keep it if it is of use still, else end it."""
        if not reuse or not connection.is_open or connection.mails >= reuse.mails_max:
            self.part_with(connection)
            return
        expiry = asyncio.get_running_loop().call_later(reuse.idle.total_seconds(), self._expire, connection)
        self._kept[connection] = (key, expiry)
        for oldest in list(self._kept)[: -reuse.connections_max]:
            self._let_go(oldest)
            self.part_with(oldest)

    def part_with(self, connection: SmtpConnection) -> None:
        """End it; the server's side of that is waited for at the end."""
        leaving = connection.quit()
        self._leaving = [other for other in self._leaving if not other.is_gone]
        if leaving:
            self._leaving.append(leaving)

    async def end(self) -> None:
        for connection in list(self._kept):
            self._let_go(connection)
            self.part_with(connection)
        await asyncio.gather(*(leaving.end(_LEAVING_MAX) for leaving in self._leaving))

    def _expire(self, connection: SmtpConnection) -> None:
        self._kept.pop(connection, None)
        self.part_with(connection)

    def _let_go(self, connection: SmtpConnection) -> None:
        _, expiry = self._kept.pop(connection)
        expiry.cancel()


class _Transaction:
    """One attempt over one connection, and a result for each recipient: the first result is kept.

    Every method that talks to the server may raise `StageEnded`.
    """

    def __init__(self, attempt: DeliveryAttempt, before_content: BeforeContent, fitted: FittedMails) -> None:
        self._attempt = attempt
        self._before_content = before_content
        self._fitted = fitted
        self._results: list[RecipientResult | None] = [None] * len(attempt.recipients)
        self._tls = ""
        self._tells = False

    @property
    def results(self) -> Sequence[RecipientResult]:
        """In the order of the recipients."""
        return [result for result in self._results if result is not None]

    def end_rest(self, stage: AttemptStage, reply: SmtpReply) -> None:
        """Give every recipient without a result this one."""
        for place in range(len(self._results)):
            self._end(place, stage, reply)

    async def carry_out(self, connection: SmtpConnection, content: bytes) -> None:
        offered = connection.offered
        self._tls = connection.tls
        self._tells = "dsn" in offered
        refusal = refused_without_tls(self._attempt.mail, offered, secured=bool(connection.tls))
        if refusal:
            self.end_rest(AttemptStage.TLS, refusal)
            return
        connection.mails += 1
        async with self._fitted.lines(content, offered, self._attempt.signer) as lines:
            if isinstance(lines, SmtpReply):
                self.end_rest(AttemptStage.MAIL, lines)
            else:
                await self._carried_out(connection, lines)

    async def _carried_out(self, connection: SmtpConnection, lines: bytes) -> None:
        commands = commands_for(self._attempt.mail, self._attempt.recipients, lines, connection.offered)
        if isinstance(commands, SmtpReply):
            self.end_rest(AttemptStage.MAIL, commands)
            return
        limit = self._attempt.timeouts.command
        mail_words, recipient_words = commands
        reply = await connection.command(AttemptStage.MAIL, limit, *mail_words)
        if not reply.positive:
            self.end_rest(AttemptStage.MAIL, reply)
            return
        accepted = await self._accepted(connection, recipient_words)
        if accepted:
            await self._content(connection, lines, accepted)

    async def _accepted(
        self, connection: SmtpConnection, commands: Sequence[CommandWords | SmtpReply]
    ) -> Sequence[int]:
        """The places of the recipients that the server accepts."""
        stage = AttemptStage.RECIPIENT
        accepted = list[int]()
        for place, words in enumerate(commands):
            if isinstance(words, SmtpReply):
                self._end(place, stage, words)
                continue
            reply = await connection.command(stage, self._attempt.timeouts.command, *words)
            if reply.positive:
                accepted.append(place)
                continue
            if accepted:
                reply = _too_many(reply)
            self._end(place, stage, reply)
        return accepted

    async def _content(self, connection: SmtpConnection, lines: bytes, accepted: Sequence[int]) -> None:
        is_lmtp = self._attempt.protocol is DeliveryProtocol.LMTP
        owed = 1
        if is_lmtp:
            owed = len(accepted)
        replies, is_sent = await connection.content(lines, owed, self._attempt.timeouts, self._before_content)
        if not is_lmtp:
            replies = [*replies] * len(accepted)
        for place, reply in zip(accepted, replies, strict=True):
            # The server has all of the mail: where it gives no usable reply, it may have taken the mail.
            self._end(place, AttemptStage.DATA, reply, uncertain=is_sent and reply.ours)

    def _end(self, place: int, stage: AttemptStage, reply: SmtpReply, *, uncertain: bool = False) -> None:
        if self._results[place] is not None:
            return
        delivered = stage is AttemptStage.DATA and reply.positive
        self._results[place] = RecipientResult(
            recipient=self._attempt.recipients[place].recipient,
            delivered=delivered,
            reply=reply,
            stage=stage,
            host=self._attempt.hop.host,
            uncertain=uncertain,
            tells=delivered and self._tells,
            tls=self._tls,
        )


def _too_many(reply: SmtpReply) -> SmtpReply:
    """A 552 after others were accepted means too many recipients, and passes with the next mail (RFC 5321 4.5.3.1.10).

    One whose enhanced code says something else means that.
    """
    if reply.code != _TOO_MANY_RECIPIENTS or reply.enhanced not in {"", "5.5.3"}:
        return reply
    return SmtpReply(452, "4.5.3", f"too many recipients at once: {reply}", ours=True)
