"""Names of users and mailboxes: as James writes them, or refused with what is wrong about them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.repair.store.mailboxes import BadName, did_you_mean, mailbox_name, user_name


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("ann", "ann"),
        ("Ann@Example.ORG", "ann@example.org"),
        ("o'neil+x@example.org", "o'neil+x@example.org"),
        ("ÅSA@example.org", "åsa@example.org"),
        ("a" * 255, "a" * 255),
    ],
)
def test_users_are_in_lower_case(typed: str, name: str) -> None:
    assert user_name(typed) == name


@pytest.mark.parametrize(
    ("typed", "why", "meant"),
    [
        ("", "is empty", ""),
        (" ", "white space", ""),
        ("ann @example.org", "white space", "ann@example.org"),
        ("Ann@example.org\n", "control character", "ann@example.org"),
        ("ann\x00", "control character", "ann"),
        ("ann\ud800", "control character", "ann"),
        ("a@b@example.org", "more than one '@'", ""),
        ("@example.org", "before or after its '@'", ""),
        ("ann@", "before or after its '@'", ""),
        ("a" * 256, "more than 255 characters", ""),
    ],
)
def test_users_that_james_cannot_know_are_refused(typed: str, why: str, meant: str) -> None:
    with pytest.raises(BadName) as refused:
        user_name(typed)

    assert why in refused.value.what
    assert refused.value.mend == (f"Did you mean '{meant}'?" if meant else "")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("inbox", "INBOX"),
        ("InBox", "INBOX"),
        ("Archive.2015.März", "Archive.2015.März"),
        ("Sent items", "Sent items"),
        ("a/b", "a/b"),
        ("Nr#1", "Nr#1"),
        ("x" * 200, "x" * 200),
    ],
)
def test_mailboxes_keep_their_names_and_inbox_is_in_capitals(typed: str, name: str) -> None:
    assert mailbox_name(typed) == name


@pytest.mark.parametrize(
    ("typed", "why", "meant"),
    [
        ("", "is empty", ""),
        ("  ", "is empty", ""),
        ("100%", "wildcards", "100"),
        ("a*b", "wildcards", "ab"),
        ("#private", "namespaces", "private"),
        ("Sent\n", "control character", "Sent"),
        ("a\x7fb", "control character", "ab"),
        ("a..b", "delimiters", "a.b"),
        (".Sent", "delimiters", "Sent"),
        ("Sent.", "delimiters", "Sent"),
        ("a. .b", "delimiters", "a.b"),
        ("x" * 201, "more than 200 characters", ""),
    ],
)
def test_mailboxes_that_james_cannot_know_are_refused(typed: str, why: str, meant: str) -> None:
    with pytest.raises(BadName) as refused:
        mailbox_name(typed)

    assert why in refused.value.what
    assert refused.value.mend == (f"Did you mean '{meant}'?" if meant else "")


@given(st.text(max_size=300))
def test_a_name_that_is_accepted_stays_as_it_is(text: str) -> None:
    for accept in (user_name, mailbox_name):
        try:
            name = accept(text)
        except BadName:
            continue
        assert accept(name) == name


@pytest.mark.parametrize(("name", "meant"), [("sent", "Sent"), ("Snet", "Sent"), ("Receipts", "")])
def test_a_similar_name_is_suggested(name: str, meant: str) -> None:
    assert did_you_mean(name, ["Sent", "INBOX", "Archive"]) == (f"Did you mean '{meant}'?" if meant else "")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("box2", "box1", ""),
        ("box", "box1", ""),
        ("Archive.2026", "Archive.2025", ""),
        ("user12@example.org", "user21@example.org", ""),
        ("Archvie.2025", "Archive.2025", "Archive.2025"),
        ("BOX1", "box1", "box1"),
    ],
)
def test_a_name_with_other_digits_is_another_name(name: str, known: str, meant: str) -> None:
    assert did_you_mean(name, [known]) == (f"Did you mean '{meant}'?" if meant else "")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("eve@example.org", ""),
        ("bobb@example.org", "bob@example.org"),
        ("bob@exmaple.org", "bob@example.org"),
        ("bob", ""),
    ],
)
def test_a_user_of_the_same_domain_alone_is_not_similar(name: str, meant: str) -> None:
    assert did_you_mean(name, ["bob@example.org"]) == (f"Did you mean '{meant}'?" if meant else "")
