"""Contents that a server takes: what is encoded, what stays, and what is refused."""

from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import SMTP, default
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.delivery.mail.encoding import LINE_BYTES_MAX, CannotEncode, canonical_lines, fits, fitted, has_long_line

GREETING = "Grüße\r\n".encode()
SIMPLE = (
    b"Subject: 8bit\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Transfer-Encoding: 8bit\r\n\r\n" + GREETING
)
LONG = b"x" * 2_000


def multipart(kind: str, *parts: bytes, fields: bytes = b"") -> bytes:
    """A mail of some parts, each with header and body."""
    head = (
        b"From: ann@example.org\r\nMIME-Version: 1.0\r\nContent-Type: multipart/%s; boundary=edge\r\n" % kind.encode()
    )
    middle = b"".join(b"--edge\r\n" + part + b"\r\n" for part in parts)
    return head + fields + b"\r\nTo old programs.\r\n" + middle + b"--edge--\r\n"


def leaves(content: bytes) -> list[tuple[str, bytes]]:
    """The parts that a reader shows: each with its type, and decoded."""
    message: Message = message_from_bytes(content)
    parts: list[Any] = [one for one in message.walk() if not one.is_multipart()]
    return [(one.get_content_type(), one.get_payload(decode=True)) for one in parts]


def test_a_text_of_8_bits_is_quoted_printable_and_nothing_else_is_altered() -> None:
    assert fitted(SIMPLE, eight_bit=False) == (
        b"Subject: 8bit\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Content-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe\r\n"
    )
    assert fitted(SIMPLE, eight_bit=True) is SIMPLE


def test_a_text_that_says_nothing_of_itself_gets_what_a_reader_needs() -> None:
    assert fitted(b"Subject: a\r\n\r\n" + GREETING, eight_bit=False) == (
        b"Subject: a\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Content-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe\r\n"
    )
    latin = fitted(b"Subject: a\r\n\r\nGr\xfc\xdfe\r\n", eight_bit=False)
    assert b"charset=unknown-8bit\r\n" in latin
    assert latin.endswith(b"\r\n\r\nGr=FC=DFe\r\n")


def test_what_is_mostly_8_bits_or_no_text_is_base64() -> None:
    chinese = "收件人" * 200
    text = b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + chinese.encode() + b"\r\n"
    image = b"Content-Type: image/png\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\x89PNG plain words\r\n"
    for content in (text, image):
        made = fitted(content, eight_bit=False)
        assert b"Content-Transfer-Encoding: base64\r\n" in made
        assert leaves(made) == leaves(content)


def test_only_the_parts_that_need_it_are_encoded() -> None:
    plain = b"Content-Type: text/plain\r\n\r\nJust ASCII, with  blanks \r\n.\r\n"
    coded = b"Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo="
    eight = b"Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n<p>" + GREETING
    nested = multipart("alternative", plain, eight).replace(b"edge", b"inner")
    content = multipart("mixed", plain, nested, coded, fields=b"Content-Transfer-Encoding: 8bit\r\n")

    made = fitted(content, eight_bit=False)

    assert made.isascii()
    assert leaves(made) == leaves(content)
    changed = eight.replace(b"8bit", b"quoted-printable").replace(GREETING, b"Gr=C3=BC=C3=9Fe\r\n")
    inner = nested.replace(eight, changed)
    outer = content.replace(nested, inner).replace(
        b"edge\r\nContent-Transfer-Encoding: 8bit", b"edge\r\nContent-Transfer-Encoding: 7bit"
    )
    assert made == outer


def test_a_mail_in_a_mail_is_encoded_inside() -> None:
    """Its own part may not be: RFC 2046 5.2.1."""
    attached = b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + SIMPLE
    made = fitted(multipart("mixed", attached), eight_bit=False)
    assert made == multipart("mixed", attached.replace(b"8bit\r\n\r\nS", b"7bit\r\n\r\nS")).replace(
        SIMPLE, fitted(SIMPLE, eight_bit=False)
    ).replace(b"rfc822\r\nContent-Transfer-Encoding: 8bit", b"rfc822\r\nContent-Transfer-Encoding: 7bit")


def test_a_digest_holds_mails_without_saying_so() -> None:
    made = fitted(multipart("digest", b"\r\n" + SIMPLE), eight_bit=False)
    assert made == multipart("digest", b"\r\n" + fitted(SIMPLE, eight_bit=False))


@pytest.mark.parametrize("eight_bit", [False, True])
@pytest.mark.parametrize("body", [LONG + b"\r\n", b"a\r\n" + LONG + b" \t\r\nb\r\n", LONG])
def test_a_long_line_is_encoded_wherever_it_stands(body: bytes, eight_bit: bool) -> None:
    for content in (b"Subject: a\r\n\r\n" + body, multipart("mixed", b"Content-Type: text/plain\r\n\r\n" + body)):
        made = fitted(content, eight_bit=eight_bit)
        assert not has_long_line(made)
        assert leaves(made) == leaves(content)
        assert b"Content-Transfer-Encoding: quoted-printable\r\n" in made


def test_base64_in_one_line_is_wrapped_and_quoted_printable_is_mended() -> None:
    base = b"Content-Type: image/png\r\nContent-Transfer-Encoding: BASE64\r\n\r\n" + b"QUJD" * 1_000 + b"\r\n"
    quoted = b"Content-Transfer-Encoding: quoted-printable\r\n\r\n" + b"=C3=BC" * 400 + b" ende \xfc=\r\n!\r\n"
    for content in (base, quoted):
        made = fitted(content, eight_bit=False)
        assert made.isascii()
        assert max(map(len, made.splitlines())) <= 78
        assert leaves(made) == leaves(content)


def test_a_line_of_998_bytes_is_sent_as_it_is() -> None:
    content = b"Subject: a\r\n\r\n" + b"x" * LINE_BYTES_MAX + b"\r\n"
    assert fitted(content, eight_bit=False) is content
    assert has_long_line(content.replace(b"x", b"xx", 1))


def test_a_long_field_is_folded_at_blanks_and_else_broken() -> None:
    references = b"References: " + b" ".join(b"<%d@example.org>" % number for number in range(200)) + b"\r\n"
    made = fitted(references + b"X-Long: " + LONG + b"\r\n\r\nbody\r\n", eight_bit=True)
    header, _, body = made.partition(b"\r\n\r\n")
    assert max(map(len, header.split(b"\r\n"))) <= LINE_BYTES_MAX
    assert header.replace(b"\r\n", b"").startswith(references.rstrip())
    assert header.replace(b"\r\n ", b"").endswith(LONG)
    assert body == b"body\r\n"


def test_8_bits_in_fields_become_encoded_words() -> None:
    content = (
        "From: Jürgen Groß <ann@example.org>\r\nSubject: Grüße aus Köln\r\nX-Odd: ÿ\r\n"
        'Content-Disposition: attachment; filename="Übersicht.pdf"\r\n\r\nbody\r\n'
    ).encode()
    made = fitted(content, eight_bit=False)
    read: Any = message_from_bytes(made, policy=default)
    assert made.isascii()
    assert (read["Subject"], read["From"], read["X-Odd"]) == ("Grüße aus Köln", "Jürgen Groß <ann@example.org>", "ÿ")
    assert read.get_filename() == "Übersicht.pdf"
    assert made.endswith(b"\r\n\r\nbody\r\n")


SEALED = multipart("signed", SIMPLE, b"Content-Type: application/pgp-signature\r\n\r\nsig")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (SEALED, "5.6.3"),
        (multipart("mixed", SEALED.replace(b"edge", b"inner")), "5.6.3"),
        (SEALED.replace(b"multipart/signed", b"multipart/encrypted"), "5.6.3"),
        (b"Content-Type: message/partial; id=1\r\n\r\n" + GREETING, "5.6.3"),
        (b"Content-Transfer-Encoding: x-uuencode\r\n\r\n" + GREETING, "5.6.3"),
        (b"Content-Type: multipart/mixed\r\n\r\n--a\r\n\r\n" + GREETING, "5.6.3"),
        (b"Content-Type: multipart/mixed; boundary=gone\r\n\r\n" + GREETING, "5.6.3"),
        (multipart("mixed", b"\r\n") * 60 + GREETING, None),
        ("To: jürgen@example.org\r\n\r\nbody\r\n".encode(), "5.6.7"),
    ],
)
def test_what_must_not_be_altered_or_cannot_be_read_is_refused(content: bytes, status: str | None) -> None:
    if status is None:
        assert fitted(content, eight_bit=False).isascii()
        return
    with pytest.raises(CannotEncode) as refused:
        fitted(content, eight_bit=False)
    assert refused.value.status == status
    assert "\n" not in refused.value.what


def test_a_sealed_part_that_fits_stays_as_it_is_beside_one_that_is_encoded() -> None:
    sealed = multipart("signed", b"\r\nASCII \r\n", b"\r\nsig").replace(b"edge", b"inner")
    content = multipart("mixed", sealed, SIMPLE)
    made = fitted(content, eight_bit=False)
    assert made == multipart("mixed", sealed, fitted(SIMPLE, eight_bit=False))


def test_many_parts_within_each_other_are_refused_and_cost_little() -> None:
    content = SIMPLE
    for number in range(60):
        content = (
            multipart("mixed", content)
            .replace(b"edge", b"edge%d" % number, 1)
            .replace(b"--edge\r\n", b"--edge%d\r\n" % number)
            .replace(b"--edge--\r\n", b"--edge%d--\r\n" % number)
        )
    with pytest.raises(CannotEncode):
        fitted(content, eight_bit=False)


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=1_500)


@given(st.lists(st.tuples(texts, st.sampled_from(["plain", "html", "octets", "mail"])), min_size=1, max_size=4), texts)
@example([("-" * 80 + "edge ü", "plain")], "")
@example([("x" * 74 + "--edge ü", "plain"), (" " * 2_000, "html")], "ü" * 300)
def test_a_reader_sees_the_same_mail(parts: list[tuple[str, str]], subject: str) -> None:
    """Whatever is in it; and what was made fits, and is made no further."""
    message = EmailMessage(policy=SMTP.clone(cte_type="8bit"))
    message["Subject"] = subject
    message.set_content("ASCII\n")
    for text, kind in parts:
        if kind == "octets":
            message.add_attachment(text.encode(), maintype="application", subtype="octet-stream", cte="8bit")
        elif kind == "mail":
            inner = EmailMessage(policy=message.policy)
            inner.set_content(text, cte="8bit")
            message.add_attachment(inner)
        else:
            message.add_attachment(text, subtype=kind, cte="8bit")
    content = message.as_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")
    for eight_bit in (False, True):
        made = fitted(content, eight_bit=eight_bit)
        assert fits(made, eight_bit=eight_bit)
        assert leaves(made) == leaves(content)
        assert fitted(made, eight_bit=eight_bit) is made


@given(st.binary(max_size=4_000), st.booleans())
def test_any_bytes_are_made_to_fit_or_refused(body: bytes, eight_bit: bool) -> None:
    content = canonical_lines(body) + b"\r\n"
    try:
        made = fitted(content, eight_bit=eight_bit)
    except CannotEncode:
        return
    assert fits(made, eight_bit=eight_bit)
