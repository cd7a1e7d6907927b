"""Delivery status notifications as mail programs read them: by Python's own parser, which knows nothing of ours."""

from datetime import UTC, datetime
from email import message_from_bytes
from email.message import Message
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.delivery.notices import NoticeKind, RecipientNotice, ReturnedPart, StatusNotification

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
    assert of_recipient["Status"] == "4.4.7"
    assert of_recipient["Diagnostic-Code"] == "smtp; 450 4.2.0 later"
    assert "as long as it may be" in str(text.get_payload())


def test_where_no_server_said_anything_a_sentence_of_ours_stands() -> None:
    """A domain that is not there has no reply."""
    nowhere = RecipientNotice(
        kind=NoticeKind.FAILED, recipient="bob@nowhere.example", status="5.1.2", why="there is no such domain"
    )
    _, text, (_, of_recipient), _ = parts(report(nowhere))
    assert "there is no such domain" in str(text.get_payload())
    assert "Diagnostic-Code" not in of_recipient
    assert "Remote-MTA" not in of_recipient


LONG = CONTENT + b"x" * 70_000


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


def test_a_mail_of_eight_bits_comes_back_as_it_was() -> None:
    """And the report says that it has such bytes."""
    content = b"Subject: gr\xc3\xbc\xc3\x9fe\r\n\r\n\xff\xfe\r\n"
    rendered = report(content=content)
    assert content in rendered
    assert message_from_bytes(rendered)["Content-Transfer-Encoding"] == "8bit"


def test_what_separates_the_parts_is_not_in_the_mail_that_comes_back() -> None:
    """Given a mail that holds the very line, another one is taken."""
    _, _, _, returned = parts(report(content=b"Subject: a\r\n\r\n--report-5f0c2d1e--\r\nmore\r\n"))
    assert "more" in str(returned.get_payload(0))


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
