"""What is looked for among mails: in the form in which domains and mailboxes are compared, with stars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.errors import WrongUse
from mailmend.model.grammar import comparable_mailbox, is_here, wanted_domain, wanted_mailbox


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
