"""Mails that clients hand over by TLS, on loopback, with certificates of the test's own."""

import asyncio
import shutil
import smtplib
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mailmend.delivery.settings import GIVES_WAY_AFTER, ListenAddress, ListenerSettings
from mailmend.delivery.smtp.incoming import client_connections
from mailmend.delivery.smtp.incoming.listener import ListenerTls, MailListener
from mailmend.delivery.transports import DeliveryProtocol
from mailmend.model.errors import WrongUse
from tests.support.certificates import Authority, Signed, authority
from tests.support.mail_clients import HOST, LIMIT_SECONDS, MAIL, RCPT, MailClient, MailEntrance, SlowQueue, entrance

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"
LMTP, SMTP = DeliveryProtocol.LMTP, DeliveryProtocol.SMTP


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def own(trusted: Authority) -> Signed:
    return trusted.signed("in", f"IP:{HOST}")


@pytest.fixture
def tls(own: Signed) -> ListenerTls:
    return ListenerTls(certificate=own.certificate, key=own.key)


def client_context(trusted: Authority, shown: Signed | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=trusted.file)
    if shown:
        context.load_cert_chain(shown.certificate, shown.key)
    return context


async def handed_over(site: MailEntrance, use: Callable[[int], smtplib.SMTP]) -> None:
    def send() -> None:
        with use(site.port) as client:
            client.sendmail("ann@example.org", ["bob@example.com"], CONTENT)

    await asyncio.to_thread(send)


@pytest.mark.parametrize(("kind", "protocol"), [(smtplib.SMTP, "ESMTPS"), (smtplib.LMTP, "LMTPS")])
async def test_a_client_may_secure_its_connection(
    trusted: Authority, tls: ListenerTls, kind: type[smtplib.SMTP], protocol: str
) -> None:
    """By STARTTLS; the mail tells of it, and what was said before has to be said again."""

    def secured(port: int) -> smtplib.SMTP:
        client = kind(HOST, port, "client.example")
        client.starttls(context=client_context(trusted))
        assert client.docmd("MAIL FROM:<ann@example.org>")[0] == 503
        assert not client.has_extn("starttls")
        return client

    async with entrance(LMTP if kind is smtplib.LMTP else SMTP, tls=tls) as site:
        await handed_over(site, secured)
        ((_, content),) = await site.mails()

    assert f" with {protocol} id ".encode() in content
    assert content.endswith(CONTENT)


async def test_a_connection_may_be_secured_from_its_first_byte(trusted: Authority, tls: ListenerTls) -> None:
    async with entrance(tls=tls, secured=True) as site:
        assert str(site.listener.places[0]).startswith("smtps://")
        await handed_over(
            site, lambda port: smtplib.SMTP_SSL(HOST, port, "client.example", context=client_context(trusted))
        )
        ((_, content),) = await site.mails()

    assert b" with ESMTPS id " in content


async def secured(client: MailClient, trusted: Authority) -> None:
    await client.writer.start_tls(client_context(trusted), server_hostname=HOST)


@pytest.mark.parametrize("behind", [MAIL, f"EHLO a\r\n{MAIL}\r\n{RCPT}\r\nDATA", "x" * 500])
async def test_nothing_that_came_before_the_connection_was_secured_is_heeded(
    trusted: Authority, tls: ListenerTls, behind: str
) -> None:
    """Whatever somebody put behind STARTTLS, in the same packet: the first answer is to what came by TLS."""
    async with entrance(tls=tls) as site:
        client = await site.client()
        client.send("STARTTLS", behind)
        assert (await client.reply())[:3] == "220"
        await secured(client, trusted)
        assert (await client.say("EHLO client.example")).startswith("250-in.example\n")
        assert (await client.hand_over(CONTENT))[:9] == "250 2.0.0"
        assert [mail.sender for mail, _ in await site.mails()] == ["ann@example.org"]


async def test_what_a_client_began_is_forgotten_once_it_secures_its_connection(
    trusted: Authority, tls: ListenerTls
) -> None:
    """Sender and recipients too; and it is secured once."""
    async with entrance(tls=tls) as site:
        client = await site.client()
        await client.say(MAIL, RCPT, "STARTTLS")
        await secured(client, trusted)
        answers = [await client.say(one) for one in ("DATA", "EHLO client.example", "DATA", "STARTTLS")]

    assert [one[:9] for one in (answers[0], answers[2], answers[3])] == ["503 5.5.1"] * 3


async def test_where_tls_is_required_no_mail_begins_before_it(trusted: Authority, tls: ListenerTls) -> None:
    async with entrance(tls=tls, tls_required=True) as site:
        client = await site.client()
        assert (await client.say(MAIL))[:9] == "530 5.7.0"
        await client.say("STARTTLS")
        await secured(client, trusted)
        assert (await client.say("EHLO client.example", MAIL))[:9] == "250 2.1.0"


@pytest.mark.parametrize(
    ("has_certificate", "said", "answer"),
    [(False, "STARTTLS", "502 5.5.1"), (True, "STARTTLS now", "501 5.5.4"), (True, "STARTTLS", "220")],
)
async def test_starttls_is_for_whoever_has_a_certificate(
    tls: ListenerTls, has_certificate: bool, said: str, answer: str
) -> None:
    async with entrance(tls=tls if has_certificate else None) as site:
        client = await site.client()
        assert ("STARTTLS" in await client.say("EHLO client.example")) is has_certificate
        assert (await client.say(said)).startswith(answer)


@pytest.mark.parametrize("is_sent", [b"EHLO client.example\r\n", b""])
async def test_a_client_that_does_not_secure_its_connection_is_let_go(tls: ListenerTls, is_sent: bytes) -> None:
    """Whether it says something else or goes away; nothing of it is left, and others are taken."""
    async with entrance(tls=tls) as site:
        client = await site.client()
        await client.say("STARTTLS")
        client.write(is_sent)
        if not is_sent:
            await client.close()
        await site.until(lambda: not site.listener.connections.open)
        other = await site.client()
        assert (await other.hand_over(CONTENT))[:9] == "250 2.0.0"


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_client_that_never_secures_its_connection_is_sent_away(tls: ListenerTls, at_once: bool) -> None:
    async with entrance(tls=tls, secured=at_once, idle_max=timedelta(milliseconds=50)) as site:
        client = await site.client("" if at_once else "EHLO client.example")
        if not at_once:
            await client.say("STARTTLS")
        await site.until(lambda: site.listener.connections.refused["4.4.2"] > 0)
        assert not site.listener.connections.open
        assert await client.reply() == ""


async def test_a_connection_counts_before_it_is_secured(trusted: Authority, tls: ListenerTls) -> None:
    """Where it is secured from its first byte: others are sent away, and may come once its handshake has failed."""
    async with entrance(tls=tls, secured=True, connections_max=1) as site:
        first = await site.client("")
        await site.until(lambda: bool(site.listener.connections.open))
        second = await site.client("")
        assert await second.reply() == ""
        first.write(b"EHLO client.example\r\n")
        await site.until(lambda: not site.listener.connections.open)
        third = MailClient(*await asyncio.open_connection(HOST, site.port, ssl=client_context(trusted)))
        site.clients.append(third)
        assert (await third.reply())[:3] == "220"

    assert site.listener.connections.refused["4.3.2"] == 1


async def test_a_listener_that_ends_does_not_wait_for_a_handshake(tls: ListenerTls) -> None:
    async with entrance(tls=tls, secured=True) as site:
        client = await site.client("")
        await site.until(lambda: bool(site.listener.connections.open))
        site.stop.set()
        assert await client.reply() == ""


async def test_a_listener_that_ends_says_so_by_tls(trusted: Authority, tls: ListenerTls) -> None:
    async with entrance(tls=tls) as site:
        client = await site.client()
        await client.say("STARTTLS")
        await secured(client, trusted)
        await client.say("EHLO client.example", MAIL, RCPT, "DATA")
        site.stop.set()
        client.write(CONTENT + b".\r\n")
        answers = [await client.reply() for _ in range(3)]
        await asyncio.wait_for(site.serving, LIMIT_SECONDS)

    assert [one[:9] for one in answers] == ["250 2.0.0", "421 4.3.2", ""]


async def test_a_certificate_that_was_renewed_is_shown_from_then_on(
    trusted: Authority, own: Signed, tmp_path: Path
) -> None:
    """To clients of both kinds; one that cannot be used changes nothing, and open connections stay."""
    renewed = trusted.signed("renewed", f"IP:{HOST}")
    files = Signed(tmp_path / "own.pem", tmp_path / "own.key")

    def put(certificate: Path, key: Path) -> None:
        shutil.copy(certificate, files.certificate)
        shutil.copy(key, files.key)

    async def shown(site: MailEntrance, *, at_once: bool) -> Any:
        client = MailClient(
            *await asyncio.open_connection(HOST, site.port, ssl=client_context(trusted) if at_once else None)
        )
        site.clients.append(client)
        await client.reply()
        if not at_once:
            await client.say("EHLO client.example", "STARTTLS")
            await secured(client, trusted)
        peer = client.writer.get_extra_info("peercert")["subject"]
        assert (await client.say("EHLO client.example"))[:3] == "250"
        return peer[0][0][1]

    put(own.certificate, own.key)
    tls = ListenerTls(certificate=files.certificate, key=files.key)
    for at_once in (True, False):
        put(own.certificate, own.key)
        tls.read_again()
        async with entrance(tls=tls, secured=at_once) as site:
            names = [await shown(site, at_once=at_once)]
            put(renewed.certificate, own.key)
            with pytest.raises(WrongUse, match="cannot be used with the key"):
                tls.read_again()
            names.append(await shown(site, at_once=at_once))
            put(renewed.certificate, renewed.key)
            tls.read_again()
            names.append(await shown(site, at_once=at_once))
            assert (await site.clients[0].say("NOOP"))[:3] == "250"
        assert names == ["mailmend in", "mailmend in", "mailmend renewed"]


async def test_a_client_has_to_show_a_certificate_of_its_authority_where_one_is_named(
    trusted: Authority, own: Signed, tmp_path: Path
) -> None:
    """One of another authority, or none, does not do; also once the listener's own was renewed."""
    other = authority(tmp_path, "other").signed("client", "DNS:client.example")
    tls = ListenerTls(certificate=own.certificate, key=own.key, authority=Path(trusted.file))
    tls.read_again()

    async def answer(certificate: Signed | None) -> str:
        context = client_context(trusted, certificate)
        async with entrance(tls=tls, secured=True) as site:
            try:
                client = MailClient(*await asyncio.open_connection(HOST, site.port, ssl=context))
                site.clients.append(client)
                return await client.reply()
            except OSError:
                return ""

    answers = [await answer(one) for one in (trusted.signed("client", "DNS:client.example"), other, None)]
    assert [one[:3] for one in answers] == ["220", "", ""]


@pytest.mark.parametrize("broken", ["missing", "garbage", "password"])
def test_a_certificate_that_cannot_be_used_is_refused(own: Signed, tmp_path: Path, broken: str) -> None:
    """A key with a password too, for which nobody is asked."""
    key = tmp_path / "own.key"
    if broken == "garbage":
        key.write_text("garbage")
    if broken == "password":
        Signed(own.certificate, own.key).encrypted(key)
    with pytest.raises(WrongUse, match=f"the certificate {own.certificate} cannot be used with the key {key}: "):
        ListenerTls(certificate=own.certificate, key=key)


def test_an_authority_that_cannot_be_read_is_refused(own: Signed, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("garbage")
    with pytest.raises(WrongUse, match="cannot be read"):
        ListenerTls(certificate=own.certificate, key=own.key, authority=file)


async def test_an_address_that_is_secured_needs_a_certificate() -> None:
    queue, place = SlowQueue(), ListenAddress(HOST, 0, secured=True)
    settings = ListenerSettings(host_name="in.example", addresses=(place,))
    with pytest.raises(WrongUse, match=f"there is no certificate for smtps://{HOST}:0"):
        await MailListener(queue=queue, clock=queue.clock, settings=settings).open()


async def test_a_connection_whose_handshake_does_not_begin_gives_way_at_once(
    tls: ListenerTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a handshake that may take an hour: the connection is cut off, as nothing can be said to its client."""
    monkeypatch.setattr(client_connections, "HANDSHAKE_SECONDS", 3600)
    async with entrance(tls=tls, secured=True, connections_max=1) as site:
        waiting = await site.client("", "127.0.0.2")
        await site.until(lambda: len(site.listener.connections.open) == 1)
        site.passes(GIVES_WAY_AFTER)
        await site.client("")

        assert await waiting.reply() == ""
