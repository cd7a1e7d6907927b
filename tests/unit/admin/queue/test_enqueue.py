"""`mailmend queue enqueue`: files and pipes become mails, now or later; what failed is named."""

import io
from datetime import timedelta
from pathlib import Path

import pytest

from mailqueue.brokers.memory import Fate
from mailqueue.codec import attribute_value, priority_of
from model.mails import Mail, Whereabouts
from tests.support.queue_commands import QueueShell

LETTER = b"From: ann@example.org\r\nSubject: hello\r\n\r\nBody.\r\n"
TO_BOB = ("--recipient", "bob@example.org")


@pytest.fixture
def letter(tmp_path: Path) -> str:
    """A message in a file."""
    file = tmp_path / "letter.eml"
    file.write_bytes(LETTER)
    return str(file)


def only(queue: QueueShell) -> Mail:
    """The one mail that is in the queue."""
    (listed,) = queue.listed()
    return listed.queued.mail


def test_a_file_becomes_a_mail_with_its_envelope(queue: QueueShell, letter: str) -> None:
    """Every field that can be given; the id is told."""
    envelope = ("--sender", "ann@example.org", *TO_BOB, "--recipient", "carol@example.org")
    more = ("--name", "mine", "--state", "transport", "--attribute", "dkim=ok=yes", "--priority", "7")

    ended = queue("enqueue", letter, *envelope, *more, "--json")

    (listed,) = queue.listed()
    mail = listed.queued.mail
    assert (ended.code, ended.json["enqueued"]) == (0, [{"file": letter, "id": str(listed.queued.enqueue_id)}])
    assert (mail.sender, mail.recipients) == ("ann@example.org", ("bob@example.org", "carol@example.org"))
    assert (mail.name, mail.state, priority_of(mail)) == ("mine", "transport", 7)
    assert attribute_value(mail.attributes["dkim"]) == "ok=yes"
    assert mail.last_updated is not None


def test_what_is_enqueued_is_delivered_byte_for_byte(queue: QueueShell, letter: str, tmp_path: Path) -> None:
    """From file to file."""
    queue("enqueue", letter, *TO_BOB)

    assert queue("dequeue", "--to", str(tmp_path / "out")).code == 0
    (file,) = (tmp_path / "out").glob("*.eml")
    assert file.read_bytes() == LETTER


def test_without_a_sender_it_is_the_null_sender(queue: QueueShell, letter: str) -> None:
    """As a bounce has it; each mail gets a name of its own."""
    queue("enqueue", letter, letter, *TO_BOB)

    mails = [one.queued.mail for one in queue.listed()]
    assert {mail.sender for mail in mails} == {None}
    assert len({mail.name for mail in mails}) == 2


def test_standard_input_is_a_mail_too(queue: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `-`."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LETTER)))

    assert queue("enqueue", "-", *TO_BOB).code == 0
    assert len(queue.listed()) == 1


@pytest.mark.parametrize("when", [("--delay", "2h"), ("--at", "IN_2_HOURS")])
def test_a_delayed_mail_waits_for_its_time(queue: QueueShell, letter: str, when: tuple[str, str]) -> None:
    """It is listed, and not delivered before."""
    due_at = queue.now + timedelta(hours=2)
    ended = queue("enqueue", letter, *TO_BOB, when[0], when[1].replace("IN_2_HOURS", due_at.isoformat()))

    (listed,) = queue.listed()
    assert (ended.code, listed.whereabouts, listed.due_at) == (0, Whereabouts.DELAYED, due_at)
    assert queue.broker.ready(queue.name) == []


def test_without_a_table_for_it_a_delay_is_refused(james: QueueShell, letter: str) -> None:
    """A keyspace of James; the message says what to do."""
    ended = james("enqueue", letter, *TO_BOB, "--delay", "1h")

    assert (ended.code, "dueMails" in ended.err, "schema apply" in ended.err) == (2, True, True)
    assert james.listed() == []


def test_one_that_fails_is_named_and_the_others_are_in(queue: QueueShell, letter: str) -> None:
    """Exit 3: the queue holds exactly those that were said to be in."""
    queue.broker.will(Fate.REFUSED)

    ended = queue("enqueue", letter, letter, *TO_BOB, "--json")

    assert (ended.code, len(ended.json["enqueued"]), len(ended.json["failed"])) == (3, 1, 1)
    assert [str(one.queued.enqueue_id) for one in queue.listed()] == [ended.json["enqueued"][0]["id"]]
    assert "refused" in ended.json["failed"][0]["why"]


def test_a_broker_that_is_away_is_told_and_nothing_is_left(queue: QueueShell, letter: str) -> None:
    """Exit 4; neither row nor blob stays behind."""
    queue.broker.go_away()

    ended = queue("enqueue", letter, *TO_BOB)

    assert (ended.code, "does not answer" in ended.err) == (4, True)
    queue.broker.come_back()
    assert queue.listed() == []
    assert not queue.blobs.ids


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--delay", "1h", "--at", "2030-01-01T00:00:00Z"), "Give one of them"),
        (("--at", "tomorrow"), "not a time"),
        (("--at", "2099-01-01T00:00:00Z"), "366"),
        (("--priority", "10"), "10 is not in the range"),
        (("--attribute", "nothing"), "not NAME=VALUE"),
        (("--delay", "0"), "no time at all"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_put(
    queue: QueueShell, letter: str, arguments: tuple[str, ...], said: str
) -> None:
    """Exit 2, one message."""
    ended = queue("enqueue", letter, *TO_BOB, *arguments)

    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert queue.listed() == []


def test_a_file_that_cannot_be_read_stops_before_the_first(queue: QueueShell, letter: str, tmp_path: Path) -> None:
    """Neither does one of several go in alone."""
    empty = tmp_path / "empty.eml"
    empty.write_bytes(b"\n")

    for bad in (str(tmp_path / "none.eml"), str(empty), str(tmp_path)):
        ended = queue("enqueue", letter, bad, *TO_BOB)
        assert (ended.code, bad in ended.err) == (2, True)
    assert queue.listed() == []


def test_a_recipient_is_needed(queue: QueueShell, letter: str) -> None:
    """A mail to nobody goes nowhere."""
    assert queue("enqueue", letter).code == 2
