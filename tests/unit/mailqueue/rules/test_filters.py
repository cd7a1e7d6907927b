"""Which mails are meant: addresses in any case, wildcards, ages, ids."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.mails import EVERYTHING, Listed, MailFilter, Whereabouts
from mailmend.model.ids import EnqueueId
from tests.support.queues import queued

NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def listed(**given_fields: Any) -> Listed:
    """A mail that waits since noon."""
    base = {"sender": "Ann@Example.ORG", "recipients": ("bob@example.org", "carol@example.com"), "name": "mail-1"}
    return Listed(queued(1, **{**base, **given_fields}), NOON, slice_start=NOON)


MAIL = listed()


@pytest.mark.parametrize(
    "where",
    [
        EVERYTHING,
        MailFilter(sender="ann@example.org"),
        MailFilter(sender="ANN@EXAMPLE.ORG"),
        MailFilter(sender="ann@*"),
        MailFilter(sender="*"),
        MailFilter(sender="*@example.org"),
        MailFilter(sender="a*@e*.org"),
        MailFilter(recipient="carol@example.com"),
        MailFilter(recipient="CAROL@example.COM"),
        MailFilter(recipient="*@example.com"),
        MailFilter(name="mail-1"),
        MailFilter(name="mail-*"),
        MailFilter(state="root"),
        MailFilter(state="*"),
        MailFilter(older_than_at=NOON + SECOND),
        MailFilter(newer_than_at=NOON),
        MailFilter(enqueue_ids=frozenset({MAIL.queued.enqueue_id})),
        MailFilter(whereabouts=Whereabouts.WAITING),
        MailFilter(sender="ann@*", recipient="bob@*", name="mail-1", state="root", newer_than_at=NOON),
    ],
)
def test_a_mail_that_is_meant_matches(where: MailFilter) -> None:
    """Each condition by itself, and all together."""
    assert where.matches(MAIL)


@pytest.mark.parametrize(
    "where",
    [
        MailFilter(sender="ann@example.com"),
        MailFilter(sender="nn@example.org"),
        MailFilter(sender="*@example.com"),
        MailFilter(sender="<>"),
        MailFilter(sender="ann@example.or."),
        MailFilter(recipient="dave@example.org"),
        MailFilter(recipient="bob"),
        MailFilter(name="MAIL-1"),
        MailFilter(name="mail"),
        MailFilter(state="Root"),
        MailFilter(older_than_at=NOON),
        MailFilter(newer_than_at=NOON + SECOND),
        MailFilter(enqueue_ids=frozenset()),
        MailFilter(enqueue_ids=frozenset({EnqueueId(UUID(int=1))})),
        MailFilter(whereabouts=Whereabouts.DELAYED),
        MailFilter(sender="ann@*", recipient="dave@*"),
    ],
)
def test_a_mail_that_is_not_meant_does_not(where: MailFilter) -> None:
    """One condition that fails is enough; names and states are compared as they are."""
    assert not where.matches(MAIL)


def test_the_null_sender_is_asked_for_by_its_brackets() -> None:
    """And is no address."""
    bounce = listed(sender=None)
    assert MailFilter(sender="<>").matches(bounce)
    assert MailFilter(sender="*").matches(bounce)
    assert not MailFilter(sender="*@*").matches(bounce)


def test_a_mail_without_recipients_has_none() -> None:
    """Not even one that anything fits."""
    nobody = Listed(replace(MAIL.queued, mail=replace(MAIL.queued.mail, recipients=())), NOON)
    assert not MailFilter(recipient="*").matches(nobody)
    assert EVERYTHING.matches(nobody)


def test_a_line_break_hides_nothing() -> None:
    """A name with one is still a name."""
    assert MailFilter(name="a*b").matches(listed(name="a\nb"))


@given(name=st.text(st.characters(exclude_characters="*"), min_size=1, max_size=9), other=st.text(max_size=9))
def test_without_a_wildcard_only_the_same_name_matches(name: str, other: str) -> None:
    """A dot is a dot, a bracket a bracket."""
    assert MailFilter(name=name).matches(listed(name=other or "-")) == (name == (other or "-"))
