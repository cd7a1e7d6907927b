"""A real Postfix as the next server, and as one that hands mails over to us.

What it takes arrives as it was, and what it refuses is said in its own words; what we refuse for now it sends again.
"""

import asyncio
import smtplib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mailmend.delivery.mail.attempts import AttemptStage, DeliveryAttempt, NextHop
from mailmend.delivery.smtp.incoming.listener import ListenerTls
from mailmend.delivery.transports import ConnectionReuse, DeliveryProtocol, TlsLevel
from mailmend.model.errors import PublishFailed
from tests.support.certificates import Authority, authority
from tests.support.mail_clients import LIMIT_SECONDS, entrance
from tests.support.postfix import HOST, SIZE_MAX_BYTES, RunningPostfix, lmtp_sink, postfix, relaying_postfix
from tests.support.smtp_attempts import entries_of, limits, mail_of, relay

pytestmark = pytest.mark.thorough

CONTENT = "Subject: Grüße\r\n\r\n.\r\n..two\r\nÄ\r\n.\r\n".encode()


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def server(trusted: Authority) -> Iterator[RunningPostfix]:
    with postfix(trusted.signed("postfix", "DNS:localhost")) as running:
        yield running


def attempt(port: int, *recipients: str, sender: str | None = "from@example.com") -> DeliveryAttempt:
    entries = entries_of(*(f"{name}@example.org" for name in recipients))
    return DeliveryAttempt(mail_of(sender=sender), entries, NextHop("localhost", HOST, port), timeouts=limits())


async def test_postfix_takes_a_mail_for_those_that_it_knows(server: RunningPostfix, trusted: Authority) -> None:
    """Over a connection that is secured and verified; the mail arrives byte for byte."""
    asked = replace(attempt(server.port, "a", "nobody"), tls=TlsLevel.VERIFIED)

    async with relay(authorities=trusted.file) as made:
        taken, unknown = await made.deliver(asked, CONTENT)

    assert (taken.delivered, taken.reply.code, taken.tells, taken.tls) == (True, 250, True, "TLSv1.3")
    assert taken.reply.text.startswith("Ok: queued as ")
    assert (unknown.stage, unknown.reply.status, unknown.reply.permanent) == (AttemptStage.RECIPIENT, "5.1.1", True)
    [arrived] = server.mails("a", 1)
    header, _, body = arrived.partition(b"\n\n")
    assert "Subject: Grüße".encode() in header
    assert body == CONTENT.partition(b"\r\n\r\n")[2].replace(b"\r\n", b"\n")


async def test_postfix_takes_many_mails_over_one_connection(server: RunningPostfix) -> None:
    """One of which it refuses."""
    async with relay(reuse=ConnectionReuse()) as made:
        asked = [attempt(server.port, *names) for names in (("b",), ("nobody",), ("b",), ("b",))]
        results = [one for each in asked for one in await made.deliver(each, CONTENT)]

    assert [one.delivered for one in results] == [True, False, True, True]
    assert len(server.mails("b", 3)) == 3
    assert "ehlo=2 starttls=1 mail=4 rcpt=3/4 data=3 rset=3 quit=1" in server.log


async def test_postfix_takes_addresses_beyond_ascii(server: RunningPostfix) -> None:
    """And a mail without a sender."""
    async with relay() as made:
        results = await made.deliver(attempt(server.port, "jörg", sender=None), CONTENT)

    assert [one.delivered for one in results] == [True]
    assert b"Return-Path: <>" in server.mails("jörg", 1)[0]


async def test_postfix_says_how_large_a_mail_may_be(server: RunningPostfix) -> None:
    """So that one that is larger is not sent at all."""
    async with relay() as made:
        [result] = await made.deliver(attempt(server.port, "a"), b"x" * (SIZE_MAX_BYTES + 1))

    assert (result.stage, result.reply.status, result.reply.ours) == (AttemptStage.MAIL, "5.3.4", True)


async def test_postfix_refuses_what_it_does_not_relay(server: RunningPostfix) -> None:
    """Mail of another domain, for now."""
    elsewhere = replace(attempt(server.port), recipients=entries_of("a@example.net"))

    async with relay() as made:
        [result] = await made.deliver(elsewhere, CONTENT)

    assert (result.stage, result.reply.code, result.reply.status) == (AttemptStage.RECIPIENT, 454, "4.7.1")


@pytest.mark.parametrize(
    ("options", "codes", "delivered"),
    [((), [250, 250], True), (("-r", "."), [450, 450], False), (("-f", "data"), [500, 500], False)],
)
async def test_postfixs_own_server_of_lmtp(options: tuple[str, ...], codes: list[int], *, delivered: bool) -> None:
    """It answers for each recipient; a refusal of the content or of DATA is each one's."""
    with lmtp_sink(*options) as (port, folder):
        asked = replace(attempt(port, "a", "b"), protocol=DeliveryProtocol.LMTP)
        async with relay() as made:
            results = await made.deliver(asked, CONTENT)
        mails = [file.read_bytes() for file in Path(folder).iterdir()]

    assert [(one.delivered, one.reply.code) for one in results] == [(delivered, code) for code in codes]
    assert not delivered or any(CONTENT.replace(b"\r\n", b"\n") in mail for mail in mails)


async def test_postfix_hands_its_mails_over_to_us(trusted: Authority) -> None:
    """By TLS, byte for byte; the one that our queue does not take at first stays with it, and comes again."""
    own = trusted.signed("listener", f"IP:{HOST}")
    async with entrance(tls=ListenerTls(certificate=own.certificate, key=own.key)) as site:
        site.queue.error = PublishFailed("the broker is away")
        with relaying_postfix(site.port) as peer:

            def send() -> None:
                with smtplib.SMTP(HOST, peer.port, timeout=LIMIT_SECONDS) as client:
                    client.sendmail("from@example.com", ["a@example.org", "b@example.org"], CONTENT)

            await asyncio.to_thread(send)
            await asyncio.to_thread(peer.until_logged, r"status=deferred \(host 127\.0\.0\.1\S* said: 451")
            site.queue.error = None
            await asyncio.to_thread(peer.flush)
            await asyncio.to_thread(peer.until_logged, r"status=sent \(250 2\.0\.0")
        ((mail, content),) = await site.mails()

    assert (mail.sender, mail.recipients) == ("from@example.com", ("a@example.org", "b@example.org"))
    assert b" with ESMTPS id " in content
    assert content.endswith(CONTENT.partition(b"\r\n\r\n")[2])
