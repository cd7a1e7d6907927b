"""Commands that mend a queue on real servers, killed between two of their steps and typed again."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from mailmend.admin.queue.kept_mails import read_removed_mails
from mailmend.mailqueue.rabbitmq.broker.settings import topology_of
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.model.ids import EnqueueId, QueueName, restored_id
from tests.support.brokers import Broker
from tests.support.queue_processes import QueueProcesses, dead_letters, delivered, until
from tests.support.queues import CONTENT, parts_of

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]


def came(processes: QueueProcesses, queue: str, wanted: Sequence[EnqueueId]) -> list[str]:
    return sorted(processes.run(queue, lambda process: delivered(process, list(map(str, wanted)))))


def ids(enqueue_ids: Sequence[EnqueueId]) -> list[str]:
    return sorted(map(str, enqueue_ids))


def test_what_mends_a_queue_goes_on_where_it_was_killed(
    processes: QueueProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore, a redrive and a removal of marked mails: each mail comes once, or never and is kept."""
    shell = processes.shell(tmp_path, monkeypatch, ahead_seconds=0)

    # Given a purge that is taken back, and killed between row and publish, or before its note
    for name, at in {"restore-row": ("publish", 2), "restore-note": ("done publish", 2)}.items():
        put = processes.put(name, *"abc")
        file = shell("purge", "--queue", name, "--yes", "--json").json["kept"]
        processes.typed(tmp_path, "restore", file, at=at[0], nth=at[1])
        ended = shell("restore", file, "--json")
        assert (ended.code, ended.json["restored"], ended.json["already"]) == (0, 2, 1), ended.err
        back = [restored_id(one, QueueName(name)) for one in put]
        assert came(processes, name, back) == ids(back)

    # And dead letters that have a message again, and are not acked
    rejected = processes.put("redrive", "a", "b")
    assert shell("dequeue", "--queue", "redrive", "--exec", "false", "--limit", "2").code == 1
    processes.typed(tmp_path, "redrive", "--queue", "redrive", at="done publish")
    assert shell("redrive", "--queue", "redrive", "--json").json["redriven"] == 2
    assert came(processes, "redrive", rejected) == ids(rejected)

    # And two mails that are taken out, of which only one is marked
    *gone, stays = processes.put("mark", "a", "b", "stays")
    command = ("reconcile", "--queue", "mark", "--mark", str(gone[0]), "--mark", str(gone[1]))
    processes.typed(tmp_path, *command, at="done Put deletedMailsV2")
    assert shell(*command).code == 0
    kept = [one for file in sorted(tmp_path.rglob("mark-mark-*.gz")) for one in read_removed_mails(file)]
    assert {one.queued.enqueue_id for one in kept} == set(gone)
    assert {one.content for one in kept} == {CONTENT}
    assert came(processes, "mark", [stays]) == [str(stays)]


@pytest.mark.parametrize("nth", [2, 4], ids=["among-messages", "among-dead-letters"])
def test_a_drain_that_is_killed_leaves_every_message(
    processes: QueueProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    queue = f"drain-{nth}"
    shell = processes.shell(tmp_path, monkeypatch, ahead_seconds=0)
    (dead,) = processes.put(queue, "dead")
    assert shell("dequeue", "--queue", queue, "--exec", "false", "--limit", "1").code == 1
    waiting = processes.put(queue, *"abc")

    processes.typed(
        tmp_path, "reconcile", "--queue", queue, "--drain", "--yes", "--no-blobs", at="done delivery", nth=nth
    )

    async def given_back(process: RabbitMailQueue) -> None:
        async def all_of_it() -> bool:
            depth = await parts_of(process).broker.depth(process.name)
            return (depth.ready, depth.dead, depth.consumers) == (3, 1, 0)

        await until(all_of_it)

    processes.run(queue, given_back)
    assert came(processes, queue, waiting) == ids(waiting)
    assert processes.run(queue, dead_letters) == [str(dead)]


def test_dead_letters_that_the_broker_would_drop_are_not_looked_at(
    processes: QueueProcesses, rabbitmq: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual host that makes quorum queues of all gives the dead letter queue a limit, and nowhere to go from it."""
    shell = processes.shell(tmp_path, monkeypatch, ahead_seconds=0)
    name = QueueName("buried")
    where = f"queues/{processes.servers.vhost}/{topology_of(name).dead_letter_queue}"
    rabbitmq.api("PUT", where, {"durable": True, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 3}})
    (dead,) = processes.put(name, "dead")
    assert shell("dequeue", "--queue", name, "--exec", "false", "--limit", "1").code == 1

    found = shell.reconciled(name, "--no-blobs", code=1)
    refused = [shell("redrive", "--queue", name, "--dry-run"), shell("reconcile", "--queue", name, "--drain", "--yes")]

    assert (found["broker"]["dead"], found["broker"]["delivery_limit"], found["broker"]["dead_limit"]) == (1, None, 3)
    assert [(one.code, "for good after 3 returns" in one.err) for one in refused] == [(2, True)] * 2
    assert shell("redrive", "--queue", name, "--json").json["redriven"] == 1
    assert came(processes, name, [dead]) == [str(dead)]
