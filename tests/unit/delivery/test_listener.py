"""Mails that clients hand over by SMTP or LMTP, on loopback, into a queue in memory."""

import asyncio
import logging
import re
import smtplib
from datetime import timedelta
from ipaddress import ip_network

import pytest

from mailmend.delivery.mail.encoding import canonical_lines
from mailmend.delivery.settings import ListenAddress, ListenerSettings
from mailmend.delivery.smtp.incoming.listener import MailListener
from mailmend.delivery.transports import DeliveryProtocol
from mailmend.model.errors import BrokerUnreachable, MailmendError, PublishFailed, WrongUse
from tests.support.logs import logged
from tests.support.mail_clients import HOST, LIMIT_SECONDS, MAIL, RCPT, SlowQueue, entrance

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"
LMTP = DeliveryProtocol.LMTP
STATUS = re.compile(r"([245])\d\d \1\.\d\.\d .+")


async def test_a_mail_that_a_client_hands_over_is_in_the_queue() -> None:
    """With its envelope, and its bytes behind a field that tells of its coming."""
    async with entrance() as site:

        def send() -> None:
            with smtplib.SMTP(HOST, site.port, "client.example", timeout=LIMIT_SECONDS) as client:
                client.sendmail("ann@example.org", ["bob@example.com", "cy@example.com"], CONTENT)

        await asyncio.to_thread(send)
        ((mail, content),) = await site.mails()

    assert (mail.sender, mail.recipients) == ("ann@example.org", ("bob@example.com", "cy@example.com"))
    assert mail.remote_addr == HOST
    assert content.endswith(b"\r\n" + CONTENT)
    assert re.match(
        rb"Received: from client\.example \(\[127\.0\.0\.1\]\)\r\n\tby in\.example with ESMTP id [0-9a-f-]{36};"
        rb"\r\n\t\w{3}, \d\d? \w{3} \d{4} [\d:]{8} \+0000\r\nSubject: hello",
        content,
    )


async def test_a_mail_is_answered_once_it_is_in_the_queue() -> None:
    """Not before: until then the client may not forget it."""
    async with entrance() as site:
        site.queue.goes_on.clear()
        client = await site.client()
        answer = asyncio.ensure_future(client.hand_over(CONTENT))
        await asyncio.wait_for(site.queue.began.wait(), LIMIT_SECONDS)
        early = await asyncio.wait({answer}, timeout=0.05)
        site.queue.goes_on.set()
        assert (await answer)[:9] == "250 2.0.0"

    assert not early[0]


@pytest.mark.parametrize(
    "error", [BrokerUnreachable("away"), PublishFailed("no"), WrongUse("no"), RuntimeError("a bug")]
)
async def test_a_mail_that_the_queue_does_not_take_stays_with_the_client(error: MailmendError | RuntimeError) -> None:
    """By a reply that says to come again; the connection goes on."""
    async with entrance() as site:
        site.queue.error = error
        client = await site.client()
        refused = await client.hand_over(CONTENT)
        site.queue.error = None
        taken = await client.hand_over(CONTENT)
        assert await site.contents() == [CONTENT]

    assert (refused[:9], taken[:9]) == ("451 4.3.0", "250 2.0.0")


async def test_a_client_that_leaves_early_stops_no_mail_that_it_has_ended() -> None:
    """What is being put into the queue gets there whole."""
    async with entrance() as site:
        site.queue.goes_on.clear()
        client = await site.client()
        await client.say(MAIL, RCPT, "DATA")
        client.write(CONTENT + b".\r\n")
        await asyncio.wait_for(site.queue.began.wait(), LIMIT_SECONDS)
        client.reset()
        site.stop.set()
        await site.until(lambda: not site.listener.connections.open)
        site.queue.goes_on.set()
        await site.serving
        assert await site.contents() == [CONTENT]


async def test_what_the_server_can_is_offered() -> None:
    """To EHLO alone."""
    async with entrance(mail_bytes_max=1000) as site:
        client = await site.client("")
        assert (await client.reply()) == "220 in.example ESMTP mailmend"
        offered = (await client.say("EHLO client.example")).splitlines()
        assert await client.say("HELO client.example") == "250 in.example"

    assert [line[4:] for line in offered] == [
        "in.example",
        "SIZE 1000",
        "8BITMIME",
        "PIPELINING",
        "DSN",
        "ENHANCEDSTATUSCODES",
    ]


@pytest.mark.parametrize(
    ("network", "answer"), [("192.0.2.0/24", "554 5.7.1"), ("::1/128", "554 5.7.1"), ("127.0.0.0/24", "220 in.ex")]
)
async def test_a_client_outside_all_networks_that_may_relay_is_refused_at_the_greeting(
    network: str, answer: str
) -> None:
    """No recipient is local, so a mail of such a client cannot be taken; its connection holds no place."""
    async with entrance(relay_from=(ip_network(network),)) as site:
        client = await site.client("")
        assert (await client.reply())[:9] == answer
        assert len(site.listener.connections.open) == (answer[:3] == "220")
        if answer[:3] == "554":
            assert await client.reply() == ""


def test_loopback_alone_may_relay_by_default() -> None:
    """An address of IPv4 that is written in IPv6 is itself."""
    settings = ListenerSettings(host_name="in.example", addresses=())
    asked = ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "::2", "::ffff:10.0.0.1", "")
    assert [settings.may_relay(one) for one in asked] == [True] * 3 + [False] * 4


@pytest.mark.parametrize(
    "content",
    [
        b"a\n.\r\nMAIL FROM:<eve@example.org>\r\n",
        b"a\n.\nb\r\n",
        b"a\r.\rb\r\n",
        b"a\r\n.\nb\r\n",
        b"a\r\n.\rb\r\n",
        b"a\n.\r\n",
        *(b"x" * size + b".\r\nend\r\n" for size in range(996, 1006)),
        b"x" * 9000 + b"\r\nend\r\n",
        b"",
    ],
)
async def test_only_a_line_of_one_dot_ends_a_mail(content: bytes) -> None:
    """Between CR LF: what other servers may take for an end is a part of the mail, and becomes lines of its own."""
    async with entrance() as site:
        client = await site.client()
        stuffed = content.replace(b"\r\n.", b"\r\n..")
        assert (await client.hand_over(stuffed))[:9] == "250 2.0.0"
        assert STATUS.fullmatch(await client.say("NOOP"))
        assert await site.contents() == [canonical_lines(content)]


async def test_dots_that_were_added_for_the_way_are_taken_off() -> None:
    """One of each line."""
    async with entrance() as site:
        client = await site.client()
        await client.hand_over(b"..\r\n...a\r\n.b\r\n")
        assert await site.contents() == [b".\r\n..a\r\nb\r\n"]


@pytest.mark.parametrize(("passed", "answer"), [(50, "250 2.0.0"), (51, "554 5.4.6")])
async def test_a_mail_that_goes_round_in_a_circle_is_refused(passed: int, answer: str) -> None:
    """By the fields of its header; those that its body quotes do not count."""
    async with entrance() as site:
        client = await site.client()
        content = b"RECEIVED: by a\r\n\tb\r\n" * passed + b"\r\n" + b"Received: by a\r\n" * 100
        assert (await client.hand_over(content))[:9] == answer


async def test_by_lmtp_each_recipient_is_answered() -> None:
    """The same for all, as they share a mail; HELO and EHLO are not LMTP's."""
    async with entrance(LMTP) as site:
        client = await site.client("LHLO client.example")
        assert (await client.say("EHLO client.example"))[:9] == "502 5.5.1"
        envelope = (MAIL, RCPT, "RCPT TO:<bob>", "RCPT TO:<cy@example.com>")
        taken = [await client.hand_over(CONTENT, *envelope), await client.reply()]
        site.queue.error = BrokerUnreachable("away")
        refused = [await client.hand_over(CONTENT, *envelope), await client.reply()]
        assert (await client.say("NOOP"))[:3] == "250"
        ((mail, content),) = await site.mails()

    assert [one[:9] for one in (*taken, *refused)] == ["250 2.0.0"] * 2 + ["451 4.3.0"] * 2
    assert mail.recipients == ("bob@example.com", "cy@example.com")
    assert b" with LMTP id " in content


@pytest.mark.parametrize(
    ("greeting", "parameters", "said"),
    [
        ("HELO a.example", "", b"from a.example ([127.0.0.1])\r\n\tby in.example with SMTP id"),
        ("EHLO [192.0.2.1]", " BODY=8BITMIME", b"from [192.0.2.1] ([127.0.0.1])\r\n\tby in.example with ESMTP id"),
        ("EHLO a (b) c", "", b"from unknown ([127.0.0.1])\r\n\tby in.example with ESMTP id"),
    ],
)
async def test_the_header_tells_how_a_mail_came(greeting: str, parameters: str, said: bytes) -> None:
    """What a client calls itself stands there where it is a name."""
    async with entrance() as site:
        client = await site.client(greeting)
        await client.hand_over(CONTENT, MAIL + parameters, RCPT)
        ((_, content),) = await site.mails()

    assert said in content


async def test_commands_that_come_at_once_are_answered_in_their_order() -> None:
    """A mail behind another, too."""
    async with entrance() as site:
        client = await site.client()
        client.send(MAIL, RCPT, "RCPT TO:<x>", "DATA")
        answers = [await client.reply() for _ in range(4)]
        client.send("one", ".", MAIL, RCPT, "QUIT")
        answers += [await client.reply() for _ in range(5)]

    assert [one[:3] for one in answers] == ["250", "250", "553", "354", "250", "250", "250", "221", ""]


async def test_a_listener_that_ends_lets_mails_end_that_are_coming() -> None:
    """It takes no new connection, and sends the others away."""
    async with entrance() as site:
        sending, resting = await site.client(), await site.client()
        await resting.hand_over(b"first\r\n")
        await sending.say(MAIL, RCPT, "DATA")
        site.stop.set()
        said = [await resting.reply(), await resting.reply()]
        with pytest.raises(ConnectionError):
            await site.client()
        sending.write(CONTENT + b".\r\n")
        answers = [await sending.reply() for _ in range(3)]
        await asyncio.wait_for(site.serving, LIMIT_SECONDS)
        assert sorted(await site.contents()) == [CONTENT, b"first\r\n"]

    assert [one[:9] for one in (*said, *answers)] == ["421 4.3.2", "", "250 2.0.0", "421 4.3.2", ""]


async def test_a_mail_that_does_not_end_holds_up_nobody_for_long() -> None:
    """Its client is sent away, and nothing of it is kept."""
    async with entrance(grace=timedelta(milliseconds=50)) as site:
        client = await site.client()
        await client.say(MAIL, RCPT, "DATA")
        client.write(CONTENT)
        site.stop.set()
        await asyncio.wait_for(site.serving, LIMIT_SECONDS)
        assert (await client.reply())[:9] == "421 4.3.2"
        assert await site.mails() == []


async def test_an_address_that_is_in_use_is_named() -> None:
    """And the others are let go of."""
    async with entrance() as site:
        free, taken = ListenAddress(HOST, 0), ListenAddress(HOST, site.port)
        queue, settings = SlowQueue(), ListenerSettings(host_name="in.example", addresses=(free, taken))
        listener = MailListener(queue=queue, clock=queue.clock, settings=settings)
        with pytest.raises(WrongUse, match=f"mails cannot be taken at smtp://{HOST}:{site.port}: .*in use"):
            await listener.open()
        assert not [one for one in listener._servers if one.is_serving()]


async def test_logs_hold_nothing_of_a_mail(caplog: pytest.LogCaptureFixture) -> None:
    """Neither text nor addresses, whatever the level."""
    with caplog.at_level(logging.DEBUG):
        async with entrance() as site:
            client = await site.client()
            await client.hand_over(b"Subject: secret\r\n\r\nsecret\r\n")
            site.queue.error = RuntimeError("a bug")
            await client.hand_over(b"Subject: secret\r\n\r\nsecret\r\n")

    said = logged(caplog)
    assert "a mail was taken" in said
    assert "a mail was not taken" in said
    assert not [word for word in ("secret", "ann@", "bob@") if word in said]
