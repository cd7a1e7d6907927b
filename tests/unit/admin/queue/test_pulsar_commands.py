"""Commands about a queue over Pulsar: the same ones, and what they say where there is no table."""

from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.mailqueue.pulsar.settings import dead_topic
from mailmend.mailqueue.rules.health import TopicPolicies
from tests.support.pulsar_commands import SPOOL, PulsarShell, pulsar_shell


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PulsarShell:
    return pulsar_shell(monkeypatch, tmp_path)


def test_dead_letters_go_back(shell: PulsarShell) -> None:
    shell.put(*"abc")
    shell.reject(3)

    looked = shell("redrive", "--dry-run", "--json").json
    ended = shell("redrive", "--name", "b", "--json")

    assert (looked["redriven"], ended.code, ended.json["redriven"]) == (3, 0, 1)
    assert shell("size", "--json").json["mails"] == 1


def test_one_round_of_tending_moves_what_is_due(shell: PulsarShell) -> None:
    shell.put("soon", delay=timedelta(minutes=1))
    shell.clock.advance(120)

    (looked,) = shell("tend", "--dry-run", "--json").json["queues"]
    (done,) = shell("tend", "--once", "--json").json["queues"]

    upkeep = {"deletions": {"left": 0, "expired": 0}, "removed_again": 0}
    assert looked == done == {"queue": "spool", "moved_due": 1, **upkeep}
    assert "0 delayed mails of spool became due." in shell("tend", "--once").out


def test_one_round_of_tending_removes_what_a_killed_broker_forgot(shell: PulsarShell) -> None:
    shell.put(*"ab")
    assert shell("delete", "--name", "a", "--no-keep").code == 0
    shell.topics.die()

    ended = shell("tend", "--once")

    assert "1 deleted mails that the broker had forgotten are gone again" in ended.out
    assert shell("size", "--json").json["mails"] == 1


def test_metrics_are_those_that_mean_the_same(shell: PulsarShell) -> None:
    shell.put(*"abc")
    shell.put("later", delay=timedelta(hours=1))
    shell.reject(1)

    ended = shell("metrics")

    assert ended.code == 0
    for line in (
        'mailmend_queue_mails{queue="spool"} 2',
        'mailmend_queue_delayed_mails{queue="spool"} 1',
        'mailmend_queue_broker_dead_letters{queue="spool"} 1',
    ):
        assert line in ended.out


@pytest.mark.parametrize("command", ["sweep", "republish"])
def test_what_is_about_tables_is_refused(shell: PulsarShell, command: str) -> None:
    ended = shell(command)

    assert ended.code == 2
    assert "a queue over Pulsar has none" in ended.err


def test_a_purge_takes_dead_letters_too_and_leaves_nothing_that_takes_later_mail(shell: PulsarShell) -> None:
    """James's clear leaves both behind."""
    shell.put(*"abc")
    shell.reject(1)
    shell.james_deletes("later")

    looked, ended = shell("purge", "--dry-run", "--json").json, shell("purge", "--yes", "--json").json

    assert (looked["would_remove"], ended["removed"]) == (3, 3)
    assert shell("redrive", "--json").json["redriven"] == 0
    assert shell("health", "--json").json["queues"][0]["broker"]["dead"] == 0
    shell.clock.advance(1)
    shell.put("later")
    assert shell("size", "--json").json["mails"] == 1
    assert shell("restore", ended["kept"], "--json").json["restored"] == 3
    assert shell("purge", "--yes", "--no-keep", "--json").json["removed"] == 4
    for _ in range(3):
        shell.clock.advance(3600)
        shell.topics.write_acks()
        (tended,) = shell("tend", "--once", "--json").json["queues"]
    assert tended["deletions"]["left"] == 0


def test_what_no_mail_can_be_made_of_stays_among_the_dead_letters(shell: PulsarShell) -> None:
    shell.put("a")
    shell.reject(1)
    shell.publish(dead_topic(SPOOL), "no mail")

    assert shell("purge", "--yes", "--json").json["removed"] == 1
    assert shell("redrive", "--dry-run", "--json").json["unreadable"] == 1


def test_nothing_is_said_of_slices_or_a_keyspace(shell: PulsarShell) -> None:
    shell.put("a")

    size, queues = shell("size", "--json").json, shell("list", "--json").json

    assert (size["namespace"], size["counted_by"], "keyspace" in size, "slices_read" in size) == (
        *("public/default", "broker"),
        *(False, False),
    )
    assert "1 mails wait in spool (by the broker)." in shell("size").out
    assert set(queues["queues"][0]) == {"queue", "mails", "delayed", "kind", "counted_by"}
    assert "slice" not in shell("list").out
    assert "browse" not in shell("list").out


class TestHealth:
    """Whether a queue over topics is well."""

    def test_one_that_is_tended_is_well_and_says_nothing_of_tables(self, shell: PulsarShell) -> None:
        ended = shell("health", "--json")

        (found,) = ended.json["queues"]
        assert (ended.code, found["healthy"], found["mails"], found["delayed"]) == (0, True, 0, 0)
        assert not {"browse_start", "content_start", "swept_at", "marks_expire", "lacking"} & set(found)

    def test_what_the_broker_does_by_itself_is_said_with_what_takes_it_away(self, shell: PulsarShell) -> None:
        shell.put("one")
        shell.topics.policy = TopicPolicies(ttl=timedelta(hours=2), keeps_all=True)

        ended, shown = shell("health", "--json"), shell("health")

        (found,) = ended.json["queues"]
        assert (ended.code, found["mails"]) == (1, 1)
        assert found["topics"]["policies"]["James-spool"]["keeps_all"] is True
        assert [one["trouble"] for one in found["reasons"]] == ["no_consumer", "messages_expire", "kept_for_ever"]
        assert "messages expire: James-spool" in shown.out
        assert "-> pulsar-admin namespaces set-message-ttl public/default --messageTTL 0" in shown.out

    def test_delayed_mails_that_nobody_moves_are_reported(self, shell: PulsarShell) -> None:
        shell.put("soon", delay=timedelta(minutes=1))
        shell.clock.advance(60 * 7)

        (found,) = shell("health", "--json").json["queues"]

        assert [one["trouble"] for one in found["reasons"]] == ["not_tended"]
        assert found["topics"]["overdue_seconds"] == 360
        assert shell("tend", "--once").code == 0
        assert [one["trouble"] for one in shell("health", "--json").json["queues"][0]["reasons"]] == ["no_consumer"]

    def test_a_broker_that_is_away_is_a_reason(self, shell: PulsarShell) -> None:
        shell.topics.away = True

        ended, metrics = shell("health", "--json"), shell("metrics", "--over", "0")

        (found,) = ended.json["queues"]
        assert (ended.code, found["mails"], found["topics"]) == (1, None, None)
        assert [one["trouble"] for one in found["reasons"]] == ["broker_away"]
        assert "how many mails wait is not known" in shell("health").out
        assert (metrics.code, 'mailmend_queue_broker_up{queue="spool"} 0.0' in metrics.out) == (3, True)
        assert "mailmend_queue_mails{" not in metrics.out

    def test_policies_that_we_may_not_read_are_no_fault_and_are_spoken_of(self, shell: PulsarShell) -> None:
        shell.topics.tells_no_policies = True

        ended = shell("health", "--json")

        assert (ended.code, "was not looked at: the twin tells no policies" in ended.err) == (0, True)


def test_metrics_speak_of_what_topics_can_have_alone(shell: PulsarShell) -> None:
    shell.put(*"ab")
    assert shell("delete", "--name", "a", "--no-keep").code == 0

    text = shell("metrics", "--over", "0").out

    assert 'mailmend_queue_deletions{queue="spool"} 1.0' in text
    assert 'trouble="messages_expire"} 0.0' in text
    assert 'trouble="no_consumer"} 1.0' in text
    of_tables = ("not_swept", "moved_back", "lacks_message", "broker_lacking", "marks_expire", "last_sweep")
    for absent in (*of_tables, "broker_alarm"):
        assert absent not in text


class TestDoctor:
    """Whether what a queue over topics needs is there."""

    def test_broker_and_store_are_asked(self, shell: PulsarShell) -> None:
        shell.put("a")

        found = shell.doctor()

        assert found["broker"]["state"] == "OK"
        assert "Pulsar 4.2.4 at pulsar://127.0.0.1:6650, namespace public/default answers" in found["broker"]["seen"]
        assert found["blobs"]["state"] == "OK"

    def test_delayed_delivery_that_is_off_is_to_be_changed(self, shell: PulsarShell) -> None:
        shell.put("later", delay=timedelta(hours=1))
        shell.topics.policy = TopicPolicies(delays=False)

        found = shell.doctor()["broker"]

        assert (found["state"], "set-delayed-delivery" in found["next"]) == ("TO_CHANGE", True)

    def test_a_broker_that_is_away_cannot_be_reached(self, shell: PulsarShell) -> None:
        shell.topics.away = True

        assert shell.doctor()["broker"]["state"] == "CANNOT_REACH"

    def test_blobs_in_tables_are_refused(self, shell: PulsarShell) -> None:
        found = shell.doctor("--blobs", "cassandra:")["blobs"]

        assert (found["state"], "over Pulsar has none" in found["seen"]) == ("TO_CHANGE", True)
