"""What a reply says, which source reaches which server, and what a result may claim."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.attempts import AttemptStage, NextHop, NoNextHop, RecipientResult, SmtpReply
from mailmend.delivery.transports import SourceAddress, StageTimeouts


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
        (200, "2.0.0 Ok", SmtpReply(200, "2.0.0", "Ok")),
        (599, "no", SmtpReply(599, "", "no")),
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


@pytest.mark.parametrize(
    ("code", "text", "quoted"),
    [
        (199, "early", "199 early"),
        (600, "late", "600 late"),
        (0, "none", "0 none"),
        (-1, "garbage", "garbage"),
        (7, "", "7"),
    ],
)
def test_what_is_no_reply_is_quoted_with_its_code_where_it_has_one(code: int, text: str, quoted: str) -> None:
    """Codes of RFC 5321 are from 200 to 599; below 0 stands for none."""
    reply = SmtpReply.parsed(code, text)
    assert reply == SmtpReply(451, "4.5.0", f"the server answered what is no reply: {quoted}", ours=True)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (199, "4.0.0"),
        (200, "2.0.0"),
        (299, "2.0.0"),
        (300, "4.0.0"),
        (499, "4.0.0"),
        (500, "5.0.0"),
        (599, "5.0.0"),
        (600, "4.0.0"),
    ],
)
def test_a_reply_without_an_enhanced_code_has_the_status_of_its_class(code: int, status: str) -> None:
    """RFC 3463's X.0.0; what is neither 2yz nor 5yz may pass."""
    assert SmtpReply(code, "", "").status == status


def test_the_status_of_a_reply_is_the_servers_own() -> None:
    assert SmtpReply(550, "5.7.1", "").status == "5.7.1"


def test_a_reply_keeps_at_most_2000_bytes_of_what_a_server_says() -> None:
    assert SmtpReply(550, "", "x" * 2_000).text == "x" * 2_000
    assert len(SmtpReply(550, "", "x" * 2_001).text.encode()) <= 2_000


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
    assert SourceAddress(source).reaches(address) is reaches


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


def test_a_result_claims_nothing_by_itself() -> None:
    """No host, no doubt, no report by the server, no TLS; and the reply is the server's."""
    result = RecipientResult("a@example.org", delivered=False, reply=SmtpReply(450, "", ""), stage=AttemptStage.MAIL)
    assert (result.host, result.uncertain, result.tells, result.tls) == ("", False, False, "")
    assert not result.reply.ours


def test_a_server_and_a_source_have_the_defaults_of_smtp() -> None:
    """Port 25, the first preference, the system's address, the name of this host."""
    hop = NextHop("mx.example.org", "192.0.2.1")
    assert (hop.port, hop.preference) == (25, 0)
    assert SourceAddress() == SourceAddress(address="", helo="")


def test_a_server_may_take_as_long_as_rfc_5321_says() -> None:
    """Its section 4.5.3.2; a connection and its TLS, of which it says nothing, are sooner given up."""
    assert StageTimeouts() == StageTimeouts(
        connect=timedelta(seconds=30),
        tls=timedelta(minutes=2),
        greeting=timedelta(minutes=5),
        command=timedelta(minutes=5),
        data=timedelta(minutes=3),
        end=timedelta(minutes=10),
    )


def test_a_domain_without_a_server_is_named_with_the_reply_for_its_mails() -> None:
    reply = SmtpReply(556, "5.1.10", "the domain takes no mail", ours=True)
    error = NoNextHop("example.org", reply)
    assert str(error) == "no server is known for example.org: the domain takes no mail"
    assert (error.domain, error.reply) == ("example.org", reply)
