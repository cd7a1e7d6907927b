"""Commands that mend a queue, killed before each of their steps, and typed again: nothing is lost or comes twice.

A step is whatever outlives the process: a write, a publish, an ack, a blob, a line in the file of what is kept.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.admin.queue.kept_mails import read_removed_mails
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.model.catalog.mail_queue import DUE_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import EnqueueId
from mailmend.model.operations import Change, Remove, Scan
from tests.support.commands import Ended
from tests.support.mortal_commands import Shells, killed
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.queue_reconciled import row_of
from tests.support.queues import CONTENT, all_delivered, next_of
from tests.support.thorough import first_of

LATER = timedelta(hours=3)
NAMES = ["later", "one", "two"]


@pytest.fixture
def shells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shells:
    return Shells(monkeypatch, tmp_path)


def filled(queue: QueueShell) -> list[EnqueueId]:
    return [*queue.put("one", "two"), queue.put_later("later", LATER)]


def came(queue: QueueShell) -> list[str]:
    assert queue("flush").code == 0
    return queue.on_queue(all_delivered)


def kept_files(queue: QueueShell) -> list[str]:
    return sorted(map(str, (queue.line.home / "data").rglob("*.jsonl.gz")))


def kept(queue: QueueShell) -> dict[str, bytes | None]:
    files = map(Path, kept_files(queue))
    return {one.queued.mail.name: one.content for file in files for one in read_removed_mails(file, lambda: None)}


def nothing_is_left(queue: QueueShell) -> None:
    """No row, no message, no dead letter; of the bytes what a kill may have left, which nothing refers to any more."""
    queue.pass_time(hours=9)
    assert queue("sweep").code == 0
    assert queue.delivers_nothing()
    assert queue.broker.dead(queue.name) == []
    found = queue.line("check", "blobs", "--engine", "local", "--json").json
    assert set(found["findings"]) <= {"TOO_YOUNG"}


Meanwhile = Callable[[QueueShell], list[str]]
"""What happens between the kill and the second try; the names of what was delivered."""


def nothing(_: QueueShell) -> list[str]:
    return []


def rejected(queue: QueueShell) -> list[str]:
    assert queue("flush").code == 0
    assert queue("dequeue", "--exec", "false").code in {0, 1}
    return []


def retried(queue: QueueShell) -> list[str]:
    async def later(opened: RabbitMailQueue) -> None:
        async with opened.dequeue() as mails:
            while one := await next_of(mails):
                await one.retry(LATER)

    queue.on_queue(later)
    return []


@pytest.mark.parametrize("meanwhile", first_of([retried, nothing, came, rejected]))
def test_a_restore_brings_each_mail_back_once(shells: Shells, meanwhile: Meanwhile) -> None:
    """Whatever consumers did with what was back by then; what they rejected is redriven."""

    def story(queue: QueueShell, after: int) -> Ended | None:
        filled(queue)
        file = queue("purge", "--yes", "--json").json["kept"]

        first = killed(queue, after, "restore", file)
        taken = meanwhile(queue)
        again = queue("restore", file)

        assert again.code == 0 or "put back before" in again.err, again.err
        assert queue("redrive").code == 0
        listed = [one.queued.enqueue_id for one in queue.listed()]
        assert len(set(listed)) == len(listed) == len(NAMES) - len(taken)
        assert sorted(taken + came(queue)) == NAMES
        nothing_is_left(queue)
        return first

    assert shells.each_step(story) > 10


def comes_back_from_its_files(queue: QueueShell) -> None:
    for file in kept_files(queue):
        assert queue("restore", file).code == 0
    assert sorted(came(queue)) == NAMES
    nothing_is_left(queue)


def test_a_purge_is_taken_back_by_its_file(shells: Shells) -> None:
    """Killed, it has removed some and kept more: with its file, torn or whole, each mail comes once."""

    def story(queue: QueueShell, after: int) -> Ended | None:
        filled(queue)

        first = killed(queue, after, "purge", "--yes")
        assert set(NAMES) - set(queue.names()) <= {name for name, content in kept(queue).items() if content == CONTENT}
        comes_back_from_its_files(queue)
        return first

    assert shells.each_step(story) > 5


def test_two_files_of_one_purge_bring_each_mail_back_once(shells: Shells) -> None:
    """The first was killed, the second finished it: a mail that is in both is one mail."""

    def story(queue: QueueShell, after: int) -> Ended | None:
        filled(queue)

        first = killed(queue, after, "purge", "--yes")
        queue.pass_time(seconds=1)
        assert queue("purge", "--yes").code == 0
        assert queue.listed() == []
        comes_back_from_its_files(queue)
        return first

    assert shells.each_step(story) > 5


@pytest.mark.parametrize("meanwhile", first_of([retried, nothing, came, rejected]))
def test_a_redrive_brings_each_dead_letter_back(shells: Shells, meanwhile: Meanwhile) -> None:
    """Once to a consumer that acks; what was deleted meanwhile is not, and its bytes go."""

    def story(queue: QueueShell, after: int) -> Ended | None:
        *_, gone = queue.put("one", "two", "gone")
        assert queue("dequeue", "--exec", "false").code == 1
        assert queue("reconcile", "--mark", str(gone), "--no-blobs").code == 1
        assert (len(queue.broker.dead(queue.name)), len(queue.blobs.ids)) == (3, 6)

        first = killed(queue, after, "redrive")
        taken = meanwhile(queue)
        again = queue("redrive")

        assert again.code == 0
        assert queue.broker.dead(queue.name) == []
        assert len(queue.listed()) == 2 - len(taken)
        assert sorted(taken + came(queue)) == ["one", "two"]
        assert not queue.blobs.ids
        nothing_is_left(queue)
        return first

    assert shells.each_step(story) > 5


def test_what_reconcile_marks_is_kept_and_never_comes(shells: Shells) -> None:
    """Whatever was wrong with it: waiting, delayed, without its row, with a row that cannot be read."""

    def story(queue: QueueShell, after: int) -> Ended | None:
        ids = [*filled(queue), *queue.put("rowless", "broken")]
        queue.put("stays")
        queue.pass_time(hours=2)
        without_row, broken = row_of(queue, ids[3]), row_of(queue, ids[4])
        tables = queue.cluster.keyspace(KEYSPACE)
        tables.write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(without_row)))
        tables.write(Change(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(broken), assign={"name": None}))
        command = ["reconcile", "--drain", "--yes", *(word for one in ids for word in ("--mark", str(one)))]

        first = killed(queue, after, *command)
        hidden = set(NAMES) - set(queue.names())
        assert hidden <= {name for name, content in kept(queue).items() if content == CONTENT}
        again = queue(*command, "--json")

        assert again.json["left"] == {}
        assert kept(queue) == dict.fromkeys([*NAMES, "rowless", "broken"], CONTENT)
        assert not {row["enqueueid"] for row in tables.scan(Scan(DUE_MAILS, DUE_MAILS.names))} & set(ids)
        assert queue.names() == ["stays"]
        assert came(queue) == ["stays"]
        nothing_is_left(queue)
        return first

    assert shells.each_step(story) > 5


def test_what_lacks_its_message_is_published_again(shells: Shells) -> None:
    """Each mail comes once, whichever of them had its second message when it was killed."""

    def story(queue: QueueShell, after: int) -> Ended | None:
        filled(queue)
        queue.pass_time(hours=2)
        queue.broker.wipe()
        command = ("reconcile", "--drain", "--yes", "--republish")

        first = killed(queue, after, *command)
        again = queue(*command)

        assert again.code == 0
        assert sorted(came(queue)) == NAMES
        nothing_is_left(queue)
        return first

    assert shells.each_step(story) >= 2
