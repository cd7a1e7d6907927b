"""`mailmend queue reconcile --mark`: mails are taken out, whatever is wrong with them, and kept first."""

import base64
import gzip
import json
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from mailmend.admin.queue.kept_mails import read_removed_mails
from mailmend.model.catalog.mail_queue import DELETED_MAILS, DUE_MAILS, ENQUEUED_MAILS
from mailmend.model.errors import TimedOut
from mailmend.model.operations import Change, Remove, Scan
from tests.support.mortal_commands import Shells
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.queue_reconciled import Moving, found, row_of, settled
from tests.support.queues import CONTENT
from tests.support.striking import passing, reads_of
from tests.support.writing import Faults


def test_what_has_lost_its_bytes_leaves_the_queue(queue: QueueShell) -> None:
    """It is neither listed nor delivered, and no dead letter; its envelope is kept."""
    lost, _ = settled(queue, "lost", "there")
    queue.lose_content(lost)

    answer = found(queue, "--mark", str(lost), code=0)

    assert (answer["mended"]["marked"], answer["left"], len(answer["kept"])) == ([str(lost)], {}, 1)
    assert queue.names() == ["there"]
    assert queue.delivered(1) == ["there"]
    assert queue.broker.dead(queue.name) == []


def test_a_dry_run_marks_nothing_and_says_what_could_not_be_kept(queue: QueueShell) -> None:
    (one,) = settled(queue, "one")
    marks = ("--mark", str(one), "--mark", str(UUID(int=7)), "--dry-run")

    answer = found(queue, *marks, code=0)

    assert (queue.names(), answer["kept"], len(answer["mended"]["marked"])) == (["one"], [], 2)
    assert "1 of them have neither row nor message" in queue("reconcile", *marks).out


def test_a_marked_mail_can_be_restored(queue: QueueShell) -> None:
    (one,) = settled(queue, "one")
    (file,) = found(queue, "--mark", str(one), code=0)["kept"]

    assert queue("restore", file).code == 0
    assert queue.names() == ["one"]


def test_a_delayed_one_goes_for_good(queue: QueueShell) -> None:
    """Its row too, and its bytes: a mark may expire before its time comes."""
    one = queue.put_later("later", timedelta(days=300))

    answer = found(queue, "--mark", str(one), code=0)

    assert (answer["mended"]["marked"], len(answer["kept"])) == ([str(one)], 1)
    rows = queue.cluster.keyspace(KEYSPACE).scan(Scan(DUE_MAILS, DUE_MAILS.names))
    assert one not in {row["enqueueid"] for row in rows}
    assert not queue.blobs.ids
    queue.cluster.keyspace(KEYSPACE).write(Remove(DELETED_MAILS, (queue.name, one)))  # it has expired
    queue("flush")
    assert queue.delivers_nothing()


def test_without_the_blobs_no_byte_goes(queue: QueueShell) -> None:
    (one,) = settled(queue, "one")

    ended = queue("reconcile", "--mark", str(one), "--no-blobs", MAILMEND_BLOBS="")

    assert (ended.code, "Of 1 of them the envelope is kept, and no bytes." in ended.out) == (0, True)
    assert len(queue.blobs.ids) == 2
    assert queue.names() == []


def test_one_that_only_a_message_tells_of_is_kept_with_a_drain(queue: QueueShell) -> None:
    """And can be restored; without a drain nothing tells of it, and it is said so."""
    ids = settled(queue, "one", "two")
    for one in ids:
        queue.cluster.keyspace(KEYSPACE).write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row_of(queue, one))))

    blind = found(queue, "--mark", str(ids[0]), code=0)
    seen = found(queue, "--mark", str(ids[1]), "--drain", "--yes", code=0)

    assert (blind["mended"]["unkept"], blind["kept"]) == ([str(ids[0])], [])
    assert (seen["mended"]["unkept"], len(seen["kept"])) == ([], 1)
    assert queue.delivers_nothing()
    assert not queue.blobs.ids
    assert queue("restore", seen["kept"][0]).code == 0
    assert queue.delivered(1) == ["two"]


def test_a_row_that_cannot_be_read_is_kept_as_it_is(queue: QueueShell) -> None:
    (broken,) = settled(queue, "broken")
    key = ENQUEUED_MAILS.key_of(row_of(queue, broken))
    queue.cluster.keyspace(KEYSPACE).write(Change(ENQUEUED_MAILS, key, assign={"name": None}))

    answer = found(queue, "--mark", str(broken), code=0)

    (file,) = answer["kept"]
    (line,) = map(json.loads, gzip.decompress(Path(file).read_bytes()).splitlines())
    assert (line["format"], line["row"]["enqueueid"]) == ("kept-row/1", str(broken))
    assert b"".join(map(base64.b64decode, line["blobs"].values())) == CONTENT
    assert answer["left"] == {}


def test_a_kept_file_is_named_where_the_rest_failed(queue: QueueShell) -> None:
    """Tables that do not answer any more: exit 4, and what is kept is not forgotten."""
    (one,) = settled(queue, "one")
    faults = Faults()
    queue.cluster.keyspace(KEYSPACE).surround = faults
    faults.fail(
        lambda one: reads_of(DELETED_MAILS)(one) and any((queue.line.home / "data").rglob("*.gz")),
        TimedOut("no answer in time"),
        times=100,
    )

    ended = queue("reconcile", "--mark", str(one))

    assert (ended.code, "Kept in " in ended.err) == (4, True)


def test_one_that_becomes_due_meanwhile_does_not_slip_past(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At whichever look it moves from one table into the other: it is kept, and never comes."""
    shells, moved = Shells(monkeypatch, tmp_path), True
    while moved:
        number = len(shells.counted)
        queue = shells.fresh()
        later = queue.put_later("later", timedelta(hours=5))
        moving = Moving(queue, number)
        queue.cluster.keyspace(KEYSPACE).surround = moving

        answer = found(queue, "--mark", str(later), code=0)

        moved, queue.cluster.keyspace(KEYSPACE).surround = moving.done, passing
        assert answer["mended"]["unkept"] == []
        assert [one.content for file in answer["kept"] for one in read_removed_mails(Path(file))] == [CONTENT]
        queue("flush")
        assert queue.names() == []
        assert queue.delivers_nothing()
    assert len(shells.counted) > 5
