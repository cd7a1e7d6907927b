"""The words of clients that hand over mails: what is taken from them, and what is answered to those that cannot be."""

import logging
import re
from datetime import UTC, datetime

import pytest

from mailmend.delivery.mail.envelopes import outgoing_of
from mailmend.delivery.mail.notices import NoticeCondition, ReturnedPart
from tests.support.mail_clients import MAIL, RCPT, entrance

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"
STATUS = re.compile(r"([245])\d\d \1\.\d\.\d .+")


async def test_what_a_sender_asks_to_hear_of_is_kept() -> None:
    """Delivery reads it again: RET and ENVID of the mail, NOTIFY and ORCPT of each recipient."""
    async with entrance() as site:
        client = await site.client()
        await client.hand_over(
            CONTENT,
            f"{MAIL} RET=hdrs ENVID=QQ+2B314159 BODY=8BITMIME",
            "RCPT TO:<bob@example.com> NOTIFY=Success,DELAY ORCPT=rfc822;Robert+2Bx@example.com",
            "RCPT TO:<cy@example.com> NOTIFY=NEVER",
            "RCPT TO:<di@example.com>",
        )
        async with site.queue.dequeue() as mails:
            mail, entries = outgoing_of(await anext(mails), datetime.now(UTC))

    assert (mail.envelope_id, mail.returned) == ("QQ+314159", ReturnedPart.HEADER)
    assert [(entry.notify, entry.original) for entry in entries] == [
        (frozenset({NoticeCondition.SUCCESS, NoticeCondition.DELAY}), "rfc822;Robert+x@example.com"),
        (frozenset({NoticeCondition.NEVER}), ""),
        (None, ""),
    ]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("MAIL FROM:<>", "250 2.1.0"),
        ("mail from: <@relay.example:ann@example.org>", "250 2.1.0"),
        ('MAIL FROM:<"a b"@example.org>', "250 2.1.0"),
        ("MAIL", "501 5.5.4"),
        ("MAIL FROM:", "501 5.5.4"),
        ("MAIL FROM:<", "501 5.5.4"),
        ("MAIL FROM:ann@example.org", "501 5.5.4"),
        ("MAIL TO:<ann@example.org>", "501 5.5.4"),
        ("MAIL FROM:<ann@example.org>SIZE=1", "501 5.5.4"),
        ("MAIL FROM:<ann>", "553 5.1.7"),
        ("MAIL FROM:<änn@example.org>", "553 5.6.7"),
        ("MAIL FROM:<\udcff@example.org>", "553 5.6.7"),
        (f"{MAIL} SIZE=x", "501 5.5.4"),
        (f"{MAIL} SIZE=1 SIZE=1", "501 5.5.4"),
        (f"{MAIL} SMTPUTF8", "555 5.5.4"),
        (f"{MAIL} BODY=BINARYMIME", "501 5.5.4"),
        (f"{MAIL} RET=ALL", "501 5.5.4"),
        (f"{MAIL} ENVID={'x' * 101}", "501 5.5.4"),
        (f"{MAIL} ENVID=a+0D+0Ab", "501 5.5.4"),
        (f"{MAIL} AUTH=<>", "555 5.5.4"),
        (f"{MAIL} {'x' * 2000}", "500 5.5.2"),
        (RCPT, "503 5.5.1"),
        ("DATA", "503 5.5.1"),
        ("", "500 5.5.2"),
        ("NOOP\rMAIL FROM:<ann@example.org>", "500 5.5.2"),
        ("NOOP \0", "500 5.5.2"),
        ("LHLO a.example", "502 5.5.1"),
        ("AUTH PLAIN AGE=", "502 5.5.1"),
        ("STARTTLS", "502 5.5.1"),
        ("EXPN all", "502 5.5.1"),
        ("VRFY ann", "252 2.5.0"),
        ("EHLO", "501 5.5.4"),
    ],
)
async def test_every_command_is_answered_by_what_it_is(
    line: str, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be read is no trouble of ours, and the connection goes on."""
    async with entrance() as site:
        client = await site.client()
        assert (await client.say(line))[:9] == answer
        assert STATUS.fullmatch(await client.say("NOOP"))

    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("RCPT TO:<Postmaster>", "250 2.1.5"),
        ("RCPT TO:<>", "553 5.1.3"),
        ("RCPT TO:<bob>", "553 5.1.3"),
        ("RCPT TO:<bøb@example.com>", "553 5.6.7"),
        ("RCPT FROM:<bob@example.com>", "501 5.5.4"),
        (f"{RCPT} NOTIFY=NEVER,DELAY", "501 5.5.4"),
        (f"{RCPT} ORCPT=bob@example.com", "501 5.5.4"),
        (f"{RCPT} SIZE=1", "555 5.5.4"),
        (MAIL, "503 5.5.1"),
        ("DATA now", "503 5.5.1"),
    ],
)
async def test_every_recipient_is_answered_by_what_it_is(line: str, answer: str) -> None:
    """Those that a queue cannot hold are refused before the mail comes."""
    async with entrance() as site:
        client = await site.client()
        assert (await client.say(MAIL, line))[:9] == answer


async def test_a_mail_needs_a_greeting() -> None:
    """Who the client is stands in the mail."""
    async with entrance() as site:
        client = await site.client("NOOP")
        assert (await client.say(MAIL))[:9] == "503 5.5.1"
