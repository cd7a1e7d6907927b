"""Processes of a queue on real servers, killed at each step: what they acknowledged is delivered, the rest is named."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import BROWSE_START, ENQUEUED_MAILS
from mailmend.model.operations import Change, Scan
from tests.support.queue_processes import LATER, QueueProcesses, dead_letters, delivered, ids_of, swept
from tests.support.queues import parts_of
from tests.support.thorough import ALL, first_of

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]


PUTS = {
    "one-blob": ("done put blob", 1),
    "both-blobs": ("done put blob", 2),
    "row": ("done Put enqueuedMailsV4", 1),
    "publish": ("publish", 1),
    "confirmed": ("done publish", 1),
    "untold": ("tell", 1),
}


PUTS_QUICK = ("both-blobs", "row", "confirmed")
"""Nothing but blobs, a row without a message, and both: what `make test` kills at."""


def test_an_enqueuer_that_is_killed(
    processes: QueueProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """Its first mail was acknowledged, and is delivered; of the second nothing is left that nobody names."""
    # When one is killed at each step of its second mail
    puts = tuple(PUTS) if pytestconfig.getoption(ALL) else PUTS_QUICK
    reported = {name: processes.killed("enqueue", name, *PUTS[name]) for name in puts}
    delayed = processes.killed("delay", "delayed", "done Put dueMails", 1)
    first = {name: ids_of(one, "enqueued") for name, one in reported.items()}
    assert {len(ids) for ids in first.values()} == {1}

    # Then a mail with a row is listed; one without its message is named, and brought back
    shell = processes.shell(tmp_path, monkeypatch)
    for name in puts:
        assert (set(first[name]) < processes.listed(name)) is ("blob" not in name), name
    drain = ("--drain", "--yes", "--no-blobs")
    for name in {"row", "publish"} & set(puts):
        found = shell.reconciled(name, *drain, code=1)
        assert (found["findings"], found["drained"]["messages"]) == ({"lacks_message": 1}, 1)
        assert set(found["drained"]["only_in_table"]) == processes.listed(name) - set(first[name])
        mended = shell.reconciled(name, *drain, "--republish", "--older-than", "0s", code=0)
        assert (mended["left"], mended["mended"]["republished"]) == ({}, 1)
    for name, ids in first.items():
        came = processes.run(name, lambda queue, ids=ids: delivered(queue, ids))  # type: ignore[misc]
        assert len(set(came)) == (1 if "blob" in name else 2), name
        assert set(ids) <= set(came)

    # And the delayed ones are both there: the second was not acknowledged, and may be
    async def flushed(queue: RabbitMailQueue) -> list[str]:
        await queue.flush()
        return await delivered(queue, ids_of(delayed, "enqueued"))

    assert len(processes.run("delayed", flushed)) == 2
    # And nothing refers to the blobs that are left once nothing waits any more
    for name in (*puts, "delayed"):
        processes.run(name, swept, ahead_seconds=LATER)
    left = len(processes.blobs())
    # Both of "both-blobs"; of "one-blob" the other put may come to its end without its process
    assert left in ({3, 4} if "one-blob" in puts else {2})
    assert processes.shell(tmp_path, monkeypatch, 0).unreferenced(*puts, "delayed") == {"TOO_YOUNG": left}


TAKES = {
    "in-hand": ("ack", "in hand", 1),
    "marked": ("ack", "done Put deletedMailsV2", 1),
    "before-ack": ("ack", "ack", 1),
    "after-ack": ("ack", "done ack", 1),
    "before-blobs": ("ack", "delete blobs", 1),
    "retry-due": ("retry", "done Put dueMails", 1),
    "retry-row": ("retry", "Remove enqueuedMailsV4", 1),
    "retry-ack": ("retry", "ack", 1),
    "reject": ("reject", "done dead letter", 1),
}


SETTLED = {"ack": "acked", "retry": "retried", "reject": "rejected"}
"""What a process tells when a mail is settled."""

MARKED = {"marked", "before-ack", "after-ack", "before-blobs"}
"""Where the mark of the second mail was written before it was killed."""


@pytest.mark.parametrize("name", first_of(TAKES, quick=2))
def test_a_dequeuer_that_is_killed(processes: QueueProcesses, name: str) -> None:
    """What it has marked never comes again, everything else does; of what is finished no byte is left."""
    story, at, nth = TAKES[name]
    # Given four mails in the hand of a process that is killed at its second
    ids = set(map(str, processes.put(name, *"abcd")))
    reported = processes.killed(story, name, at, nth)
    first, second, *_ = handed = ids_of(reported, "handed")
    assert set(handed) == ids
    assert ids_of(reported, SETTLED[story])[0] == first
    marked = {first} if story == "ack" else set[str]()
    marked |= {second} if name in MARKED else set()

    # Then what waits is listed, and comes again
    assert ids - processes.listed(name) == marked | ({first} if story == "reject" else set())

    async def taken(queue: RabbitMailQueue) -> tuple[list[str], list[str]]:
        came = await delivered(queue, handed[2:])
        came += await delivered(queue) if (await queue.flush()).count else []
        return came, await dead_letters(queue)

    came, dead = processes.run(name, taken)
    assert set(came) | set(dead) == ids - marked
    assert set(dead) <= ({first, second} if story == "reject" else set())

    # And after a sweep no byte is left but of dead letters
    processes.run(name, swept, ahead_seconds=LATER)
    assert len(processes.blobs()) == 2 * len(dead)


HOUR = timedelta(hours=1)
SOON = timedelta(milliseconds=100)

MOVES = {
    "row": ("done Put enqueuedMailsV4", 1),
    "published": ("done publish", 1),
    "removed": ("done Remove dueMails", 2),
}


def test_a_mover_that_is_killed(processes: QueueProcesses, pytestconfig: pytest.Config) -> None:
    """Each delayed mail is listed all the time, and comes."""
    for name in MOVES if pytestconfig.getoption(ALL) else ("published", "removed"):
        at = MOVES[name]
        ids = list(map(str, processes.put(name, *"abc", delay=SOON)))
        processes.killed("move", name, *at)
        assert processes.listed(name) == set(ids)
        pid, _ = processes.begin("move", name)
        assert processes.wait(pid) == 0

        came = processes.run(name, lambda queue, ids=ids: delivered(queue, ids))  # type: ignore[misc]

        assert set(came) == set(ids)
        processes.run(name, swept, ahead_seconds=LATER)
    assert not processes.blobs()


AN_HOUR_AGO = slice_of(datetime.now(UTC) - HOUR, HOUR)

SWEEPS = {
    "start-moved": ("done ChangeIf browseStart", 1),
    "blobs": ("delete blobs", 1),
    "partition": ("done Remove enqueuedMailsV4", 1),
    "rescued": ("done Put enqueuedMailsV4", 1),
    "republished": ("done publish", 1),
    "content-start": ("ChangeIf contentStart", 1),
}


@pytest.mark.parametrize("name", first_of(SWEEPS, quick=2))
def test_a_sweeper_that_is_killed(processes: QueueProcesses, name: str) -> None:
    """The next completes it: what is done with goes with all its bytes, what waits where nobody looks comes back."""
    # Given mails of some hours ago: most are marked, their bytes left; one waits before the browse start
    done = [*processes.put(name, *"abcd", ahead_seconds=-2 * LATER), *processes.put(name, *"efg", ahead_seconds=-LATER)]
    (waits,) = processes.put(name, "waits", ahead_seconds=-LATER)

    async def finished(queue: RabbitMailQueue) -> None:
        for one in done:
            await queue.view.mark(queue.name, one, None)
        if name in {"rescued", "republished"}:
            await parts_of(queue).tables.write(Change(BROWSE_START, (queue.name,), {"browsestart": AN_HOUR_AGO}))

    processes.run(name, finished)

    # When a sweep is killed
    processes.killed("sweep", name, *SWEEPS[name])
    # Then the next one completes it
    processes.run(name, swept)
    assert processes.listed(name) == {str(waits)}
    assert set(processes.run(name, lambda queue: delivered(queue, [str(waits)]))) == {str(waits)}
    processes.run(name, swept, ahead_seconds=LATER)
    assert not processes.blobs()
    assert not [
        row for row in processes.keyspace.scan(Scan(ENQUEUED_MAILS, ("queuename",))) if row["queuename"] == name
    ]


def test_a_purge_that_is_killed(processes: QueueProcesses) -> None:
    """What it has marked never comes; what is left is listed, comes, and goes with the next purge."""
    for name, again in (("half", False), ("whole", True)):
        ids = set(map(str, processes.put(name, *map(str, range(12)))))
        reported = processes.killed("purge", name, "done Put deletedMailsV2", 6)
        left = processes.listed(name)
        assert len(left) == 6
        assert set(ids_of(reported, "removing")) == ids
        if again:
            pid, _ = processes.begin("purge", name)
            assert processes.wait(pid) == 0

        came = processes.run(name, lambda queue, left=set() if again else left: delivered(queue, left))  # type: ignore[misc]

        assert set(came) == (set() if again else left)
        processes.run(name, swept, ahead_seconds=LATER)
    assert not processes.blobs()
