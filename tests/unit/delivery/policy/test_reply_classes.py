"""Classes of replies: by rules in their order, and by the table that comes with the package."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.delivery.policy.file.replies import all_classes, shipped_rules
from mailmend.delivery.policy.reply_classes import UNCATEGORISED, ClassifiedReply, ReplyClasses, ReplyRule

SHIPPED = all_classes(())


def shipped(reply: str) -> str:
    return SHIPPED.of(ClassifiedReply.parse(reply))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("421 4.7.0 too many concurrent SMTP connections from 192.0.2.1, please try again later", "TooManyConnections"),
        ("421 Too many connections", "TooManyConnections"),
        ("451 4.7.1 Greylisting in action, please come back later", "Greylisted"),
        ("450 4.2.0 <bob@one.example>: Recipient address rejected: Greylisted", "Greylisted"),
        ("421-4.7.0 Our system has detected an unusual rate of\n421 4.7.0 unsolicited mail", "RateLimited"),
        ("421 4.7.0 Messages from 192.0.2.1 temporarily deferred due to unexpected volume", "RateLimited"),
        ("450 4.7.28 flood", "RateLimited"),
        ("550 5.1.1 <bob@one.example>: Recipient address rejected: User unknown in table", "InvalidRecipient"),
        ("550 No such user here", "InvalidRecipient"),
        ("550 5.1.1 sorry", "InvalidRecipient"),
        ("550 5.2.1 The email account that you tried to reach is disabled", "InactiveMailbox"),
        ("552 5.2.2 The email account that you tried to reach is over quota", "MailboxFull"),
        ("452 4.2.2 sorry", "MailboxFull"),
        ("550 5.7.26 This message fails SPF and DKIM checks", "SenderAuthentication"),
        ("450 4.7.1 Client host rejected: cannot find your reverse hostname", "ReverseDns"),
        ("554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using a list", "IpBlock"),
        ("550 5.7.1 Message rejected as spam by content filtering", "SpamBlock"),
        ("554 5.7.1 Message contains a virus", "VirusBlock"),
        ("554 5.7.1 <bob@one.example>: Relay access denied", "Relaying"),
        ("535 5.7.8 Error: authentication failed", "AuthFailed"),
        ("530 5.7.0 Must issue a STARTTLS command first", "TlsFailed"),
        ("552 5.3.4 Message size exceeds fixed limit", "MessageTooLarge"),
        ("554 5.4.6 Too many hops", "LoopDetected"),
        ("450 4.1.8 <ann@x.example>: Sender address rejected: Domain not found", "SenderRejected"),
        ("556 5.1.10 null MX", "BadDomain"),
        ("452 4.5.3 Too many recipients", "TooManyRecipients"),
        ("451 4.3.2 Internal server busy", "ServerBusy"),
        ("421 closing", "ServerBusy"),
        ("550 5.7.1 rejected due to local policy", "PolicyBlock"),
        ("500 5.5.2 what?", "ProtocolError"),
        ("554 Transaction failed", UNCATEGORISED),
        ("450 4.2.0 later", UNCATEGORISED),
        ("", UNCATEGORISED),
    ],
)
def test_the_shipped_table_knows_the_words_of_servers(reply: str, expected: str) -> None:
    assert shipped(reply) == expected


@pytest.mark.parametrize(
    ("status", "why", "expected"),
    [
        ("4.4.1", "connection refused", "NoAnswer"),
        ("4.4.2", "the server took too long to answer EHLO", "Timeout"),
        ("4.4.2", "the connection was lost", "ConnectionLost"),
        ("4.7.5", "TLS failed: certificate verify failed", "TlsFailed"),
        ("5.1.2", "there is no domain one.example", "BadDomain"),
        ("4.4.3", "DNS does not say now which servers one.example has", "DnsFailure"),
        ("5.4.6", "mail for one.example would come back to this host", "LoopDetected"),
    ],
)
def test_our_own_sentences_are_classed_by_their_status(status: str, why: str, expected: str) -> None:
    """No server said anything, so rules that ask for a code leave them alone."""
    assert SHIPPED.of(ClassifiedReply("", status, why)) == expected


def test_the_shipped_table_has_no_rule_for_every_reply() -> None:
    """A reply that says nothing stays without a class, so that an operator can see what is not known."""
    assert all(rule.codes or rule.enhanced or rule.texts for rule in shipped_rules())
    assert UNCATEGORISED not in {rule.name for rule in shipped_rules()}


def test_a_rule_of_the_file_comes_before_the_shipped_rules() -> None:
    own = ReplyRule("OurBlock", texts=("no such user",))
    assert all_classes((own,)).of(ClassifiedReply.parse("550 5.1.1 No Such User")) == "OurBlock"
    assert all_classes((own,)).of(ClassifiedReply.parse("550 5.1.1 unknown user")) == "InvalidRecipient"


@pytest.mark.parametrize(
    ("rule", "reply", "matches"),
    [
        (ReplyRule("A", codes=("45x",)), "451 no", True),
        (ReplyRule("A", codes=("45x",)), "421 no", False),
        (ReplyRule("A", codes=("45x", "421")), "421 no", True),
        (ReplyRule("A", enhanced=("x.7.28",)), "450 4.7.28 no", True),
        (ReplyRule("A", enhanced=("x.7.2",)), "450 4.7.28 no", False),
        (ReplyRule("A", enhanced=("4.7.x",)), "550 5.7.1 no", False),
        (ReplyRule("A", enhanced=("x.x.x",)), "450 no", False),
        (ReplyRule("A", texts=("Too MANY",)), "450 too many", True),
        (ReplyRule("A", texts=("/^too +MANY$/",)), "450 too  many", True),
        (ReplyRule("A", texts=("/^many/",)), "450 too many", False),
        (ReplyRule("A", codes=("450",), texts=("many",)), "451 too many", False),
    ],
)
def test_every_part_of_a_rule_must_match_by_one_of_its_values(rule: ReplyRule, reply: str, matches: bool) -> None:
    assert rule.matches(ClassifiedReply.parse(reply)) is matches


WORDS = st.sampled_from(["user", "full", "spam", "4.7.1", "x"])
REPLIES = st.builds(
    ClassifiedReply,
    st.sampled_from(["", "421", "450", "550", "554"]),
    st.sampled_from(["", "4.7.0", "5.1.1", "4.2.2"]),
    st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=3).map(" ".join)),
)
RULES = st.builds(
    ReplyRule,
    st.sampled_from(["A", "B", "C"]),
    st.lists(st.sampled_from(["4xx", "550"]), max_size=1).map(tuple),
    st.lists(st.sampled_from(["4.7.x", "x.1.1"]), max_size=1).map(tuple),
    st.lists(st.sampled_from(["user", "/full|spam/"]), max_size=2).map(tuple),
)


@given(st.lists(RULES, max_size=5), REPLIES)
def test_the_first_rule_that_matches_gives_the_one_class(rules: list[ReplyRule], reply: ClassifiedReply) -> None:
    """Every reply has exactly one class, asked once or again."""
    matching = [rule.name for rule in rules if rule.matches(reply)]
    classes = ReplyClasses(rules)
    assert [classes.of(reply), classes.of(reply)] == [[*matching, UNCATEGORISED][0]] * 2
    assert classes.of(reply) in classes.names


@given(REPLIES)
def test_the_shipped_table_gives_every_reply_a_class_that_it_has(reply: ClassifiedReply) -> None:
    assert SHIPPED.of(reply) in SHIPPED.names


@given(st.integers(400, 599), st.sampled_from(["", "4.7.1 ", "5.1.1 "]), st.text(max_size=60))
def test_a_reply_that_an_entry_keeps_is_read_as_the_server_gave_it(code: int, enhanced: str, text: str) -> None:
    """However it was spelled: the class of a kept reply is the class of the attempt."""
    reply = SmtpReply.parsed(code, enhanced + text)
    kept = ClassifiedReply.parse(str(reply))
    assert kept == ClassifiedReply(str(reply.code), reply.enhanced, reply.text.strip())
