"""`mailmend queue enqueue`: files and pipes become mails, now or later; what failed is named."""

import io
import os
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from mailmend.admin.queue.enqueue import AT_ONCE
from mailmend.admin.queue.letters import FIRST_BYTES
from mailmend.mailqueue import admission
from mailmend.mailqueue.codec import attribute_value, priority_of
from mailmend.mailqueue.rules.mails import Mail, Whereabouts
from tests.support.memory_broker import Fate
from tests.support.queue_commands import QueueShell

LETTER = b"From: ann@example.org\r\nSubject: hello\r\n\r\nBody.\r\n"
TO_BOB = ("--recipient", "bob@example.org")


@pytest.fixture
def letter(tmp_path: Path) -> str:
    file = tmp_path / "letter.eml"
    file.write_bytes(LETTER)
    return str(file)


def only(queue: QueueShell) -> Mail:
    (listed,) = queue.listed()
    return listed.queued.mail


def test_a_file_becomes_a_mail_with_its_envelope(queue: QueueShell, letter: str) -> None:
    envelope = ("--sender", "ann@example.org", *TO_BOB, "--recipient", "carol@example.org")
    more = ("--name", "mine", "--state", "transport", "--attribute", "dkim=ok=yes", "--priority", "7")

    ended = queue("enqueue", letter, *envelope, *more, "--json")

    (listed,) = queue.listed()
    mail, id_text = listed.queued.mail, str(listed.queued.enqueue_id)
    assert (ended.code, ended.json["enqueued"]) == (0, [{"file": letter, "id": id_text, "ids": [id_text]}])
    assert (mail.sender, mail.recipients) == ("ann@example.org", ("bob@example.org", "carol@example.org"))
    assert (mail.name, mail.state, priority_of(mail)) == ("mine", "transport", 7)
    assert attribute_value(mail.attributes["dkim"]) == "ok=yes"
    assert mail.last_updated is not None


def test_what_is_enqueued_is_delivered_byte_for_byte(queue: QueueShell, letter: str, tmp_path: Path) -> None:
    queue("enqueue", letter, *TO_BOB)

    assert queue("dequeue", "--dir", str(tmp_path / "out")).code == 0
    (file,) = (tmp_path / "out").glob("*.eml")
    assert file.read_bytes() == LETTER


def test_without_a_sender_it_is_the_null_sender(queue: QueueShell, letter: str) -> None:
    queue("enqueue", letter, letter, *TO_BOB)

    mails = [one.queued.mail for one in queue.listed()]
    assert {mail.sender for mail in mails} == {None}
    assert len({mail.name for mail in mails}) == 2


def test_standard_input_is_a_mail_too(queue: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LETTER)))

    assert queue("enqueue", "-", *TO_BOB).code == 0
    assert len(queue.listed()) == 1


@pytest.mark.parametrize("when", [("--due-in", "2h"), ("--at", "IN_2_HOURS")])
def test_a_delayed_mail_waits_for_its_time(queue: QueueShell, letter: str, when: tuple[str, str]) -> None:
    due_at = queue.now + timedelta(hours=2)
    ended = queue("enqueue", letter, *TO_BOB, when[0], when[1].replace("IN_2_HOURS", due_at.isoformat()))

    (listed,) = queue.listed()
    assert (ended.code, listed.whereabouts, listed.due_at) == (0, Whereabouts.DELAYED, due_at)
    assert queue.broker.ready(queue.name) == []


def test_without_a_table_for_it_a_delay_is_refused(james: QueueShell, letter: str) -> None:
    ended = james("enqueue", letter, *TO_BOB, "--due-in", "1h")

    assert (ended.code, "dueMails" in ended.err, "schema apply" in ended.err) == (2, True, True)
    assert james.listed() == []


def test_one_that_fails_is_named_and_the_others_are_in(queue: QueueShell, letter: str) -> None:
    """Exit 3: the queue holds exactly those that were said to be in."""
    queue.broker.will(Fate.REFUSED)

    ended = queue("enqueue", letter, letter, *TO_BOB, "--json")

    assert (ended.code, len(ended.json["enqueued"]), len(ended.json["failed"])) == (3, 1, 1)
    assert [str(one.queued.enqueue_id) for one in queue.listed()] == [ended.json["enqueued"][0]["id"]]
    assert "refused" in ended.json["failed"][0]["why"]


def test_a_broker_that_is_away_is_reported_and_nothing_is_left(queue: QueueShell, letter: str) -> None:
    queue.broker.go_away()

    ended = queue("enqueue", letter, *TO_BOB)

    assert (ended.code, "does not answer" in ended.err) == (4, True)
    queue.broker.come_back()
    assert queue.listed() == []
    assert not queue.blobs.ids


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--due-in", "1h", "--at", "2030-01-01T00:00:00Z"), "Give one of them"),
        (("--at", "tomorrow"), "not a time"),
        (("--at", "2099-01-01T00:00:00Z"), "366"),
        (("--priority", "10"), "10 is not in the range"),
        (("--attribute", "nothing"), "not NAME=VALUE"),
        (("--due-in", "0"), "no time at all"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_put(
    queue: QueueShell, letter: str, arguments: tuple[str, ...], said: str
) -> None:
    ended = queue("enqueue", letter, *TO_BOB, *arguments)

    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert queue.listed() == []


def test_a_file_that_cannot_be_read_stops_before_the_first(queue: QueueShell, letter: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.eml"
    empty.write_bytes(b"\n")

    for bad in (str(tmp_path / "none.eml"), str(empty), str(tmp_path)):
        for options in ((), ("--dry-run",)):
            ended = queue("enqueue", letter, bad, *TO_BOB, *options)
            assert (ended.code, bad in ended.err, "Nothing was enqueued" in ended.err) == (2, True, True)
    assert (queue.listed(), queue.asked) == ([], [])


def test_standard_input_is_read_once(queue: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, or with nothing in it, is refused before anything is put."""
    for files, content in ((("-", "-"), LETTER), (("-",), b"")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert queue("enqueue", *files, *TO_BOB).code == 2
    assert queue.listed() == []


def test_an_envelope_that_james_could_not_read_is_refused_before_any_file_is_put(
    queue: QueueShell, letter: str
) -> None:
    for options in ((), ("--dry-run",)):
        ended = queue("enqueue", letter, letter, "--recipient", "no address", *options)
        assert (ended.code, "recipients[0] is no address" in ended.err) == (2, True)
    assert (queue.listed(), set(queue.asked)) == ([], {"close"})


def test_an_envelope_that_no_queue_takes_is_refused_before_any_file_is_put(
    queue: QueueShell, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "ENVELOPE_BYTES_MAX", 10_000)
    for options in ((), ("--dry-run",)):
        ended = queue("enqueue", letter, *TO_BOB, "--attribute", f"large={'a' * 10_000}", *options)
        assert (ended.code, "no queue takes more than 10,000" in ended.err) == (2, True), ended.err
    assert queue.listed() == []


MEMBERS = tuple(f"member{number}@example.org" for number in range(5))
TO_MEMBERS = tuple(word for member in MEMBERS for word in ("--recipient", member))


@pytest.fixture
def few_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RECIPIENTS_TOGETHER", 2)


def recipients_in(queue: QueueShell) -> list[tuple[str, ...]]:
    return sorted(one.queued.mail.recipients for one in queue.listed())


@pytest.mark.usefixtures("few_together")
def test_a_mail_with_many_recipients_becomes_several(queue: QueueShell, letter: str) -> None:
    """Each recipient is in one of them, and the result names all their ids."""
    ended = queue("enqueue", letter, *TO_MEMBERS, "--sender", "ann@example.org", "--json")

    assert ended.code == 0, ended.err
    assert recipients_in(queue) == [MEMBERS[:2], MEMBERS[2:4], MEMBERS[4:]]
    mails = [one.queued.mail for one in queue.listed()]
    assert {(mail.sender, mail.name) for mail in mails} == {("ann@example.org", mails[0].name)}
    (enqueued,) = ended.json["enqueued"]
    assert sorted(enqueued["ids"]) == sorted(str(one.queued.enqueue_id) for one in queue.listed())
    assert enqueued["id"] == enqueued["ids"][0]


@pytest.mark.usefixtures("few_together")
def test_what_an_error_left_out_of_several_mails_is_put_by_the_key_that_it_names(
    queue: QueueShell, letter: str
) -> None:
    """None is put twice, not even one that was delivered meanwhile."""
    queue.broker.will(Fate.KEPT, Fate.REFUSED)

    failed = queue("enqueue", letter, letter, *TO_MEMBERS, "--name", "mine")
    key = failed.err.partition("--idempotency-key ")[2].split()[0]
    delivered = queue.delivered(1)
    again = queue("enqueue", letter, letter, *TO_MEMBERS, "--name", "mine", "--idempotency-key", key, "--json")

    assert failed.code == 3, failed.err
    assert "of the 3 mails that it became are in the queue" in failed.err
    assert (again.code, len(delivered)) == (0, 1), again.err
    assert len(queue.delivered(5)) == 5
    assert queue.delivers_nothing()


def test_the_same_key_puts_a_mail_once_and_another_mail_too(queue: QueueShell, letter: str, tmp_path: Path) -> None:
    """Two files with the same bytes are two mails."""
    other = tmp_path / "other.eml"
    other.write_bytes(LETTER + b"More.\r\n")
    keyed = (*TO_BOB, "--idempotency-key", "letter-1", "--json")

    first = queue("enqueue", letter, letter, *keyed)
    again = queue("enqueue", letter, letter, *keyed)
    beside = queue("enqueue", str(other), *keyed)

    assert (first.code, first.json["enqueued"]) == (0, again.json["enqueued"]), first.err
    assert beside.code == 0
    assert len({one.queued.enqueue_id for one in queue.listed()}) == 3


def test_recipients_come_from_a_file_too(queue: QueueShell, letter: str, tmp_path: Path) -> None:
    file = tmp_path / "members.txt"
    file.write_text("cy@example.org\r\n\n  #dan@example.org\n")

    ended = queue("enqueue", letter, *TO_BOB, "--recipients-file", str(file))

    assert ended.code == 0, ended.err
    assert recipients_in(queue) == [("bob@example.org", "cy@example.org", "#dan@example.org")]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\n", "the mail has no recipient"), (b"\xff", "is not UTF-8"), (b"", "no recipient"), (None, "cannot be read")],
)
def test_a_file_without_recipients_is_refused(
    queue: QueueShell, letter: str, tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "members.txt"
    if content is not None:
        file.write_bytes(content)

    ended = queue("enqueue", letter, "--recipients-file", str(file))

    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert queue.listed() == []


class Reading:
    """Watches files as they are read: what is held is read, and not in the queue yet."""

    def __init__(self, queue: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read, self.most_held = list[str](), 0
        self.on_first: Callable[[], None] = lambda: None
        read_bytes, one_at_a_time = Path.read_bytes, threading.Lock()

        def watched(file: Path) -> bytes:
            with one_at_a_time:
                if not self.read:
                    self.on_first()
                self.read.append(file.name)
                self.most_held = max(self.most_held, len(self.read) - len(queue.broker.published))
            return read_bytes(file)

        monkeypatch.setattr(Path, "read_bytes", watched)


def letters(folder: Path, count: int) -> list[str]:
    files = [folder / f"{number}.eml" for number in range(count)]
    for file in files:
        file.write_bytes(LETTER)
    return list(map(str, files))


def test_no_more_files_are_held_than_are_enqueued_at_once(
    queue: QueueShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = letters(tmp_path, 3 * AT_ONCE)
    reading = Reading(queue, monkeypatch)

    assert queue("enqueue", *files, *TO_BOB).code == 0
    assert sorted(reading.read) == sorted(Path(file).name for file in files)
    assert 0 < reading.most_held <= AT_ONCE
    assert len(queue.listed()) == len(files)


def test_one_that_cannot_be_read_later_is_named_with_all_that_are_in(
    queue: QueueShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went while the first was read: exit 3, and every other file is in the queue."""
    *others, last = letters(tmp_path, AT_ONCE + 4)
    reading = Reading(queue, monkeypatch)
    reading.on_first = Path(last).unlink

    ended = queue("enqueue", *others, last, *TO_BOB, "--json")

    assert ended.code == 3
    assert [one["file"] for one in ended.json["enqueued"]] == others
    (failed,) = ended.json["failed"]
    assert (failed["file"], "cannot be read" in failed["why"]) == (last, True)
    assert {one["id"] for one in ended.json["enqueued"]} == {str(one.queued.enqueue_id) for one in queue.listed()}


def test_one_that_proves_empty_behind_its_beginning_is_named(queue: QueueShell, letter: str, tmp_path: Path) -> None:
    """What no look at a beginning tells; a dry run, which reads all, foretells it."""
    blank = tmp_path / "blank.eml"
    blank.write_bytes(b"\n" * (FIRST_BYTES + 1))

    looked = queue("enqueue", letter, str(blank), *TO_BOB, "--dry-run", "--json")
    ended = queue("enqueue", letter, str(blank), *TO_BOB, "--json")

    assert (looked.code, looked.json["failed"]) == (3, ended.json["failed"])
    assert (ended.code, ended.json["failed"][0]["file"], len(ended.json["enqueued"])) == (3, str(blank), 1)
    assert f"would not be enqueued: {blank}" in queue("enqueue", str(blank), *TO_BOB, "--dry-run").err


def test_a_pipe_is_not_looked_into_beforehand(queue: QueueShell, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(LETTER))
    writer.start()

    ended = queue("enqueue", str(pipe), *TO_BOB)

    writer.join()
    assert (ended.code, len(queue.listed())) == (0, 1), ended.err


def test_a_dry_run_tells_what_would_go_in_and_when_it_is_due(queue: QueueShell, letter: str) -> None:
    """Each file with its length; neither broker nor store is reached."""
    due_at = queue.now + timedelta(hours=2)
    line = ("enqueue", letter, letter, *TO_BOB, "--due-in", "2h", "--priority", "3", "--dry-run")

    found = queue(*line, "--json").json

    assert found["would_enqueue"] == [{"file": letter, "bytes": len(LETTER)}] * 2
    assert (found["dry_run"], found["enqueued"], found["failed"]) == (True, [], [])
    assert datetime.fromisoformat(found["due_at"]) == due_at
    assert f"2 mails ({2 * len(LETTER)} bytes) would go into spool, due at" in queue(*line).out
    assert queue("enqueue", letter, *TO_BOB, "--dry-run", "--json").json["due_at"] is None
    assert (queue.listed(), queue.asked, queue.blobs.ids) == ([], [], set())


def test_a_dry_run_refuses_what_could_not_be(james: QueueShell, letter: str) -> None:
    """A delay without a table for it, and settings that name no broker or no store."""
    delayed = james("enqueue", letter, *TO_BOB, "--due-in", "1h", "--dry-run")
    assert (delayed.code, "dueMails" in delayed.err) == (2, True)

    for lacking in ("MAILMEND_BROKER", "MAILMEND_BLOBS"):
        assert james("enqueue", letter, *TO_BOB, "--dry-run", **{lacking: ""}).code == 2
    assert james("enqueue", letter, *TO_BOB, "--dry-run").code == 0


def test_a_recipient_is_needed(queue: QueueShell, letter: str) -> None:
    assert queue("enqueue", letter).code == 2


def test_a_mail_that_a_quota_leaves_no_room_for_is_named(queue: QueueShell, letter: str, tmp_path: Path) -> None:
    """Whether others have filled it before, or this command; a dry run says the same, and puts nothing."""
    policies = tmp_path / "policies.yaml"
    policies.write_text("quotas: [{name: per-tenant, fields: [tenantid], default: {messages: 2}}]")
    acme = (*TO_BOB, "--attribute", "tenantid=acme", "--policies", str(policies), "--json")
    queue("enqueue", letter, *acme)

    would = queue("enqueue", letter, letter, *acme, "--dry-run")
    partly = queue("enqueue", letter, letter, *acme)
    none = queue("enqueue", letter, *acme)
    other = queue("enqueue", letter, *TO_BOB, "--policies", str(policies))

    assert [one.code for one in (would, partly, none, other)] == [3, 3, 3, 0]
    assert [len(would.json[name]) for name in ("would_enqueue", "failed")] == [1, 1]
    assert [len(partly.json[name]) for name in ("enqueued", "failed")] == [1, 1]
    assert none.json["failed"] == [{"file": letter, "why": "the quota per-tenant is full"}]
    assert len(queue.listed()) == 3
