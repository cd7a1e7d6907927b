"""`mailmend queue` on a real Cassandra, RabbitMQ and object store: every command, in the stories of operators."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.metrics import Scraped
from tests.support.patience import PATIENCE_SECONDS
from tests.support.real_queue import LETTER, RealQueue, until
from tests.support.thorough import first_of

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]


def ready_messages(queue: RealQueue, count: int) -> Callable[[], bool]:
    return lambda: queue("reconcile", "--no-blobs", "--json").json["broker"]["ready"] == count


def test_in_and_out_again(queue: RealQueue, tmp_path: Path) -> None:
    one, two = queue.put("one", "two")

    assert queue("size", "--json").json["mails"] == 2
    assert queue.names() == ["one", "two"]
    assert [one["queue"] for one in queue("list", "--json").json["queues"]] == ["spool"]

    taken = queue("dequeue", "--dir", str(tmp_path), "--limit", "2", "--wait", "20s", "--json")

    assert (taken.code, taken.json["acked"]) == (0, 2), taken.err
    assert {file.stem for file in tmp_path.glob("*.eml")} == {one, two}
    assert (tmp_path / f"{one}.eml").read_bytes() == LETTER
    assert queue("size", "--json").json["mails"] == 0
    ended = queue("reconcile")
    assert ended.code == 0, ended.out


def test_deleted_mails_stay_away_and_come_back_on_request(queue: RealQueue, tmp_path: Path) -> None:
    queue.put("spam", "letter")
    gone = queue("delete", "--name", "spam", "--json").json

    taken = queue("dequeue", "--dir", str(tmp_path / "first"), "--wait", "2s", "--json").json
    assert (gone["removed"], taken["acked"], queue.names()) == (1, 1, [])

    assert queue("restore", gone["kept"]).code == 0
    assert queue.names() == ["spam"]
    assert (
        queue("dequeue", "--dir", str(tmp_path / "then"), "--limit", "1", "--wait", "20s", "--json").json["acked"] == 1
    )


def test_lost_messages_are_found_and_published_again(queue: RealQueue, tmp_path: Path) -> None:
    lost, there = queue.put("lost", "there")
    queue.lose_messages()
    queue("republish", "--id", there, "--older-than", "1ms")
    until(ready_messages(queue, 1))

    named = queue("reconcile", "--drain", "--yes", "--json")
    # whether the lost one is called so yet depends on its age, a minute, and so on how fast this machine is
    assert named.code in {0, 1}, named.out
    assert named.json["drained"]["messages"] == 1

    assert queue("republish", "--id", lost, "--older-than", "1ms", "--json").json["republished"] == 1
    assert queue("dequeue", "--dir", str(tmp_path), "--limit", "2", "--wait", "20s", "--json").json["acked"] == 2


def test_a_message_without_a_row_is_named(queue: RealQueue) -> None:
    (without_row,) = queue.put("rowless")
    queue.lose_row(without_row)
    until(ready_messages(queue, 1))

    named = queue("reconcile", "--drain", "--yes", "--no-blobs", "--json")
    assert (named.code, named.json["drained"]["only_in_broker"]) == (1, [without_row])

    until(ready_messages(queue, 1))
    marked = queue("reconcile", "--drain", "--yes", "--no-blobs", "--mark", without_row, "--json")
    assert (marked.code, marked.json["left"]) == (0, {})


def test_health_and_metrics(queue: RealQueue, tmp_path: Path) -> None:
    queue.put("one")
    until(lambda: queue("health", "--json").code == 1)

    file = tmp_path / "queue.prom"
    assert queue("metrics", "--over", "0", "--all", "--output", str(file)).code == 0
    text = file.read_text()
    assert 'mailmend_queue_mails{queue="spool"} 1.0' in text
    assert 'mailmend_queue_trouble{queue="spool",trouble="no_consumer"} 1.0' in text
    run = tmp_path / "sweep.prom"
    looked, swept = queue("sweep", "--dry-run", "--json"), queue("sweep", "--json", "--metrics-file", str(run))
    assert (looked.code, swept.code, Scraped.of(run).one("mailmend_run_exit_code", command="queue sweep")) == (0, 0, 0)
    assert {**looked.json, **swept.json, "dry_run": True} == looked.json
    assert queue("tend", "--once", "--all").code == 0

    scraped = Scraped.of(queue.line("metrics", "show").out)
    assert scraped.one("mailmend_queue_last_sweep_timestamp_seconds", queue="spool")
    assert scraped.one("mailmend_queue_trouble", queue="spool", trouble="not_swept") == 0
    assert scraped.by("mailmend_queue_mails", "queue") == {}, "no mail is counted"


def test_a_service_ends_in_good_order(queue: RealQueue) -> None:
    """`tend` as a process of its own: it moves what is due, and SIGTERM ends it with 0."""
    queue.put("later", options=("--due-in", "1s"))
    environment = {**queue.line.environment, "HOME": str(queue.line.home), "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        [sys.executable, "-m", "mailmend", "queue", "tend"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )
    try:
        until(lambda: queue("size", "--json").json["delayed"] == 0)
        process.send_signal(signal.SIGTERM)
        _, reported = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 0, reported
    assert "Tending spool." in reported
    assert queue("size", "--json").json["mails"] == 1


class TestFailures:
    """No traceback, whatever is wrong."""

    @pytest.mark.parametrize(
        ("wrong", "code", "said"),
        first_of(
            [
                ({"MAILMEND_BROKER": "amqp://127.0.0.1:1"}, 4, "127.0.0.1:1"),
                ({"MAILMEND_BROKER_PASSWORD": "wrong"}, 4, "guest"),
                ({"MAILMEND_BROKER": "amqp://%s/none"}, 4, "none"),
                ({"MAILMEND_KEYSPACE": "system_auth"}, 2, "enqueuedMailsV4"),
                ({"MAILMEND_PORT": "1"}, 4, "127.0.0.1:1"),
                ({"MAILMEND_S3_SECRET_KEY": "wrong"}, 4, "bucket"),
            ],
            quick=2,
        ),
    )
    def test_each_side_is_named(self, queue: RealQueue, wrong: dict[str, str], code: int, said: str) -> None:
        place = f"{queue.broker.host}:{queue.broker.port}"
        queue.line.home.joinpath("letter.eml").write_bytes(LETTER)
        arguments = ("enqueue", str(queue.line.home / "letter.eml"), "--recipient", "bob@example.org")

        ended = queue(*arguments, **{name: value.replace("%s", place) for name, value in wrong.items()})

        assert ended.code == code, ended.err
        assert said in ended.err
        assert "Traceback" not in ended.err
        assert "wrong" not in ended.err
