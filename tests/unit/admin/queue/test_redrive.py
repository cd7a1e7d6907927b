"""Dead letters go back into their queue, each at least once, under its id."""

from mailqueue.ports import Message
from model.catalog_queue import ENQUEUED_MAILS
from model.operations import Put, Scan
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.queues import CONTENT


def reject(queue: QueueShell, *names: str) -> None:
    """Mails whose consumer rejects them."""
    queue.put(*names)
    assert queue("dequeue", "--exec", "false").code == 1
    assert len(queue.broker.dead(queue.name)) == len(names)


def test_they_are_delivered_again_with_their_bytes(queue: QueueShell) -> None:
    """Listed, and no dead letters any more."""
    reject(queue, "one", "two")

    ended = queue("redrive", "--json")

    assert (ended.code, ended.json["redriven"], queue.broker.dead(queue.name)) == (0, 2, [])
    (listed, _) = queue.listed()
    assert queue.on_queue(lambda opened: opened.content(listed)) == CONTENT
    assert sorted(queue.delivered(2)) == ["one", "two"]
    assert queue.delivers_nothing()


def test_long_after_their_slice_was_swept_too(queue: QueueShell) -> None:
    """A reject has taken their rows; they get new ones, in sight."""
    reject(queue, "one")
    queue.pass_time(days=2)
    queue("sweep")

    queue("redrive")

    assert queue.names() == ["one"]
    assert queue.delivered(1) == ["one"]


def test_a_row_that_james_left_is_used(james: QueueShell) -> None:
    """No mail is listed twice."""
    (one,) = james.put("one")
    tables = james.cluster.keyspace(KEYSPACE)
    (row,) = (dict(row) for row in tables.scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names)))
    james("dequeue", "--exec", "false")
    tables.write(Put(ENQUEUED_MAILS, row, at=james.clock.micros() + 10))
    james.pass_time(hours=5)

    james("redrive")

    assert [listed.queued.enqueue_id for listed in james.listed()] == [one]
    assert james.delivered(1) == ["one"]


def test_what_was_deleted_meanwhile_is_dropped(queue: QueueShell) -> None:
    """It does not come back."""
    reject(queue, "one")
    (letter,) = queue.broker.dead(queue.name)
    assert letter.body
    enqueue_id = queue("reconcile", "--drain", "--yes", "--no-blobs", "--json").json["drained"]["dead"][0]
    queue("reconcile", "--mark", enqueue_id)

    ended = queue("redrive", "--json")

    assert (ended.json["redriven"], ended.json["dropped"], queue.broker.dead(queue.name)) == (0, 1, [])
    assert queue.delivers_nothing()


def test_what_cannot_be_read_stays(queue: QueueShell) -> None:
    """Exit 1."""
    queue.on_queue(lambda opened: opened.parts.broker.publish(queue.name, Message(b"no mail")))
    queue("dequeue", "--exec", "false")

    ended = queue("redrive")

    assert (ended.code, "1 tell of no mail" in ended.out, len(queue.broker.dead(queue.name))) == (1, True, 1)


def test_a_dry_run_counts_and_gives_all_back(queue: QueueShell) -> None:
    """Each once."""
    reject(queue, *"abc")

    ended = queue("redrive", "--dry-run", "--json")

    assert (ended.json["redriven"], len(queue.broker.dead(queue.name)), queue.listed()) == (3, 3, [])


def test_a_limit_is_kept(queue: QueueShell) -> None:
    """To see whether they fare better now."""
    reject(queue, *"abc")

    assert queue("redrive", "--limit", "1", "--json").json["redriven"] == 1
    assert (len(queue.broker.dead(queue.name)), len(queue.listed())) == (2, 1)


def test_none_is_no_error(queue: QueueShell) -> None:
    """Exit 0."""
    assert "0 dead letters are back" in queue("redrive").out
