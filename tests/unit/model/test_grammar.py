"""What a mail can have, in its one form: what is read from people, and what is looked for among mails, with stars."""

from collections.abc import Callable
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.errors import WrongUse
from mailmend.model.grammar import (
    NAME_LENGTH_MAX,
    can_be_looked_up,
    comparable_mailbox,
    host_and_port,
    is_here,
    read_address,
    read_domain,
    read_mailbox,
    read_name,
    read_network,
    read_server,
    wanted_domain,
    wanted_mailbox,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Example.ORG", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("*.BÜCHER.example", "*.xn--bcher-kva.example"),
        ("Mx*.example.org", "mx*.example.org"),
        ("*", "*"),
        ("", ""),
        ("[192.0.2.1]", "[192.0.2.1]"),
    ],
)
def test_a_domain_is_looked_for_in_its_normal_form(text: str, normal: str) -> None:
    assert wanted_domain(text) == normal


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        (".example.org", "Did you mean '*.example.org'?"),
        ("example.org:25", "Did you mean 'example.org'?"),
        ("https://example.org", "Did you mean 'example.org'?"),
        ("@example.org", "Did you mean 'example.org'?"),
        ("example.org ", "Did you mean 'example.org'?"),
        ("*@example.org", "Write it like *.example.org"),
        ("*.example.org\n", "Did you mean 'example.org'?"),
        ("mx *.example.org", "Write it like *.example.org"),
    ],
)
def test_what_no_domain_is_like_is_refused(text: str, mend: str) -> None:
    with pytest.raises(WrongUse) as refused:
        wanted_domain(text)

    assert mend in str(refused.value)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("<>", "<>"),
        ("Bob@Example.ORG", "bob@example.org"),
        ("*@bücher.example", "*@xn--bcher-kva.example"),
        ("bob@*", "bob@*"),
        ("*", "*"),
    ],
)
def test_a_mailbox_is_looked_for_in_its_normal_form(text: str, normal: str) -> None:
    assert wanted_mailbox(text) == normal


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("@example.org", "Did you mean '*@example.org'?"),
        ("example.org", "Did you mean '*@example.org'?"),
        ("<bob@example.org>", "Did you mean 'bob@example.org'?"),
        ("bob@example.org\n", "Did you mean 'bob@example.org'?"),
        ("bob@*\n", "Write it like *@example.org"),
        ("", "Write it like bob@example.org"),
    ],
)
def test_what_no_mailbox_is_like_is_refused(text: str, mend: str) -> None:
    with pytest.raises(WrongUse) as refused:
        wanted_mailbox(text)

    assert mend in str(refused.value)


@given(st.text(alphabet="ab.@*ü[]: ", max_size=10))
def test_what_is_looked_for_has_one_form(text: str) -> None:
    for read in (wanted_domain, wanted_mailbox):
        try:
            normal = read(text)
        except WrongUse:
            continue
        assert read(normal) == normal


def test_a_mail_to_a_domain_beyond_ascii_is_found_both_ways() -> None:
    assert comparable_mailbox("bob@bücher.example") == wanted_mailbox("bob@xn--bcher-kva.example")
    assert comparable_mailbox("bob@xn--bcher-kva.example") == wanted_mailbox("bob@bücher.example")


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.0.1.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("x.y", False)],
)
def test_what_is_this_machine(host: str, here: bool) -> None:
    assert is_here(host) is here


LONGEST_DOMAIN = ".".join(["x" * 63] * 3 + ["y" * 61])
LONGEST_MAILBOX = f"{'b' * 66}@{LONGEST_DOMAIN}"


@pytest.mark.parametrize(
    ("read", "text", "normal"),
    [
        (read_domain, "Example.ORG.", "example.org"),
        (read_domain, "[IPv6:2001:DB8::1]", "[ipv6:2001:db8::1]"),
        (read_domain, "x", "x"),
        (read_domain, LONGEST_DOMAIN, LONGEST_DOMAIN),
        (read_server, "MX1.example.org", "mx1.example.org"),
        (read_server, "192.0.2.1", "192.0.2.1"),
        (read_server, "[192.0.2.1]", "[192.0.2.1]"),
        (read_address, "2001:DB8:0::1", "2001:db8::1"),
        (read_address, "::ffff:192.0.2.1", "192.0.2.1"),
        (read_mailbox, "Bob@Example.ORG", "bob@example.org"),
        (read_mailbox, '"Bob @ home"@example.org', '"bob @ home"@example.org'),
        (read_mailbox, "bob@[192.0.2.1]", "bob@[192.0.2.1]"),
        (read_mailbox, LONGEST_MAILBOX, LONGEST_MAILBOX),
        (read_name, "nightly report", "nightly report"),
        (read_name, "", ""),
        (read_name, "x" * NAME_LENGTH_MAX, "x" * NAME_LENGTH_MAX),
    ],
)
def test_what_a_mail_can_have_is_read_in_one_form_which_is_read_again(
    read: Callable[[str], str], text: str, normal: str
) -> None:
    assert read(text) == normal
    assert read(normal) == normal


LONG = "x" * (NAME_LENGTH_MAX + 1)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_domain, "@example.org", "'@example.org' is no domain\nDid you mean 'example.org'?"),
        (read_domain, " *.example.org; ", "' *.example.org; ' is no domain\nDid you mean 'example.org'?"),
        (read_domain, "http://a.example?b", "'http://a.example?b' is no domain\nDid you mean 'a.example'?"),
        (read_domain, "http://a.example:8/b#c", "'http://a.example:8/b#c' is no domain\nDid you mean 'a.example'?"),
        (read_domain, "a b", "'a b' is no domain\nWrite it like example.org."),
        (read_domain, "2001:db8::1", "'2001:db8::1' is no domain\nWrite it like example.org."),
        (read_domain, f"{LONGEST_DOMAIN}z", f"'{LONGEST_DOMAIN[:60]}...' is no domain\nWrite it like example.org."),
        (read_domain, LONG, f"'{'x' * 60}...' is no domain\nWrite it like example.org."),
        (read_domain, "-" * 60, f"'{'-' * 60}' is no domain\nWrite it like example.org."),
        (read_server, "mx1:25", "'mx1:25' is no name of a server\nDid you mean 'mx1'?"),
        (read_server, "a b", "'a b' is no name of a server\nWrite it like mx1.example.org."),
        (read_address, "[::1]:25", "'[::1]:25' is no address\nDid you mean '::1'?"),
        (read_address, "[IPv6:::1]", "'[IPv6:::1]' is no address\nDid you mean '::1'?"),
        (read_address, "192.0.2.1:25", "'192.0.2.1:25' is no address\nDid you mean '192.0.2.1'?"),
        (read_address, "smtp://192.0.2.1/x", "'smtp://192.0.2.1/x' is no address\nDid you mean '192.0.2.1'?"),
        (read_address, "010.000.002.001", "'010.000.002.001' is no address\nDid you mean '10.0.2.1'?"),
        (read_address, "::1%a b", "'::1%a b' is no address\nWrite 192.0.2.1, or ::1."),
        (read_address, "::1%\t", "'::1%\\t' is no address\nWrite 192.0.2.1, or ::1."),
        (read_address, "mx1", "'mx1' is no address\nWrite 192.0.2.1, or ::1."),
        (read_mailbox, "<>", "<> is no mailbox\nThe null sender is the empty value: ''."),
        (read_mailbox, "mailto:bob@a.example", "'mailto:bob@a.example' is no mailbox\nDid you mean 'bob@a.example'?"),
        (read_mailbox, "a.example", "'a.example' is no mailbox\nWrite it like bob@example.org."),
        (read_mailbox, "@a.example", "'@a.example' is no mailbox\nWrite it like bob@example.org."),
        (read_mailbox, "bob@a b", "'bob@a b' is no mailbox\nWrite it like bob@example.org."),
        (read_mailbox, '"@a.example', "'\"@a.example' is no mailbox\nWrite it like bob@example.org."),
        (
            read_mailbox,
            f"b{LONGEST_MAILBOX}",
            f"'{'b' * 60}...' is no mailbox\nWrite it like bob@example.org.",
        ),
        (read_name, "a \n b ", "'a \\n b ' is no name\nDid you mean 'a b'?"),
        (read_name, "\x07", "'\\x07' is no name\nWrite it in one line, without blanks around it."),
        (read_name, LONG, "a name of 1,001 characters is too long\nWrite at most 1,000."),
    ],
)
def test_what_no_mail_can_have_is_refused_with_what_may_have_been_meant(
    read: Callable[[str], str], text: str, message: str
) -> None:
    with pytest.raises(WrongUse) as refused:
        read(text)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("192.0.2.0/24", "192.0.2.0/24"),
        ("192.0.2.1", "192.0.2.1/32"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ("::ffff:0.0.0.0/96", "0.0.0.0/0"),
        ("::/95", "::/95"),
        ("::/0", "::/0"),
    ],
)
def test_a_network_of_ipv4_is_one_in_either_form(text: str, network: str) -> None:
    assert read_network(text) == ip_network(network)


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("192.0.2.1/24", "Did you mean 192.0.2.0/24?"),
        (" 192.0.2.0/24", "Did you mean 192.0.2.0/24?"),
        ("192.0.2.*", "Did you mean 192.0.2.0/24?"),
        ("10.*.*", "Did you mean 10.0.0.0/8?"),
        ("10.*.1", "Write it like 192.0.2.0/24."),
        ("example.org", "Write it like 192.0.2.0/24."),
    ],
)
def test_the_network_around_a_text_is_what_may_have_been_meant(text: str, mend: str) -> None:
    with pytest.raises(WrongUse) as refused:
        read_network(text)

    assert str(refused.value) == f"{text!r} is no network\n{mend}"


@pytest.mark.parametrize(
    ("host", "asked"), [("mx1.example.org", True), ("x" * 63, True), ("x" * 64, False), ("a..b", False)]
)
def test_a_resolver_is_asked_only_for_hosts_with_labels_that_it_takes(host: str, asked: bool) -> None:
    assert can_be_looked_up(host) is asked


@pytest.mark.parametrize(
    ("host", "port", "text"), [("mx1", 25, "mx1:25"), ("::1", 25, "[::1]:25"), ("192.0.2.1", 587, "192.0.2.1:587")]
)
def test_a_host_is_split_from_its_port(host: str, port: int, text: str) -> None:
    assert host_and_port(host, port) == text
