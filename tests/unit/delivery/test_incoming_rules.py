"""Rules of a policy file for mails that clients hand over: where they are wrong, and what they do to a mail."""

import pytest

from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.incoming import IncomingRule
from mailmend.delivery.policy.lint import lint_policies
from mailmend.delivery.smtp.incoming import intake
from mailmend.delivery.smtp.incoming.reception import HEADER_READ_MAX, header_values, without_fields
from mailmend.delivery.transports import DeliveryProtocol
from mailmend.mailqueue import admission
from mailmend.mailqueue.codec import attribute_value
from mailmend.model.errors import BrokerUnreachable
from tests.support.mail_clients import MAIL, RCPT, entrance

CY = "RCPT TO:<cy@example.net>"
HEADER = b"Subject: hello\r\nX-Job: daily\r\nX-Other: a\r\n\r\nX-Job: of the body\r\n"


def rules(text: str) -> tuple[IncomingRule, ...]:
    return policies_of(text, "policies.yaml").said.incoming


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("incoming: [{if: {domain: a.org}}]", "line 1, column 18: 'domain' is no field of a mail that comes in"),
        ("incoming:\n- if: {client: 10.0.0.1/8}", "line 2, column 16: '10.0.0.1/8' is no network"),
        ("incoming:\n- if: {sender: '#g'}", "line 2, column 16: rules of incoming know no groups"),
        ("incoming:\n- if: {sender: '@l'}", "line 2, column 16: there is no list '@l'"),
        ("incoming:\n- if: {header: {X Job: a}}", "line 2, column 17: 'X Job' is no name of a header field"),
        ("incoming:\n- if: {header: {X: a, x: b}}", "line 2, column 23: 'x' is there twice in header"),
        ("incoming:\n- if: {header: {X: '/a(?=b)/'}}", "line 2, column 20: .* has a look-ahead"),
        ("incoming:\n- set: {jobid: '${1}'}", "line 2, column 16: .* counts the groups of one expression, .* has 0"),
        ("incoming:\n- {if: {helo: /a/}, set: {jobid: '${1}'}}", "line 2, column 34: .* not one of the 0 groups"),
        (
            "incoming:\n- set: {jobid: '${job}'}",
            "neither a group of an expression of this rule nor one of client, helo",
        ),
        ("incoming:\n- set: {jobid: '${a b}'}", "is no name of a group or field"),
        ("incoming:\n- set: {jobid: '${a'}", "has a '\\${' without its end"),
        ("incoming:\n- set: {priority: 10}", "line 2, column 19: '10' is no priority"),
        ("incoming:\n- set: {expires: soon}", "line 2, column 18: 'soon' is not a duration"),
        ("incoming:\n- set: {attributes: {jobid: a}}", "line 2, column 22: jobid is set outside the attributes"),
        (
            "incoming:\n- set: {attributes: {MAIL_PRIORITY: 1}}",
            "is set outside the attributes\n.*\n.*\n.*priority: below set",
        ),
        ("incoming:\n- set: {attributes: {mailmend.delivery: a}}", "is no attribute that a rule may set"),
        ("incoming:\n- set: {attributes: {dsn-ret: a}}", "is no attribute that a rule may set"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(BadPolicyFile, match=message):
        rules(text)


def test_rules_that_are_surely_not_meant_are_found() -> None:
    """One that changes nothing, a value that no mail has; a list that a rule uses is used."""
    first = "{if: {senderdomain: '@l'}, set: {jobid: a}}"
    text = f"lists: {{l: [a.org]}}\nincoming: [{first}, {{set: {{}}}}, {{if: {{helo: []}}}}]"
    found = [(rule.id, hit.path) for rule, hit in lint_policies(policies_of(text, "policies.yaml").said)]
    assert found == [
        ("P4", ("incoming", 2, "if", "helo")),
        ("P11", ("incoming", 1)),
        ("P11", ("incoming", 2)),
    ]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"X-Job: daily", "daily"),
        (b"x-JOB \t:daily\t", "daily"),
        (b"X-Job:\r\n one\r\n\ttwo", "one two"),
        (b"X-Job: one\r\nX-Job: two", "one"),
        ("X-Job: größer".encode(), "größer"),
        (b"X-Job: " + b"a" * 998, "a" * 998),
        (b"X-Job: " + b"a" * 999, None),
        (b"X-Job: a\x00b", None),
        (b"X-Job: a\rb", None),
        (b"X-Job: \xff", None),
        (b" X-Job: a", None),
        (b"Y-X-Job: a", None),
        (b"\r\nX-Job: a", None),
        (b"Y: " + b"a" * HEADER_READ_MAX + b"\r\nX-Job: a", None),
    ],
)
@pytest.mark.parametrize("behind", [b"\r\n\r\nbody\r\n", b"\r\n", b"\n\nX-Job: b\n", b""])
def test_a_header_field_is_read_as_it_stands_in_the_header(header: bytes, value: str | None, behind: bytes) -> None:
    """The first of its name; what is long or cannot be shown counts as none."""
    assert header_values(header + behind, {"x-job"}).get("x-job") == value


def test_header_fields_are_taken_out_with_all_of_their_lines() -> None:
    """Each of that name, and nothing of the body."""
    content = b"X-Job: a\r\nSubject: b\r\nx-job:\r\n c\r\n d\r\nY: e\r\n\r\nX-Job: f\r\n"
    assert without_fields(content, {"x-job"}) == b"Subject: b\r\nY: e\r\n\r\nX-Job: f\r\n"
    assert without_fields(content, {"x-other"}) == content
    assert without_fields(b"X-Job: a", {"x-job"}) == b""


async def test_rules_set_the_attributes_of_a_mail_that_comes_in() -> None:
    """By its header too, of which a field is taken out."""
    async with entrance() as site:
        site.listener.intake.rules = rules(
            "incoming: [{if: {client: 127.0.0.0/8, helo: client.example, header: {X-Job: '/(.+)/'}},"
            " set: {jobid: '${1}', priority: 9, attributes: {by: '${sender}'}}, remove: X-Job}]"
        )
        client = await site.client()
        await client.hand_over(HEADER, f"{MAIL} RET=HDRS", RCPT)
        ((mail, content),) = await site.mails()
        assert await site.contents() == [HEADER.replace(b"X-Job: daily\r\n", b"")]

    found = {name: attribute_value(text) for name, text in mail.attributes.items()}
    assert found.pop("mailmend.bytes") == len(content)
    assert found == {"jobid": "daily", "MAIL_PRIORITY": 9, "by": "ann@example.org", "dsn-ret": "HDRS"}


HIDDEN = (
    b"Subject: hi\rX-Internal-Auth: yes\r\n",
    b"Subject: hi\nX-Internal-Auth: yes\r\n",
    b"Subject: hi\r\r\nX-Internal-Auth: yes\r\r\n",
    b"Subject: hi\n\rX-Internal-Auth: yes\r\n",
    b"Subject: hi\r\n folded\rX-Internal-Auth: yes\n more\r\n",
)


@pytest.mark.parametrize("header", HIDDEN)
async def test_a_rule_removes_a_field_behind_a_line_end_that_other_servers_see(header: bytes) -> None:
    """A lone CR, a lone LF, and CRs before an LF end a line for the next server, so they do for our rules."""
    async with entrance() as site:
        site.listener.intake.rules = rules("incoming: [{remove: X-Internal-Auth}]")
        client = await site.client()
        assert (await client.hand_over(header + b"\r\nbody\r\n"))[:9] == "250 2.0.0"
        (content,) = await site.contents()

    named = content.partition(b"\r\n\r\n")[0].lower()
    assert b"x-internal-auth" not in named
    assert content.startswith(b"Subject: hi\r\n")
    assert content.endswith(b"\r\n\r\nbody\r\n")


async def test_a_rule_compares_a_field_behind_a_lone_carriage_return() -> None:
    async with entrance() as site:
        site.listener.intake.rules = rules("incoming: [{if: {header: {X-Job: '/(.+)/'}}, set: {jobid: '${1}'}}]")
        client = await site.client()
        await client.hand_over(b"Subject: hi\rX-Job: daily\r\n\r\nbody\r\n")
        ((mail, _),) = await site.mails()

    assert attribute_value(mail.attributes["jobid"]) == "daily"


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"Subject: a\x00b\r\n\r\nbody\r\n", "554 5.6.0"),
        (b"Subject: a\r\n\r\nbo\x00dy\r\n", "554 5.6.0"),
        (b"Y: " + b"a" * HEADER_READ_MAX + b"\r\nX-Job: a\r\n\r\nbody\r\n", "552 5.3.4"),
        (b"Y: " + b"a" * (HEADER_READ_MAX - 50) + b"\r\n\r\n" + b"b" * HEADER_READ_MAX + b"\r\n", "250 2.0.0"),
    ],
)
async def test_a_mail_whose_header_rules_cannot_see_whole_is_refused(content: bytes, answer: str) -> None:
    """A NUL byte ends a text for some servers; fields behind 1 MiB of header are not read."""
    async with entrance() as site:
        client = await site.client()
        assert (await client.hand_over(content))[:9] == answer
        assert len(await site.mails()) == (answer[:3] == "250")


async def test_a_header_field_that_no_expression_fits_costs_no_more_than_its_length() -> None:
    """An engine that goes back doubles its time with each of 900 letters, and no client has an answer meanwhile."""
    async with entrance() as site:
        site.listener.intake.rules = rules(
            r"incoming: [{if: {header: {X-Job: '/^(([a-z0-9]+)[-_.]?)+$/'}}, set: {jobid: a}}]"
        )
        client = await site.client()
        await client.hand_over(b"X-Job: " + b"a" * 900 + b"!\r\n\r\n", MAIL, RCPT)
        await client.hand_over(b"X-Job: " + b"a" * 900 + b"\r\n\r\n", MAIL, RCPT)
        mails = [mail for mail, _ in await site.mails()]

    # Mails of one moment are listed in any order.
    assert len(mails) == 2
    assert [attribute_value(mail.attributes["jobid"]) for mail in mails if "jobid" in mail.attributes] == ["a"]


async def test_recipients_under_different_rules_become_mails_of_their_own() -> None:
    """Those for whom rules come to the same stay together, with the wishes that are theirs."""
    async with entrance() as site:
        site.listener.intake.rules = rules(
            "incoming: [{if: {recipientdomain: example.net}, set: {transportid: slow}},"
            " {if: {recipient: d@example.com}}]"
        )
        client = await site.client()
        await client.hand_over(HEADER, MAIL, RCPT, f"{CY} NOTIFY=NEVER", "RCPT TO:<d@example.com>")
        mails = {mail.recipients: mail.attributes for mail, _ in await site.mails()}

    assert set(mails) == {("bob@example.com", "d@example.com"), ("cy@example.net",)}
    assert "transportid" not in mails["bob@example.com", "d@example.com"]
    slow = mails["cy@example.net",]
    assert attribute_value(slow["transportid"]) == "slow"
    assert attribute_value(slow["dsn-notify"]) == {"cy@example.net": "NEVER"}


@pytest.mark.parametrize("protocol", DeliveryProtocol)
async def test_a_mail_of_which_a_part_was_not_taken_comes_again(protocol: DeliveryProtocol) -> None:
    """All of it by SMTP, which knows one answer; by LMTP each recipient has its own."""
    is_lmtp = protocol is DeliveryProtocol.LMTP
    async with entrance(protocol) as site:
        site.listener.intake.rules = rules("incoming: [{set: {grouping: '${recipientdomain}'}}]")
        site.queue.errors["cy@example.net"] = BrokerUnreachable("away")
        client = await site.client("LHLO client.example" if is_lmtp else "EHLO client.example")
        answers = [await client.hand_over(HEADER, MAIL, RCPT, CY)]
        answers += [await client.reply() for _ in range(is_lmtp)]
        assert [mail.recipients for mail, _ in await site.mails()] == [("bob@example.com",)]

    assert [one[:9] for one in answers] == (["250 2.0.0", "451 4.3.0"] if is_lmtp else ["451 4.3.0"])


async def test_a_value_that_a_client_may_not_choose_is_logged_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The mail is taken all the same."""
    async with entrance() as site:
        site.listener.intake.rules = rules("incoming: [{if: {header: {X-Job: '/(.+)/'}}, set: {expires: '${1}'}}]")
        client = await site.client()
        assert (await client.hand_over(HEADER))[:9] == "250 2.0.0"
        ((mail, _),) = await site.mails()

    assert set(mail.attributes) == {"mailmend.bytes"}
    (said,) = (one for one in caplog.records if "a value that it cannot have" in one.getMessage())
    assert (vars(said)["attributes"], "daily" in str(vars(said))) == ("expires", False)


async def test_a_mail_to_more_recipients_than_one_mail_of_the_queue_has_becomes_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One with 100,000 would exceed the messages of brokers: each part fits, and each recipient is in one of them."""
    monkeypatch.setattr(intake, "RECIPIENTS_TOGETHER", 2)
    wanted = [f"r{number}@example.org" for number in range(5)]
    async with entrance() as site:
        client = await site.client()
        answer = await client.hand_over(HEADER, MAIL, *(f"RCPT TO:<{one}>" for one in wanted))
        mails = [mail.recipients for mail, _ in await site.mails()]

    assert answer[:9] == "250 2.0.0"
    assert sorted(map(len, mails)) == [1, 2, 2]
    assert sorted(one for some in mails for one in some) == wanted


async def test_an_envelope_that_no_queue_takes_is_refused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later is never right: the client would come again until it gives up."""
    monkeypatch.setattr(admission, "ENVELOPE_BYTES_MAX", 500)
    async with entrance() as site:
        client = await site.client()
        answer = await client.hand_over(HEADER, f"{MAIL} ENVID={'a' * 90}", RCPT, CY)
        assert answer[:9] == "552 5.3.4"
        assert not await site.mails()
