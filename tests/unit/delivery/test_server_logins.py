"""Logging in at a server: PLAIN and LOGIN, over TLS or on this machine alone, and no secret in any answer."""

import ssl
from base64 import b64encode

import pytest

from mailmend.delivery.mail.attempts import AttemptStage, NextHop, SmtpReply
from mailmend.delivery.policy.file.replies import all_classes
from mailmend.delivery.policy.reply_classes import ClassifiedReply
from mailmend.delivery.smtp.outgoing.logins import login_refused, may_log_in
from mailmend.delivery.transports import ConnectionReuse, SmtpLogin, TlsLevel
from tests.support.certificates import authority
from tests.support.smtp_attempts import CONTENT, attempt, deliver, relay
from tests.support.smtp_sink import DROP, SmtpSink, say

ANN = SmtpLogin("ann", password="s3cret of ann")
KNOWN = {"ann": "s3cret of ann"}


@pytest.mark.parametrize("offered", ["AUTH PLAIN LOGIN", "AUTH LOGIN", "AUTH CRAM-MD5 PLAIN", "AUTH=LOGIN"])
async def test_mails_are_handed_over_as_a_user(offered: str) -> None:
    """By what the server offers; over a connection that is kept, the user logs in once."""
    sink = SmtpSink(extensions=("8BITMIME", offered), passwords=KNOWN)

    async with sink.running(), relay(reuse=ConnectionReuse()) as made:
        for _ in range(2):
            results = await made.deliver(attempt(sink, login=ANN), CONTENT)
            assert all(result.delivered for result in results)

    assert [mail.user for mail in sink.mails] == ["ann", "ann"]
    assert sum(line.startswith("AUTH") for line in sink.lines) == 1


async def test_a_connection_of_a_user_is_no_one_elses() -> None:
    sink = SmtpSink(extensions=("AUTH PLAIN",), passwords={**KNOWN, "bob": "x"})

    async with sink.running(), relay(reuse=ConnectionReuse()) as made:
        for login in (ANN, SmtpLogin("bob", password="x"), None):
            await made.deliver(attempt(sink, login=login), CONTENT)

    assert [mail.user for mail in sink.mails] == ["ann", "bob", ""]


@pytest.mark.parametrize(
    ("script", "status", "what"),
    [
        ({}, "4.7.8", "535 5.7.8 ("),
        ({"AUTH": [say("454 4.7.0 not now")]}, "4.3.2", "454 4.7.0 ("),
        ({"AUTH": [say("421 4.3.2 closing")]}, "4.3.2", "421 4.3.2 ("),
        ({"AUTH": [say("334 go on")]}, "4.7.8", "334 ("),
        ({"AUTH": [say("what is s3cret of ann")]}, "4.7.8", "it answered what is no reply"),
        ({"AUTH": [DROP]}, "4.7.8", "the connection was lost"),
    ],
)
async def test_a_login_that_fails_is_a_refusal_for_now(script: dict[str, list[object]], status: str, what: str) -> None:
    """Whatever the server says: another try may find it mended, and the mail is not at fault."""
    sink = SmtpSink(script, extensions=("AUTH PLAIN",))  # type: ignore[arg-type]

    results = await deliver(sink, login=ANN)

    assert {(one.stage, one.reply.enhanced, one.reply.temporary) for one in results} == {
        (AttemptStage.GREETING, status, True)
    }
    assert what in results[0].reply.text
    assert "s3cret" not in results[0].reply.text
    assert not sink.mails


@pytest.mark.parametrize("offered", ["AUTH CRAM-MD5 XOAUTH2", "8BITMIME"])
async def test_a_server_without_a_mechanism_of_ours_gets_no_mail(offered: str) -> None:
    sink = SmtpSink(extensions=(offered,), passwords=KNOWN)

    results = await deliver(sink, login=ANN)

    assert {(one.reply.enhanced, one.reply.temporary) for one in results} == {("4.7.0", True)}
    assert not any(line.startswith("AUTH") for line in sink.lines)


def test_a_password_goes_over_tls_or_to_this_machine_alone() -> None:
    remote, here = NextHop("a.example", "192.0.2.1"), NextHop("b.example", "::ffff:127.0.0.1")
    allowed = [may_log_in(hop, secured=secured) for hop in (remote, here) for secured in (True, False)]
    assert allowed == [True, False, True, True]


async def test_a_password_that_nothing_secures_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailmend.delivery.smtp.outgoing.connections.may_log_in", lambda _, secured: secured)
    sink = SmtpSink(extensions=("AUTH PLAIN",), passwords=KNOWN)

    results = await deliver(sink, login=ANN)

    assert {(one.reply.enhanced, one.reply.temporary) for one in results} == {("4.7.11", True)}
    assert [line for line in sink.lines if line != "QUIT"] == ["EHLO client.example"]


async def test_a_user_logs_in_over_a_connection_that_is_secured(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the server offers is read again then: many offer AUTH over TLS alone."""
    monkeypatch.setattr("mailmend.delivery.smtp.outgoing.connections.may_log_in", lambda _, secured: secured)
    known = authority(tmp_path_factory.mktemp("tls"), "authority")
    files = known.signed("server", "DNS:localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    sink = SmtpSink(extensions=("AUTH PLAIN",), passwords=KNOWN, tls=context)

    async with sink.running(), relay(authorities=known.file) as made:
        results = await made.deliver(attempt(sink, login=ANN, tls=TlsLevel.VERIFIED), CONTENT)

    assert all(one.delivered for one in results)
    assert [(mail.user, mail.secured) for mail in sink.mails] == [("ann", True)]


CODED = b64encode(b"\0ann\0s3cret of ann").decode()


@pytest.mark.parametrize(
    "said",
    [
        "what is s3cret of ann",
        "what is S3CRET OF ANN",
        f"Command unrecognized: AUTH PLAIN {CODED[:16]}...",
        f"what is {CODED.rstrip('=').lower()}",
        f"what is {CODED[:9]}\n{CODED[9:]}",
        b64encode(b"ann").decode(),
    ],
)
def test_no_secret_is_in_an_answer(said: str) -> None:
    """Where a server repeats what was said to it, however it is cut or altered, nothing of that is shown."""
    text = login_refused(SmtpReply.parsed(500, said)).text

    assert text.startswith("our login at the server failed: 500 (")
    assert not any(word in text for word in said.lower().split())
    assert "s3cret" not in f"{ANN!r}"


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("421 4.3.2 closing", "ServerBusy"),
        ("454 4.7.0 Temporary authentication failure", "ServerBusy"),
        ("450 later", "ServerBusy"),
        ("535 5.7.8 no", "AuthFailed"),
        ("432 4.7.12 A password transition is needed", "AuthFailed"),
        ("454 4.7.8 no", "AuthFailed"),
        ("500 what", "AuthFailed"),
    ],
)
def test_a_temporary_reply_to_a_login_is_no_failed_login(said: str, named: str) -> None:
    code, _, text = said.partition(" ")
    refused = login_refused(SmtpReply.parsed(int(code), text))

    assert (refused.code, all_classes(()).of(ClassifiedReply("", refused.enhanced, refused.text))) == (451, named)
