"""flush, sweep, republish and tend: what keeps a queue going; and what each of them would do."""

import os
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.frame.values import IDS_SHOWN
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.model.catalog.mail_queue import BROWSE_START
from mailmend.model.ids import QueueName
from tests.support.commands import Ended
from tests.support.queue_commands import QueueShell

OUTGOING = QueueName("outgoing")


def pairs(looked: Ended, done: Ended) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(zip(looked.json["queues"], done.json["queues"], strict=True))


class TestFlush:
    """Every delayed mail is due now."""

    def test_what_was_delayed_is_delivered(self, queue: QueueShell) -> None:
        queue.put_later("soon", timedelta(minutes=5))
        queue.put_later("late", timedelta(days=30))

        ended = queue("flush", "--json")

        assert (ended.code, ended.json["flushed"]) == (0, 2)
        assert sorted(queue.delivered(2)) == ["late", "soon"]

    def test_a_dry_run_counts_and_tells_from_when_to_when(self, queue: QueueShell) -> None:
        """The first and the last due time; they stay delayed, and no broker is asked."""
        start = queue.now
        queue.put_later("late", timedelta(days=30))
        queue.put_later("soon", timedelta(minutes=5))

        found = queue("flush", "--dry-run", "--json", MAILMEND_BROKER="").json

        due = [datetime.fromisoformat(found[name]) - start for name in ("earliest_due_at", "latest_due_at")]
        assert [round(one / timedelta(minutes=1)) for one in due] == [5, 30 * 24 * 60]
        assert (found["delayed"], found["flushed"]) == (2, 0)
        assert {one.whereabouts for one in queue.listed()} == {Whereabouts.DELAYED}
        assert "The first of them is due at" in queue("flush", "--dry-run").out

    def test_a_dry_run_on_nothing_delayed_names_no_time(self, james: QueueShell) -> None:
        found = james("flush", "--dry-run", "--json").json

        assert (found["delayed"], found["earliest_due_at"], found["latest_due_at"]) == (0, None, None)
        assert "first of them" not in james("flush", "--dry-run").out

    def test_in_a_keyspace_of_james_nothing_is_delayed(self, james: QueueShell) -> None:
        james.put("one")

        assert james("flush", "--json").json["flushed"] == 0


class TestSweep:
    """Move, clean, renew."""

    def test_what_was_processed_is_cleaned(self, queue: QueueShell) -> None:
        """The browse start follows the first mail, the content start follows it."""
        queue.put("done")
        queue.delivered(1)
        queue.pass_time(hours=3)
        queue.put("waits")
        queue.pass_time(hours=3)

        found = queue("sweep", "--json").json

        assert (found["rows"], found["rescued"], found["moved_back"], found["exit"]) == (1, 0, False, 0)
        assert found["browse_start"] == found["content_start"]
        assert queue.names() == ["waits"]
        assert "spool begins at" in queue("sweep").out

    @pytest.mark.parametrize("options", [(), ("--dry-run",), ("--json",)])
    def test_marks_that_never_expire_are_said_to_stay(self, james: QueueShell, options: tuple[str, ...]) -> None:
        james.cluster.rows_recorded = 17_700_000
        assert "the marks of removed mails stay, about 17,700,000 of all queues" in james("sweep", *options).err
        assert "the marks of removed mails stay" not in james("sweep", "--move-only").err

    def test_marks_that_expire_are_not_spoken_of(self, queue: QueueShell) -> None:
        assert "marks" not in queue("sweep").err

    def test_only_the_start_can_be_moved(self, queue: QueueShell) -> None:
        queue.put("done")
        queue.delivered(1)
        queue.pass_time(hours=3)

        found = queue("sweep", "--move-only", "--json", MAILMEND_BROKER="", MAILMEND_BLOBS="").json

        assert found["before"] < found["browse_start"]
        assert queue("list", "--json").json["queues"][0]["content_start"] == found["before"]
        assert "as before" in queue("sweep", "--move-only").out

    def test_a_backward_move_by_james_is_reported(self, queue: QueueShell) -> None:
        queue.put("done")
        queue.delivered(1)
        start = queue.now
        queue.pass_time(hours=5)
        assert queue("sweep").code == 0
        queue.put_start(BROWSE_START, start - timedelta(hours=1))

        for options in (("--dry-run",), ("--move-only", "--dry-run"), ()):
            ended = queue("sweep", "--json", *options)
            assert (ended.code, ended.json["moved_back"]) == (1, True)
            assert "browse start had been moved back" in ended.err

    def test_a_new_queue_has_nothing_to_sweep(self, queue: QueueShell) -> None:
        for options in ((), ("--move-only",), ("--dry-run",), ("--move-only", "--dry-run")):
            assert "nothing was ever enqueued" in queue("sweep", *options).out
        assert queue("sweep", "--json").json["browse_start"] is None
        assert queue("sweep", "--dry-run", "--json").json["browse_start"] is None

    def test_a_dry_run_tells_what_the_sweep_then_does(self, queue: QueueShell) -> None:
        lost = queue.put("done", "lost")[1]
        assert queue("delete", "--name", "done").code == 0
        queue.pass_time(hours=5)
        queue.put_start(BROWSE_START, queue.now - timedelta(hours=3))

        found = queue("sweep", "--dry-run", "--json", MAILMEND_BROKER="", MAILMEND_BLOBS="").json
        ended = queue("sweep", "--dry-run", MAILMEND_BROKER="", MAILMEND_BLOBS="")

        assert (found["dry_run"], found["rows"], found["rescued"]) == (True, 2, 1)
        assert found["would_rescue"] == [str(lost)]
        assert (queue.names(), queue.asked) == ([], [])
        assert "Nothing was written." in ended.out
        assert str(lost) in ended.out
        swept = queue("sweep", "--json").json
        assert {**found, "dry_run": False} | swept == {**found, "dry_run": False}
        assert queue.names() == ["lost"]

    def test_a_dry_run_of_a_move_tells_where_it_goes(self, queue: QueueShell) -> None:
        queue.put("done")
        queue.delivered(1)
        queue.pass_time(hours=3)

        found = queue("sweep", "--move-only", "--dry-run", "--json").json
        assert "would move from" in queue("sweep", "--move-only", "--dry-run").out
        moved = queue("sweep", "--move-only", "--json").json

        assert (found["dry_run"], moved["dry_run"]) == (True, False)
        assert (found["before"], found["browse_start"]) == (moved["before"], moved["browse_start"])
        assert "would stay at" in queue("sweep", "--move-only", "--dry-run").out

    def test_of_many_that_would_be_put_back_some_are_named(self, queue: QueueShell) -> None:
        queue.put(*map(str, range(IDS_SHOWN + 2)))
        queue.pass_time(hours=5)
        queue.put_start(BROWSE_START, queue.now - timedelta(hours=3))

        assert "and 2 more" in queue("sweep", "--dry-run").out
        assert len(queue("sweep", "--dry-run", "--json").json["would_rescue"]) == IDS_SHOWN + 2


class TestRepublish:
    """What the broker may have lost."""

    def test_after_a_broker_was_lost_everything_old_enough_is_delivered(self, queue: QueueShell) -> None:
        queue.put("old")
        queue.pass_time(hours=2)
        queue.put("young")
        queue.broker.wipe()

        ended = queue("republish", "--older-than", "1h", "--json")

        assert (ended.code, ended.json["republished"]) == (0, 1)
        assert queue.delivered(1) == ["old"]
        assert queue.delivers_nothing()
        assert queue.names() == ["young"]

    def test_a_dry_run_publishes_nothing(self, queue: QueueShell) -> None:
        queue.put("old")
        queue.pass_time(hours=2)
        queue.broker.wipe()

        ended = queue("republish", "--dry-run", "--json", MAILMEND_BROKER="", MAILMEND_BLOBS="")

        assert (ended.json["would_republish"], ended.json["republished"]) == (1, 0)
        assert queue.broker.ready(queue.name) == []


class TestTend:
    """The background."""

    def test_one_round_moves_what_is_due_and_sweeps(self, queue: QueueShell) -> None:
        queue.put_later("due", timedelta(minutes=5))
        queue.put("other", queue=OUTGOING)
        queue.pass_time(hours=1)

        ended = queue("tend", "--once", "--all", "--json")

        found = {one["queue"]: one for one in ended.json["queues"]}
        assert (ended.code, found["spool"]["moved_due"], found["outgoing"]["moved_due"]) == (0, 1, 0)
        assert queue.delivered(1) == ["due"]
        assert "became due" in queue("tend", "--once").out

    def test_a_service_works_until_a_stop_signal(self, queue: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
        queue.put_later("due", timedelta(minutes=5))
        end = queue.now + timedelta(minutes=10)
        pause, signals = type(queue.clock).pause, [signal.SIGTERM]

        async def pause_until_stopped(clock: object, seconds: float) -> None:
            await pause(queue.clock, seconds)
            if queue.now >= end and signals:
                os.kill(os.getpid(), signals.pop())

        monkeypatch.setattr(type(queue.clock), "pause", pause_until_stopped)

        ended = queue("tend")

        assert ended.code == 0, ended.err
        assert "Tending spool." in ended.err
        assert "finished" in ended.err
        assert [message.body for message in queue.broker.ready(queue.name)]

    def test_its_metrics_are_in_a_file(self, queue: QueueShell, tmp_path: Path) -> None:
        queue.put_later("due", timedelta(minutes=5))
        queue.pass_time(hours=1)
        file = tmp_path / "tend.prom"

        queue("tend", "--once", "--metrics-file", str(file))

        text = file.read_text()
        assert 'mailmend_queue_due_moved_total{queue="spool"} 1.0' in text
        assert 'mailmend_queue_mails{queue="spool"} 1.0' in text

    def test_a_dry_run_is_one_look_at_every_queue(self, queue: QueueShell) -> None:
        """What is due, what a sweep would do; the round that follows does just that. No broker is asked."""
        queue.put_later("due", timedelta(minutes=5))
        queue.put_later("later", timedelta(hours=5))
        queue.put("other", queue=OUTGOING)
        queue.delivered(1, OUTGOING)
        queue.pass_time(hours=2)

        looked = queue("tend", "--all", "--dry-run", "--json", MAILMEND_BROKER="", MAILMEND_BLOBS="")
        ended = queue("tend", "--all", "--dry-run", MAILMEND_BROKER="", MAILMEND_BLOBS="")
        asked = list(queue.asked)
        done = queue("tend", "--all", "--once", "--json")

        assert (looked.code, looked.json["dry_run"], asked) == (0, True, [])
        assert [one["moved_due"] for one in looked.json["queues"]] == [0, 1]
        assert [{**one, **after} for one, after in pairs(looked, done)] == looked.json["queues"]
        assert "Nothing was written." in ended.out
        assert "1 delayed mails of spool are due" in ended.out

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--once", "--metrics-file", "none/x"), "cannot be written"),
            (("--dry-run", "--metrics-file", "x"), "--metrics-file writes a file"),
            (("--json",), "--json is for --once and --dry-run"),
        ],
    )
    def test_wrong_use_is_named_at_once(
        self, queue: QueueShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
    ) -> None:
        monkeypatch.chdir(tmp_path)

        ended = queue("tend", *arguments)

        assert (ended.code, said in ended.err, queue.asked) == (2, True, [])
        assert not (tmp_path / "x").exists()
