"""What a relay says to a server, from its greeting on, and what it does not say."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mailmend.admin.local.processes import free_port
from mailmend.delivery.mail.attempts import AttemptStage, NextHop
from mailmend.delivery.mail.notices import NoticeCondition, ReturnedPart
from mailmend.delivery.smtp.outgoing.esmtp import ServerExtensions, commands_for
from mailmend.delivery.transports import SourceAddress
from tests.support.smtp_attempts import CONTENT, attempt, deliver, entries_of, mail_of, relay
from tests.support.smtp_sink import HOST, Answer, SmtpSink, say

SIGNED = (
    b"Content-Type: multipart/signed; boundary=edge\n\n--edge\nContent-Type: text/plain\n\nGr\xc3\xbc\xc3\x9fe\n"
    b"--edge\nContent-Type: application/pgp-signature\n\nsig\n--edge--\n"
)


@pytest.mark.parametrize("refusal", ["500 what", "502 no", "550 go away"])
async def test_a_server_without_extensions_is_greeted_by_helo(refusal: str) -> None:
    """A mail that needs none goes without."""
    sink = SmtpSink({"EHLO": [say(refusal)]})

    results = await deliver(sink)

    assert all(one.delivered and not one.tells for one in results)
    assert sink.lines[:3] == ["EHLO client.example", "HELO client.example", "MAIL FROM:<from@example.com>"]


@pytest.mark.parametrize(
    ("script", "reply"),
    [
        ({"EHLO": [say("500 what")], "HELO": [say("550 never")]}, "550 never"),
        ({"EHLO": [say("450 later")]}, "450 later"),
        ({"EHLO": [say("421 closing")]}, "421 closing"),
        ({"GREETING": [say("250 welcome")]}, "451 4.5.0 the server answered what was not asked: 250 welcome"),
    ],
)
async def test_a_greeting_that_is_refused_ends_the_attempt(script: dict[str, Sequence[Answer]], reply: str) -> None:
    """Before anything is said of the mail."""
    results = await deliver(SmtpSink(script))

    assert {(str(one.reply), one.stage) for one in results} == {(reply, AttemptStage.GREETING)}


async def test_lmtp_knows_no_other_greeting() -> None:
    """What refuses LHLO refuses the mail."""
    results = await deliver(SmtpSink({"LHLO": [say("500 what")]}, lmtp=True))

    assert {(one.reply.code, one.stage) for one in results} == {(500, AttemptStage.GREETING)}


async def test_a_server_that_is_not_there_refuses_for_now() -> None:
    """The result names it with its address."""
    port = free_port([HOST])
    sink = SmtpSink()
    asked = replace(attempt(sink), hop=NextHop("mx.example.org", HOST, port))

    async with relay() as made:
        results = await made.deliver(asked, CONTENT)

    assert {(one.stage, str(one.reply), one.host) for one in results} == {
        (
            AttemptStage.CONNECT,
            f"451 4.4.1 no connection to mx.example.org[{HOST}]:{port}: Connection refused",
            "mx.example.org",
        )
    }


async def test_a_connection_comes_from_its_source() -> None:
    """By the address and the name that the attempt says."""
    sink = SmtpSink()

    results = await deliver(sink, source=SourceAddress("127.0.0.77", "seventy-seven.example"))

    assert all(one.delivered for one in results)
    assert sink.mails[0].peer == "127.0.0.77"
    assert sink.lines[0] == "EHLO seventy-seven.example"


@pytest.mark.parametrize("source", [SourceAddress("192.0.2.1"), SourceAddress("::1"), SourceAddress("", "two words")])
async def test_a_source_that_cannot_be_had_refuses_for_now(source: SourceAddress) -> None:
    """It is a mistake of ours: no mail is lost by it."""
    results = await deliver(SmtpSink(), source=source)

    assert {(one.reply.temporary, one.reply.ours, one.delivered) for one in results} == {(True, True, False)}


async def test_what_the_sender_asked_for_is_passed_on() -> None:
    """ENVID, RET, NOTIFY and ORCPT, where the server offers DSN."""
    notify = frozenset({NoticeCondition.SUCCESS, NoticeCondition.DELAY})
    mail = mail_of(envelope_id="id=1", returned=ReturnedPart.HEADER)
    recipients = [
        replace(entry, notify=notify, original="rfc822;a+b@example.org") for entry in entries_of("a@example.org")
    ]
    sink, plain = SmtpSink(), SmtpSink(extensions=())

    results = [
        *await deliver(sink, mail=mail, recipients=recipients),
        *await deliver(plain, mail=mail, recipients=recipients),
    ]

    assert sink.lines[1:3] == [
        f"MAIL FROM:<from@example.com> SIZE={len(CONTENT)} RET=HDRS ENVID=id+3D1",
        "RCPT TO:<a@example.org> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;a+2Bb@example.org",
    ]
    assert plain.lines[1:3] == ["MAIL FROM:<from@example.com>", "RCPT TO:<a@example.org>"]
    assert [one.tells for one in results] == [True, False]


@pytest.mark.parametrize(
    ("extensions", "content", "international", "reply"),
    [
        (("SIZE 10",), CONTENT, False, "552 5.3.4 the mail has 29 bytes, and the server takes 10 at most"),
        ((), CONTENT, True, "550 5.6.7 the mail needs SMTPUTF8, which the server does not offer"),
        (
            (),
            SIGNED,
            False,
            "554 5.6.3 the mail is multipart/signed, which must not be altered, and has 8-bit bytes or too long lines",
        ),
        ((), "To: jürgen@example.org\n\n".encode(), False, "550 5.6.7 an address in the field To needs SMTPUTF8"),
    ],
)
async def test_a_mail_that_the_server_cannot_take_is_not_sent(
    extensions: Sequence[str], content: bytes, reply: str, *, international: bool
) -> None:
    """It is refused before MAIL, in our words."""
    sink = SmtpSink(extensions=extensions)

    results = await deliver(sink, content, mail=mail_of(is_international=international))

    assert {(str(one.reply), one.stage) for one in results} == {(reply, AttemptStage.MAIL)}
    assert not any(line.startswith("MAIL") for line in sink.lines)


@pytest.mark.parametrize("lmtp", [False, True])
async def test_a_mail_is_encoded_for_a_server_that_takes_7_bits_or_short_lines(lmtp: bool) -> None:
    """Another server gets its bytes as they are."""
    seven, eight = SmtpSink(extensions=("SIZE 9999999",), lmtp=lmtp), SmtpSink(extensions=("8BITMIME",), lmtp=lmtp)

    results = [*await deliver(seven, "Subject: a\n\nGrüße\n".encode()), *await deliver(eight, "Grüße\n".encode())]
    results += await deliver(SmtpSink(extensions=("8BITMIME",), mails=eight.mails), b"Subject: a\n\n" + b"x" * 1_200)

    assert all(one.delivered for one in results)
    encoded = (
        b"Subject: a\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Content-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe\r\n"
    )
    assert [one.content for one in seven.mails] == [encoded]
    assert seven.lines[1] == f"MAIL FROM:<from@example.com> SIZE={len(encoded)}"
    plain, long = (one.content for one in eight.mails)
    assert (plain, eight.lines[1]) == ("Grüße\r\n".encode(), "MAIL FROM:<from@example.com> BODY=8BITMIME")
    assert b"Content-Transfer-Encoding: quoted-printable\r\n" in long
    assert max(map(len, long.splitlines())) <= 76


async def test_a_priority_is_said_to_servers_that_know_it() -> None:
    """As James says it, which sets the attribute (RFC 6710)."""
    sink, plain = SmtpSink(extensions=("MT-PRIORITY",)), SmtpSink(extensions=())
    mail = mail_of(priority=-3)

    await deliver(sink, mail=mail)
    await deliver(plain, mail=mail)

    assert (sink.lines[1], plain.lines[1]) == (
        "MAIL FROM:<from@example.com> MT-PRIORITY=-3",
        "MAIL FROM:<from@example.com>",
    )


@pytest.mark.parametrize(
    ("sender", "recipient", "results"),
    [
        ("a@example.org> SIZE=1", "b@example.org", ["553 5.1.7 the sender's address is not valid"]),
        (None, "b@example.org>\r\nRSET", ["553 5.1.3 the recipient's address is not valid", "250 2.0.0 taken"]),
        (None, "", ["553 5.1.3 the recipient's address is not valid", "250 2.0.0 taken"]),
    ],
)
async def test_what_is_no_address_never_reaches_a_server(
    sender: str | None, recipient: str, results: Sequence[str]
) -> None:
    """The other recipients have their mail."""
    sink = SmtpSink()

    answered = await deliver(sink, mail=mail_of(sender=sender), recipients=entries_of(recipient, "other@example.org"))

    assert [str(one.reply) for one in answered] == [*results, *results][:2]
    assert "RSET" not in sink.lines


@pytest.mark.parametrize(
    ("sender", "recipient", "international", "needed"),
    [
        ("a@example.org", "b@example.org", False, False),
        ("ä@example.org", "b@example.org", False, True),
        (None, "ß@example.org", False, True),
        (None, "b@example.org", True, True),
    ],
)
def test_addresses_beyond_ascii_need_smtputf8(
    sender: str | None, recipient: str, *, international: bool, needed: bool
) -> None:
    """And a mail that says so itself."""
    mail = mail_of(sender=sender, is_international=international)

    commands = commands_for(mail, entries_of(recipient), CONTENT, ServerExtensions({"smtputf8": ""}))

    assert isinstance(commands, tuple)
    assert (b"SMTPUTF8" in commands[0]) is needed


async def test_addresses_beyond_ascii() -> None:
    """A domain alone goes in ASCII; a local part needs SMTPUTF8."""
    sink, other = SmtpSink(), SmtpSink(extensions=("8BITMIME",))

    results = [
        *await deliver(sink, recipients=entries_of("jörg@bücher.example")),
        *await deliver(other, recipients=entries_of("joerg@bücher.example")),
    ]

    assert all(one.delivered for one in results)
    assert sink.lines[1:3] == [
        f"MAIL FROM:<from@example.com> SIZE={len(CONTENT)} SMTPUTF8",
        "RCPT TO:<jörg@bücher.example>",
    ]
    assert other.lines[2] == "RCPT TO:<joerg@xn--bcher-kva.example>"
