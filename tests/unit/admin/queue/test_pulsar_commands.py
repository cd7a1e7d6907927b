"""Commands about a queue over Pulsar: the same ones, and what they say where there is no table."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.pulsar_commands import PulsarShell, pulsar_shell


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
