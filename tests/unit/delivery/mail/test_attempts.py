"""What a reply says, which source reaches which server, and what a result may claim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.attempts import (
    AttemptStage,
    NextHop,
    RecipientResult,
    SmtpReply,
    SourceAddress,
)


@pytest.mark.parametrize(
    ("code", "text", "reply"),
    [
        (250, "2.1.5 Ok", SmtpReply(250, "2.1.5", "Ok")),
        (550, "no such user", SmtpReply(550, "", "no such user")),
        (550, "5.7.1 see\n5.7.1 our page", SmtpReply(550, "5.7.1", "see our page")),
        (452, "4.2.2\nfull\n", SmtpReply(452, "4.2.2", "full")),
        (550, "4.2.2 the classes differ", SmtpReply(550, "", "4.2.2 the classes differ")),
        (550, "5.1.1", SmtpReply(550, "5.1.1", "")),
        (550, "5.1.1x is no code", SmtpReply(550, "", "5.1.1x is no code")),
        (550, "", SmtpReply(550, "", "")),
    ],
)
def test_an_enhanced_code_is_taken_from_the_text(code: int, text: str, reply: SmtpReply) -> None:
    """Only where it is of the class of the reply."""
    assert SmtpReply.parsed(code, text) == reply


@given(st.integers(-1, 1000), st.text())
def test_a_reply_is_positive_permanent_or_temporary(code: int, text: str) -> None:
    """It is exactly one of the three, and always has a status of that class."""
    reply = SmtpReply.parsed(code, text)

    assert [reply.positive, reply.permanent, reply.temporary].count(True) == 1
    assert reply.status[0] == ("2" if reply.positive else "5" if reply.permanent else "4")


def test_what_is_no_reply_refuses_for_now() -> None:
    """A code that RFC 5321 does not know is reported with its text, as a reply of ours."""
    reply = SmtpReply.parsed(99, "welcome")

    assert str(reply) == "451 4.5.0 the server answered what is no reply: 99 welcome"
    assert reply.ours
    assert reply.temporary


@pytest.mark.parametrize(("code", "closes"), [(421, True), (450, False), (221, False)])
def test_one_reply_ends_a_connection(code: int, *, closes: bool) -> None:
    """That is 421, whatever was asked."""
    assert SmtpReply(code, "", "").closes is closes


@pytest.mark.parametrize(
    ("source", "address", "reaches"),
    [
        ("", "192.0.2.1", True),
        ("", "2001:db8::1", True),
        ("198.51.100.1", "192.0.2.1", True),
        ("198.51.100.1", "2001:db8::1", False),
        ("2001:db8::2", "192.0.2.1", False),
        ("2001:db8::2", "2001:db8::1", True),
    ],
)
def test_a_source_reaches_its_own_family(source: str, address: str, *, reaches: bool) -> None:
    """IPv4 comes from IPv4, IPv6 from IPv6."""
    assert SourceAddress(source).reaches(NextHop("mx.example.org", address)) is reaches


@pytest.mark.parametrize(
    ("hop", "text"),
    [
        (NextHop("mx.example.org", "192.0.2.1"), "mx.example.org[192.0.2.1]:25"),
        (NextHop("mx.example.org", "2001:db8::1", 26), "mx.example.org[2001:db8::1]:26"),
        (NextHop("192.0.2.1", "192.0.2.1"), "192.0.2.1:25"),
        (NextHop("2001:db8::1", "2001:db8::1"), "[2001:db8::1]:25"),
    ],
)
def test_a_server_is_named_with_its_address(hop: NextHop, text: str) -> None:
    """As logs have it."""
    assert str(hop) == text


@pytest.mark.parametrize(
    ("reply", "stage", "delivered", "uncertain"),
    [
        (SmtpReply(250, "", ""), AttemptStage.RECIPIENT, True, False),
        (SmtpReply(250, "", ""), AttemptStage.DATA, False, False),
        (SmtpReply(450, "", ""), AttemptStage.DATA, True, False),
        (SmtpReply(250, "", ""), AttemptStage.DATA, True, True),
        (SmtpReply(250, "", "", ours=True), AttemptStage.DATA, True, False),
    ],
)
def test_no_result_claims_more_than_its_reply(
    reply: SmtpReply, stage: AttemptStage, *, delivered: bool, uncertain: bool
) -> None:
    """Delivered is what a server took, by 2yz to the content, and nothing else."""
    with pytest.raises(AssertionError):
        RecipientResult("a@example.org", delivered, reply, stage, uncertain=uncertain)
