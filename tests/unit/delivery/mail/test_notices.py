"""Delivery status notifications as mail programs read them: by Python's own parser, which knows nothing of ours."""

from datetime import UTC, datetime
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.encoding import fits
from mailmend.delivery.mail.notices import (
    NoticeKind,
    RecipientNotice,
    ReturnedPart,
    StatusNotification,
)

NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
CONTENT = b"From: ann@example.org\r\nSubject: hello\r\n\r\nThe body.\r\n"
FAILED = RecipientNotice(
    kind=NoticeKind.FAILED,
    recipient="bob@example.com",
    status="5.1.1",
    reply="550 5.1.1 no such user",
    host="mx.example.com",
    original="rfc822;Bob@example.com",
    attempted_at=NOON,
)
DELAYED = RecipientNotice(kind=NoticeKind.DELAYED, recipient="cy@example.net", status="4.2.0", retry_until=NOON)


WHOLE = """\
From: Mail Delivery System <MAILER-DAEMON@mail.example.org>
To: <ann@example.org>
Subject: Your mail could not be delivered
Date: Sat, 29 Aug 2026 12:00:00 +0000
Message-ID: <5f0c2d1e@mail.example.org>
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="report-5f0c2d1e"
Content-Transfer-Encoding: 7bit

--report-5f0c2d1e
Content-Type: text/plain; charset=us-ascii

This is the mail system at mail.example.org, about a mail from you. What is attached shows which.

It could not be delivered to these recipients, and is not tried again:

  bob@example.com
    mx.example.com said: 550 5.1.1 no such user

It could not be delivered to these recipients yet. It is tried again; nothing is to be done:

  cy@example.net

--report-5f0c2d1e
Content-Type: message/delivery-status

Original-Envelope-Id: QQ314159
Reporting-MTA: dns; mail.example.org
Arrival-Date: Sat, 29 Aug 2026 12:00:00 +0000

Original-Recipient: rfc822;Bob@example.com
Final-Recipient: rfc822; bob@example.com
Action: failed
Status: 5.1.1
Remote-MTA: dns; mx.example.com
Diagnostic-Code: smtp; 550 5.1.1 no such user
Last-Attempt-Date: Sat, 29 Aug 2026 12:00:00 +0000

Final-Recipient: rfc822; cy@example.net
Action: delayed
Status: 4.2.0
Will-Retry-Until: Sat, 29 Aug 2026 12:00:00 +0000

--report-5f0c2d1e
Content-Type: message/rfc822
Content-Transfer-Encoding: 7bit

From: ann@example.org
Subject: hello

The body.

--report-5f0c2d1e--
"""


def report(*recipients: RecipientNotice, content: bytes = CONTENT, **more: Any) -> bytes:
    return StatusNotification(
        sender="ann@example.org",
        reporter="mail.example.org",
        recipients=recipients or (FAILED,),
        content=content,
        arrived_at=NOON,
        written_at=NOON,
        token="5f0c2d1e",
        **more,
    ).rendered()


def parts(rendered: bytes) -> tuple[Message, Message, list[Message], Message]:
    """The whole, the text for people, the groups of fields, and what comes back."""
    whole = message_from_bytes(rendered)
    text, status, returned = cast("list[Message]", whole.get_payload())
    return whole, text, cast("list[Message]", status.get_payload()), returned


def test_a_failure_is_reported_in_the_form_that_programs_read() -> None:
    """Header, and the fields of the mail and of the recipient, as RFC 3464 names them."""
    whole, text, (of_mail, of_recipient), returned = parts(report(envelope_id="QQ314159"))
    assert whole.get_content_type() == "multipart/report"
    assert whole.get_param("report-type") == "delivery-status"
    assert (whole["To"], whole["Auto-Submitted"]) == ("<ann@example.org>", "auto-replied")
    assert whole["From"] == "Mail Delivery System <MAILER-DAEMON@mail.example.org>"
    assert dict(of_mail.items()) == {
        "Original-Envelope-Id": "QQ314159",
        "Reporting-MTA": "dns; mail.example.org",
        "Arrival-Date": "Sat, 29 Aug 2026 12:00:00 +0000",
    }
    assert dict(of_recipient.items()) == {
        "Original-Recipient": "rfc822;Bob@example.com",
        "Final-Recipient": "rfc822; bob@example.com",
        "Action": "failed",
        "Status": "5.1.1",
        "Remote-MTA": "dns; mx.example.com",
        "Diagnostic-Code": "smtp; 550 5.1.1 no such user",
        "Last-Attempt-Date": "Sat, 29 Aug 2026 12:00:00 +0000",
    }
    assert "mx.example.com said: 550 5.1.1 no such user" in str(text.get_payload())
    assert returned.get_content_type() == "message/rfc822"


def test_a_whole_report_is_this() -> None:
    """Two recipients of a mail, to the letter; each line ends with CR and LF."""
    assert report(FAILED, DELAYED, envelope_id="QQ314159") == WHOLE.replace("\n", "\r\n").encode()


@pytest.mark.parametrize(
    ("kind", "subject", "said"),
    [
        (
            NoticeKind.FAILED,
            "Your mail could not be delivered",
            "It could not be delivered to these recipients, and is not tried again:",
        ),
        (
            NoticeKind.DELAYED,
            "Your mail is delayed",
            "It could not be delivered to these recipients yet. It is tried again; nothing is to be done:",
        ),
        (
            NoticeKind.RELAYED,
            "Your mail was passed on",
            "It was passed on to servers that may tell nothing further, for these recipients:",
        ),
        (NoticeKind.DELIVERED, "Your mail was delivered", "It was delivered to these recipients:"),
    ],
)
def test_each_kind_has_its_subject_and_its_sentence(kind: NoticeKind, subject: str, said: str) -> None:
    """And no other's; where nobody knows the server, it is called so."""
    notice = RecipientNotice(kind=kind, recipient="bob@example.com", status="2.0.0", reply="250 fine", retry_until=NOON)
    whole, text, (of_mail, of_recipient), _ = parts(report(notice))
    assert whole["Subject"] == subject
    assert str(text.get_payload()).splitlines() == [
        "This is the mail system at mail.example.org, about a mail from you. What is attached shows which.",
        "",
        said,
        "",
        "  bob@example.com",
        "    the server said: 250 fine",
    ]
    assert "Original-Envelope-Id" not in of_mail
    assert of_recipient["Action"] == kind.value
    assert ("Will-Retry-Until" in of_recipient) == (kind is NoticeKind.DELAYED)


@pytest.mark.parametrize(("length", "whole"), [(65_536, True), (65_537, False)])
def test_a_mail_comes_back_whole_up_to_a_length(length: int, whole: bool) -> None:
    """Where the sender did not say."""
    lines = b"x" * 62 + b"\r\n"
    content = (CONTENT + lines * 2_000)[: length - 2] + b"\r\n"
    assert (content in report(content=content)) == whole


def test_a_header_comes_back_whose_lines_end_otherwise() -> None:
    """And one that nothing follows."""
    cut = {"returned": ReturnedPart.HEADER}
    assert b"Subject: a\nTo: b\r\n\r\n--report" in report(content=b"Subject: a\nTo: b\n\nBody", **cut)
    assert b"Subject: a\r\n\r\n--report" in report(content=b"Subject: a", **cut)


@pytest.mark.parametrize(
    ("content", "header"),
    [
        (b"Subject: a\n\nBody\r\n\r\nmore\r\n", "Subject: a\n"),
        (b"Subject: a\r\n\r\nBody\n\nmore\r\n", "Subject: a\n"),
        (b"\r\n\r\nBody\r\n", "\n"),
        (b"\n\nBody\r\n", "\n"),
    ],
    ids=["LF first", "CR LF first", "no header", "no header, LF"],
)
def test_a_header_ends_at_its_first_empty_line(content: bytes, header: str) -> None:
    _, _, _, returned = parts(report(content=content, returned=ReturnedPart.HEADER))
    assert str(returned.get_payload()).replace("\r\n", "\n") == header
    assert (returned["Content-Type"], returned["Content-Transfer-Encoding"]) == ("text/rfc822-headers", "7bit")


def test_a_header_of_eight_bits_comes_back_as_quoted_printable() -> None:
    content = "Subject: grüße\r\n\r\nBody\r\n".encode()
    rendered = report(content=content, returned=ReturnedPart.HEADER)
    _, _, _, returned = parts(rendered)
    assert fits(rendered, eight_bit=False)
    assert returned["Content-Type"] == "text/rfc822-headers"
    assert returned["Content-Transfer-Encoding"] == "quoted-printable"
    assert cast("bytes", returned.get_payload(decode=True)).decode() == "Subject: grüße\r\n"


def test_a_long_reply_is_cut_and_a_strange_one_is_made_printable() -> None:
    """Lines stay below 998 characters; what is no ASCII becomes a question mark, what is no character a blank."""
    reply = "a\r\nÄ\x00" + "y" * 999
    wild = RecipientNotice(kind=NoticeKind.FAILED, recipient="b@x.example", status="5.0.0", reply=reply)
    _, _, (_, of_recipient), _ = parts(report(wild))
    diagnostic = of_recipient["Diagnostic-Code"]
    assert diagnostic.startswith("smtp; a  ? yyy")
    assert len(f"Diagnostic-Code: {diagnostic}") == 900


def test_recipients_of_one_mail_are_reported_together() -> None:
    """Each in a group of its own; the subject is that of the worst."""
    whole, text, (_, first, second), _ = parts(report(DELAYED, FAILED))
    assert [first["Action"], second["Action"]] == ["delayed", "failed"]
    assert first["Will-Retry-Until"] == "Sat, 29 Aug 2026 12:00:00 +0000"
    assert whole["Subject"] == "Your mail could not be delivered"
    assert str(text.get_payload()).index("not tried again") < str(text.get_payload()).index("It is tried again")


def test_a_mail_that_failed_by_its_age_says_so() -> None:
    """4.4.7 is the status of what expired; the last reply is in it all the same."""
    expired = RecipientNotice(
        kind=NoticeKind.FAILED, recipient="bob@example.com", status="4.2.0", reply="450 4.2.0 later", expired=True
    )
    _, text, (_, of_recipient), _ = parts(report(expired))
    assert of_recipient.items() == [
        ("Final-Recipient", "rfc822; bob@example.com"),
        ("Action", "failed"),
        ("Status", "4.4.7"),
        ("Diagnostic-Code", "smtp; 450 4.2.0 later"),
    ]
    assert "\n    it was tried for as long as it may be\r\n    the server said:" in str(text.get_payload())


def test_where_no_server_said_anything_a_sentence_of_ours_stands() -> None:
    """A domain that is not there has no reply."""
    nowhere = RecipientNotice(
        kind=NoticeKind.FAILED, recipient="bob@nowhere.example", status="5.1.2", why="there is no such domain"
    )
    _, text, (_, of_recipient), _ = parts(report(nowhere))
    assert "\n    there is no such domain\r\n" in str(text.get_payload())
    assert "Diagnostic-Code" not in of_recipient
    assert "Remote-MTA" not in of_recipient


LONG = CONTENT + b"x\r\n" * 30_000


@pytest.mark.parametrize(
    ("notice", "content", "returned", "comes_back"),
    [
        (FAILED, CONTENT, None, "all"),
        (FAILED, CONTENT, ReturnedPart.HEADER, "header"),
        (FAILED, LONG, None, "header"),
        (FAILED, LONG, ReturnedPart.FULL, "all"),
        (DELAYED, CONTENT, None, "header"),
        (DELAYED, CONTENT, ReturnedPart.FULL, "header"),
    ],
)
def test_of_the_mail_comes_back_what_was_asked_for(
    notice: RecipientNotice, content: bytes, returned: ReturnedPart | None, comes_back: str
) -> None:
    """All of it only with a failure; unasked, all of it only where it is short."""
    rendered = report(notice, content=content, returned=returned)
    _, _, _, part = parts(rendered)
    assert part.get_content_type() == ("message/rfc822" if comes_back == "all" else "text/rfc822-headers")
    assert (b"The body." in rendered) == (comes_back == "all")
    assert b"Subject: hello" in rendered


EIGHT_BIT = "Subject: grüße\r\nX-Long: ".encode() + b"x" * 2_000 + b"\r\n\r\nGr\xfc\xdfe\r\n" + b"y" * 2_000 + b"\r\n"


def test_a_mail_of_eight_bits_comes_back_in_seven() -> None:
    """Where its recipient was the fault, and not its form."""
    rendered = report(content=EIGHT_BIT)
    _, _, _, returned = parts(rendered)
    inner = cast("list[Message]", returned.get_payload())[0]
    assert fits(rendered, eight_bit=False)
    assert str(make_header(decode_header(inner["Subject"]))) == "grüße"
    assert inner.get_payload(decode=True) == EIGHT_BIT.partition(b"\r\n\r\n")[2]


def test_a_short_mail_of_eight_bits_comes_back_in_seven_with_the_line_ends_of_mails() -> None:
    """Given a mail whose lines end with CR, with LF, or with both."""
    rendered = report(content="Subject: a\rTo: b\n\r\none\rtwo\nGrüße\r\n".encode())
    _, _, _, returned = parts(rendered)
    inner = cast("list[Message]", returned.get_payload())[0]
    assert fits(rendered, eight_bit=False)
    assert rendered.count(b"\r") == rendered.count(b"\n") == rendered.count(b"\r\n")
    assert (inner["Subject"], inner["To"]) == ("a", "b")
    assert cast("bytes", inner.get_payload(decode=True)).decode() == "one\r\ntwo\r\nGrüße\r\n"


def test_of_a_signed_mail_of_eight_bits_comes_back_the_header() -> None:
    """Given a mail that must not be altered."""
    signed = b"Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n\r\n\xfc\r\n--b--\r\n"
    _, _, _, returned = parts(report(content=signed))
    assert returned.get_content_type() == "text/rfc822-headers"
    assert str(returned.get_payload()).strip() == "Content-Type: multipart/signed; boundary=b"


@pytest.mark.parametrize(
    ("status", "reply", "why"),
    [
        ("5.6.3", "", "the mail needs 8BITMIME, which the server does not offer"),
        ("5.6.7", "", "the mail needs SMTPUTF8"),
        ("5.3.4", "", "the mail has 29 bytes, and the server takes 10 at most"),
        ("5.2.3", "550 5.2.3 too much", ""),
        ("5.7.30", "", "the mail requires TLS"),
        ("5.0.0", "552 maximum allowed line length is 998 octets", ""),
        ("5.0.0", "554 no", ""),
        ("5.7.1", "550 5.7.1 Message looks like SPAM", ""),
        ("5.0.0", "500 8 bit data not allowed", ""),
        ("5.7.1", "550 5.7.1 a virus was found", ""),
        ("5.0.0", "550 this size is not taken", ""),
        ("5.0.0", "", "the high bits are set"),
        ("4.6.3", "", ""),
        ("5.0.0", "552 no", ""),
    ],
)
@pytest.mark.parametrize("returned", [None, ReturnedPart.FULL])
def test_a_report_on_the_form_of_a_mail_has_its_header_only(
    status: str, reply: str, why: str, returned: ReturnedPart | None
) -> None:
    """Whatever the sender asked for: the report would have the same fault."""
    notice = RecipientNotice(kind=NoticeKind.FAILED, recipient="b@x.example", status=status, reply=reply, why=why)
    for content in (CONTENT, EIGHT_BIT):
        rendered = report(notice, content=content, returned=returned)
        _, _, _, part = parts(rendered)
        assert fits(rendered, eight_bit=False)
        assert part.get_content_type() == "text/rfc822-headers"
        header = content.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        assert cast("bytes", part.get_payload(decode=True)) == header.removesuffix(b"\r\n")


def test_words_on_a_delay_do_not_keep_a_mail_back() -> None:
    """Given a mail that failed for one recipient, and waits for another whose server spoke of spam."""
    waiting = RecipientNotice(kind=NoticeKind.DELAYED, recipient="cy@x.example", status="4.7.1", reply="450 spam?")
    _, _, _, returned = parts(report(FAILED, waiting))
    assert returned.get_content_type() == "message/rfc822"


def test_a_header_that_comes_back_is_cut() -> None:
    """And is sent as long as it may be, where there is no end of it."""
    rendered = report(content=b"X-A: b\r\n" * 100_000, returned=ReturnedPart.HEADER)
    assert rendered.count(b"X-A: b\r\n") == 65_536 // len("X-A: b\r\n")
    assert len(rendered) < 70_000


def test_words_of_others_are_readable_in_the_text_of_a_report() -> None:
    """As quoted-printable; the fields for programs are ASCII."""
    notice = RecipientNotice(kind=NoticeKind.FAILED, recipient="b@x.example", status="5.1.1", reply="550 Empfänger weg")
    rendered = report(notice)
    _, text, (_, of_recipient), _ = parts(rendered)
    assert (text["Content-Type"], text["Content-Transfer-Encoding"]) == (
        "text/plain; charset=utf-8",
        "quoted-printable",
    )
    assert cast("bytes", text.get_payload(decode=True)).decode() == (
        "This is the mail system at mail.example.org, about a mail from you. What is attached shows which.\r\n\r\n"
        "It could not be delivered to these recipients, and is not tried again:\r\n\r\n"
        "  b@x.example\r\n    the server said: 550 Empfänger weg\r\n"
    )
    assert of_recipient["Diagnostic-Code"] == "smtp; 550 Empf?nger weg"
    assert fits(rendered, eight_bit=False)


def test_a_postmaster_hears_of_a_lost_report() -> None:
    whole, text, (_, of_recipient), _ = parts(report(to_postmaster=True))
    assert whole["Subject"] == "A report could not be delivered"
    assert str(text.get_payload()).splitlines()[:4] == [
        "This is the mail system at mail.example.org. The sender of a mail could not be told what became of it.",
        "A report, or another mail without a sender, was not taken, or no queue takes the sender's address.",
        "What is attached shows which mail.",
        "",
    ]
    assert of_recipient["Final-Recipient"] == "rfc822; bob@example.com"


def test_what_separates_the_parts_is_not_in_the_mail_that_comes_back() -> None:
    """Given a mail that holds the very line, another one is taken."""
    content = b"Subject: a\r\n\r\n--report-5f0c2d1e-\r\nmore\r\n"
    whole, _, _, returned = parts(report(content=content))
    assert whole.get_boundary() == "report-5f0c2d1e--"
    assert "more" in str(returned.get_payload(0))


@pytest.mark.parametrize(
    ("address", "field"),
    [
        ("bob+a=b@example.com", "rfc822; bob+a=b@example.com"),
        ("jürg@example.com", r"utf-8; j\x{FC}rg@example.com"),
        ('"ü +=\\"@example.com', r'utf-8; "\x{FC}\x{20}\x{2B}\x{3D}\x{5C}"@example.com'),
        ("用户@例え.jp", r"utf-8; \x{7528}\x{6237}@\x{4F8B}\x{3048}.jp"),
    ],
)
def test_a_recipient_is_reported_in_ascii_and_can_be_read_back(address: str, field: str) -> None:
    """Given addresses that are not ASCII: no letter is lost, and the type of the address says how it is written."""
    notice = RecipientNotice(kind=NoticeKind.FAILED, recipient=address, status="5.6.7")
    assert dict(notice.fields())["Final-Recipient"] == field
    assert f"\r\nFinal-Recipient: {field}\r\n".encode() in report(notice)


@given(st.text(), st.text(), st.text())
def test_nothing_that_a_server_or_sender_wrote_makes_a_line_of_its_own(reply: str, host: str, envelope: str) -> None:
    """Line breaks, controls and letters outside of ASCII do not come through; no line is too long."""
    wild = RecipientNotice(
        kind=NoticeKind.FAILED, recipient="bob@example.com", status="5.0.0", reply=f"550 {reply}", host=f"h{host}"
    )
    rendered = report(wild, envelope_id=f"e{envelope}")
    _, _, (of_mail, of_recipient), _ = parts(rendered)
    assert set(of_mail) == {"Original-Envelope-Id", "Reporting-MTA", "Arrival-Date"}
    assert set(of_recipient) == {"Final-Recipient", "Action", "Status", "Remote-MTA", "Diagnostic-Code"}
    assert rendered.isascii()
    assert all(len(line) < 998 for line in rendered.split(b"\r\n"))
