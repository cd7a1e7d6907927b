"""A mail after an attempt, and the names of queues."""

from datetime import UTC, datetime

import pytest

from mailmend.mailqueue.rules.mails import Mail, queue_name
from mailmend.model.errors import WrongUse

NOW = datetime(2026, 11, 29, tzinfo=UTC)
BEFORE = Mail(name="m", sender="a@example.org", recipients=("b@example.org",), error_message="421 busy")


@pytest.mark.parametrize("said", [None, ""])
def test_an_attempt_without_a_word_keeps_what_the_one_before_it_said(said: str | None) -> None:
    tried = BEFORE.tried(NOW, said)

    assert tried.error_message == "421 busy"
    assert tried.last_updated == NOW


def test_an_attempt_that_says_something_replaces_what_was_said() -> None:
    tried = BEFORE.tried(NOW, "450 later")

    assert tried.error_message == "450 later"
    assert (tried.name, tried.sender, tried.recipients) == ("m", "a@example.org", ("b@example.org",))


@pytest.mark.parametrize("text", ["spool", "outgoing-2", "Out.bound_a@b", "9", "q" * 100])
def test_a_queue_has_the_name_that_it_was_given(text: str) -> None:
    assert queue_name(text) == text


@pytest.mark.parametrize("text", ["", ".spool", "-spool", "two words", "a/b", "größe", "spool\n", "q" * 101])
def test_a_name_that_no_queue_can_have_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="queue"):
        queue_name(text)
