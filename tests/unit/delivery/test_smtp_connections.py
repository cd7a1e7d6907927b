"""Connections that are secured, or have to be, and those that are kept for the next mail."""

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from mailmend.delivery.mail.attempts import AttemptStage
from mailmend.delivery.smtp.outgoing.connections import TlsContexts, opened
from mailmend.delivery.transports import ConnectionReuse, SourceAddress, TlsLevel
from tests.support.certificates import Authority, authority
from tests.support.smtp_attempts import CONTENT, SHORT, attempt, deliver, entries_of, limits, mail_of, relay
from tests.support.smtp_sink import DEAF, DROP, STALL, Answer, SmtpSink, say

SECURED = [TlsLevel.OPTIONAL, TlsLevel.REQUIRED, TlsLevel.VERIFIED]


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "other")


@pytest.fixture(scope="module")
def localhost(trusted: Authority) -> ssl.SSLContext:
    return shown(trusted, "DNS:localhost")


def shown(by: Authority, name: str, *, expired: bool = False) -> ssl.SSLContext:
    files = by.signed("server", name, expired=expired)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


@pytest.mark.parametrize("level", SECURED)
async def test_a_connection_is_secured_where_the_server_offers_it(
    level: TlsLevel, trusted: Authority, localhost: ssl.SSLContext
) -> None:
    """What the server offers is asked again then, and the result names the version."""
    sink = SmtpSink(tls=localhost)

    async with sink.running(), relay(authorities=trusted.file) as made:
        results = await made.deliver(attempt(sink, tls=level), CONTENT)

    assert all(one.delivered and one.tls.startswith("TLSv1.") for one in results)
    assert sink.mails[0].secured
    assert sink.lines[:3] == ["EHLO client.example", "STARTTLS", "EHLO client.example"]


async def test_a_connection_that_is_not_to_be_secured_is_not(localhost: ssl.SSLContext) -> None:
    """Whatever the server offers."""
    sink = SmtpSink(tls=localhost)

    results = await deliver(sink, tls=TlsLevel.NONE)

    assert {(one.delivered, one.tls) for one in results} == {(True, "")}
    assert not sink.mails[0].secured


async def test_lmtp_is_secured_too(localhost: ssl.SSLContext) -> None:
    """With a greeting of its own."""
    sink = SmtpSink(tls=localhost, lmtp=True)

    results = await deliver(sink, tls=TlsLevel.REQUIRED)

    assert all(one.delivered for one in results)
    assert sink.lines[:3] == ["LHLO client.example", "STARTTLS", "LHLO client.example"]


@pytest.mark.parametrize("level", [TlsLevel.REQUIRED, TlsLevel.VERIFIED])
@pytest.mark.parametrize("answer", ["454 4.7.0 not now", "502 no", "250 what"])
async def test_a_server_that_does_not_secure_gets_no_mail(
    level: TlsLevel, answer: str, localhost: ssl.SSLContext
) -> None:
    """Where that is required; it may be mended, so the mail comes again."""
    refusing, silent = SmtpSink({"STARTTLS": [say(answer)]}, tls=localhost), SmtpSink()

    results = [*await deliver(refusing, tls=level), *await deliver(silent, tls=level)]

    assert {(one.stage, one.reply.enhanced, one.reply.temporary) for one in results} == {
        (AttemptStage.TLS, "4.7.4", True)
    }
    assert not refusing.mails + silent.mails


@pytest.mark.parametrize(
    ("script", "connections"), [([say("454 4.7.0 not now")], 1), ([DROP], 2), ([STALL], 2), ([say("220-x\r\nwhat")], 2)]
)
async def test_where_securing_is_optional_a_failure_goes_without(
    script: list[object], connections: int, localhost: ssl.SSLContext
) -> None:
    """Over the same connection where it is of use still, else over another."""
    sink = SmtpSink({"STARTTLS": script}, tls=localhost)  # type: ignore[dict-item]

    results = await deliver(sink, timeouts=limits(tls=SHORT))

    assert {(one.delivered, one.tls) for one in results} == {(True, "")}
    assert sink.connections == connections


async def test_a_handshake_that_fails_goes_without_where_it_may(localhost: ssl.SSLContext) -> None:
    """A server of versions that nobody speaks any more."""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # it has no certificate: no handshake succeeds
    optional, required = SmtpSink(tls=old), SmtpSink(tls=old)

    results = [*await deliver(optional), *await deliver(required, tls=TlsLevel.REQUIRED)]

    assert [one.delivered for one in results] == [True, True, False, False]
    assert {(one.stage, one.reply.temporary) for one in results[2:]} == {(AttemptStage.TLS, True)}


@pytest.mark.parametrize(
    ("signer", "name", "expired"),
    [("other", "DNS:localhost", False), ("trusted", "DNS:else.example", False), ("trusted", "DNS:localhost", True)],
)
async def test_a_certificate_that_cannot_be_trusted_gets_no_mail(
    signer: str, name: str, trusted: Authority, other: Authority, *, expired: bool
) -> None:
    """Where it is held against the server's name; elsewhere any will do."""
    context = shown(trusted if signer == "trusted" else other, name, expired=expired)
    verified, required = SmtpSink(tls=context), SmtpSink(tls=context)

    async with verified.running(), required.running(), relay(authorities=trusted.file) as made:
        refused = await made.deliver(attempt(verified, tls=TlsLevel.VERIFIED), CONTENT)
        taken = await made.deliver(attempt(required, tls=TlsLevel.REQUIRED), CONTENT)

    assert {(one.stage, one.reply.enhanced) for one in refused} == {(AttemptStage.TLS, "4.7.5")}
    assert all(one.delivered for one in taken)
    assert not verified.mails


REQUIRING = mail_of(requires_tls=True)
OFFERED = ("8BITMIME", "REQUIRETLS")
FAILED = {"STARTTLS": [say("554 5.7.3 no")]}


async def test_a_mail_that_requires_tls_goes_where_the_server_promises_the_same(
    trusted: Authority, localhost: ssl.SSLContext
) -> None:
    """Over a certificate that was verified, whatever level is asked for (RFC 8689)."""
    sink = SmtpSink(tls=localhost, extensions=OFFERED)

    async with sink.running(), relay(authorities=trusted.file) as made:
        results = await made.deliver(attempt(sink, "a@example.org", mail=REQUIRING, tls=TlsLevel.NONE), CONTENT)

    assert [(one.delivered, one.tls[:5]) for one in results] == [(True, "TLSv1")]
    assert sink.mails[0].secured
    assert sink.mails[0].sender == "MAIL FROM:<from@example.com> REQUIRETLS"


@pytest.mark.parametrize(
    ("signer", "extensions", "script", "secured", "why"),
    [
        ("trusted", OFFERED, {}, False, "TLS is required, and the server does not offer it"),
        ("trusted", OFFERED, FAILED, True, "TLS is required, and the server refuses it: 554 5.7.3 no"),
        ("trusted", ("8BITMIME",), {}, True, "the server does not offer REQUIRETLS"),
        ("other", OFFERED, {}, True, "the server's certificate cannot be trusted: unable to get local issuer"),
    ],
)
async def test_a_mail_that_requires_tls_is_refused_for_good_before_it_goes(
    signer: str,
    extensions: Sequence[str],
    *,
    script: Mapping[str, Sequence[Answer]],
    secured: bool,
    why: str,
    trusted: Authority,
    other: Authority,
) -> None:
    """At the stage of TLS, so that another server of the domain is tried before."""
    context = shown(trusted if signer == "trusted" else other, "DNS:localhost") if secured else None
    sink = SmtpSink(script, tls=context, extensions=extensions)

    async with sink.running(), relay(authorities=trusted.file) as made:
        (result,) = await made.deliver(attempt(sink, "a@example.org", mail=REQUIRING), CONTENT)

    assert (result.stage, result.reply.permanent, result.reply.enhanced) == (AttemptStage.TLS, True, "5.7.30")
    assert result.reply.text.startswith(f"the mail requires TLS (REQUIRETLS): {why}")
    assert not any(line.startswith("MAIL") for line in sink.lines)


async def test_a_mail_that_requires_tls_waits_for_a_server_that_is_busy(localhost: ssl.SSLContext) -> None:
    sink = SmtpSink({"STARTTLS": [say("454 4.7.0 later")]}, tls=localhost, extensions=OFFERED)

    (result,) = await deliver(sink, mail=REQUIRING, recipients=entries_of("a@example.org"))

    assert (result.stage, result.reply.temporary, sink.mails) == (AttemptStage.TLS, True, [])


async def test_a_certificate_may_name_an_address(trusted: Authority) -> None:
    """For a server that has no name."""
    sink = SmtpSink(tls=shown(trusted, "IP:127.0.0.1"))

    async with sink.running(), relay(authorities=trusted.file) as made:
        asked = replace(attempt(sink, tls=TlsLevel.VERIFIED), hop=sink.hop("127.0.0.1"))
        results = await made.deliver(asked, CONTENT)

    assert all(one.delivered for one in results)


async def test_a_small_piece_waits_for_no_acknowledgement() -> None:
    """The end of a mail is sent at once (TCP_NODELAY)."""
    sink = SmtpSink()

    async with sink.running():
        connection = await opened(attempt(sink), TlsContexts(), "client.example")
        used = connection._client.get_transport_info("socket")
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.abort()


async def test_a_connection_is_kept_for_the_next_mail() -> None:
    """Of the same server, source and kind; each begins with RSET."""
    sink = SmtpSink()

    async with sink.running(), relay(reuse=ConnectionReuse()) as made:
        for _ in range(3):
            assert all(one.delivered for one in await made.deliver(attempt(sink), CONTENT))
        assert (sink.connections, made.idle_connections) == (1, 1)
        await made.deliver(attempt(sink, source=SourceAddress("127.0.0.2")), CONTENT)
        await made.deliver(attempt(sink, tls=TlsLevel.NONE), CONTENT)
        assert (sink.connections, made.idle_connections) == (3, 3)

    assert (sink.lines.count("RSET"), sink.lines.count("QUIT"), len(sink.mails)) == (2, 3, 5)


async def test_a_connection_ends_after_so_many_mails() -> None:
    """And is not kept."""
    sink = SmtpSink()

    async with sink.running(), relay(reuse=ConnectionReuse(mails_max=2)) as made:
        for _ in range(5):
            await made.deliver(attempt(sink), CONTENT)
        assert made.idle_connections == 1

    assert sink.connections == 3


async def test_a_connection_that_nobody_uses_ends() -> None:
    """After its time, in order."""
    sink = SmtpSink()

    async with sink.running(), relay(reuse=ConnectionReuse(idle=SHORT)) as made:
        await made.deliver(attempt(sink), CONTENT)
        async with asyncio.timeout(10):
            await sink.ended.wait()
        assert made.idle_connections == 0

    assert sink.lines[-1] == "QUIT"


async def test_so_many_connections_are_kept_and_no_more() -> None:
    """The oldest gives way."""
    sink = SmtpSink()

    async with sink.running(), relay(reuse=ConnectionReuse(connections_max=2)) as made:
        for number in (1, 2, 3, 3, 2, 1):
            await made.deliver(attempt(sink, source=SourceAddress(f"127.0.0.{number}")), CONTENT)
        assert made.idle_connections == 2

    assert sink.connections == 4


@pytest.mark.parametrize("answer", [DROP, say("421 4.4.2 you were idle"), say("500 what")])
async def test_a_kept_connection_that_is_of_no_use_is_replaced(answer: object) -> None:
    """The mail goes over another."""
    sink = SmtpSink({"RSET": [answer]})  # type: ignore[list-item]

    async with sink.running(), relay(reuse=ConnectionReuse()) as made:
        await made.deliver(attempt(sink), CONTENT)
        results = await made.deliver(attempt(sink), CONTENT)

    assert all(one.delivered for one in results)
    assert sink.connections == 2


async def test_a_connection_is_kept_after_a_refusal() -> None:
    """Which was that mail's alone."""
    sink = SmtpSink({"RCPT": [say("550 no")] * 2, "MAIL": [say("250 ok"), say("550 no")], "END": [say("554 no")]})

    async with sink.running(), relay(reuse=ConnectionReuse()) as made:
        results = [one.delivered for _ in range(4) for one in await made.deliver(attempt(sink), CONTENT)]

    assert results == [False] * 6 + [True] * 2
    assert sink.connections == 1


@pytest.mark.parametrize("word", ["GREETING", "MAIL", "RCPT", "DATA", "END"])
async def test_an_attempt_that_is_given_up_leaves_no_connection(word: str) -> None:
    """At any stage."""
    sink = SmtpSink({word: [STALL]})

    async with sink.running(), relay(reuse=ConnectionReuse()) as made:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await made.deliver(attempt(sink), CONTENT)
        assert made.idle_connections == 0
        async with asyncio.timeout(10):
            await sink.ended.wait()

    assert not sink.mails


async def test_the_end_waits_for_no_server(monkeypatch: pytest.MonkeyPatch, localhost: ssl.SSLContext) -> None:
    """One that does not answer to the end of a secured connection is left; one that reads no more too."""
    monkeypatch.setattr("mailmend.delivery.smtp.outgoing.relay._LEAVING_MAX", SHORT)
    sink = SmtpSink({"QUIT": [DEAF]}, tls=localhost)

    async with sink.running(), relay() as made:
        results = await made.deliver(attempt(sink, tls=TlsLevel.REQUIRED), CONTENT)

    assert all(one.delivered for one in results)
