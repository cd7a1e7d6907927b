"""Mailboxes by their path: found, or created once, whoever asks and wherever a creation was cut short."""

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import MAILBOX, MAILBOX_PATH, PRIVATE
from mailmend.model.errors import CannotReach, DoubtfulWrite, MailmendError, TimedOut
from mailmend.model.ids import MailboxId
from mailmend.model.operations import Put, PutIfAbsent, Read, Remove, Scan
from mailmend.repair.store.mailboxes import BadName, Mailboxes
from tests.support.clock import VirtualClock
from tests.support.writing import Faults, on


class Place:
    """Tables with faults, and the mailboxes over them."""

    def __init__(self) -> None:
        self.clock, self.faults = VirtualClock(), Faults()
        self.tables = MemoryTables(self.clock.micros, self.faults)
        self.mailboxes = Mailboxes(self.tables, self.clock)


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_mailbox_is_created_once(place: Place) -> None:
    inbox = place.mailboxes.ensure("bob", "INBOX")
    assert place.mailboxes.ensure("bob", "INBOX") == inbox == place.mailboxes.find("bob", "INBOX")
    assert place.mailboxes.ensure("bob", "Sent") != inbox
    (row,) = place.tables.read(Read(MAILBOX, (inbox,)))
    (path,) = place.tables.read(Read(MAILBOX_PATH, (PRIVATE, "bob", "INBOX")))
    assert row.row["mailboxbase"] == {"namespace": PRIVATE, "user": "bob"}
    assert row.row["name"] == "INBOX"
    assert row.row["uidvalidity"] == path.row["uidvalidity"] > 0


def test_an_unknown_path_is_none(place: Place) -> None:
    assert place.mailboxes.find("bob", "INBOX") is None
    assert list(place.tables.scan(Scan(MAILBOX_PATH, MAILBOX_PATH.names))) == []


def test_the_second_of_two_gets_the_firsts_mailbox(place: Place) -> None:
    other = Mailboxes(place.tables, place.clock)
    theirs: list[MailboxId | None] = []

    def interfere(operation: object, carry_out: object) -> object:
        if isinstance(operation, PutIfAbsent) and not theirs:
            theirs.append(None)
            theirs[0] = other.ensure("bob", "INBOX")
        return carry_out()  # type: ignore[operator]

    place.tables.surround = interfere
    assert place.mailboxes.ensure("bob", "INBOX") == theirs[0]


@pytest.mark.parametrize("done", [True, False], ids=["it happened", "it did not"])
def test_a_doubtful_registration_is_settled(place: Place, *, done: bool) -> None:
    place.faults.doubt(on(MAILBOX_PATH, PutIfAbsent), DoubtfulWrite("no answer"), done=done)
    inbox = place.mailboxes.ensure("bob", "INBOX")
    assert len(list(place.tables.scan(Scan(MAILBOX, MAILBOX.names)))) == 1
    assert place.mailboxes.find("bob", "INBOX") == inbox


def test_a_passing_failure_of_the_second_row_is_retried(place: Place) -> None:
    """As James retries it."""
    place.faults.fail(on(MAILBOX, Put), TimedOut("no answer"), times=5)
    assert place.tables.read(Read(MAILBOX, (place.mailboxes.ensure("bob", "INBOX"),)))


def test_a_creation_that_was_cut_short_is_completed(place: Place) -> None:
    place.faults.fail(on(MAILBOX, Put), TimedOut("no answer"), times=6)
    with pytest.raises(CannotReach):
        place.mailboxes.ensure("bob", "INBOX")
    inbox = place.mailboxes.ensure("bob", "INBOX")
    assert place.tables.read(Read(MAILBOX, (inbox,)))


def test_a_path_that_does_not_show_is_said(place: Place) -> None:
    future = place.clock.micros() + 3_600_000_000
    place.tables.write(Remove(MAILBOX_PATH, (PRIVATE, "bob", "INBOX"), at=future))
    with pytest.raises(MailmendError, match="does not show"):
        place.mailboxes.ensure("bob", "INBOX")
    assert list(place.tables.scan(Scan(MAILBOX, MAILBOX.names))) == []


def test_names_are_read_as_james_reads_them(place: Place) -> None:
    inbox = place.mailboxes.ensure("Ann@Example.ORG", "inbox")
    assert place.mailboxes.find("ann@example.org", "INBOX") == inbox == place.mailboxes.find("ANN@example.org", "Inbox")
    assert place.mailboxes.names("ANN@example.org") == ["INBOX"]


@pytest.mark.parametrize(("user", "name"), [("", "INBOX"), ("ann", "a*"), ("ann", "#x"), ("a b", "INBOX")])
def test_names_that_james_cannot_know_create_nothing(place: Place, user: str, name: str) -> None:
    for take in (place.mailboxes.find, place.mailboxes.ensure):
        with pytest.raises(BadName):
            take(user, name)
    assert list(place.tables.scan(Scan(MAILBOX_PATH, MAILBOX_PATH.names))) == []
