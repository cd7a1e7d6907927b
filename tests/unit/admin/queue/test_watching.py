"""health and metrics: what a person and a monitoring system see of a queue."""

from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.rabbitmq.mail_queue import open_queue
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import BROWSE_START
from mailmend.model.ids import QueueName
from mailmend.model.operations import Put
from tests.support.in_turn import InTurn
from tests.support.queue_commands import KEYSPACE, SPOOL, QueueShell
from tests.support.queues import CONTENT, mail, parts_of

OUTGOING = QueueName("outgoing")


def with_consumer(queue: QueueShell) -> None:
    queue.delivered(len(queue.names()))


class TestHealth:
    """Whether a queue is well."""

    def test_a_queue_that_works_is_well(self, queue: QueueShell) -> None:
        queue.put("one")
        with_consumer(queue)

        ended = queue("health", "--json")

        assert (ended.code, ended.json["exit"]) == (0, 0)
        (found,) = ended.json["queues"]
        assert (found["queue"], found["healthy"], found["reasons"], found["broker"]["ready"]) == ("spool", True, [], 0)
        assert "spool is well: 0 mails wait" in queue("health").out

    def test_mails_that_nobody_takes_are_reported(self, queue: QueueShell) -> None:
        queue.put("one")

        ended = queue("health", "--json")

        assert ended.code == 1
        assert [reason["trouble"] for reason in ended.json["queues"][0]["reasons"]] == ["no_consumer"]
        assert "no consumer takes any" in queue("health").out

    def test_a_broker_that_lost_every_message_is_reported_with_what_mends_it(self, queue: QueueShell) -> None:
        """Nothing waits in the broker; the tables know better."""
        queue.put(*map(str, range(3)))
        queue.pass_time(minutes=5)
        queue.broker.wipe()

        ended = queue("health", "--json")

        (found,) = ended.json["queues"]
        assert (ended.code, found["lacking"], found["broker"]["ready"]) == (1, 3, 0)
        assert [one["trouble"] for one in found["reasons"]] == ["lacks_message", "no_consumer"]
        assert "-> mailmend queue reconcile --queue spool" in queue("health").out
        assert 'mailmend_queue_trouble{queue="spool",trouble="lacks_message"} 1.0' in queue("metrics").out

    def test_an_alarm_of_the_broker_is_reported(self, queue: QueueShell) -> None:
        """What it lacks, and where; the queue is empty and idle all the same."""
        queue.broker.alarms = ("memory on rabbit@one",)

        ended = queue("health", "--json")

        (found,) = ended.json["queues"]
        assert (ended.code, [one["trouble"] for one in found["reasons"]]) == (1, ["broker_alarm"])
        assert found["broker"]["alarms"] == ["memory on rabbit@one"]
        assert "rabbitmq-diagnostics alarms" in queue("health").out

    def test_an_old_browse_start_and_a_silent_sweeper_are_reported(self, queue: QueueShell) -> None:
        queue.put("stuck")
        queue.pass_time(days=9)

        reasons = [one["trouble"] for one in queue("health", "--json").json["queues"][0]["reasons"]]

        assert "browse_start_old" in reasons
        assert "not_swept" in reasons

    def test_after_a_sweep_nothing_is_due(self, queue: QueueShell) -> None:
        queue.put("one")
        with_consumer(queue)
        queue.pass_time(days=9)
        assert queue("health").code == 1

        queue("sweep")

        assert queue("health").code == 0

    def test_a_move_back_is_reported_until_the_next_sweep(self, queue: QueueShell) -> None:
        queue.put("one")
        with_consumer(queue)
        queue.pass_time(hours=5)
        queue("sweep")
        back = slice_of(queue.now - timedelta(hours=5), timedelta(hours=1))
        queue.cluster.keyspace(KEYSPACE).write(Put(BROWSE_START, {"queuename": "spool", "browsestart": back}))

        assert [one["trouble"] for one in queue("health", "--json").json["queues"][0]["reasons"]] == ["moved_back"]

        queue("sweep")
        assert queue("health").code == 0

    def test_dead_letters_are_reported(self, queue: QueueShell) -> None:
        queue.put("bad")
        queue("dequeue", "--exec", "false", "--limit", "1")

        ended = queue("health")

        assert (ended.code, "1 dead letters" in ended.out) == (1, True)

    def test_a_broker_that_is_away_is_a_reason_and_the_rest_is_reported(self, queue: QueueShell) -> None:
        queue.put("one")
        queue.broker.go_away()

        ended = queue("health", "--json")

        assert (ended.code, ended.json["queues"][0]["mails"]) == (1, 1)
        assert [one["trouble"] for one in ended.json["queues"][0]["reasons"]] == ["broker_away"]

    def test_without_a_broker_the_tables_are_judged(self, queue: QueueShell) -> None:
        queue.put("one")

        ended = queue("health", "--no-broker", "--json", MAILMEND_BROKER="")

        assert (ended.code, ended.json["queues"][0]["broker"], queue.asked) == (0, None, [])

    def test_all_queues_at_once(self, queue: QueueShell) -> None:
        queue.put("one")
        with_consumer(queue)
        queue.put("stays", queue=OUTGOING)

        ended = queue("health", "--all", "--json")

        assert ended.code == 1
        assert [(one["queue"], one["healthy"]) for one in ended.json["queues"]] == [
            ("outgoing", False),
            ("spool", True),
        ]

    def test_in_a_keyspace_of_james_nothing_is_asked_of_tables_that_are_not_there(self, james: QueueShell) -> None:
        james.put("one")
        james.pass_time(days=3)

        assert james("health", "--no-broker").code == 0

    def test_marks_that_never_expire_are_named_and_no_fault(self, james: QueueShell) -> None:
        """In tables of James what is removed leaves its mark for good. How many there are, the nodes tell."""
        james.cluster.rows_recorded = 17_700_000
        ended = james("health", "--no-broker", "--json")

        assert (ended.code, ended.json["queues"][0]["marks_expire"]) == (0, False)
        assert "the marks of removed mails stay, about 17,700,000 of all queues" in ended.err

    def test_marks_that_expire_are_not_spoken_of(self, queue: QueueShell) -> None:
        ended = queue("health", "--no-broker", "--json")

        assert (ended.json["queues"][0]["marks_expire"], "marks" in ended.err) == (True, False)


class TestMetrics:
    """Figures for Prometheus."""

    def test_they_are_reported_on_stdout(self, queue: QueueShell) -> None:
        queue.put("one", "two")
        queue.put_later("later", timedelta(hours=1))
        queue.pass_time(minutes=5)

        ended = queue("metrics", "--over", "0")

        assert ended.code == 0
        lines = ended.out.splitlines()
        for line in (
            'mailmend_queue_mails{queue="spool"} 2.0',
            'mailmend_queue_delayed_mails{queue="spool"} 1.0',
            'mailmend_queue_size_exact{queue="spool"} 1.0',
            'mailmend_queue_oldest_age_seconds{queue="spool"} 300.0',
            'mailmend_queue_broker_ready{queue="spool"} 2.0',
        ):
            assert line in lines
        assert "per_second" not in ended.out

    def test_rates_lie_between_two_looks(self, queue: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
        queue.put("before")
        pause, comers = queue.clock.pause, iter(["one", "two"])

        async def busy(seconds: float) -> None:
            tables = InTurn(queue.cluster.keyspace(KEYSPACE))
            opened = await open_queue(SPOOL, tables, queue.broker, queue.blobs, queue.clock, own=queue.own)
            async with opened as other:
                for name in comers:
                    await other.enqueue(mail(name), CONTENT)
            await pause(seconds)

        monkeypatch.setattr(queue.clock, "pause", busy)
        ended = queue("metrics", "--over", "10s")

        assert 'mailmend_queue_enqueued_per_second{queue="spool"} 0.2' in ended.out
        assert 'mailmend_queue_marked_per_second{queue="spool"} 0.0' in ended.out

    def test_into_a_file_whole_or_not_at_all(self, queue: QueueShell, tmp_path: Path) -> None:
        queue.put("one")
        file = tmp_path / "queue.prom"
        file.write_text("old")

        ended = queue("metrics", "--over", "0", "--all", "--output", str(file))

        assert (ended.code, ended.out) == (0, "")
        assert 'mailmend_queue_mails{queue="spool"} 1.0' in file.read_text()
        assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []

    def test_a_broker_that_is_away_takes_nothing_with_it(self, queue: QueueShell) -> None:
        queue.put("one")
        queue.broker.go_away()

        ended = queue("metrics", "--over", "0")

        assert (ended.code, "figures are missing" in ended.err) == (3, True)
        assert 'mailmend_queue_mails{queue="spool"} 1.0' in ended.out
        assert 'mailmend_queue_broker_up{queue="spool"} 0.0' in ended.out

    def test_dead_letters_that_nobody_can_read_count_too(self, queue: QueueShell) -> None:
        queue.put("one")
        queue.on_queue(lambda opened: parts_of(opened).broker.publish(queue.name, Message(b"no mail")))
        queue.delivered(1)

        assert 'mailmend_queue_broker_dead_letters{queue="spool"} 1.0' in queue("metrics", "--over", "0").out
