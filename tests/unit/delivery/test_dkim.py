"""Signatures of DKIM, as another implementation verifies them: dkimpy, with a DNS of the test's own."""

import re
from base64 import b64encode

import dkim
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.delivery.smtp.outgoing.signing import (
    DkimSigner,
    PrivateKey,
    author_domains,
    private_key,
    relaxed_blocks,
)
from mailmend.delivery.transports import CannotSign
from mailmend.model.errors import WrongUse
from mailmend.repair.clock import SystemClock
from tests.support.smtp_attempts import deliver
from tests.support.smtp_sink import SmtpSink

RSA_KEY = generate_rsa_key(65537, 1024)
ED25519_KEY = Ed25519PrivateKey.generate()


def pem_of(key: object, encryption: KeySerializationEncryption | None = None) -> bytes:
    written: bytes = key.private_bytes(  # type: ignore[attr-defined]
        Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()
    )
    return written


RSA = private_key("r2026", pem_of(RSA_KEY))
ED25519 = private_key("e2026", pem_of(ED25519_KEY))
MAIL = (
    b"Received: from a\r\n"
    b"From: Ann Example <ann@News.Example.org>\r\n"
    b"To: bob@example.com\r\n"
    b"Subject:  a  long\r\n\t subject \r\n"
    b"Date: Fri, 1 May 2026 12:00:00 +0000\r\n"
    b"Message-ID: <1@example.org>\r\n"
    b"MIME-Version: 1.0\r\n"
    b"Content-Type: text/plain\r\n"
    b"\r\n"
    b"Hello  Bob,\t \r\n\r\n bye\r\n \t\r\n\r\n"
)


def signer(*keys: PrivateKey, domain: str = "example.org") -> DkimSigner:
    return DkimSigner({domain: keys}, SystemClock().micros)


def public_text(name: bytes, timeout: int = 5) -> bytes:
    """What DNS has for a selector, as dkimpy asks for it."""
    if name.startswith(b"r2026._domainkey.example.org"):
        assert isinstance(RSA.key, RSAPrivateKey)
        der = RSA.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return b"v=DKIM1; k=rsa; p=" + b64encode(der)
    assert name.startswith(b"e2026._domainkey.example.org"), name
    return b"v=DKIM1; k=ed25519; p=" + b64encode(ED25519_KEY.public_key().public_bytes_raw())


def is_verified(lines: bytes, number: int = 0) -> bool:
    """Whether the signature of that number, from the top, is that of this mail."""
    try:
        found: bool = dkim.DKIM(lines).verify(number, dnsfunc=public_text)
    except dkim.ValidationError:
        return False
    return found


@pytest.mark.parametrize("key", [RSA, ED25519], ids=lambda key: key.algorithm)
def test_a_mail_is_signed_by_the_key_of_its_author(key: PrivateKey) -> None:
    """The key of a domain is that of its subdomains too."""
    signed = signer(key).signed(MAIL)

    assert is_verified(signed)
    assert signed.endswith(MAIL)
    assert signed.startswith(f"DKIM-Signature: v=1; a={key.algorithm}; c=relaxed/relaxed; d=example.org; ".encode())
    assert b"h=from:subject:date:message-id:to:mime-version:content-type:from;" in signed
    assert max(map(len, signed.split(b"\r\n"))) < 100


def test_a_mail_is_signed_by_each_key_of_its_domain() -> None:
    signed = signer(RSA, ED25519).signed(MAIL)
    assert is_verified(signed, 0)
    assert is_verified(signed, 1)


@pytest.mark.parametrize(
    ("what", "instead", "holds"),
    [
        (b"Hello  Bob,\t \r\n", b"Hello Bob,\r\n", True),
        (b"Subject:  a  long\r\n\t subject \r\n", b"subject: a long subject\r\n", True),
        (b"Received: from a\r\n", b"", True),
        (b"Hello", b"Goodbye", False),
        (b"a  long", b"another", False),
        (b"To: bob@example.com\r\n", b"", False),
        (b"Received: from a\r\n", b"From: eve@example.net\r\n", False),
    ],
)
def test_a_signature_holds_for_what_servers_alter_and_for_nothing_else(
    what: bytes, instead: bytes, *, holds: bool
) -> None:
    """Blanks, foldings and traces may change; content, signed fields and a second author may not."""
    signed = signer(RSA).signed(MAIL)
    altered = signed.replace(what, instead, 1)
    assert altered != signed
    assert is_verified(altered) is holds


BLANKS = st.sampled_from([" ", "\t", "  ", " \t "])
WORDS = st.sampled_from(["a", "be", "From:", "b=", "=", "é", "."])
LINES = st.lists(st.lists(st.one_of(WORDS, BLANKS), max_size=6).map("".join), max_size=8)


@settings(max_examples=60, deadline=None)
@given(LINES, st.lists(st.sampled_from(["To: x", "to:\r\n y", "List-Id:\t<l>", "X-A: b", "Subject:"]), max_size=5))
def test_whatever_is_in_a_mail_its_signature_is_verified(body: list[str], fields: list[str]) -> None:
    """Lines of blanks, empty ones, repeated fields, no body at all."""
    lines = ["From: ann@example.org", *fields, *(["", *body] if body else [])]
    mail = "".join(f"{line}\r\n" for line in lines)
    assert is_verified(signer(ED25519).signed(mail.encode()))


@pytest.mark.parametrize(
    "author",
    [
        b"From: ann@example.net\r\n",
        b"From: ann@badexample.org\r\n",
        b"From: ann@org\r\n",
        b"From: ann\r\n",
        b"From: \r\n",
        b"From: ann@[192.0.2.1]\r\n",
        b"From: ann@example.org\r\nFrom: bob@example.org\r\n",
        b"From: ann@example.org <eve@evil.example>\r\n",
        b"From: eve@evil.example, Ann <ann@example.org>\r\n",
        b"From: Ann <ann@example.org>, Eve <eve@evil.example>\r\n",
        b"From: (ann@example.org) eve@evil.example\r\n",
        b'From: "<ann@example.org>" <eve@evil.example>\r\n',
        b"From: ann@example.org <>\r\n",
        b"\r\nFrom: ann@example.org\r\n",
        b"From: " + b"a" * 10_001 + b"@example.org\r\n",
        b"Sender: ann@example.org\r\n",
        b"",
    ],
)
def test_a_mail_without_a_key_of_its_author_goes_as_it_is(author: bytes) -> None:
    """Also where it is not certain who that is."""
    mail = author + b"Subject: hello\r\n\r\nBody.\r\n"
    assert signer(RSA).signed(mail) == mail


@pytest.mark.parametrize(
    ("author", "domain"),
    [
        ("ann@a.b.example.org", "b.example.org"),
        ("ann@b.example.org", "b.example.org"),
        ("ann@c.example.org", "example.org"),
        ("ann@EXAMPLE.ORG", "example.org"),
        ("bob@bücher.example", "xn--bcher-kva.example"),
        ("x@example.org, y@c.example.org", "example.org"),
        ("Foo, Bar <ann@example.org>", "example.org"),
        ("Ann [Team] <ann@example.org>", "example.org"),
        ("Ann @ Work <ann@example.org>", "example.org"),
        ("ann@home <ann@example.org>", "example.org"),
        ("ann@example.org (Ann (at work))", "example.org"),
        ("Ann (work <ann@example.org>", "example.org"),
        ('"ann, (b" <"<x>"@example.org>', "example.org"),
        ("Team: ann@example.org, Bob <bob@example.org>;", "example.org"),
    ],
)
def test_the_nearest_domain_with_a_key_signs(author: str, domain: str) -> None:
    known = DkimSigner(dict.fromkeys(("example.org", "b.example.org", "xn--bcher-kva.example"), (ED25519,)), int)
    found = re.search(rb" d=([^;]+);", known.signed(f"From: {author}\r\n\r\n".encode()))
    assert found
    assert found[1].decode() == domain


@pytest.mark.parametrize(
    ("author", "why"),
    [
        ("From: ann", "cannot be read"),
        ("From: ann@[nowhere", "cannot be read"),
        ("Subject: x", "it has 0 From fields"),
        ("From: a@example.org\r\nFrom: b@example.org", "it has 2 From fields"),
        ("From: a@example.org, b@b.example.org", "different keys"),
        ("From: " + "a" * 10_000 + "@example.org", "too long"),
        ("From: a@example.net", None),
    ],
)
def test_the_log_says_why_a_mail_goes_unsigned_that_may_have_a_key(
    author: str, why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """One whose author has no key for sure is none to speak of."""
    known = DkimSigner(dict.fromkeys(("example.org", "b.example.org"), (ED25519,)), int)
    mail = f"{author}\r\n\r\nBody.\r\n".encode()

    assert known.signed(mail) == mail

    assert DkimSigner({"example.org": ()}, int).signed(mail) == mail

    said = [str(vars(record)["why"]) for record in caplog.records]
    assert len(said) == (why is not None)
    assert not why or why in said[0]


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from('(")\\<>@,;:a. é'), max_size=60))
def test_whatever_is_in_a_from_field_it_is_read(author: str) -> None:
    author_domains(author.encode())


@pytest.mark.parametrize("mark", ["(", "<", '"', "\\", ",", "@", '\\"', "()", "<@", "a "])
def test_a_from_field_of_marks_costs_no_more_than_another(mark: str) -> None:
    """2,000 brackets have once ended each attempt by an error."""
    clock = SystemClock()
    began = clock.monotonic()
    author_domains((mark * 5_000 + " <ann@example.org>").encode())
    assert clock.monotonic() - began < 1


def test_a_field_that_is_there_often_is_signed_some_times() -> None:
    """The signature stays small, and holds."""
    mail = b"To: a\r\n" * 100_000 + MAIL
    clock = SystemClock()
    began = clock.monotonic()

    signed = signer(ED25519).signed(mail)

    assert clock.monotonic() - began < 5
    assert len(signed) - len(mail) < 1_000
    assert is_verified(signed.removesuffix(mail) + b"To: a\r\n" * 60 + MAIL)


def test_a_mail_of_many_blocks_is_signed_as_one_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a block ends: in blanks, or in empty lines."""
    body = b"a  b \t\r\n\r\n\r\n \r\nc\r\n\r\n"
    whole = b"".join(relaxed_blocks(body))
    assert whole == b"a b\r\n\r\n\r\n\r\nc\r\n"
    for size in range(len(body)):
        monkeypatch.setattr("mailmend.delivery.smtp.outgoing.signing._BLOCK_BYTES", size)
        assert b"".join(relaxed_blocks(body)) == whole
    assert not b"".join(relaxed_blocks(b"\r\n \r\n"))


def test_blanks_cost_no_more_than_other_bytes() -> None:
    """A line of 998 blanks in each line: a search that begins at each of them takes minutes."""
    mail = MAIL + (b" " * 997 + b"x\r\n") * 10_000
    clock = SystemClock()
    began = clock.monotonic()
    signer(ED25519).signed(mail)
    assert clock.monotonic() - began < 10


WRONG = {
    "curve": pem_of(generate_private_key(SECP256R1())),
    "closed": pem_of(ED25519_KEY, BestAvailableEncryption(b"word")),
    "text": b"p=abc",
    "public": RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("curve", "this is another"),
        ("closed", "the key has a password"),
        ("text", "not a private key"),
        ("public", "not a private key"),
    ],
)
def test_a_key_that_cannot_sign_is_refused(name: str, what: str) -> None:
    """With what to do instead."""
    with pytest.raises(WrongUse, match=what) as refused:
        private_key("s", WRONG[name])
    assert "openssl" in refused.value.mend


def test_a_key_that_is_too_short_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailmend.delivery.smtp.outgoing.signing.RSA_BITS_MIN", 1025)
    with pytest.raises(WrongUse, match="the key has 1024 bits, and 1025 are the least"):
        private_key("s", pem_of(RSA_KEY))


async def test_a_mail_is_signed_as_it_is_sent() -> None:
    """After its 8-bit bytes were encoded for the server: over a real connection, and verified there."""
    sink = SmtpSink(extensions=("SIZE 100000",))
    content = MAIL.replace(b"Hello", "Grüß dich".encode())

    results = await deliver(sink, content, signer=signer(RSA, ED25519))

    assert all(result.delivered for result in results)
    (mail,) = sink.mails
    assert mail.content.isascii()
    assert is_verified(mail.content, 0)
    assert is_verified(mail.content, 1)
    assert f"SIZE={len(mail.content)}" in mail.sender


class BrokenSigner:
    """Implements `delivery.transports.ContentSigner`."""

    def signed(self, lines: bytes) -> bytes:
        assert lines
        raise CannotSign("the key r2026 of example.org does not sign")


async def test_a_mail_that_cannot_be_signed_waits() -> None:
    """It is refused for now, by name, and not sent unsigned."""
    sink = SmtpSink()

    results = await deliver(sink, signer=BrokenSigner())

    assert {str(result.reply) for result in results} == {
        "451 4.3.5 the mail cannot be signed: the key r2026 of example.org does not sign"
    }
    assert not sink.mails
