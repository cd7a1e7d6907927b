"""A mail as it enters its queue and after an attempt, and the names of queues."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mailmend.mailqueue.rules.mails import (
    DELAY_MAX,
    LOOKS,
    PRIORITIES,
    PRIORITY_ATTRIBUTE,
    PRIORITY_NORMAL,
    Listed,
    Mail,
    MailBlobs,
    QueuedMail,
    Whereabouts,
    queue_name,
)
from mailmend.model.errors import WrongUse
from mailmend.model.ids import BlobId, EnqueueId

NOW = datetime(2026, 11, 29, tzinfo=UTC)
BEFORE = Mail(name="m", sender="a@example.org", recipients=("b@example.org",), error_message="421 busy")
QUEUED = QueuedMail(EnqueueId(UUID(int=1)), BEFORE, MailBlobs(BlobId("h"), BlobId("b")))
LATER = NOW + timedelta(hours=3)


def test_a_mail_without_a_due_time_waits_as_soon_as_it_enters_its_queue() -> None:
    assert Listed.entering(QUEUED, NOW, None) == Listed(QUEUED, NOW, Whereabouts.WAITING, due_at=None)


def test_a_mail_with_a_due_time_is_delayed_until_then() -> None:
    assert Listed.entering(QUEUED, NOW, LATER) == Listed(QUEUED, NOW, Whereabouts.DELAYED, due_at=LATER)


@pytest.mark.parametrize(
    ("attempts", "delay", "wait"),
    [
        (0, timedelta(seconds=5), timedelta(seconds=5)),
        (7, timedelta(0), timedelta(0)),
        (0, None, timedelta(minutes=1)),
        (2, None, timedelta(minutes=4)),
        (50, None, timedelta(hours=4)),
    ],
)
def test_a_mail_that_is_tried_again_is_delayed_by_what_is_asked_or_by_a_wait_that_doubles(
    attempts: int, delay: timedelta | None, wait: timedelta
) -> None:
    """Given a mail that came before, the try at a later time changes its envelope, its due time and its attempts."""
    again = Listed(QUEUED, NOW, attempts=attempts).retried(LATER, delay, "450 later")

    tried = QueuedMail(QUEUED.enqueue_id, BEFORE.tried(LATER, "450 later"), QUEUED.blobs)
    assert again == Listed(tried, NOW, Whereabouts.DELAYED, due_at=LATER + wait, attempts=attempts + 1)


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


def test_a_mail_of_which_only_its_name_and_recipients_are_known_begins_at_this_host() -> None:
    """Given no more than James asks for, it waits for James's first processor, comes from here and carries nothing."""
    mail = Mail("m", ("b@example.org",))

    assert (mail.state, mail.remote_addr, mail.remote_host) == ("root", "127.0.0.1", "localhost")
    assert (mail.sender, mail.error_message, mail.last_updated) == (None, None, None)
    assert (mail.attributes, mail.recipient_headers) == ({}, ())


def test_a_mail_that_enters_its_queue_was_never_tried() -> None:
    again = Listed.entering(QUEUED, NOW, None).retried(LATER, None, None)

    assert (again.attempts, again.due_at) == (1, LATER + timedelta(minutes=1))


def test_priorities_are_those_of_james() -> None:
    """Ten of them in its attribute; a mail that names none has 5."""
    assert PRIORITY_ATTRIBUTE == "MAIL_PRIORITY"
    assert list(PRIORITIES) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert PRIORITY_NORMAL == 5


def test_a_mail_is_delayed_for_a_leap_year_at_most() -> None:
    assert datetime(2028, 1, 1, tzinfo=UTC) + DELAY_MAX == datetime(2029, 1, 1, tzinfo=UTC)


def test_a_search_that_may_miss_no_mail_ends_where_it_began() -> None:
    """Mails move between both places meanwhile, so the delayed ones are searched before and after the waiting ones."""
    assert LOOKS == (Whereabouts.DELAYED, Whereabouts.WAITING, Whereabouts.DELAYED)
